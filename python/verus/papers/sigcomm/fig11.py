"""SIGCOMM 2015, Fig. 11: a network that changes altogether every five seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verus.lab.scenario import Run
from verus.papers.reproduction import SIGCOMM, Column, ColumnResults, Reproduction, Table, with_interval
from verus.papers.sigcomm.wired import BIN_MS, NETEM_QUEUE
from verus.report import figures
from verus.report.figures import Figure

#: Least and greatest capacity of each scenario, in Mbit/s.
SCENARIOS = {"I": (10.0, 100.0), "II": (2.0, 20.0)}
#: Least and greatest round-trip time and loss rate of both.
RTT_MS, LOSS = (10.0, 100.0), (0.0, 0.01)
STEP_S, DURATION_S, REPETITIONS = 5.0, 200.0, 5

SENDERS = {"Verus": "verus:ratio=2", "Cubic": "cubic", "NewReno": "newreno", "Vegas": "vegas", "Sprout": "sprout"}
#: For the table: the other modes.
BESIDE = {
    "Verus, paper mode": "verus:ratio=2,mode=paper",
    "Verus, prototype mode": "verus:ratio=2,mode=prototype",
}


def _conditions(scenario: str, seed: int) -> list[dict[str, float]]:
    """The network's parameters in each step of a repetition, the same for every sender."""
    draws = np.random.default_rng([1 + list(SCENARIOS).index(scenario), seed])
    steps = int(DURATION_S / STEP_S)
    rates, delays, losses = (
        draws.uniform(low, high, steps) for low, high in (SCENARIOS[scenario], (RTT_MS[0] / 2, RTT_MS[1] / 2), LOSS)
    )
    return [
        {"rate_mbps": round(float(rate), 3), "delay_ms": round(float(delay), 3), "loss": round(float(loss), 5)}
        for rate, delay, loss in zip(rates, delays, losses, strict=True)
    ]


def runs(column: Column) -> list[Run]:
    """One flow at a time over the same changes, five times."""
    planned = []
    for scenario in SCENARIOS:
        for seed in column.seeds(REPETITIONS):
            first, *others = _conditions(scenario, seed)
            changes = [{"at_s": STEP_S * number, **step} for number, step in enumerate(others, start=1)]
            planned += [
                column.run(
                    f"rate:{first['rate_mbps']:g}",
                    scheme,
                    label=label,
                    part=scenario,
                    seed=seed,
                    queue=NETEM_QUEUE,
                    duration_s=DURATION_S,
                    delay_ms=first["delay_ms"],
                    loss=first["loss"],
                    bin_ms=BIN_MS,
                    changes=changes,
                )
                for label, scheme in {**SENDERS, **BESIDE}.items()
            ]
    return planned


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    means = {
        scenario: {label: results.where(part=scenario, label=label).mean("throughput_mbps") for label in SENDERS}
        for scenario in SCENARIOS
    }
    values: dict[str, float | None] = {
        f"above-{label.lower()}-1": means["I"]["Verus"] / means["I"][label] for label in SENDERS if label != "Verus"
    }
    sprout = results.where(part="I", label="Sprout")
    values["sprout-cap"] = max(float(np.nanmax(results.series(row).throughput_mbps)) for row in sprout.rows)
    values["above-sprout-2"] = means["II"]["Verus"] / means["II"]["Sprout"]
    verus, sprout = (results.where(part="II", label=label) for label in ("Verus", "Sprout"))
    values["up-to-30-percent"] = max(
        ours["throughput_mbps"] / theirs["throughput_mbps"]
        for ours, theirs in zip(verus.rows, sprout.rows, strict=True)
    )
    values["sprout-better-2"] = _of_capacity(results, "II", "Sprout") / _of_capacity(results, "I", "Sprout")
    return values


def _of_capacity(results: ColumnResults, scenario: str, label: str) -> float:
    return results.where(part=scenario, label=label).mean("utilization")


