"""Runs as data: one simulation (`Run`), and the grid of them that a comparison makes (`Settings`).

Nothing here runs anything. A `Run` holds the scenario that the simulator reads, and the user's
names of its trace, queue and scheme, which results show.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial
from numbers import Integral, Real
from typing import Any, cast

from verus import _verus
from verus.errors import FieldError, not_utf8
from verus.lab.arguments import check_seed, checked, text_list, whole
from verus.lab.schema import PathSettings, RunSettings, Scenario

#: The paper's shared queue (SIGCOMM 2015, section 6.2): 3 and 9 Mbit of average queue, 10 % at the top.
PAPER_QUEUE = "red:min=375000,max=1125000,p=0.1"

#: The contestants of `verus compare` without arguments: the sender that we recommend, then others.
DEFAULT_SCHEMES = ("forward", "verus:ratio=2", "verus:ratio=6", "cubic", "bbr", "copa")

#: Built-in channels of `verus compare` without arguments: slow, busy and fast movement.
DEFAULT_CHANNELS = ("campus-pedestrian-3g-down", "city-driving-lte-down", "highway-driving-3g-down")


#: Transports for our controllers in real time.
TRANSPORTS = ("udp", "quic")

#: The owner of a sender that needs real time, for messages, by where it runs (`_verus.runs_in`).
OWNERS = {"kernel": "the kernel's", "program": "a program"}

#: Linux's name of each congestion control that we have too, and our scheme of the same.
LINUX_SCHEMES = {"cubic": "cubic", "reno": "newreno", "vegas": "vegas", "bbr": "bbr1"}

#: The most seeds of one comparison: more are probably a mistake.
MOST_REPETITIONS = 100_000


#: Every field of a scenario: type, range, default and meaning, as Rust states them (JSON Schema).
SCHEMA: Mapping[str, Any] = _verus.scenario_schema()

#: Every field of a scenario, with its default.
DEFAULTS = cast("Scenario", _verus.default_scenario())

#: The most flows in one run: more are probably a typing error.
MOST_FLOWS: int = SCHEMA["properties"]["flows"]["maxItems"]


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One entry of a comparison: the flows that share the link in one run.

    Attributes:
        text: The user's text: ``verus:ratio=2``, or a mix such as ``verus*2+cubic*2``.
        scheme: Bare name (``verus``); for a mix, the text.
        params: The keys that were set (``{"ratio": 2}``); empty for a mix.
        label: For tables and figures.
        flows: Scheme text of each flow.
        transport: The transport of our controllers in real time, ``udp`` or ``quic``; empty in the
            simulator.
    """

    text: str
    scheme: str
    params: Mapping[str, Any]
    label: str
    flows: tuple[str, ...]
    transport: str = ""

    @classmethod
    def from_scheme(cls, text: str, *, flows: int = 1) -> Contestant:
        """All flows run one scheme.

        Raises:
            FieldError: The scheme or one of its keys is unknown, or a value is out of range.

        Example:
            >>> Contestant.from_scheme("verus:ratio=4").scheme
            'verus'
        """
        return cls._of("scheme", text, [(text, flows)])

    @classmethod
    def from_flows(cls, texts: Sequence[str]) -> Contestant:
        """Flows of these schemes side by side.

        Raises:
            FieldError: One of them is unknown.

        Example:
            >>> Contestant.from_flows(["verus:ratio=2", "cubic"]).label
            'Verus R=2 + Cubic'
        """
        text = "+".join(texts if len(set(texts)) > 1 else texts[:1])
        return cls._of("scheme", text, [(scheme, 1) for scheme in texts])

    @classmethod
    def from_mix(cls, text: str) -> Contestant:
        """Flows of several schemes side by side: ``SCHEME*N+SCHEME*M``.

        Raises:
            FieldError: A part is not ``SCHEME`` or ``SCHEME*COUNT``, or its scheme is unknown.

        Example:
            >>> Contestant.from_mix("verus:ratio=2*2+cubic").flows
            ('verus:ratio=2', 'verus:ratio=2', 'cubic')
            >>> Contestant.from_mix("cubic*4").label  # no mix after all
            'Cubic'
        """
        return cls._of("mix", text, checked("mix", text, _verus.split_mix))

    @classmethod
    def _of(cls, field: str, text: str, parts: Sequence[tuple[str, int]]) -> Contestant:
        """The flows of `parts`: schemes and counts. Errors name `field`."""
        check = partial(_verus.check_scheme, real_time=True)
        parsed = {scheme: checked(field, scheme, check) for scheme in dict(parts)}
        flows = tuple(scheme for scheme, count in parts for _ in range(count))
        if len(parsed) == 1:
            return cls(text=text, flows=flows, **parsed[parts[0][0]])
        labels = [("" if count == 1 else f"{count} ") + parsed[scheme]["label"] for scheme, count in parts]
        return cls(text=text, flows=flows, scheme=text, params={}, label=" + ".join(labels))


