"""Logs of flows as qlog: where those of runs go (`--qlog`; Rust writes them, docs/qlog.md), and what is read of one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verus.errors import FieldError
from verus.lab import bounded_reading
from verus.lab.results_folder import check_folder
from verus.lab.runner import Logs
from verus.lab.scenario import Run


@contextlib.contextmanager
def new_logs(target: Path, format_: str, runs: Sequence[Run], *, force: bool) -> Iterator[Logs]:
    """A folder to fill with logs of `runs`; they go to `target` if the block ends well, and vanish if it does not.

    Raises:
        FieldError: `target` holds something and `force` is not set, or it cannot be written.
    """
    check_folder(target, force=force, field="qlog")
    parent = target.absolute().parent
    draft = parent / f".{target.name}-{os.urandom(4).hex()}.part"
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        raise FieldError("qlog", f"`{target}` cannot be written ({error.strerror or error})") from error
    try:
        yield Logs(draft, format_, _told_apart(runs))
        target.mkdir(exist_ok=True)
        for path in draft.iterdir():
            path.replace(target / path.name)
    except OSError as error:
        if str(draft) not in str(error):
            raise  # of something else that the block reads or writes
        raise FieldError("qlog", str(error).replace(str(draft), str(target))) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _told_apart(runs: Sequence[Run]) -> list[str]:
    """Each run's channel, and what else two runs with flows of the same scheme and seed may differ in."""
    several_queues = len({run.queue for run in runs}) > 1
    several_transports = len({run.contestant.transport for run in runs}) > 1
    names = []
    for run in runs:
        parts = [run.trace]
        if several_queues:
            parts.append(run.queue)
        if several_transports and run.contestant.transport:
            parts.append(run.contestant.transport)
        if run.contestant.text != run.contestant.flows[0]:
            parts.append(run.contestant.text)
        names.append("_".join(parts))
    return names


#: What a log's name ends in: the current drafts, and version 0.3.
SUFFIXES = (".sqlog", ".qlog")

#: The metrics that are drawn, in bytes and ms; `cwnd` is what some writers of 0.3 call the window.
METRICS = ("congestion_window", "bytes_in_flight", "latest_rtt", "smoothed_rtt", "min_rtt")


@dataclass
class Log:
    """What a sender did, as a log tells it: points of (time in s, value), each list in the order of time.

    Attributes:
        title: What it is of.
        sent: Bytes sent so far, at each packet.
        acked: Bytes acknowledged so far, at each acknowledgement.
        lost: Bytes sent before a packet that is believed lost, at that belief.
        metrics: Those of `METRICS`, at each change.
        cut: Whether its writer cut it off.
    """

    title: str
    sent: list[tuple[float, float]] = field(default_factory=list)
    acked: list[tuple[float, float]] = field(default_factory=list)
    lost: list[tuple[float, float]] = field(default_factory=list)
    metrics: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {name: [] for name in METRICS})
    cut: bool = False


def read(path: Path) -> Log:
    """Reads a log of either format, ours or another writer's; events and fields that are not drawn are left alone.

    A record that was cut short at the end of a sequence is left out, as RFC 7464 has it.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no such log, or an event's fields are not what they must be.
    """
    try:
        title, events = _opened(bounded_reading.content(path, bounded_reading.MOST_LINES))
        log = Log(title=title)
        _take(log, events)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(f"`{path}`: not a qlog that is understood here ({type(error).__name__}: {error})") from error
    if not log.sent:
        raise ValueError(f"`{path}`: no packet was sent in it")
    return log


def _opened(text: bytes) -> tuple[str, Iterable[Mapping[str, Any]]]:
    """The title of a log, and its events."""
    if text[:1] == b"\x1e":
        head, *records = text[1:].split(b"\x1e")
        if records and not records[-1].endswith(b"\n"):
            records.pop()
        return str(json.loads(head).get("title", "")), map(json.loads, records)
    file = json.loads(text)
    (trace,) = file["traces"]
    return str(file.get("title") or trace.get("title") or ""), trace["events"]


def _take(log: Log, events: Iterable[Mapping[str, Any]]) -> None:
    sizes: dict[int, tuple[float, float]] = {}  # of packets under way, and what had been sent before each
    sent = acked = 0.0
    for event in events:
        at, data = float(event["time"]) / 1000, event["data"]
        match event["name"].partition(":")[2]:
            case "packet_sent":
                number, size = data["header"]["packet_number"], float(data["raw"]["length"])
                sizes[number] = (size, sent)
                sent += size
                log.sent.append((at, sent))
            case "packet_received":
                for frame in data.get("frames", ()):
                    if frame["frame_type"] == "ack":
                        news = sum(size for size, _ in _settled(sizes, frame.get("acked_ranges", ())))
                        if news:
                            acked += news
                            log.acked.append((at, acked))
            case "packet_lost":
                # It stays: it may be acknowledged after all.
                if (packet := sizes.get(data["header"]["packet_number"])) is not None:
                    log.lost.append((at, packet[1]))
            case "metrics_updated" | "recovery_metrics_updated":
                for name in METRICS:
                    value = data.get(name, data.get("cwnd") if name == "congestion_window" else None)
                    if value is not None and math.isfinite(float(value)):
                        log.metrics[name].append((at, float(value)))
            case "warning":
                log.cut |= "cut off" in data.get("message", "")


def _settled(sizes: dict[int, tuple[float, float]], ranges: Sequence[Sequence[int]]) -> Iterator[tuple[float, float]]:
    """The packets of these ranges that were under way; they are no more."""
    for span in ranges:
        first, last = span[0], span[-1]
        if last - first < len(sizes):
            numbers: Iterable[int] = range(first, last + 1)
        else:  # a range may claim anything
            numbers = [number for number in sizes if first <= number <= last]
        for number in numbers:
            if (packet := sizes.pop(number, None)) is not None:
                yield packet
