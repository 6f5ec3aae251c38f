"""What the README tells a newcomer to type works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from verus import compare
from verus.report.summary import Cell, blocks
from verus.report.table import span

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


def prose(page: Path) -> str:
    """A page on one line."""
    return " ".join(page.read_text(encoding="utf-8").split())


def test_what_flows_get_beside_cubic_is_what_pages_say() -> None:
    mixes = ["verus+cubic", "forward+cubic"]
    found = compare(traces=["rate:12"], schemes=[], mixes=mixes, queues=["red", "fq_codel"], repeat=5)
    (verus, forward), (verus_apart, forward_apart) = (
        [cell.parts[0]["throughput_mbps"] for cell in one.cells] for one in blocks(found.results)
    )
    text = prose(README)
    assert f"Verus gets {verus:.2f} Mbit/s and `forward` {forward:.2f} (`verus compare --trace rate:12" in text
    assert f"they get {verus_apart:.2f} and {forward_apart:.2f}." in text

    tutorial = prose(README.parent / "docs" / "tutorials" / "compare.md")
    (five,) = blocks(compare(traces=["rate:20"], schemes=["verus"], flows=5).results)
    assert f"Five flows of Verus get {spans(five.cells[0])} Mbit/s each." in tutorial
    mixes = ["verus*2+cubic*2", "forward*2+cubic*2"]
    found = compare(traces=["rate:20"], schemes=[], mixes=mixes, queues=["fq_codel", "red"])
    (verus, forward), (verus_red, forward_red) = (
        [spans(cell.parts[0]) for cell in one.cells] for one in blocks(found.results)
    )
    assert f"the flows of Verus get {verus} and those of `forward` {forward} of 20 Mbit/s." in tutorial
    assert f"Verus gets {verus_red}, `forward` {forward_red}." in tutorial


def spans(cell: Cell) -> str:
    return span(cell["flow_min_mbps"], cell["flow_max_mbps"])


def test_the_picture_is_there() -> None:
    (picture,) = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", README.read_text())
    path = README.parent / picture
    if not path.exists():
        pytest.fail(f"{picture} is missing")
    assert path.read_bytes().startswith(b"\x89PNG")