@dataclass(frozen=True, kw_only=True)
class Run:
    """One simulation, and its names in results.

    Attributes:
        trace: The channel as the user named it.
        queue: The bottleneck queue as the user wrote it.
        contestant: The flows over it.
        scenario: The simulator's input: plain values, ready for JSON.
        part: The part of an experiment that it belongs to, where there are several.
    """

    trace: str
    queue: str
    contestant: Contestant
    scenario: Scenario
    part: str = ""

    def to_json(self) -> str:
        """The scenario as the simulator's JSON."""
        return json.dumps(self.scenario, allow_nan=False, sort_keys=True)

    def without_series(self) -> Run:
        """The same run with metrics and totals only: nothing grows with its duration."""
        return replace(self, scenario=cast("Scenario", {**self.scenario, "series": False}))


def make_run(
    *,
    trace: str,
    queue: str,
    contestant: Contestant,
    path: str | None = None,
    traffic: str = "full",
    part: str = "",
    **fields: Any,
) -> Run:
    """Describes one simulation.

    Args:
        trace: The channel as results name it.
        queue: The bottleneck queue.
        contestant: The flows over it.
        path: The trace's path, if its name is not the path.
        traffic: The data that every flow sends.
        part: The part of an experiment that it belongs to.
        **fields: Other fields of the scenario, in place of `DEFAULTS`.
    """
    sends = {} if traffic == "full" else {"traffic": traffic}
    flows = [{"scheme": text, "start_s": 0.0, "stop_s": None, "delay_ms": None, **sends} for text in contestant.flows]
    fields = {name: plain(name, value) for name, value in fields.items()}
    scenario = {**DEFAULTS, **fields, "trace": path or trace, "queue": queue, "flows": flows}
    return Run(trace=trace, queue=queue, contestant=contestant, scenario=cast("Scenario", scenario), part=part)


def warning(scenario: Mapping[str, Any]) -> str | None:
    """A warning that a run ends before anything arrives, so that its outcome is empty; None otherwise.

    Example:
        >>> warning({**DEFAULTS, "delay_ms": 20_000, "duration_s": 3})
        'nothing arrives: the delay, 20 s each way, is longer than the run, 3 s'
    """
    if scenario["light_trace"] is not None or scenario["delay_series"] is not None:
        return None
    delays_ms = [flow.get("delay_ms") for flow in scenario["flows"]]
    delay_s = min(scenario["delay_ms"] if delay_ms is None else delay_ms for delay_ms in delays_ms) / 1e3
    if delay_s < scenario["duration_s"]:
        return None
    return f"nothing arrives: the delay, {delay_s:g} s each way, is longer than the run, {scenario['duration_s']:g} s"


def base_rtt_ms(path: Mapping[str, Any], flow_delay_ms: float | None = None) -> float | None:
    """The round trip without queues, as a run begins; None where recorded delays decide it.

    Args:
        path: The fields of the path; one that is absent has its default.
        flow_delay_ms: The flow's own delay each way, if it has one.

    Example:
        >>> base_rtt_ms({"delay_ms": 20}), base_rtt_ms({"delay_ms": 20, "ack_delay_ms": 300})
        (40.0, 320.0)
        >>> base_rtt_ms({"delay_ms": 20, "delay_series": "town.delays"}) is None
        True
    """
    if any(path.get(name) is not None for name in ("delay_series", "light_trace", "ack_light_trace")):
        return None
    if flow_delay_ms is not None:
        return 2.0 * flow_delay_ms
    there_ms = path.get("delay_ms", DEFAULTS["delay_ms"])
    back_ms = path.get("ack_delay_ms")
    return float(there_ms + (there_ms if back_ms is None else back_ms))


