"""The command: it starts fast, works without optional packages, and lists its features."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verus import cli
from verus.commands.verbs import VERBS

Command = Callable[..., Any]

HEAVY = ("numpy", "pyarrow", "scipy", "vl_convert", "rich.progress")


def imported(code: str) -> set[str]:
    """Modules that are loaded after running `code` in a fresh interpreter."""
    script = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\nprint(*sys.modules, file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(ran.stderr.splitlines()[-1].split())


def test_help_imports_nothing_heavy() -> None:
    assert not imported("from verus.cli import main; main(['--help'])") & set(HEAVY)


@pytest.mark.parametrize("verb", ["compare", "reproduce", "train"])
def test_help_of_a_verb_imports_nothing_heavy(verb: str) -> None:
    assert not imported(f"from verus.cli import main; main(['{verb}', '--help'])") & set(HEAVY)


def test_the_package_imports_next_to_nothing() -> None:
    assert not imported("import verus") & {*HEAVY, "cyclopts", "rich", "verus._verus"}


def test_a_row_needs_no_array_and_no_table() -> None:
    words = ["compare", "--json", "--duration", "1", "--trace", "rate:5", "--scheme", "cubic"]
    assert not imported(f"from verus.cli import main; main({words})") & {*HEAVY, "rich.console", "urllib.request"}


def test_the_verbs_of_the_endpoint_import_next_to_nothing(tmp_path: Path) -> None:
    loaded = imported(f"sys.executable = {str(tmp_path / 'python')!r}; from verus.cli import main; main(['serve'])")
    assert "verus.cli" in loaded
    assert not loaded & {*HEAVY, "cyclopts", "rich", "verus._verus"}


def beside(folder: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs `verus` as if the interpreter lay in a folder."""
    python = f"import sys; sys.executable = {str(folder / 'python')!r}"
    code = f"{python}; from verus.cli import main; main({arguments!r})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("verb", ["probe", "serve", "send", "receive"])
def test_a_build_without_the_endpoint_says_so(verb: str, tmp_path: Path) -> None:
    ran = beside(tmp_path, [verb, "--now"])
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr == (
        f"verus: `{verb}` needs the program `verus-endpoint`, which is not in `{tmp_path}` or `{Path.cwd()}` "
        "(in a copy of the repository, `make build` makes it)\n"
    )


@pytest.mark.parametrize("before", [[], ["-q"], ["--verbose", "-v"]])
def test_the_endpoint_beside_the_interpreter_is_handed_the_words(before: list[str], tmp_path: Path) -> None:
    binary = tmp_path / "verus-endpoint"
    binary.write_text('#!/bin/sh\necho "$@"\nexit 7\n')
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    ran = beside(tmp_path, [*before, "send", "a b", "--x"])
    assert (ran.returncode, ran.stdout) == (7, " ".join([*before, "send a b --x\n"]))


def test_an_endpoint_that_cannot_run_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "verus-endpoint"
    binary.write_bytes(b"\x7fELF, or not")
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    ran = beside(tmp_path, ["probe"])
    assert (ran.returncode, ran.stderr) == (2, f"verus: `{binary}` cannot be run: Exec format error\n")


def test_help_names_the_verbs_of_the_endpoint(verus: Command) -> None:
    page = verus("--help").out
    for verb in ("probe", "serve", "send", "receive"):
        assert f"\n  {verb} " in page, verb


@pytest.mark.parametrize(
    ("verb", "usage"),
    [
        ("compare", "[OPTIONS]"),
        ("check", "[OPTIONS] [SCHEME]..."),
        ("trace convert", "[OPTIONS] <RAW> <OUT>"),
        ("sweep", "<VERB> [OPTIONS] <STUDY>"),
        ("sweep merge", "--out <DIR> [OPTIONS] <DIR>..."),
        ("list", "<VERB>"),
    ],
)
def test_usage_names_what_a_verb_takes_and_what_may_be_several_or_none(
    verb: str, usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*verb.split(), "--help"]) == 0
    assert f"\nUsage: verus {verb} {usage}\n" in capsys.readouterr().out


