"""What the README tells a newcomer to type works."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

README = Path(__file__).parents[2] / "README.md"


def block(language: str, about: str) -> str:
    """The first code block in a language that mentions something."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README.read_text(), flags=re.DOTALL)
    return next(text for text in blocks if about in text)


def test_the_python_example_runs() -> None:
    names: dict[str, Any] = {}
    exec(block("python", "simulate"), names)
    assert names["result"].metrics["qdelay_p95_ms"] > 0
    assert len(names["result"].flows[0].rtt_ms) > 1000


def test_the_commands_are_understood(verus: Command, tmp_path: Path, shared: Path) -> None:
    (tmp_path / "town.down").write_text("".join(f"{time}\n" for time in range(1, 2000, 3)))
    (tmp_path / "study.toml").write_text('trace = "rate:5"\nscheme = ["verus", "cubic"]\nduration_s = 1\n')
    log = shared / "reference" / "cs244-2017" / "camp_ped_log_r2.first20s.log.xz"
    for line in block("sh", "verus compare").splitlines():
        words = shlex.split(line, comments=True)[1:]
        if words[:2] == ["trace", "fetch"] or words[0] == "reproduce":
            continue  # tested where they need no network
        words = [str(log) if word == "downlink.log" else word for word in words]
        if words[0] == "compare" and "--from" not in words:
            words += ["--duration", "1"]
        ran = verus(*words, *(["--json"] if "--from" in words else []))
        assert ran.code == 0, (line, ran.err)


def test_the_picture_is_there() -> None:
    (picture,) = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", README.read_text())
    path = README.parent / picture
    if not path.exists():
        pytest.fail(f"{picture} is missing")
    assert path.read_bytes().startswith(b"\x89PNG")
