"""Types of the Rust extension module.

Everywhere: `ValueError` for bad input (`verus.errors.FieldError` for a field of a scenario that is out
of its range), `OSError` for a file that cannot be read or written, `RuntimeError` otherwise.

Scenarios go in as JSON text. Small tables come out as dictionaries and lists; what grows with time
comes out as NumPy arrays. The interpreter lock is released while Rust works.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypedDict, final, overload, type_check_only

from numpy import bool_, float64, int32, int64
from numpy.typing import NDArray

__all__ = [
    "Acked",
    "Departure",
    "Feedback",
    "Runs",
    "Simulation",
    "Timeout",
    "Trainer",
    "analyze_capture",
    "analyze_log",
    "calibration",
    "catalogue",
    "check_channel",
    "check_queue",
    "check_scenario",
    "check_scheme",
    "check_traffic",
    "complete",
    "confine",
    "cut_warning",
    "default_scenario",
    "expand",
    "is_given_pipe",
    "jain",
    "link_log_fates",
    "list_channels",
    "list_jitter",
    "list_loss",
    "list_medium",
    "list_queues",
    "list_reorder",
    "list_schemes",
    "list_traffic",
    "log_kind",
    "metric_columns",
    "model_csv",
    "model_info",
    "model_region",
    "named_files",
    "netem",
    "quantity",
    "read_file",
    "runs_in",
    "scenario_schema",
    "simulate",
    "simulate_many",
    "simulate_planned",
    "split_mix",
    "trace_convert",
    "trace_generate",
    "trace_info",
    "trace_read",
    "trace_write",
    "version",
    "with_settings",
]

@final
class Departure:
    """A packet and the sender's state when it left.

    Attributes:
        number: Never used again: a retransmission gets a new one.
        at_s: The time when it left.
        size_bytes: Its size (IP).
        window_bytes: The controller's window at that moment.
        in_flight_bytes: Bytes in flight, this packet included.
        delivered_bytes: Bytes acknowledged by then.
        app_limited: Whether data, rather than the window, limited the sender.
    """

    @property
    def number(self) -> int: ...
    @property
    def at_s(self) -> float: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def window_bytes(self) -> int: ...
    @property
    def in_flight_bytes(self) -> int: ...
    @property
    def delivered_bytes(self) -> int: ...
    @property
    def app_limited(self) -> bool: ...

@final
class Acked:
    """An acknowledged packet.

    Attributes:
        packet: The packet as it left.
        rtt_ms: Its own round-trip time, unsmoothed.
        received_at_s: Its arrival by the receiver's clock; None if unknown.
    """

    @property
    def packet(self) -> Departure: ...
    @property
    def rtt_ms(self) -> float: ...
    @property
    def received_at_s(self) -> float | None: ...

@final
class Feedback:
    """The news of one acknowledgement or expired loss timer; each list in order of departure.

    Attributes:
        now_s: The time of its arrival.
        acked: Packets newly acknowledged.
        lost: Packets newly declared lost.
        recovered: Packets declared lost before, and acknowledged after all.
        marked_packets: The number of packets with a congestion mark (ECN).
        in_flight_before_bytes: Bytes in flight before this event.
        in_flight_bytes: Bytes in flight after it.
        delivered_bytes: Bytes acknowledged in the flow's life, this event included.
        newly_delivered_bytes: Bytes newly acknowledged by this event.
        smoothed_rtt_ms: The smoothed round-trip time (RFC 6298) after it.
        min_rtt_ms: The minimum round-trip time of the flow's life.
        delivery_mbps: The delivery rate since the newest of these packets left
            (draft-cheng-iccrg-delivery-rate-estimation); None where nothing was acknowledged, or
            too little time passed.
    """

    @property
    def now_s(self) -> float: ...
    @property
    def acked(self) -> list[Acked]: ...
    @property
    def lost(self) -> list[Departure]: ...
    @property
    def recovered(self) -> list[Acked]: ...
    @property
    def marked_packets(self) -> int: ...
    @property
    def in_flight_before_bytes(self) -> int: ...
    @property
    def in_flight_bytes(self) -> int: ...
    @property
    def delivered_bytes(self) -> int: ...
    @property
    def newly_delivered_bytes(self) -> int: ...
    @property
    def smoothed_rtt_ms(self) -> float: ...
    @property
    def min_rtt_ms(self) -> float: ...
    @property
    def delivery_mbps(self) -> float | None: ...

@final
class Timeout:
    """A retransmission timeout.

    Attributes:
        now_s: The time when it fired.
        presumed_lost: Everything that was in flight, in order of departure.
        backoff: The number of consecutive timeouts, this one included.
    """

    @property
    def now_s(self) -> float: ...
    @property
    def presumed_lost(self) -> list[Departure]: ...
    @property
    def backoff(self) -> int: ...

@type_check_only
class _Trace(TypedDict):
    """The channel of a run; a constant rate has no `sha256` and no `duration_s`."""

    name: str
    sha256: str | None
    duration_s: float | None
    mean_mbps: float

@type_check_only
class _Capacity(TypedDict):
    """The capacity of the channel, by bin; `time_s` is the bin's beginning."""

    time_s: NDArray[float64]
    capacity_mbps: NDArray[float64]

