"""The typed Python API: one simulation (`simulate`), a grid of them (`compare`), and a search over keys (`tune`).

Options are keywords and carry their units; results are NumPy arrays and Arrow tables. The same seed
gives the same numbers. The interpreter lock is released while Rust works.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from verus import _verus
from verus.controller import Controller, Scheme, text_of
from verus.errors import FieldError, near_or_all
from verus.lab import store
from verus.lab.arguments import above_zero, checked, path_text, text_list, whole
from verus.lab.inputs import cut_warnings
from verus.lab.keywords import spelled_out
from verus.lab.results import Results
from verus.lab.results_folder import check_folder, new_folder
from verus.lab.runner import Progress, RunError, as_ended, run_all, run_each, sort_out
from verus.lab.sandbox import Sandbox
from verus.lab.scenario import (
    DEFAULT_CHANNELS,
    DEFAULT_SCHEMES,
    PAPER_QUEUE,
    SCHEMA,
    Contestant,
    Run,
    Settings,
    check_fields,
    plain,
)
from verus.lab.schema import PathOptions, PathSettings, RunOptions, RunSettings, Scenario
from verus.report import summary
from verus.report.table import comparison as comparison_table
from verus.report.table import printed, run_table

if TYPE_CHECKING:
    from verus.lab.tuning.problem import Problem
    from verus.report.notebook import Plot

Array = npt.NDArray[Any]


#: The smallest packet of a scenario, which every path takes.
_LEAST_PACKET_BYTES: int = SCHEMA["properties"]["packet_bytes"]["minimum"]


class Metrics(dict[str, float | None]):
    """Metrics by name, as in `docs/metrics.md`; None where one was not observed.

    Example:
        >>> Metrics(goodput_mbps=4.8)["throughput"]
        Traceback (most recent call last):
        KeyError: 'there is no metric `throughput`; there are goodput_mbps'
        >>> Metrics(goodput_mbps=4.8)["godput_mbps"]
        Traceback (most recent call last):
        KeyError: 'there is no metric `godput_mbps`; did you mean `goodput_mbps`?'
    """

    def __missing__(self, name: str) -> float | None:
        hint = near_or_all(str(name), self)
        raise KeyError(f"there is no metric `{name}`{hint}")


class LinkOptions(PathOptions, total=False):
    """The fields of a `Link` beside its trace."""

    queue: str


class ComparisonOptions(PathOptions, RunOptions, total=False):
    """Keywords of `compare` for the path and the runs, beside the axes that it multiplies out."""


@dataclass(frozen=True, kw_only=True)
class _Bottleneck:
    """The first fields of a link: a dataclass lists the fields of its last base first."""

    trace: str
    queue: str = PAPER_QUEUE


@spelled_out(PathSettings)
@dataclass(frozen=True, kw_only=True)
class Link(PathSettings, _Bottleneck):
    """A path: the channel that serves its bottleneck, the queue before it, and the way back.

    A change of it is ``{"at_s": 2, "rate_mbps": 0}`` (`verus list scenario` has the fields).

    Attributes:
        trace: A trace file, the name of a channel, or ``rate:MBPS``.
        queue: ``KIND[:key=value,…]``.
        **options: Other fields of the path.

    Raises:
        ValueError: A channel or a queue is unknown, or a value is out of range; the message names its field.
        OSError: A trace cannot be read.

    Example:
        >>> Link.constant(12, delay_ms=10).trace
        'rate:12'
    """

    def __post_init__(self) -> None:
        # Which sizes of packets are valid beside a light trace is known once the run is.
        with _one_link():
            self._settings(schemes=("cubic",), packet_bytes=_LEAST_PACKET_BYTES).check()
            checked("queue", self.queue, _verus.check_queue)  # the text of a comparison may stand for several

    def _settings(self, **more: Any) -> Settings:
        """A comparison over this link alone."""
        path_settings = {name: value for name, value in vars(self).items() if name not in ("trace", "queue")}
        return Settings(traces=(self.trace,), queues=(self.queue,), **path_settings, **more)

    @classmethod
    def from_trace(cls, trace: str | PathLike[str], **options: Unpack[LinkOptions]) -> Link:
        """A link driven by a recording or a built-in channel.

        Args:
            trace: A trace file, or the name of a channel: ``NAME@SEED`` is one realisation of a built-in channel
                whatever the run's seed, ``NAME[FROM:TO]`` a stretch in seconds, ``A+B`` one after another.
            **options: The other fields.

        Raises:
            ValueError: As `Link`.
            OSError: The trace cannot be read.
        """
        return cls(trace=path_text("trace", trace), **options)

    @classmethod
    def constant(cls, mbps: float, **options: Unpack[LinkOptions]) -> Link:
        """A link of constant rate.

        Args:
            mbps: Mbit/s.
            **options: The other fields.

        Raises:
            ValueError: The rate is not above 0.
        """
        above_zero("mbps", mbps, "Mbit/s")
        # All digits without an exponent, whose `+` would join two channels.
        return cls(trace=f"rate:{np.format_float_positional(float(mbps), trim='-')}", **options)


def check_link(link: object) -> None:
    """Refuses anything but a link.

    Raises:
        FieldError: It is none.
    """
    if not isinstance(link, Link):
        raise FieldError("link", f"must be a Link, such as Link.from_trace(…), not {link!r}")


@contextlib.contextmanager
def _one_link() -> Iterator[None]:
    """Renames fields in a comparison's errors to those of a link, which has one trace and one queue."""
    try:
        yield
    except FieldError as error:
        raise FieldError({"traces": "trace", "queues": "queue"}.get(error.field, error.field), error.problem) from error


