"""Files that others wrote or that change: foreign traces, pipes, what changes while it is read, and empty runs."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verus import Flow, Link, Trace, _verus, compare, simulate
from verus.lab import inputs, nothing_arrived, store
from verus.lab.results import Results
from verus.lab.scenario import Contestant, Run, make_run
from verus.report import comparison, summary
from verus.report.numbers import percent

Command = Callable[..., Any]

TIMES = "".join(f"{time}\n" for time in range(1, 1000, 2))


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def capacity(verus: Command, path: object) -> float:
    ran = verus("compare", "--trace", path, "--scheme", "cubic", "--duration", "2", "--json")
    assert ran.code == 0, ran.err
    return float(json.loads(ran.out)["capacity_mbps"])


@pytest.mark.parametrize(("name", "text"), [("t.down", TIMES), ("t.csv", "start_s,end_s,mbps\n0,1,6\n1,2,3\n")])
def test_a_byte_order_mark_is_no_part_of_a_trace(name: str, text: str, verus: Command, tmp_path: Path) -> None:
    Path(name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    Path(f"plain-{name}").write_text(text)
    assert capacity(verus, name) == capacity(verus, f"plain-{name}")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (TIMES.encode("utf-16"), "it is UTF-16 text; save it as UTF-8"),
        (bz2.compress(TIMES.encode()), "it is compressed by bzip2; unpack it"),
        (b"\x28\xb5\x2f\xfd" + bytes(40), "it is compressed by zstd; unpack it"),
        (b"0.0\t1.2\n1.0\t3.4\n", "has several columns"),
        (b"0 1.2\n1 3.4\n", "verus trace convert --rates"),
        (b"0;12\n", "has several columns"),
        (TIMES.encode() + bytes(4096), "line 501: not text (byte 0x00, NUL; a crash may have damaged the file)"),
    ],
)
def test_a_trace_of_another_form_is_refused_by_its_cause(content: bytes, problem: str, verus: Command) -> None:
    Path("t.down").write_bytes(content)
    ran = verus("compare", "--trace", "t.down", "--scheme", "cubic", "--duration", "2", "--json")
    assert ran.code == 2
    assert problem in ran.err
    assert "t.down" in ran.err


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("74 + 1482\n".encode("utf-16"), "it is UTF-16 text; save it as UTF-8"),
        (bz2.compress(b"74 + 1482\n"), "it is compressed by bzip2; unpack it, or compress it by gzip or xz"),
    ],
)
def test_a_log_of_another_encoding_is_refused_by_its_cause(content: bytes, problem: str, verus: Command) -> None:
    Path("log").write_bytes(content)
    ran = verus("analyze", "log")
    assert (ran.code, ran.err) == (2, f"verus: cannot read `log`: {problem}\n")


def test_a_trace_without_a_last_newline_is_whole(verus: Command) -> None:
    Path("t.down").write_text(TIMES.rstrip())
    assert _verus.trace_read("t.down")["times_ms"][-1] == 999


TRAIN = "0 20 0 1 3\n500 20 0 1\n1000 20 0"
CUT = "its last line has no newline and may be cut off"
SEARCH = """
scheme = "copa"
[keys]
delta = { from = 0.4, to = 0.6 }
[tune]
trace = ["t.down"]
duration_s = 1
[judge]
trace = ["rate:9"]
duration_s = 1
[aim]
most = ["utilization"]
[search]
candidates = 1
"""
LOG_OF_PACKETS = "sent_ms,received_ms\n" + "".join(f"{10 * at},{10 * at + 20 + at % 7}\n" for at in range(400))


@pytest.mark.parametrize(
    ("name", "text", "arguments"),
    [
        ("t.down", TIMES, ["compare", "--trace", "FILE"]),
        ("t.down", TIMES, ["compare", "--trace", "FILE[0:0.5]+FILE"]),
        ("t.csv", "start_s,end_s,mbps\n0,1,6\n", ["compare", "--trace", "FILE"]),
        ("delays", "30\n31\n", ["compare", "--trace", "rate:6", "--delay-series", "FILE"]),
        ("light", TRAIN + "\n", ["compare", "--trace", "rate:6", "--light-trace", "FILE", "--packet-bytes", "1400"]),
        ("t.down", TIMES, ["trace", "info", "FILE"]),
        ("t.down", TIMES, ["trace", "plot", "FILE"]),
        ("raw", "1763000000.1\n1763000000.2\n", ["trace", "convert", "FILE", "out.down"]),
        ("t.gz", TIMES, ["trace", "info", "FILE"]),
        ("t.down", "".join(f"{time}\n" for time in range(1, 4000, 2)), ["trace", "fit", "FILE"]),
        ("log.csv", LOG_OF_PACKETS, ["trace", "fit", "FILE"]),
        ("t.down", TIMES, ["train", "m.model", "--force", "--duration", "2", "--trace", "FILE"]),
    ],
)
def test_a_last_line_that_may_be_cut_off_is_used_and_named(
    name: str, text: str, arguments: list[str], verus: Command
) -> None:
    words = [word.replace("FILE", name) for word in arguments]
    if words[0] == "compare":
        words += ["--scheme", "cubic", "--duration", "2", "--json"]
    for content, is_warned in ((text, False), (text.rstrip(), True)):
        Path("out.down").unlink(missing_ok=True)
        Path("t.down.svg").unlink(missing_ok=True)
        packed = content.encode()
        Path(name).write_bytes(gzip.compress(packed) if name.endswith(".gz") else packed)
        ran = verus(*words)
        assert ran.code == 0
        assert ran.err.count(f"Warning: `{name}`: {CUT}") == is_warned


def test_of_utf_16_nothing_else_is_said(verus: Command) -> None:
    Path("t.down").write_bytes(TIMES.encode("utf-16"))
    ran = verus("compare", "--scheme", "cubic", "--duration", "2", "--trace", "t.down")
    assert ran.code == 2
    assert ran.err == "verus: trace `t.down`: it is UTF-16 text; save it as UTF-8\n"


def test_a_search_names_a_channel_that_may_be_cut_off(verus: Command) -> None:
    Path("t.down").write_text(TIMES.rstrip())
    Path("s.toml").write_text(SEARCH)
    ran = verus("tune", "s.toml", "--out", "tuned")
    assert ran.err.count(f"Warning: `t.down`: {CUT}") == 1


def test_a_study_names_a_channel_that_may_be_cut_off(verus: Command) -> None:
    Path("t.down").write_text(TIMES.rstrip())
    Path("s.toml").write_text('scheme = ["cubic"]\ntrace = ["t.down"]\nduration_s = 2\n')
    assert f"Warning: `t.down`: {CUT}" in verus("sweep", "s.toml").err


def test_python_warns_of_a_channel_that_may_be_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "t.down"
    path.write_text(TIMES.rstrip())
    with pytest.warns(UserWarning, match=CUT):
        Trace.read(path)
    with pytest.warns(UserWarning, match=CUT):
        simulate(link=Link.from_trace(path), flows=[Flow("cubic")], duration_s=1)
    with pytest.warns(UserWarning, match=CUT):
        compare(traces=[path], schemes=["cubic"], duration_s=1)


LOG = "# base timestamp: 0\n0 + 1500\n1 # 1504\n2 - 1500 2\n3 + 1500\n"


@pytest.mark.parametrize("cut", range(1, 9))
def test_the_last_line_of_a_log_is_left_out_if_it_is_cut_off(cut: int, verus: Command) -> None:
    Path("l").write_text((LOG + "4 - 1500 1\n")[:-cut])
    ran = verus("analyze", "l", "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["departures"] == 1
    assert "`l`: its last line is cut off, and left out" in ran.err


def test_a_log_that_is_absent_is_named_without_a_line(verus: Command) -> None:
    ran = verus("analyze", "nothere")
    assert ran.code == 2
    assert ran.err.startswith("verus: cannot read `nothere`: No such file or directory")


def test_a_whole_log_is_read_whole(verus: Command) -> None:
    Path("l").write_text(LOG + "4 - 1500 1\n")
    ran = verus("analyze", "l", "--json")
    assert json.loads(ran.out)["departures"] == 2
    assert ran.err == ""


PIPED = """
import os, sys
from verus.cli import run
reader, writer = os.pipe()
os.write(writer, sys.argv[1].encode())
os.close(writer)
sys.exit(run([word.replace("PIPE", f"/dev/fd/{reader}") for word in sys.argv[2:]]))
"""

COMPARE = ("compare", "--scheme", "cubic", "newreno", "--duration", "1")


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs /dev/fd")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TIMES, (*COMPARE, "--trace", "PIPE", "--json")),
        (TIMES, (*COMPARE, "--trace", "PIPE", "--out", "o", "-q")),
        ("20\n" * 100, (*COMPARE, "--trace", "rate:5", "--delay-series", "PIPE", "--json")),
        ('[{"at_s":0.5,"rate_mbps":2}]', (*COMPARE, "--trace", "rate:5", "--changes", "PIPE", "--json")),
        (TIMES, ("trace", "info", "PIPE")),
        (LOG, ("analyze", "PIPE")),
        ('scheme=["cubic"]\ntrace=["rate:6"]\nduration_s=1\nname="s"\n', ("sweep", "PIPE", "--out", "s", "-q")),
    ],
)
def test_a_pipe_that_was_given_is_read_once_and_kept(text: str, words: tuple[str, ...]) -> None:
    ran = subprocess.run([sys.executable, "-c", PIPED, text, *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    rows = [json.loads(line) for line in ran.stdout.splitlines()] if "--json" in words else []
    assert len({row["capacity_mbps"] for row in rows}) == (1 if rows else 0)


def run_over(trace: str, duration_s: float = 1.0) -> Run:
    scheme = Contestant.from_scheme("cubic")
    return make_run(trace=trace, queue="infinite", duration_s=duration_s, series=False, contestant=scheme)


def rewrite(path: Path, text: str) -> None:
    """Writes other contents of the same length, and lets the time stamps be."""
    before = path.stat()
    assert len(text) == before.st_size
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("way", ["t.down", "link.down", "folder/t.down"])
def test_a_trace_that_changes_under_its_time_stamp_is_read_again(way: str) -> None:
    file = Path("t.down")
    file.write_text("1\n2\n3\n")
    Path("link.down").symlink_to("t.down")
    Path("folder").symlink_to(".")
    for text, last in (("1\n2\n3\n", 3), ("1\n2\n9\n", 9)):
        rewrite(file, text)
        assert list(_verus.trace_read(way)["times_ms"]) == [1, 2, last]


CLASS = """
from helper import PACKETS
from verus import Controller

