"""The Python API: typed values in, arrays and tables out."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import verus
from verus import Flow, Link, Metrics, Trace, compare, simulate
from verus.api import LinkOptions
from verus.errors import FieldError
from verus.lab.results import Results
from verus.lab.scenario import DEFAULTS, Settings
from verus.lab.study import KEYS, planned_runs


def test_records_are_arrays_of_one_length() -> None:
    result = simulate(link=Link.constant(5), flows=[Flow("verus", ratio=2), Flow("cubic", start_s=1)], duration_s=3)
    assert len(result.flows) == 2
    for flow in result.flows:
        lengths = {
            len(getattr(flow, name)) for name in ("sent_ms", "rtt_ms", "qdelay_ms", "size_bytes", "window_bytes")
        }
        assert len(lengths) == 1
        assert lengths.pop() > 100
        observed = np.isfinite(flow.rtt_ms)
        assert np.all(flow.rtt_ms[observed] >= 40 - 1e-6)
    assert result.flows[1].sent_ms.min() >= 1000
    assert result.to_arrow().num_rows == sum(len(flow.sent_ms) for flow in result.flows)


def test_queueing_delay_of_the_records_is_that_of_the_metrics() -> None:
    result = simulate(link=Link.constant(5), flows=[Flow("cubic")], duration_s=5)
    assert np.nanmean(result.flows[0].qdelay_ms) == pytest.approx(result.metrics["qdelay_mean_ms"], rel=0.01)


def test_without_records_there_are_series() -> None:
    result = simulate(link=Link.constant(5), flows=[Flow("verus")], duration_s=3, records=False)
    assert len(result.flows[0].rtt_ms) == 0
    assert len(result.series["time_s"]) == 30
    assert result.to_arrow().num_rows == 30


def test_the_same_seed_gives_the_same_arrays_and_another_does_not() -> None:
    def run(seed: int) -> np.ndarray:
        link = Link.from_trace("city-driving-3g-up", loss=0.01)
        return simulate(link=link, flows=[Flow("verus")], duration_s=3, seed=seed).flows[0].sent_ms

    assert np.array_equal(run(7), run(7))
    assert not np.array_equal(run(7), run(8))


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: Flow("quick"), "scheme"),
        (lambda: Flow("verus", speed=2), "scheme"),
        (lambda: Flow("verus", start_s=-1), "start_s"),
        (lambda: Flow("verus", stop_s=float("nan")), "stop_s"),
        (lambda: Link.constant(0), "mbps"),
        (lambda: simulate(link=Link.constant(5), flows=[]), "flows"),
        (lambda: simulate(link=Link.constant(5), flows=[Flow("cubic")], duration_s=0), "duration_s"),
        (lambda: simulate(link=Link.constant(5), flows=[Flow("cubic")], packet_bytes=0), "packet_bytes"),
        (lambda: simulate(link=Link.constant(5, queue="bucket"), flows=[Flow("cubic")]), "queue:"),
        (lambda: simulate(link="rate:5", flows=[Flow("cubic")]), "link"),
        (lambda: simulate(link=Link.constant(5), flows=Flow("cubic")), "flows"),
        (lambda: simulate(link=Link.constant(5), flows=["cubic"]), "flows"),
        (lambda: simulate(link=Link.constant(5, loss=2), flows=[Flow("cubic")]), "loss"),
        (lambda: simulate(link=Link(trace="nowhere"), flows=[Flow("cubic")]), "trace:"),
        (lambda: compare(traces=[]), "traces"),
        (lambda: compare(schemes=[]), "schemes"),
        (lambda: compare(traces="rate:5"), "traces"),
        (lambda: compare(traces=[5]), "traces"),
        (lambda: compare(schemes="cubic"), "schemes"),
        (lambda: compare(queues="codel"), "queues"),
        (lambda: compare(mixes="cubic*2"), "mixes"),
        (lambda: compare(flows="2"), "flows"),
        (lambda: compare(flows=1.5), "flows"),
        (lambda: compare(seed=1.5), "seed"),
        (lambda: compare(seed="1"), "seed"),
        (lambda: compare(traffic=3), "traffic"),
        (lambda: compare(threads=0), "threads"),
        (lambda: compare(repeat=0), "repeat"),
        (lambda: Flow("cubic", bytes=0), "bytes"),
        (lambda: Flow("cubic", bytes=1, traffic="full"), "bytes"),
        (lambda: Flow("cubic", traffic="bursts"), "traffic"),
        (lambda: compare(traffic="files"), "traffic"),
        (lambda: Trace([]), "times_ms"),
        (lambda: Trace([3, 2]), "times_ms"),
        (lambda: Trace([0]), "times_ms"),
        (lambda: Trace(["a"]), "times_ms"),
        (lambda: Trace([0.1, 0.2, 5.9]), "times_ms"),  # type: ignore[list-item]
        (lambda: Trace(np.array([3, 2**63], dtype=np.uint64)), "times_ms"),
        (lambda: Trace(np.array([1.0, np.nan])), "times_ms"),
        (lambda: Trace([1, 2**70]), "times_ms"),
        (lambda: Trace([1], duration_s=float("inf")), "duration_s"),
        (lambda: Trace.generate("nowhere"), "channel"),
        (lambda: Trace.generate("city-driving-3g-up", duration_s=0), "duration_s"),
    ],
)
def test_a_bad_value_raises_with_its_field(call: object, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        call()  # type: ignore[operator]


def test_compare_has_every_setting_of_a_simulation_with_its_default() -> None:
    real_time = {"emulate", "virtual", "transports"}  # `verus compare --emulate` alone
    parameters = inspect.signature(compare).parameters
    settings = {entry.name: entry.default for entry in dataclasses.fields(Settings) if entry.name not in real_time}
    assert parameters.keys() - {"threads", "progress"} == settings.keys()
    assert {name: parameters[name].default for name in settings} == settings
    with pytest.raises(TypeError, match="speed"):
        compare(speed=3)  # type: ignore[call-arg]


def test_a_link_has_the_options_that_its_makers_name() -> None:
    assert {"trace", *LinkOptions.__annotations__} == {entry.name for entry in dataclasses.fields(Link)}


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    trace = tmp_path / "town"
    trace.write_text("5\n")
    comparison = compare(traces=[trace], schemes=["cubic"], seed=np.int64(3), duration_s=np.int64(1), flows=np.int8(2))
    assert [(row["seed"], row["flows"]) for row in comparison.rows()] == [(3, 2)]


def test_progress_may_stop_the_runs() -> None:
    class EnoughError(Exception):
        pass

    def progress(_done: int, _total: int, _share: float) -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        compare(traces=["rate:5"], schemes=["cubic"], duration_s=100000, progress=progress)


def test_progress_reaches_the_end() -> None:
    reports: list[tuple[int, int, float]] = []
    compare(traces=["rate:5"], schemes=["cubic", "vegas"], duration_s=2, progress=lambda *what: reports.append(what))
    assert reports[-1] == (2, 2, 1.0)
    assert [share for _, _, share in reports] == sorted(share for _, _, share in reports)


def test_a_trace_written_is_the_trace_read(tmp_path: Path) -> None:
    trace = Trace.generate("campus-pedestrian-lte-down", duration_s=5, seed=3)
    for name in ("town", "town.gz", "town.xz"):
        trace.write(tmp_path / name)
        again = Trace.read(tmp_path / name)
        assert np.array_equal(again.times_ms, trace.times_ms)
    assert Trace.info(tmp_path / "town")["opportunities"] == len(trace.times_ms)


def test_a_stretch_of_a_channel_is_read_and_keeps_its_length(tmp_path: Path) -> None:
    (tmp_path / "town").write_text("0\n500\n4000\n")
    trace = Trace.read(f"{tmp_path / 'town'}[0.5:3]")
    assert trace.times_ms.tolist() == [0]
    assert trace.duration_s == 2.5
    assert trace.mean_mbps == pytest.approx(1500 * 8 / 1e6 / 2.5)
    assert Trace.info(f"{tmp_path / 'town'}[0.5:3]")["duration_s"] == 2.5
    whole = Trace.generate("city-driving-3g-up", duration_s=20, seed=3).times_ms
    cut = Trace.read("city-driving-3g-up@3[5:15]")
    assert np.array_equal(cut.times_ms, whole[(whole >= 5000) & (whole < 15000)] - 5000)


def test_a_realisation_is_shared_by_runs_of_different_seeds(tmp_path: Path) -> None:
    (tmp_path / "town").write_text("".join(f"{time}\n" for time in range(1, 3000, 3)))
    joined = f"city-driving-3g-up@1[0:2]+{tmp_path / 'town'}[1:]"
    comparison = compare(traces=["city-driving-3g-up@1", joined], schemes=["cubic"], duration_s=3, repeat=2)
    assert len(set(comparison.table.column("trace_sha256").to_pylist())) == 2
    pinned, mixed = comparison.results.config["channels"]
    assert (pinned["kind"], mixed["kind"]) == ("built-in", "joined")
    assert mixed["duration_s"] == pytest.approx(2 + 2.998 - 1)


def test_users_have_connections_and_files_their_times(tmp_path: Path) -> None:
    flows = [Flow("cubic", traffic="files:bytes=3000,gap_s=0.5"), Flow("cubic", bytes=1500, start_s=1.2), Flow("vegas")]
    result = simulate(link=Link.constant(1000), flows=flows, duration_s=2)
    files, once, bulk = result.flows
    assert files.connections["connection"].tolist() == list(range(len(files.connections["start_s"])))
    assert files.metrics["completions"] == len(files.connections["start_s"]) >= 3
    assert np.diff(files.connections["start_s"]) == pytest.approx(0.5 + files.metrics["completion_mean_s"], abs=0.01)
    assert once.connections["file_bytes"].tolist() == once.connections["delivered_bytes"].tolist() == [1500]
    assert 1.22 <= once.connections["end_s"][0] < 1.3
    assert len(bulk.connections["start_s"]) == 0
    assert bulk.metrics["completions"] is None
    assert bulk.metrics["on_s"] == 2
    table = result.results.connections
    assert table is not None
    assert table.num_rows == len(files.connections["start_s"]) + 1
    result.results.write(tmp_path)
    again = Results.read(tmp_path).connections
    assert again is not None
    assert again.to_pylist() == table.to_pylist()
    assert simulate(link=Link.constant(5), flows=[Flow("cubic")], duration_s=1).results.connections is None


def test_on_and_off_are_the_same_for_two_schemes() -> None:
    traffic = "on-off:off_s=2,mean_mb=1,variance=0.5,max_mb=4"
    comparison = compare(traces=["rate:10"], schemes=["cubic", "vegas"], flows=2, traffic=traffic, duration_s=20)
    table = comparison.results.connections
    assert table is not None
    first, second = (
        table.filter(pc.equal(table["run"], run)).select(["flow", "connection", "start_s", "end_s"]) for run in (0, 1)
    )
    assert first.num_rows > 4
    assert first.equals(second)
    assert all(row["per_flow"][0]["on_s"] < 20 for row in comparison.rows())


def test_a_raw_log_becomes_exactly_the_trace_that_was_distributed(shared: Path) -> None:
    for raw in sorted((shared / "traces" / "verus-2015" / "raw").glob("*.csv")):
        expected = np.loadtxt(raw.with_suffix(".expected"), dtype=np.int64)
        assert np.array_equal(Trace.convert(raw).times_ms, expected)


def test_names_are_those_that_are_announced() -> None:
    for name in verus.__all__:
        assert getattr(verus, name).__doc__
    assert verus.__version__
    with pytest.raises(AttributeError, match="bogus"):
        verus.bogus  # noqa: B018


def test_what_is_left_out_is_what_rust_has() -> None:
    settings = Settings().to_dict()
    for name in settings.keys() & DEFAULTS.keys() - {"flows"}:
        assert settings[name] == DEFAULTS[name], name
    for name, value in dataclasses.asdict(Link(trace=DEFAULTS["trace"])).items():
        assert (list(value) if isinstance(value, tuple) else value) == DEFAULTS[name], name
    assert settings["queues"] == [DEFAULTS["queue"]]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Link.from_trace("city-drivng-lte"), "trace: unknown channel `city-drivng-lte`"),
        (lambda: Link.from_trace("city-driving-3g-up[9:3]"), "trace: .*FROM must be before TO"),
        (lambda: Link.from_trace("rate:5", queue="cdel"), "queue: .*the nearest is `codel`"),
        (lambda: Link.from_trace("rate:5", queue="codel:target_ms=5,20"), "queue: .*must be key=value, not `20`"),
        (lambda: Link.from_trace("rate:5", second_trace="nowhere"), "second_trace: unknown channel `nowhere`"),
        (lambda: Link.from_trace("rate:5", ack="nowhere"), "ack: unknown channel `nowhere`"),
        (lambda: Link.constant(5, loss=1.5), "loss: must be at least 0 and below 1, not 1.5"),
        (
            lambda: Link(trace="rate:5", changes=[{"at_s": 1, "loss": 9}]),
            r"changes\[0\]\.loss: must be",
        ),
    ],
)
def test_a_link_is_validated_when_it_is_made(make: Callable[[], Link], words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        make()


def test_a_link_of_light_traces_is_made_before_the_size_of_packets_is_known(tmp_path: Path) -> None:
    light = tmp_path / "light"
    light.write_text("0 20 0 1 3\n100 24 0 2 2 9\n200 22 0 1\n")
    link = Link.constant(12, light_trace=str(light))
    with pytest.raises(FieldError, match=r"^packet_bytes: must be at most 1400 "):
        simulate(link=link, flows=[Flow("cubic")], duration_s=1)
    result = simulate(link=link, flows=[Flow("cubic")], duration_s=1, packet_bytes=1400)
    assert 40 <= float(np.nanmin(result.flows[0].rtt_ms)) <= 45


@pytest.mark.parametrize("field", ["ack_queue", "second_queue", "changes_repeat_s"])
def test_fields_of_what_the_path_has_not_are_refused(field: str) -> None:
    unused: Any = {field: 2.0 if field == "changes_repeat_s" else "codel"}
    with pytest.raises(FieldError, match=f"^{field}: must be left out"):
        Link.constant(12, **unused)
    if field in KEYS:
        with pytest.raises(ValueError, match=f"^{field}: must be left out"):
            planned_runs({"trace": "rate:12", "scheme": "cubic", **unused})


def test_every_series_is_an_array() -> None:
    result = simulate(link=Link.constant(5), flows=[Flow("verus"), Flow("cubic", start_s=0.5)], duration_s=1)
    assert {name for name, values in result.series.items() if not isinstance(values, np.ndarray)} == set()
    assert result.series["phase"][result.series["flow"] == 0][0] == "slow_start"


def test_a_mistyped_metric_is_met_with_the_right_one() -> None:
    result = simulate(link=Link.constant(5), flows=[Flow("cubic")], duration_s=1, records=False)
    for metrics in (result.metrics, result.flows[0].metrics):
        assert isinstance(metrics, Metrics)
        with pytest.raises(KeyError, match="there is no metric `throughput`; did you mean `throughput_mbps`"):
            metrics["throughput"]
        with pytest.raises(KeyError, match=r"no metric `speed`; there are .*goodput_mbps"):
            metrics["speed"]
        assert metrics.get("speed") is None
    assert "per_flow" not in result.metrics


def test_results_print_as_tables() -> None:
    result = simulate(link=Link.constant(5), flows=[Flow("verus"), Flow("cubic")], duration_s=2)
    heading, _, heads, _, *rows = str(result).splitlines()
    assert heading.startswith("rate:5  ·  red:min=375000,max=1125000,p=0.1  ·  2 s  ·  seed 1  ·  ")
    assert heads.split()[:3] == ["flow", "Mbit/s", "mean"]
    assert [row.split()[0] for row in rows] == ["0:", "1:", "all"]
    assert f"{result.metrics['throughput_mbps']:.2f}" in rows[-1]
    comparison = compare(traces=["rate:5", "rate:6"], schemes=["cubic", "vegas"], duration_s=1)
    for word in ("rate:5", "rate:6", "Cubic", "Vegas", "omniscient"):
        assert word in repr(comparison)
    assert "\x1b" not in repr(comparison)
    assert max(map(len, repr(comparison).splitlines())) <= 110


def test_results_are_arrow_streams() -> None:
    result = simulate(link=Link.constant(5), flows=[Flow("cubic")], duration_s=1)
    comparison = compare(traces=["rate:5"], schemes=["cubic"], duration_s=1)
    assert pa.table(result).equals(result.to_arrow())
    assert pa.table(comparison).equals(comparison.table)
    polars = pytest.importorskip("polars", reason="polars is not installed: nothing else needs it")
    assert polars.DataFrame(comparison)["scheme"].to_list() == ["cubic"]
    assert polars.DataFrame(result).height == result.to_arrow().num_rows


def test_the_package_lists_its_names() -> None:
    assert set(verus.__all__) <= set(dir(verus))
    assert "sys" not in dir(verus)
    for name in dir(verus):
        assert getattr(verus, name) is not None


def test_a_folder_that_holds_something_is_replaced_by_what_python_calls_it(tmp_path: Path) -> None:
    comparison = verus.compare(traces=["rate:5"], schemes=["cubic"], duration_s=0.5)
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(FieldError, match=r"is not empty; force=True replaces the results in it") as refused:
        comparison.save(tmp_path)
    assert refused.value.field == "folder"
    assert "--" not in str(refused.value)


def test_a_flow_that_starts_after_the_run_is_warned_of() -> None:
    flows = [Flow("cubic"), Flow("cubic", start_s=5)]
    with pytest.warns(UserWarning, match=r"flows\[1\] sends nothing: it starts at 5 s, and the run lasts 1 s"):
        simulate(link=Link.constant(5), flows=flows, duration_s=1)


#: NumPy is imported when the extension makes its first array; Ctrl-C may come during that import.
INTERRUPTED = """
import sys
from verus import _verus

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            raise KeyboardInterrupt


