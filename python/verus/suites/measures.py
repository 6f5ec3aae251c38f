"""Quantities that a check can ask for, by name, each computed from the outcome of a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from verus import _verus
from verus.suites.bbr_states import STATE_MEASURES
from verus.suites.seen import METRICS, RECORDS, Array, HiddenError, Measure, NotSeenError, NotTriedError, Seen, measured

#: Measures of the end of something: a run lasts a multiple of the latest time that a check allows.
ENDS = ("completion", "session_end")

#: The initial window of RFC 9002, section 7.2, in packets.
_INITIAL_PACKETS = 10

#: Every quantity by name.
MEASURES: dict[str, Measure] = {}


@measured(
    MEASURES, "s", "when the flow's transfer had been delivered completely, from the beginning of the run", METRICS
)
def _completion(seen: Seen) -> float | None:
    if seen.own.get("completions") is None:
        raise NotSeenError("the flow has no transfer that ends")
    if not seen.own["completions"]:
        return None
    return float(seen.scenario["flows"][seen.flow].get("start_s", 0.0)) + float(seen.own["completion_mean_s"])


@measured(MEASURES, "ms", "how long a measured frame of the flow's media takes, on average")
def _frame_delay_mean(seen: Seen) -> float | None:
    # Frames that have not arrived yet would be the latest.
    return None if _session_end(seen) is None else 1e3 * float(seen.own["completion_mean_s"])


@measured(MEASURES, "ms", "how long a measured frame of the flow's media takes at the most")
def _frame_delay_max(seen: Seen) -> float | None:
    return None if _session_end(seen) is None else 1e3 * float(seen.own["completion_max_s"])


@measured(MEASURES, "s", "when the last frame of the flow's media had arrived, from the beginning of the run")
def _session_end(seen: Seen) -> float | None:
    connections = seen.outcome["connections"]
    ends = np.asarray(connections["end_s"], dtype=float)[np.asarray(connections["flow"]) == seen.flow]
    if not len(ends):
        raise NotSeenError("the flow has no session that ends")
    return None if np.isnan(ends[-1]) else float(ends[-1])


@measured(MEASURES, "s", "median time that a file of the flow takes")
def _median_completion(seen: Seen) -> float | None:
    connections = seen.outcome["connections"]
    chosen = np.asarray(connections["flow"]) == seen.flow
    took = (np.asarray(connections["end_s"]) - np.asarray(connections["start_s"]))[chosen]
    took = took[~np.isnan(took)]
    return float(np.median(took)) if len(took) else None


def _mean(values: Array) -> float:
    """The mean of the bins in which the flow had a value."""
    if np.isnan(values).all():
        raise NotSeenError("the flow had no value meanwhile")
    return float(np.nanmean(values))


def _capacity(seen: Seen) -> Array:
    """The capacity of the link in each bin, Mbit/s, not all of them 0."""
    capacity = seen.capacity[seen.during]
    if not capacity.any():
        raise NotSeenError("the link could carry nothing meanwhile")
    return capacity


@measured(MEASURES, "", "share of what the link could carry that it carried, all flows together")
def _utilization(seen: Seen) -> float:
    flows = len(seen.scenario["flows"])
    carried = sum(float(np.nansum(seen.over_time("throughput_mbps", flow)[seen.during])) for flow in range(flows))
    return carried / float(np.sum(_capacity(seen)))


def _used_in(seen: Seen, start_s: float, end_s: float) -> float:
    return _utilization(replace(seen, options={**seen.options, "from_s": start_s, "to_s": end_s}))


def _adapted_s(seen: Seen) -> tuple[float, float]:
    """The time of the last path change, and the time 1 s and ten round trips later."""
    changes = seen.scenario["changes"]
    if not changes:
        raise NotSeenError("the path does not change")
    changed = float(changes[-1]["at_s"])
    delay_ms = [change["delay_ms"] for change in changes if "delay_ms" in change] or [seen.scenario["delay_ms"]]
    return changed, changed + 1 + 10 * 2e-3 * float(delay_ms[-1])


@measured(MEASURES, "", "share of the link that all flows used in 1 s and ten round trips after the path's last change")
def _used_while_adapting(seen: Seen) -> float:
    return _used_in(seen, *_adapted_s(seen))


@measured(MEASURES, "", "share of the link that all flows used from 1 s and ten round trips after its last change on")
def _used_once_adapted(seen: Seen) -> float:
    return _used_in(seen, _adapted_s(seen)[1], float(seen.scenario["duration_s"]))


@measured(MEASURES, "Mbit/s", "what the link carried of the flow")
def _throughput(seen: Seen) -> float:
    return _mean(seen.over_time("throughput_mbps")[seen.during])


@measured(MEASURES, "", "the flow's throughput over an equal part of the link")
def _fair_share(seen: Seen) -> float:
    """The flow's throughput over an equal share of the capacity."""
    return _throughput(seen) * len(seen.scenario["flows"]) / float(np.mean(_capacity(seen)))


