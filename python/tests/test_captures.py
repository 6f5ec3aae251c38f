"""`--pcap` and `verus analyze` of captures: beside tshark, the simulator, and the channel."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verus import _verus

Command = Callable[..., Any]

RUN = ("compare", "--trace", "rate:8", "--duration", "10", "--queue", "droptail:bytes=60kB", "--json")


@pytest.fixture(scope="module")
def tshark() -> Callable[..., list[list[str]]]:
    """tshark's output for a capture: the named fields of each packet, or nothing for an option `-w`.

    Where it is not installed, its tests are skipped, but fail where `CI` is set.
    """
    path = shutil.which("tshark")
    if path is None:
        why = "no tshark on the PATH (apt install tshark)"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)

    def run(capture: Path, *words: str) -> list[list[str]]:
        first = next((at for at, word in enumerate(words) if at % 2 == 0 and not word.startswith("-")), len(words))
        fields = [word for field in words[first:] for word in ("-e", field)]
        command = [path, "-n", "-r", str(capture), *words[:first]]
        if fields:
            command += ["-T", "fields", *fields]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        complaints = [text for text in done.stderr.splitlines() if text and not text.startswith("Running as user")]
        assert not complaints
        return [text.split("\t") for text in done.stdout.splitlines()]

    return run


def test_tshark_computes_what_the_simulator_measures(
    verus: Command, tshark: Callable[..., list[list[str]]], tmp_path: Path
) -> None:
    captures = tmp_path / "captures"
    run = verus(*RUN, "--duration", "5", "--scheme", "cubic", "vegas", "--flows", "2", "--pcap", captures)
    rows = {row["scheme"]: row for row in map(json.loads, run.out.splitlines())}
    for scheme, row in rows.items():
        capture, before = captures / f"{scheme}_rate-8_seed1.pcapng", tmp_path / f"{scheme}.pcapng"
        packets = tshark(
            capture,
            *("-o", "ip.check_checksum:TRUE"),
            *("frame.interface_name", "ip.src", "frame.len", "ip.len", "ip.checksum.status"),
            *("frame.comment", "_ws.malformed", "tcp.len"),
        )
        # Checksums are right, nothing is malformed, and the original length is that of the IP header.
        for _, _, length, ip_length, checksum, _, malformed, tcp_length in packets:
            assert (length, checksum, malformed) == (ip_length, "1", "")
            assert tcp_length
        dropped = sum("dropped: " in packet[5] for packet in packets)
        assert (dropped > 0) == (row["loss_rate"] > 0) == (scheme == "cubic")
        # tshark follows a connection through the whole file: one side of the bottleneck at a time.
        tshark(capture, "-Y", 'frame.interface_name == "bottleneck in"', "-w", str(before))
        analysis = ("tcp.analysis.retransmission", "tcp.analysis.out_of_order", "tcp.analysis.ack_rtt")
        analyzed = tshark(before, "ip.src", "ip.dst", *analysis)
        for flow in row["per_flow"]:
            sender = f"10.1.0.{flow['flow'] + 1}"
            sent = [packet for packet in analyzed if packet[0] == sender]
            # Each packet whose data has passed before; tshark takes some for late ones.
            again = sum(bool(packet[2] or packet[3]) for packet in sent)
            assert again / len(sent) == pytest.approx(flow["retransmit_rate"], abs=1e-9)
            departed = [int(packet[2]) for packet in packets if packet[:2] == ["bottleneck out", sender]]
            assert 8e-6 * sum(departed) / row["duration_s"] == pytest.approx(flow["throughput_mbps"], rel=1e-9)
            rtt_ms = 1e3 * np.array(
                [packet[4] for packet in analyzed if packet[1] == sender and packet[4]], dtype=float
            )
            if scheme == "vegas":  # in recovery it waits for the number that acknowledges all, whatever SACK says
                assert rtt_ms.mean() == pytest.approx(flow["rtt_mean_ms"], rel=1e-3)
                assert np.quantile(rtt_ms, 0.95) == pytest.approx(flow["rtt_p95_ms"], rel=2e-3)


def test_a_run_is_the_same_with_a_capture_and_each_run_has_one(verus: Command, tmp_path: Path) -> None:
    without = verus(*RUN, "--scheme", "verus", "--mix", "cubic+verus").out
    captures = tmp_path / "captures"
    again = verus(*RUN, "--scheme", "verus", "--mix", "cubic+verus", "--pcap", captures)
    assert again.out == without
    assert f"Captures: {captures}" in again.err
    assert len(list(captures.iterdir())) == 2


@pytest.mark.real_time
def test_what_real_programs_send_is_captured_on_both_sides_of_the_links(
    verus: Command, tshark: Callable[..., list[list[str]]], tmp_path: Path
) -> None:
    """Linux's TCP fills a link of 8 Mbit/s with a queue of 30 packets: each dropped packet has a comment."""
    if shutil.which("iperf3") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no iperf3 on the PATH (apt install iperf3)")
    capture, program = tmp_path / "shell.pcapng", Path(sys.executable).parent / "verus-endpoint"
    behind = f"{program} shell -q --down rate:8 --queue droptail:packets=30 --pcap {capture}"
    line = f"ip link set lo up; iperf3 -s -D -1; {behind} -- iperf3 -c 100.64.0.1 -R -t 4"
    done = subprocess.run(["unshare", "-rn", "sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    fields = ("frame.interface_name", "ip.src", "ip.checksum.status", "_ws.malformed", "tcp.len", "frame.comment")
    packets = tshark(capture, "-o", "ip.check_checksum:TRUE", *fields)
    assert {(checksum, malformed) for _, _, checksum, malformed, *_ in packets} == {("1", "")}
    data = [packet for packet in packets if packet[1] == "100.64.0.1" and int(packet[4]) > 1000]
    enters, leaves = ([packet for packet in data if packet[0] == side] for side in ("far side", "program side"))
    dropped = sum(packet[5].startswith("dropped: refused") for packet in enters)
    assert dropped > 0
    # The last ones may be inside as the program ends.
    assert 0 <= len(enters) - dropped - len(leaves) <= 31
    assert not any(packet[5] for packet in leaves)
    flows = [json.loads(text) for text in verus("analyze", capture, "--json").out.splitlines()]
    (down,) = (flow for flow in flows if flow["interface"] == "program side" and flow["bytes"] > 1_000_000)
    assert down["throughput_mbps"] == pytest.approx(8 * 1500 / 1504, rel=0.05)


@pytest.mark.real_time
def test_the_times_of_a_capture_are_those_of_the_wall_clock(
    tshark: Callable[..., list[list[str]]], tmp_path: Path
) -> None:
    capture, program = tmp_path / "shell.pcapng", Path(sys.executable).parent / "verus-endpoint"
    sends = "date +%s.%N; echo > /dev/udp/100.64.0.1/9; date +%s.%N; sleep 0.3"
    line = f"ip link set lo up; {program} shell -q --down rate:8 --pcap {capture} -- bash -c '{sends}'"
    done = subprocess.run(["unshare", "-rn", "sh", "-c", line], capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    ((at,), *_) = tshark(capture, "-Y", "udp.dstport == 9", "frame.time_epoch")
    assert before < float(at) < after + 0.1


@pytest.mark.real_time
@pytest.mark.parametrize(("bind", "family"), [("127.0.0.1", "ip"), ("::1", "ipv6")])
def test_a_probe_captures_what_it_sends_and_receives(
    bind: str, family: str, verus: Command, tshark: Callable[..., list[list[str]]], tmp_path: Path
) -> None:
    capture, program = tmp_path / "probe.pcapng", Path(sys.executable).parent / "verus-endpoint"
    server: list[str | Path] = [program, "probe", "server", "--bind", bind, "--port", "0", "--json"]
    client: list[str | Path] = [
        "--direction",
        "both",
        "--duration",
        "2",
        "--rate-mbps",
        "4",
        "--pcap",
        capture,
        "--json",
    ]
    with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            address = json.loads(serving.stdout.readline())["address"]
            command = [program, "probe", "client", address, *client]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        finally:
            serving.kill()
    rows = map(json.loads, done.stdout.splitlines())
    sent = {row["trace"].rpartition(" ")[2]: row["per_flow"][0]["sent"] for row in rows}
    checks = ("-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE")
    fields = ("udp.srcport", "udp.dstport", "frame.len", "frame.cap_len", "udp.checksum.status", "frame.time_epoch")
    packets = tshark(capture, *checks, *fields, f"{family}.src", "_ws.malformed", "_ws.expert.message")
    port = address.rpartition(":")[2]
    assert {(source, malformed, complaint) for *_, source, malformed, complaint in packets} == {(bind, "", "")}
    assert all(port in packet[:2] for packet in packets)
    # A checksum is of the whole datagram, so tools verify those that were captured whole.
    assert {packet[4] for packet in packets if packet[2] == packet[3]} == {"1"}
    for end, direction in ((1, "up"), (0, "down")):
        data = [packet for packet in packets if packet[end] == port and packet[2] == "1400"]
        assert len(data) == pytest.approx(sent[direction], abs=5)
    times = [float(packet[5]) for packet in packets]
    assert times == sorted(times)
    assert abs(times[-1] - time.time()) < 60
    flows = [json.loads(text) for text in verus("analyze", capture, "--json").out.splitlines()]
    assert [flow["interface"] for flow in flows] == ["probe", "probe"]
    assert all(
        flow["bytes"] >= 1400 * least for flow, least in zip(flows, (sent["up"] - 5, sent["down"] - 5), strict=True)
    )


@pytest.mark.parametrize(
    ("place", "more", "problem"),
    [
        ("one.pcapng", (), "is to be a folder"),
        ("file", (), "is not a folder"),
        ("full", (), "not empty"),
        ("captures", ("--emulate",), "simulated runs"),
    ],
)
def test_a_bad_place_is_one_error_and_leaves_nothing(
    place: str, more: tuple[str, ...], problem: str, verus: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    refused = verus(*RUN, "--scheme", "cubic", "--pcap", tmp_path / place, *more)
    assert refused.code == 2
    assert problem in refused.err
    assert refused.out == ""
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".cache") == ["file", "full"]


@pytest.mark.parametrize("channel", ["city-driving-3g-up", "rate:8"])
def test_the_trace_of_a_capture_is_the_channel(channel: str, verus: Command, tmp_path: Path) -> None:
    """Within 1 % of its rate, and correlated by 0.97 in bins of 100 ms."""
    captures, trace = tmp_path / "captures", tmp_path / "link.trace"
    options = ("--trace", channel, "--duration", "30", "--queue", "droptail:bytes=250kB", "--json", "--pcap", captures)
    row = json.loads(verus("compare", *options, "--scheme", "cubic").out)
    (capture,) = captures.iterdir()
    analyzed = verus("analyze", capture, "--json", "--trace-out", trace)
    assert analyzed.code == 0
    flow = next(flow for flow in map(json.loads, analyzed.out.splitlines()) if flow["flow"] == 1)
    assert flow["path_share"] > 0.9
    assert "there it is the channel" in analyzed.err
    times = _verus.trace_read(str(trace))["times_ms"]
    mbps = len(times) * 1504 * 8 / (times[-1] - times[0]) / 1e3
    # An acknowledgement comes a propagation delay there and back after its packet has left the link.
    begin_ms = 1e3 * flow["trace_start_s"] - 40
    if channel != "rate:8":
        link = _verus.trace_read(channel, 1, 30.0)["times_ms"]
        bins = np.arange(2_000, 29_000, 100)  # slow start is over
        carried = np.histogram(link, bins)[0]
        read = np.histogram(times + begin_ms, bins)[0]
        assert np.corrcoef(carried, read)[0, 1] > 0.97
        assert read.sum() == pytest.approx(carried.sum(), rel=0.01)
    else:
        assert mbps == pytest.approx(8, rel=0.01)
    # It is a channel for `compare`.
    played = json.loads(verus("compare", "--trace", trace, "--duration", "30", "--scheme", "cubic", "--json").out)
    assert played["capacity_mbps"] == pytest.approx(row["capacity_mbps"], rel=0.02)


def test_the_table_names_what_limits_a_flow(verus: Command, tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    verus(*RUN, "--scheme", "constant:rate_mbps=4", "--pcap", captures)
    (capture,) = captures.iterdir()
    trace = tmp_path / "slow.trace"
    analyzed = verus("analyze", capture, "--trace-out", trace)
    assert "bottleneck in" in analyzed.out
    assert "(sender)" in analyzed.err
    refused = verus("analyze", capture, "--trace-out", trace)
    assert refused.code == 2
    assert "--force" in refused.err
    assert verus("analyze", capture, "--trace-out", trace, "--flow", "9", "--force").code == 2


def test_iperf3_is_read_too_and_a_broken_capture_names_its_place(verus: Command, tmp_path: Path) -> None:
    intervals = [
        {"sum": {"start": second, "end": second + 1, "seconds": 1, "bytes": 1_504_000, "omitted": False}, "streams": []}
        for second in range(5)
    ]
    (tmp_path / "test.json").write_text(json.dumps({"start": {}, "intervals": intervals, "end": {}}))
    trace = tmp_path / "iperf3.trace"
    analyzed = verus("analyze", tmp_path / "test.json", "--json", "--trace-out", trace)
    assert json.loads(analyzed.out)["goodput_mbps"] == pytest.approx(12.032)
    assert len(_verus.trace_read(str(trace))["times_ms"]) == 5000
    assert "nothing faster" in analyzed.err
    (tmp_path / "test.json").write_text("\ufeff" + (tmp_path / "test.json").read_text())
    assert verus("analyze", tmp_path / "test.json", "--json").out == analyzed.out
    (tmp_path / "broken.pcapng").write_bytes(b"\x0a\x0d\x0d\x0a" + bytes(28))
    broken = verus("analyze", tmp_path / "broken.pcapng")
    assert broken.code != 0
    assert "broken.pcapng" in broken.err
    assert "byte 0" in broken.err


@pytest.mark.parametrize("options", [(), ("--json",), ("--trace-out", "link.trace")])
def test_a_capture_of_which_nothing_can_be_read_names_its_link_type(
    options: tuple[str, ...], verus: Command, tmp_path: Path
) -> None:
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 127)
    (tmp_path / "wifi.pcap").write_bytes(header + struct.pack("<IIII", 0, 0, 8, 8) + bytes(8))
    analyzed = verus("analyze", "wifi.pcap", *options)
    assert (analyzed.code, analyzed.out) == (1, "")
    assert "1 of link type 127 (IEEE 802.11 with radiotap headers)" in analyzed.err
    assert not (tmp_path / "link.trace").exists()


def _packet(at_s: float, segment: bytes, *, is_answer: bool = False, identification: int = 1) -> bytes:
    """A record of pcap with an IPv4 packet from 10.0.0.1, or as an answer from 10.0.0.2."""
    ends = (b"\n\0\0\2", b"\n\0\0\1") if is_answer else (b"\n\0\0\1", b"\n\0\0\2")
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(segment), identification, 0, 64, 6, 0, *ends)
    frame = ip + segment
    micros = round(at_s * 1e6)
    return struct.pack("<IIII", *divmod(micros, 10**6), len(frame), len(frame)) + frame


def _tcp(ports: tuple[int, int], sequence: int, acknowledgement: int, *, window: int, data: int = 0) -> bytes:
    return struct.pack("!HHIIBBHHH", *ports, sequence, acknowledgement, 5 << 4, 0x10, window, 0, 0) + bytes(data)


def _pcap(packets: list[bytes], link: int = 101) -> bytes:
    return struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link) + b"".join(packets)


def test_a_flow_that_may_fill_an_unknown_window_is_not_called_limited_by_its_sender(
    verus: Command, tmp_path: Path
) -> None:
    packets = []
    for turn in range(40):
        begin_s, first = 0.041 * turn, 14_600 * turn
        data = [_tcp((80, 5001), first + 1460 * index, 8, window=500, data=1460) for index in range(10)]
        packets += [_packet(begin_s + 1e-4 * index, segment) for index, segment in enumerate(data)]
        ack = _tcp((5001, 80), 8, first + 14_600, window=14_600)
        packets.append(_packet(begin_s + 0.0405, ack, is_answer=True))
    (tmp_path / "late.pcap").write_bytes(_pcap(packets))
    analyzed = verus("analyze", "late.pcap", "--json", "--trace-out", "late.trace")
    flow = json.loads(analyzed.out)
    assert [flow[f"{limit}_share"] for limit in ("path", "window", "sender")] == [0, None, None]
    assert flow["limited_by"] is None
    assert "the window's scale is in the handshake, which the capture lacks" in analyzed.err
    assert "(window or sender)" in analyzed.err


def _seconds_of_data(steps: dict[int, float]) -> list[bytes]:
    """Packets of data, 10 ms apart, each acknowledged 5 ms later; `steps` are of the clock, in s."""
    packets, ahead_s = [], 0.0
    for number in range(100):
        ahead_s = steps.get(number, ahead_s)
        at_s, first = 100 + 0.01 * number + ahead_s, 1000 * number
        packets.append(_packet(at_s, _tcp((80, 5001), first, 8, window=500, data=1000), identification=number))
        ack = _tcp((5001, 80), 8, first + 1000, window=60_000)
        packets.append(_packet(at_s + 0.005, ack, is_answer=True, identification=number))
    return packets


def _copied(packets: list[bytes], header: Callable[[int], bytes]) -> list[bytes]:
    """Each packet twice, behind the link header of its copy."""
    copies = []
    for packet in packets:
        for copy in (0, 1):
            seconds, micros, length, _ = struct.unpack_from("<IIII", packet)
            frame = header(copy) + packet[16:]
            size = length + len(frame) - len(packet[16:])
            copies.append(struct.pack("<IIII", seconds, micros + 20 * copy, size, size) + frame)
    return copies


@pytest.mark.parametrize("first", [1, 0], ids=["identified", "unidentified"])
def test_copies_of_packets_are_left_out_or_flows_of_their_own_interface(
    first: int, verus: Command, tmp_path: Path
) -> None:
    packets = [
        packet[:20] + struct.pack("!H", number if first else 0) + packet[22:]
        for number, packet in enumerate(_seconds_of_data({}), first)
    ]
    (tmp_path / "once.pcap").write_bytes(_pcap(packets))
    once = json.loads(verus("analyze", "once.pcap", "--json").out)
    assert once["loss_rate"] == 0

    def numbers(flow: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in flow.items() if key not in ("log", "flow", "interface", "start_s")}

    links: dict[int, Callable[[int], bytes]] = {
        1: lambda copy: bytes([copy] * 12) + b"\x08\0",
        113: lambda copy: struct.pack("!HHH8sH", 4 * copy, 1, 6, bytes(8), 0x0800),
    }
    for link, header in links.items():
        (tmp_path / "twice.pcap").write_bytes(_pcap(_copied(packets, header), link))
        analyzed = verus("analyze", "twice.pcap", "--json")
        assert numbers(json.loads(analyzed.out)) == numbers(once)
        assert " of 400 packets are copies of others" in analyzed.err
    cooked = _copied(packets, lambda copy: struct.pack("!HHIHBB8s", 0x0800, 0, 2 + 3 * copy, 1, 0, 6, bytes(8)))
    (tmp_path / "any.pcap").write_bytes(_pcap(cooked, 276))
    analyzed = verus("analyze", "any.pcap", "--json")
    flows = [json.loads(line) for line in analyzed.out.splitlines()]
    assert [flow["interface"] for flow in flows] == ["index 2", "index 5"]
    assert [flow["loss_rate"] for flow in flows] == [0, 0]
    assert [flow["rtt_p50_ms"] for flow in flows] == [once["rtt_p50_ms"]] * 2
    assert "copies" not in analyzed.err


def test_a_clock_that_is_set_back_is_named_with_its_packet(verus: Command, tmp_path: Path) -> None:
    for name, steps, warning in [
        ("back.pcap", {50: -5.0}, "packet 101 is 4.995 s earlier than one before it: the clock was set back"),
        ("steady.pcap", {}, None),
        ("jitter.pcap", {50: -0.0055}, None),
    ]:
        (tmp_path / name).write_bytes(_pcap(_seconds_of_data(steps)))
        analyzed = verus("analyze", name, "--trace-out", f"{name}.trace")
        assert analyzed.code == 0
        assert ("earlier than one before it" in analyzed.err) == (warning is not None)
        assert warning is None or warning in analyzed.err


def test_packets_without_times_are_refused_by_their_number(verus: Command, tmp_path: Path) -> None:
    def block(kind: int, body: bytes) -> bytes:
        length = struct.pack("<I", 12 + len(body))
        return struct.pack("<I", kind) + length + body + length

    section = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    simple = block(3, struct.pack("<I", 40) + bytes(40))
    (tmp_path / "simple.pcapng").write_bytes(section + block(1, struct.pack("<HHI", 101, 0, 65535)) + simple)
    analyzed = verus("analyze", "simple.pcapng")
    assert analyzed.code == 2
    assert "packet 1 has no time (a Simple Packet Block of pcapng)" in analyzed.err