def test_what_an_option_takes_is_named_for_what_it_is_and_not_for_its_type(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in VERBS:
        assert cli.run([*verb.split(), "--help"]) == 0
        assert not re.search("<(INT|FLOAT|STR|BOOL|PATH|None)>", capsys.readouterr().out), verb


def test_version_is_that_of_the_crates(verus: Command) -> None:
    from verus import _verus

    assert verus("--version").out.strip() == _verus.version()


@pytest.mark.parametrize("verb", ["schemes", "queues", "jitter", "reorder", "loss", "channels"])
def test_list_says_what_there_is(verb: str, verus: Command) -> None:
    ran = verus("list", verb)
    assert ran.code == 0
    lines = [json.loads(line) for line in verus("list", verb, "--json").out.splitlines()]
    names = {line["name"] for line in lines}
    assert (
        names
        >= {
            "schemes": {"verus", "cubic", "newreno", "vegas"},
            "queues": {"red", "droptail", "codel", "pie", "fq_codel", "dualpi2", "infinite"},
            "jitter": {"none", "uniform", "gauss", "wifi"},
            "reorder": {"none", "late", "uniform"},
            "loss": {"none", "random", "gemodel", "state"},
            "channels": {"city-driving-3g-up", "cs244-2017/city_drive_2min"},
        }[verb]
    )
    for name in names:
        assert name in ran.out


def test_list_shows_those_that_are_named_alone(verus: Command) -> None:
    lines = verus("list", "schemes", "cubic", "newreno", "--json").out.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["cubic", "newreno"]


def test_a_path_wavers_as_asked_and_what_cannot_be_is_named(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "changes.json").write_text('[{"at_s": 0.5, "rate_mbps": 0}, {"at_s": 0.7, "rate_mbps": 8}]')
    (tmp_path / "none.json").write_text("{}")
    (tmp_path / "twice.json").write_text('[{"at_s": 1, "rate_mbps": 2, "rate_mbps": 3}]')
    (tmp_path / "delays.txt").write_text("20\n25\nsoon\n")
    (tmp_path / "losses.txt").write_text("0\n0.01\n")
    compared = ["compare", "--trace", "rate:8", "--scheme", "cubic", "--duration", "2", "--json"]
    paths = ["--jitter", "gauss:mean_ms=5", "--ack-jitter", "uniform:max_ms=3", "--reorder", "late:p=0.01,ms=10"]
    paths += ["--ack-delay-ms", "30", "--ack-loss", "0.01", "--loss-bursts", "1/100"]
    paths += ["--loss-model", "gemodel:p=0.1%,r=30%", "--duplicate", "1%", "--corrupt", "0.1%"]
    paths += ["--loss-series", str(tmp_path / "losses.txt")]
    paths += ["--changes", str(tmp_path / "changes.json"), "--changes-repeat", "1"]
    ran = verus(*compared, *paths)
    assert ran.code == 0, ran.err
    plain, wavering = (json.loads(one.out)["rtt_mean_ms"] for one in (verus(*compared), ran))
    assert wavering != plain
    for options, words in [
        (["--jitter", "gauss"], "jitter `gauss`: `gauss` needs mean_ms=MS"),
        (["--ack-jitter", "often"], "ack_jitter `often`: unknown kind `often`"),
        (["--reorder", "late:p=2,ms=1"], "p must be between 0 and 1, not `2`"),
        (["--loss-bursts", "2"], "must be `none`, or LOST/OF"),
        (["--ack-loss", "1"], "must be at least 0 and below 1"),
        (["--loss-model", "gemodel"], "loss_model `gemodel`: `gemodel` needs p=PROBABILITY"),
        (["--loss-series", str(tmp_path / "delays.txt")], "line 1: `20` is not a probability between 0 and 1"),
        (["--duplicate", "1"], "must be at least 0 and below 1"),
        (["--delay-series", str(tmp_path / "delays.txt")], "line 3: `soon` is not a whole number of milliseconds"),
        (["--delay-series", str(tmp_path / "nothing")], "cannot read"),
        (["--changes", str(tmp_path / "none.json")], "must hold a list of changes"),
        (["--changes", str(tmp_path / "delays.txt")], "is not JSON"),
        (["--changes", str(tmp_path / "twice.json")], "twice.json` has `rate_mbps` twice in one change"),
        (["--changes", str(tmp_path / "changes.json"), "--changes-repeat", "0.5"], "after the last change"),
    ]:
        ran = verus(*compared, *options)
        assert (ran.code, ran.out) == (2, ""), options
        assert words in ran.err
        assert ran.err.count("\n") == 1, ran.err


def test_options_of_netem_are_options_of_ours_or_are_refused(verus: Command) -> None:
    compared = ["compare", "--scheme", "cubic", "--duration", "2", "--json"]
    ran = verus(*compared, "--netem", "rate 8mbit limit 60 delay 20ms 5ms loss gemodel 1% 10% duplicate 1%")
    assert ran.code == 0, ran.err
    options = "--trace rate:8 --queue droptail:packets=60 --delay-ms 15 --loss-model gemodel:p=0.01,r=0.1,1-h=1,1-k=0 "
    options += "--duplicate 0.01 --jitter uniform:max_ms=10 --ack-delay-ms 0"
    assert f"netem: {options}\n" in ran.err
    typed = verus(*compared, *options.split())
    assert (typed.code, typed.out) == (0, ran.out)
    for arguments, words in [
        (["--netem", "delay 20ms distribution normal"], "--netem: `distribution normal`: there are no tables here"),
        (["--netem", "loss 1%", "--loss", "2%"], "--netem: sets --loss, which is given too: leave one of them out"),
        (["--netem", "rate 1mbit", "--trace", "rate:1"], "--netem: sets --trace, which is given too"),
    ]:
        ran = verus(*compared, *arguments)
        assert (ran.code, ran.out) == (2, ""), ran.err
        assert words in ran.err


def test_a_series_of_rates_is_a_channel_and_makes_a_trace(verus: Command, tmp_path: Path) -> None:
    series = tmp_path / "town.csv"
    series.write_text("start_s,end_s,mbps\n0,1,12\n1,2,6\n")
    ran = verus("trace", "convert", "--rates", str(series), str(tmp_path / "town.down"))
    assert ran.code == 0, ran.err
    lines = (tmp_path / "town.down").read_text().split()
    assert (len(lines), lines[0], lines[-1]) == (1500, "1", "2000")
    compared = ["compare", "--scheme", "cubic", "--duration", "4", "--json", "--trace"]
    row = json.loads(verus(*compared, str(series)).out)
    assert abs(row["capacity_mbps"] - 9 * 1504 / 1500) < 0.01
    series.write_text("start_s,end_s,mbps\n0,1,12\n1.5,2,6\n")
    for arguments in (["trace", "convert", "--rates", str(series), str(tmp_path / "other")], [*compared, str(series)]):
        ran = verus(*arguments)
        assert ran.code == 2
        assert "line 3: a row must begin where the one before ended (1 s), not at 1.5 s" in ran.err


def test_two_links_in_a_row_are_crossed(verus: Command) -> None:
    compared = ["compare", "--trace", "rate:8", "--scheme", "cubic", "--duration", "4", "--json"]
    ran = verus(*compared, "--second-trace", "rate:4", "--second-queue", "droptail:packets=50")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["capacity_mbps"] == 4
    ran = verus(*compared, "--second-trace", "nowhere")
    assert ran.code == 2
    assert "--second-trace: unknown channel `nowhere`" in ran.err


def test_every_scheme_and_queue_that_is_listed_runs(verus: Command) -> None:
    schemes = [json.loads(line)["name"] for line in verus("list", "schemes", "--json").out.splitlines()]
    assert verus("train", "a.model", "--trace", "rate:5", "--duration", "2").code == 0
    schemes = ["model:file=a.model" if name == "model" else name for name in schemes]
    queues = [json.loads(line) for line in verus("list", "queues", "--json").out.splitlines()]
    arguments = [word for queue in queues for word in ("--queue", queue.get("example", queue["name"]))]
    ran = verus("compare", "--trace", "rate:5", "--duration", "1", "--json", "--scheme", *schemes, *arguments)
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) == len(schemes) * len(queues)


