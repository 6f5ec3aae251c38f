"""Our senders beside Linux's: the simulator, and Linux's own TCP on virtual time, over the same paths.

Cubic, NewReno, Vegas and BBR version 1, each in the simulator and in Linux, in a guest kernel
(`verus virtual build`). Both sides repeat to the last digit. Each cell is one channel, one queue and
a number of flows that begin together; the means of the same seeds are compared.

Causes of differences are looked for by experiment: the simulator runs each cell also with one thing
changed (`VARIANTS`). The first change that brings a cell within reach is its cause. Where none does,
Linux runs again: with a receive buffer that never limits its sender, and from other starts.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, cast

from verus.endpoints import emulation
from verus.lab import runner
from verus.lab.results import Results
from verus.lab.runner import Progress
from verus.lab.scenario import LINUX_SCHEMES, PAPER_QUEUE, Contestant, Run, make_run
from verus.lab.schema import Scenario
from verus.papers.experiment import Options, Work
from verus.papers.own import side_by_side
from verus.papers.own.agreement import TRACES
from verus.papers.recordings import MissingRecordings, find_recordings
from verus.papers.target import Check
from verus.report.wanted import Wanted

SOURCE = "Linux's own TCP, in a guest kernel on virtual time"

#: Constant rates, Mbit/s.
RATES = (1, 12, 50)
FLOWS = (1, 2, 10)
DURATION_S = 30.0
#: Rates and length of the short form, which takes minutes in place of hours.
SHORT_RATES = (1, 4)
SHORT_S = 20.0
#: The simulator's ends as Linux's: flows have connected when the link begins, and the receiver acknowledges 16 packets
#: one by one, then every second.
ENDS: Mapping[str, Any] = {"handshake": True, "ack_every": 2, "quick_acks": 16}
#: Linux's first packet leaves less than a microsecond after the link begins, and its answers to acknowledgements 3 to 9
#: µs after these. So none takes an opportunity of the same instant, as simulated packets would.
START_S = 1e-6
DELAY_MS = 20.003
#: Other starts, which show how much an outcome varies by chance: another seed, and the flows begin this much later.
STARTS = 4
LATER_S = 0.003
#: A receive buffer that never limits Linux's sender, bytes. Its kernel's own grows only while data come without a gap.
BUFFER_BYTES = 64_000_000


def _later(scenario: Scenario, start: int) -> Mapping[str, Any]:
    flows = [{**flow, "start_s": flow["start_s"] + LATER_S * start} for flow in scenario["flows"]]
    return {"seed": scenario["seed"] + start, "flows": flows}


def _with_schemes(scenario: Scenario, settings: str) -> Mapping[str, Any]:
    return {"flows": [{**flow, "scheme": flow["scheme"] + settings} for flow in scenario["flows"]]}


#: Other starts of either side, by what tables call them.
_STARTS: Mapping[str, Callable[[Scenario], Mapping[str, Any]]] = {
    f"chance {start}": functools.partial(_later, start=start) for start in range(1, STARTS + 1)
}
#: Changes of the simulated side: fields of the scenario.
VARIANTS: Mapping[str, Callable[[Scenario], Mapping[str, Any]]] = {
    "": lambda _: {},
    # Linux's receiver also acknowledges single packets in other cases.
    "each ACKed": lambda _: {"ack_every": 1},
    # Vegas rests at any queue between 2 and 4 packets.
    "band": functools.partial(_with_schemes, settings=":alpha_packets=3,beta_packets=3"),
    # Which flow's packet meets a full queue is a matter of milliseconds.
    "order": lambda scenario: {
        "flows": [{**flow, "start_s": flow["start_s"] + 0.01 * index} for index, flow in enumerate(scenario["flows"])]
    },
    **_STARTS,
}
#: Changes of Linux's side, for cells that no change of ours explains.
LINUX_VARIANTS: Mapping[str, Callable[[Scenario], Mapping[str, Any]]] = {
    "window": functools.partial(_with_schemes, settings=f",rcvbuf={BUFFER_BYTES}"),
    **_STARTS,
}

#: Largest relative differences of goodput and of mean queueing delay.
GOODPUT, DELAY = 0.03, 0.10

#: Bytes of a packet, and of the data in it: IPv4, TCP and its timestamps take 52.
PACKET_BYTES, DATA_BYTES = 1500, 1448


@dataclass(frozen=True, kw_only=True)
class Place:
    """A channel with its queues.

    Attributes:
        label: Its name in tables.
        channel: As the simulator takes it.
        queues: Its queues, by what tables call them.
    """

    label: str
    channel: str
    queues: Mapping[str, str]

    @classmethod
    def of_rate(cls, mbps: float) -> Place:
        """A constant rate: drop-tail of 100 ms, or RED between 50 and 150 ms."""
        a_ms = round(mbps * 1e3 / 8)
        red = f"red:min={50 * a_ms},max={150 * a_ms},p=0.1"
        queues = {"drop-tail": f"droptail:bytes={100 * a_ms}", "RED": red}
        return cls(label=f"{mbps:g} Mbit/s", channel=f"rate:{mbps:g}", queues=queues)

    @classmethod
    def of_recording(cls, label: str, path: str) -> Place:
        """A recording: drop-tail of 375 kB, or the paper's RED."""
        return cls(label=label, channel=path, queues={"drop-tail": "droptail:bytes=375000", "RED": PAPER_QUEUE})


