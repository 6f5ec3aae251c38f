"""Report pages in a browser: charts, hover, zoom, legends, player, widths and print work."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from verus import api, saved_run
from verus.report.page import to_html

WIDTHS = (390, 768, 1440)
SCHEMES = ["verus:ratio=2", "verus:ratio=6", "cubic"]

#: Draws all charts, in sight or not, and says how many there are.
DRAW = "Promise.all(places.map((place) => { left.delete(place); return draw(place); })).then(() => places.length)"
#: A figure by its place in the page.
SERIES, PLAYED = "series-rate-8", "profile-rate-8"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two channels and three contestants, two of which have profiles."""
    comparison = api.compare(traces=["city-driving-3g-up", "rate:8"], schemes=SCHEMES, duration_s=12)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(to_html(saved_run.page_for(comparison.results), comparison.results.config), encoding="utf-8")
    return path


def figure(page: Any, name: str) -> Any:
    """A figure that is in sight and drawn."""
    chart = page.locator(f"figure[data-name='{name}']")
    chart.scroll_into_view_if_needed()
    chart.locator(".canvas svg.marks g").first.wait_for(state="attached")
    page.wait_for_function(
        "(name) => document.querySelector(`figure[data-name='${name}']`).matches('.drawn')", arg=name
    )
    return chart


def lines_of(chart: Any) -> int:
    """Lines that are drawn: those of time series have a path each."""
    return int(chart.locator("svg.marks g.mark-line path").count())


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_chart_fits_and_nothing_is_panned(chromium: Any, page_file: Path, width: int, dark: bool) -> None:
    page = chromium(page_file, width=width, dark=dark)
    assert page.evaluate(DRAW) == 1 + 2 + 1 + 2
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for place in page.locator(".plot").all():
        assert place.evaluate("(place) => place.querySelectorAll('svg.marks path').length") > 3
        assert place.evaluate("(place) => place.scrollWidth - place.clientWidth") <= 1
    ink = page.evaluate("getComputedStyle(document.querySelector('.plot')).color")
    assert ink == ("rgb(230, 237, 243)" if dark else "rgb(27, 31, 36)")


def test_charts_in_sight_are_drawn_at_once_and_the_others_soon(chromium: Any, page_file: Path) -> None:
    page = chromium(page_file)
    page.wait_for_function("document.querySelectorAll('.drawn').length === places.length", timeout=20_000)


def choose(chart: Any, name: str, *, also: bool = False) -> None:
    """Clicks on a name of a legend."""
    entry = chart.locator(".role-legend-label text", has_text=name).first
    entry.scroll_into_view_if_needed()
    box = entry.bounding_box()
    page = chart.page
    if also:
        page.keyboard.down("Shift")
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    if also:
        page.keyboard.up("Shift")


def test_a_click_on_a_name_shows_it_alone_and_with_shift_another(chromium: Any, page_file: Path) -> None:
    page = chromium(page_file)
    chart = figure(page, "delay-profile")
    assert lines_of(chart) == 2 * 2
    choose(chart, "Verus R=2")
    assert lines_of(chart) == 2
    choose(chart, "Verus R=6", also=True)
    assert lines_of(chart) == 2 * 2
    rows = figure(page, SERIES)
    choose(rows, "Cubic")
    pale = rows.locator("svg.marks g.mark-line path[opacity='0.1'], svg.marks g.mark-line path[stroke-opacity='0.1']")
    assert pale.count() == 3 * 2
    choose(rows, "Verus R=2", also=True)
    assert pale.count() == 3
    page.mouse.dblclick(*middle(rows, 1))
    pale.first.wait_for(state="detached")


@pytest.mark.parametrize("name", ["delay-throughput", SERIES, "delay-profile"])
def test_names_of_every_kind_of_chart_can_be_chosen(chromium: Any, page_file: Path, name: str) -> None:
    chart = figure(chromium(page_file), name)
    before = chart.locator("svg.marks").inner_html()
    choose(chart, "Verus R=2")
    assert chart.locator("svg.marks").inner_html() != before


def middle(chart: Any, panel: int) -> tuple[float, float]:
    """The middle of a panel of a drawn figure, on the screen."""
    x, y = chart.locator(".plot").evaluate(
        """(place, panel) => {
          const {x, y, width, height} = geometry(figures[Number(place.dataset.figure)])[panel];
          const frame = place.getBoundingClientRect();
          return [frame.left + x + width / 2, frame.top + y + height / 2];
        }""",
        panel,
    )
    return float(x), float(y)


