"""Bad input gets one clear message that names the file, line or field, exit code 2, and leaves nothing behind."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
Look = Callable[[Path], list[str]]

QUICK = ("--scheme", "cubic", "--duration", "1")


@pytest.fixture
def refused(verus: Command, tmp_path: Path, left_behind: Look) -> Callable[..., None]:
    """Runs a command that must be refused, in one line that has all the words."""

    def run(arguments: tuple[object, ...], *words: str) -> None:
        before = left_behind(tmp_path)
        ran = verus(*arguments)
        assert ran.code == 2, ran
        assert ran.out == ""
        assert len(ran.err.splitlines()) == 1, ran.err
        assert ran.err.startswith("verus: ")
        for word in words:
            assert word in ran.err, ran.err
        assert left_behind(tmp_path) == before

    return run


def test_a_bad_trace_is_named_with_its_line(refused: Command, tmp_path: Path) -> None:
    (tmp_path / "town.down").write_bytes(b"1\n40\n31\n")
    refused(("compare", "--trace", "town.down", *QUICK, "--out", "here"), "town.down", "line 3", "31", "40")


def test_a_truncated_xz_is_refused(refused: Command, tmp_path: Path) -> None:
    whole = lzma.compress("".join(f"{time}\n" for time in range(1, 20000)).encode(), check=lzma.CHECK_CRC32)
    (tmp_path / "town.xz").write_bytes(whole[: len(whole) // 2])
    refused(("compare", "--trace", "town.xz", *QUICK, "--out", "here"), "town.xz")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--trace", "no/such.file"), ("--trace", "no/such.file")),
        (("--trace", "."), ("`.`", "directory")),
        (("--trace", "rate:fast"), ("--trace", "rate:fast")),
        (("--trace", "rate:-1"), ("--trace", "rate:-1")),
        (("--trace", "city-driving-3g-up@one"), ("--trace", "the seed `one`")),
        (("--trace", "city-driving-3g-up@1[9:5]"), ("--trace", "FROM must be before TO")),
        (("--trace", "city-driving-3g-up@1[0:5]+rate:5"), ("--trace", "in `rate:5`")),
        (("--trace", "city-drivin-3g-up@1"), ("--trace", "`city-driving-3g-up`")),
        (("--ack", "city-driving-3g-up@1[5:]"), ("--ack", "needs a TO")),
        (("--traffic", "bursts"), ("--traffic", "`bursts`", "on-off")),
        (("--traffic", "on-off:off=1"), ("--traffic", "`off`", "off_s")),
        (("--traffic", "c.r1002:reading_s=soon"), ("--traffic", "reading_s=soon")),
        (("--traffic", "files"), ("--traffic", "bytes")),
        (("--emulate", "--traffic", "on-off"), ("--traffic", "--emulate")),
        (("--scheme", "quick"), ("--scheme", "quick")),
        (("--scheme", "verus:speed=2"), ("--scheme", "speed")),
        (("--scheme", "verus:ratio=two"), ("--scheme", "ratio", "two")),
        (("--scheme", "verus:ratio=1"), ("--scheme", "ratio")),
        (("--scheme", "verus:ratio=0.5"), ("--scheme", "ratio")),
        (("--scheme", "verus:ratio=nan"), ("--scheme", "ratio")),
        (("--mix", "verus*0"), ("--mix", "verus*0")),
        (("--mix", "cubic+quick"), ("--mix", "quick")),
        (("--queue", "bucket"), ("--queue", "bucket")),
        (("--queue", "red:depth=1"), ("--queue", "depth")),
        (("--queue", "droptail:bytes=lots"), ("--queue", "bytes", "lots")),
        (("--ack", "never"), ("--ack", "never")),
        (("--ack-queue", "bucket"), ("--ack-queue", "bucket")),
        (("--flows", "0"), ("--flows", "0")),
        (("--flows", "many"), ("--flows", "many")),
        (("--flows", "99999999999999999999"), ("--flows", "99999999999999999999")),
        (("--mix", "cubic*99999999999999999999"), ("--mix", "flows")),
        (("--mix", "cubic*60000+vegas*60000"), ("--mix", "flows")),
        (("--packet-bytes", "99999999999999999999"), ("--packet-bytes", "99999999999999999999")),
        (("--ack-every", "1001"), ("--ack-every", "1001")),
        (("--seed", "99999999999999999999"), ("--seed", "99999999999999999999")),
        (("--repeat", "99999999999999999999"), ("--repeat", "99999999999999999999")),
        (("--duration", "0"), ("--duration", "0")),
        (("--duration", "-5"), ("--duration", "-5")),
        (("--duration", "nan"), ("--duration", "nan")),
        (("--duration", "inf"), ("--duration", "inf")),
        (("--delay-ms", "-1"), ("--delay-ms", "-1")),
        (("--delay-ms", "1e300"), ("--delay-ms: must be between 0 and 100000, not 1e+300",)),
        (("--duration", "1e300"), ("--duration: must be above 0 and at most 1000000, not 1e+300",)),
        (("--packet-bytes", "0"), ("--packet-bytes", "0")),
        (("--opportunity-bytes", "1499"), ("--opportunity-bytes", "1499")),
        (("--loss", "1"), ("--loss", "1")),
        (("--seed", "-1"), ("--seed", "-1")),
        (("--repeat", "0"), ("--repeat", "0")),
        (("--speed", "9"), ("--speed",)),
        (("--from", "run.json"), ("`run.json`: No such file",)),
        (("--from", "."), ("`run.json`: No such file",)),
    ],
)
def test_a_bad_value_names_its_flag(
    arguments: tuple[str, ...], words: tuple[str, ...], refused: Command, tmp_path: Path
) -> None:
    refused(("compare", *arguments, "--out", "here"), *words)


def test_a_folder_that_holds_something_needs_force(refused: Command, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.txt").write_text("keep")
    refused(("compare", "--out", "here"), "--out", "here", "--force")


@pytest.mark.parametrize("place", ["taken", "taken/below", "/proc/verus"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_work(
    place: str, refused: Command, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    refused(("compare", *QUICK, "--trace", "rate:5", "--out", place), "--out", place)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("", "run.json"),
        ("[]", "run.json"),
        ("{}", "schema"),
        ('{"schema": 99, "kind": "compare"}', "schema 99"),
        ('{"schema": 1, "kind": "compare", "settings": {"colour": 1}, "channels": []}', "colour"),
        ('{"schema": 1, "kind": "cs244"}', "verus reproduce cs244"),
    ],
)
def test_a_run_json_of_another_kind_is_refused(content: str, word: str, refused: Command, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(content)
    refused(("compare", "--from", "run.json"), "run.json" if word == "schema" else word)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("trace", "info", "nothing"), ("nothing",)),
        (("trace", "plot", "rate:5", "--out", "a.gif"), ("--out", "a.gif")),
        (("trace", "plot", "city-driving-3g-up", "--duration", "0"), ("--duration",)),
        (("trace", "generate", "nowhere", "a.trace"), ("nowhere",)),
        (("trace", "generate", "city-driving-3g-up", "a.trace", "--duration", "nan"), ("--duration", "nan")),
        (("trace", "generate", "city-driving-3g-up", "a.trace", "--seed", "99999999999999999999"), ("--seed",)),
        (("trace", "convert", "nothing.csv", "a.trace"), ("nothing.csv",)),
        (("trace", "fetch", "nothing"), ("nothing",)),
        (("analyze", "nothing.log"), ("nothing.log",)),
        (("analyze", "nothing.log.xz"), ("nothing.log.xz",)),
        (("report", "nowhere"), ("`nowhere`: there is no such folder",)),
        (("report",), ("DIR",)),
        (("reproduce", "everything"), ("everything", "verus reproduce list")),
        (("reproduce", "cs244", "--seed", "-1"), ("--seed", "-1")),
        (("reproduce", "cs244", "--traces", "nowhere"), ("--traces", "nowhere")),
        (("reproduce", "cs244"), ("verus trace fetch cs244", "--built-in")),
        (("bogus",), ("bogus",)),
    ],
)
def test_the_other_verbs_refuse_likewise(
    arguments: tuple[str, ...], words: tuple[str, ...], refused: Command, tmp_path: Path
) -> None:
    refused(arguments, *words)


def test_a_damaged_log_names_its_line(refused: Command, tmp_path: Path) -> None:
    (tmp_path / "down.log").write_text("# base timestamp: 5\n5 # 1504\nfive + 100\n")
    refused(("analyze", "down.log"), "down.log", "line 3")
    (tmp_path / "down.log.xz").write_bytes(lzma.compress((tmp_path / "down.log").read_bytes()))
    refused(("analyze", "down.log.xz"), "down.log.xz", "line 3")
    (tmp_path / "down.log.xz").write_bytes((tmp_path / "down.log.xz").read_bytes()[:40])
    refused(("analyze", "down.log.xz"), "down.log.xz", "cut short")
