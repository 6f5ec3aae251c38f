"""SIGCOMM 2015, section 5.3: what Verus's parameters do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from verus.lab.scenario import PAPER_QUEUE, Run
from verus.papers.claims import RECORDINGS
from verus.papers.reproduction import SIGCOMM, Column, ColumnResults, Place, Reproduction, Table
from verus.report import figures
from verus.report.figures import Figure

#: The seven places, both ways; a recording where there is one of that place.
CHANNELS = {
    "campus stationary, down": Place("campus-stationary-3g-down"),
    "campus stationary, up": Place("campus-stationary-3g-up"),
    "campus pedestrian, down": Place("campus-pedestrian-3g-down"),
    "campus pedestrian, up": Place("campus-pedestrian-3g-up", "verus-2015/campus-pedestrian.up"),
    "city stationary, down": Place("city-stationary-3g-down", "nyc-2018/downlink-3g-with-cross-times-1"),
    "city stationary, up": Place("city-stationary-3g-up"),
    "city driving, down": Place("city-driving-3g-down"),
    "city driving, up": Place("city-driving-3g-up", "verus-2015/city-driving.up"),
    "highway driving, down": Place("highway-driving-3g-down"),
    "highway driving, up": Place("highway-driving-3g-up", "verus-2015/highway-driving.up"),
    "shopping mall, down": Place("shopping-mall-3g-down", "nyc-2018/downlink-3g-no-cross-subway.pps"),
    "shopping mall, up": Place("shopping-mall-3g-up", "nyc-2018/uplink-3g-no-cross-subway.pps"),
    "city waterfront, down": Place("city-waterfront-3g-down", "mahimahi/TMobile-UMTS-driving.down"),
    "city waterfront, up": Place("city-waterfront-3g-up", "mahimahi/TMobile-UMTS-driving.up"),
}
FLOWS, DURATION_S = 4, 300.0

#: The values of each study; the others stay at the defaults, which the paper's text gives.
EPOCHS_MS = (2, 5, 10, 20, 50, 100)
UPDATES_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
DELTAS_MS = (0.5, 1, 2, 4, 8)


def _epoch(ms: float) -> str:
    return f"epoch_ms={ms:g}"


def _update(s: float) -> str:
    return f"update_interval_ms={1000 * s:g}"


def _deltas(pair: tuple[float, float]) -> str:
    return f"decrement_ms={pair[0]:g},increment_ms={pair[1]:g}"


#: δ2 of a flow of Verus beside one of Cubic, with δ1 of 1 ms.
BESIDE_CUBIC = "beside Cubic, "
WEAK, STRONG = _deltas((1, 1)), _deltas((1, 8))

GRID = tuple(itertools.product(DELTAS_MS, DELTAS_MS))
STUDIES: Mapping[str, Sequence[str]] = {
    "epoch": [_epoch(ms) for ms in EPOCHS_MS],
    "update": [_update(s) for s in UPDATES_S],
    "deltas": [_deltas(pair) for pair in GRID],
}


def runs(column: Column) -> list[Run]:
    """Every setting over every channel."""
    return [
        column.run(
            place,
            f"verus:ratio=2,{setting}",
            flows=FLOWS,
            part=setting,
            duration_s=DURATION_S,
            series=False,
        )
        for setting in itertools.chain(*STUDIES.values())
        for place in _places(column)
    ] + [
        column.run(
            place,
            f"verus:ratio=2,{setting}",
            flows=[{}, {"scheme": "cubic"}],
            part=f"{BESIDE_CUBIC}{setting}",
            duration_s=DURATION_S,
            series=False,
        )
        for setting in (WEAK, STRONG)
        for place in _places(column)
    ]


def _places(column: Column) -> list[str]:
    return [place for place, channel in CHANNELS.items() if channel.recording or column.name != RECORDINGS]


def _share(results: ColumnResults, setting: str) -> float:
    """Verus's share of the throughput of both beside Cubic; the mean over the channels."""
    rows = results.where(part=f"{BESIDE_CUBIC}{setting}").rows
    got = [[flow["throughput_mbps"] for flow in row["per_flow"]] for row in rows]
    return float(np.mean([verus / (verus + cubic) for verus, cubic in got]))


