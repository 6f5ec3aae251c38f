"""Our senders beside Linux's: the simulator, and Linux's own TCP on virtual time, over the same paths.

Cubic, NewReno, Vegas and BBR version 1, each in the simulator and in Linux, in a guest kernel
(`verus virtual build`). Both sides repeat to the last digit. Each cell is one channel, one queue and
a number of flows that begin together; the means of the same seeds are compared.

Causes of differences are looked for by experiment: the simulator runs each cell also with one thing
changed (`VARIANTS`). The first change that brings a cell within reach is its cause.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
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


def _with_seed(scenario: Scenario, more: int) -> Mapping[str, Any]:
    return {"seed": scenario["seed"] + more}


#: Changes of the simulated side, by what tables call them: fields of the scenario.
VARIANTS: Mapping[str, Callable[[Scenario], Mapping[str, Any]]] = {
    "": lambda _: {},
    # RED drops by chance: a cell is not nearer to itself with another seed.
    **{f"chance {number}": functools.partial(_with_seed, more=100 * number) for number in range(1, 5)},
    # Linux's receiver acknowledges each packet also where data behind a gap come, and after a pause.
    "each ACKed": lambda _: {"ack_every": 1},
    # Vegas rests at any queue between 2 and 4 packets.
    "band": lambda scenario: {
        "flows": [{**flow, "scheme": "vegas:alpha_packets=3,beta_packets=3"} for flow in scenario["flows"]]
    },
    # Which flow's packet meets a full queue is a matter of milliseconds.
    "order": lambda scenario: {
        "flows": [{**flow, "start_s": 0.01 * index} for index, flow in enumerate(scenario["flows"])]
    },
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
                ours += _varied(run)
    return linux, ours


def _varied(run: Run) -> list[Run]:
    """The run, and again with each of the changes that its channel, queue and sender know."""
    scenario = run.scenario
    applies = {
        "chance": scenario["queue"].startswith("red"),
        "band": run.contestant.scheme == "vegas",
        "order": len(scenario["flows"]) > 1,
    }
    return [
        replace(run, scenario=cast("Scenario", {**scenario, **change(scenario)}), part=run.part + variant)
        for variant, change in VARIANTS.items()
        if applies.get(variant.partition(" ")[0], True)
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
        return collect(linux, ours, jobs=options.jobs, progress=progress, settings=settings)

    return work


def collect(
    linux: Sequence[Run], ours: Sequence[Run], *, jobs: int, progress: Progress | None, settings: Mapping[str, Any]
) -> Results:
    """Runs both sides, Linux's on virtual time; `settings` name the experiment."""
    models = runner.run_all(ours)
    outcomes = emulation.run_all(linux, jobs=jobs, progress=progress, virtual=True)
    kind = settings["experiment"]
    return Results.collect([*linux, *ours], [*outcomes, *models], kind=kind, settings=settings)


# --- measured -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Side:
    """Means over the seeds of one cell: goodput with headers in Mbit/s, mean queueing delay in ms, share of loss."""

    goodput_mbps: float
    qdelay_ms: float
    loss: float

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], *, headers: float = 1.0) -> Side:
        """From rows of results; `headers` is what a byte of data takes on the link."""
        return cls(
            goodput_mbps=fmean(row["goodput_mbps"] for row in rows) * headers,
            qdelay_ms=fmean(row["qdelay_mean_ms"] for row in rows),
            loss=fmean(row["loss_rate"] for row in rows),
        )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One channel, queue, number of flows and sender, both ways."""

    channel: str
    queue: str
    flows: int
    sender: str
    linux: Side
    ours: Side
    varied: Mapping[str, Side]

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
        return f"{self.channel}, {self.queue}, {self.flows} × {self.sender}"

    @property
    def near(self) -> bool:
        """Whether both are within reach."""
        return abs(self.goodput - 1) <= GOODPUT and abs(self.delay - 1) <= DELAY

    def _ratios(self, other: Cell) -> list[tuple[float, float]]:
        return [(self.goodput, other.goodput), (self.delay, other.delay)]

    @property
    def verdict(self) -> str:
        """`near`, the first change of the simulated side that makes it so, or `open`.

        `some ACKed`: both of Linux's values are between ours with every second packet acknowledged and with each, and
        its receiver does both.
        """
        if self.near:
            return "near"
        changed = replace(self, ours=self.varied["each ACKed"])
        if not changed.near and all((one - 1) * (other - 1) < 0 for one, other in self._ratios(changed)):
            return "some ACKed"
        return next((name for name, side in self.varied.items() if replace(self, ours=side).near), "open").rstrip(
            " 1234"
        )


def cells(results: Results) -> list[Cell]:
    """Every cell, in the order of running."""
    measured: dict[tuple[str, ...], dict[str, list[Mapping[str, Any]]]] = {}
    for row in results.rows.to_pylist():
        *place, variant = row["part"].split("|")
        side = "Linux" if row["label"].startswith("Linux ") else variant
        measured.setdefault((row["trace"], *place), {}).setdefault(side, []).append(row)
    return [
        Cell(
            channel=channel,
            queue=queue,
            flows=int(flows),
            sender=sender,
            linux=Side.of(sides["Linux"], headers=PACKET_BYTES / DATA_BYTES),
            ours=Side.of(sides[""]),
            varied={name: Side.of(own) for name, own in sides.items() if name not in ("Linux", "")},
        )
        for (channel, queue, flows, sender), sides in measured.items()
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
        cell.queue,
        str(cell.flows),
        cell.sender,
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
