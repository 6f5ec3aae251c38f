"""Commands that the README gives to a newcomer work."""

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


def test_the_python_example_prints_what_stands_beside_it() -> None:
    text = block("python", "simulate")
    names: dict[str, Any] = {}
    exec(text, names)
    result = names["result"]
    assert len(result.flows[0].rtt_ms) > 1000
    assert f"a number: {result.metrics['qdelay_p95_ms']:.1f} ms\n" in text
    first, second = (flow.metrics["throughput_mbps"] for flow in result.flows)
    assert f"# {first:.2f} for the first, {second:.2f} for the one that joins 10 s later\n" in text


def test_the_picture_is_there() -> None:
    (picture,) = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", README.read_text())
    path = README.parent / picture
    if not path.exists():
        pytest.fail(f"{picture} is missing")
    assert path.read_bytes().startswith(b"\x89PNG")