def test_values_of_all_panels_are_told_under_the_cursor(chromium: Any, page_file: Path) -> None:
    page = chromium(page_file)
    chart = figure(page, SERIES)
    page.mouse.move(*middle(chart, 1))
    tooltip = page.locator(".told")
    heads = [text for text in tooltip.locator("thead th").all_inner_texts() if text]
    assert heads == ["throughput, Mbit/s", "queueing delay, ms", "window, kB", "phase"]
    assert tooltip.locator("caption").inner_text().startswith("time 6")
    rows = {row[0]: row[1:] for row in (each.split("\t") for each in tooltip.locator("tbody tr").all_inner_texts())}
    assert list(rows) == ["capacity", "Verus R=2", "Verus R=6", "Cubic"]
    assert float(rows["capacity"][0]) == pytest.approx(8, rel=0.1)
    rate, delay, window, phase = rows["Cubic"]
    assert float(rate) == pytest.approx(8, rel=0.1)
    assert float(delay) > float(rows["Verus R=2"][1])
    # Little's law: the window is about what the rate brings in a round trip of 40 ms and the queue.
    assert float(window) == pytest.approx(float(rate) / 8 * (40 + float(delay)), rel=0.2)
    assert phase in ("slow start", "steady", "recovery")


def test_a_point_says_what_it_is(chromium: Any, page_file: Path) -> None:
    page = chromium(page_file)
    chart = figure(page, "delay-throughput")
    box = chart.locator("g.mark-symbol path").nth(0).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.locator(".told", has_text="mean delay, ms").wait_for()
    assert "Verus R=2" in page.locator(".told").inner_text()


def across(chart: Any, panel: int) -> list[float]:
    """Range of a panel's axis."""
    domain: list[float] = chart.locator(".plot").evaluate(
        "(place, panel) => geometry(figures[Number(place.dataset.figure)])[panel].across.domain()", panel
    )
    return domain


def test_no_line_over_time_hides_another(chromium: Any, page_file: Path) -> None:
    boxes = figure(chromium(page_file), SERIES).evaluate(
        """(figure) => [...figure.querySelectorAll("g.mark-line path")].map((line) => {
          const {top, bottom} = line.getBoundingClientRect();
          return [top, bottom];
        }).sort((one, other) => one[0] - other[0])"""
    )
    assert len(boxes) == 3 * 3
    assert all(above[1] <= below[0] for above, below in itertools.pairwise(boxes))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_table_that_goes_on_beyond_the_edge_says_so(chromium: Any, page_file: Path, dark: bool) -> None:
    """Its edge is shaded, until all of it has been scrolled to; a page that is wide enough has none."""
    page = chromium(page_file, width=390, dark=dark)
    holder = page.locator(".wide:has(table)").first
    holder.scroll_into_view_if_needed()

    def edge() -> bytes:
        """Where nothing is written: above the caption."""
        box = holder.bounding_box()
        clip = {"x": box["x"] + box["width"] - 8, "y": box["y"] + 1, "width": 8, "height": 3}
        return bytes(page.screenshot(clip=clip))

    cut = edge()
    holder.evaluate("(holder) => { holder.scrollLeft = holder.scrollWidth; }")
    whole = edge()
    assert cut != whole
    page.set_viewport_size({"width": 820, "height": 900})
    assert holder.evaluate("(holder) => holder.scrollWidth - holder.clientWidth") == 0
    assert edge() == whole


def look_closer(page: Any, chart: Any, panel: int) -> None:
    """Turns the wheel with Ctrl over the middle of a panel."""
    page.mouse.move(*middle(chart, panel))
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")


def test_the_wheel_and_a_drag_move_linked_panels_together_and_a_double_click_goes_back(
    chromium: Any, page_file: Path
) -> None:
    page = chromium(page_file)
    chart = figure(page, SERIES)
    whole = across(chart, 0)
    look_closer(page, chart, 0)
    page.wait_for_function("figures.some((figure) => figure.view?.getState().signals.zoom?.t)")
    low, high = across(chart, 0)
    assert whole[0] < low < high < whole[1]
    assert across(chart, 2) == [low, high]
    x, y = middle(chart, 0)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 40, y, steps=4)
    page.mouse.up()
    moved = across(chart, 1)
    assert moved[0] > low
    assert moved[1] - moved[0] == pytest.approx(high - low)
    page.mouse.dblclick(*middle(chart, 1))
    page.wait_for_function("figures.every((figure) => !figure.view?.getState().signals.zoom?.t)")
    assert across(chart, 0) == whole


