"""Logs in the manner of other QUIC stacks: whatever their version and form, the same packets make the same graph."""

from __future__ import annotations

import contextlib
import gzip
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from verus.lab import qlog

Command = Callable[..., Any]

#: 2025-11-13 in ms since 1970.
EPOCH_MS = 1_763_000_000_000

#: Events of each log, in ms: five packets of 1200 bytes, all of which are acknowledged.
SENT, ACKED = (0, 10, 20, 30, 40), (100, 110, 120, 130, 140)

SENT_POINTS = [(at / 1000, 1200.0 * count) for count, at in enumerate(SENT, 1)]
ACKED_POINTS = [(at / 1000, 1200.0 * count) for count, at in enumerate(ACKED, 1)]


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def packet(number: Any, kind: str = "1RTT") -> dict[str, Any]:
    return {"header": {"packet_type": kind, "packet_number": number}, "raw": {"length": 1200}}


def ack(*spans: Sequence[Any]) -> dict[str, Any]:
    return {"frame_type": "ack", "ack_delay": 0.2, "acked_ranges": list(spans)}


def received(*spans: Sequence[Any], kind: str = "1RTT") -> dict[str, Any]:
    return {**packet(9, kind), "frames": [{"frame_type": "padding"}, ack(*spans)]}


def events(times: Iterable[float] = (*SENT, *ACKED), namespace: str = "transport") -> list[dict[str, Any]]:
    data = [
        *((f"{namespace}:packet_sent", packet(number)) for number in range(5)),
        *((f"{namespace}:packet_received", received([number])) for number in range(5)),
    ]
    return [{"time": at, "name": name, "data": each} for at, (name, each) in zip(times, data, strict=True)]


def since(begin: float) -> list[float]:
    return [begin + at for at in (*SENT, *ACKED)]


DELTAS = [0, *(10,) * 4, 60, *(10,) * 4]


def document(*traces: Mapping[str, Any]) -> str:
    return json.dumps({"qlog_version": "0.3", "qlog_format": "JSON", "title": "t", "traces": traces})


def trace(found: Sequence[Any], **common: Any) -> dict[str, Any]:
    return {"vantage_point": {"type": "client"}, "common_fields": common, "events": found}


def sequence(found: Sequence[Any], separator: str = "\x1e", indent: int | None = None, **common: Any) -> str:
    head = {"qlog_version": "0.3", "qlog_format": "JSON-SEQ", "title": "t", "trace": {"common_fields": common}}
    return "".join(f"{separator}{json.dumps(each, indent=indent)}\n" for each in (head, *found))


def arrays(units: str | None = None, scale: int = 1) -> str:
    """Drafts 00 and 01: events are lists, numbers are strings, sizes are in headers."""
    rows: list[Any] = [
        [str(at * scale), "transport", "packet_sent", {"packet_type": "1RTT", "header": _small(number)}]
        for number, at in enumerate(SENT)
    ]
    rows += [
        [at * scale, "TRANSPORT", "PACKET_RECEIVED", {"packet_type": "1RTT", "frames": [ack([str(number)])]}]
        for number, at in enumerate(ACKED)
    ]
    rows.append([140 * scale, "recovery", "metric_update", {"latest_rtt": 100 * scale, "current_cwnd": 12_000}])
    content = {
        "configuration": {"time_offset": 0, **({"time_units": units} if units else {})},
        "common_fields": {"protocol_type": "QUIC_HTTP3", "reference_time": "17630000000"},
        "event_fields": ["relative_time", "CATEGORY", "EVENT", "DATA"],
        "events": rows,
    }
    return json.dumps({"qlog_version": "draft-00", "summary": {"trace_count": 1}, "traces": [content]})


def _small(number: int) -> dict[str, Any]:
    return {"packet_number": str(number), "packet_size": 1200}