class Flow:
    """A sender: its scheme, and when it is on.

    Args:
        scheme: A scheme, with or without keys: ``verus``, ``verus:ratio=4``; or a
            `verus.Controller`: the class, or a callable that takes the keys and returns one.
        start_s: When it starts.
        stop_s: When it stops; at the end of the run if None.
        delay_ms: Its propagation delay each way, in place of the link's.
        crosses: The channels that its data cross, of two: ``first``, ``second`` or ``both``; both
            if None.
        bytes: Bytes to send, once; unlimited if None.
        traffic: The data to send, and when: ``full``, or ``on-off``, ``c.r1002``,
            ``files:bytes=N``, ``video`` with keys.
        **params: Keys of the scheme: ``ratio=4``.

    Raises:
        ValueError: The scheme or a key is unknown, or a value is out of range.

    Example:
        >>> Flow("verus", ratio=4).scheme
        'verus:ratio=4'
    """

    def __init__(
        self,
        scheme: Scheme,
        *,
        start_s: float = 0.0,
        stop_s: float | None = None,
        delay_ms: float | None = None,
        crosses: str | None = None,
        bytes: int | None = None,
        traffic: str | None = None,
        **params: Any,
    ) -> None:
        texts = {key: _value(value) for key, value in params.items()}
        for key, text in texts.items():
            if "," in text:
                raise FieldError(key, f"must be one value, not `{text}`")
        joined = ",".join(f"{key}={text}" for key, text in texts.items())
        self.scheme = checked("scheme", scheme, text_of)
        if joined:
            self.scheme = checked("scheme", self.scheme, lambda text: _verus.with_settings(text, joined))
        self.start_s: float = plain("start_s", start_s)
        self.stop_s: float | None = plain("stop_s", stop_s)
        self.delay_ms: float | None = plain("delay_ms", delay_ms)
        self.crosses = crosses
        self.bytes: int | None = plain("bytes", bytes)
        self.traffic = traffic
        if isinstance(traffic, str):  # `check_fields` names any other type
            checked("traffic", traffic, _verus.check_traffic)
        Contestant.from_scheme(self.scheme)
        # Valid values of `crosses` depend on the link.
        check_fields({**self.fields(), "crosses": None}, flow=True)

    def fields(self) -> dict[str, Any]:
        """Its fields in a scenario."""
        names = ("scheme", "start_s", "stop_s", "delay_ms", "crosses", "bytes", "traffic")
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        times = {"start_s": self.start_s, "stop_s": self.stop_s, "delay_ms": self.delay_ms}
        sends = {name: value for name in ("crosses", "bytes", "traffic") if (value := getattr(self, name)) is not None}
        return f"Flow({self.scheme!r}, {', '.join(f'{name}={value!r}' for name, value in {**times, **sends}.items())})"


