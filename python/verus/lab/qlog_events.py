"""The events of a qlog file in any of its forms.

A file is one JSON document, a JSON text sequence (RFC 7464), or a JSON text a line; gzip may be
around each. Events are objects, or lists whose fields the trace names (drafts 00 and 01). A
document is not parsed as a whole. Its events are located by their brackets and parsed one by one,
so memory is bounded by the text and one event.
"""

from __future__ import annotations

import io
import itertools
import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verus.lab import bounded_reading

#: Endings of a log's name: the current drafts, 0.3, and those of other writers. Each may have `.gz`
#: behind it.
SUFFIXES = (".sqlog", ".qlog", ".qlogseq", ".qlognd")

#: The limit of one event, or of another value in a file, bytes; a larger one is left out.
_MOST_RECORD = 1 << 20

#: The size of the shortest event with any content, bytes.
_LEAST_EVENT = 16

#: The least limit of a gzip file's content, bytes: our logs stay below it.
_LEAST_UNPACKED = 65 << 20

_RECORD_SEPARATOR = b"\x1e"


def is_log_name(path: Path) -> bool:
    """Whether a file has the name of a log.

    Example:
        >>> is_log_name(Path("a.sqlog")), is_log_name(Path("a.qlog.gz")), is_log_name(Path("a.gz"))
        (True, True, False)
    """
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix in SUFFIXES


class NotQlogError(Exception):
    """The file is no qlog; the message says why."""


@dataclass
class Event:
    """One event.

    Attributes:
        time: Its time, as written.
        is_delta: Whether it counts from the event before.
        kind: Its name, without the namespace.
        data: Its data.
        group: Its connection, where the trace has several.
    """

    time: Any
    is_delta: bool
    kind: str
    data: Mapping[str, Any]
    group: str = ""


@dataclass
class Trace:
    """A trace: its description of its events, and their records.

    Attributes:
        title: Its title, or its file's.
        time_format: The format of times, as the trace names it.
        units_per_ms: The scale of its times and delays.
        cut: Whether its end is missing.
    """

    title: str
    time_format: str
    units_per_ms: float
    cut: bool
    _records: Callable[[], Iterator[bytes | None]]
    _fields: Sequence[str] = ()

    @classmethod
    def of(
        cls, fields_of_trace: Mapping[str, Any], title: Any, *, cut: bool, records: Callable[[], Iterator[bytes | None]]
    ) -> Trace:
        """A trace from its own JSON fields."""
        common, configuration = _object(fields_of_trace, "common_fields"), _object(fields_of_trace, "configuration")
        fields = fields_of_trace.get("event_fields")
        return cls(
            title=_text(title) or _text(fields_of_trace.get("title")),
            time_format=_text(common.get("time_format")) or _text(configuration.get("time_format")),
            units_per_ms=1000.0 if configuration.get("time_units") == "us" else 1.0,
            cut=cut,
            _records=records,
            _fields=[str(name).lower() for name in fields] if isinstance(fields, list) else (),
        )

    def events(self, skipped: Counter[str]) -> Iterator[Event]:
        """Each event that can be read; others are counted."""
        for record in self._records():
            parsed = None if record is None else _parsed(record)
            if isinstance(parsed, list) and self._fields:
                parsed = dict(zip(self._fields, parsed, strict=False))
            event = _event(parsed) if isinstance(parsed, Mapping) else None
            if event is None:
                skipped["events that cannot be read"] += 1
            else:
                yield event


def _event(parsed: Mapping[str, Any]) -> Event | None:
    name, data = parsed.get("name", parsed.get("event", parsed.get("event_type"))), parsed.get("data")
    if not isinstance(name, str) or not isinstance(data, Mapping):
        return None
    time, is_delta = parsed.get("time", parsed.get("relative_time")), False
    if time is None:
        time, is_delta = parsed.get("delta_time"), True
    return Event(time, is_delta, name.rpartition(":")[2].lower(), data, _text(parsed.get("group_id")))


def content(path: Path) -> bytes:
    """The unpacked content of a file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no file, or too large.
        NotQlogError: It is damaged, or its encoding is not that of JSON.
    """
    text = bounded_reading.content(path, bounded_reading.MOST_LINES)
    if text[:2] == b"\x1f\x8b":
        limit = min(max(_LEAST_UNPACKED, 100 * len(text)), bounded_reading.MOST_LINES)
        try:
            text = bounded_reading.gunzip(io.BytesIO(text), limit).getvalue()
        except ValueError as error:
            raise NotQlogError(f"the gzip data: {error}") from error
    if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise NotQlogError("it is UTF-16; JSON is UTF-8")
    return text.removeprefix(b"\xef\xbb\xbf")


def traces(text: bytes) -> Iterator[Trace]:
    """The traces of a file: one of a sequence, any number of a document.

    Raises:
        NotQlogError: It is neither.
    """
    if text[:1] == _RECORD_SEPARATOR:
        yield _sequence(text, _RECORD_SEPARATOR)
        return
    line_end = text.find(b"\n", 0, _MOST_RECORD)
    if line_end > 0 and isinstance(_parsed(text[:line_end]), Mapping) and not text[line_end:].isspace():
        yield _sequence(text, b"\n")
        return
    yield from _Document(text).traces()


def _sequence(text: bytes, separator: bytes) -> Trace:
    records = _split(text, separator)
    head = _parsed(next(records, None) or b"")
    if not isinstance(head, Mapping):
        raise NotQlogError("its first record is not a JSON object")
    # A last record that was cut short is left out (RFC 7464).
    end = text.rfind(separator) + 1 if separator == _RECORD_SEPARATOR else text.rfind(b"\n") + 1
    cut = not text.endswith(b"\n") and (len(text) - end > _MOST_RECORD or _parsed(text[end:]) is None)
    whole = text[: end - 1] if cut else text

    def rest() -> Iterator[bytes | None]:
        records = _split(whole, separator)
        next(records, None)
        return records

    return Trace.of(_object(head, "trace"), head.get("title"), cut=cut, records=rest)