def late_changes(scenario: Mapping[str, Any]) -> str | None:
    """A warning about changes of the path that come after the end of the run; None if there are none.

    Example:
        >>> late_changes({**DEFAULTS, "changes": [{"at_s": 9, "loss": 0.5}], "duration_s": 3})
        'the path does not change at 9 s: the run lasts 3 s'
    """
    late = [change["at_s"] for change in scenario["changes"] if change["at_s"] >= scenario["duration_s"]]
    if not late:
        return None
    times = f"{late[0]:g} s" if len(late) == 1 else f"{late[0]:g} s and later"
    return f"the path does not change at {times}: the run lasts {scenario['duration_s']:g} s"


def plain(name: str, value: Any, depth: int = 0) -> Any:
    """A value of a field for JSON: numbers and truth values of NumPy become Python's.

    Raises:
        FieldError: It is nested too deeply.

    Example:
        >>> import numpy as np
        >>> plain("changes", [{"at_s": np.int64(2), "rate_mbps": np.float32(0.5)}])
        [{'at_s': 2, 'rate_mbps': 0.5}]
    """
    if depth > _MOST_DEPTH:
        raise FieldError(name, "is nested too deeply")
    if isinstance(value, Mapping):
        return {key: plain(name, each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([plain(name, each, depth + 1) for each in value])
    if isinstance(value, bool | int | float):
        return value
    if getattr(value, "ndim", None) == 0:
        return value.item()
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


#: The deepest nesting of a field: a list of changes has a depth of 2.
_MOST_DEPTH = 10


def check_value(name: str, value: Any) -> None:
    """Refuses what JSON cannot hold, such as infinity, with the name of its field or of the part of it.

    Raises:
        FieldError: The first such value.
    """
    if isinstance(value, Mapping):
        for key, each in value.items():
            check_value(f"{name}.{key}", each)
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            check_value(f"{name}[{index}]", each)
    elif isinstance(value, float) and not math.isfinite(value):
        raise FieldError(name, f"must be a finite number, not {value:g}")
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise FieldError(name, f"must be a number of 64 bits, not {value}")
    elif not isinstance(value, str | int | float | None):
        raise FieldError(name, f"must be a number or a text, not {value!r}")


def check_fields(values: Mapping[str, Any], *, flow: bool = False) -> None:
    """Refuses fields of a scenario, or of a flow, that Rust would refuse if the others had their defaults.

    Raises:
        FieldError: The first invalid field, and its range.
    """
    values = {name: plain(name, value) for name, value in values.items()}
    for name, value in values.items():
        check_value(name, value)
    try:
        _verus.check_scenario(json.dumps({"flows": [values]} if flow else values))
    except FieldError as error:
        raise FieldError(error.field.removeprefix("flows[0]."), error.problem, error.other) from error


@dataclass(frozen=True, kw_only=True)
class Settings(RunSettings, PathSettings):
    """A comparison: every contestant over every trace and queue, once for each seed.

    Attributes:
        traces: Trace files, names of channels, or ``rate:MBPS``.
        schemes: ``NAME[:key=value,…]``, or ``FILE.py:CLASS[:key=value,…]``; several values of a key (``ratio=2,4``,
            ``ratio=2..6``) are several schemes.
        mixes: ``SCHEME*N+SCHEME*M``; each is one more contestant.
        queues: ``KIND[:key=value,…]``; likewise.
        flows: Flows of a scheme in one run (a mix brings its own count).
        traffic: The data that every flow sends: ``full``, or ``on-off``, ``c.r1002``,
            ``files:bytes=N``, ``video``.
        repeat: Runs of each cell, with seeds ``seed … seed + repeat - 1``.
        stretches: Runs of each cell in place of ``repeat``, likewise, each over another part of its recording.
        records: Whether to keep one record for each packet.
        emulate: Whether to run in real time, behind an emulated link, rather than simulate.
        virtual: Whether to do so on virtual time, in a guest kernel (`verus virtual build`); this sets ``emulate``.
        transports: The transports of our controllers then: ``udp``, ``quic``.
    """

    traces: Sequence[str] = DEFAULT_CHANNELS
    schemes: Sequence[str] = DEFAULT_SCHEMES
    mixes: Sequence[str] = ()
    queues: Sequence[str] = (PAPER_QUEUE,)
    flows: int = 1
    traffic: str = "full"
    repeat: int = 1
    stretches: int | None = None
    records: bool = False
    emulate: bool = False
    virtual: bool = False
    transports: Sequence[str] = ("udp",)

    def __post_init__(self) -> None:
        for entry in fields(self):
            object.__setattr__(self, entry.name, plain(entry.name, getattr(self, entry.name)))
        if self.virtual:
            object.__setattr__(self, "emulate", True)

    def check(self) -> None:
        """Refuses invalid settings, before anything runs.

        Raises:
            FieldError: The first invalid field, and the reason.
            OSError: A trace cannot be read.
        """
        for name in ("traces", "schemes", "mixes", "queues", "transports"):
            for text in text_list(name, getattr(self, name)):
                if not isinstance(text, str):
                    raise FieldError(name, f"must be texts, not {text!r}")
        for name in ("traces", "queues"):
            if not getattr(self, name):
                raise FieldError(name, "needs at least one")
        if not self.schemes and not self.mixes:
            raise FieldError("schemes", "needs at least one scheme or mix")
        whole("flows", self.flows, 1, MOST_FLOWS)
        whole("repeat", self.repeat, 1, MOST_REPETITIONS)
        if self.stretches is not None:
            whole("stretches", self.stretches, 2, MOST_REPETITIONS)
            if self.repeat != 1:
                raise FieldError("repeat", "is not for stretches, each of which runs once, with a seed of its own")
        check_seed(self.seed)
        if self.seed + (self.stretches or self.repeat) > 2**63:
            raise FieldError("seed", "must fit 63 bits, repetitions included")
        check_fields(self._fields())
        if self.delay_series is not None and self.delay_ms != DEFAULTS["delay_ms"]:
            problem = f"must be left out beside delay_series, not {self.delay_ms:g}"
            raise FieldError("delay_ms", problem, "delay_series")
        for text in self.transports:
            if text not in TRANSPORTS:
                raise FieldError("transports", f"`{text}` is neither {' nor '.join(TRANSPORTS)}")
        if not self.transports:
            raise FieldError("transports", "needs at least one")
        for text in self._queue_texts:
            checked("queues", text, _verus.check_queue)
        if self.mixes and not self.schemes and self.flows != 1:
            raise FieldError("flows", "is for --scheme: a mix has its own numbers, as in `verus*2+cubic*2`")
        checked("ack_queue", self.ack_queue, _verus.check_queue)
        checked("second_queue", self.second_queue, _verus.check_queue)
        if not isinstance(self.traffic, str):
            raise FieldError("traffic", f"must be text, not {self.traffic!r}")
        checked("traffic", self.traffic, _verus.check_traffic)
        if self.emulate and self.traffic != "full":
            raise FieldError("traffic", "is for simulations: in real time (--emulate) all flows send all the time")
        for text in self.traces:
            checked("traces", text, _verus.check_channel)
        for name, text in self._fields().items():
            rule = SCHEMA["properties"][name]
            if rule.get("x-names") == "channel" and text is not None and text not in rule.get("x-words", ()):
                checked(name, text, _verus.check_channel)

    @cached_property
    def _queue_texts(self) -> list[str]:
        """The queues of `queues`, each once."""
        return list(dict.fromkeys(text for several in self.queues for text in expanded("queues", several)))

    def contestants(self) -> list[Contestant]:
        """All contestants, in the order given, each once.

        Raises:
            FieldError: A scheme or mix cannot be used.
        """
        entries = [
            Contestant.from_scheme(text, flows=self.flows)
            for several in self.schemes
            for text in expanded("schemes", several)
        ]
        entries += [Contestant.from_mix(text) for text in self.mixes]
        if self.emulate:
            entries = [carried for entry in entries for carried in self._carried(entry)]
        return distinct(list({(entry.text, entry.transport): entry for entry in entries}.values()))

    def _carried(self, entry: Contestant) -> list[Contestant]:
        """The contestant over each transport; flows of the kernel or of programs bring their own."""
        if all(_verus.runs_in(text) in OWNERS for text in dict.fromkeys(entry.flows)):
            return [replace(entry, transport="udp")]
        label = {"udp": entry.label, "quic": f"{entry.label} in QUIC"}
        return [replace(entry, transport=name, label=label[name]) for name in self.transports]

    def runs(self, contestants: Sequence[Contestant] = ()) -> list[Run]:
        """Every simulation of the grid, traces outermost, seeds innermost.

        Args:
            contestants: The contestants, in place of those of `schemes` and `mixes`.

        Raises:
            FieldError: As `check` and `contestants`; or a contestant does not run there.
            OSError: A trace cannot be read.

        Example:
            >>> len(Settings(traces=["rate:10"], schemes=["cubic", "vegas"], repeat=2).runs())
            4
        """
        self.check()
        contestants = contestants or self.contestants()
        for entry in contestants:
            for place in map(_verus.runs_in, dict.fromkeys(entry.flows)):
                if not self.emulate and place in OWNERS:
                    problem = f"is {OWNERS[place]}: it runs in real time only (--emulate)"
                    raise FieldError("schemes", f"`{entry.text}` {problem}")
                if self.emulate and place == "python":
                    raise FieldError("schemes", f"`{entry.text}` is Python's: it runs in the simulator only")
        shared_fields = self._fields()
        return [
            make_run(
                **{**shared_fields, "trace": trace, "queue": queue, "seed": self.seed + at, "traffic": self.traffic},
                path=path,
                contestant=contestant,
            )
            for trace, paths in {trace: self._parts(trace) for trace in self.traces}.items()
            for queue in self._queue_texts
            for contestant in contestants
            for at, path in enumerate(paths)
        ]

    def _parts(self, trace: str) -> list[str]:
        """The channel of each repetition of a cell.

        Raises:
            FieldError: It has no stretches, or not enough.
        """
        if self.stretches is None:
            return [trace] * self.repeat
        channel = _verus.check_channel(trace)
        if channel["kind"] == "built-in" and "parts" not in channel:
            return [trace] * self.stretches  # another realisation for each seed
        if channel["kind"] == "rate" or "parts" in channel:
            why = "is the same all the time" if channel["kind"] == "rate" else "is a part already"
            raise FieldError("stretches", f"are those of a recording: `{trace}` {why}")
        recorded_s = _verus.trace_info(trace)["duration_s"]
        if self.stretches * self.duration_s > recorded_s + _SHORT_S:
            fitting = int(recorded_s / self.duration_s)
            has = f"`{trace}` has {recorded_s:g} s, which is {fitting} stretches of {self.duration_s:g} s"
            raise FieldError("stretches", f"must not overlap: {has}, not {self.stretches}")
        parts = [stretch(trace, number, self.duration_s) for number in range(1, self.stretches)]
        return [*parts, stretch(trace, self.stretches, self.duration_s, recorded_s)]

    def _fields(self) -> dict[str, Any]:
        """The settings that a scenario has under the same name and with the same meaning."""
        shared_fields = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name in DEFAULTS}
        del shared_fields["flows"]
        return {**shared_fields, "changes": list(text_list("changes", self.changes))}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; `from_dict` undoes it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Settings:
        """Reads what `to_dict` wrote.

        Raises:
            FieldError: A field is unknown, and so the settings are of another version.
        """
        setting_names = {entry.name for entry in fields(cls)}
        for name in values:
            if name not in setting_names:
                raise FieldError(name, "is not a setting of this version")
        settings: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**settings)


