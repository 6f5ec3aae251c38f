"""`verus compare --qlog`: files, their names and numbers, and what happens where there can be none."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verus import _verus
from verus.lab import qlog, runner

Command = Callable[..., Any]

RUN = ("compare", "--trace", "rate:8", "--duration", "5", "--queue", "droptail:bytes=60kB", "--json")


def events(path: Path) -> list[dict[str, Any]]:
    """The events of a log, in either format."""
    if path.suffix == ".qlog":
        (trace,) = json.loads(path.read_bytes())["traces"]
        return list(trace["events"])
    _, head, *records = path.read_bytes().split(b"\x1e")
    assert json.loads(head)["file_schema"] == "urn:ietf:params:qlog:file:sequential"
    return [json.loads(record) for record in records]


@pytest.mark.parametrize(("format_", "suffix"), [(None, "sqlog"), ("draft", "sqlog"), ("0.3", "qlog")])
def test_every_flow_has_a_log(format_: str | None, suffix: str, verus: Command, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    format_options = () if format_ is None else ("--qlog-format", format_)
    run = verus(*RUN, "--scheme", "verus", "cubic", "--flows", "2", "--qlog", logs, *format_options)
    names = [f"{scheme}_rate-8_seed1_flow{flow}.{suffix}" for scheme in ("cubic", "verus") for flow in (0, 1)]
    assert sorted(path.name for path in logs.iterdir()) == names
    for line in run.out.splitlines():
        row = json.loads(line)
        for flow in row["per_flow"]:
            log_events = events(logs / f"{row['scheme']}_rate-8_seed1_flow{flow['flow']}.{suffix}")
            sent = [event for event in log_events if event["name"].endswith(":packet_sent")]
            assert all(event["data"]["raw"]["length"] == row["packet_bytes"] for event in sent)
            # Sent packets left the bottleneck, except those dropped or still queued at the end.
            sent_mbps = len(sent) * row["packet_bytes"] * 8e-6 / row["duration_s"]
            assert 0 < flow["throughput_mbps"] <= sent_mbps < 1.1 * flow["throughput_mbps"] + 0.1


@pytest.mark.parametrize("format_", ["draft", "0.3"])
def test_packets_and_losses_are_those_that_the_simulator_counts(format_: str, tmp_path: Path) -> None:
    scenario = {"trace": "rate:8", "queue": "droptail:bytes=60kB", "duration_s": 10, "flows": [{"scheme": "cubic"}] * 2}
    (outcome,) = _verus.simulate_many([json.dumps(scenario)], qlog=(tmp_path, format_, ["a"]))
    assert not isinstance(outcome, RuntimeError)
    for path, counted in zip(sorted(tmp_path.iterdir()), outcome["counters"], strict=True):
        names = [event["name"].partition(":")[2] for event in events(path)]
        assert names.count("packet_sent") == counted["sent"] > 0
        assert names.count("packet_lost") == counted["lost"] > 0


def test_a_log_replaces_no_file(tmp_path: Path) -> None:
    scenario = json.dumps({"trace": "rate:8", "duration_s": 1, "flows": [{"scheme": "cubic"}]})
    _verus.simulate_many([scenario], qlog=(tmp_path, "draft", ["a"]))
    (path,) = tmp_path.iterdir()
    path.write_text("mine")
    with pytest.raises(OSError, match=re.escape(str(path))):
        _verus.simulate_many([scenario], qlog=(tmp_path, "draft", ["a"]))
    assert path.read_text() == "mine"


def test_a_run_is_the_same_with_logs(verus: Command, tmp_path: Path) -> None:
    without = verus(*RUN, "--scheme", "verus").out
    assert verus(*RUN, "--scheme", "verus", "--qlog", tmp_path / "logs").out == without


def test_runs_that_differ_in_queue_or_mix_have_logs_of_their_own(verus: Command, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    queues = ("--queue", "codel", "droptail:bytes=60kB")
    verus(*RUN, *queues, "--scheme", "cubic", "--mix", "cubic+verus", "--repeat", "2", "--qlog", logs)
    assert len(list(logs.iterdir())) == 2 * 2 * 3


def test_results_and_logs_together(verus: Command, tmp_path: Path) -> None:
    out, logs = tmp_path / "out", tmp_path / "logs"
    compared = verus(
        "compare", "--trace", "rate:8", "--duration", "2", "--scheme", "cubic", "--out", out, "--qlog", logs
    )
    assert f"Logs: {logs}" in compared.err
    assert (out / "run.json").exists()
    assert len(list(logs.iterdir())) == 1


def test_what_is_there_stays_unless_force_says_otherwise(verus: Command, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "mine").write_text("mine")
    refused = verus(*RUN, "--scheme", "cubic", "--qlog", logs)
    assert refused.code == 2
    assert "qlog" in refused.err
    assert "not empty" in refused.err
    assert sorted(path.name for path in logs.iterdir()) == ["mine"]
    for _ in range(2):
        verus(*RUN, "--scheme", "cubic", "--qlog", logs, "--force")
        assert sorted(path.name for path in logs.iterdir()) == ["cubic_rate-8_seed1_flow0.sqlog", "mine"]
    assert [path.name for path in tmp_path.iterdir() if path.name != ".cache"] == ["logs"]


@pytest.mark.parametrize(
    ("place", "more", "problem"),
    [
        ("file", (), "is not a folder"),
        ("file/logs", (), "is not a folder"),
        ("/proc/none/logs", (), "cannot be written"),
        ("logs", ("--qlog-format", "0.4"), "0.4"),
    ],
)
def test_a_bad_place_or_format_is_one_error_and_leaves_nothing(
    place: str, more: tuple[str, ...], problem: str, verus: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    refused = verus(*RUN, "--scheme", "cubic", "--qlog", tmp_path / place, *more)
    assert refused.code == 2
    assert problem in refused.err
    assert refused.out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_what_is_wrong_with_a_run_is_not_said_of_its_logs(verus: Command, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    refused = verus("compare", "--trace", "missing.trace", "--scheme", "cubic", "--json", "--qlog", logs)
    assert refused.code == 2
    assert "missing.trace" in refused.err
    assert "qlog" not in refused.err
    assert not logs.exists()


def test_a_log_that_cannot_be_written_is_one_error_that_names_its_place(
    verus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    run = runner.Logs.of
    monkeypatch.setattr(runner.Logs, "of", lambda self, at: (run(self, at)[0] / "gone", *run(self, at)[1:]))
    refused = verus(*RUN, "--scheme", "cubic", "--qlog", logs)
    assert refused.code == 2
    assert "qlog" in refused.err
    assert f"{logs}/gone" in refused.err
    assert refused.out == ""
    assert [path.name for path in tmp_path.iterdir() if path.name != ".cache"] == []


def test_a_format_needs_a_place(verus: Command) -> None:
    refused = verus(*RUN, "--scheme", "cubic", "--qlog-format", "0.3")
    assert refused.code == 2
    assert "--qlog DIR" in refused.err


@pytest.mark.parametrize("format_", ["draft", "0.3"])
def test_what_is_read_of_a_log_is_what_the_simulator_counts(format_: str, tmp_path: Path) -> None:
    scenario = {"trace": "rate:8", "queue": "droptail:bytes=60kB", "duration_s": 10, "flows": [{"scheme": "cubic"}]}
    (outcome,) = _verus.simulate_many([json.dumps(scenario)], qlog=(tmp_path, format_, ["a"]))
    assert not isinstance(outcome, RuntimeError)
    (path,) = tmp_path.iterdir()
    log = qlog.read(path)
    (counted,) = outcome["counters"]
    assert len(log.sent) == counted["sent"]
    assert log.sent[-1][1] == 1500 * counted["sent"]
    assert len(log.lost) == counted["lost"] > 0
    in_flight = log.metrics["bytes_in_flight"][-1][1]
    assert log.sent[-1][1] - log.acked[-1][1] == in_flight + 1500 * counted["lost"]
    assert all(len(points) > 10 for name, points in log.metrics.items() if name != "min_rtt")
    assert log.metrics["min_rtt"][-1][1] == pytest.approx(41.5, abs=0.1)
    assert not log.cut


@pytest.mark.parametrize("format_", ["draft", "0.3"])
def test_report_draws_the_congestion_graph_of_a_log(format_: str, verus: Command, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    verus(*RUN, "--scheme", "cubic", "--qlog", logs, "--qlog-format", format_)
    (log,) = logs.iterdir()
    drawn = verus("report", log)
    assert drawn.code == 0
    page = log.with_suffix(".html")
    assert f"Report: {page}" in drawn.err
    text = page.read_text()
    for words in (
        "Congestion graph",
        "bytes in flight",
        "smoothed",
        "acknowledged",
        "lost",
        "cubic, simulated, rate:8",
    ):
        assert words in text


def test_a_log_of_another_writer_is_read_too(tmp_path: Path) -> None:
    events = [
        {"time": 0.5, "name": "transport:packet_sent", "data": _packet(0)},
        {"time": 0.5, "name": "transport:packet_sent", "data": _packet(1)},
        {"time": 9.0, "name": "http:frame_created", "data": {}},
        {"time": 40.0, "name": "transport:packet_received", "data": {"frames": [{"frame_type": "padding"}, _ack([0])]}},
        {"time": 40.0, "name": "recovery:metrics_updated", "data": {"cwnd": 15928, "latest_rtt": 39.5}},
        {"time": 50.0, "name": "recovery:packet_lost", "data": _packet(1)},
        {"time": 60.0, "name": "transport:packet_received", "data": {"frames": [_ack([0, 2**62])]}},
    ]
    path = tmp_path / "other.qlog"
    path.write_text(json.dumps({"qlog_version": "0.3", "qlog_format": "JSON", "traces": [{"events": events}]}))
    log = qlog.read(path)
    assert log.sent == [(0.0005, 1200), (0.0005, 2400)]
    assert log.acked == [(0.04, 1200), (0.06, 2400)]
    assert log.lost == [(0.05, 1200)]
    assert log.metrics["congestion_window"] == [(0.04, 15928)]


def _packet(number: int) -> dict[str, Any]:
    return {"header": {"packet_type": "1RTT", "packet_number": number}, "raw": {"length": 1200}}


def _ack(span: list[int]) -> dict[str, Any]:
    return {"frame_type": "ack", "acked_ranges": [span]}


def test_a_sequence_that_was_cut_short_is_read_up_to_there(tmp_path: Path) -> None:
    scenario = json.dumps({"trace": "rate:8", "duration_s": 1, "flows": [{"scheme": "cubic"}]})
    _verus.simulate_many([scenario], qlog=(tmp_path, "draft", ["a"]))
    (path,) = tmp_path.iterdir()
    whole = qlog.read(path)
    path.write_bytes(path.read_bytes()[:20_000])
    assert 0 < len(qlog.read(path).sent) < len(whole.sent)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"\x1e",
        b"\x1e{}\n",
        b"\x1e[]\n",
        b'\x1e{}\n\x1e{"time":0}\n',
        b'\x1e{}\n\x1e{"time":"a","name":"a:b","data":{}}\n',
        b'{"traces":[{"events":[{"time":0,"name":"a:packet_sent","data":{}}]}]}',
        b'{"traces":[]}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_what_is_no_log_is_one_error_that_names_it(text: bytes, verus: Command, tmp_path: Path) -> None:
    path = tmp_path / "bad.sqlog"
    path.write_bytes(text)
    refused = verus("report", path)
    assert refused.code == 2
    assert str(path) in refused.err
    assert "Traceback" not in refused.err
    assert not path.with_suffix(".html").exists()