def _index(shares: Array) -> float:
    index = _verus.jain(shares)
    if index is None:
        raise NotSeenError("nothing was carried meanwhile")
    return index


def _shares(seen: Seen) -> Array:
    """The throughput of each flow in each bin, Mbit/s; a line for each flow."""
    flows = range(len(seen.scenario["flows"]))
    return np.array([seen.over_time("throughput_mbps", flow)[seen.during] for flow in flows])


@measured(MEASURES, "", "Jain's index of the flows' throughput")
def _jain(seen: Seen) -> float:
    return _index(np.array(list(map(_mean, _shares(seen)))))


@measured(MEASURES, "", "Jain's index of the flows' throughput in each second, on average")
def _jain_1s(seen: Seen) -> float:
    shares = _shares(seen)
    bins = round(1e3 / float(seen.scenario["bin_ms"]))
    seconds = [shares[:, start : start + bins] for start in range(0, shares.shape[1] - bins + 1, bins)]
    return float(np.mean([_index(np.array(list(map(_mean, second)))) for second in seconds]))


@measured(MEASURES, "", "mean queueing delay of the flow's packets over its round trip without a queue")
def _queue_per_rtt(seen: Seen) -> float:
    carried = np.nan_to_num(seen.over_time("throughput_mbps"))[seen.during]
    waited = np.nan_to_num(seen.over_time("qdelay_ms"))[seen.during]
    if not carried.any():
        raise NotSeenError("nothing was carried meanwhile")
    return float(np.sum(carried * waited) / np.sum(carried)) / 1e3 / seen.base_rtt_s


def _carried_and_waited(seen: Seen) -> tuple[Array, Array]:
    """The throughput of each flow in each bin, Mbit/s, and its packets' queueing delay, ms; a line for each flow."""
    flows = range(len(seen.scenario["flows"]))
    carried = np.array([np.nan_to_num(seen.over_time("throughput_mbps", flow)[seen.during]) for flow in flows])
    waited = np.array([np.nan_to_num(seen.over_time("qdelay_ms", flow)[seen.during]) for flow in flows])
    if not carried.any():
        raise NotSeenError("nothing was carried meanwhile")
    return carried, waited


@measured(MEASURES, "packets", "packets at the bottleneck on average, that under way into the link included")
def _queue_packets(seen: Seen) -> float:
    """The mean number of packets by Little's law, in each bin."""
    carried, waited = _carried_and_waited(seen)
    kilobits = float(np.sum(carried * waited) / carried.shape[1])
    return kilobits * 1e3 / 8 / float(seen.scenario["packet_bytes"])


@measured(MEASURES, "packets", "packets that a flow believes to have queued, on average")
def _believed_packets(seen: Seen) -> float:
    flows = range(len(seen.scenario["flows"]))
    return float(np.mean([_mean(seen.over_time("queued_packets", flow)[seen.during]) for flow in flows]))


def _waited_ms(seen: Seen) -> Array:
    """The mean queueing delay of all flows' packets, in each bin in which one left."""
    carried, waited = _carried_and_waited(seen)
    all_carried = np.sum(carried, axis=0)
    chosen = all_carried > 0
    delays_ms: Array = np.sum(carried * waited, axis=0)[chosen] / all_carried[chosen]
    return delays_ms


@measured(MEASURES, "ms", "median over time of the queueing delay of all flows' packets")
def _queue_ms(seen: Seen) -> float:
    """The median over time, which short drains do not move."""
    return float(np.median(_waited_ms(seen)))


@measured(MEASURES, "ms", "mean over time of the queueing delay of all flows' packets")
def _queue_mean_ms(seen: Seen) -> float:
    return float(np.mean(_waited_ms(seen)))


@measured(MEASURES, "", "mean round trip over the flow's round trip without a queue")
def _rtt_ratio(seen: Seen) -> float:
    carried, waited = _carried_and_waited(seen)
    return 1 + float(np.sum(carried * waited) / np.sum(carried)) / 1e3 / seen.base_rtt_s


@measured(MEASURES, "marks", "the flow's mean window times its mean share of marks: marks in a round trip")
def _window_by_marks(seen: Seen) -> float:
    window, alpha = (_mean(seen.over_time(name)[seen.during]) for name in ("window_packets", "alpha"))
    return float(window * alpha)


