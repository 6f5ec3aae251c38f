"""The page and the figures: drawn from saved results alone, complete, and without a network."""

from __future__ import annotations

import contextlib
import json
import re
import runpy
import statistics
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verus import api, saved_run
from verus.commands.talk import Talk
from verus.lab.results import Results
from verus.report import comparison, figures, render, style
from verus.report.page import to_html
from verus.report.summary import blocks

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that `compare` wrote."""
    folder = tmp_path_factory.mktemp("saved") / "run"
    schemes = ["verus:ratio=2", "verus:ratio=4,mode=prototype", "cubic"]
    api.compare(traces=["city-driving-3g-up", "rate:8"], schemes=schemes, duration_s=5).save(folder)
    return folder


def test_the_page_loads_nothing_from_elsewhere(saved: Path) -> None:
    page = (saved / "report.html").read_text()
    outside = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    assert not re.search(r"""(?:src|href)\s*=(?!"#)|url\(|@import|<link|<iframe|<img""", outside)
    assert "default-src 'none'" in page


def test_the_page_forbids_connections_to_its_scripts(saved: Path) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy"\s+content="([^"]*)"', (saved / "report.html").read_text())
    assert policy is not None
    assert "connect-src" not in policy[1]
    assert "http" not in policy[1]


def test_the_page_holds_every_figure_and_stays_small(saved: Path) -> None:
    page = (saved / "report.html").read_text()
    assert page.count('class="wide plot"') == 1 + 2 + 1 + 2
    assert len(page) < 2_000_000
    for word in ("Verus R=2", "omniscient", "propagation is not in it", "SHA-256", "seed 1"):
        assert word in page


def test_every_figure_is_drawn_as_svg_png_and_pdf(saved: Path) -> None:
    names = {"delay-throughput", "delay-profile", "series-city-driving-3g-up", "series-rate-8"}
    assert {path.stem for path in (saved / "figures").glob("*.svg")} == names
    assert {path.stem for path in (saved / "figures").glob("*.png")} == names
    for path in (saved / "figures").glob("*.svg"):
        assert len(list(ElementTree.parse(path).iter())) > 50
    for path in (saved / "figures").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    assert {path.stem for path in (saved / "figures").glob("*.pdf")} == names
    for path in (saved / "figures").glob("*.pdf"):
        assert path.read_bytes().startswith(b"%PDF")


def test_the_page_is_the_same_drawn_again(saved: Path, verus: Command) -> None:
    before = (saved / "report.html").read_text()
    (saved / "report.html").unlink()
    ran = verus("report", saved)
    assert ran.code == 0
    assert str(saved / "report.html") in ran.err
    assert (saved / "report.html").read_text() == before


def test_captions_say_what_was_run(saved: Path) -> None:
    results = Results.read(saved)
    for figure in saved_run.page_for(results).figures():
        for word in ("queue red:min=375000", "seed 1", "base RTT 40 ms", "Verus in the modes named"):
            assert word in figure.caption, figure.name


def test_a_caption_says_once_whether_delay_has_propagation_in_it(saved: Path) -> None:
    for figure in saved_run.page_for(Results.read(saved)).figures():
        notes = [words for words in ("propagation included", "propagation is not in it") if words in figure.caption]
        assert len(notes) == 1, (figure.name, notes)


def test_every_table_ends_with_what_could_be_had(saved: Path) -> None:
    """The omniscient sender uses every opportunity, and nothing of it waits."""
    tables = re.findall(r"<table>.*?</table>", (saved / "report.html").read_text(), flags=re.S)
    compared = [table for table in tables if ">Cubic<" in table]
    assert len(compared) == 1 + 2
    for table in compared:
        last = re.findall(r"<tr.*?</tr>", table)[-1]
        assert last.startswith('<tr class="omniscient"><th scope=row>omniscient</th>')
    summary = re.findall(r"<td>(.*?)</td>", re.findall(r'<tr class="omniscient">.*?</tr>', compared[0])[0])
    assert summary == ["100.0", "0.0", "0.0", "100.0 · 0", "100.0 · 0"]


def test_curves_are_thinned(saved: Path) -> None:
    results = Results.read(saved)
    figure = figures.series(results, blocks(results)[0])
    for row in figure.spec["data"]["values"]:
        assert len(row["t"]) <= 240
        assert len(row["t"]) == len(row["delay"]) == len(row["window"]) == len(row["throughput"])


def test_text_cannot_become_markup(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>"
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / name.replace("/", "-")
    path.write_text("".join(f"{time}\n" for time in range(1, 1000, 3)))
    compared = api.compare(traces=[str(path)], schemes=["cubic"], duration_s=1)
    page = to_html(saved_run.page_for(compared.results), compared.results.config)
    assert "<script>alert" not in page


def test_results_of_another_version_are_refused(saved: Path, tmp_path: Path, verus: Command) -> None:
    config = json.loads((saved / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**config, "schema": 2}))
    ran = verus("report", ".")
    assert ran.code == 2
    assert "schema 2" in ran.err


def test_what_is_read_is_what_was_written(saved: Path) -> None:
    again = Results.read(saved)
    assert again.rows.num_rows == 6
    assert set(again.series.column_names) >= {
        "run",
        "flow",
        "time_s",
        "capacity_mbps",
        "throughput_mbps",
        "qdelay_ms",
        "window_bytes",
    }
    assert set(again.profile.column("kind").to_pylist()) == {"point", "curve"}
    assert again.to_rows()[0]["params"] == {"ratio": 2}


def test_several_flows_are_also_drawn_one_by_one(tmp_path: Path) -> None:
    compared = api.compare(traces=["rate:10"], schemes=["cubic"], mixes=["verus*2+cubic"], flows=3, duration_s=3)
    drawn = {figure.name: figure for figure in saved_run.page_for(compared.results).figures()}
    panels = drawn["flows-rate-10"].spec["concat"]
    assert [len(panel["layer"][0]["data"]["values"]) for panel in panels] == [3, 3]
    assert "Jain" in comparison.results_table(blocks(compared.results)[0])


def test_flows_have_the_colours_of_their_schemes(tmp_path: Path) -> None:
    compared = api.compare(traces=["rate:10"], schemes=[], mixes=["newreno+cubic+verus:ratio=4"], duration_s=1)
    drawn = {figure.name: figure for figure in saved_run.page_for(compared.results).figures()}
    scale = drawn["flows-rate-10"].spec["concat"][0]["layer"][0]["encoding"]["color"]["scale"]
    colors = dict(zip(scale["domain"], scale["range"], strict=True))
    assert colors["cubic"] == style._HUES["cubic"][0]
    assert colors["newreno"] == style._HUES["newreno"][0]
    (verus,) = set(colors) - {"cubic", "newreno"}
    assert colors[verus] in style._VERUS_SHADES


def test_the_script_of_pages_is_the_one_that_draws_files() -> None:
    script = Path(__file__).parents[2] / "scripts" / "bundle.py"
    assert render.bundle() == runpy.run_path(str(script))["bundle"](), "`make bundle` writes it again"


def test_whoever_draws_stays_for_the_next_page(tmp_path: Path) -> None:
    figure = figures.trace_rate("rate:5", list(range(0, 2000, 3)))
    with render.writing([figure], tmp_path):
        first = list(render._CHILDREN)
    (tmp_path / f"{figure.name}.png").unlink()
    with render.writing([figure], tmp_path):
        assert first == render._CHILDREN
    assert (tmp_path / f"{figure.name}.png").exists()
    assert all(child.poll() is None for child in first)


def test_a_figure_that_cannot_be_drawn_says_why_and_spoils_no_other(tmp_path: Path) -> None:
    wrong = figures.Figure(name="wrong", title="", caption="", spec={"mark": 5})
    with pytest.raises(RuntimeError, match="a figure could not be drawn: "), render.writing([wrong], tmp_path):
        pass
    with render.writing([figures.trace_rate("right", list(range(0, 2000, 3)))], tmp_path):
        pass
    assert list(tmp_path.glob("*.svg"))


def test_repetitions_show_95_percent_intervals(verus: Command, tmp_path: Path) -> None:
    arguments = ("--trace", "city-driving-3g-up", "--scheme", "verus:ratio=2", "--duration", "3", "--repeat", "4")
    ran = verus("compare", *arguments, "--report", "--out", "one")
    results = Results.read(tmp_path / "one")
    values = results.rows.column("throughput_mbps").to_pylist()
    (mean,) = results.config["means"]
    # Student's t of 3 degrees of freedom, as tables state it.
    half_width = 3.1824 * statistics.stdev(values) / 4**0.5
    assert mean["runs"] == [0, 1, 2, 3]
    assert mean["throughput_mbps"]["mean"] == pytest.approx(statistics.mean(values))
    assert mean["throughput_mbps"]["half_width_95"] == pytest.approx(half_width, rel=1e-4)
    assert f"±{half_width:.2f}" in ran.out
    assert "mean of 4 seeds" in ran.out
    assert "Student's t" in ran.out
    page = (tmp_path / "one" / "report.html").read_text()
    assert f"<td>{statistics.mean(values):.2f} ± {half_width:.2f}</td>" in page
    assert "Student&#39;s t" in page
    widest = max(map(len, ran.out.splitlines()))
    assert widest <= 110


def test_a_single_run_has_no_interval(verus: Command, tmp_path: Path) -> None:
    ran = verus("compare", "--trace", "rate:5", "--scheme", "cubic", "--duration", "1", "--report", "--out", "one")
    (mean,) = json.loads((tmp_path / "one" / "run.json").read_text())["means"]
    assert mean["throughput_mbps"]["half_width_95"] is None
    assert "±" not in ran.out + (tmp_path / "one" / "report.html").read_text().partition("<script>")[0]


@pytest.mark.parametrize("on_terminal", [True, False])
def test_who_waits_for_a_report_on_a_terminal_reads_what_it_does(
    on_terminal: bool, verus: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: on_terminal)
    with Talk().doing("drawing <one>"):
        pass
    assert ("drawing <one> …" in capsys.readouterr().err) == on_terminal
    # The verb reports its drawing.
    said: list[str] = []
    monkeypatch.setattr(Talk, "doing", lambda _self, what: said.append(what) or contextlib.nullcontext())
    assert verus("compare", "--trace", "rate:5", "--scheme", "cubic", "--duration", "1", "--out", "one").code == 0
    assert verus("report", "one").code == 0
    assert said == ["drawing one"]