FORMS: dict[str, str | bytes] = {
    "aioquic: absolute, without a format": document(trace(events(since(EPOCH_MS)), ODCID="00")),
    "quic-go: relative, the reference a number": sequence(events(), time_format="relative", reference_time=EPOCH_MS),
    "ngtcp2: relative to the start of a process": sequence(
        events(since(90_000)), time_format="relative", reference_time={"clock_type": "monotonic", "epoch": "unknown"}
    ),
    "neqo: relative to an epoch": sequence(events(namespace="quic"), time_format="relative_to_epoch"),
    "absolute, the reference a number": document(
        trace(events(since(EPOCH_MS)), time_format="absolute", reference_time=EPOCH_MS)
    ),
    "relative to 1970": sequence(
        events(since(EPOCH_MS)), reference_time={"clock_type": "system", "epoch": "1970-01-01T00:00:00.000Z"}
    ),
    "delta": document(trace(events(DELTAS), time_format="delta")),
    "relative to the event before": sequence(events(DELTAS), time_format="relative_to_previous_event"),
    "a JSON text a line": sequence(events(), separator=""),
    "a sequence of several lines each": sequence(events(), indent=2),
    "a document of several lines": json.dumps(json.loads(document(trace(events()))), indent=1),
    "events before what is common": json.dumps(
        {"traces": [{"events": events(DELTAS), "common_fields": {"time_format": "delta"}}]}
    ),
    "a byte-order mark": b"\xef\xbb\xbf" + document(trace(events())).encode(),
    "compressed": gzip.compress(sequence(events()).encode(), mtime=0),
    "picoquic: lists": arrays(),
    "mvfst: lists in microseconds": arrays("us", 1000),
    "numbers as texts": document(
        trace(
            [{**each, "time": str(each["time"])} for each in events()[:5]]
            + [
                {"time": 100 + 10 * at, "name": "transport:packet_received", "data": received([str(at), str(at)])}
                for at in range(5)
            ]
        )
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_packets_are_read_of_every_form(form: str, tmp_path: Path) -> None:
    log = qlog.read(write(tmp_path / "a.qlog", FORMS[form]))
    assert log.sent == SENT_POINTS
    assert log.acked == ACKED_POINTS
    assert not log.skipped
    assert not log.cut


def test_delays_in_microseconds_are_drawn_in_milliseconds(tmp_path: Path) -> None:
    log = qlog.read(write(tmp_path / "a.qlog", arrays("us", 1000)))
    assert log.metrics["latest_rtt"] == [(0.14, 100.0)]
    assert log.metrics["congestion_window"] == [(0.14, 12_000.0)]


HANDSHAKE = [("initial", 0), ("handshake", 0), ("1RTT", 0), ("1RTT", 1)]


def _handshake(*more: tuple[str, Mapping[str, Any]]) -> str:
    """Three number spaces, in each of which a packet has number 0; `more` happens before the acknowledgements."""
    logged: list[tuple[str, Mapping[str, Any]]] = [("packet_sent", packet(number, kind)) for kind, number in HANDSHAKE]
    logged += more
    logged += [("packet_received", received([0], kind="initial")), ("packet_received", received([0], kind="handshake"))]
    logged += [("packet_received", received([0, 1]))]
    return sequence([{"time": at, "name": f"quic:{name}", "data": data} for at, (name, data) in enumerate(logged)])


def test_number_spaces_are_kept_apart(tmp_path: Path) -> None:
    log = qlog.read(write(tmp_path / "a.sqlog", _handshake()))
    assert [value for _, value in log.acked] == [1200, 2400, 4800]


@pytest.mark.parametrize(
    ("name", "data", "left_out"),
    [
        ("packet_sent", {"header": {"packet_type": "retry"}, "raw": {"length": 120}}, "1 packets without a number"),
        ("packet_sent", {"header": {"packet_type": "version_negotiation"}}, "1 packets without a number"),
        ("packet_sent", {"header": {"packet_type": "1RTT", "packet_number": 2}}, "1 packets without a size"),
        ("packet_sent", packet(0), "1 packets whose number is not above the one before"),
        ("packet_lost", {"trigger": "time_threshold"}, "1 losses of packets that are not under way"),
        ("packet_received", received(["x"]), "1 ranges of acknowledgements that are none"),
        ("packet_received", {"header": {"packet_type": "retry"}}, ""),
        ("packet_dropped", {"raw": {"length": 30}}, ""),
        ("recovery_metrics_updated", {"min_rtt": "nan", "smoothed_rtt": None}, ""),
    ],
)
def test_what_cannot_be_used_is_left_out_and_counted(
    name: str, data: Mapping[str, Any], left_out: str, verus: Command, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.sqlog", _handshake((name, data)))
    log = qlog.read(path)
    assert (log.sent[-1][1], log.acked[-1][1]) == (4800, 4800)
    assert log.left_out() == (f"Left out: {left_out}." if left_out else "")
    assert verus("report", path).code == 0
    assert left_out in path.with_suffix(".html").read_text()


def test_a_loss_without_a_header_is_found_by_its_number(tmp_path: Path) -> None:
    """aioquic writes the number and the space beside each other."""
    log = qlog.read(write(tmp_path / "a.sqlog", _handshake(("packet_lost", {"type": "1RTT", "packet_number": 1}))))
    assert log.lost == [(0.004, 3600)]


@pytest.mark.parametrize(
    "bad", ["5", "null", '{"time":1}', '{"time":"x","name":"a:packet_sent","data":{}}', "{,}", "[1]"]
)
def test_a_record_that_is_no_event_is_left_out_and_counted(bad: str, tmp_path: Path) -> None:
    lines = [f"\x1e{record}" for record in sequence(events()).split("\x1e")[1:]]
    log = qlog.read(write(tmp_path / "a.sqlog", "".join([*lines[:3], f"\x1e{bad}\n", *lines[3:]])))
    assert log.acked == ACKED_POINTS
    assert log.skipped.total() == 1


def test_each_trace_of_a_file_is_drawn(verus: Command, tmp_path: Path) -> None:
    nothing = {"error_description": "no such file"}
    path = write(tmp_path / "a.qlog", document(trace(events()), nothing, trace([]), trace(events())))
    assert [log.sent for log in qlog.read_all(path)] == [SENT_POINTS] * 2
    assert verus("report", path).code == 0
    assert "Congestion graph of trace 2" in path.with_suffix(".html").read_text()


@pytest.mark.parametrize("name", ["a.sqlog.gz", "a.qlog.gz"])
def test_the_page_of_a_compressed_log_lies_beside_it(name: str, verus: Command, tmp_path: Path) -> None:
    assert verus("report", write(tmp_path / name, FORMS["compressed"])).code == 0
    assert (tmp_path / "a.html").exists() or (tmp_path / "a.sqlog.html").exists()


def test_a_document_that_was_cut_short_is_read_up_to_there(tmp_path: Path) -> None:
    text = document(trace(events()))
    log = qlog.read(write(tmp_path / "a.qlog", text[: text.index('"time": 130')]))
    assert log.acked == ACKED_POINTS[:3]
    assert log.cut


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (document(trace(events()[:5])), "5 packets were sent in it, and nothing says what became of them"),
        (document(), "no packet was sent in it"),
        ("{}", "it has no `traces`"),
        ("hello", "it is neither JSON with `traces` nor a sequence of JSON texts"),
        ('{"a": "b', "it is neither JSON with `traces` nor a sequence of JSON texts"),
        (document(trace([])).encode("utf-16"), "it is UTF-16; JSON is UTF-8"),
        (gzip.compress(b"{}", mtime=0)[:-9], "it is cut short"),
        (sequence(events(), separator="\x1e").split("\x1e")[1].replace("{", "[", 1), "it is neither JSON"),
    ],
)
def test_what_is_no_log_is_refused_in_words(text: str | bytes, why: str, verus: Command, tmp_path: Path) -> None:
    refused = verus("report", write(tmp_path / "a.qlog", text))
    assert refused.code == 2
    assert why in refused.err
    assert "Error" not in refused.err


def _hostile() -> dict[str, bytes]:
    sent = "".join(
        f'\x1e{{"time":{n},"name":"quic:packet_sent","data":{json.dumps(packet(n * 1000))}}}\n' for n in range(5_000)
    )
    claims = json.dumps(received(*[[1, 10**12]] * 50))
    gaps = json.dumps(received(*[[n * 1000 + 1, n * 1000 + 999] for n in range(50)]))
    log = "".join(
        f'\x1e{{"time":{n},"name":"a:packet_received","data":{{}}}}\n'.replace("{}", data)
        for n in range(200)
        for data in (claims, gaps)
    )
    return {
        "ranges that claim packets that nobody sent": (sequence([]) + sent + log).encode(),
        "quotes that never end": b'{"traces":[{"events":[' + b'"\\' * 200_000,
        "brackets that never end": b'{"traces":[{"events":[' + b"[" * 500_000,
        "lines that never end": b"{}\n" + b"[1,\n" * 100_000,
    }


@pytest.mark.real_time
@pytest.mark.parametrize("what", _hostile())
def test_a_log_takes_time_in_proportion_to_its_size(what: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.qlog", _hostile()[what])
    begin = time.process_time()
    with contextlib.suppress(ValueError):
        qlog.read(path)
    assert time.process_time() - begin < 10


def test_a_small_compressed_log_is_not_unpacked_without_end(tmp_path: Path) -> None:
    path = write(tmp_path / "a.qlog.gz", gzip.compress(b" " * (100 << 20), compresslevel=1))
    assert path.stat().st_size < 1_000_000
    with pytest.raises(ValueError, match="the gzip data: it expands to more than"):
        qlog.read(path)


def test_two_logs_that_would_share_a_page_are_refused(verus: Command, tmp_path: Path) -> None:
    paths = [write(tmp_path / name, FORMS["compressed"]) for name in ("a.qlog.gz", "a.sqlog.gz")]
    refused = verus("report", *paths)
    assert refused.code == 2
    assert "would share the page" in refused.err
    assert not (tmp_path / "a.html").exists()


def test_a_file_that_is_no_page_of_the_log_is_kept_without_force(verus: Command, tmp_path: Path) -> None:
    log, page = write(tmp_path / "a&b.qlog.gz", FORMS["compressed"]), write(tmp_path / "a&b.html", "mine")
    refused = verus("report", log)
    assert (refused.code, page.read_text()) == (2, "mine")
    assert "--force replaces it" in refused.err
    assert verus("report", log, "--force").code == 0
    assert verus("report", log).code == 0


def test_out_is_refused_for_a_log(verus: Command, tmp_path: Path) -> None:
    log = write(tmp_path / "a.qlog.gz", FORMS["compressed"])
    refused = verus("report", log, "--out", tmp_path / "out")
    assert (refused.code, refused.err[:28]) == (2, "verus: --out: is for the pag")
    assert not (tmp_path / "a.html").exists()
