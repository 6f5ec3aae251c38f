"""`verus analyze`: the metrics of a link log in Mahimahi's format, and the flows of a capture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from verus import _verus
from verus.commands.options import Flag, Json, count, one
from verus.commands.tables import narrow_table, table_console
from verus.commands.talk import Talk, tell_rows
from verus.errors import FieldError
from verus.lab.arguments import at_least
from verus.lab.atomic_write import refuse_existing
from verus.report.numbers import DELAY_NOTE
from verus.report.printable import line

#: How many flows the table shows; --json has them all.
_MOST_FLOWS = 12

#: How many reasons not to read packets are named.
_MOST_REASONS = 4

_INTERVALS = "intervals do not say whether the path limited the flow, and show nothing faster than themselves"

#: Why a trace need not be a channel, by the source of its delivery rate.
_NOT_A_CHANNEL = {
    "arrivals": "arrivals show the link's rate only behind it, and only where the flow always had data to send",
    "intervals": _INTERVALS,
    "intervals of the sender": f"the sender's intervals show what it sent, not what arrived; {_INTERVALS}",
}


def analyze(
    log: str,
    /,
    *,
    flow: Annotated[int | None, count("N")] = None,
    trace_out: Annotated[Path | None, one("FILE")] = None,
    force: Flag = False,
    json_: Json = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> int:
    """Every metric of a Mahimahi link log, defined as for simulated runs; or the flows of a capture.

    A capture is pcapng or pcap of any program, of TCP, QUIC or other UDP; `iperf3 -J` and `iperf3 --json-stream` are
    read likewise. For each flow: throughput, round trips, queueing above the least of them, losses, and what limited it
    (docs/captures.md).

    Parameters
    ----------
    log
        The log that `mm-link --uplink-log` or `--downlink-log` wrote, a capture, or the output of `iperf3 -J`. Each may
        be compressed (.gz or .xz).
    flow
        Number of the flow for --trace-out, in the order of the table; 1 unless it is given.
    trace_out
        Write the delivery rate of one flow of a capture as a trace, which `verus compare --trace` takes.
    force
        Replace a trace that exists.
    json_
        Print JSON instead of a table: one object for a link log, or one a line for each flow of a capture.
    """
    if trace_out is None and (flow is not None or force):
        raise FieldError("force" if force else "flow", "is for --trace-out FILE")
    if _verus.log_kind(log) != "link log":
        return _capture(log, 1 if flow is None else flow, trace_out, force=force, json_=json_, talk=talk)
    if trace_out is not None:
        raise FieldError("trace_out", f"is for captures, and `{log}` is none")
    analysis = _verus.analyze_log(log)
    if analysis.pop("has_unfinished_line"):
        talk.say(f"Warning: `{log}`: its last line is cut off, and left out")
    metrics = {**{key: value for key, value in analysis.items() if not isinstance(value, dict)}, **analysis["metrics"]}
    metrics = {key: value for key, value in metrics.items() if key not in ("series", "capacity")}
    if json_:
        tell_rows([{"schema": 1, "version": _verus.version(), "log": log, **metrics}])
        return 0
    table = narrow_table("metric")
    table.add_column("value", justify="right")
    for key, value in metrics.items():
        if not isinstance(value, list):
            table.add_row(key, "–" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value))
    console = table_console()
    console.print(line(log), style="bold", highlight=False)
    console.print(table)
    console.print(DELAY_NOTE, style="dim")
    return 0


def _capture(log: str, flow: int, trace_out: Path | None, *, force: bool, json_: bool, talk: Talk) -> int:
    """Prints the flows of a capture; writes the trace of one. Returns the exit code: 1 if it has no flow."""
    if trace_out is not None:
        at_least("flow", flow, 1, 2**31)
        refuse_existing(trace_out, force=force, field="trace_out")
    report = _verus.analyze_capture(log, None if trace_out is None else (flow, trace_out))
    for warning in _warnings(report):
        talk.say(f"Warning: `{log}`: {warning}")
    flows = report["flows"]
    if not flows:
        return 1
    if json_:
        identity = {"schema": 1, "version": _verus.version(), "log": log}
        tell_rows([{**identity, "flow": number, **each} for number, each in enumerate(flows, 1)])
    else:
        _tell(log, flows)
    if trace_out is not None:
        for sentence in _channel(report["trace"], flows[flow - 1], trace_out):
            talk.say(sentence)
    return 0


def _warnings(report: dict[str, Any]) -> list[str]:
    warnings = []
    if report["is_cut"]:
        warnings.append("its last packet is cut off, and left out")
    if report["copied_packets"]:
        copied, packets = report["copied_packets"], report["packets"]
        warnings.append(
            f"{copied} of {packets} packets are copies of others, as of several interfaces or a mirror port, and left"
            " out; round trips include the time between the two"
        )
    if report["step_back"] is not None:
        step = report["step_back"]
        warnings.append(
            f"packet {step['packet']} is {step['step_s']:.3f} s earlier than one before it: the clock was set back,"
            " or packets are out of order (reordercap sorts them); rates, round trips and limits may be wrong"
        )
    if report["is_too_long"]:
        warnings.append("too long: its rest is left out (editcap -c cuts captures into pieces)")
    if report["unfollowed_packets"]:
        warnings.append(f"too many connections: {report['unfollowed_packets']} packets are left out")
    if report["unread"]:
        reasons = [f"{number} {reason}" for reason, number in report["unread"][:_MOST_REASONS]]
        more = ", …" if len(report["unread"]) > _MOST_REASONS else ""
        number = report["other_packets"]
        warnings.append(f"{number} packets are not read as TCP or UDP over IP: {', '.join(reasons)}{more}")
    undecided = [str(number) for number, flow in enumerate(report["flows"], 1) if flow["window_or_sender_share"]]
    if undecided:
        more = ", …" if len(undecided) > _MOST_FLOWS else ""
        warnings.append(
            f"flow {', '.join(undecided[:_MOST_FLOWS])}{more}: the window or the sender limited it for some time, which"
            " of them is unknown: the window's scale is in the handshake, which the capture lacks"
        )
    if not report["flows"]:
        warnings.append("no flow with data")
    return warnings


def _tell(log: str, flows: list[dict[str, Any]]) -> None:
    table = narrow_table("flow", "from", "at", whole=1)
    for head in ("Mbit/s", "RTT ms", "p50", "p95", "lost", "path", "window", "sender"):
        table.add_column(head, justify="right")
    for number, flow in enumerate(flows[:_MOST_FLOWS], 1):
        rate = flow["throughput_mbps"] if flow["throughput_mbps"] is not None else flow["goodput_mbps"]
        table.add_row(
            f"{number} {flow['protocol']}",
            line(flow["source"]),
            line(flow["interface"]),
            _number(rate, 3),
            *(_number(flow[f"rtt_{name}_ms"], 1) for name in ("min", "p50", "p95")),
            _share(flow["loss_rate"], 2),
            *(_share(flow[f"{limit}_share"], 0) for limit in ("path", "window", "sender")),
        )
    console = table_console()
    console.print(line(log), style="bold", highlight=False)
    console.print(table)
    if len(flows) > _MOST_FLOWS:
        console.print(f"{len(flows) - _MOST_FLOWS} more flows: --json", style="dim")
    console.print("Queueing is the round trip above its least; path, window, sender: what limited it.", style="dim")


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _share(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def _channel(trace: dict[str, Any], flow: dict[str, Any], path: Path) -> list[str]:
    """Sentences about the trace: its rate, and how far it is a channel."""
    sentences = [
        f"Trace: {path}: {trace['mean_mbps']:.3f} Mbit/s for {trace['duration_s']:.1f} s,"
        f" from {flow['trace_start_s']:.3f} s on, by {flow['delivery_from']}"
    ]
    if flow["path_share"] is None:
        sentences.append(f"Warning: {_NOT_A_CHANNEL[flow['delivery_from']]}")
        return sentences
    sentences.append(
        f"The path limited the flow for {_share(flow['path_share'], 0)} of the time: there it is the channel"
    )
    if flow["unlimited_s"]:
        parts = ", ".join(f"{from_:.1f}–{to:.1f} s ({limit})" for from_, to, limit in flow["unlimited_s"])
        sentences.append(f"Elsewhere the link may carry more than the trace shows: {parts}")
    return sentences