def test_output_that_nobody_reads_is_no_error() -> None:
    command = f"{sys.executable} -m verus list channels --json | head -n 1"
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_front_names_its_flags_as_python_does(verus: Command) -> None:
    ran = verus("compare", "--help")
    words = "trace scheme mix queue ack ack-queue delay-ms packet-bytes flows duration seed repeat json out force from"
    for word in f"{words} loss opportunity-bytes ack-every loop once records verbose quiet".split():
        flag = f"--{word}"
        assert flag in ran.out


def test_a_trace_is_looked_at_made_and_drawn(verus: Command, tmp_path: Path) -> None:
    made = verus("trace", "generate", "city-driving-3g-up", "town.xz", "--duration", "5", "--seed", "4")
    assert made.code == 0
    assert "opportunities" in made.out
    (info,) = map(json.loads, verus("trace", "info", "town.xz", "--json").out.splitlines())
    assert info["opportunities"] == int(made.out.split()[1])
    assert (
        "cv_100ms" in verus("trace", "info", "town.xz", "rate:5").out
        or "rate:5" in verus("trace", "info", "rate:5").err
    )
    for ending in ("svg", "png", "html"):
        assert verus("trace", "plot", "town.xz", "--out", f"town.{ending}").code == 0
        assert (tmp_path / f"town.{ending}").stat().st_size > 1000
    again = verus("trace", "generate", "city-driving-3g-up", "town.xz")
    assert again.code == 2
    assert "--force" in again.err