def _polars(table: pa.Table) -> Any:
    try:
        import polars
    except ImportError as error:
        raise ImportError("to_polars needs the package `polars` (pip install polars)") from error
    return polars.from_arrow(table)


def _value(value: Any) -> str:
    value = plain("params", value)
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True, eq=False)
class FlowResult:
    """The outcome of one flow. Arrays have one element for each packet, in the order of sending.

    Attributes:
        scheme: The scheme, as given.
        metrics: Throughput, delay and loss of this flow.
        sent_ms: The time when each packet left the sender.
        rtt_ms: Its round-trip time; NaN if its acknowledgement never came.
        qdelay_ms: Its time from sending until it left the bottleneck queue; NaN if it never left it. Of two links it
            has both queues, and of a light trace the delay, which `metrics` leave out.
        size_bytes: Its size.
        window_bytes: The window when it left.
        lost: Whether it was dropped.
        connections: The connections of a flow that does not send all the time: `connection`,
            `start_s`, `end_s` (NaN if the flow or the run ended first), `file_bytes` (NaN for
            connections of a given duration), `delivered_bytes`.
    """

    scheme: str
    metrics: Metrics = field(repr=False)
    sent_ms: Array = field(repr=False)
    rtt_ms: Array = field(repr=False)
    qdelay_ms: Array = field(repr=False)
    size_bytes: Array = field(repr=False)
    window_bytes: Array = field(repr=False)
    lost: Array = field(repr=False)
    connections: dict[str, Array] = field(repr=False)


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Result:
    """One simulation. It prints as a table, and is an Arrow stream: ``polars.DataFrame(result)`` has `to_arrow`.

    Attributes:
        metrics: The metrics of the bottleneck, all flows together, by name (`throughput_mbps`, …).
        flows: One for each flow, in the order given; without packet records their arrays are empty.
        series: Per flow and bin: capacity, throughput, queueing delay, window and more, as arrays.
        results: The same as tables, ready to save.
    """

    metrics: Metrics
    flows: tuple[FlowResult, ...]
    series: dict[str, Array]
    results: Results

    def __repr__(self) -> str:
        return printed(run_table(self.results))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """The packet records as an Arrow table, or the time series if there are none."""
        return self.results.records if self.results.records is not None else self.results.series

    def to_polars(self) -> Any:
        """The same as a Polars data frame (needs the package `polars`)."""
        return _polars(self.to_arrow())

    def plot(self) -> Plot:
        """Capacity, throughput, queueing delay and window over time."""
        from verus.report import notebook

        return notebook.series(self.results)

    def plot_flows(self) -> Plot:
        """The throughput of each flow over time.

        Raises:
            ValueError: There is one flow.
        """
        from verus.report import notebook

        return notebook.flows(self.results)

    def plot_profiles(self) -> Plot:
        """Delay by window, as Verus learned it.

        Raises:
            ValueError: No sender here has a delay profile.
        """
        from verus.report import notebook

        return notebook.profiles(self.results)

    def _repr_html_(self) -> str:
        from verus.report import notebook

        return notebook.run_html(self.results)


