"""Equilibria at a constant rate: formulas of `docs/equilibrium.md` against the simulator."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, cast

import numpy as np
from rich.console import RenderableType

from verus.lab.results import Results
from verus.lab.runner import Outcome, Progress, run_all
from verus.lab.scenario import Contestant, Run, make_run
from verus.lab.schema import Scenario
from verus.papers.experiment import Experiment, Options, Work
from verus.papers.reproduction import Array
from verus.papers.target import Check, table, verdict
from verus.report.grid import Cell, Grid, paragraphs
from verus.report.page import Page, Section
from verus.report.wanted import Wanted

NAME = "equilibrium"
TITLE = "Equilibria of Verus and forward: formulas beside the simulator"
SOURCE = "docs/equilibrium.md, which derives each formula"

#: ε, δ₁ and δ₂, ms: the paper's (§5.3).
EPOCH_MS, DECREMENT_MS, INCREMENT_MS = 5.0, 1.0, 2.0
#: Delay of the control loop beyond the round trip, in epochs. Half an epoch is the wait for an
#: epoch's end, half the time in which its budget is sent; Eq. 2's average with α = 0.2 adds the
#: rest, rounded to halves.
LAG_EPOCHS = 1.5
#: Simulated seconds, and those at the beginning that are left out.
DURATION_S, LEFT_OUT_S = 100.0, 40.0
PACKET_BITS = 12e3
#: Columns of the time series that the formulas are compared with.
SERIES = ("time_s", "delay_estimate_ms", "delay_max_ms")

#: Verus as in the paper, except that W_i of Eq. 5 is the packets in flight.
IN_FLIGHT = "verus:mode=paper,window_reference=in_flight"
PAPER = "verus:mode=paper"


# --- the formulas --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cycle:
    """The cycle of Verus's delay around R · D_min, where the packets in flight follow the window.

    Attributes:
        bottom: Its least delay, of R · D_min.
        top: Its largest.
        mean: Its mean.
        growth: The factor by which a difference in the least delay grows from one cycle to the next.
    """

    bottom: float
    top: float
    mean: float
    growth: float


def cycle(limit_ms: float, lag_ms: float = LAG_EPOCHS * EPOCH_MS) -> Cycle:
    """The cycle for a limit R · D_min.

    Example:
        >>> law = cycle(1.0, lag_ms=0.0)
        >>> [round(value, 3) for value in (law.bottom, law.top, law.mean, law.growth)]
        [0.686, 1.076, 0.887, -2.352]
    """
    rise, fall, lag = INCREMENT_MS / EPOCH_MS, DECREMENT_MS / EPOCH_MS, lag_ms / limit_ms

    def round_of(bottom: float) -> tuple[list[float], list[float]]:
        """Delays at the corners of one cycle that begins at `bottom`, and the times between them."""
        first = bottom + rise * (bottom + lag)
        valley = first - fall * (first + lag)
        top = valley + rise * (valley + lag)
        until_seen = (1 - valley) / rise + 1 - valley
        at_seen = top - fall * until_seen
        above = valley + lag + (top - 1) / fall - (1 - valley) / rise
        corners = [bottom, first, valley, top, at_seen, at_seen - rise * above]
        return corners, [bottom + lag, first + lag, valley + lag, until_seen, above]

    # The next bottom is linear in this one.
    at_0, at_1 = round_of(0.0)[0][-1], round_of(1.0)[0][-1]
    bottom = at_0 / (1 - (at_1 - at_0))
    corners, times = round_of(bottom)
    area = sum((a + b) / 2 * time for a, b, time in zip(corners[:-1], corners[1:], times, strict=True))
    return Cycle(bottom=bottom, top=corners[3], mean=area / sum(times), growth=at_1 - at_0)


def paper_period(round_trip_ms: float, lag_ms: float = LAG_EPOCHS * EPOCH_MS) -> float:
    """The period of paper mode's cycle below R · D_min, in round trips: where the loop's phase is -π.

    Example:
        >>> round(paper_period(1.0, lag_ms=0.0), 2)
        2.7
    """

    def phase(y: float) -> float:
        loop_phase = math.atan(y) - math.atan2(y - math.sin(y), math.cos(y))
        return loop_phase - y * (1 + lag_ms / round_trip_ms) + math.pi

    low, high = 1.0, 3.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if phase(middle) > 0 else (low, middle)
    return 2 * math.pi / low


def steady_queue_ms(mbps: float, budget_ms: float = 90.0) -> float:
    """`forward`'s s: the target queue of a flow with this rate.

    Example:
        >>> [round(steady_queue_ms(mbps), 9) for mbps in (10.0, 80.0)]
        [26.0, 13.0]
    """
    return 13 / 45 * budget_ms * float(np.cbrt(10 / mbps))


# --- runs, and observations of them ---------------------------------------------------------------


@dataclass(frozen=True)
class Observation:
    """A run after its first seconds.

    Attributes:
        mbps: The link's rate.
        round_trip_ms: Mean over all packets.
        low_ms: Its 5th percentile.
        high_ms: Its 95th percentile.
        queue_ms: The same of the queueing delay.
        shares: Of the rate, for each flow.
        series: Of the first flow, by the name that the controller gives it.
    """

    mbps: float
    round_trip_ms: float
    low_ms: float
    high_ms: float
    queue_ms: float
    shares: Array
    series: Mapping[str, Array]

    def rising(self) -> float:
        """The share of epochs in which D_est rises."""
        return float(np.mean(np.diff(self.series["delay_estimate_ms"]) > 0))

    def strongest_period_ms(self) -> float:
        """The period of the strongest oscillation of D_max that is shorter than ten round trips."""
        delay, step_s = self.series["delay_max_ms"], EPOCH_MS / 1e3
        power = np.abs(np.fft.rfft((delay - delay.mean()) * np.hanning(len(delay)))) ** 2
        frequency = np.fft.rfftfreq(len(delay), step_s)
        power[frequency < 1e3 / (10 * self.round_trip_ms)] = 0
        return float(1e3 / frequency[np.argmax(power)])


def _sender_text(scheme: str) -> str:
    """A sender in few words.

    Example:
        >>> schemes = ("verus:mode=paper,window_reference=in_flight,ratio=4", "verus", "forward")
        >>> tuple(map(_sender_text, schemes))
        ('in flight, R = 4', 'default, R = 2', 'forward')
    """
    name, _, settings = scheme.partition(":")
    keys = dict(setting.split("=") for setting in settings.split(",") if setting)
    if name == "forward":
        return f"forward, {keys['budget_ms']} ms" if keys else name
    mode = "in flight" if "window_reference" in keys else keys.get("mode", "default")
    return f"{mode}, R = {keys.get('ratio', 2)}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A formula on one path.

    Attributes:
        of: Name of the formula.
        senders: A scheme for each flow.
        mbps: The link's rate.
        rtts_ms: Round trip of each flow without a queue.
        formula: The formula's value, computed from the run if the formula depends on a measured quantity.
        value: The same quantity in the simulator.
        within: How far the simulator may be from the formula, as a share.
        unit: Unit of both values.
        starts_s: When each flow starts.
        buffer_ms: Size of the buffer; 40 bandwidth-delay products if None.
    """

    of: str
    senders: Sequence[str]
    mbps: float
    rtts_ms: Sequence[float]
    formula: Callable[[Observation], float]
    value: Callable[[Observation], float]
    within: float
    unit: str = ""
    starts_s: Sequence[float] = ()
    buffer_ms: float | None = None

    @property
    def path(self) -> str:
        """The path in words."""
        trips = list(dict.fromkeys(self.rtts_ms))
        more = f", a buffer of {self.buffer_ms:g} ms" if self.buffer_ms else ""
        more += f", from {self.starts_s[-1]:g} s on" if self.starts_s else ""
        return f"{self.mbps:g} Mbit/s, {', '.join(f'{trip:g}' for trip in trips)} ms{more}"

    @property
    def flows_text(self) -> str:
        """The flows in words."""
        kinds = list(dict.fromkeys(map(_sender_text, self.senders)))
        flows = f"{len(self.senders)} × " if len(self.senders) > 1 and len(kinds) == 1 else ""
        return flows + " and ".join(kinds)

    def run(self, seed: int) -> Run:
        """The simulation. A buffer of 40 bandwidth-delay products loses nothing after slow start."""
        buffer_ms = self.buffer_ms or 40 * max(self.rtts_ms)
        queue_bytes = round(self.mbps * 1e6 / 8 * buffer_ms / 1e3)
        made = make_run(
            trace=f"rate:{self.mbps:g}",
            path=None,
            queue=f"droptail:bytes={queue_bytes}",
            contestant=dataclasses.replace(Contestant.from_scheme(self.senders[0]), flows=tuple(self.senders)),
            seed=seed,
            duration_s=DURATION_S,
            part=f"{self.of}|{self.path}",
        )
        starts = self.starts_s or [0.0] * len(self.senders)
        flows = [
            {"scheme": scheme, "start_s": start, "stop_s": None, "delay_ms": trip / 2}
            for scheme, start, trip in zip(self.senders, starts, self.rtts_ms, strict=True)
        ]
        settings = {"flows": flows, "records": True, "bin_ms": EPOCH_MS}
        return dataclasses.replace(made, scenario=cast("Scenario", {**made.scenario, **settings}))

    def observed(self, outcome: Outcome) -> Observation:
        """The run after its first seconds."""
        records, series = outcome["records"], outcome["series"]
        counted = (records["sent_ms"] > 1e3 * LEFT_OUT_S) & np.isfinite(records["acked_ms"])
        flow = records["flow"][counted]
        trip_ms = (records["acked_ms"] - records["sent_ms"])[counted]
        sizes = np.bincount(flow, minlength=len(self.senders))
        late = (series["flow"] == 0) & (series["time_s"] > LEFT_OUT_S)
        return Observation(
            mbps=self.mbps,
            round_trip_ms=float(trip_ms.mean()),
            low_ms=float(np.percentile(trip_ms, 5)),
            high_ms=float(np.percentile(trip_ms, 95)),
            queue_ms=float((trip_ms - np.asarray(self.rtts_ms)[flow]).mean() - PACKET_BITS / (self.mbps * 1e3)),
            shares=sizes / sizes.sum(),
            series={name: series[name][late] for name in SERIES if name in series},
        )


