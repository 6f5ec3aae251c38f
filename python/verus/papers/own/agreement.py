"""Emulated against simulated: by how much the two differ, for the same sender, channel and queue.

In real time, behind the emulator: our controllers over UDP and in QUIC, and the kernel's TCP. In virtual
time: the same controllers in the simulator; for the kernel's, our own with TCP's delayed acknowledgements.
It needs privileges that few users have, and real time for its runs, so it is run by name only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from verus.endpoints import emulation
from verus.lab import runner
from verus.lab.results import Results
from verus.lab.runner import Progress
from verus.lab.scenario import PAPER_QUEUE, Contestant, Run, make_run
from verus.papers.experiment import Options, Work
from verus.papers.own import side_by_side
from verus.papers.recordings import find_recordings
from verus.papers.reproduction import interval
from verus.papers.target import Check
from verus.report.wanted import Wanted

SOURCE = "this project's own promise: simulated and real differ by less than this"

#: Recordings, and what tables call them.
TRACES = {
    "cs244-2017/camp_ped_2min": "campus",
    "cs244-2017/city_drive_2min": "city",
    "cs244-2017/highway_drive_2min": "highway",
    "mahimahi/Verizon-LTE-short.down": "Verizon LTE",
    "cs244-2017/TMobile-LTE-driving.down": "T-Mobile LTE",
    "mahimahi/TMobile-UMTS-driving.down": "T-Mobile UMTS",
    "cs244-2017/TMobile-LTE-driving.up": "T-Mobile LTE up",
    "cs244-2017/ATT-LTE-driving-2016.down": "AT&T LTE",
}

#: Channels that need no recording.
BUILT_IN = ("campus-pedestrian-3g-down", "city-driving-lte-down", "highway-driving-3g-down")

DURATION_S = 60.0
REPEAT = 5


@dataclass(frozen=True, kw_only=True)
class Sender:
    """A sender in real time, its counterpart in the simulator, and the tolerances between them.

    Attributes:
        real: Scheme in real time.
        transport: Its transport protocol.
        simulated: Scheme in the simulator; None if a sender runs beside the others but has no counterpart.
        ack_every: Packets per acknowledgement in the simulator.
        throughput: Largest relative difference of throughput.
        delay: Largest relative difference of mean queueing delay.
    """

    real: str
    transport: str
    simulated: str | None
    ack_every: int
    throughput: float
    delay: float

    @property
    def label(self) -> str:
        """As tables name it."""
        entry = Contestant.from_scheme(self.real)
        return {"udp": f"{entry.label} over UDP", "quic": f"{entry.label} in QUIC"}.get(self.transport, entry.label)


SENDERS = (
    *(
        Sender(real=text, transport="udp", simulated=text, ack_every=1, throughput=0.05, delay=0.15)
        for text in ("verus:ratio=2", "verus:ratio=6", "forward", "cubic", "newreno")
    ),
    *(
        Sender(real=text, transport="quic", simulated=text, ack_every=1, throughput=0.10, delay=0.30)
        for text in ("verus:ratio=2", "forward")
    ),
    Sender(real="linux:cc=cubic", transport="tcp", simulated="cubic", ack_every=2, throughput=0.05, delay=0.30),
    Sender(real="linux:cc=reno", transport="tcp", simulated="newreno", ack_every=2, throughput=0.05, delay=0.30),
    Sender(real="linux:cc=bbr", transport="tcp", simulated=None, ack_every=2, throughput=0.05, delay=0.30),
)


def runs(
    traces: Mapping[str, str], *, seed: int, repeat: int, duration_s: float = DURATION_S
) -> tuple[list[Run], list[Run]]:
    """Runs to emulate and runs to simulate, in the same order of cells.

    Args:
        traces: Label → file or name of a channel.
        seed: First seed; of both.
        repeat: Runs of each cell.
        duration_s: Length of each.
    """
    emulated, simulated = [], []
    for (label, path), sender, number in itertools.product(traces.items(), SENDERS, range(seed, seed + repeat)):
        common: dict[str, Any] = {
            "trace": label,
            "path": path,
            "queue": PAPER_QUEUE,
            "seed": number,
            "duration_s": duration_s,
        }
        real = replace(Contestant.from_scheme(sender.real), label=sender.label, transport=sender.transport)
        emulated.append(make_run(contestant=real, part="emulated", **common))
        if sender.simulated is not None:
            model = replace(Contestant.from_scheme(sender.simulated), label=sender.label)
            simulated.append(make_run(contestant=model, part="simulated", ack_every=sender.ack_every, **common))
    return emulated, simulated


def prepare(options: Options) -> Work:
    """Finds the recordings; the work is the runs."""
    if options.built_in:
        traces = {name: name for name in BUILT_IN}
    else:
        traces = {TRACES[name]: path for name, path in find_recordings(TRACES, options.traces).items()}
    repeat = options.repeat or REPEAT
    emulated, simulated = runs(traces, seed=options.seed, repeat=repeat)
    settings = {
        "experiment": "agreement",
        "built_in": options.built_in,
        "seed": options.seed,
        "repeat": repeat,
        "jobs": options.jobs,
    }

    def work(progress: Progress | None) -> Results:
        # The simulator first: while the emulator works, nothing else should.
        models = runner.run_all(simulated)
        real = emulation.run_all(emulated, jobs=options.jobs, progress=progress)
        return Results.collect([*emulated, *simulated], [*real, *models], kind="agreement", settings=settings)

    return work


# --- measured -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Both:
    """A metric in real time and, where the sender has a like there, in the simulator: a value for each repetition."""

    real: Sequence[float]
    model: Sequence[float]

    @property
    def ratio(self) -> float | None:
        """Emulated over simulated, of the means."""
        return interval(self.real)[0] / interval(self.model)[0] if self.model else None


#: One sender over one channel, both ways: each metric by its name.
Row = tuple[str, Sender, Mapping[str, Both]]

THROUGHPUT, DELAY, DELAY_P95 = "throughput_mbps", "qdelay_mean_ms", "qdelay_p95_ms"


def table_of(results: Results) -> list[Row]:
    """Every sender over every channel, in the order of running."""
    measured: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in results.rows.to_pylist():
        measured.setdefault((row["trace"], row["label"], row["part"]), []).append(row)
    rows: list[Row] = []
    for trace, sender in itertools.product(dict.fromkeys(trace for trace, _, _ in measured), SENDERS):
        real, model = (measured.get((trace, sender.label, part), []) for part in ("emulated", "simulated"))
        metrics = {
            key: Both(real=[row[key] for row in real], model=[row[key] for row in model])
            for key in (THROUGHPUT, DELAY, DELAY_P95)
        }
        rows.append((trace, sender, metrics))
    return rows


def checks(results: Results) -> list[Check]:
    """Throughput and mean queueing delay of every cell, emulated over simulated."""
    targets = []
    for trace, sender, metrics in table_of(results):
        for what, value, reach in (
            ("throughput", metrics[THROUGHPUT].ratio, sender.throughput),
            ("mean queueing delay", metrics[DELAY].ratio, sender.delay),
        ):
            if value is not None:
                name = f"{trace}, {sender.label}: {what}, emulated / simulated"
                targets.append(Check(name=name, value=value, wanted=Wanted(1 - reach, 1 + reach)))
    return targets


# --- shown --------------------------------------------------------------------------------------

_HEADINGS = (
    "sender",
    "Mbit/s emulated",
    "simulated",
    "ratio",
    "mean ms emulated",
    "simulated",
    "ratio",
    "p95 ms emulated",
)


def _cells(sender: Sender, metrics: Mapping[str, Both]) -> list[str]:
    def shown(values: Sequence[float], digits: int) -> str:
        if not values:
            return "–"
        middle, half = interval(values)
        # A single value has no interval, and alike ones have none to speak of.
        return f"{middle:.{digits}f}" + ("" if math.isnan(half) or not half else f" ± {half:.{digits}f}")

    def pair(both: Both, digits: int) -> list[str]:
        ratio = "–" if both.ratio is None else f"{both.ratio:.3f}"
        return [shown(both.real, digits), shown(both.model, digits), ratio]

    return [
        sender.label,
        *pair(metrics[THROUGHPUT], 3),
        *pair(metrics[DELAY], 1),
        shown(metrics[DELAY_P95].real, 0),
    ]


def _tables(results: Results) -> dict[str, list[list[str]]]:
    by_trace = itertools.groupby(table_of(results), key=lambda row: row[0])
    return {trace: [_cells(sender, metrics) for _, sender, metrics in own] for trace, own in by_trace}


EXPERIMENT = side_by_side.experiment(
    name="agreement",
    source=SOURCE,
    prepare=prepare,
    checks=checks,
    tables=_tables,
    headings=_HEADINGS,
    apart="channel",
    title="Verus: emulated against simulated",
    lead=lambda results: (
        f"One flow for {DURATION_S:g} s, RED 375/1125 kB, 20 ms each way; means of "
        f"{results.config['settings']['repeat']} with 95 % intervals."
    ),
    targets=("cell", "Ratios"),
)
