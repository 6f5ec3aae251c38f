"""Measurements of `forward` in Linux's TCP work: a small part of each table is made."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENDPOINT = Path(sys.executable).with_name("verus-endpoint")

pytestmark = pytest.mark.real_time


def cannot() -> str:
    """Why nothing can be loaded here; empty if it can."""
    ran = subprocess.run([ROOT / "scripts" / "why-not-test-root"], capture_output=True, text=True, check=False)
    if ran.returncode == 0:
        return ran.stdout.strip()
    status = subprocess.run([ENDPOINT, "kernel", "status"], capture_output=True, text=True, check=False)
    return status.stderr.strip()


@pytest.mark.parametrize(("table", "rows"), [("page", 3), ("cost", 6), ("buffers", 6), ("clients", 12)])
def test_a_table_is_made(table: str, rows: int) -> None:
    if why := cannot():
        pytest.skip(why)
    command = [sys.executable, ROOT / "scripts" / "kernel_runs.py", table, "--short"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith("Commit ")
    lines = [line for line in ran.stdout.splitlines() if line.startswith("|")]
    data_rows = [line for line in lines if not line.startswith("|---") and re.search(r"\d", line)]
    heads = sum(line.startswith("|---") for line in lines)
    assert len(lines) - 2 * heads == rows, ran.stdout
    assert data_rows, ran.stdout