def _verus_rows() -> list[Row]:
    rows: list[Row] = []
    for ratio, mbps, trip in ((2, 20, 40), (2, 50, 100), (4, 20, 40), (4, 50, 100)):
        limit = ratio * trip
        law = cycle(limit)
        common: dict[str, Any] = {
            "senders": [f"{IN_FLIGHT},ratio={ratio}"],
            "mbps": mbps,
            "rtts_ms": [trip],
        }
        rows += [
            Row(
                of=of,
                formula=lambda _, says=says * limit: says,  # type: ignore[misc]
                value=value,
                within=within,
                unit="ms",
                **common,
            )
            for of, says, value, within in (
                ("1 mean", law.mean, attrgetter("round_trip_ms"), 0.05),
                ("1 bottom", law.bottom, attrgetter("low_ms"), 0.1),
                ("1 top", law.top, attrgetter("high_ms"), 0.1),
            )
        ]
    for flows in (2, 8):
        rows.append(
            Row(
                of="2 mean, n flows",
                senders=[f"{IN_FLIGHT},ratio=4"] * flows,
                mbps=50,
                rtts_ms=[40] * flows,
                formula=lambda _: cycle(160).mean * 160,
                value=attrgetter("round_trip_ms"),
                within=0.05,
                unit="ms",
            )
        )
    rows += [
        Row(
            of="3 share",
            senders=senders,
            mbps=20,
            rtts_ms=trips,
            starts_s=starts,
            formula=lambda _: 1.0,
            value=lambda observation: float(observation.shares[1]),
            within=0.15,
        )
        for senders, trips, starts in (
            ([PAPER, f"{PAPER},ratio=3"], [40, 40], ()),
            (["verus", "verus:ratio=3"], [40, 40], ()),
            ([PAPER, PAPER], [20, 100], ()),
            (["verus", "verus"], [20, 100], ()),
            (["verus:ratio=4", "verus:ratio=4"], [40, 40], (0.0, 10.0)),
        )
    ]
    for ratio, mbps, trip in ((6, 50, 40), (6, 50, 100), (6, 100, 20)):
        common = {"senders": [f"{PAPER},ratio={ratio}"], "mbps": mbps, "rtts_ms": [trip]}
        rows += [
            Row(
                of="4 rising",
                formula=lambda _: DECREMENT_MS / (DECREMENT_MS + INCREMENT_MS),
                value=Observation.rising,
                within=0.03,
                **common,
            ),
            Row(
                of="4 period",
                formula=lambda observation: paper_period(observation.round_trip_ms) * observation.round_trip_ms,
                value=Observation.strongest_period_ms,
                within=0.15,
                unit="ms",
                **common,
            ),
        ]
    rows += [
        Row(
            of="5 mean",
            senders=[f"verus:ratio={ratio}"] * flows,
            mbps=mbps,
            rtts_ms=[trip] * flows,
            formula=lambda _, limit=ratio * trip: cycle(limit).mean * limit,  # type: ignore[misc]
            value=attrgetter("round_trip_ms"),
            within=0.05,
            unit="ms",
        )
        for ratio, mbps, trip, flows in ((2, 20, 40, 1), (2, 50, 100, 1), (4, 50, 40, 1), (4, 50, 40, 8))
    ]
    return rows


