"""Types of the Rust extension module.

Everywhere: `ValueError` for bad input, `OSError` for a file
that cannot be read or written, `RuntimeError` otherwise.

Configurations go in and small tables come out as JSON text; what grows with time comes out as NumPy
arrays. The interpreter lock is released while Rust works.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict, final, overload, type_check_only

from numpy import float64, int32, int64
from numpy.typing import NDArray

__all__ = [
    "Acked",
    "Departure",
    "Feedback",
    "Runs",
    "Simulation",
    "Timeout",
    "Trainer",
    "analyze_log",
    "calibration",
    "catalogue",
    "check_channel",
    "check_queue",
    "check_scenario",
    "check_scheme",
    "check_traffic",
    "complete",
    "default_scenario",
    "expand",
    "is_given_pipe",
    "jain",
    "list_channels",
    "list_jitter",
    "list_queues",
    "list_reorder",
    "list_schemes",
    "list_traffic",
    "metric_columns",
    "model_csv",
    "model_info",
    "model_region",
    "quantity",
    "read_file",
    "scenario_schema",
    "simulate",
    "simulate_many",
    "trace_convert",
    "trace_generate",
    "trace_info",
    "trace_read",
    "trace_write",
    "version",
]

@final
class Departure:
    """A packet as it was when it left.

    Attributes:
        number: Never used again: a retransmission gets a new one.
        at_s: When it left.
        size_bytes: Its size (IP).
        window_bytes: The controller's window at that moment.
        in_flight_bytes: What was in flight, this packet included.
        delivered_bytes: What had been acknowledged by then.
        app_limited: Whether there was nothing more to send, rather than no window.
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
    """A packet acknowledged.

    Attributes:
        packet: As it left.
        rtt_ms: Its own round-trip time, unsmoothed.
        received_at_s: When it arrived by the receiver's clock; None where nobody says.
    """

    @property
    def packet(self) -> Departure: ...
    @property
    def rtt_ms(self) -> float: ...
    @property
    def received_at_s(self) -> float | None: ...

@final
class Feedback:
    """All that one acknowledgement, or one expired loss timer, revealed; each list in order of departure.

    Attributes:
        now_s: When it arrived.
        acked: Packets newly acknowledged.
        lost: Packets newly declared lost.
        recovered: Packets declared lost before, and acknowledged after all.
        marked_packets: How many bore a congestion mark (ECN).
        in_flight_before_bytes: What was in flight before this event.
        in_flight_bytes: What is in flight after it.
        delivered_bytes: What was acknowledged in the flow's life, this event included.
        newly_delivered_bytes: What this event says has arrived.
        smoothed_rtt_ms: The smoothed round-trip time (RFC 6298) after it.
        min_rtt_ms: The least round-trip time of the flow's life.
        delivery_mbps: How fast the path delivered since the newest of these packets left
            (draft-cheng-iccrg-delivery-rate-estimation); None where nothing was acknowledged, or too little time
            passed.
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
        now_s: When it fired.
        presumed_lost: Everything that was in flight, in order of departure.
        backoff: How many have fired in a row, this one included.
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
    """What the channel could have carried, by bin; `time_s` is the bin's beginning."""

    time_s: NDArray[float64]
    capacity_mbps: NDArray[float64]

@type_check_only
class _Measured(TypedDict):
    """What a run amounts to.

    `other_channels` are those of `ack` and `second_trace`, where there are any, by the name of the field.
    `metrics` has the names of the results' rows, and `per_flow`. `totals` and `counters` (a dictionary a flow) are
    what the simulator and the senders counted.
    """

    metrics: dict[str, Any]
    trace: _Trace
    other_channels: dict[str, _Trace]
    totals: dict[str, int]
    counters: list[dict[str, int]]

@type_check_only
class _Outcome(_Measured):
    """Everything a run yields.

    `series` has one row a flow and bin: `flow`, `time_s` (the
    bin's beginning), `throughput_mbps`, `qdelay_ms`, `qdelay_max_ms`, `window_bytes`,
    `in_flight_bytes` and what the controller shows of itself; what was not observed is NaN. `phase` is a list:
    ``slow_start``, ``steady``, ``recovery``, ``silent``, or None before the flow starts.
    `profiles`: `flow`, `time_s`, `kind` (``point`` or ``curve``), `window_packets`, `delay_ms`.
    `connections` has one row for each connection of a flow that does not send all the time, in the order in which
    they began: `flow`, `connection` (from 0), `start_s`, `end_s` (NaN if the flow or the run ended first),
    `file_bytes` (NaN if it was to last for a time), `delivered_bytes`.
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

def default_scenario() -> str:
    """JSON: every field of a scenario, as it is where nothing is said."""

def scenario_schema() -> str:
    """JSON Schema (draft 2020-12) of a scenario: type, range, default and meaning of each field."""

def check_scenario(scenario_json: str) -> None:
    """Refuses what the schema does not allow, and fields that contradict each other; reads no file that it names."""

def simulate(scenario_json: str, progress: Callable[[float], bool | None] | None = None) -> _Outcome:
    """Runs one scenario. `progress` hears the share done; returning False stops the run (`RuntimeError`)."""

@final
class Runs:
    """Runs under way, whose outcomes are taken as they end: `simulate_many` starts them."""

    def ended(self, timeout_s: float) -> list[tuple[int, _Outcome | _Measured | RuntimeError]]:
        """Index and outcome of those that have ended since the last call.

        It waits for one, but no longer than `timeout_s`. `ValueError` or `OSError` if one cannot be run, or logged.
        """

    def fraction(self) -> float:
        """The share of all the work that is done."""

    def stop(self) -> None:
        """Ends what is under way, and waits until it has."""

@final
class Simulation:
    """A run of one scenario that goes as far as it is told to, for whoever decides something in between."""

    def __new__(cls, scenario_json: str) -> Simulation: ...
    def run_until(self, at_s: float) -> bool:
        """Everything happens that happens before `at_s`; returns whether there is more to come.

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
) -> list[_Outcome | RuntimeError]: ...
@overload
def simulate_many(
    scenarios: Sequence[str],
    threads: int | None = None,
    progress: Callable[[int, float], bool | None] | None = None,
    columns: bool = True,
    qlog: tuple[str | PathLike[str], str, Sequence[str]] | None = None,
    wait: Literal[True] = True,
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
) -> Runs:
    """Runs many, on all cores if `threads` is None; outcomes in the order of `scenarios`.

    `qlog` is a folder for a log of each flow, their format (`draft` or `0.3`), and what each run's channel is called in
    them; `OSError` if one cannot be written, or is there already.

    In place of a run whose controller, a class of the user's, failed stands the exception that says why. Without
    `columns` nothing is an array, and NumPy is not imported.

    `progress` hears how many are done and the share of all the work, in the caller's thread;
    returning False stops all of them (`RuntimeError`).

    Unless it is to `wait`, it returns the runs under way, which the caller must stop.
    """

