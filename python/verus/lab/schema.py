"""A scenario's types and settings, written by `scripts/scenario_types.py` from Rust's schema.

Functions that take a path or a run have their settings from here: as keywords (`…Options`), and as values with
defaults (`…Settings`). Ranges are in `verus.lab.scenario.SCHEMA`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict


class Flow(TypedDict, total=False):
    """One flow of a scenario."""

    #: The algorithm, such as `verus:ratio=2`.
    scheme: str
    #: When the flow begins, s.
    start_s: float
    #: When the flow ends, s; the run's end if absent.
    stop_s: float | None
    #: Its propagation delay each way, ms; the scenario's if absent.
    delay_ms: float | None
    #: Which links its data cross where there are two: `first`, `second` or, if absent, both.
    crosses: str | None
    #: Size of the one file that the flow sends, bytes; as `traffic` says if absent.
    bytes: int | None
    #: What the flow has to send, such as `on-off:off_s=60`, `c.r1002` or `files:bytes=100000`; always
    #: something, `full`, if absent.
    traffic: str | None


class Change(TypedDict, total=False):
    """A change of the path at an instant; what is absent stays. It concerns what has not left the bottleneck."""

    #: When the change takes place, s.
    at_s: float
    #: The bottleneck's rate, Mbit/s, 0 to hold all packets; only where the channel is a `rate:`.
    rate_mbps: float | None
    #: The rate of the acknowledgements' link, Mbit/s, likewise.
    ack_rate_mbps: float | None
    #: Propagation delay each way, ms, for all flows. Packets under way keep their order.
    delay_ms: float | None
    #: Random additional delay of data packets behind the bottleneck.
    jitter: str | None
    #: The same for acknowledgements.
    ack_jitter: str | None
    #: Probability of random loss.
    loss: float | None
    #: Losses in bursts.
    loss_bursts: str | None


class PathOptions(TypedDict, total=False):
    """The fields of a path beside its channel and queue."""

    #: A second link in series, which data cross after the first, with a queue of its own; none if absent.
    #: Results state the time in the last queue that a packet crossed, and the capacity of the narrower link.
    second_trace: str | None
    #: The queue before the second link.
    second_queue: str
    #: What acknowledgements cross: `ideal` (only propagation), `same` (the channel's own trace), `rate:MBPS`,
    #: a file or a name.
    ack: str
    #: The queue of the acknowledgements' link.
    ack_queue: str
    #: A medium that data and acknowledgements share, such as `wifi:aggregate=32` (`verus list medium`).
    #: `trace` and `ack` are then its rates.
    medium: str
    #: Propagation delay each way, ms.
    delay_ms: float
    #: Bytes that each opportunity of a trace carries: 1504 as Mahimahi does, or 1500.
    opportunity_bytes: int
    #: Whether a trace begins again at its end, rather than carrying nothing more.
    loop: bool
    #: Propagation delay of acknowledgements, ms, of flows that have none of their own; `delay_ms` if absent.
    ack_delay_ms: float | None
    #: A file with a recorded series of propagation delays, in place of `delay_ms`, each way: a whole number
    #: of ms a line, each for 10 ms. Packets overtake others where it falls.
    delay_series: str | None
    #: A file with CellReplay's light trace of the data's path, in place of `delay_ms` there: a packet train
    #: on each line, `time base off0 off1 …` in ms. `trace` is then its heavy trace, which carries the packets
    #: beyond a train, 1400 bytes with each opportunity; `packet_bytes` is at most that.
    light_trace: str | None
    #: The same for acknowledgements, whose heavy trace is `ack`.
    ack_light_trace: str | None
    #: How long nothing must have left a light trace before a packet begins another train, ms.
    light_timer_ms: float
    #: A file with what is added to the light trace's delay by size of packet (CellReplay's size offsets):
    #: lines of `size offset`, for 100, 200, … 1400 bytes, in ms.
    size_offsets: str | None
    #: The same for acknowledgements.
    ack_size_offsets: str | None
    #: Random additional delay of data packets behind the bottleneck, such as `gauss:mean_ms=5` (`verus list
    #: jitter`); they keep their order.
    jitter: str
    #: The same for acknowledgements.
    ack_jitter: str
    #: Which data packets arrive late, behind later ones, such as `late:p=0.05,ms=10` (`verus list reorder`).
    reorder: str
    #: Probability that a data packet is lost on its way to the bottleneck.
    loss: float
    #: Losses of data packets in bursts, as LOST/OF: `2/18` loses the last two of every 18 packets.
    loss_bursts: str
    #: Losses of data packets before the bottleneck that depend on those before, all flows together, such as
    #: `gemodel:p=0.01,r=0.1` (`verus list loss`).
    loss_model: str
    #: A file with a series of loss probabilities before the bottleneck, beside `loss`: a number between 0 and
    #: 1 a line, each for 10 ms. It repeats.
    loss_series: str | None
    #: Probability that a data packet is sent on twice, before losses and the bottleneck.
    duplicate: float
    #: Probability that a data packet arrives corrupt: it crosses the bottleneck, and its receiver drops it.
    corrupt: float
    #: A policer (token bucket) before the bottleneck, which drops data packets that exceed its rate, such as
    #: `bucket:rate_mbps=10,burst=150000`.
    policer: str
    #: Probability that an acknowledgement is lost.
    ack_loss: float
    #: Changes of the path during the run, in order of time.
    changes: Sequence[Change]
    #: Period after which the path returns to its first state and the changes start again, s; if absent, they
    #: happen once.
    changes_repeat_s: float | None


class RunOptions(TypedDict, total=False):
    """The fields of a whole run."""

    #: Size of data packets as the link accounts them (IP), bytes: more than the 40 of an IPv4 and a TCP
    #: header.
    packet_bytes: int
    #: Whether a handshake has told each sender the path's round trip without queues before data leaves, as
    #: TCP's and QUIC's do; no packet of it is simulated.
    handshake: bool
    #: Data packets for each acknowledgement: 1 acknowledges each, 2 is TCP's delayed ACK.
    ack_every: int
    #: Data packets that are acknowledged one by one all the same, at a connection's beginning and after a
    #: pause of 240 ms. Unless it is 0, those behind missing data are too. Linux's receiver does so with 16.
    quick_acks: int
    #: Length of the run, s.
    duration_s: float
    #: Seed of every random stream in the run.
    seed: int
    #: Width of the bins of time series, ms.
    bin_ms: float
    #: The most events that the run may take (a packet's arrival is one, and so is a timer): it fails if it
    #: takes more. No bound if absent.
    max_events: int | None


class Scenario(PathOptions, RunOptions, total=False):
    """A run: flows over one shared bottleneck."""

    #: The channel: a file, the name of a built-in or cached one, or `rate:MBPS`.
    trace: str
    #: The bottleneck's queue, such as `red:min=375000,max=1125000,p=0.1`.
    queue: str
    #: The flows.
    flows: Sequence[Flow]
    #: Size of acknowledgements with IP and TCP headers, bytes.
    ack_bytes: int
    #: Whether each packet's fate is recorded.
    records: bool
    #: Whether time series and profile snapshots are sampled.
    series: bool
    #: Whether each flow's epochs are sampled, to train a model on them.
    epochs: bool


@dataclass(frozen=True, kw_only=True)
class PathSettings:
    """The fields of a path beside its channel and queue: `PathOptions`, with defaults."""

    second_trace: str | None = None
    second_queue: str = "infinite"
    ack: str = "ideal"
    ack_queue: str = "infinite"
    medium: str = "none"
    delay_ms: float = 20.0
    opportunity_bytes: int = 1504
    loop: bool = True
    ack_delay_ms: float | None = None
    delay_series: str | None = None
    light_trace: str | None = None
    ack_light_trace: str | None = None
    light_timer_ms: float = 0.0
    size_offsets: str | None = None
    ack_size_offsets: str | None = None
    jitter: str = "none"
    ack_jitter: str = "none"
    reorder: str = "none"
    loss: float = 0.0
    loss_bursts: str = "none"
    loss_model: str = "none"
    loss_series: str | None = None
    duplicate: float = 0.0
    corrupt: float = 0.0
    policer: str = "none"
    ack_loss: float = 0.0
    changes: Sequence[Change] = ()
    changes_repeat_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The fields of a whole run: `RunOptions`, with defaults."""

    packet_bytes: int = 1500
    handshake: bool = False
    ack_every: int = 1
    quick_acks: int = 0
    duration_s: float = 60.0
    seed: int = 1
    bin_ms: float = 100.0
    max_events: int | None = None
