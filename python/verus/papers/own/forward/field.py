"""Targets of `forward`: rows of runs, the values read from them, and bounds of these values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from verus import _verus
from verus.lab.runner import Outcome
from verus.lab.scenario import PAPER_QUEUE, Run
from verus.papers.published import listed
from verus.papers.reproduction import Column
from verus.suites.measures import MEASURES
from verus.suites.seen import Array, Seen

#: RED as the 2017 reproduction had it.
RED = "red:min=375000,max=1125000,p=0.1,preset=cs244"

#: Names that others ask for.
UPLOADS, OVER_CUBIC, P99_OVER_CUBIC = "ACKs wait for others' uploads", "over Cubic's", "p99 over Cubic's"

#: A value's least and most; None where it has no such bound.
Bounds = tuple[float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class Row:
    """Some runs, the values read from them together, and bounds of these values.

    Attributes:
        group: Group whose means summarize its rows.
        name: Name of the row within its group.
        runs: Simulations of the row.
        read: Computes the values from the outcomes, in the order of the runs.
        bounds: Bounds of values, by name; the row holds if all are kept.
    """

    group: str
    name: str
    runs: Sequence[Run]
    read: Callable[[Sequence[Seen]], Mapping[str, float]]
    bounds: Mapping[str, Bounds]


def seen(run: Run, outcome: Outcome) -> Seen:
    """A run as rows read it."""
    return Seen(scenario=run.scenario, outcome=outcome, options={})


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A recording, and reference values of one flow alone on it.

    Attributes:
        name: Full name: ``GROUP/NAME``.
        half: `tuned` if constants were chosen on it, `judged` if not. The halves were drawn before anything was tuned.
        verus: Utilization (per cent) and 95th percentile of queueing delay (ms) of an earlier Verus with R = 2.
        limit: The same for the causal limit, a sender that knows everything except the future; None if unknown.
    """

    name: str
    half: str
    verus: tuple[float, float]
    limit: tuple[float, float] | None

    @property
    def reachable(self) -> bool:
        """Whether 95 % within 100 ms are possible."""
        return self.limit is not None and self.limit[0] >= 95 and self.limit[1] <= 100


def recordings() -> list[Recording]:
    """All of them."""
    return [
        Recording(
            name=row["recording"],
            half=row["half"],
            verus=(float(row["verus_used_pct"]), float(row["verus_p95_ms"])),
            limit=(float(row["limit_used_pct"]), float(row["limit_p95_ms"])) if row["limit_p95_ms"] else None,
        )
        for row in listed("verus.papers.own.forward", "recordings.csv")
    ]


#: Channel of acknowledgements: the opposite recording where there is one, else 12 Mbit/s.
OPPOSITE = {
    "cs244-2017/ATT-LTE-driving-2016.down": "cs244-2017/ATT-LTE-driving-2016.up",
    "cs244-2017/TMobile-LTE-driving.down": "cs244-2017/TMobile-LTE-driving.up",
    "mahimahi/Verizon-LTE-short.down": "mahimahi/Verizon-LTE-short.up",
    "mahimahi/TMobile-UMTS-driving.down": "mahimahi/TMobile-UMTS-driving.up",
}
#: Where many flows share a link: recordings, and whether the link is fast enough that their delay is bounded.
SHARED = {
    "city 4 Mbit/s (judged)": ("cs244-2017/city_drive_2min", False),
    "highway 4 Mbit/s (tuned)": ("cs244-2017/highway_drive_2min", False),
    "T-Mobile 31 Mbit/s (tuned)": ("cs244-2017/TMobile-LTE-driving.down", True),
    "Verizon 4.8 Mbit/s (judged)": ("mahimahi/Verizon-LTE-short.down", False),
}


def named() -> list[str]:
    """Every recording that a row needs."""
    return [one.name for one in recordings()] + list(OPPOSITE.values()) + [name for name, _ in SHARED.values()]