@type_check_only
class _Measured(TypedDict):
    """The metrics of a run.

    `other_channels` are those of `ack` and `second_trace`, where there are any, by the name of the
    field. `metrics` has the names of the results' rows, and `per_flow`. `totals` and `counters` (a
    dictionary a flow) are counts of the simulator and of the senders.
    """

    metrics: dict[str, Any]
    trace: _Trace
    other_channels: dict[str, _Trace]
    totals: dict[str, int]
    counters: list[dict[str, int]]

@type_check_only
class _Outcome(_Measured):
    """The complete outcome of a run.

    `series` has one row a flow and bin: `flow`, `time_s` (the bin's beginning), `throughput_mbps`,
    `qdelay_ms`, `qdelay_max_ms`, `window_bytes`, `in_flight_bytes` and the controller's own
    quantities; absent values are NaN. `phase` is a list: ``slow_start``, ``steady``, ``recovery``,
    ``silent``, or None before the flow starts. `profiles`: `flow`, `time_s`, `kind` (``point`` or
    ``curve``), `window_packets`, `delay_ms`. `connections` has one row for each connection of a
    flow that does not send all the time, in the order in which they began: `flow`, `connection`
    (from 0), `start_s`, `end_s` (NaN if the flow or the run ended first), `file_bytes` (NaN for
    connections of a given duration), `delivered_bytes`.
    """

    series: dict[str, Any]
    capacity: _Capacity
    profiles: dict[str, Any]
    connections: dict[str, NDArray[Any]]
    records: dict[str, NDArray[Any]] | None

@type_check_only
class _TraceTimes(TypedDict):
    """A trace's opportunities, and the period after which it repeats."""

    name: str
    times_ms: NDArray[int64]
    period_ms: int

def default_scenario() -> dict[str, Any]:
    """Every field of a scenario, with its default."""