sys.meta_path.insert(0, Finder())
try:
    _verus.trace_read("city-driving-3g-up")
except KeyboardInterrupt:
    print("interrupted", "numpy" in sys.modules)
"""


def test_an_interrupted_import_of_numpy_is_an_interruption() -> None:
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("interrupted False\n", "")


def test_numbers_of_numpy_are_taken_like_those_of_python() -> None:
    def run(whole: Callable[[int], Any], real: Callable[[float], Any]) -> Metrics:
        link = Link.constant(whole(8), loss=real(0.25), changes=[{"at_s": whole(1), "rate_mbps": real(2)}])
        flow = Flow("cubic", start_s=whole(1), bytes=whole(50_000))
        return simulate(link=link, flows=[flow], duration_s=real(2)).metrics

    assert run(np.int64, np.float32) == run(int, float)
    assert Flow("cubic", ecn=np.bool_(True)).scheme == "cubic:ecn=yes"
    result = simulate(link=Link.constant(8), flows=[Flow("verus")], duration_s=1, handshake=np.bool_(True))  # type: ignore[arg-type]
    assert result.results.config["settings"]["handshake"] is True


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (
            lambda: Link.constant(8, changes=[{"at_s": 1, "rate_mbps": np.nan}]),
            r"changes\[0\]\.rate_mbps: must be a finite",
        ),
        (lambda: Link.constant(8, changes=[[[[[[[[[[[[1]]]]]]]]]]]]), "changes: is nested too deeply"),  # type: ignore[list-item]
        (lambda: Link.constant(8, changes=5), "changes: must be a list"),  # type: ignore[arg-type]
        (lambda: Link.constant(8, loss=1j), "loss: must be a number"),  # type: ignore[arg-type]
        (lambda: simulate(link=Link.constant(8), flows=iter([Flow("cubic")])), "flows: must be a list"),  # type: ignore[arg-type]
        (lambda: Flow("cubic", start_s=np.array([1, 2])), "start_s: must be a number"),  # type: ignore[arg-type]
        (lambda: Link.constant(1e16), "trace: channel `rate:10000000000000000`"),
    ],
)
def test_a_value_that_is_no_number_is_refused_by_its_field(made: Callable[[], object], problem: str) -> None:
    with pytest.raises(FieldError, match=f"^{problem}"):
        made()


def test_a_result_equals_itself_alone_and_has_a_hash() -> None:
    first, second = (simulate(link=Link.constant(5), flows=[Flow("cubic")], duration_s=1) for _ in range(2))
    assert first == first
    assert first != second
    assert len({first, second, first.flows[0], first}) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Flow("verus", ratio="2,mode=paper"), "ratio: must be one value, not `2,mode=paper`"),
        (lambda: Flow("cubic", traffic="nope"), "traffic: traffic `nope`: unknown kind `nope`; known are "),
        (lambda: Flow("cubic", traffic=3), "traffic: must be text, not 3"),
        (lambda: Flow("verus", ratio=[2, 4]), "ratio: must be one value, not `[2, 4]`"),
        (lambda: Link.from_trace(["rate:5"]), r"trace: must be a path or the name of a channel, not ['rate:5']"),
        (lambda: Trace.read(None), "path: must be a path or the name of a channel, not None"),
        (lambda: Trace.generate("city-driving-3g-up", duration_s=1e6), "duration_s: must be at most 86400 seconds"),
        (lambda: compare(schemes=None), "schemes: must be a list, not None"),
    ],
)
def test_an_argument_of_no_use_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(FieldError, match=f"^{re.escape(message)}"):
        call()


def test_profiles_have_the_same_columns_of_each_sender() -> None:
    none, some = (
        simulate(link=Link.constant(5), flows=[Flow(name)], duration_s=12).results.profile
        for name in ("cubic", "verus")
    )
    assert none.num_rows == 0 < some.num_rows
    assert none.schema.field("kind") == some.schema.field("kind")


def test_a_metric_that_is_none_is_a_key_error() -> None:
    metrics = simulate(link=Link.constant(5), flows=[Flow("cubic")], duration_s=1).metrics
    with pytest.raises(KeyError, match="there is no metric `3`"):
        metrics[3]