@dataclass(frozen=True, kw_only=True)
class Field:
    """The sender under test, and how much is run.

    Attributes:
        scheme: The sender under test.
        column: Makes runs, and has the seeds.
        files: Where recordings lie, by name; rows on others are left out.
        folder: Where traces are written that have to be files.
        short: Fewer rows, of the tuned half.
    """

    scheme: str
    column: Column
    files: Mapping[str, str]
    folder: Path
    short: bool

    @property
    def seeds(self) -> range:
        """Of rows with chance in them."""
        return self.column.seeds(1 if self.short else 5)

    def run(self, trace: str, queue: str = RED, *, scheme: str = "", **fields: Any) -> Run:
        """One simulation, of the sender under test unless another is named."""
        return self.column.run(
            trace, scheme or self.scheme, queue=queue, part="forward", **{"duration_s": 30.0, **fields}
        )

    def rows(self) -> Iterator[Row]:
        """All questions."""
        for table in (_alone, _built_in, _crowds, _buffers, _marks, _company, _paths, _ways, _jitter, _files, _video):
            if not (self.short and table in (_built_in, _marks, _jitter, _files, _video)):
                yield from table(self)


# --- values read from a run -----------------------------------------------------------------------


def _of(measure: str, run: Seen, from_s: float, to_s: float, flow: int = 0) -> float:
    value = MEASURES[measure].of(replace(run, options={"from_s": from_s, "to_s": to_s, "flow": flow}))
    return float(value) if isinstance(value, int | float) else math.nan


def _used(run: Seen, from_s: float = 3.0, to_s: float = 30.0) -> float:
    return 100 * _of("utilization", run, from_s, to_s)


def _delay(run: Seen, from_s: float = 3.0, to_s: float = 30.0) -> float:
    return _of("queue_mean_ms", run, from_s, to_s)


def _lost(run: Seen) -> float:
    return 100 * float(run.metrics["loss_rate"] or 0.0)


def _mean(runs: Sequence[Seen], key: str) -> float:
    """The mean of a metric over whole runs; an unobserved value counts as 0."""
    return fmean(float(run.metrics[key] or 0.0) for run in runs)


def _rates(run: Seen, flows: int, from_s: float, to_s: float) -> list[float]:
    return [_of("throughput", run, from_s, to_s, flow) for flow in range(flows)]


def whole(runs: Sequence[Seen]) -> dict[str, float]:
    """One flow, all of each run."""
    return {
        "used %": 100 * _mean(runs, "utilization"),
        "mean ms": _mean(runs, "qdelay_mean_ms"),
        "p95 ms": _mean(runs, "qdelay_p95_ms"),
    }


def _over_seeds(
    read: Callable[[Sequence[Seen]], Mapping[str, float]], each: int, runs: Sequence[Seen]
) -> dict[str, float]:
    """Means over seeds of the values that `read` returns for the `each` runs of a seed."""
    by_seed = [read(runs[start : start + each]) for start in range(0, len(runs), each)]
    return {name: fmean(values[name] for values in by_seed) for name in by_seed[0]}


def shared(run: Seen, from_s: float, to_s: float) -> dict[str, float]:
    """Flows that share a link, from when all are there."""
    return {
        "used %": _used(run, from_s, to_s),
        "lost %": _lost(run),
        "Jain, 1 s": _of("jain_1s", run, from_s, to_s),
        "Jain": _of("jain", run, from_s, to_s),
        "delay ms": _delay(run, from_s, to_s),
    }


# --- one flow ------------------------------------------------------------------------------------

#: Where a recording is entered, s.
OFFSETS_S = (0, 20, 40)


@cache
def _seconds(path: str) -> int:
    """How long a recording is; to ask reads it whole."""
    return int(_verus.trace_info(path)["duration_s"])


def from_offset(field: Field, name: str, offset_s: int) -> str:
    """The recording from there on, then its beginning: the same loop, entered elsewhere."""
    path = field.files[name]
    at = offset_s and offset_s % _seconds(path)
    return f"{path}[{at}:]+{path}[:{at}]" if at else path


def _read_alone(recording: Recording, runs: Sequence[Seen]) -> dict[str, float]:
    values = whole(runs)
    (least, most), used, p95 = recording.verus, values["used %"], values["p95 ms"]
    meets_target = recording.reachable and used >= 95 and p95 <= 100
    return {
        **values,
        "95 % in 100 ms": float(meets_target),
        "an earlier Verus is better": float(least >= used and most <= p95),
    }


