"""SIGCOMM 2015, Fig. 15: Verus with and without updating its delay profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verus.lab.scenario import PAPER_QUEUE, Run
from verus.papers.claims import BUILT_IN
from verus.papers.reproduction import SIGCOMM, Column, ColumnResults, Reproduction, Table, interval
from verus.papers.sigcomm import five_scenarios
from verus.report import figures
from verus.report.figures import Figure

UPDATED, FROZEN = "updated each second", "first profile kept"
FLOWS, DURATION_S = 10, 300.0
#: Repetitions on built-in channels in robust mode; other runs are not repeated.
REPETITIONS = 5
#: Definition of the plotted quantity.
POWER = "Power is throughput over the sum of mean queueing delay and base round-trip time."
#: Longer than any run: the profile is fitted when slow start ends, and never again.
NEVER = "update_interval_ms=3600000"
#: The default mode is checked. `paper` is for comparison: only the profile's points bound its
#: curve.
MODES = {"robust": "verus:ratio=2", "paper": "verus:mode=paper,ratio=2"}


def runs(column: Column) -> list[Run]:
    """Each mode over each channel, updated and frozen."""
    return [
        column.run(place, scheme, flows=FLOWS, label=label, part=mode, seed=seed, duration_s=DURATION_S, series=False)
        for place in five_scenarios.CHANNELS
        for mode, text in MODES.items()
        for label, scheme in ((UPDATED, text), (FROZEN, f"{text},{NEVER}"))
        for seed in column.seeds(REPETITIONS if mode == "robust" and column.name == BUILT_IN else 1)
    ]


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    return {f"power-{place}": _gain(results.where(place=place, part="robust")) for place in five_scenarios.CHANNELS}


def _gain(results: ColumnResults) -> float:
    return results.where(label=UPDATED).mean("power") / results.where(label=FROZEN).mean("power")


def tables(results: ColumnResults) -> Sequence[Table]:
    """Throughput, delay and power, updated and frozen, in both modes."""
    rows = []
    for mode in MODES:
        for place in five_scenarios.CHANNELS:
            selected = results.where(place=place, part=mode)
            cells = [f"{place}, {mode}"]
            for key, digits in (("throughput_mbps", 2), ("qdelay_mean_ms", 0), ("power", 0)):
                for label in (UPDATED, FROZEN):
                    cells.append(f"{interval(selected.where(label=label).values(key))[0]:.{digits}f}")
            rows.append([*cells, f"{_gain(selected):.2f}"])
    heads = [""]
    heads += [
        f"{what}, {how}" for what in ("Mbit/s", "delay in ms", "power in Mbit/s²") for how in ("updated", "frozen")
    ]
    return [Table(title="Ten flows together: means over the runs", heads=[*heads, "power, ratio"], rows=rows)]


def sentences(results: ColumnResults) -> Sequence[str]:
    """How far runs differ: a mean may come from a few of them."""
    words = []
    for mode in MODES:
        ratios = [
            updated["power"] / frozen["power"]
            for place in five_scenarios.CHANNELS
            for updated, frozen in zip(
                results.where(place=place, part=mode, label=UPDATED).rows,
                results.where(place=place, part=mode, label=FROZEN).rows,
                strict=True,
            )
        ]
        wins = sum(ratio > 1 for ratio in ratios)
        between = f"between {min(ratios):.2f} and {max(ratios):.2f}"
        words.append(f"in {mode} mode {wins} of {len(ratios)}, the ratio {between}")
    return [
        f"Runs in which updating has more power: {'; '.join(words)}. How good a first profile is, is a matter of luck."
    ]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Throughput against delay of each flow, a panel for each channel; and the power of both."""
    robust = results.where(part="robust")
    points = robust.points(lambda row: row["trace"])
    bars = [
        {
            "panel": f"Verus in {mode} mode",
            "group": place,
            "name": label,
            "y": results.where(place=place, part=mode, label=label).mean("power"),
        }
        for mode in MODES
        for place in five_scenarios.CHANNELS
        for label in (UPDATED, FROZEN)
    ]
    caption = f"Ten flows over one link, R = 2, {DURATION_S:g} s, queue {PAPER_QUEUE}, 20 ms of propagation each way. "
    return [
        figures.points(
            points,
            name="fig15",
            title="Verus with and without updating the delay profile",
            caption=f"{caption}A point for each flow, {robust.seeds_text()}. Delay is time in the queue. Robust mode.",
            x="mean queueing delay, ms",
            y="throughput of a flow, Mbit/s",
            columns=3,
            size=(280, 220),
            mark_size=30,
        ),
        figures.bars(
            bars,
            name="fig15-power",
            title="Power with and without updating the delay profile",
            caption=f"{caption}Means over {robust.seeds_text()} in robust mode; one run in paper mode. {POWER}",
            x="",
            y="power of all flows, Mbit/s per s",
            columns=1,
            size=(860, 220),
        ),
    ]


EXPERIMENT = Reproduction(
    name="sigcomm-fig15",
    title="Fig. 15: Verus with and without updating the delay profile",
    source=f"{SIGCOMM}, Fig. 15",
    shows=(
        "Verus with a profile that is updated each second, and Verus that keeps the first curve it makes, over five "
        "traces. Updating pays, since the channel changes."
    ),
    set_up=(
        f"Ten flows, as in Fig. 10 (the paper does not say how many), R = 2, {DURATION_S:g} s. {five_scenarios.WORDS} "
        "Queue as in Fig. 10. The frozen Verus fits its curve when slow start ends and never again; in robust mode the "
        "delivery rate that bounds curve and window is sampled at the same instants and so is frozen too, but for "
        "losses, which may lower it. D_min, D_est and the window ceiling after a loss go on as ever. What the paper "
        "plots is not said in its text; one number for both throughput and delay is their ratio, power. Paper mode "
        "stands beside."
    ),
    channels=five_scenarios.CHANNELS,
    runs=runs,
    measure=measure,
    tables=tables,
    sentences=sentences,
    draw=draw,
).experiment()
