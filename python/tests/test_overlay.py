"""`verus report A B`: several folders on one page, or one clear message."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verus.lab.results import Results
from verus.report.style import looks
from verus.report.summary import blocks

Command = Callable[..., Any]


@pytest.fixture
def folders(verus: Command) -> None:
    for name, scheme, seed in (("before", "cubic", 1), ("after", "vegas", 2)):
        arguments = ("--scheme", "verus:ratio=2", scheme, "--trace", "rate:6", "--duration", "2", "--seed", seed)
        assert verus("compare", *arguments, "--out", name).code == 0


@pytest.mark.usefixtures("folders")
def test_several_folders_share_the_charts_of_a_channel(verus: Command, tmp_path: Path) -> None:
    ran = verus("report", "before", "after", "--out", "both")
    assert ran.code == 0, ran.err
    assert "both/report.html" in ran.err
    results = Results.read(tmp_path / "both")
    (block,) = blocks(results)
    labels = [cell.label for cell in block.cells]
    assert labels == ["Verus R=2 · before", "Cubic · before", "Verus R=2 · after", "Vegas · after"]
    for cell, (folder, run) in zip(
        block.cells, [("before", 0), ("before", 1), ("after", 0), ("after", 1)], strict=True
    ):
        alone = Results.read(tmp_path / folder)
        assert cell["throughput_mbps"] == alone.rows.column("throughput_mbps")[run].as_py()
        overlaid = results.series.filter(results.series.column("run").to_numpy() == cell.runs[0])
        before = alone.series.filter(alone.series.column("run").to_numpy() == run)
        assert overlaid.column("qdelay_ms").to_pylist() == before.column("qdelay_ms").to_pylist()
    page = (tmp_path / "both" / "report.html").read_text()
    assert page.count('class="wide plot"') == 1 + 1
    assert "no delay profile" in page
    assert not (tmp_path / "before" / "report.html").exists()


@pytest.mark.usefixtures("folders")
def test_the_same_contestant_keeps_its_colour_and_gets_another_dash(verus: Command, tmp_path: Path) -> None:
    assert verus("report", "before", "after", "--out", "both").code == 0
    style = looks(cell for block in blocks(Results.read(tmp_path / "both")) for cell in block.cells)
    one, other = style["Verus R=2 · before"], style["Verus R=2 · after"]
    assert one.color == other.color
    assert one.dash != other.dash


@pytest.mark.usefixtures("folders")
def test_the_page_of_several_is_drawn_again_from_its_folder(verus: Command, tmp_path: Path) -> None:
    assert verus("report", "before", "after", "--out", "both").code == 0
    before = (tmp_path / "both" / "report.html").read_text()
    assert verus("report", "both").code == 0
    assert (tmp_path / "both" / "report.html").read_text() == before


@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("before", "before"), "a folder is named twice"),
        (("before", "nowhere"), "`nowhere`: there is no such folder"),
        (("before", "after", "--out", "before"), "`before` is not empty"),
        (("before", "--out", "both"), "is for the page of several folders"),
        (("before", "checked"), "`checked` is from `verus check`"),
        (("before", "fig"), "`fig` is from `verus reproduce sigcomm-fig09`"),
        (("before", "live"), "do not go together"),
    ],
)
def test_what_cannot_be_laid_over_is_refused(
    verus: Command, tmp_path: Path, arguments: tuple[str, ...], complaint: str, left_behind: Callable[[Path], list[str]]
) -> None:
    config = json.loads((tmp_path / "before" / "run.json").read_text())
    for name, kind in (("checked", "check"), ("fig", "sigcomm-fig09"), ("live", "probe")):
        (tmp_path / name).mkdir()
        for path in (tmp_path / "before").glob("*.parquet"):
            (tmp_path / name / path.name).write_bytes(path.read_bytes())
        (tmp_path / name / "run.json").write_text(json.dumps({**config, "kind": kind}))
    before = left_behind(tmp_path)
    ran = verus("report", *arguments)
    assert ran.code == 2
    assert complaint in ran.err
    assert ran.err.count("\n") == 1
    assert left_behind(tmp_path) == before


def test_the_folder_of_a_sweep_cannot_be_laid_over_others(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('duration_s = 1\ntrace = "rate:5"\nscheme = ["cubic", "vegas"]\n')
    assert verus("sweep", "mine.toml", "--out", "study").code == 0
    shutil.copytree(tmp_path / "study", tmp_path / "other")
    ran = verus("report", "study", "other", "--out", "both")
    assert ran.code == 2
    assert "`study` is from `verus sweep`" in ran.err
    assert not (tmp_path / "both").exists()
