"""What the README tells a newcomer to type works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

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


def test_the_picture_is_there() -> None:
    (picture,) = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", README.read_text())
    path = README.parent / picture
    if not path.exists():
        pytest.fail(f"{picture} is missing")
    assert path.read_bytes().startswith(b"\x89PNG")