@measured(MEASURES, "packets", "packets that the flow sent again", METRICS)
def _retransmissions(seen: Seen) -> float:
    if seen.own.get("retransmitted") is None:
        raise HiddenError("the sender does not show what it sent again")
    return float(seen.own["retransmitted"])


@measured(MEASURES, "ms", "variation of the flow's round trips at the end (RTTVAR of RFC 9002)", RECORDS)
def _rtt_variation(seen: Seen) -> float:
    """RTTVAR of RFC 9002, section 5.3, after the last acknowledgement, from each packet's own."""
    sent, acked = seen.packets("sent_ms"), seen.packets("acked_ms")
    acknowledged = ~np.isnan(acked)
    if not acknowledged.any():
        raise NotSeenError("nothing was acknowledged")
    order = np.argsort(acked[acknowledged], kind="stable")
    times = (acked - sent)[acknowledged][order]
    smoothed, variation = float(times[0]), float(times[0]) / 2
    for time in times[1:]:
        variation += (abs(smoothed - time) - variation) / 4
        smoothed += (time - smoothed) / 8
    return variation


@measured(MEASURES, "ms", "95th percentile of the flow's queueing delay", RECORDS)
def _qdelay_p95(seen: Seen) -> float:
    waited = seen.packets("departed_ms") - seen.packets("sent_ms")
    waited = waited[~np.isnan(waited)]
    if not len(waited):
        raise NotSeenError("nothing was carried meanwhile")
    return float(np.quantile(waited, 0.95))


@measured(MEASURES, "", "share of the flow's packets that were dropped", RECORDS)
def _loss(seen: Seen) -> float:
    sent = seen.packets("sent_ms")
    if not len(sent):
        raise NotSeenError("nothing was sent meanwhile")
    return float(np.sum(~np.isnan(seen.packets("dropped_ms")))) / len(sent)


@measured(MEASURES, "", "share of all packets that were dropped", METRICS)
def _loss_rate(seen: Seen) -> float | None:
    loss_rate: float | None = seen.metrics["loss_rate"]
    return loss_rate


@measured(
    MEASURES, "", "share of what the link could carry in the whole run that it carried, all flows together", METRICS
)
def _used(seen: Seen) -> float | None:
    utilization: float | None = seen.metrics["utilization"]
    return utilization


@measured(
    MEASURES,
    "",
    "share of a round trip's packets that leave in `within_ms` (2) after a silence of `idle_s` (1), ten of them free",
    RECORDS,
    options=("within_ms", "idle_s"),
)
def _burst_after_idle(seen: Seen) -> float:
    """The largest burst after any silence; an initial window may leave at once (RFC 9002, section 7.7)."""
    sent_s = np.sort(seen.packets("sent_ms")) / 1e3
    within_s = float(seen.options.get("within_ms", 2.0)) / 1e3
    begins = sent_s[1:][np.diff(sent_s) >= float(seen.options.get("idle_s", 1.0))]
    if not len(begins):
        raise NotTriedError("the flow was never silent for so long")

    first = np.searchsorted(sent_s, begins)
    burst, round_trip = (np.searchsorted(sent_s, begins + end_s) - first for end_s in (within_s, seen.base_rtt_s))
    return float(np.max(np.maximum(burst - _INITIAL_PACKETS, 0) / round_trip))


@measured(MEASURES, "1/s", "packets that the flow sent", RECORDS)
def _packets_per_second(seen: Seen) -> float:
    start, end = seen.interval
    return len(seen.packets("sent_ms")) / (end - start)


#: The number of 100 ms bins over which the rate is averaged, where it must be reached again.
_STEADY_BINS = 5


@measured(
    MEASURES,
    "s",
    "time after `from_s` until the flow has `share` (0.9) of the link's rate over half a second",
    options=("share",),
)
def _recovery(seen: Seen) -> float | None:
    start, _ = seen.interval
    share = float(seen.options.get("share", 0.9))
    chosen = seen.during
    carried, capacity = seen.over_time("throughput_mbps")[chosen], seen.capacity[chosen]
    ones = np.ones(_STEADY_BINS)
    enough = np.convolve(np.nan_to_num(carried), ones, "valid") >= share * np.convolve(capacity, ones, "valid") - 1e-9
    if not enough.any():
        return None
    first = int(np.argmax(enough)) + _STEADY_BINS
    return float(seen.times[chosen][0] + first * float(seen.scenario["bin_ms"]) / 1e3 - start)


MEASURES |= STATE_MEASURES