def runs(
    places: Sequence[Place], *, seed: int, repeat: int, duration_s: float = DURATION_S, flows: Sequence[int] = FLOWS
) -> tuple[list[Run], list[Run]]:
    """Runs with Linux's senders and runs with ours, in the same order of cells."""
    linux: list[Run] = []
    ours: list[Run] = []
    for place, queue, count, name, number in itertools.product(
        places, ("drop-tail", "RED"), flows, LINUX_SCHEMES, range(seed, seed + repeat)
    ):
        for scheme, ends in ((f"linux:cc={name}", {}), (LINUX_SCHEMES[name], ENDS)):
            run = make_run(
                trace=place.label,
                path=place.channel,
                queue=place.queues[queue],
                contestant=replace(Contestant.from_scheme(scheme), flows=(scheme,) * count),
                part=f"{queue}|{count}|{name}|",
                seed=number,
                duration_s=duration_s,
                packet_bytes=PACKET_BYTES,
                **ends,
            )
            if scheme.startswith("linux"):
                linux.append(run)
            else:
                started = [{**flow, "start_s": START_S} for flow in run.scenario["flows"]]
                scenario = cast("Scenario", {**run.scenario, "flows": started, "delay_ms": DELAY_MS})
                ours += _changed(replace(run, scenario=scenario), VARIANTS)
    return linux, ours


def _changed(run: Run, variants: Mapping[str, Callable[[Scenario], Mapping[str, Any]]]) -> list[Run]:
    """The run with each of the changes that its sender and its number of flows know."""
    scenario = run.scenario
    applies = {"band": run.contestant.scheme == "vegas", "order": len(scenario["flows"]) > 1}
    return [
        replace(run, scenario=cast("Scenario", {**scenario, **change(scenario)}), part=run.part + variant)
        for variant, change in variants.items()
        if applies.get(variant, True)
    ]


def prepare(options: Options) -> Work:
    """Finds the recordings, if there are any; the work is the runs."""
    places = [Place.of_rate(rate) for rate in (SHORT_RATES if options.short else RATES)]
    if not (options.built_in or options.short):
        try:
            paths = find_recordings(TRACES, options.traces)
        except MissingRecordings:
            if not options.lenient:
                raise
        else:
            places += [Place.of_recording(TRACES[name], path) for name, path in paths.items()]
    repeat = options.repeat or 1
    duration_s = SHORT_S if options.short else DURATION_S
    linux, ours = runs(places, seed=options.seed, repeat=repeat, duration_s=duration_s)
    settings = {"experiment": "linux", "seed": options.seed, "repeat": repeat, "duration_s": duration_s}

    def work(progress: Progress | None) -> Results:
        models = runner.run_all(ours)
        run_linux = functools.partial(emulation.run_all, jobs=options.jobs, progress=progress, virtual=True)
        outcomes = run_linux(linux)
        first = _results([*linux, *ours], [*outcomes, *models], settings)
        outside = {(cell.channel, cell.part) for cell in cells(first) if cell.verdict == OPEN}
        again = [
            changed for run in linux if (run.trace, run.part) in outside for changed in _changed(run, LINUX_VARIANTS)
        ]
        return _results([*linux, *again, *ours], [*outcomes, *run_linux(again), *models], settings)

    return work