def scenario_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a scenario: type, range, default and meaning of each field."""

def check_scenario(scenario_json: str) -> None:
    """Refuses a scenario that violates the schema, or with contradictory fields; reads no file that it names."""

def simulate(scenario_json: str, progress: Callable[[float], bool | None] | None = None) -> _Outcome:
    """Runs one scenario. `progress` gets the share done; returning False stops the run (`RuntimeError`)."""

@final
class Runs:
    """Runs under way, started by `simulate_many`, whose outcomes are fetched as they end."""

    def ended(self, timeout_s: float) -> list[tuple[int, _Outcome | _Measured | RuntimeError]]:
        """The index and the outcome of runs that have ended since the last call.

        It waits for at least one, up to `timeout_s`. `ValueError` or `OSError` if a run cannot be
        started or logged.
        """

    def fraction(self) -> float:
        """The share of all the work that is done."""

    def stop(self) -> None:
        """Ends the runs under way, and waits until they have ended."""

@final
class Simulation:
    """A run of one scenario in steps, for callers that make decisions in between."""

    def __new__(cls, scenario_json: str) -> Simulation: ...
    def run_until(self, at_s: float) -> bool:
        """Simulates all events before `at_s`; returns whether there are more.

        `RuntimeError` if a controller, a class of the user's, failed.
        """

@overload
def simulate_many(
    scenarios: Sequence[str],
    threads: int | None = None,
    progress: Callable[[int, float], bool | None] | None = None,
    columns: Literal[True] = True,
    qlog: tuple[str | PathLike[str], str, Sequence[str]] | None = None,
    wait: Literal[True] = True,
    pcap: tuple[str | PathLike[str], Sequence[str]] | None = None,
) -> list[_Outcome | RuntimeError]: ...
@overload
def simulate_many(
    scenarios: Sequence[str],
    threads: int | None = None,
    progress: Callable[[int, float], bool | None] | None = None,
    columns: bool = True,
    qlog: tuple[str | PathLike[str], str, Sequence[str]] | None = None,
    wait: Literal[True] = True,
    pcap: tuple[str | PathLike[str], Sequence[str]] | None = None,
) -> list[_Measured | RuntimeError]: ...
@overload
def simulate_many(
    scenarios: Sequence[str],
    threads: int | None = None,
    progress: None = None,
    columns: bool = True,
    qlog: tuple[str | PathLike[str], str, Sequence[str]] | None = None,
    *,
    wait: Literal[False],
    pcap: tuple[str | PathLike[str], Sequence[str]] | None = None,
) -> Runs:
    """Runs many, on all cores if `threads` is None; outcomes in the order of `scenarios`.

    `qlog` is a folder for a log of each flow, their format (`draft` or `0.3`), and the name of each
    run's channel in them; `pcap` a folder for a capture of each run, and the same names. `OSError`
    if one cannot be written, or exists already.

    A run whose controller, a class of the user's, failed has its exception as outcome. Without
    `columns` nothing is an array, and NumPy is not imported.

    `progress` gets the number of runs done and the share of all the work, in the caller's thread;
    returning False stops all of them (`RuntimeError`).

    Without `wait`, it returns the runs under way, which the caller must stop.
    """

def simulate_planned(scenario_json: str, columns: bool) -> _Outcome | _Measured | RuntimeError:
    """Runs one; the calling thread makes its plan, with the files of its controllers, before it starts another.

    `columns` and the result as of `simulate_many`.
    """

def confine(readable: Sequence[str | PathLike[str]], listed: Sequence[str | PathLike[str]]) -> int:
    """Confines this process for good, while it has one thread; Landlock's version.

    It can read what is at or below `readable`, names also below `listed`, and write no file. It can make no socket and
    no other process, and widen no limit. `OSError` if the system cannot do so.
    """

@type_check_only
class _Region(TypedDict):
    """Elements of a matrix, by row and column from the region's beginning."""

    row: NDArray[int64]
    column: NDArray[int64]
    probability: NDArray[float64]

@final
class Trainer:
    """Counted transitions, from which models with any quantization are made.

    `recorded` has for each run each packet's flow, departure and acknowledgement, ms (NaN if
    never). `progress` as in `simulate_many`.
    """

    def __new__(
        cls,
        scenarios: Sequence[str],
        recorded: Sequence[tuple[NDArray[int32], NDArray[float64], NDArray[float64]]],
        threads: int | None = None,
        progress: Callable[[int, float], bool | None] | None = None,
    ) -> Trainer: ...
    @staticmethod
    def of_all(others: Sequence[Trainer]) -> Trainer:
        """The sum of the others' counts."""

    def model(self, about_json: str, quantization_ms: int, percentile: float) -> bytes:
        """The bytes of a model's file."""

def model_info(path: str | PathLike[str]) -> dict[str, Any]:
    """The description of a model file."""

def model_csv(path: str | PathLike[str], csv: str | PathLike[str]) -> int:
    """Writes a model's whole matrix as comma-separated probabilities; returns the number of bytes."""

def model_region(path: str | PathLike[str], first: int, delays: int) -> _Region:
    """The elements within `delays` quantization steps from the `first`."""

def check_scheme(text: str, real_time: bool = False) -> dict[str, Any]:
    """``{"scheme", "params", "label"}``; of one that runs in real time only if `real_time`."""

def runs_in(text: str) -> Literal["simulator", "python", "kernel", "program"]:
    """Where a scheme's senders run; those of a class (``python``) run in the simulator, too."""

def split_mix(text: str) -> list[tuple[str, int]]:
    """The schemes of ``SCHEME*N+SCHEME*M``, and how many flows run each."""

def with_settings(scheme: str, settings: str, first: bool = False) -> str:
    """A scheme with more settings, ``key=value,…``: before its own if `first`, else after them."""

def named_files(kind: str, text: str) -> list[tuple[int, int, Path]]:
    """The files that a text names: the beginning and the end of each name in it, and the path.

    `kind` is what the text names: ``channel``, ``scheme``, ``file`` or ``nothing`` (`x-names` of the schema).
    """

def check_queue(text: str) -> dict[str, str]:
    """``{"queue", "text"}``, the kind and its full text."""

def check_channel(text: str) -> dict[str, Any]:
    """``{"name", "kind": "built-in" | "cached" | "file" | "rate" | "joined", …}``.

    A joined channel has ``"parts": [{"text", "channel", "seed", "from_s", "to_s"}]``; `text` is the
    channel's text as written.
    """

