"""Built-in channels compared with the recordings that they model.

Each channel that is fitted to a recording is generated a number of times, as long as the recording,
and its statistics are set against the recorded ones. The recorded ones are facts that ship with the
product, so that this needs no recording.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table

from verus import _verus
from verus.lab.results import Results
from verus.lab.runner import Progress
from verus.papers import target
from verus.papers.experiment import Experiment, Options, Work
from verus.papers.target import Check, verdict
from verus.report import figures
from verus.report.figures import Figure
from verus.report.grid import paragraphs
from verus.report.page import Page, Section
from verus.report.wanted import Wanted

SOURCE = "statistics of the recordings that `verus trace fetch` knows, each with its own paper to cite"

#: Pieces generated of each channel, from successive seeds.
PIECES = 16

#: Statistic → (its name on the page, tolerance relative to the recorded value, least tolerance).
FIGURES = {
    "mean_mbps": ("mean rate, Mbit/s", 0.10, 0.0),
    "cv_20ms": ("variation at 20 ms", 0.15, 0.05),
    "cv_100ms": ("variation at 100 ms", 0.15, 0.05),
    "cv_1s": ("variation at 1 s", 0.15, 0.05),
    "acf_100ms_lag1": ("autocorrelation, 100 ms", 0.0, 0.12),
    "acf_100ms_lag5": ("autocorrelation, 500 ms", 0.0, 0.12),
    "acf_100ms_lag50": ("autocorrelation, 5 s", 0.0, 0.12),
    "outages_per_min": ("outages a minute", 0.25, 1.0),
}


def prepare(options: Options) -> Work:
    """Nothing is needed; the work is generating."""

    def work(progress: Progress | None) -> Results:
        del progress  # it takes seconds
        statistics = _verus.calibration(options.seed, PIECES)
        settings = {"experiment": "calibration", "seed": options.seed, "pieces": PIECES}
        return Results.collect([], [], kind="calibration", settings=settings, measured=statistics)

    return work


def fitted(results: Results) -> list[Mapping[str, Any]]:
    """The channels that are fitted to a recording as a whole; others join parts of two."""
    return [row for row in results.config["measured"] if row["recording"] is not None]


def checks(results: Results) -> list[Check]:
    """Every statistic of every fitted channel against its recording."""
    checked = []
    for row in fitted(results):
        for key, (what, relative, least) in FIGURES.items():
            recorded = row["recording"]["figures"][key]
            reach = max(relative * abs(recorded), least)
            tolerance = Wanted(recorded - reach, recorded + reach)
            checked.append(Check(name=f"{row['name']}: {what}", value=row["generated"][key], wanted=tolerance))
    return checked


def summary(results: Results) -> Sequence[RenderableType]:
    """For a terminal: how many channels meet each statistic, and the verdict."""
    checked = checks(results)
    table = Table(
        title="Generated channels within tolerance of their recording", title_justify="left", box=box.SIMPLE_HEAD
    )
    table.add_column("statistic", no_wrap=True)
    table.add_column("channels", justify="right")
    table.add_column("tolerance", no_wrap=True)
    for what, relative, least in FIGURES.values():
        of_statistic = [check for check in checked if check.name.endswith(f": {what}")]
        reach = " or ".join(
            ([f"{relative:.0%}".replace("%", " %")] if relative else []) + ([f"{least:g}"] if least else [])
        )
        table.add_row(what, f"{sum(check.met for check in of_statistic)} of {len(of_statistic)}", f"± {reach}")
    return [table, "\n".join(verdict(checked))]


def page(results: Results) -> Page:
    """The plot, and every target."""
    checked = checks(results)
    body = paragraphs(verdict(checked))
    targets = target.table(checked, "statistic", "generated", title="Every checked statistic")
    return Page(
        title="Verus: built-in channels beside recordings",
        lead="What the synthetic channels reproduce of the recordings that they stand for, and how closely.",
        sections=[
            Section(title="Side by side", body=body, figures=[_figure(results)]),
            Section(title="Targets", body=targets),
        ],
    )


def _figure(results: Results) -> Figure:
    panels = []
    names = [row["name"] for row in fitted(results)]
    for place, (key, (what, _, _)) in enumerate(FIGURES.items()):
        values = []
        for row in fitted(results):
            middle, spread = row["generated"][key], row["spread"][key]
            values.append(
                {
                    "channel": row["name"],
                    "recorded": row["recording"]["figures"][key],
                    "generated": middle,
                    "low": middle - spread,
                    "high": middle + spread,
                }
            )
        panels.append(_panel(what, values, names, labelled=place % 4 == 0))
    caption = (
        f"Hollow: recorded. Filled: generated, mean of {PIECES} pieces as long as the recording, from seed "
        f"{results.config['settings']['seed']} on; bars: one standard deviation between pieces, which is how far "
        "a single recording may lie from the mean by chance. Variation is standard deviation over mean of the rate "
        "in bins of that width; autocorrelation is that of the rate in 100 ms bins at that lag; an outage is a gap "
        "of 100 ms or more."
    )
    spec = figures.grid(panels, columns=4)
    spec["spacing"] = {"row": 70, "column": 26}
    return figures.Figure(name="calibration", title="Recorded and generated statistics", caption=caption, spec=spec)


def _panel(title: str, values: Sequence[Mapping[str, Any]], names: Sequence[str], *, labelled: bool) -> dict[str, Any]:
    y = {
        "field": "channel",
        "type": "nominal",
        "scale": {"domain": list(names)},
        "axis": {"title": None, "grid": True, "labels": labelled, "ticks": False, "domain": False, "labelLimit": 240},
    }

    def x(field: str) -> dict[str, Any]:
        axis = {"title": None, "tickCount": 4}
        return {"field": field, "type": "quantitative", "axis": axis, "scale": {"zero": True}}

    tooltip = [{"field": "channel"}] + [{"field": name, "format": ".3f"} for name in ("recorded", "generated")]
    color = "#1c7fc7"
    return {
        "width": 178,
        "height": 19 * len(names),
        "data": {"values": list(values)},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.45, "color": color},
                "encoding": {"x": x("low"), "x2": {"field": "high"}, "y": y},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 55, "color": color, "opacity": 1},
                "encoding": {"x": x("generated"), "y": y, "tooltip": tooltip},
            },
            {
                "mark": {"type": "point", "filled": False, "size": 80, "color": "#d55e00", "strokeWidth": 1.8},
                "encoding": {"x": x("recorded"), "y": y, "tooltip": tooltip},
            },
            *figures.heading(title),
        ],
    }


EXPERIMENT = Experiment(name="calibration", source=SOURCE, prepare=prepare, checks=checks, page=page, summary=summary)