def _forward_rows() -> list[Row]:
    rows = [
        Row(
            of="6 queue",
            senders=["forward"] * flows,
            mbps=mbps,
            rtts_ms=[trip] * flows,
            formula=lambda _, own=mbps / flows: steady_queue_ms(own),  # type: ignore[misc]
            value=attrgetter("queue_ms"),
            within=0.15,
            unit="ms",
        )
        for mbps, trip, flows in (
            (5, 50, 1),
            (20, 20, 1),
            (20, 100, 1),
            (50, 50, 1),
            (100, 100, 1),
            (50, 40, 2),
            (50, 40, 8),
        )
    ]
    rows += [
        Row(
            of="7 share",
            senders=["forward"] * 3,
            mbps=50,
            rtts_ms=[20, 50, 100],
            formula=lambda _: 1 / 3,
            value=lambda observation: float(observation.shares.max()),
            within=0.15,
        ),
        *(
            Row(
                of="8 queue",
                senders=["forward"],
                mbps=mbps,
                rtts_ms=[trip],
                buffer_ms=buffer_ms,
                formula=lambda _, most=buffer_ms: 0.75 * most,  # type: ignore[misc]
                value=attrgetter("queue_ms"),
                within=0.15,
                unit="ms",
            )
            for mbps, trip, buffer_ms in ((20, 40, 10), (100, 10, 4), (1000, 10, 2))
        ),
        *(
            Row(
                of="9 rates",
                senders=["forward", f"forward:budget_ms={90 * times:g}"],
                mbps=50,
                rtts_ms=[40, 40],
                formula=lambda _, times=times: times**3,  # type: ignore[misc]
                value=lambda observation: float(observation.shares[1] / observation.shares[0]),
                within=0.2,
            )
            for times in (1.1, 1.5, 2)
        ),
    ]
    return rows