def check_traffic(text: str) -> dict[str, str]:
    """``{"traffic"}``, the kind."""

def quantity(text: str, unit: str) -> float:
    """A number, with or without a unit behind it (``2m``, ``120kB``).

    It is returned in ``unit``: ``s``, ``ms``, ``bytes``, ``Mbit/s`` or ``share``.

    Raises:
        ValueError: It is no such number.
    """

def complete(what: str, text: str) -> list[str]:
    """Completions of a text that names a ``what``: ``scheme``, ``mix``, ``queue``, ``traffic``, ``channel``."""

def expand(text: str) -> list[str]:
    """All texts of a scheme or a queue: ``verus:ratio=2,4`` and ``verus:ratio=2..6`` are several.

    Raises:
        ValueError: A range leads downwards, or there are too many.
    """

def list_schemes() -> list[dict[str, Any]]:
    """``[{"name", "summary", "keys": [{"key", "unit", "default", "meaning"}]}]``."""

def list_queues() -> list[dict[str, Any]]:
    """As `list_schemes`."""

def list_traffic() -> list[dict[str, Any]]:
    """As `list_queues`."""

def list_jitter() -> list[dict[str, Any]]:
    """As `list_queues`."""

def list_reorder() -> list[dict[str, Any]]:
    """As `list_queues`."""

def list_loss() -> list[dict[str, Any]]:
    """As `list_queues`."""

def list_medium() -> list[dict[str, Any]]:
    """As `list_queues`."""

def netem(options: str) -> list[tuple[str, Any]]:
    """The fields of a scenario that say the same as options of Linux's netem, such as `delay 20ms loss 1%`.

    Raises:
        ValueError: They are no such options, or have no equal.
    """

def calibration(seed: int, pieces: int) -> list[dict[str, Any]]:
    """Statistics of every built-in channel beside those of the recording it is fitted to."""

def list_channels() -> list[dict[str, Any]]:
    """The names that `--trace` takes."""

def trace_read(text: str, seed: int = 1, duration_s: float = 60.0) -> _TraceTimes:
    """The trace of a channel: a file, or a name. The seed and the duration are for built-in channels."""

def trace_info(text: str) -> dict[str, Any]:
    """Statistics of a channel's trace."""

def trace_write(times_ms: NDArray[int64] | Sequence[int], path: str | PathLike[str]) -> None:
    """Writes a trace, whole or not at all; the path's extension (``.gz``, ``.xz``) selects the compression."""

def trace_convert(raw_path: str | PathLike[str], rates: bool = False) -> tuple[NDArray[int64], int]:
    """The trace of a raw arrival log, or of a series of rates, and its duration, in milliseconds."""

def trace_generate(name: str, seed: int, duration_s: float) -> NDArray[int64]:
    """Opportunities of a built-in channel, in milliseconds."""

def catalogue() -> list[dict[str, Any]]:
    """The public recordings that can be fetched by name."""

def read_file(path: str | PathLike[str], most: int) -> bytes: ...
def is_given_pipe(path: str | PathLike[str]) -> bool: ...
def cut_warning(path: str | PathLike[str]) -> str | None:
    """A warning if the last line of a file has no newline: it may be cut off."""

def log_kind(path: str | PathLike[str]) -> Literal["capture", "iperf3", "link log"]:
    """What a file holds: a capture (pcapng or pcap), the JSON of iperf3, or else a link log."""

def analyze_capture(path: str | PathLike[str], trace: tuple[int, str | PathLike[str]] | None = None) -> dict[str, Any]:
    """The flows of a capture, or of the JSON of `iperf3 -J`, plain or compressed.

    `trace` is the number of a flow, from 1, and a file to write the trace of its delivery rate to.
    """

def analyze_log(path: str | PathLike[str]) -> dict[str, Any]:
    """Metrics, `series` and `capacity` of a Mahimahi link log, plain or compressed (gzip, xz)."""

def link_log_fates(
    path: str | PathLike[str],
) -> tuple[NDArray[int64], NDArray[int64], NDArray[bool_]] | None:
    """Times (ms) and bytes of a Mahimahi link log's opportunities, and each packet's drop; None if it is none."""

def jain(shares: Sequence[float] | NDArray[float64]) -> float | None:
    """Jain's index of the flows' shares (SIGCOMM 2015, Eq. 7): 1 if all are equal; None if all are 0."""

def metric_columns() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The metrics of a row of results, and those of each of its flows, in their order."""

def version() -> str:
    """Version of the Rust crates."""