#: The last stretch may be shorter by this, in seconds: a recording ends with an opportunity, not on
#: the second.
_SHORT_S = 0.1


def stretch(recording: str, number: int, seconds: float, recorded_s: float = math.inf) -> str:
    """The stretch of a recording with this number, from 1; stretches of `seconds` follow each other until its end.

    Example:
        >>> stretch("town.down", 3, 30), stretch("town.down", 2, 30, 59.987)
        ('town.down[60:90]', 'town.down[30:59.987]')
    """
    return f"{recording}[{(number - 1) * seconds:.10g}:{min(number * seconds, recorded_s):.10g}]"


def distinct(contestants: Sequence[Contestant]) -> list[Contestant]:
    """The contestants, with the full text as label where labels coincide.

    Example:
        >>> twins = [Contestant.from_scheme("verus"), Contestant.from_scheme("verus:ratio=2")]
        >>> [entry.label for entry in distinct(twins)]
        ['verus', 'verus:ratio=2']
    """
    count = Counter(entry.label for entry in contestants)
    return [
        entry
        if count[entry.label] == 1
        else replace(entry, label=f"{entry.text} in QUIC" if entry.transport == "quic" else entry.text)
        for entry in contestants
    ]


def expanded(name: str, text: str) -> list[str]:
    """All schemes of a text: ``verus:ratio=2,4`` and ``verus:ratio=2..6`` are several; a program is one."""
    try:
        return _verus.expand(text)
    except UnicodeEncodeError as error:
        raise FieldError(name, not_utf8(error)) from error
    except ValueError as error:
        raise FieldError(name, f"`{text}`: {error}") from error