#: Trains and an opportunity in two seconds, both made by hand.
LIGHT, HEAVY = "0 20 0 1 3\n100 24 0 2 2 9\n200 22 0 1\n", "1000\n2000\n"


def test_short_trains_take_a_light_trace_and_not_the_heavy_one(verus: Command, tmp_path: Path) -> None:
    for name, text in [("light", LIGHT), ("heavy", HEAVY), ("broken", "0 20 0\n100 soon 0\n"), ("sizes", "100 1\n")]:
        (tmp_path / name).write_text(text)
    light, heavy, broken, sizes = (str(tmp_path / name) for name in ("light", "heavy", "broken", "sizes"))
    pings = ["compare", "--trace", heavy, "--queue", "infinite", "--scheme", "constant:rate_mbps=0.1"]
    pings += ["--duration", "10", "--json"]
    ran = verus(*pings, "--light-trace", light)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("verus: --packet-bytes: must be at most 1400 beside --light-trace, not 1500")
    pings += ["--packet-bytes", "1400"]
    alone, beside, both = (
        json.loads(verus(*pings, *more).out)
        for more in ([], ["--light-trace", light, "--light-timer-ms", "20ms"], ["--light-trace", light, "--ack", "same",
                      "--ack-light-trace", light, "--ack-queue", "infinite"])
    )  # fmt: skip
    assert alone["rtt_mean_ms"] > 1000
    assert 40 <= beside["rtt_mean_ms"] <= 44
    assert beside["qdelay_mean_ms"] == 0
    assert 40 <= both["rtt_mean_ms"] <= 48
    for options, words in [
        (["--light-trace", broken], "line 2: `100 soon 0` is no packet train"),
        (["--light-trace", str(tmp_path / "nothing")], "cannot read"),
        (["--light-trace", light, "--size-offsets", sizes], "offsets of 1 sizes"),
        (["--size-offsets", sizes], "left out where there is no --light-trace"),
        (["--ack-light-trace", light], "--ack: must be a channel beside --ack-light-trace"),
        (["--light-trace", light, "--ack-light-trace", broken, "--ack", "same"], "line 2: `100 soon 0` is no packet"),
        (["--light-trace", light, "--delay-series", light], "--delay-series: must be left out beside --light-trace"),
        (["--light-trace", light, "--light-timer-ms=-1"], "must be between 0 and 100000"),
    ]:
        ran = verus(*pings, *options)
        assert (ran.code, ran.out) == (2, ""), options
        assert words in ran.err
        assert len(ran.err.splitlines()) == 1