@type_check_only
class _Region(TypedDict):
    """Elements of a matrix, by row and column from the region's beginning."""

    row: NDArray[int64]
    column: NDArray[int64]
    probability: NDArray[float64]

@final
class Trainer:
    """What models are made of: transitions that were counted, of which any quantization makes another model.

    `recorded` holds for each run each packet's flow, when it left and when it was acknowledged, ms (NaN if never).
    `progress` as in `simulate_many`.
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
        """All that others counted, as if one had watched it."""

    def model(self, about_json: str, quantization_ms: int, percentile: float) -> bytes:
        """The bytes of a model's file."""

def model_info(path: str | PathLike[str]) -> str:
    """JSON: what a model file holds."""

def model_csv(path: str | PathLike[str], csv: str | PathLike[str]) -> int:
    """Writes a model's whole matrix as comma-separated probabilities; how many bytes that takes."""

def model_region(path: str | PathLike[str], first: int, delays: int) -> _Region:
    """The elements within `delays` quantization steps from the `first`."""

def check_scheme(text: str) -> str:
    """JSON: ``{"scheme", "params", "label"}``."""

def check_queue(text: str) -> str:
    """JSON: ``{"queue", "text"}``, the kind and its full text."""

def check_channel(text: str) -> str:
    """JSON: ``{"name", "kind": "built-in" | "cached" | "file" | "rate" | "joined", …}``.

    What is put together has ``"parts": [{"text", "channel", "seed", "from_s", "to_s"}]``; `text` names its channel as
    it was written.
    """

def check_traffic(text: str) -> str:
    """JSON: ``{"traffic"}``, the kind."""

def quantity(text: str, unit: str) -> float:
    """A number, with a unit behind it if it has one (``2m``, ``120kB``).

    It is returned in ``unit``: ``s``, ``ms``, ``bytes``, ``Mbit/s`` or ``share``.

    Raises:
        ValueError: It is none.
    """

def complete(what: str, text: str) -> list[str]:
    """How the beginning of a text may go on; ``what`` it names: ``scheme``, ``queue``, ``traffic``, ``channel``."""

def expand(text: str) -> list[str]:
    """The texts that a scheme or a queue stands for: ``verus:ratio=2,4`` and ``verus:ratio=2..6`` are several.

    Raises:
        ValueError: A range leads downwards, or there are too many.
    """

def list_schemes() -> str:
    """JSON: ``[{"name", "summary", "keys": [{"key", "unit", "default", "meaning"}]}]``."""

def list_queues() -> str:
    """JSON, as `list_schemes`."""

def list_traffic() -> str:
    """JSON, as `list_queues`."""

def list_jitter() -> str:
    """JSON, as `list_queues`."""

def list_reorder() -> str:
    """JSON, as `list_queues`."""

def calibration(seed: int, pieces: int) -> str:
    """JSON: statistics of every built-in channel beside those of the recording it is fitted to."""

def list_channels() -> str:
    """JSON: what `--trace` takes by name."""

def trace_read(text: str, seed: int = 1, duration_s: float = 60.0) -> _TraceTimes:
    """The trace of a channel: a file, or a name. The seed and the duration are for what is built in."""

def trace_info(text: str) -> str:
    """JSON: statistics of a channel's trace."""

def trace_write(times_ms: NDArray[int64] | Sequence[int], path: str | PathLike[str]) -> None:
    """Writes a trace, whole or not at all; the path's extension (``.gz``, ``.xz``) says how."""

def trace_convert(raw_path: str | PathLike[str], rates: bool = False) -> tuple[NDArray[int64], int]:
    """The trace that a raw arrival log, or a series of rates, makes, and how long it is, in milliseconds."""

def trace_generate(name: str, seed: int, duration_s: float) -> NDArray[int64]:
    """Opportunities of a built-in channel, in milliseconds."""

def catalogue() -> str:
    """JSON: the public recordings that can be fetched by name."""

def read_file(path: str | PathLike[str], most: int) -> bytes: ...
def is_given_pipe(path: str | PathLike[str]) -> bool: ...
def analyze_log(path: str | PathLike[str]) -> dict[str, Any]:
    """Metrics, `series` and `capacity` of a Mahimahi link log, plain or compressed (gzip, xz)."""

def jain(shares: Sequence[float] | NDArray[float64]) -> float | None:
    """Jain's index of what each flow got (SIGCOMM 2015, Eq. 7): 1 if all got the same; None if nobody got anything."""

def metric_columns() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The metrics of a row of results, and those of each of its flows, in their order."""

def version() -> str:
    """Version of the Rust crates."""
