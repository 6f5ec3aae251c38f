"""SIGCOMM 2015, Fig. 4: the rate that a 3G downlink delivers, and predictors that fail to track it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from verus.lab.runner import Outcome
from verus.lab.scenario import Run
from verus.papers.reproduction import SIGCOMM, Array, Column, ColumnResults, Place, Reproduction, Table
from verus.papers.sigcomm import predictors
from verus.papers.sigcomm.arrivals import PACKET_BYTES, QUEUE, SENDER, received_ms
from verus.report import figures
from verus.report.figures import Figure

CHANNELS = {
    "3G": Place("campus-stationary-3g-down", "nyc-2018/downlink-3g-with-cross-times-1"),
    "LTE": Place("campus-stationary-lte-down", "verus-2015/campus-pedestrian.down"),
}
DURATION_S = 300.0
LEAST_MS = 20
#: Width of a window, and how much of the run is drawn, both ms.
WINDOWS_MS = {100: 30_000, 20: 6_000}
#: The linear predictor's windows; the order of the other, and how far ahead it looks.
LINE, ORDER, STEPS = 5, 10, 2


def runs(column: Column) -> list[Run]:
    """The sender of Fig. 1 over both networks."""
    return [
        column.run(
            place, SENDER, queue=QUEUE, duration_s=DURATION_S, packet_bytes=PACKET_BYTES, records=True, series=False
        )
        for place in CHANNELS
    ]


def keep(outcome: Outcome) -> Sequence[int]:
    """Packets received in each window of 20 ms, from the first arrival to the end."""
    times = received_ms(outcome)
    edges = np.arange(times[0], DURATION_S * 1000, LEAST_MS)
    counts: list[int] = np.histogram(times, bins=edges)[0].tolist()
    return counts


def _rate_mbps(results: ColumnResults, place: str, window_ms: int) -> Array:
    """The arrival rate in each window of time."""
    packets = np.asarray(results.kept(results.where(place=place).rows[0]), dtype=float)
    many = window_ms // LEAST_MS
    whole = len(packets) // many * many
    summed: Array = packets[:whole].reshape(-1, many).sum(axis=1)
    return summed * PACKET_BYTES * 8 / (window_ms * 1000)


def _variation(series: Array) -> float:
    return float(series.std() / series.mean())


def _predicted(series: Array) -> Mapping[str, Array]:
    """The two predictors of the claims."""
    return {
        "linear": predictors.linear(series, windows=LINE),
        "kstep": predictors.autoregressive(series, order=ORDER, steps=STEPS),
    }


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    variation = {window: _variation(_rate_mbps(results, "3G", window)) for window in WINDOWS_MS}
    values: dict[str, float | None] = {
        "fluctuates-100ms": variation[100],
        "worse-at-20ms": variation[20] / variation[100],
    }
    for place in CHANNELS:
        for window in WINDOWS_MS:
            series = _rate_mbps(results, place, window)
            for key, predicted in _predicted(series).items():
                values[f"{key}-{window}ms-{place.lower()}"] = predictors.error(series, predicted)["relative"]
    return values


def tables(results: ColumnResults) -> Sequence[Table]:
    """The errors of every predictor, beside the trivial ones."""
    rows = []
    for place in CHANNELS:
        for window in WINDOWS_MS:
            series = _rate_mbps(results, place, window)
            predictions = {
                "always the mean": predictors.average(series),
                "the last value": predictors.last(series),
                **{f"linear, {windows} windows": predictors.linear(series, windows=windows) for windows in (LINE, 10)},
                **{
                    f"{steps}-step-ahead, order {ORDER}": predictors.autoregressive(series, order=ORDER, steps=steps)
                    for steps in (1, STEPS, 5, 10)
                },
            }
            for name, predicted in predictions.items():
                wrong = predictors.error(series, predicted)
                rows.append(
                    [f"{place}, {window} ms", name, f"{wrong['rmse']:.2f}", f"{wrong['relative']:.2f}"],
                )
    heads = ["windows", "predictor", "RMSE, Mbit/s", "RMSE / σ"]
    return [Table(title="Errors of prediction, second half of the run", heads=heads, rows=rows)]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """The rate received over 3G and both predictions, a panel for each width of window."""
    names = {"linear": "linear", "kstep": f"{STEPS}-step-ahead"}
    rows = []
    for window, drawn_ms in WINDOWS_MS.items():
        series = _rate_mbps(results, "3G", window)
        lines = {"received": series, **{names[key]: each for key, each in _predicted(series).items()}}
        first = len(series) // 2
        for name, values in lines.items():
            rows += [
                {
                    "panel": f"{window} ms windows",
                    "name": name,
                    "x": index * window / 1000,
                    "y": float(values[first + index]),
                }
                for index in range(drawn_ms // window)
            ]
    row = results.where(place="3G").rows[0]
    caption = (
        f"What arrives of 10 Mbit/s (packets of {PACKET_BYTES} bytes) over {row['trace']}, and what two predictors "
        f"expected: a line through the last {LINE} windows, and the best linear combination of {ORDER} windows for the "
        f"one {STEPS} later, fitted to the first half of {DURATION_S:g} s. Time counts from the second half on. "
        f"Queue {QUEUE}, seed {row['seed']}."
    )
    return [
        figures.lines(
            rows,
            name="fig04",
            title="Received and predicted rate on 3G",
            caption=caption,
            x="time, s",
            y="Mbit/s",
        )
    ]


EXPERIMENT = Reproduction(
    name="sigcomm-fig04",
    title="Fig. 4: a channel that simple predictors do not track",
    source=f"{SIGCOMM}, Fig. 4",
    shows=(
        "What a user receives over a stationary 3G downlink fluctuates dramatically in windows of 100 ms and more so "
        "in windows of 20 ms. Linear and k-step-ahead predictors fail to track it, on 3G and on LTE."
    ),
    set_up=(
        "The 10 Mbit/s sender of Fig. 1 for five minutes. Our 3G channel carries 5 Mbit/s, the paper's carried 10, "
        "so the sender saturates it and what arrives is the channel's rate; the LTE channel carries it all. The paper "
        "gives no detail of its predictors. Ours: a straight line through the last five windows, one step further; and "
        "the linear combination of the last ten windows that is best for the first half of the run, used on the "
        "second to predict k = 2 steps ahead, the least that is more than one and the easiest. Errors are over the "
        "standard deviation of what was to be predicted: always guessing the mean has 1. "
        "The table has other k beside them. As recordings stand a walk on Times Square (3G) and the authors' "
        "campus downlink (LTE)."
    ),
    channels=CHANNELS,
    runs=runs,
    keep=keep,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
