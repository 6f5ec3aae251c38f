"""Display of results in a notebook."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from verus import Comparison, Flow, Link, Result, Trace, compare, simulate
from verus.report.notebook import Plot


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(traces=["rate:5", "rate:8"], schemes=["verus:ratio=2", "cubic"], duration_s=12)


@pytest.fixture(scope="module")
def result() -> Result:
    flows = [Flow("verus"), Flow("cubic", start_s=1)]
    return simulate(link=Link.constant(5), flows=flows, duration_s=12, records=False)


def cells(html: str) -> list[list[str]]:
    """The text of each row of the tables."""
    rows = re.findall(r"<tr.*?</tr>", html, flags=re.DOTALL)
    return [[re.sub("<[^>]*>", " ", cell).strip() for cell in re.split(r"<t[hd]\b[^>]*>", row)[1:]] for row in rows]


def test_a_comparison_is_its_table(comparison: Comparison) -> None:
    shown = cells(comparison._repr_html_())
    assert [row[0] for row in shown] == ["scheme", "Verus R=2", "Cubic", "omniscient"] * 2
    cubic = next(row for row in comparison.rows() if row["scheme"] == "cubic")
    assert shown[2][1] == f"{cubic['throughput_mbps']:.2f}"


def test_a_run_is_a_row_for_each_flow_and_one_for_all(result: Result) -> None:
    shown = cells(result._repr_html_())
    assert [row[0] for row in shown] == ["flow", "0: verus", "1: cubic", "all"]
    assert [row[1] for row in shown[1:]] == [
        f"{found['throughput_mbps']:.2f}" for found in (*(flow.metrics for flow in result.flows), result.metrics)
    ]
    alone = simulate(link=Link.constant(5), flows=[Flow("verus")], duration_s=1, records=False)
    assert [row[0] for row in cells(alone._repr_html_())] == ["flow", "0: verus"]


def test_names_are_text_and_no_markup(tmp_path: Path) -> None:
    path = tmp_path / "<b>town"
    path.write_text("5\n")
    assert "<b>town" not in compare(traces=[path], schemes=["cubic"], duration_s=1)._repr_html_()
    assert "<b>town" not in Trace([5], name="<b>town")._repr_html_()


def test_a_trace_and_saved_results_say_what_they_hold(comparison: Comparison) -> None:
    assert ["mean rate", "12.00 Mbit/s"] in cells(Trace([1, 2, 3])._repr_html_())
    shown = {row[0]: row[1] for row in cells(comparison.results._repr_html_())[1:]}
    assert shown == {name.partition(".")[0]: str(table.num_rows) for name, table in comparison.results.tables().items()}


def test_plots_are_pictures_of_what_they_name(comparison: Comparison, result: Result) -> None:
    plots = {
        "Delay against throughput": comparison.plot(),
        "Over time: rate:8": comparison.plot_series(trace="rate:8"),
        "Flow by flow: rate:5": result.plot_flows(),
        "Over time: rate:5": result.plot(),
        "Rate of trace": Trace([1, 2, 3]).plot(),
    }
    assert [plot.title for plot in plots.values()] == list(plots)
    for plot in (comparison.plot_profiles(), result.plot_profiles(), *plots.values()):
        assert plot.spec["config"]
        assert plot.caption
    assert "Cubic" in comparison.plot().to_svg()


def test_a_plot_shows_itself_and_is_saved(tmp_path: Path) -> None:
    plot = Trace([1, 2, 3]).plot()
    assert '<img alt="Rate of trace" src="data:image/svg+xml;base64,' in plot._repr_html_()
    assert ET.parse(plot.save(tmp_path / "rate.svg")).getroot().tag.endswith("svg")
    assert plot.save(tmp_path / "rate.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"path: .*must end in"):
        plot.save(tmp_path / "rate.gif")
    assert plot.save(tmp_path / "rate.pdf").read_bytes().startswith(b"%PDF")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rate.pdf", "rate.png", "rate.svg"]


def test_nothing_is_drawn_before_somebody_looks(monkeypatch: pytest.MonkeyPatch, comparison: Comparison) -> None:
    monkeypatch.setattr("verus.report.render.svg", lambda _: pytest.fail("drawn"))
    assert isinstance(comparison.plot(), Plot)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "trace: must say which of these to draw: rate:5, rate:8"),
        ({"trace": "rate:6"}, "trace: `rate:6` is not one of rate:5, rate:8"),
        ({"trace": "rate:5", "queue": "codel"}, "queue: `codel` is not one of"),
    ],
)
def test_which_channel_must_be_said(comparison: Comparison, options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        comparison.plot_series(**options)


def test_what_there_is_not_cannot_be_drawn() -> None:
    alone = simulate(link=Link.constant(5), flows=[Flow("cubic")], duration_s=1, records=False)
    with pytest.raises(ValueError, match=r"flows: .*one flow"):
        alone.plot_flows()
    with pytest.raises(ValueError, match="schemes: no sender"):
        alone.plot_profiles()


def test_what_was_saved_is_read_again(comparison: Comparison, tmp_path: Path) -> None:
    comparison.save(tmp_path / "here")
    again = Comparison.read(tmp_path / "here")
    assert again.rows() == comparison.rows()
    assert again.plot().spec == comparison.plot().spec
    with pytest.raises(OSError, match=r"run\.json"):
        Comparison.read(tmp_path / "nowhere")


def test_tables_become_data_frames_of_polars(comparison: Comparison, result: Result) -> None:
    pytest.importorskip("polars", reason="polars is not installed: to_polars needs it, nothing else does")
    frame = comparison.to_polars()
    assert frame["throughput_mbps"].to_list() == [row["throughput_mbps"] for row in comparison.rows()]
    assert result.to_polars().height == result.results.series.num_rows


def test_without_polars_the_message_names_it(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(ImportError, match="pip install polars"):
        comparison.to_polars()