def test_a_raw_log_is_converted(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text("1420000000.5\n1420000000.5104\n1420000000.52\n")
    assert verus("trace", "convert", "raw.csv", "town").code == 0
    refused = verus("trace", "convert", "raw.csv", "town.csv.gz")
    assert refused.code == 2
    assert "cannot write `town.csv.gz`: a channel whose name ends in .csv is a series of rates" in refused.err
    assert (tmp_path / "town").read_text().split() == ["0", "10", "20"]


def test_the_log_of_the_2017_reproduction_gives_its_published_figures(verus: Command, shared: Path) -> None:
    folder = shared / "reference" / "cs244-2017"
    expected = json.loads((folder / "camp_ped_log_r2.first20s.expected.json").read_text())
    ran = verus("analyze", folder / "camp_ped_log_r2.first20s.log.xz", "--json")
    assert ran.code == 0
    info = json.loads(ran.out)
    names = {
        "base_timestamp": "base_timestamp",
        "opportunities": "opportunities",
        "arrivals": "arrivals",
        "departures": "departures",
        "arrived_bytes": "arrived_bytes",
        "departed_bytes": "departed_bytes",
        "capacity_mbps": "capacity_mbps",
        "throughput_mbps": "throughput_mbps",
        "signal_delay_p95_ms": "p95_signal_delay_ms",
        "qdelay_p95_ms": "p95_packet_delay_ms",
        "qdelay_p50_ms": "p50_packet_delay_ms",
        "qdelay_mean_ms": "mean_packet_delay_ms",
        "qdelay_max_ms": "max_packet_delay_ms",
    }
    for ours, theirs in names.items():
        assert info[ours] == pytest.approx(expected[theirs], rel=1e-4), ours


def test_pipes_get_tables_wide_enough(verus: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    out = verus("compare", "--trace", "rate:5", "--scheme", "cubic", "--duration", "1", "--out", "x").out
    assert "signal" in out
    assert "p95 ms" in out
    assert "…" not in out
    assert os.environ.get("COLUMNS") is None


@pytest.mark.parametrize(
    ("variable", "verb", "message"),
    [
        ("VERUS_EXTENSION", ["list", "schemes"], "verus: VERUS_EXTENSION: there is no file `no/such/file`"),
        (
            "VERUS_ENDPOINT",
            ["probe", "server"],
            "verus: `probe` needs the program `verus-endpoint`, which is not in `no/such/file`, where",
        ),
    ],
)
def test_what_the_environment_names_must_be_there(variable: str, verb: list[str], message: str) -> None:
    command = [sys.executable, "-m", "verus", *verb]
    environment = {**os.environ, variable: "no/such/file"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith(message)
    assert len(ran.stderr.splitlines()) == 1


def test_ctrl_c_while_modules_are_loaded_is_one_line() -> None:
    # The import of a module raises the exception that Ctrl-C raises.
    program = """
import sys, verus.cli
class Interrupted:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted)
verus.cli.main(["list", "schemes"])
"""
    for module in ("verus.commands", "cyclopts", "verus.commands.app", "verus.commands.output"):
        ran = subprocess.run([sys.executable, "-c", program, module], capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (130, ""), module
        assert ran.stderr == "verus: interrupted; nothing was written\n", module


def test_reproduce_alone_lists_and_runs_nothing(verus: Command, tmp_path: Path) -> None:
    ran = verus("reproduce")
    assert ran.code == 0
    assert ran.out == verus("reproduce", "list").out
    assert "sigcomm-fig01" in ran.out
    assert "`verus reproduce all`" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_recordings_beside_built_in_channels_is_refused(verus: Command) -> None:
    ran = verus("reproduce", "sigcomm-fig01", "--traces", "nodir", "--built-in")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "verus: --built-in: leaves out recordings, and --traces names some: give one of the two\n"
