"""Other senders in real time, compared with measurements of the same senders with Mahimahi.

The published side (`peers.csv`) is one bulk flow for 60 s behind `mm-link`: 20 ms each way, and the
2017 reproduction's RED in both directions. Acknowledgements cross the matching opposite trace, or
12 Mbit/s. Senders are Linux 6.18 (BBR version 1, Cubic with HyStart) and the authors' prototype of
2017. Each cell has the best repetition: of those in which the sender had a whole core, the one with
the highest utilization / (50 ms + p95). Ours runs in real time behind `verus compare --emulate`; it
takes root, and is run by name only.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from verus.endpoints import emulation
from verus.lab.results import Results
from verus.lab.runner import Progress
from verus.lab.scenario import Contestant, Run, make_run
from verus.papers.experiment import Options, Work
from verus.papers.own import side_by_side
from verus.papers.published import listed
from verus.papers.recordings import find_recordings
from verus.papers.target import Check
from verus.report.wanted import Wanted

SOURCE = "senders measured behind Mahimahi's mm-link with the 2017 reproduction's RED"

QUEUE = "red:min=375000,max=1125000,p=0.1,preset=cs244"
DURATION_S = 60.0
REPEAT = 2

#: Utilization may differ by this much, and the 95th percentile of the queueing delay by this share …
UTILIZATION, DELAY = 0.05, 0.30
#: … on this many of the eight traces at least.
ENOUGH = 5

#: Size of the prototype's packets (1450 bytes of payload), and of TCP's.
_PACKET = {"verus": 1478, "linux": 1500}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Metrics of one sender over one trace, means over the runs."""

    utilization: float
    qdelay_mean_ms: float
    qdelay_p95_ms: float

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Measured:
        """From rows of results, or of `peers.csv`."""
        return cls(**{name: fmean(float(row[name]) for row in rows) for name in cls.__annotations__})


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One sender over one trace, as measured with Mahimahi."""

    trace: str
    ack: str
    scheme: str
    theirs: Measured


def cells() -> list[Cell]:
    """The measured cells that are run again."""
    return [
        Cell(trace=row["trace"], ack=row["ack"], scheme=row["scheme"], theirs=Measured.of([row]))
        for row in listed("verus.papers.own", "peers.csv")
    ]


def prepare(options: Options) -> Work:
    """Finds the recordings; the work is the runs."""
    names = itertools.chain.from_iterable((cell.trace, cell.ack) for cell in cells())
    paths = find_recordings([name for name in names if not name.startswith("rate:")], options.traces)
    repeat = options.repeat or REPEAT
    planned: list[Run] = []
    for cell, number in itertools.product(cells(), range(options.seed, options.seed + repeat)):
        contestant = replace(Contestant.from_scheme(cell.scheme), transport="udp")
        run = make_run(
            trace=cell.trace,
            path=paths.get(cell.trace, cell.trace),
            queue=QUEUE,
            contestant=contestant,
            seed=number,
            duration_s=DURATION_S,
            ack=paths.get(cell.ack, cell.ack),
            ack_queue=QUEUE,
            packet_bytes=_PACKET[contestant.scheme],
            # Mahimahi's opportunities carry 1504 bytes, of which each packet spends 4 on its device header.
            opportunity_bytes=1500,
        )
        planned.append(run)
    settings = {"experiment": "peers", "seed": options.seed, "repeat": repeat, "jobs": options.jobs}

    def work(progress: Progress | None) -> Results:
        outcomes = emulation.run_all(planned, jobs=options.jobs, progress=progress)
        return Results.collect(planned, outcomes, kind="peers", settings=settings)

    return work


# --- measured -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A cell, what we measured of it, and whether that is near enough."""

    cell: Cell
    label: str
    ours: Measured

    @property
    def near(self) -> bool:
        """Utilization and the 95th percentile are both within reach."""
        ours, theirs = self.ours, self.cell.theirs
        return (
            abs(ours.utilization - theirs.utilization) <= UTILIZATION
            and abs(ours.qdelay_p95_ms / theirs.qdelay_p95_ms - 1) <= DELAY
        )


def pairs(results: Results) -> list[Pair]:
    """Every cell, by sender."""
    measured: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in results.rows.to_pylist():
        measured.setdefault((row["trace"], row["label"]), []).append(row)
    labels = ((cell, Contestant.from_scheme(cell.scheme).label) for cell in cells())
    paired = [Pair(cell=cell, label=label, ours=Measured.of(measured[cell.trace, label])) for cell, label in labels]
    return sorted(paired, key=lambda pair: pair.label)


def checks(results: Results) -> list[Check]:
    """For each sender, on how many traces it is where it was."""
    return [
        Check(
            name=f"{label}: traces on which utilization is within {100 * UTILIZATION:g} points and p95 within "
            f"{100 * DELAY:g} %",
            value=float(sum(pair.near for pair in own)),
            wanted=Wanted(ENOUGH),
        )
        for label, own in ((label, list(own)) for label, own in itertools.groupby(pairs(results), lambda p: p.label))
    ]


# --- shown --------------------------------------------------------------------------------------

_HEADINGS = ("trace", "used % ours", "measured", "mean ms ours", "measured", "p95 ms ours", "measured", "")


def _cells(pair: Pair) -> list[str]:
    both = (pair.ours, pair.cell.theirs)
    return [
        pair.cell.trace.rpartition("/")[2],
        *(f"{100 * one.utilization:.1f}" for one in both),
        *(f"{one.qdelay_mean_ms:.0f}" for one in both),
        *(f"{one.qdelay_p95_ms:.0f}" for one in both),
        "near" if pair.near else "",
    ]


def _tables(results: Results) -> dict[str, list[list[str]]]:
    by_label = itertools.groupby(pairs(results), key=lambda pair: pair.label)
    return {label: [_cells(pair) for pair in own] for label, own in by_label}


EXPERIMENT = side_by_side.experiment(
    name="peers",
    source=SOURCE,
    prepare=prepare,
    checks=checks,
    tables=_tables,
    headings=_HEADINGS,
    apart="sender",
    title="Verus: other senders behind two emulators",
    lead=lambda _: "The same senders, traces and queues behind our emulator and behind Mahimahi's.",
    targets=("sender", "Traces"),
)