def _power(results: ColumnResults, study: str) -> Mapping[str, float]:
    """The power of each setting, over that of the best setting of the study: the mean over the channels."""
    relative: dict[str, list[float]] = {setting: [] for setting in STUDIES[study]}
    for place in results.places():
        at_place = results.where(place=place)
        power = {setting: at_place.where(part=setting).mean("power") for setting in STUDIES[study]}
        best = max(power.values())
        for setting, value in power.items():
            relative[setting].append(value / best)
    return {setting: float(np.mean(values)) for setting, values in relative.items()}


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    epoch, update, deltas = (_power(results, study) for study in STUDIES)
    inside = [deltas[_deltas(pair)] for pair in GRID if 1 <= pair[0] <= pair[1] <= 2]
    outside = [deltas[_deltas(pair)] for pair in GRID if not 1 <= pair[0] <= pair[1] <= 2]
    strong, weak = (results.where(part=_deltas((1, delta))).mean("qdelay_p95_ms") for delta in (8, 1))
    return {
        "epoch-5ms": epoch[_epoch(5)] / max(epoch.values()),
        "epoch-longer": epoch[_epoch(50)] / epoch[_epoch(5)],
        **{f"epoch-longer-{ms}ms": epoch[_epoch(ms)] / epoch[_epoch(5)] for ms in (10, 20, 100)},
        "update-1s": update[_update(1)] / max(update.values()),
        "update-longer": update[_update(10)] / update[_update(1)],
        **{f"update-longer-{s}s": update[_update(s)] / update[_update(1)] for s in (2, 5, 20)},
        "update-shorter": update[_update(0.1)] / update[_update(1)],
        "deltas-default": deltas[_deltas((1, 2))] / max(deltas.values()),
        "deltas-range": max(inside) / max(outside),
        "deltas-stronger": strong / weak,
        "deltas-company": _share(results, STRONG) / _share(results, WEAK),
    }


def tables(results: ColumnResults) -> Sequence[Table]:
    """Throughput, delay and power of each setting of the epoch and of the update interval."""
    rows = []
    for study, values, unit in (("epoch", EPOCHS_MS, "ms"), ("update", UPDATES_S, "s")):
        power = _power(results, study)
        for setting, value in zip(STUDIES[study], values, strict=True):
            selected = results.where(part=setting)
            metrics = ("throughput_mbps", "qdelay_mean_ms", "qdelay_p95_ms")
            throughput, delay, high = (float(np.median(selected.values(metric))) for metric in metrics)
            rows.append(
                [
                    f"{study} {value:g} {unit}",
                    f"{throughput:.2f}",
                    f"{delay:.0f}",
                    f"{high:.0f}",
                    f"{power[setting]:.3f}",
                    f"{selected.mean('jain'):.3f}",
                ]
            )
    heads = ["", "throughput, Mbit/s", "mean delay, ms", "95 %, ms", "relative power", "Jain's index"]
    return [Table(title="Medians over the channels; relative power and Jain's index: means", heads=heads, rows=rows)]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Power over each of the intervals, and over both deltas."""
    common = (
        f"Relative power: throughput over mean queueing delay and base round trip, over that of the best setting on "
        f"the channel, mean of {len(results.places())} channels. {FLOWS} Verus flows (R = 2, robust mode), "
        f"{DURATION_S:g} s, queue {PAPER_QUEUE}, 20 ms of propagation each way, seed {results.rows[0]['seed']}."
    )
    studies: tuple[tuple[str, str, str, Sequence[float], Callable[[float], str]], ...] = (
        ("epoch", "Epoch", "epoch, ms", EPOCHS_MS, _epoch),
        ("update", "Update interval of the profile", "interval, s", UPDATES_S, _update),
    )
    drawn = []
    for study, title, x, values, setting in studies:
        power = _power(results, study)
        rows = [{"name": "Verus", "x": float(value), "y": power[setting(value)]} for value in values]
        drawn.append(
            figures.lines(
                rows,
                name=f"sensitivity-{study}",
                title=title,
                caption=common,
                x=x,
                y="relative power",
                log_x=True,
                dots=True,
                size=(460, 220),
            )
        )
    power = _power(results, "deltas")
    cells = [{"x": f"{up:g}", "y": f"{down:g}", "value": power[_deltas((down, up))]} for down, up in GRID]
    drawn.append(
        figures.heat(
            cells,
            name="sensitivity-deltas",
            title="Deltas",
            caption=common,
            x="δ2, increment, ms",
            y="δ1, decrement, ms",
            value="relative power",
        )
    )
    return drawn


EXPERIMENT = Reproduction(
    name="sigcomm-sensitivity",
    title="Section 5.3: sensitivity to parameters",
    source=f"{SIGCOMM}, section 5.3",
    shows=(
        "An epoch of 5 ms is good and longer ones are too slow; fitting the profile once a second is reasonable, more "
        "seldom misses changes and much more often is too aggressive; deltas belong between 1 and 2 ms, with δ1 no "
        "more than δ2, and stronger ones have stronger effects. The paper gives no figures."
    ),
    set_up=(
        "One parameter, or the pair of deltas, is varied and the others keep the paper's values, over 3G channels of "
        "the paper's seven places, downlink and uplink. The paper replays five minutes and schedules flows under "
        "contention, without their number: here four, as many as the phones that recorded, for five minutes. What is "
        "good is measured by power, throughput over mean queueing delay and base round trip. Channels differ much in "
        "power, so each is taken relative to the best setting of the study on it, and the mean is over channels. "
        "Recordings: those of the places that have one."
    ),
    channels=CHANNELS,
    runs=runs,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