@spelled_out(RunSettings)
def simulate(
    *,
    link: Link,
    flows: Sequence[Flow],
    records: bool = True,
    progress: Progress | None = None,
    **options: Unpack[RunOptions],
) -> Result:
    """Runs flows over one shared bottleneck on a virtual clock.

    Args:
        link: The path.
        flows: The senders.
        records: Whether to keep one record for each packet (needed for the arrays of `Result.flows`).
        progress: Called with the progress; an exception in it stops the run.
        **options: Duration, packets and other fields of the run.

    Raises:
        ValueError: A value cannot be used; the message names its field.
        OSError: The trace cannot be read.

    Example:
        >>> result = simulate(link=Link.constant(5), flows=[Flow("verus", ratio=2)], duration_s=5)
        >>> 0.5 < result.metrics["utilization"] <= 1
        True
        >>> float(np.nanmin(result.flows[0].rtt_ms)) >= 40  # twice 20 ms of propagation
        True
    """
    check_link(link)
    if not isinstance(flows, Sequence) or not all(isinstance(flow, Flow) for flow in flows):
        raise FieldError("flows", f"must be a list of Flow, such as [Flow('verus')], not {flows!r}")
    if not flows:
        raise FieldError("flows", "needs at least one")
    texts = [flow.scheme for flow in flows]
    settings = link._settings(schemes=(), mixes=("+".join(texts),), records=records, **options)
    with _one_link():
        (planned,) = settings.runs([Contestant.from_flows(texts)])
    spec = [flow.fields() for flow in flows]
    run = dataclasses.replace(planned, scenario=cast("Scenario", {**planned.scenario, "flows": spec}))
    _warn_of_cut_files([run])
    for index, flow in enumerate(flows):
        if flow.start_s >= run.scenario["duration_s"]:
            warnings.warn(
                f"flows[{index}] sends nothing: it starts at {flow.start_s:g} s, and the run lasts "
                f"{run.scenario['duration_s']:g} s",
                stacklevel=2,
            )
    (outcome,) = run_all([run], threads=1, progress=progress)
    results = Results.collect([run], [outcome], kind="simulate", settings=settings.to_dict())
    metrics = Metrics(outcome["metrics"])
    per_flow = outcome["metrics"]["per_flow"]
    for name in ("per_flow", "series"):
        metrics.pop(name, None)
    packets = outcome["records"]
    return Result(
        metrics=metrics,
        flows=tuple(
            _flow(index, flow, Metrics(per_flow[index]), packets, outcome["connections"])
            for index, flow in enumerate(flows)
        ),
        series={
            **_arrays(outcome["series"]),
            "capacity_mbps": np.tile(outcome["capacity"]["capacity_mbps"], len(flows)),
        },
        results=results,
    )


def _arrays(columns: Mapping[str, Any]) -> dict[str, Array]:
    """Columns as arrays; those of texts come as lists."""
    return {
        name: np.array(values, dtype=object) if isinstance(values, list) else values for name, values in columns.items()
    }


def _warn_of_cut_files(runs: Sequence[Run]) -> None:
    for warning in cut_warnings(run.scenario for run in runs):
        warnings.warn(warning, stacklevel=3)