def _split(text: bytes, separator: bytes) -> Iterator[bytes | None]:
    """The records between separators; None for one that is too long to be read."""
    at = 0
    while at < len(text):
        end = text.find(separator, at)
        end = len(text) if end < 0 else end
        if not text[at : min(end, at + 64)].isspace() and end > at:
            yield text[at:end] if end - at <= _MOST_RECORD else None
        at = end + 1


def _parsed(record: bytes) -> Any:
    """The JSON of a record; None if it is none."""
    try:
        return json.loads(record)
    except (ValueError, RecursionError):
        return None


def _object(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = of.get(name)
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


#: White space of JSON, and a value that is no text and has no brackets.
_SPACE, _PLAIN = re.compile(rb"[ \t\r\n]*"), re.compile(rb"[^\s,:\]}\[{\"]+")

#: A text (its end quote is empty if it is cut off) or a bracket. Matches never backtrack, so they
#: take linear time.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)|[\[\]{}]', re.DOTALL)


class _CutError(Exception):
    """The text ends, or is no JSON, before its last bracket."""


@dataclass
class _TraceSpan:
    """A trace in a document: its fields, the begin and end of each event, and the number of empty events."""

    fields: dict[str, Any] = field(default_factory=dict)
    ends: array[int] = field(default_factory=lambda: array("q"))
    short: int = 0
    is_cut: bool = True


class _Document:
    """A JSON document with traces. It is parsed down to the events, which are skipped by their brackets."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._title: Any = ""
        self._spans: list[_TraceSpan] = []
        self._has_traces = False

    def traces(self) -> Iterator[Trace]:
        """Its traces; one that is cut off has the events before the cut.

        Raises:
            NotQlogError: It has none.
        """
        try:
            end = self._space(self._members(self._space(0), self._of_file))
            if end < len(self._text):
                raise _CutError
        except _CutError:
            if not any(span.ends for span in self._spans):
                raise NotQlogError("it is neither JSON with `traces` nor a sequence of JSON texts") from None
        if not self._has_traces:
            raise NotQlogError("it has no `traces`")
        for span in self._spans:
            yield Trace.of(span.fields, self._title, cut=span.is_cut, records=lambda span=span: self._events(span))  # type: ignore[misc]

    def _events(self, span: _TraceSpan) -> Iterator[bytes | None]:
        for begin, end in zip(span.ends[::2], span.ends[1::2], strict=True):
            yield self._text[begin:end] if end - begin <= _MOST_RECORD else None
        yield from itertools.repeat(None, span.short)

    def _of_file(self, key: Any, at: int) -> int:
        if key == "traces" and self._text[at : at + 1] == b"[":
            self._has_traces = True
            return self._items(at, self._trace)
        end = self._skip(at)
        if key == "title":
            self._title = self._value(at, end)
        return end

    def _trace(self, at: int) -> int:
        if self._text[at : at + 1] != b"{":
            return self._skip(at)
        span = _TraceSpan()
        self._spans.append(span)

        def member(key: Any, at: int) -> int:
            if key == "events" and self._text[at : at + 1] == b"[":
                return self._items(at, event)
            end = self._skip(at)
            span.fields[str(key)] = self._value(at, end)
            return end

        def event(at: int) -> int:
            end = self._skip(at)
            if end - at < _LEAST_EVENT:
                span.short += 1
            else:
                span.ends.extend((at, end))
            return end

        end = self._members(at, member)
        span.is_cut = False
        return end

    def _members(self, at: int, take: Callable[[Any, int], int]) -> int:
        """Calls `take`, which skips a value, for each member of an object; returns the object's end."""

        def member(at: int) -> int:
            end = self._skip(at)
            colon = self._space(end)
            if self._text[at : at + 1] != b'"' or self._text[colon : colon + 1] != b":":
                raise _CutError
            return take(self._value(at, end), self._space(colon + 1))

        return self._items(at, member, b"{}")

    def _items(self, at: int, take: Callable[[int], int], brackets: bytes = b"[]") -> int:
        """Calls `take`, which skips a value, for each item of a list; returns the list's end."""
        text, opening, closing = self._text, brackets[:1], brackets[1:]
        if text[at : at + 1] != opening:
            raise _CutError
        at = self._space(at + 1)
        if text[at : at + 1] == closing:
            return at + 1
        while True:
            at = self._space(take(at))
            if text[at : at + 1] == closing:
                return at + 1
            if text[at : at + 1] != b",":
                raise _CutError
            at = self._space(at + 1)

    def _space(self, at: int) -> int:
        return _SPACE.match(self._text, at).end()  # type: ignore[union-attr]  # it matches nothing, too

    def _skip(self, at: int) -> int:
        """The end of the value that begins at `at`."""
        first = self._text[at : at + 1]
        if first not in (b"{", b"[", b'"'):
            literal = _PLAIN.match(self._text, at)
            if literal is None:
                raise _CutError
            return literal.end()
        depth = 0
        for token in _TOKEN.finditer(self._text, at):
            word = token[0][:1]
            if word == b'"':
                if not token[1]:
                    raise _CutError
            else:
                depth += 1 if word in b"{[" else -1
            if depth <= 0:
                return token.end()
        raise _CutError

    def _value(self, at: int, end: int) -> Any:
        return _parsed(self._text[at:end]) if end - at <= _MOST_RECORD else None
