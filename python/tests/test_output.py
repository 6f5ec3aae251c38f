"""Failures to print lose no result: closed pipes, full disks, terminals without our letters."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from .test_check import OWN

QUICK = ("compare", "--trace", "rate:5", "--scheme", "verus", "--duration", "1", "--out", "one")
STUDY = 'trace = "rate:5"\nscheme = ["cubic", "vegas"]\nduration_s = 1\n'

#: Verbs that write files, with the files they write.
LEAVING = {
    "compare": (QUICK, "one/results.parquet"),
    "csv": ((*QUICK, "--format", "csv"), "one/results.parquet"),
    "rows": ((*QUICK, "--json"), "one/results.parquet"),
    "sweep": (("sweep", "s.toml"), "verus-results/s/results.parquet"),
    "check": (("check", "cubic", "--suite", "laws.toml", "--out", "one"), "one/run.json"),
    "report": (("report", "drawn"), "drawn/report.html"),
    "generate": (("trace", "generate", "city-driving-3g-up", "town", "--duration", "2"), "town"),
}

#: Those that only print.
PRINTING: Sequence[tuple[str, ...]] = (
    ("list", "schemes"),
    ("list", "schemes", "verus"),
    ("list", "channels"),
    ("trace", "info", "rate-less"),
    ("--help",),
    ("compare", "--help"),
    ("analyze", "log"),
    ("sweep", "status", "s.toml"),
)

#: Redirections of standard output that make writes fail.
CLOSED = {
    "a closed pipe": "| true",
    "a pipe that is closed early": "| head -c 1 > /dev/null",
    "a full disk": "> /dev/full",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.toml").write_text(STUDY)
    (tmp_path / "laws.toml").write_text(OWN)
    (tmp_path / "rate-less").write_text("1\n2\n3\n")
    (tmp_path / "log").write_text("37 # 1504\n74 + 1482\n75 - 1482 1\n")
    return tmp_path


def shell(command: str, folder: Path, **environment: str) -> tuple[int, str]:
    """The exit code of the first program of a pipe, and its standard error."""
    whole = f"{command}; exit ${{PIPESTATUS[0]}}"
    variables = {**os.environ, "COLUMNS": "100", **environment}
    ran = subprocess.run(["bash", "-c", whole], cwd=folder, capture_output=True, text=True, check=False, env=variables)
    return ran.returncode, ran.stderr


def verus(words: Sequence[str]) -> str:
    return f"{sys.executable} -m verus {' '.join(words)}"


@pytest.mark.parametrize("gone", CLOSED.values(), ids=CLOSED.keys())
@pytest.mark.parametrize("verb", LEAVING)
def test_what_was_found_is_written_whatever_becomes_of_the_table(verb: str, gone: str, folder: Path) -> None:
    words, left = LEAVING[verb]
    if verb == "report":
        assert shell(f"{verus((*QUICK[:-1], 'drawn'))} -q", folder)[0] == 0
    code, err = shell(f"{verus(words)} {gone}", folder)
    assert (folder / left).stat().st_size > 0
    assert not [*folder.rglob("*.unfinished")]
    full = gone == CLOSED["a full disk"]
    printed = verb != "report"  # which prints nothing
    assert code == (1 if full and printed else 0), err
    assert ("standard output cannot be written: No space left on device" in err) == (full and printed)
    assert "Traceback" not in err
    assert "Exception" not in err


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_what_only_prints_says_why_it_could_not(words: Sequence[str], folder: Path) -> None:
    for gone in CLOSED.values():
        code, err = shell(f"{verus(words)} {gone}", folder)
        if gone == CLOSED["a full disk"]:
            assert (code, err) == (1, "verus: standard output cannot be written: No space left on device\n")
        else:
            assert (code, err) == (0, "")


def test_what_cannot_be_said_on_standard_error_costs_nothing(folder: Path) -> None:
    assert shell(f"{verus(QUICK)} 2> /dev/full > /dev/null", folder)[0] == 0
    assert (folder / "one" / "results.parquet").exists()
    assert shell(f"{verus(('compare', '--loss', '7'))} 2> /dev/full", folder)[0] == 2


@pytest.mark.parametrize("words", [*PRINTING, QUICK, ("list", "scenario"), ("report", "one")], ids=" ".join)
def test_a_terminal_of_ascii_gets_words(words: Sequence[str], folder: Path) -> None:
    if words == ("report", "one"):
        assert shell(f"{verus(QUICK)} -q", folder)[0] == 0
    out = folder / "printed"
    code, err = shell(f"{verus(words)} > {out}", folder, LANG="C", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert code == 0, err
    assert out.read_bytes().isascii()
    assert err.isascii()
    if words == ("list", "schemes", "verus"):
        assert "epsilon, the time between decisions" in out.read_text()
    if words == QUICK:
        heading, *_ = out.read_text().splitlines()
        assert heading == "rate:5  -  red:min=375000,max=1125000,p=0.1  -  base RTT 40 ms  -  1 s"