def _flow(
    index: int, flow: Flow, metrics: Metrics, packets: dict[str, Array] | None, listed: dict[str, Array]
) -> FlowResult:
    mine = listed["flow"] == index
    connections = {name: values[mine] for name, values in listed.items() if name != "flow"}
    if packets is None:
        empty: Array = np.empty(0)
        arrays = dict.fromkeys(("sent_ms", "rtt_ms", "qdelay_ms", "size_bytes", "window_bytes", "lost"), empty)
        return FlowResult(scheme=flow.scheme, metrics=metrics, connections=connections, **arrays)
    of_flow = packets["flow"] == index
    sent, departed, acked, dropped = (
        packets[name][of_flow] for name in ("sent_ms", "departed_ms", "acked_ms", "dropped_ms")
    )
    return FlowResult(
        scheme=flow.scheme,
        metrics=metrics,
        sent_ms=sent,
        rtt_ms=acked - sent,
        qdelay_ms=departed - sent,
        size_bytes=packets["size_bytes"][of_flow],
        window_bytes=packets["window_bytes"][of_flow],
        lost=np.isfinite(dropped),
        connections=connections,
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison:
    """The result of `compare`, or a saved comparison. It prints as a table, and is an Arrow stream of `table`.

    Attributes:
        table: One row for each run, as an Arrow table: the fields that ``verus compare --json`` prints.
        results: All results, series and delay profiles included.
    """

    table: pa.Table
    results: Results

    def __repr__(self) -> str:
        return printed(comparison_table(self.results))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    @classmethod
    def read(cls, folder: str | PathLike[str]) -> Comparison:
        """Reads the folder that `save`, ``verus compare``, ``verus probe client --out`` or ``verus shell --out`` wrote.

        Raises:
            OSError: A file is absent or cannot be read.
            ValueError: The folder is of another version, or not one of ours, or damaged.
        """
        results = Results.read(Path(folder))
        return cls(table=results.rows, results=results)

    def rows(self) -> list[dict[str, Any]]:
        """The rows as dictionaries, absent numbers as None."""
        return self.results.to_rows()

    def to_polars(self) -> Any:
        """`table` as a Polars data frame (needs the package `polars`)."""
        return _polars(self.table)

    def plot(self) -> Plot:
        """Delay against throughput: a panel for each channel and queue."""
        from verus.report import notebook

        return notebook.scatter(self.results)

    def plot_series(self, *, trace: str | None = None, queue: str | None = None) -> Plot:
        """Capacity, throughput, queueing delay and window over time, on one channel and queue.

        Args:
            trace: The channel, where there are several.
            queue: The queue, where there are several.

        Raises:
            ValueError: No channel and queue match, or several do.
        """
        from verus.report import notebook

        return notebook.series(self.results, trace=trace, queue=queue)

    def plot_flows(self, *, trace: str | None = None, queue: str | None = None) -> Plot:
        """The throughput of each flow over time, on one channel and queue.

        Raises:
            ValueError: No channel and queue match, or several do; or every run there has one flow.
        """
        from verus.report import notebook

        return notebook.flows(self.results, trace=trace, queue=queue)

    def plot_profiles(self) -> Plot:
        """Delay by window, as Verus learned it.

        Raises:
            ValueError: No sender here has a delay profile.
        """
        from verus.report import notebook

        return notebook.profiles(self.results)

    def _repr_html_(self) -> str:
        from verus.report import notebook

        return notebook.comparison_html(self.results)

    def save(self, folder: str | PathLike[str], *, force: bool = False) -> Path:
        """Writes results, figures and `report.html` into a new folder.

        Args:
            folder: The new folder.
            force: Replace the results in a folder that is not empty.

        Returns:
            The page's path.

        Raises:
            ValueError: The folder cannot be used.
        """
        from verus.saved_run import write_page

        target = Path(folder)
        check_folder(target, force=force, field="folder", replaces="force=True")
        with new_folder(target, force=force) as draft:
            self.results.write(draft)
            write_page(self.results, draft)
        return target / "report.html"


@spelled_out(PathSettings, RunSettings)
def compare(
    *,
    traces: Sequence[str | PathLike[str]] = DEFAULT_CHANNELS,
    schemes: Sequence[Scheme] = DEFAULT_SCHEMES,
    mixes: Sequence[str] = (),
    queues: Sequence[str] = (PAPER_QUEUE,),
    flows: int = 1,
    traffic: str = "full",
    repeat: int = 1,
    stretches: int | None = None,
    records: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    **options: Unpack[ComparisonOptions],
) -> Comparison:
    """Runs every scheme over every trace and queue, on all cores.

    A change of the path is ``{"at_s": 2, "rate_mbps": 0}`` (`verus list scenario` has the fields).

    Args:
        traces: Trace files, names of channels, or ``rate:MBPS``.
        schemes: ``NAME[:key=value,…]``, ``FILE.py:CLASS[:key=value,…]``, or `verus.Controller`s as `Flow` takes them.
        mixes: ``SCHEME*N+SCHEME*M``: flows of several schemes in one run.
        queues: ``KIND[:key=value,…]``.
        flows: Flows of each scheme in one run (a mix brings its own count).
        traffic: The data that every flow sends: ``full``, or ``on-off``, ``c.r1002``,
            ``files:bytes=N``, ``video``.
        repeat: Runs of each, with seeds ``seed … seed + repeat - 1``.
        stretches: Runs of each in place of ``repeat``, likewise, each over another part of its recording.
        records: Whether to keep one record for each packet.
        threads: Cores; all of them if None.
        progress: Called with the progress; an exception in it stops the runs.
        **options: Other fields of the path and of each run.

    Raises:
        ValueError: A value cannot be used; the message names its field.
        OSError: A trace cannot be read.
        RunError: A controller in Python failed in some runs; its `finished` is the comparison of the others.

    Example:
        >>> found = compare(traces=["rate:5"], schemes=["verus:ratio=2", "verus:ratio=4"], duration_s=5)
        >>> found.table.column("scheme").to_pylist()
        ['verus', 'verus']
    """
    if threads is not None:
        whole("threads", threads, 1)
    settings = Settings(
        traces=tuple(fspath(trace) if isinstance(trace, PathLike) else trace for trace in text_list("traces", traces)),
        schemes=tuple(checked("schemes", scheme, text_of) for scheme in text_list("schemes", schemes)),
        mixes=mixes,
        queues=queues,
        flows=flows,
        traffic=traffic,
        repeat=repeat,
        stretches=stretches,
        records=records,
        **options,
    )
    planned = settings.runs()
    _warn_of_cut_files(planned)
    runs, outcomes, problems = sort_out(planned, run_each(planned, threads=threads, progress=progress))
    results = summary.with_means(Results.collect(runs, outcomes, kind="compare", settings=settings.to_dict()))
    comparison = Comparison(table=results.rows, results=results)
    if problems:
        raise RunError(problems, comparison)
    return comparison


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """A finished search, which `tune` returns.

    Attributes:
        folder: Where it is; the same call finds it there again.
        candidates: Each candidate, in the order of proposals: its `number`, its `scheme`, its `params`, its `state`
            (`complete`, `stopped`, `broken`) and its `means` over the tuned rows.
        front: Those that no other beats in all aims, by the first aim.
    """

    folder: Path
    candidates: Sequence[Mapping[str, Any]]
    front: Sequence[Mapping[str, Any]]
    _problem: Problem = field(repr=False)
    _threads: int | None = field(default=None, repr=False)
    _sandbox: bool = field(default=True, repr=False)

    def judge(self) -> list[dict[str, Any]]:
        """Runs the finalists, the start and its rivals on the judged rows, once.

        Returns:
            For each its `scheme`, its `means` on both halves, `above` (by how much it is above the start) and
            `verdicts` (`better`, `equal` or `worse` than the start).

        Raises:
            ValueError: The folder was judged before, the search has no finalist, or a run fails.
        """
        from verus.lab.tuning.folder import TuneFolder
        from verus.lab.tuning.judging import judge

        work = functools.partial(as_ended, threads=self._threads, columns=False)
        with Sandbox(self._problem.budget).used() if self._sandbox else contextlib.nullcontext():
            judged = judge(self._problem, TuneFolder(self.folder), work, keys=store.Keys(store.engine()))
        senders: list[dict[str, Any]] = judged["senders"]
        return senders

    def report(self) -> Path:
        """Draws the page of the search into its folder; returns where it is."""
        from verus.lab.tuning.folder import TuneFolder
        from verus.report.tune_page import write_tune_page

        return write_tune_page(TuneFolder(self.folder))


def tune(
    *,
    scheme: str | type[Controller],
    keys: Mapping[str, Mapping[str, Any]],
    tune_on: Mapping[str, Any],
    judge_on: Mapping[str, Any],
    most: Sequence[str] = (),
    least: Sequence[str] = (),
    bounds: Sequence[str] = (),
    rivals: Sequence[str] = ("cubic", "bbr", "copa", "forward"),
    measure: Callable[[Mapping[str, Any]], Mapping[str, float]] | None = None,
    measures: Sequence[str] = (),
    out: str | PathLike[str],
    threads: int | None = None,
    progress: Progress | None = None,
    sandbox: bool = True,
    **search: Any,
) -> Tuning:
    """Searches over a controller's keys, as ``verus tune`` does; needs Optuna (``pip install 'verus-cc[tune]'``).

    Args:
        scheme: ``NAME``, ``FILE.py:CLASS``, or a class that a file defines; its keys are arguments of the class.
        keys: For each key ``{"from": 0.5, "to": 4.0}``, with ``"step"`` or ``"log": True``, or ``{"choices": [...]}``.
        tune_on: The rows on which candidates are tried: axes as in a study, such as ``{"trace": ["rate:12"]}``.
        judge_on: The rows on which finalists are judged; they may share nothing with the others.
        most: Metrics of which more is better.
        least: Metrics of which less is better.
        bounds: Conditions, such as ``"jain >= 0.9"``.
        rivals: Schemes that are shown beside.
        measure: An objective of one's own: takes a row of results, returns numbers that aims and bounds may name.
        measures: The names of these numbers. They identify a search; the code of `measure` does not.
        out: The folder of the search.
        threads: Cores; all of them if None.
        progress: Called with how far it is; an exception in it stops the search.
        sandbox: Whether files of controllers are loaded and run in confined processes, with the budget in `tune_on`
            (``memory_mb``, ``cpu_s``). Without it they may do what this process may do.
        **search: What a file has under ``[search]``: ``sampler``, ``candidates``, ``batch``, ``seed``, ``finalists``,
            ``racing``.

    Raises:
        ValueError: A value cannot be used, the halves overlap, or the folder is of another search; the message names
            the field.
        OSError: A trace cannot be read.
    """
    from verus.lab.tuning.folder import TuneFolder
    from verus.lab.tuning.problem import problem_of
    from verus.lab.tuning.search import Search, failures
    from verus.suites.bounds import checks_of

    if threads is not None:
        whole("threads", threads, 1)
    content = {
        "scheme": scheme if isinstance(scheme, str) else _in_file(scheme),
        "keys": keys,
        "tune": tune_on,
        "judge": judge_on,
        "aim": {"most": list(most), "least": list(least), "bounds": list(bounds)},
        "rivals": list(rivals),
        "search": search,
    }
    folder = TuneFolder(Path(out))
    work = functools.partial(as_ended, threads=threads, columns=False)
    box = Sandbox()
    with box.used() if sandbox else contextlib.nullcontext():
        problem = problem_of(content, folder.path.name, measure=measure, measures=measures)
        box.budget = problem.budget
        folder.check()
        checks = checks_of(problem, threads)
        ran = Search(problem, folder, work, keys=store.Keys(store.engine()), checks=checks).run(progress)
    if problem_of_some := failures(ran):
        warnings.warn(problem_of_some, stacklevel=2)
    return Tuning(
        folder=folder.path,
        candidates=ran["candidates"],
        front=[ran["candidates"][number] for number in ran["front"]],
        _problem=problem,
        _threads=threads,
        _sandbox=sandbox,
    )


def _in_file(kind: type[Controller]) -> str:
    """The scheme of a class by its file, whose content decides whether a run is found again.

    Raises:
        FieldError: It is no controller, or no file defines it.
    """
    if not isinstance(kind, type) or not issubclass(kind, Controller):
        raise FieldError("scheme", f"must be a text or a class of verus.Controller, not {kind!r}")
    try:
        path = inspect.getsourcefile(kind)
    except (OSError, TypeError):
        path = None
    if path is None or not Path(path).is_file() or "." in kind.__qualname__:
        raise FieldError("scheme", f"`{kind.__qualname__}` is at the top of no file: write it into one")
    return f"{path}:{kind.__name__}"
