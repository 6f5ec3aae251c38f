"""The extension module: its stub, its arrays, its errors, its way of stopping."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from verus import _verus
from verus.errors import FieldError

SCENARIO = {
    "trace": "rate:12",
    "queue": "infinite",
    "flows": [{"scheme": "verus:ratio=2"}, {"scheme": "verus:ratio=4", "start_s": 1.0}],
    "duration_s": 5.0,
}
#: Far longer than any test waits.
ENDLESS = json.dumps(SCENARIO | {"duration_s": 1e5})


def scenario(**changes: object) -> str:
    return json.dumps(SCENARIO | changes)


def test_the_stub_says_what_the_module_has() -> None:
    command = [sys.executable, "-m", "mypy.stubtest", "verus._verus", "--concise"]
    stubtest = subprocess.run(command, capture_output=True, text=True, check=False)
    assert stubtest.returncode == 0, stubtest.stdout + stubtest.stderr


def test_series_have_one_row_for_each_flow_and_bin() -> None:
    outcome = _verus.simulate(scenario(bin_ms=100.0))
    bins = len(outcome["capacity"]["time_s"])
    assert bins == 50
    assert {name: len(column) for name, column in outcome["series"].items()} == dict.fromkeys(
        outcome["series"], 2 * bins
    )
    assert np.array_equal(outcome["series"]["time_s"][:bins], outcome["capacity"]["time_s"])
    assert np.isnan(outcome["series"]["window_bytes"][bins : bins + 9]).all(), "the second flow starts after a second"
    assert outcome["series"]["phase"][bins : bins + 9] == [None] * 9
    assert set(outcome["series"]["phase"][:bins]) <= {"slow_start", "steady", "recovery", "silent"}
    assert outcome["records"] is None


def test_series_add_up_to_the_metrics() -> None:
    outcome = _verus.simulate(scenario())
    interval = outcome["metrics"]["interval_s"]
    carried = outcome["series"]["throughput_mbps"].sum() * 0.1
    assert carried / interval == pytest.approx(outcome["metrics"]["throughput_mbps"], rel=1e-6)


def test_records_hold_a_row_for_each_packet_sent() -> None:
    outcome = _verus.simulate(scenario(records=True))
    assert outcome["records"] is not None
    sent = sum(flow["sent"] for flow in outcome["counters"])
    assert {len(column) for column in outcome["records"].values()} == {sent}
    delays = outcome["records"]["departed_ms"] - outcome["records"]["sent_ms"]
    assert np.nanmean(delays) == pytest.approx(outcome["metrics"]["qdelay_mean_ms"], rel=1e-3)


def test_the_same_scenario_gives_the_same_outcome_however_it_is_run() -> None:
    texts = [scenario(seed=seed, loss=0.001) for seed in (1, 2, 1, 3)]
    alone = [_verus.simulate(text) for text in texts]
    for threads in (1, 2, None):
        together = _verus.simulate_many(texts, threads)
        assert [entry["metrics"] for entry in together] == [entry["metrics"] for entry in alone]
    assert alone[0]["metrics"] == alone[2]["metrics"] != alone[1]["metrics"]


def test_progress_rises_to_one() -> None:
    fractions: list[float] = []
    _verus.simulate(scenario(), fractions.append)
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    reports: list[tuple[int, float]] = []
    _verus.simulate_many([scenario()] * 3, None, lambda done, fraction: reports.append((done, fraction)))
    assert reports == sorted(reports)
    assert reports[-1] == (3, 1.0)


def test_progress_stops_the_run_by_returning_false() -> None:
    with pytest.raises(RuntimeError, match="cancelled"):
        _verus.simulate(ENDLESS, lambda _: False)
    with pytest.raises(RuntimeError, match="cancelled"):
        _verus.simulate_many([ENDLESS] * 3, 2, lambda *_: False)


def test_an_exception_in_progress_comes_back_as_it_is() -> None:
    def stumble(*_: object) -> bool:
        raise KeyError("stumbled")

    with pytest.raises(KeyError, match="stumbled"):
        _verus.simulate(ENDLESS, stumble)
    with pytest.raises(KeyError, match="stumbled"):
        _verus.simulate_many([ENDLESS], None, stumble)


def test_one_failure_stops_the_other_runs_and_is_the_one_reported() -> None:
    with pytest.raises(ValueError, match="unknown kind `blue`"):
        _verus.simulate_many([ENDLESS, scenario(queue="blue"), ENDLESS], 2)


@pytest.mark.parametrize("many", [False, True])
def test_ctrl_c_stops_a_run(many: bool) -> None:
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        _verus.simulate_many([ENDLESS] * 3) if many else _verus.simulate(ENDLESS)
    timer.join()


def test_the_interpreter_runs_on_while_rust_works() -> None:
    turns = 0
    done = threading.Event()

    def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    before = turns
    deadline = time.monotonic() + 0.3
    with pytest.raises(RuntimeError, match="cancelled"):
        _verus.simulate_many([ENDLESS], None, lambda *_: time.monotonic() < deadline)
    during = turns - before
    done.set()
    counter.join()
    assert during > 50


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "scenario: EOF"),
        (json.dumps({"trac": "rate:1"}), "unknown field `trac`"),
        (scenario(flows=[]), "flows: must be between 1"),
        (scenario(duration_s=-1), "duration_s: must be above 0"),
        (scenario(duration_s=None), "duration_s: must be above 0 and at most 1000000, not null"),
        (scenario(duration_s="1"), "duration_s: must be a number above 0 and at most 1000000, not `1`"),
        (scenario(ack_every=1.5), "ack_every: must be a whole number between 1 and 1000, not 1.5"),
        (
            scenario(flows=[{"scheme": "cubic", "bytes": 0}]),
            r"flows\[0\].bytes: must be a whole number between 1 and 9223372036854775807, not 0",
        ),
        (scenario(flows=[{"scheme": "cubic", "start_s": -1}]), r"flows\[0\].start_s: must be between 0 and 1000000"),
        (scenario(flows=[{"scheme": "cubic", "start_s": 2, "stop_s": 1}]), r"flows\[0\].stop_s: must be after start_s"),
        (scenario(queue="blue"), "unknown kind `blue`"),
        (scenario(trace="rate:0"), "is not a rate"),
        (scenario(flows=[{"scheme": "verus:ratio=1"}]), "ratio"),
        (scenario(flows=[{"scheme": "reno2000"}]), "unknown algorithm `reno2000`"),
    ],
)
def test_bad_scenarios_are_value_errors_that_name_the_field(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _verus.simulate(text)
    with pytest.raises(ValueError, match=message):
        _verus.simulate_many([text])


def test_the_types_of_a_scenario_are_those_of_the_schema() -> None:
    repository = Path(__file__).parents[2]
    maker = runpy.run_path(str(repository / "scripts" / "scenario_types.py"))
    made = maker["written"](_verus.scenario_schema())
    assert (repository / "python" / "verus" / "lab" / "schema.py").read_text() == made, "run scripts/scenario_types.py"


@pytest.mark.parametrize(
    ("scheme", "first", "expected"),
    [
        ("verus", False, "verus:gain=2"),
        ("verus:ratio=4", True, "verus:gain=2,ratio=4"),
        ("a/tide.py:Tide", False, "a/tide.py:Tide:gain=2"),
        ("tide.py:Tide:floor_ms=1", False, "tide.py:Tide:floor_ms=1,gain=2"),
        ("python:Tide", False, "python:Tide:gain=2"),
    ],
)
def test_settings_are_added_to_a_scheme_of_any_kind(scheme: str, first: bool, expected: str) -> None:
    assert _verus.with_settings(scheme, "gain=2", first) == expected


def test_a_file_in_a_text_is_found_by_its_place_in_characters(tmp_path: Path) -> None:
    path = tmp_path / "ä.down"
    path.write_text("1\n2\n")
    text = f"city-driving-3g-up@3[0:9]+{path}[0:0.002]"
    ((begin, end, named),) = _verus.named_files("channel", text)
    assert (text[begin:end], named) == (str(path), path)


def test_a_refused_field_is_data() -> None:
    with pytest.raises(FieldError) as refused:
        _verus.check_scenario(scenario(flows=[{"scheme": "cubic", "start_s": -1.0}]))
    assert (refused.value.field, refused.value.other) == ("flows[0].start_s", None)
    assert refused.value.problem == "must be between 0 and 1000000, not -1.0"
    with pytest.raises(FieldError) as refused:
        _verus.check_scenario(scenario(light_trace="a.light"))
    assert (refused.value.field, refused.value.other) == ("packet_bytes", "light_trace")


def test_the_default_scenario_is_what_the_schema_says() -> None:
    fields = _verus.scenario_schema()["properties"]
    assert {name: rule["default"] for name, rule in fields.items()} == _verus.default_scenario()


def test_files_that_cannot_be_read_are_os_errors(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for read in (_verus.analyze_log, _verus.trace_convert):
        with pytest.raises(FileNotFoundError, match="missing"):
            read(missing)
        with pytest.raises(IsADirectoryError):
            read(tmp_path)
    for read_text in (_verus.check_channel, _verus.trace_read, _verus.trace_info):
        with pytest.raises(IsADirectoryError):
            read_text(str(tmp_path))
    with pytest.raises(OSError, match="cannot write"):
        _verus.trace_write([1, 2], missing / "trace")


@pytest.mark.parametrize(
    ("times", "message"), [([], "no opportunities"), ([-1, 2], "negative"), ([3, 2], "backwards"), ([0], "0 ms")]
)
def test_times_that_make_no_trace_are_refused_and_leave_no_file(tmp_path: Path, times: list[int], message: str) -> None:
    path = tmp_path / "trace"
    with pytest.raises(ValueError, match=message):
        _verus.trace_write(np.array(times, dtype=np.int64), path)
    assert not list(tmp_path.iterdir())


def test_a_link_log_is_measured(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("# base timestamp: 0\n0 + 1504\n0 # 1504\n10 # 1504\n10 - 1504 10\n20 # 1504\n")
    analysis = _verus.analyze_log(log)
    assert analysis["metrics"]["qdelay_mean_ms"] == 10
    assert len(analysis["series"]["time_s"]) == len(analysis["capacity"]["capacity_mbps"])


def test_every_listed_channel_scheme_and_queue_is_accepted() -> None:
    for scheme in _verus.list_schemes():
        if any(key["default"] == "required" for key in scheme["keys"]):
            continue  # a model is nothing without its file
        assert _verus.check_scheme(scheme["name"])["scheme"] == scheme["name"]
    for queue in _verus.list_queues():
        assert _verus.check_queue(queue["example"])["queue"] == queue["name"]
    channels = _verus.list_channels()
    names = {entry["name"] for entry in channels}
    assert len(names) == len(channels)
    assert names >= {entry["name"] for entry in _verus.catalogue()}
    for channel in channels:
        if channel["kind"] == "built-in":
            assert _verus.check_channel(channel["name"])["kind"] == "built-in"


def test_a_built_in_channel_repeats_with_its_seed() -> None:
    name = next(entry["name"] for entry in _verus.list_channels() if entry["kind"] == "built-in")
    first = _verus.trace_generate(name, 1, 10.0)
    assert np.array_equal(first, _verus.trace_generate(name, 1, 10.0))
    assert not np.array_equal(first, _verus.trace_generate(name, 2, 10.0))
    with pytest.raises(ValueError, match="duration_s"):
        _verus.trace_generate(name, 1, float("nan"))
    with pytest.raises(ValueError, match="rate:12"):
        _verus.trace_generate("rate:12", 1, 10.0)


def test_a_whole_number_in_a_scheme_stays_one() -> None:
    scheme = _verus.check_scheme("verus:ratio=2,decrement_ms=0.5,mode=paper")
    assert scheme["params"] == {"ratio": 2, "decrement_ms": 0.5, "mode": "paper"}
    assert isinstance(scheme["params"]["ratio"], int)