def rows() -> list[Row]:
    """Every formula on every path."""
    return [*_verus_rows(), *_forward_rows()]


# --- the experiment ------------------------------------------------------------------------------


def prepare(options: Options) -> Work:
    """Nothing is needed: rates are constant."""

    def work(progress: Progress | None) -> Results:
        del progress  # it takes seconds
        looked_at: dict[str, tuple[Run, list[Row]]] = {}
        for row in rows():
            run = row.run(options.seed)
            looked_at.setdefault(run.to_json(), (run, []))[1].append(row)
        measured = []
        # One run after another: each keeps a record of every packet.
        for run, looks in looked_at.values():
            (outcome,) = run_all([run])
            for row in looks:
                observation = row.observed(outcome)
                measured.append(
                    {
                        "of": row.of,
                        "sender": row.flows_text,
                        "path": row.path,
                        "formula": row.formula(observation),
                        "simulated": row.value(observation),
                        "within": row.within,
                        "unit": row.unit,
                    }
                )
        measured.sort(key=lambda row: str(row["of"]))
        settings = {"experiment": NAME, "seed": options.seed}
        return Results.collect([], [], kind=NAME, settings=settings, measured=measured)

    return work


def checks(results: Results) -> list[Check]:
    """Every row: the simulator's value over the formula's."""
    return [
        Check(
            name=f"{row['of']}: {row['sender']}, {row['path']}",
            value=row["simulated"] / row["formula"],
            wanted=Wanted(1 - row["within"], 1 + row["within"]),
        )
        for row in results.config["measured"]
    ]


def _grid(results: Results) -> Grid:
    lines = []
    for row, check in zip(results.config["measured"], checks(results), strict=True):
        unit = f" {row['unit']}" if row["unit"] else ""
        digits = ".1f" if unit else ".2f"
        ratio = f"{check.value:.2f}"
        lines.append(
            [
                row["of"],
                row["sender"],
                row["path"],
                f"{row['formula']:{digits}}{unit}",
                f"{row['simulated']:{digits}}{unit}",
                ratio if check.met else Cell(ratio, "missed"),
            ]
        )
    return Grid(heads=["formula", "sender", "path", "says", "simulated", "ratio"], rows=lines, title=TITLE)


def summary(results: Results) -> Sequence[RenderableType]:
    """For a terminal: the table and the verdict."""
    return [_grid(results).terminal(), "\n".join(verdict(checks(results)))]


def page(results: Results) -> Page:
    """The table, and every target."""
    checked = checks(results)
    return Page(
        title=f"Verus: {TITLE}",
        lead="What the laws of Verus and forward settle at on a constant rate, derived and simulated.",
        sections=[
            Section(title="Side by side", body=paragraphs(verdict(checked)) + _grid(results).html()),
            Section(title="Targets", body=table(checked, "formula", "simulated over formula")),
        ],
    )


def files(results: Results) -> Mapping[str, str]:
    """The table as a document."""
    return {f"{NAME}.md": "\n".join([*_grid(results).markdown(), ""])}


EXPERIMENT = Experiment(
    name=NAME, title=TITLE, source=SOURCE, prepare=prepare, checks=checks, page=page, summary=summary, files=files
)