def collect(
    linux: Sequence[Run], ours: Sequence[Run], *, jobs: int, progress: Progress | None, settings: Mapping[str, Any]
) -> Results:
    """Runs both sides, Linux's on virtual time; `settings` name the experiment."""
    models = runner.run_all(ours)
    outcomes = emulation.run_all(linux, jobs=jobs, progress=progress, virtual=True)
    return _results([*linux, *ours], [*outcomes, *models], settings)


def _results(runs: Sequence[Run], outcomes: Sequence[runner.Outcome], settings: Mapping[str, Any]) -> Results:
    return Results.collect(runs, outcomes, kind=settings["experiment"], settings=settings)


# --- measured -----------------------------------------------------------------------------------


#: The verdict on a cell that nothing explains.
OPEN = "open"


@dataclass(frozen=True, kw_only=True)
class Side:
    """Means over the seeds of one cell: goodput with headers and throughput in Mbit/s, mean queueing delay in ms, loss.

    Goodput is of data that the receiver's program has read.
    """

    goodput_mbps: float
    throughput_mbps: float
    qdelay_ms: float
    loss: float

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], *, headers: float = 1.0) -> Side:
        """From rows of results; `headers` is what a byte of data takes on the link."""
        return cls(
            goodput_mbps=fmean(row["goodput_mbps"] for row in rows) * headers,
            throughput_mbps=fmean(row["throughput_mbps"] for row in rows),
            qdelay_ms=fmean(row["qdelay_mean_ms"] for row in rows),
            loss=fmean(row["loss_rate"] for row in rows),
        )

    def is_near(self, linux: Side) -> bool:
        """Whether goodput and delay are within reach of Linux's."""
        return (
            abs(self.goodput_mbps / linux.goodput_mbps - 1) <= GOODPUT
            and abs(self.qdelay_ms / linux.qdelay_ms - 1) <= DELAY
        )

    @property
    def arrived(self) -> Side:
        """The same, if all data that crossed the link had been read."""
        return replace(self, goodput_mbps=self.throughput_mbps)


def _overlap(ours: Sequence[float], linux: Sequence[float], reach: float) -> bool:
    """Whether the ranges of two sets of values overlap, or are within reach."""
    return min(ours) <= max(linux) * (1 + reach) and max(ours) >= min(linux) * (1 - reach)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One channel, queue, number of flows and sender, both ways: each side, by the name of its change."""

    channel: str
    part: str
    linuxes: Mapping[str, Side]
    simulated: Mapping[str, Side]

    @property
    def linux(self) -> Side:
        """Linux's, unchanged."""
        return self.linuxes[""]

    @property
    def ours(self) -> Side:
        """Ours, unchanged."""
        return self.simulated[""]

    @property
    def place(self) -> tuple[str, str, str]:
        """Queue, number of flows and sender."""
        queue, flows, sender, _ = self.part.split("|")
        return queue, flows, sender

    @property
    def goodput(self) -> float:
        """Ours over Linux's."""
        return self.ours.goodput_mbps / self.linux.goodput_mbps

    @property
    def delay(self) -> float:
        """Likewise of mean queueing delays."""
        return self.ours.qdelay_ms / self.linux.qdelay_ms

    @property
    def name(self) -> str:
        """As checks call it."""
        queue, flows, sender = self.place
        return f"{self.channel}, {queue}, {flows} × {sender}"

    @property
    def verdict(self) -> str:
        """`near`, the first change of a side that makes it so, or `open`."""
        return next((verdict for verdict, explains in self._experiments() if explains), OPEN)

    def _experiments(self) -> Iterator[tuple[str, bool]]:
        """Verdicts, and whether each holds, the plainest first."""
        yield "near", self.ours.is_near(self.linux)
        yield "unread", self.ours.arrived.is_near(self.linux.arrived)
        each = self.simulated["each ACKed"]
        yield "some ACKed", not each.is_near(self.linux) and self._is_between(self.ours, each)
        for change in VARIANTS:
            if change and change not in _STARTS and change in self.simulated:
                yield change, self.simulated[change].is_near(self.linux)
        # A window that does not limit lets more data arrive behind gaps.
        if "window" in self.linuxes:
            yield "window", self.ours.arrived.is_near(self.linuxes["window"].arrived)
        yield "chance", self._overlaps()

    def _is_between(self, one: Side, other: Side) -> bool:
        """Whether both of Linux's values are between ours of two runs."""
        linux = self.linux
        return (one.goodput_mbps - linux.goodput_mbps) * (other.goodput_mbps - linux.goodput_mbps) < 0 and (
            one.qdelay_ms - linux.qdelay_ms
        ) * (other.qdelay_ms - linux.qdelay_ms) < 0

    def _overlaps(self) -> bool:
        """Whether the ranges of both sides' values from all starts overlap, of data that arrived."""
        ours, linux = (
            [sides[start].arrived for start in ("", *_STARTS) if start in sides]
            for sides in (self.simulated, self.linuxes)
        )
        return _overlap(
            [side.goodput_mbps for side in ours], [side.goodput_mbps for side in linux], GOODPUT
        ) and _overlap([side.qdelay_ms for side in ours], [side.qdelay_ms for side in linux], DELAY)