def _alone(field: Field) -> Iterator[Row]:
    for one in recordings():
        ack = OPPOSITE.get(one.name)
        if not field.files.keys() >= {one.name, ack or one.name} or (field.short and one.half == "judged"):
            continue
        bounds: dict[str, Bounds] = {"an earlier Verus is better": (None, 0.0)}
        if one.reachable:
            bounds |= {"used %": (95.0, None), "p95 ms": (None, 100.0)}
        elif one.limit is not None:
            bounds |= {"used %": (one.limit[0] - 3, None), "p95 ms": (None, one.limit[1])}
        runs = [
            field.run(
                from_offset(field, one.name, offset),
                ack=from_offset(field, ack, offset) if ack else "rate:12",
                ack_queue=RED,
                duration_s=60.0,
                series=False,
            )
            for offset in (OFFSETS_S[:1] if field.short else OFFSETS_S)
        ]
        yield Row(
            group=f"{one.half} recordings", name=one.name, runs=runs, read=partial(_read_alone, one), bounds=bounds
        )


def _built_in(field: Field) -> Iterator[Row]:
    places = ("campus-pedestrian", "city-driving", "highway-driving")
    for place, kind in itertools.product(places, ("3g-up", "3g-down", "lte-up", "lte-down")):
        runs = [field.run(f"{place}-{kind}", seed=seed, duration_s=60.0, series=False) for seed in field.seeds]
        bounds = {"used %": (95.0, None), "p95 ms": (None, 100.0)}
        yield Row(group="built-in channels", name=f"{place}-{kind}", runs=runs, read=whole, bounds=bounds)


# --- many flows ----------------------------------------------------------------------------------

#: Numbers of flows, and seconds between their starts.
CROWDS, APART_S = (2, 5, 10, 20), (0.0, 0.5, 5.0)
#: Seconds during which flows settle, and then are measured.
SETTLE_S, WATCH_S = 3.0, 30.0


def _newcomers(run: Seen, flows: int, apart_s: float) -> float:
    """Throughput of a newcomer in its third second, relative to a fair share."""
    shares = []
    for number in range(1, flows):
        at = apart_s * number
        rates = _rates(run, number + 1, at + 2, at + 4)
        shares.append(rates[-1] * (number + 1) / sum(rates))
    return fmean(shares)


def read_crowd(flows: int, apart_s: float, runs: Sequence[Seen]) -> dict[str, float]:
    """Throughput, shares and delays of a crowd once all of it is there; `runs` are one flow alone, and the crowd."""
    alone, run = runs
    settled = apart_s * (flows - 1) + SETTLE_S
    end = settled + WATCH_S
    values = shared(run, settled, end)
    values["× alone"] = values["delay ms"] / _delay(alone, SETTLE_S, end)
    return values | ({"newcomers": _newcomers(run, flows, apart_s)} if apart_s > 1 else {})


def _crowds(field: Field) -> Iterator[Row]:
    channels = {f"{mbps} Mbit/s": (f"rate:{mbps}", True) for mbps in (5, 20, 100)}
    if not field.short:
        channels |= {name: (field.files[one], fast) for name, (one, fast) in SHARED.items() if one in field.files}
    for (name, (trace, fast)), apart_s, flows in itertools.product(channels.items(), APART_S, CROWDS):
        if field.short and (flows == 2 or (apart_s == 5 and flows > 5)):
            continue
        end = apart_s * (flows - 1) + SETTLE_S + WATCH_S
        few = flows <= 5
        bounds: dict[str, Bounds] = {"Jain, 1 s": (0.95 if few else 0.90, None), "Jain": (0.98, None)}
        if fast or few:
            bounds["× alone"] = (None, 2.0 if few else 3.0 if flows <= 10 else 4.0)
        if apart_s > 1:
            bounds["newcomers"] = (0.8, None)
        starts = [{"start_s": apart_s * number} for number in range(flows)]
        yield Row(
            group=f"{flows} flows",
            name=f"{name}, {apart_s:g} s apart",
            runs=[
                field.run(trace, seed=seed, duration_s=end, flows=own) for seed in field.seeds for own in (1, starts)
            ],
            read=partial(_over_seeds, partial(read_crowd, flows, apart_s), 2),
            bounds=bounds,
        )
    for mbps in (5, 20, 50, 100):
        trips = [{"delay_ms": delay_ms} for delay_ms in (10.0, 25.0, 50.0, 75.0, 100.0)]
        yield Row(
            group="round trips of 20 to 200 ms",
            name=f"{mbps} Mbit/s",
            runs=[field.run(f"rate:{mbps}", seed=seed, duration_s=60.0, flows=trips) for seed in field.seeds],
            read=partial(_over_seeds, lambda runs: shared(runs[0], 10.0, 60.0), 1),
            bounds={"Jain": (0.95, None)},
        )


# --- buffers, marks, company ---------------------------------------------------------------------


