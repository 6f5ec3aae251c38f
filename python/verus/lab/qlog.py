"""A sender's transmissions and metrics, read from its qlog: ours, or another stack's of any version (docs/qlog.md).

`qlog_events` reads the events of any form of file. This module turns each into points of a graph,
in linear time. A part that cannot be used is left out and counted.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verus.lab.qlog_events import Event, NotQlogError, Trace, content, traces

#: The metrics that are drawn, in bytes and ms, with their names in logs of different writers.
METRICS: Mapping[str, tuple[str, ...]] = {
    "congestion_window": ("congestion_window", "cwnd", "current_cwnd"),
    "bytes_in_flight": ("bytes_in_flight",),
    "latest_rtt": ("latest_rtt",),
    "smoothed_rtt": ("smoothed_rtt",),
    "min_rtt": ("min_rtt",),
}

#: The events with metrics: of the drafts, of 0.3, and of mvfst.
_METRICS_EVENTS = {
    "metrics_updated",
    "recovery_metrics_updated",
    "metric_update",
    "metrics_update",
    "congestion_metric_update",
}

#: The events that acknowledge packets: of received packets, of the drafts, and of mvfst.
_ACKNOWLEDGEMENT_EVENTS = {"packet_received", "packets_acked", "packet_ack"}

#: The events about the fate of packets.
_FEEDBACK_EVENTS = _METRICS_EVENTS | _ACKNOWLEDGEMENT_EVENTS | {"packet_lost"}

#: The most traces of one file that are drawn.
MOST_TRACES = 16

#: If a log's first event is later than this (s), its clock began earlier: times then count from the
#: first event.
_LATE_BEGIN_S = 1.0


@dataclass
class Log:
    """A sender's transmissions and metrics in a log: points of (time in s, value), each list in the order of time.

    Attributes:
        title: The title of the trace.
        sent: Bytes sent so far, at each packet that has a number: others are never acknowledged.
        acked: Bytes acknowledged so far, at each acknowledgement.
        lost: Bytes sent before a packet that is believed lost, at that belief.
        metrics: Those of `METRICS`, at each change.
        feedback: The number of events about the fate of packets: receptions, losses and metrics.
        cut: Whether its end is missing.
        skipped: The number of parts that were left out, by kind.
    """

    title: str
    sent: list[tuple[float, float]] = field(default_factory=list)
    acked: list[tuple[float, float]] = field(default_factory=list)
    lost: list[tuple[float, float]] = field(default_factory=list)
    metrics: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {name: [] for name in METRICS})
    feedback: int = 0
    cut: bool = False
    skipped: Counter[str] = field(default_factory=Counter)

    def left_out(self) -> str:
        """The parts that were left out, as a sentence; empty if there are none.

        Example:
            >>> Log("", skipped=Counter({"packets without a number": 2})).left_out()
            'Left out: 2 packets without a number.'
        """
        parts = ", ".join(f"{count} {what}" for what, count in self.skipped.items())
        return f"Left out: {parts}." if parts else ""


def read(path: Path) -> Log:
    """Reads the first trace that `read_all` finds.

    Raises:
        OSError, ValueError: As `read_all`.
    """
    return read_all(path)[0]


def read_all(path: Path) -> list[Log]:
    """Reads the traces of a log with events of sending and about the fate of packets, at most `MOST_TRACES`.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no log, or has no such trace.
    """
    try:
        text = content(path)
        logs: list[Log] = []
        empty: Log | None = None
        for trace in traces(text):
            log = _log(trace)
            if log.sent and log.feedback:
                logs.append(log)
            elif empty is None or (log.sent and not empty.sent):
                empty = log
            if len(logs) == MOST_TRACES:
                break
    except NotQlogError as error:
        raise ValueError(f"`{path}`: not a qlog: {error}") from error
    if not logs:
        problem = "no packet was sent in it"
        if empty is not None and empty.sent:
            problem = f"{len(empty.sent)} packets were sent in it, and nothing says what became of them"
        left_out = "" if empty is None else empty.left_out()
        raise ValueError(f"`{path}`: {problem}{'. ' + left_out if left_out else ''}")
    return logs


def _log(trace: Trace) -> Log:
    log = Log(title=trace.title)
    flights: defaultdict[tuple[str, str], _Flight] = defaultdict(_Flight)
    clock = _Clock(trace)
    sent = acked = 0.0
    for event in trace.events(log.skipped):
        at, data = clock.at(event), event.data
        if at is None:
            log.skipped["events without a time"] += 1
            continue
        log.feedback += event.kind in _FEEDBACK_EVENTS
        match event.kind:
            case "packet_sent":
                number, size = _packet_number(data), _size(data)
                if number is None:
                    log.skipped["packets without a number"] += 1
                elif size is None:
                    log.skipped["packets without a size"] += 1
                elif not flights[event.group, _space(data)].add(number, size, sent):
                    log.skipped["packets whose number is not above the one before"] += 1
                else:
                    sent += size
                    log.sent.append((at, sent))
            case kind if kind in _ACKNOWLEDGEMENT_EVENTS:
                news = 0.0
                flight = flights[event.group, _space(data)]
                for first, last in _acknowledged(data, log.skipped):
                    news += flight.acknowledge(first, last)
                if news:
                    acked += news
                    log.acked.append((at, acked))
            case "packet_lost":
                number = _packet_number(data)
                before = None if number is None else flights[event.group, _space(data)].sent_before(number)
                if before is None:
                    log.skipped["losses of packets that are not under way"] += 1
                else:  # it stays under way: it may be acknowledged after all
                    log.lost.append((at, before))
            case kind if kind in _METRICS_EVENTS:
                for name, names in METRICS.items():
                    value = next((found for each in names if (found := number_of(data.get(each))) is not None), None)
                    if value is not None:
                        log.metrics[name].append((at, value / trace.units_per_ms if name.endswith("rtt") else value))
            case "warning":
                log.cut |= "cut off" in str(data.get("message", ""))
    log.cut |= trace.cut
    return log


class _Clock:
    """The time of each event, in s, which never decreases."""

    def __init__(self, trace: Trace) -> None:
        self._per_s = 1000 * trace.units_per_ms
        self._is_delta = trace.time_format in ("delta", "relative_to_previous_event")
        self._sum = 0.0
        self._begin: float | None = None
        self._now = 0.0

    def at(self, event: Event) -> float | None:
        """The time of an event; None if it states none."""
        time = number_of(event.time)
        if time is None:
            return None
        if self._is_delta or event.is_delta:
            self._sum += time
            time = self._sum
        if self._begin is None:
            self._begin = 0.0 if 0 <= time <= _LATE_BEGIN_S * self._per_s else time
        self._now = max(self._now, (time - self._begin) / self._per_s)
        return self._now


class _Flight:
    """The packets of one number space. An acknowledged range takes time only for the packets that are new in it."""

    def __init__(self) -> None:
        self._numbers: list[int] = []  # ascending
        self._sizes: list[float] = []
        self._before: list[float] = []  # bytes sent before each
        self._next: list[int] = []  # for each, the next candidate under way: itself if it is, else a later one

    def add(self, number: int, size: float, sent: float) -> bool:
        """Adds a packet if its number is above those before; returns whether it was added."""
        if self._numbers and number <= self._numbers[-1]:
            return False
        self._next.append(len(self._numbers))
        self._numbers.append(number)
        self._sizes.append(size)
        self._before.append(sent)
        return True

    def acknowledge(self, first: int, last: int) -> float:
        """The bytes of the packets from `first` to `last` that were under way; marks them acknowledged."""
        news = 0.0
        at = self._under_way(bisect_left(self._numbers, first))
        while at < len(self._numbers) and self._numbers[at] <= last:
            news += self._sizes[at]
            self._next[at] = at + 1
            at = self._under_way(at + 1)
        return news

    def sent_before(self, number: int) -> float | None:
        """The bytes sent before a packet that is under way."""
        at = bisect_left(self._numbers, number)
        is_under_way = at < len(self._numbers) and self._numbers[at] == number and self._next[at] == at
        return self._before[at] if is_under_way else None

    def _under_way(self, at: int) -> int:
        """The first packet under way from `at`, or the number of all packets (union-find, by path halving)."""
        following = self._next
        while at < len(following) and following[at] != at:
            beyond = following[at]
            if beyond < len(following):
                following[at] = following[beyond]
            at = beyond
        return at


def _acknowledged(data: Mapping[str, Any], skipped: Counter[str]) -> Iterator[tuple[int, int]]:
    """The ranges of numbers that an event acknowledges: in ACK frames that were received, or as a separate list."""
    frames = data.get("frames")
    for frame in frames if isinstance(frames, list) else ():
        if isinstance(frame, Mapping) and frame.get("frame_type") == "ack":
            ranges = frame.get("acked_ranges")
            yield from _ranges(ranges, skipped)
    yield from _ranges(data.get("packet_numbers"), skipped)
    if (number := whole(data.get("packet_num"))) is not None:
        yield number, number


def _ranges(spans: Any, skipped: Counter[str]) -> Iterator[tuple[int, int]]:
    for span in spans if isinstance(spans, list) else ():
        ends = [whole(end) for end in span] if isinstance(span, list) else [whole(span)]
        if ends and (first := ends[0]) is not None and (last := ends[-1]) is not None:
            yield first, last
        else:
            skipped["ranges of acknowledgements that are none"] += 1


def _header(data: Mapping[str, Any]) -> Mapping[str, Any]:
    header = data.get("header")
    return header if isinstance(header, Mapping) else {}


def _packet_number(data: Mapping[str, Any]) -> int | None:
    """A packet's number; Retry, version negotiation and stateless reset have none."""
    return next(
        (number for part in (_header(data), data) if (number := whole(part.get("packet_number"))) is not None), None
    )


def _space(data: Mapping[str, Any]) -> str:
    """The number space of a packet: one each for Initial and Handshake, one for all others (RFC 9000 §12.3)."""
    candidates = (
        _header(data).get("packet_type"),
        *(data.get(name) for name in ("packet_type", "packet_number_space", "type")),
    )
    word = next((each.lower() for each in candidates if isinstance(each, str)), "")
    return word if word in ("initial", "handshake") else "application"


def _size(data: Mapping[str, Any]) -> float | None:
    """A packet's size, by any of its names in versions of qlog."""
    raw = data.get("raw")
    candidates = (
        raw.get("length") if isinstance(raw, Mapping) else None,
        _header(data).get("packet_size"),
        data.get("packet_size"),
    )
    return next((size for each in candidates if (size := number_of(each)) is not None and size >= 0), None)


def whole(value: Any) -> int | None:
    """A whole number, which may be a text, since many JSON readers lose numbers above 2⁵³."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def number_of(value: Any) -> float | None:
    """A finite number, which may be a text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