def test_names_stay_beside_their_points_when_a_chart_is_zoomed(chromium: Any, page_file: Path) -> None:
    page = chromium(page_file)
    chart = figure(page, "delay-throughput")

    def offsets() -> list[list[float]]:
        values: list[list[float]] = chart.locator(".plot").evaluate(
            """(place) => {
              const at = (node) => { const {e, f} = node.getCTM(); return [e, f]; };
              const panel = place.querySelector(".concat_0_group");
              const points = [...panel.querySelectorAll(".legend_marks path")].map(at);
              const names = [...panel.querySelectorAll(".concat_0_layer_3_marks text")].map(at);
              return names.map(([x, y], index) => [x - points[index][0], y - points[index][1]]);
            }"""
        )
        return values

    before = offsets()
    assert len(before) == len(SCHEMES)
    whole = across(chart, 0)
    look_closer(page, chart, 0)
    assert across(chart, 0) != whole
    assert offsets() == [pytest.approx(pair, abs=0.6) for pair in before]


def test_the_profile_plays_and_its_operating_point_moves(chromium: Any, page_file: Path) -> None:
    page = chromium(page_file)
    chart = figure(page, PLAYED)

    def operating() -> Any:
        return chart.locator(".plot").evaluate("(place) => figures[Number(place.dataset.figure)].view.data('now')")

    slider = chart.get_by_role("slider")
    slider.fill("4")
    assert "no profile yet" in chart.locator("output").inner_text()
    slider.fill("6")
    assert "profile of 5 s" in chart.locator("output").inner_text()
    early = operating()
    assert {row["scheme"] for row in early} == {"Verus R=2", "Verus R=6"}
    chart.get_by_role("button", name="Play").click()
    page.wait_for_function("(slider) => Number(slider.value) > 7", arg=slider.element_handle())
    chart.get_by_role("button", name="Pause").click()
    assert float(slider.input_value()) > 7
    assert operating() != early
    # The wanted delay is read off the curve of some moment: it lies where profiles do.
    assert all(40 <= row["d"] < 1000 and row["w"] > 1 for row in operating())


def test_all_charts_are_drawn_before_they_are_printed(chromium: Any, page_file: Path) -> None:
    page = chromium(page_file)
    page.emulate_media(media="print", color_scheme="dark")
    drawn = page.evaluate(
        """async () => {
          dispatchEvent(new Event("beforeprint"));
          for (let turn = 0; turn < 2000; turn += 1) await null; // run promises, but no timers
          return places.map((place) => [place.querySelectorAll("svg.marks path").length > 3,
                                        place.querySelector("svg.marks")?.getBoundingClientRect().width <= 682]);
        }"""
    )
    assert drawn == [[True, True]] * 6
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert page.locator("nav").is_hidden()


def test_contents_lead_to_every_section_and_figure(chromium: Any, page_file: Path) -> None:
    page = chromium(page_file)
    links = page.locator("nav a").evaluate_all("(links) => links.map((link) => link.getAttribute('href').slice(1))")
    ids = page.evaluate("[...document.querySelectorAll('section[id], figure[id]')].map((place) => place.id)")
    assert set(links) <= set(ids)
    assert {place for place in ids if place.startswith(("section", "source"))} <= set(links)
    titles = page.locator("h2").all_inner_texts()
    assert titles == [
        "Summary",
        "Delay against throughput",
        "Over time",
        "Delay profiles",
        "Results",
        "Where this comes from",
    ]