def buffer(mbps: float, products: float) -> str:
    """A drop-tail queue of `products` bandwidth-delay products at 40 ms."""
    return f"droptail:bytes={int(max(mbps * 1e6 * 0.04 / 8 * products, 1500))}"


def _buffers(field: Field) -> Iterator[Row]:
    rates = (5, 20, 100) if field.short else (5, 20, 100, 500)
    for mbps, products, flows in itertools.product(rates, (0.25, 0.5, 1, 2, 4), (1, 4)):
        yield Row(
            group=f"buffers, {flows} flow{'s' if flows > 1 else ''}",
            name=f"{mbps} Mbit/s, {products:g} BDP",
            runs=[field.run(f"rate:{mbps}", buffer(mbps, products), flows=flows)],
            read=lambda runs: shared(runs[0], 3.0, 30.0),
            bounds={"used %": (95.0, None), "lost %": (None, 5.0 if products < 0.5 else 2.0), "Jain": (0.9, None)},
        )


def _marks(field: Field) -> Iterator[Row]:
    for queue, mbps, flows in itertools.product(("codel", "fq_codel", "pie"), (5, 20), (1, 4)):
        yield Row(
            group=f"queues that mark, {flows} flow{'s' if flows > 1 else ''}",
            name=f"{mbps} Mbit/s, {queue}",
            runs=[field.run(f"rate:{mbps}", f"{queue}:ecn=yes", flows=flows)],
            read=lambda runs: shared(runs[0], 3.0, 30.0),
            bounds={"used %": (95.0, None), "lost %": (None, 0.1), "Jain": (0.9, None)},
        )


def read_company(others: int, runs: Sequence[Seen]) -> dict[str, float]:
    """The others leave after 60 s."""
    (run,) = runs
    rates = _rates(run, others + 1, 10.0, 60.0)
    share = rates[0] * len(rates) / sum(rates)
    return {"share": share, "delay ms": _delay(run, 10.0, 60.0), "alone again, ms": _delay(run, 65.0, 80.0)}


def _company(field: Field) -> Iterator[Row]:
    rivals = {
        "one Cubic": ("cubic", 1),
        "three Cubics": ("cubic", 3),
        "one NewReno": ("newreno", 1),
        "one Verus": ("verus:ratio=2", 1),
    }
    for name, mbps, products in itertools.product(
        list(rivals)[:2] if field.short else rivals, (10, 50), (0.5, 1, 2, 4, 0)
    ):
        rival, others = rivals[name]
        queue = buffer(mbps, products) if products else PAPER_QUEUE
        flows = [{}, *({"scheme": rival, "stop_s": 60.0} for _ in range(others))]
        yield Row(
            group=f"beside {name}",
            name=f"{mbps} Mbit/s, {f'{products:g} BDP' if products else 'RED'}",
            runs=[field.run(f"rate:{mbps}", queue, seed=seed, flows=flows, duration_s=80.0) for seed in field.seeds],
            read=partial(_over_seeds, partial(read_company, others), 1),
            bounds={"share": (0.25 if products > 2 else 0.5, 1.5), "alone again, ms": (None, 40.0)},
        )


# --- paths ---------------------------------------------------------------------------------------


def read_longer(after_ms: float, runs: Sequence[Seen]) -> dict[str, float]:
    """Use of a path in the seconds after its delay became `after_ms` each way, at 12 s, and the error of D."""
    (run,) = runs
    believed = replace(run, options={"from_s": 16.8, "to_s": 17.1})
    estimates = (
        believed.over_time("delay_min_ms")[believed.during] if "delay_min_ms" in run.outcome["series"] else [math.nan]
    )
    return {
        "used %": _used(run, 15.0, 17.0),
        "used % from 5 s on": _used(run, 17.0, 22.0),
        "D_min wrong by, ms": abs(float(estimates[-1]) - 2 * after_ms),
        "delay ms": _delay(run, 17.0, 22.0),
    }


def _read_outage(seconds: float, runs: Sequence[Seen]) -> dict[str, float]:
    (run,) = runs
    back = 10.0 + seconds
    return {
        "used % in the first second": _used(run, back, back + 1),
        "used % in four": _used(run, back, back + 4),
        "lost %": _lost(run),
        "delay over that before": _delay(run, back + 2, back + 4) / (1.5 * _delay(run, 5.0, 10.0) + 5),
    }