class Mine(Controller):
    window_bytes = {factor} * PACKETS * 1500

    def on_feedback(self, feedback) -> None: ...
    def on_timeout(self, timeout) -> None: ...
"""


def throughput(scheme: str) -> float:
    run = make_run(
        trace="rate:9", queue="infinite", duration_s=2.0, series=False, contestant=Contestant.from_scheme(scheme)
    )
    (outcome,) = _verus.simulate_many([run.to_json()], 1, None, columns=False)
    assert not isinstance(outcome, RuntimeError)
    return float(outcome["metrics"]["throughput_mbps"])


@pytest.mark.parametrize("changed", ["mine.py", "helper.py"])
def test_a_controller_that_changes_under_its_time_stamp_is_loaded_again(changed: str) -> None:
    Path("mine.py").write_text(CLASS.format(factor=1))
    Path("helper.py").write_text("PACKETS = 2\n")
    before = throughput("mine.py:Mine")
    assert throughput("mine.py:Mine") == before
    texts = {"mine.py": CLASS.format(factor=3), "helper.py": "PACKETS = 6\n"}
    rewrite(Path(changed), texts[changed])
    assert throughput("mine.py:Mine") == pytest.approx(3 * before, rel=0.1)


def test_controllers_of_two_folders_have_helpers_of_their_own() -> None:
    for name, packets in (("one", 2), ("two", 6)):
        Path(name).mkdir()
        Path(name, "mine.py").write_text(CLASS.format(factor=1))
        Path(name, "helper.py").write_text(f"PACKETS = {packets}\n")
    assert throughput("two/mine.py:Mine") == pytest.approx(3 * throughput("one/mine.py:Mine"), rel=0.1)
    assert throughput("two/mine.py:Mine") == pytest.approx(3 * throughput("one/mine.py:Mine"), rel=0.1)


def test_nothing_is_kept_of_a_run_whose_file_changed_while_it_was_read(tmp_path: Path) -> None:
    file = Path("t.down")
    file.write_text("1\n2\n3\n")
    made = store.Keys("one")
    run = run_over("t.down")
    key = made.of(run)

    def changing(runs: Any) -> Any:
        rewrite(file, "1\n2\n9\n")
        (outcome,) = _verus.simulate_many([each.to_json() for each in runs], 1, None, columns=False)
        yield 0, outcome

    kept = store.Store(tmp_path / "runs")
    with pytest.raises(RuntimeError, match=r"`t\.down` changed while runs read it"):
        store.complete([run], [key], kept, changing, made=made)
    assert not kept.has(key)


def test_a_comparison_whose_trace_changes_meanwhile_fails(verus: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("t.down").write_text(TIMES)
    check = inputs.Digests.check

    def changed(self: inputs.Digests, path: Path) -> None:
        path.write_text(TIMES[:-8])
        check(self, path)

    monkeypatch.setattr(inputs.Digests, "check", changed)
    for more in (("--json",), ("--out", "o")):
        Path("t.down").write_text(TIMES)
        ran = verus(*COMPARE, "--trace", "t.down", *more)
        assert (ran.code, ran.out) == (1, "")
        assert "`t.down` changed while runs read it" in ran.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--trace", "late.down"), "the first opportunity of `late.down` is at 90 s, and the run lasts 3 s"),
        (("--trace", "calendar.down"), "its times are of a calendar"),
        (("--trace", "rate:9", "--second-trace", "late.down"), "the first opportunity of `late.down`"),
        (("--trace", "rate:9", "--ack", "late.down"), "nothing was acknowledged"),
        (("--trace", "rate:9", "--delay", "70s"), "nothing arrives: the delay"),
        (("--trace", "rate:9", "--delay-series", "slow"), "nothing arrived"),
        (("--trace", "rate:9", "--changes", "off.json"), "nothing arrived"),
        (("--trace", "rate:9", "--ack-delay", "70s"), "nothing was acknowledged"),
    ],
)
def test_a_run_in_which_nothing_arrived_says_so(words: tuple[str, ...], why: str, verus: Command) -> None:
    Path("late.down").write_text("".join(f"{time}\n" for time in range(90_000, 100_000, 5)))
    Path("calendar.down").write_text("".join(f"{1_763_000_000_000 + time}\n" for time in range(0, 1000, 5)))
    Path("slow").write_text("70000\n" * 1000)
    Path("off.json").write_text('[{"at_s":0,"rate_mbps":0}]')
    ran = verus("compare", "--scheme", "cubic", "--duration", "3", "--json", *words)
    assert ran.code == 0
    assert why in ran.err
    assert ran.err.count("Warning") == 1
    (row,) = map(json.loads, ran.out.splitlines())
    if "nothing was acknowledged" not in why:
        assert [row[name] for name in nothing_arrived.SHARES] == [None] * len(nothing_arrived.SHARES)


def test_a_change_after_the_end_of_a_run_is_named(verus: Command) -> None:
    Path("late.json").write_text('[{"at_s":1,"loss":0.1},{"at_s":3,"loss":0},{"at_s":4,"loss":0.1}]')
    ran = verus("compare", "--trace", "rate:9", "--scheme", "cubic", "--duration", "3", "--changes", "late.json")
    assert ran.code == 0
    assert ran.err.count("Warning: the path does not change at 3 s and later: the run lasts 3 s") == 1


def test_of_a_channel_that_carried_nothing_the_omniscient_sender_used_no_share(verus: Command) -> None:
    Path("late.down").write_text("".join(f"{time}\n" for time in range(90_000, 100_000, 5)))
    ran = verus("compare", "--scheme", "cubic", "--duration", "3", "--trace", "late.down", "rate:9", "--out", "o")
    assert ran.code == 0
    _, late, steady = re.split(r"^(?=late\.down|rate:9)", ran.out, flags=re.MULTILINE)
    assert "omniscient" not in late
    assert "omniscient" in steady
    parts = summary.blocks(Results.read(Path("o")))
    assert ["omniscient" in comparison.results_table(part) for part in parts] == [False, True]
    best = comparison._summary(parts).partition("omniscient")[2]
    assert best.count(f"{percent(1.0)} · ") == 1


def test_a_run_in_which_something_arrived_says_nothing(verus: Command) -> None:
    ran = verus("compare", "--scheme", "cubic", "--duration", "1", "--json", "--trace", "rate:9")
    assert "Warning" not in ran.err
    assert json.loads(ran.out)["loss_rate"] == 0


def test_a_converted_series_of_rates_has_its_rate_and_may_be_fitted(verus: Command) -> None:
    Path("r.csv").write_text("start_s,end_s,mbps\n0,1,12\n1,2,12\n")
    assert verus("trace", "convert", "--rates", "r.csv", "r.down").out == "r.down: 2000 opportunities, 2 s\n"
    (info,) = (json.loads(line) for line in verus("trace", "info", "r.down", "--json").out.splitlines())
    assert (info["duration_s"], info["mean_mbps"], info["share_of_ms_delivering"]) == (2, 12, 1)
    assert verus("trace", "fit", "r.csv").code == 0
    Path("s.csv").write_text("start_s,end_s,mbps\n0,2,7\n")
    end = "(a trace ends with its last opportunity, 0.001 s before the end of `s.csv`)"
    assert verus("trace", "convert", "--rates", "s.csv", "s.down").out == f"s.down: 1166 opportunities, 1.999 s {end}\n"
    assert verus("trace", "fit", "s.csv").code == 0
    refused = verus("trace", "convert", "--rates", "r.csv", "none/r.down")
    assert refused.err == "verus: `none/r.down` cannot be written: there is no folder `none`\n"