@pytest.fixture(scope="module")
def fifty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 50 runs of a minute each: ten contestants on five channels."""
    schemes = [f"verus:ratio={ratio}" for ratio in (2, 4, 6)]
    schemes += ["cubic", "newreno", "vegas", "bbr", "copa", "sprout", "ledbatpp"]
    traces = ["city-driving-3g-up", "city-stationary-lte-down", "city-driving-lte-down", "rate:8", "rate:20"]
    comparison = api.compare(traces=traces, schemes=schemes, duration_s=60)
    assert comparison.results.rows.num_rows == 50
    path = tmp_path_factory.mktemp("fifty") / "report.html"
    path.write_text(to_html(saved_run.page_for(comparison.results), comparison.results.config), encoding="utf-8")
    return path


@pytest.mark.real_time
def test_a_page_of_fifty_runs_is_small_and_opens_soon(chromium: Any, fifty: Path) -> None:
    assert fifty.stat().st_size < 15_000_000
    taken = []
    for _ in range(3):  # of which the others' work on this machine slows the fewest least
        page = chromium(fifty)
        page.wait_for_function("document.querySelector('.drawn')")
        loaded = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
        taken.append(loaded)
        page.close()
    assert min(taken) < 2000


def test_every_chart_of_fifty_runs_is_drawn_without_a_complaint(chromium: Any, fifty: Path) -> None:
    page = chromium(fifty, width=768)
    page.wait_for_function("document.querySelectorAll('.drawn').length === places.length", timeout=60_000)
    assert page.evaluate("document.documentElement.scrollWidth") == 768


def test_packets_in_the_queue_say_how_long_they_waited(chromium: Any, tmp_path: Path) -> None:
    comparison = api.compare(traces=["rate:8"], schemes=["cubic"], duration_s=3, records=True)
    path = tmp_path / "report.html"
    path.write_text(to_html(saved_run.page_for(comparison.results), comparison.results.config), encoding="utf-8")
    page = chromium(path)
    drawn = figure(page, "packets-rate-8")
    box = drawn.locator("g.mark-rule.zoom0_0_marks line").nth(60).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"])
    page.locator(".told", has_text="waited, ms").wait_for()


def test_the_matrix_of_a_model_tells_its_transitions_and_is_looked_at_closely(
    chromium: Any, verus: Any, tmp_path: Path
) -> None:
    arguments = ("--trace", "rate:6", "--duration", "20", "--quiet")
    assert verus("train", "town.model", *arguments).code == 0
    assert verus("model", "info", "town.model", "--plot", "matrix.html").code == 0
    page = chromium(tmp_path / "matrix.html")
    drawn = figure(page, "town.model")
    box = drawn.locator("g.mark-rect path").nth(40).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.locator(".told", has_text="probability").wait_for()
    assert re.search(r"from\s+d \d+ ms, w \d+\s+to\s+d \d+ ms, w \d+", page.locator(".told").inner_text())
    whole = across(drawn, 0)
    look_closer(page, drawn, 0)
    low, high = across(drawn, 0)
    assert high - low < 0.8 * (whole[1] - whole[0])


def test_pages_of_other_kinds_have_the_same_shell(chromium: Any, verus: Any, tmp_path: Path) -> None:
    """A check, a published figure and a trace: drawn, within a phone's width, and led to by contents."""
    assert verus("trace", "plot", "city-driving-3g-up", "--out", "trace.html").code == 0
    assert verus("check", "cubic", "--row", "c4/cubic_alone", "--out", "checked", "--quiet").code in (0, 3)
    assert verus("reproduce", "sigcomm-fig05", "--built-in", "--out", "figure", "--quiet").code in (0, 3)
    for path in ("trace.html", "checked/report.html", "figure/report.html"):
        page = chromium(tmp_path / path, width=390)
        assert page.evaluate(DRAW) > 0, path
        assert page.evaluate("document.documentElement.scrollWidth") == 390, path
        assert page.locator("nav a").count() > 0, path
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 700, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") == 700, path
    titles = page.locator("h2").all_inner_texts()
    assert titles.index("Results") < titles.index("Claims")


@pytest.mark.parametrize("width", WIDTHS)
def test_no_name_in_a_chart_lies_on_another(chromium: Any, fifty: Path, width: int) -> None:
    page = chromium(fifty, width=width)
    chart = figure(page, "delay-throughput")
    overlaps = chart.evaluate(
        """(figure) => [...figure.querySelectorAll("g.mark-text")].flatMap((layer) => {
          const names = [...layer.querySelectorAll("text")].filter((name) => name.style.visibility !== "hidden");
          const boxes = names.map((name) => name.getBoundingClientRect());
          return boxes.flatMap((a, index) => boxes.slice(index + 1).filter((b) =>
            a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom));
        })"""
    )
    assert overlaps == []
    names = chart.locator("g.mark-text text:visible").all_text_contents()
    assert {"Cubic", "Copa", "Verus R=2"} <= set(names)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_of_a_study_draws_every_chart_and_leaves_names_out(
    chromium: Any, verus: Any, tmp_path: Path, width: int
) -> None:
    (tmp_path / "mine.toml").write_text(
        'duration_s = 1\nloss = 0.01\ntrace = ["rate:5", "rate:10"]\nscheme = ["cubic", "vegas"]\nflows = [1, 2, 4]\n'
        "seed = { from = 1, to = 3 }\n"
    )
    assert verus("sweep", "mine.toml", "--out", "study", "--report", "--quiet").code == 0
    page = chromium(tmp_path / "study" / "report.html", width=width, dark=width == 390)
    assert page.evaluate(DRAW) == 3
    assert page.evaluate("document.documentElement.scrollWidth") == width
    chart = figure(page, "delay-by-flows")
    assert lines_of(chart) == 2 * 2
    assert chart.locator("svg.marks g.mark-rule.role-mark line").count() >= 2 * 2 * 3
    choose(chart, "vegas")
    assert lines_of(chart) == 2
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 700, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == 700