def read_chance(runs: Sequence[Seen]) -> dict[str, float]:
    """Mean use, in percent, and mean queueing delay, in ms, over the runs."""
    return {"used %": fmean(map(_used, runs)), "delay ms": fmean(map(_delay, runs))}


def _paths(field: Field) -> Iterator[Row]:
    trips = (("+50 ms", 20.0, 45.0), ("−50 ms", 45.0, 20.0))
    for mbps, (name, before, after), flows in itertools.product(
        (5, 50) if field.short else (5, 50, 500), trips, (1, 4)
    ):
        changes = [{"at_s": 12.0, "delay_ms": after}]
        yield Row(
            group=f"round trip {name}",
            name=f"{mbps} Mbit/s, {flows} flow{'s' if flows > 1 else ''}",
            runs=[field.run(f"rate:{mbps}", flows=flows, duration_s=22.0, delay_ms=before, changes=changes)],
            read=partial(read_longer, after),
            bounds={"used %": (95.0, None), "D_min wrong by, ms": (None, 5.0)},
        )
    for seconds in (0.1, 0.3, 1.0, 3.0, 10.0):
        changes = [{"at_s": 10.0, "rate_mbps": 0.0}, {"at_s": 10.0 + seconds, "rate_mbps": 20.0}]
        yield Row(
            group="outages at 20 Mbit/s",
            name=f"{seconds:g} s",
            runs=[field.run("rate:20", duration_s=24.0 + seconds, changes=changes)],
            read=partial(_read_outage, seconds),
            bounds={
                "used % in the first second": (5.0, None),
                "lost %": (None, 1.0),
                "delay over that before": (None, 1.0),
            },
        )
    for loss, mbps in itertools.product((0.001, 0.01, 0.03), (5, 20, 100)):
        yield Row(
            group="losses by chance",
            name=f"{100 * loss:g} % at {mbps} Mbit/s",
            runs=[field.run(f"rate:{mbps}", seed=seed, loss=loss) for seed in field.seeds],
            read=read_chance,
            bounds={"used %": (90.0 if loss > 0.02 else 95.0, None)},
        )


def _bursts(field: Field, every_ms: int, packets: int) -> str:
    """A link that carries so many packets at once."""
    path = field.folder / f"{packets} packets every {every_ms} ms"
    path.write_text("".join(f"{number * every_ms}\n" * packets for number in range(1, 1201)), encoding="utf-8")
    return str(path)


def _ways(field: Field) -> Iterator[Row]:
    busy = [{"at_s": 0.0, "ack_rate_mbps": 0.0}, {"at_s": 0.2, "ack_rate_mbps": 12.0}]
    conditions: dict[str, dict[str, Any]] = {
        "ACKs every 20 ms": {"ack": _bursts(field, 20, 200)},
        "one ACK in ten": {"ack_every": 10},
        "ACKs over 0.4 Mbit/s": {"ack": "rate:0.4"},
        UPLOADS: {"ack": "rate:12", "changes": busy, "changes_repeat_s": 0.4},
        "grants every 5 ms, 24 Mbit/s": {"trace": _bursts(field, 5, 10)},
        "grants every 20 ms, 6 Mbit/s": {"trace": _bursts(field, 20, 10)},
        "round trip 200 ms, 5 Mbit/s": {"trace": "rate:5", "delay_ms": 100.0},
        "round trip 200 ms, 50 Mbit/s": {"trace": "rate:50", "delay_ms": 100.0},
        "0.5 Mbit/s": {"trace": "rate:0.5"},
    }
    for name, way in conditions.items():
        queue = {"ack_queue": RED} if "ack" in way else {}
        runs = [field.run(**{"trace": "rate:20", **queue, **way})]
        yield Row(group="ways of a path", name=name, runs=runs, read=read_chance, bounds={"used %": (95.0, None)})


#: Jitter is drawn for each millisecond of a run, both ways; packets keep their order.
JITTER_MS = 30_000


def _wifi(bad: float, drawn: np.random.Generator) -> Array:
    """The Wi-Fi of C4's simulator, ms; `bad` says how much of the time it is bad."""
    good, slow = drawn.poisson(1.0, JITTER_MS), drawn.poisson(12.0, JITTER_MS)
    wait = np.where(good >= 1, good - drawn.random(JITTER_MS), 0.0)
    spell = 7.5 * (slow - np.where(slow > 1, drawn.random(JITTER_MS), 0.0))
    return wait + np.where(drawn.random(JITTER_MS) < (bad - 1) / 84, spell, 0.0)


