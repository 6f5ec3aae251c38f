"""Completions of shells, and the manual pages: both come from the parser's tables."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verus.commands.completion import candidates
from verus.commands.verbs import VERBS
from verus.endpoints.program import ENDPOINT_VERBS

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
        ("list schemes cub", ["cubic"]),
        ("list queues fq", ["fq_codel"]),
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
    command = f"{script}\nCOMP_LINE={line!r} COMP_POINT={len(line)}; _verus; echo ${{COMPREPLY[@]}}"
    ran = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env={"PATH": f"{BIN}:/usr/bin:/bin"}, check=False
    )
    assert ran.stdout.strip() == replies, ran.stderr


#: Typed words → completions that a shell offers or inserts, for both programs of the command.
TYPED = {
    "verus repo": "report",
    "verus compare --scheme verus:ratio=2,mode=pr": "verus:ratio=2,mode=prototype",
    "verus probe cl": "client",
    "verus probe client --dur": "--duration",
    "verus probe client localhost --direction do": "down",
    "verus probe client localhost --scheme verus:mode=pa": "verus:mode=paper",
    "verus shell --down city-driving-3g-u": "city-driving-3g-up",
    "verus shell --queue dropt": "droptail",
    "verus serve --read": "--read-only",
    "verus help probe ser": "server",
}


def in_bash(script: Path, line: str) -> list[str]:
    command = (
        f"source {script}; COMP_LINE={line!r} COMP_POINT={len(line)}; _verus; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    # Bash puts in what follows the last of its word breaks.
    before = line.split()[-1]
    kept = before[: max(before.rfind("="), before.rfind(":")) + 1]
    return [kept + word for word in _said(["bash", "-c", command], script.parent)]


def in_zsh(script: Path, line: str) -> list[str]:
    # Without zsh's line editor: `compadd` prints its arguments.
    command = f"""autoload -Uz compinit; compinit -u -D -d {script.parent}/zcompdump
source {script}
compadd() {{ local -a given=("$@"); print -rl -- ${{(P)given[-1]}} }}
_files() {{ : }}
words=({line}) CURRENT=$#words; _verus"""
    return _said(["zsh", "-f", "-c", command], script.parent)


def in_fish(script: Path, line: str) -> list[str]:
    command = f"source {script}; complete -C '{line}'"
    return [word.split("\t")[0] for word in _said(["fish", "--no-config", "-c", command], script.parent)]


def _said(command: list[str], home: Path) -> list[str]:
    # A shell that finds no home makes one.
    environment = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(home)}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


SHELLS = {"bash": in_bash, "zsh": in_zsh, "fish": in_fish}


@pytest.mark.parametrize("line", TYPED)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_both_halves(shell: str, line: str, verus: Command, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    script = tmp_path / "script"
    script.write_text(verus("completion", shell).out)
    assert SHELLS[shell](script, line) == [TYPED[line]]


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
    for verb in ENDPOINT_VERBS:
        page = (tmp_path / "man1" / f"verus-{verb}.1").read_text()
        assert "Examples:" in page
    page = (tmp_path / "man1" / "verus-compare.1").read_text()
    assert "\\fB\\-\\-trace <CHANNEL>...\\fR" in page
    assert ".SH EXAMPLES" in page
