"""What a shell offers after the tabulator key, and the manual pages: from the tables that are parsed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verus.commands.completion import candidates
from verus.endpoint import ENDPOINT_VERBS
from verus.verbs import VERBS

Command = Callable[..., Any]

BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("comp", ["compare", "completion"]),
        ("help trace pl", ["plot"]),
        ("compare --sch", ["--scheme"]),
        ("compare --scheme cub", ["cubic"]),
        ("compare --scheme cubic new", ["newreno"]),
        ("compare --scheme verus:rat", ["verus:ratio="]),
        ("compare --scheme verus:ratio=2,mode=pa", ["verus:ratio=2,mode=paper"]),
        ("compare --mix verus*2+vega", ["verus*2+vegas"]),
        ("compare --queue dropt", ["droptail"]),
        ("compare --traffic on", ["on-off"]),
        ("compare --trace city-driving-3g-u", ["city-driving-3g-up"]),
        ("compare --format l", ["latex"]),
        ("compare --duration 5 --jo", ["--jobs"]),
        ("reproduce sigcomm-fig09", ["sigcomm-fig09"]),
        ("trace info campus-pedestrian-3g-d", ["campus-pedestrian-3g-down"]),
        ("completion z", ["zsh"]),
        ("nonsense --x", []),
    ],
)
def test_what_is_typed_goes_on(typed: str, offered: list[str]) -> None:
    assert candidates(typed.split()) == offered


def test_verbs_of_the_endpoint_are_offered() -> None:
    assert set(ENDPOINT_VERBS) <= set(candidates([""]))


@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("verus compare --scheme verus:ratio=2,mode=pr", "prototype"),
        ("verus repo", "report"),
        ("verus compare --delay-s", "--delay-series"),
    ],
)
def test_bash_puts_in_what_follows_its_own_word_breaks(line: str, replies: str, verus: Command) -> None:
    script = verus("completion", "bash").out
    asked = f"{script}\nCOMP_LINE={line!r} COMP_POINT={len(line)}; _verus; echo ${{COMPREPLY[@]}}"
    ran = subprocess.run(
        ["bash", "-c", asked], capture_output=True, text=True, env={"PATH": f"{BIN}:/usr/bin:/bin"}, check=False
    )
    assert ran.stdout.strip() == replies, ran.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_of_its_shell(shell: str, verus: Command) -> None:
    script = verus("completion", shell).out
    assert "complete --" in script
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"no {shell} on this machine")
    assert subprocess.run([program, "-n"], input=script, text=True, check=False).returncode == 0


def test_every_verb_has_a_page_that_man_can_show(verus: Command, tmp_path: Path) -> None:
    assert verus("man", "man1").code == 0
    names = {path.name for path in (tmp_path / "man1").iterdir()}
    assert {f"verus-{verb.replace(' ', '-')}.1" for verb in VERBS} <= names
    page = (tmp_path / "man1" / "verus-compare.1").read_text()
    assert "\\fB\\-\\-trace <CHANNEL>...\\fR" in page
    assert ".SH EXAMPLES" in page
