"""What docs/own-controller.md prints works as printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Command

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "own-controller.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


TIDE, *PYTHON, FLOOD = blocks("python")
#: Lines of a shell, and whether this file can run them: others are tests of the crates that they build.
COMMANDS = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("verus ")]


def test_the_queue_is_that_of_the_example() -> None:
    example = (ROOT / "examples" / "own-command" / "src" / "ebb.rs").read_text()
    (block,) = blocks("rust")
    for item in block.split("\n}\n"):
        assert item.strip() in example


@pytest.fixture
def tide(tmp_path: Path) -> None:
    (tmp_path / "tide.py").write_text(TIDE)


@pytest.mark.usefixtures("tide")
@pytest.mark.parametrize("line", [line for line in COMMANDS if "tide.py" in line])
def test_a_command_runs(verus: Command, line: str) -> None:
    ran = verus(*shlex.split(line, comments=True)[1:])
    assert ran.code == 0, ran.err
    assert "Tide" in ran.out


def test_a_command_in_real_time_runs(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "flood.py").write_text(FLOOD)
    (line,) = (line for line in COMMANDS if "--emulate" in line)
    ran = verus(*shlex.split(line)[1:])
    if ran.code == 2 and "needs root" in ran.err:
        pytest.skip(ran.err)
    assert ran.code == 0, ran.err
    assert "Flood" in ran.out


@pytest.mark.usefixtures("tide")
@pytest.mark.parametrize("code", PYTHON)
def test_an_example_in_python_runs(tmp_path: Path, code: str) -> None:
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.usefixtures("tide")
def test_what_is_shown_is_what_is_said(verus: Command, tmp_path: Path) -> None:
    (refused, failed) = blocks("console")
    command, message = refused.splitlines()
    assert verus(*shlex.split(command)[2:]).err == f"{message}\n"
    broken = TIDE.replace("step = len(feedback.acked) / self.packets", "step = len(feedback.acked) / 0")
    (tmp_path / "tide.py").write_text(broken)
    ran = verus("compare", "--trace", "rate:12", "--duration", 1, "--scheme", "tide.py:Tide", "--json")
    assert (ran.code, ran.err) == (1, failed)
