"""Code and commands of docs/own-controller.md work as printed."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import Command

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "own-controller.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


TIDE, DCTCP, *PYTHON, FLOOD = blocks("python")
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


def dctcp(verus: Command, tmp_path: Path, *words: str) -> list[dict[str, Any]]:
    """Results of the page's DCTCP and other schemes."""
    (tmp_path / "dctcp.py").write_text(DCTCP)
    ran = verus(*words, "--json")
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def test_dctcp_keeps_the_queue_as_short_as_prague(verus: Command, tmp_path: Path) -> None:
    (line,) = (line for line in COMMANDS if "dctcp.py" in line)
    own, prague, cubic = dctcp(verus, tmp_path, *shlex.split(line)[1:])
    assert own["scheme"] == "Dctcp"
    assert own["utilization"] > 0.9
    assert own["loss_rate"] == 0
    assert own["qdelay_p95_ms"] < 1.5 * prague["qdelay_p95_ms"] < cubic["qdelay_p95_ms"] / 3
    # The page says these numbers.
    for row in (own, prague, cubic):
        sentence = f"{100 * row['utilization']:.1f} % of the link at {row['qdelay_p95_ms']:.1f} ms"
        assert sentence in " ".join(PAGE.read_text().split())


def test_how_marks_are_answered_is_on_the_packets(verus: Command, tmp_path: Path) -> None:
    """DualPI2 has a short queue for ECT(1), and a longer one, which drops packets not ECT(0)."""
    words = ("compare", "--trace", "rate:20", "--duration", "10", "--queue", "dualpi2", "--scheme", "dctcp.py:Dctcp")
    by_ecn = {}
    for ecn in ("'l4s'", "'classic'", "None"):
        (tmp_path / "dctcp.py").write_text(DCTCP.replace('ecn = "l4s"', f"ecn = {ecn}"))
        ran = verus(*words, "--json")
        assert ran.code == 0, ran.err
        by_ecn[ecn] = json.loads(ran.out)
    l4s, classic, neither = by_ecn.values()
    assert l4s["loss_rate"] == 0 < classic["loss_rate"] < neither["loss_rate"]
    assert 3 * l4s["qdelay_p50_ms"] < classic["qdelay_p50_ms"]
    (tmp_path / "dctcp.py").write_text(DCTCP.replace('ecn = "l4s"', 'ecn = "both"'))
    ran = verus(*words, "--json")
    assert (ran.code, ran.err) == (
        2,
        "verus: --scheme: scheme `dctcp.py:Dctcp`: ecn must be `classic`, `l4s` or None, not 'both'\n",
    )


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
    refused, failed, _ = blocks("console")
    command, message = refused.splitlines()
    assert verus(*shlex.split(command)[2:]).err == f"{message}\n"
    broken = TIDE.replace("step = len(feedback.acked) / self.packets", "step = len(feedback.acked) / 0")
    (tmp_path / "tide.py").write_text(broken)
    ran = verus("compare", "--trace", "rate:12", "--duration", 1, "--scheme", "tide.py:Tide", "--json")
    assert (ran.code, ran.err) == (1, failed)