def tables(results: ColumnResults) -> Sequence[Table]:
    """Throughput and delay, with 95 % confidence intervals over the repetitions."""
    rows = []
    for label in results.labels():
        cells = []
        for scenario in SCENARIOS:
            selected = results.where(part=scenario, label=label)
            cells.append(with_interval(selected.values("throughput_mbps"), 2))
            cells.append(with_interval(selected.values("qdelay_mean_ms"), 0))
        rows.append([label, *cells])
    heads = [f"{scenario}: {what}" for scenario in SCENARIOS for what in ("throughput, Mbit/s", "queueing delay, ms")]
    return [Table(title="Means over the repetitions", heads=["", *heads], rows=rows)]


def _rows(results: ColumnResults, labels: Sequence[str], quantity: str) -> list[dict[str, Any]]:
    """One quantity of each sender's first repetition, over time."""
    rows = []
    for label in labels:
        series = results.series(results.where(label=label).rows[0])
        values = getattr(series, quantity)[0]
        rows += [
            {"name": label, "x": float(time), "y": float(value)}
            for time, value in zip(series.time_s, values, strict=True)
            if np.isfinite(value)
        ]
    return rows


def _capacity(results: ColumnResults) -> list[dict[str, Any]]:
    series = results.series(results.rows[0])
    return [
        {"name": "capacity", "x": float(time), "y": float(value)}
        for time, value in zip(series.time_s, series.capacity_mbps, strict=True)
    ]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Throughput over the capacity, of all senders in I and of Verus and Sprout in II; there also delay."""

    def figure(scenario: str, labels: Sequence[str], quantity: str, title: str, y: str) -> Figure:
        selected = results.where(part=scenario)
        low, high = SCENARIOS[scenario]
        shaded = quantity == "throughput_mbps"
        caption = (
            f"The first of the repetitions (seed {selected.rows[0]['seed']}), bins of 1 s"
            f"{', grey: capacity' if shaded else ''}. One flow at a time over the same network: {low:g} to {high:g} "
            f"Mbit/s, round trip {RTT_MS[0]:g} to {RTT_MS[1]:g} ms, loss 0 to 1 %, all drawn anew every {STEP_S:g} s; "
            f"drop-tail queue of 1000 packets, {DURATION_S:g} s. Verus R = 2 in robust mode."
        )
        rows = [*(_capacity(selected) if shaded else ()), *_rows(selected, labels, quantity)]
        name = "fig11-scenario-" + scenario.lower() + ("" if shaded else "-delay")
        return figures.lines(rows, name=name, title=title, caption=caption, x="time, s", y=y, shade="capacity")

    throughput, delay = "throughput, Mbit/s", "queueing delay, ms"
    return [
        figure("I", list(SENDERS), "throughput_mbps", "(a) Scenario I: throughput", throughput),
        figure("II", ["Verus", "Sprout"], "throughput_mbps", "(b) Scenario II: throughput", throughput),
        figure("II", ["Verus", "Sprout"], "qdelay_ms", "(b) Scenario II: delay", delay),
    ]


EXPERIMENT = Reproduction(
    name="sigcomm-fig11",
    title="Fig. 11: a network that changes every five seconds",
    source=f"{SIGCOMM}, Fig. 11",
    shows=(
        "Every five seconds capacity, round-trip time and loss rate change together. Verus adapts fastest and has the "
        "most throughput. Sprout is held back by its cap where the link is faster, and is closer behind elsewhere."
    ),
    set_up=(
        "Scenario I has 10 to 100 Mbit/s, II 2 to 20 Mbit/s; in both the round trip is 10 to 100 ms and the loss rate "
        "0 to 1 %. Each is drawn uniformly every 5 s, five times over, the same for every sender; a change of delay "
        "leaves packets under way in order. One flow at a time, R = 2. Left open and chosen: 200 s; a drop-tail "
        "buffer of 1000 packets of 1500 bytes, which is what netem holds unless told otherwise. Delay is time in "
        "that buffer. The table also has Verus's other modes."
    ),
    channels={},
    runs=runs,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