def _cell(drawn: np.random.Generator) -> Array:
    """A cell that schedules each 2.5 ms and repeats what failed after 8 ms: a tenth once, a hundredth twice; ms."""
    return np.searchsorted([0.9, 0.99], drawn.random(JITTER_MS)) * 8.0 + 2.5 * drawn.random(JITTER_MS)


def _read_jitter(runs: Sequence[Seen]) -> dict[str, float]:
    return {**read_chance(runs[:1]), "Cubic's used %": _used(runs[1])}


def _jitter(field: Field) -> Iterator[Row]:
    models: dict[str, tuple[float, Callable[[np.random.Generator], Array]]] = {
        "Wi-Fi, good": (10.0, partial(_wifi, 1)),
        "Wi-Fi, bad": (10.0, partial(_wifi, 7)),
        "5G": (20.0, _cell),
    }
    for (name, (least_ms, model)), mbps in itertools.product(models.items(), (10, 50)):
        runs = []
        for seed in field.seeds:
            delays = (least_ms + model(np.random.default_rng(seed))).tolist()
            changes = [{"at_s": ms / 1e3, "delay_ms": delay} for ms, delay in enumerate(delays)]
            settings = {"seed": seed, "delay_ms": least_ms, "changes": changes}
            runs += [
                field.run(f"rate:{mbps}", buffer(mbps, 4), scheme=scheme, **settings)
                for scheme in (field.scheme, "cubic")
            ]
        read = partial(_over_seeds, _read_jitter, 2)
        yield Row(group="jitter", name=f"{name}, {mbps} Mbit/s", runs=runs, read=read, bounds={"used %": (95.0, None)})


# --- sources that run dry ------------------------------------------------------------------------


def _sources(field: Field, traffic: str, *, beside: bool, senders: Sequence[str], **fields: Any) -> list[Run]:
    flows: list[dict[str, Any]] = [{"traffic": traffic}, *([{}] if beside else [])]
    return [field.run(scheme=scheme, flows=flows, duration_s=60.0, **fields) for scheme in senders]


def _read_files(runs: Sequence[Seen]) -> dict[str, float]:
    own, cubic = (float(run.metrics["completion_mean_s"] or math.nan) for run in runs)
    return {"a file, s": own, OVER_CUBIC: own / cubic}


def _files(field: Field) -> Iterator[Row]:
    for beside, kilobytes, mbps in itertools.product((False, True), (30, 300, 3000), (5, 20, 100)):
        yield Row(
            group="files beside a bulk flow" if beside else "files alone",
            name=f"{kilobytes} kB at {mbps} Mbit/s",
            runs=_sources(
                field,
                f"files:bytes={kilobytes}000,gap_s=0.5",
                beside=beside,
                senders=(field.scheme, "cubic"),
                trace=f"rate:{mbps}",
                queue=buffer(mbps, 4),
            ),
            read=_read_files,
            bounds={OVER_CUBIC: (None, 1.1)},
        )


def _read_video(runs: Sequence[Seen]) -> dict[str, float]:
    p99_s, cubics_s = (float(run.metrics["completion_p99_s"]) for run in runs)
    late, cubics = (float(run.metrics["late"]) for run in runs)
    return {
        "p99 ms": 1e3 * p99_s,
        P99_OVER_CUBIC: p99_s / cubics_s,
        "late": late,
        "late beyond Cubic's": late - cubics,
    }


def _video(field: Field) -> Iterator[Row]:
    """Video of 1.2 Mbit/s, and a constant source of 2: less than half of each channel."""
    sources = {"video": "video", "constant": "video:bytes=2500,key_bytes=2500,fps=100"}
    channels = {
        "5 Mbit/s": ("rate:5", buffer(5, 4)),
        "20 Mbit/s": ("rate:20", buffer(20, 4)),
        "LTE, city": ("city-driving-lte-down@7", RED),
    }
    for beside, (source, traffic), (channel, (trace, queue)) in itertools.product(
        (False, True), sources.items(), channels.items()
    ):
        yield Row(
            group="video beside a bulk flow" if beside else "video alone",
            name=f"{source}, {channel}",
            runs=_sources(field, traffic, beside=beside, senders=(field.scheme, "cubic"), trace=trace, queue=queue),
            read=_read_video,
            bounds={P99_OVER_CUBIC: (None, 1.1), "late beyond Cubic's": (None, 0.0)},
        )