def cells(results: Results) -> list[Cell]:
    """Every cell, in the order of running."""
    measured: dict[tuple[str, str], tuple[dict[str, list[Mapping[str, Any]]], ...]] = {}
    for row in results.rows.to_pylist():
        place, _, variant = row["part"].rpartition("|")
        sides = measured.setdefault((row["trace"], f"{place}|"), ({}, {}))
        sides[row["label"].startswith("Linux ")].setdefault(variant, []).append(row)
    return [
        Cell(
            channel=channel,
            part=part,
            linuxes={name: Side.of(rows, headers=PACKET_BYTES / DATA_BYTES) for name, rows in linux.items()},
            simulated={name: Side.of(rows) for name, rows in ours.items()},
        )
        for (channel, part), (ours, linux) in measured.items()
    ]


def checks(results: Results) -> list[Check]:
    """Goodput and mean queueing delay of every cell, ours over Linux's."""
    return [
        Check(name=f"{cell.name}: {what}, ours / Linux's", value=value, wanted=Wanted(1 - reach, 1 + reach))
        for cell in cells(results)
        for what, value, reach in (("goodput", cell.goodput, GOODPUT), ("mean queueing delay", cell.delay, DELAY))
    ]


# --- shown --------------------------------------------------------------------------------------

_HEADINGS = (
    "queue",
    "flows",
    "sender",
    "Mbit/s Linux",
    "ours",
    "ratio",
    "mean ms Linux",
    "ours",
    "ratio",
    "loss % Linux",
    "ours",
    "",
)


def _line(cell: Cell) -> list[str]:
    return [
        *cell.place,
        f"{cell.linux.goodput_mbps:.3f}",
        f"{cell.ours.goodput_mbps:.3f}",
        f"{cell.goodput:.3f}",
        f"{cell.linux.qdelay_ms:.1f}",
        f"{cell.ours.qdelay_ms:.1f}",
        f"{cell.delay:.3f}",
        f"{100 * cell.linux.loss:.2f}",
        f"{100 * cell.ours.loss:.2f}",
        cell.verdict,
    ]


def _tables(results: Results) -> dict[str, list[list[str]]]:
    by_channel = itertools.groupby(cells(results), key=lambda cell: cell.channel)
    return {channel: [_line(cell) for cell in own] for channel, own in by_channel}


EXPERIMENT = side_by_side.experiment(
    name="linux",
    source=SOURCE,
    prepare=prepare,
    checks=checks,
    tables=_tables,
    headings=_HEADINGS,
    apart="channel",
    title="Verus: our senders beside Linux's",
    lead=lambda results: (
        f"Flows that begin together, for {results.config['settings']['duration_s']:g} s, 20 ms each way: the simulator "
        "and Linux's TCP."
    ),
    targets=("cell", "Ratios"),
    short=True,
)
