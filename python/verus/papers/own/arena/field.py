"""The arena's field: who runs, over which channels, queues and buffers, and in which company."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from verus import _verus
from verus.errors import FieldError
from verus.lab.results import Results
from verus.lab.runner import Progress, run_all
from verus.lab.scenario import Contestant, Run
from verus.lab.scenario import stretch as seconds_of
from verus.papers.experiment import Options, Work
from verus.papers.reproduction import Column, Place, columns_for

NAME = "arena"

#: Senders under names of their own, as `--scheme` takes them.
NAMED = {
    "Verus R=2": "verus",
    "Verus R=6": "verus:ratio=6",
    "Forward": "forward",
    "Cubic": "cubic",
    "NewReno": "newreno",
    "Vegas": "vegas",
    "BBR v1": "bbr1",
    "BBR v3": "bbr",
    "Copa": "copa",
    "Copa, not competitive": "copa:competitive=no",
    "LEDBAT++": "ledbatpp",
    "C4": "c4",
    "Vivace": "vivace",
    "SCReAM": "scream",
    "Prague": "prague",
    "Sprout": "sprout",
}
#: A model takes a trained file, and the others are there to measure.
NOT_COMPARED = ("model", "saturate", "constant")
#: Keys of each scheme that `--scheme` takes, by the scheme's name.
_SCHEMES = {scheme["name"]: {key["key"] for key in scheme["keys"]} for scheme in _verus.list_schemes()}
#: All others take part under the names that they have.
SENDERS = NAMED | {
    name: name
    for name in _SCHEMES
    if name not in NOT_COMPARED and name not in {_verus.check_scheme(scheme)["scheme"] for scheme in NAMED.values()}
}
#: Schemes that use classic ECN only with `ecn=yes`, which they get on queues that mark.
ASK_FOR_MARKS = tuple(name for name, keys in _SCHEMES.items() if "ecn" in keys)

#: Built-in channels and the recordings that they model: 3G and LTE, up and down, standing, on foot
#: and driving.
CHANNELS = {
    "campus 3G up": Place("campus-pedestrian-3g-up", "verus-2015/campus-pedestrian.up"),
    "city 3G up": Place("city-driving-3g-up", "verus-2015/city-driving.up"),
    "highway 3G up": Place("highway-driving-3g-up", "verus-2015/highway-driving.up"),
    "campus LTE down": Place("campus-pedestrian-lte-down", "verus-2015/campus-pedestrian.down"),
    "city LTE down": Place("city-driving-lte-down", "verus-2015/city-driving.down"),
    "highway LTE down": Place("highway-driving-lte-down", "verus-2015/highway-driving.down"),
    "home LTE down": Place("city-stationary-lte-down", "nyc-2019/trace-3093662-home3"),
    "Times Square LTE": Place("city-waterfront-lte-down", "nyc-2019/trace-3205967-timessquare"),
    "Times Square 3G": Place("city-stationary-3g-down", "nyc-2018/downlink-3g-with-cross-times-1"),
    "T-Mobile UMTS down": Place("city-waterfront-3g-down", "mahimahi/TMobile-UMTS-driving.down"),
    "Verizon LTE up": Place("highway-driving-lte-up", "mahimahi/Verizon-LTE-short.up"),
    "AT&T LTE up": Place("city-driving-lte-up", "cs244-2017/ATT-LTE-driving-2016.up"),
}
#: All recordings have this much, in seconds.
RECORDED_S = 120.0

#: Propagation each way, in ms.
DELAY_MS = 20.0
BLOATED = "bloated"
#: Queues before the link. A buffer of one bandwidth-delay product is stated in time, as the rate
#: varies.
QUEUES = {
    BLOATED: "droptail:bytes=10000000",
    "one BDP": "droptail:delay_ms=40",
    "CoDel": "codel",
    "FQ-CoDel": "fq_codel",
    "RED, marks": "red:min=375000,max=1125000,p=0.1,ecn=yes",
    "DualPI2": "dualpi2",
}
#: Of these, those that mark.
MARKING = ("FQ-CoDel", "RED, marks", "DualPI2")

#: Where flows share: Mbit/s, and drop-tail buffers in bandwidth-delay products.
SHARED_MBPS = 20.0
PRODUCT_BYTES = SHARED_MBPS * 2 * DELAY_MS * 125
BUFFERS = {"shallow": 1, "deep": 8}
CROWDS = (2, 10)
#: Interval between the starts of flows, s, and what each repetition adds to it. Without the addition, senders that draw
#: no random numbers would repeat the same run.
APART_S, SHIFT_S = 2.0, 0.137
RIVALS = {"Cubic": "cubic", "BBR v1": "bbr1"}
LOSSES = (0.001, 0.005, 0.01, 0.02)
#: Of the outages: the rate, when nothing moves any more and when it does again, and for how long after that is looked.
OUTAGE_MBPS, OUTAGE_FROM_S, OUTAGE_TO_S, AFTER_S = 10.0, 10.0, 12.0, 10.0
OUTAGES = {"held": "packets wait", "lost": "packets are lost"}
#: Of the channels, slow ones that carry the source's bitrate most of the time.
VIDEO_CHANNELS = ("campus 3G up", "city 3G up", "Times Square 3G", "Verizon LTE up")


@dataclass(frozen=True)
class Size:
    """How much is run.

    Attributes:
        channels: Over which of `CHANNELS`.
        queues: Behind which of `QUEUES`.
        stretches: Stretches of each channel.
        stretch_s: Seconds of each.
        seeds: Repetitions of runs that need no channel.
        shared_s: Seconds of each of these runs.
        senders: Scheme of each sender, by the sender's name in the arena.
    """

    channels: tuple[str, ...]
    queues: tuple[str, ...]
    stretches: int
    stretch_s: float
    seeds: int
    shared_s: float
    senders: Mapping[str, str] = field(default_factory=lambda: SENDERS)


FULL = Size(tuple(CHANNELS), tuple(QUEUES), stretches=4, stretch_s=30.0, seeds=5, shared_s=60.0)
SHORT = Size(
    ("campus 3G up", "city 3G up", "Verizon LTE up"),
    (BLOATED, "CoDel"),
    stretches=3,
    stretch_s=10.0,
    seeds=2,
    shared_s=20.0,
)


def stretch(channel: str, number: int) -> str:
    """The name of a stretch of a channel."""
    return f"{channel} #{number}"


def places(size: Size) -> dict[str, Place]:
    """Every stretch of every channel: of a built-in one another realisation, of a recording the next seconds."""
    return {
        stretch(name, number): Place(
            f"{CHANNELS[name].built_in}@{number}",
            seconds_of(CHANNELS[name].recording, number, size.stretch_s),
        )
        for name in size.channels
        for number in range(1, size.stretches + 1)
    }


def runs(column: Column, size: Size) -> list[Run]:
    """Everything, question by question."""
    return [run for part in (_alone, _fair, _company, _lossy, _outages, _video) for run in part(column, size)]


def _scheme_on(scheme: str, queue: str) -> str:
    """The scheme to run on a queue: with `ecn=yes` if the queue marks and the scheme takes that."""
    return f"{scheme}:ecn=yes" if queue in MARKING and scheme in ASK_FOR_MARKS else scheme


def _stretches(
    column: Column, size: Size, label: str, channel: str, part: str, queue: str = BLOATED, **settings: Any
) -> Iterator[Run]:
    """A sender by itself, once for each stretch of a channel."""
    for number in range(1, size.stretches + 1):
        yield column.run(
            stretch(channel, number),
            _scheme_on(size.senders[label], queue),
            label=label,
            part=f"{part}|{channel}",
            seed=column.seed + number - 1,
            queue=QUEUES[queue],
            duration_s=size.stretch_s,
            delay_ms=DELAY_MS,
            series=False,
            **settings,
        )


def _alone(column: Column, size: Size) -> Iterator[Run]:
    for queue, channel, label in itertools.product(size.queues, size.channels, size.senders):
        yield from _stretches(column, size, label, channel, f"alone|{queue}", queue)


def _shared(
    column: Column,
    size: Size,
    label: str,
    part: str,
    *,
    mbps: float = SHARED_MBPS,
    flows: Sequence[Mapping[str, Any]] = ({},),
    **fields: Any,
) -> Iterator[Run]:
    """A constant rate: once for each seed, the first flow a little later each time."""
    for number in range(size.seeds):
        first, *others = flows
        yield column.run(
            f"rate:{mbps:g}",
            size.senders[label],
            label=label,
            part=part,
            seed=column.seed + number,
            flows=[{**first, "start_s": SHIFT_S * number}, *others],
            **{"duration_s": size.shared_s, "delay_ms": DELAY_MS, "series": False, **fields},
        )


def _buffer(name: str) -> str:
    return f"droptail:bytes={BUFFERS[name] * PRODUCT_BYTES:.0f}"


def _fair(column: Column, size: Size) -> Iterator[Run]:
    for count, buffer, label in itertools.product(CROWDS, BUFFERS, size.senders):
        flows = [{"start_s": APART_S * at * 2 / count} for at in range(count)]
        yield from _shared(column, size, label, f"fair|{count}|{buffer}", flows=flows, queue=_buffer(buffer))


def _company(column: Column, size: Size) -> Iterator[Run]:
    for rival, buffer, label in itertools.product(RIVALS, BUFFERS, size.senders):
        flows: list[dict[str, Any]] = [{"scheme": RIVALS[rival]}, {"start_s": APART_S}]
        yield from _shared(column, size, label, f"company|{rival}|{buffer}", flows=flows, queue=_buffer(buffer))


def _lossy(column: Column, size: Size) -> Iterator[Run]:
    for loss, label in itertools.product((0.0, *LOSSES), size.senders):
        yield from _shared(column, size, label, f"loss|{loss:g}", loss=loss, queue=_buffer("shallow"))


def _outages(column: Column, size: Size) -> Iterator[Run]:
    stops = {
        "held": [{"at_s": OUTAGE_FROM_S, "rate_mbps": 0.0}, {"at_s": OUTAGE_TO_S, "rate_mbps": OUTAGE_MBPS}],
        "lost": [{"at_s": OUTAGE_FROM_S, "loss": 1.0}, {"at_s": OUTAGE_TO_S, "loss": 0.0}],
    }
    for kind, label in itertools.product(OUTAGES, size.senders):
        yield from _shared(
            column,
            size,
            label,
            f"outage|{kind}",
            mbps=OUTAGE_MBPS,
            changes=stops[kind],
            duration_s=OUTAGE_TO_S + AFTER_S,
            queue=_buffer("deep"),
            series=True,
            bin_ms=100.0,
        )


def _video(column: Column, size: Size) -> Iterator[Run]:
    for channel, label in itertools.product((name for name in VIDEO_CHANNELS if name in size.channels), size.senders):
        yield from _stretches(column, size, label, channel, "video", flows=[{"traffic": "video"}])


def _own(schemes: Sequence[str]) -> dict[str, str]:
    """Senders of the user's beside the field, each under its label; where that is taken, under the scheme's text.

    Raises:
        FieldError: One cannot be used.
    """
    named: dict[str, str] = {}
    for text in schemes:
        label = Contestant.from_scheme(text).label
        named[text if label in (*SENDERS, *named) else label] = text
    return named


def prepare(options: Options) -> Work:
    """Looks for the recordings; built-in channels do without."""
    size = SHORT if options.short else FULL
    if options.repeat is not None:
        if options.repeat * size.stretch_s > RECORDED_S:
            limit = int(RECORDED_S / size.stretch_s)
            raise FieldError(
                "repeat", f"must be at most {limit}: recordings have {RECORDED_S:g} s for so many stretches"
            )
        size = replace(size, stretches=options.repeat, seeds=options.repeat)
    size = replace(size, senders=SENDERS | _own(options.schemes))
    columns, missing = columns_for(NAME, places(size), options)
    column = columns[-1]

    def work(progress: Progress | None) -> Results:
        planned = runs(column, size)
        settings = {
            "experiment": NAME,
            "seed": options.seed,
            "repeat": options.repeat,
            "schemes": list(options.schemes),
            "short": options.short,
            "channels": column.name,
            "missing": missing,
        }
        return Results.collect(planned, run_all(planned, progress=progress), kind=NAME, settings=settings)

    return work
