"""The command of a guest under `kernel_queues.py`: TCP flows through a queue of the kernel.

    kernel_queues_guest.py TASK.json RESULT.json

Three network namespaces in a row: sender, router and receiver. The router's output is shaped by
`tbf`, whose child is the queue under test. All propagation delay is on the path back, by `netem` at
the receiver, so it is not in that queue. Two packet sockets of the router see each data packet come
and go, with the kernel's time stamps; their difference is the packet's delay. There is one clock,
no probe, and no additional queue.

Only Python's own library, `ip` and `tc` are used.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
SENDER, ROUTER, RECEIVER = "sender", "router", "receiver"
PORT = 5001
#: The captured part of a packet, bytes: headers of IP and TCP.
SEEN_BYTES = 64
#: Smaller packets carry no data.
LEAST_DATA_BYTES = 200
#: Linux's numbers that Python's `socket` lacks.
SO_TIMESTAMPNS, SO_ATTACH_FILTER, SO_RCVBUFFORCE, ETH_P_ALL = 35, 26, 33, 3
SOL_PACKET, PACKET_STATISTICS = 263, 6


def run(command: str) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`{command}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def enter(namespace: str) -> None:
    """Makes all new sockets belong to a namespace."""
    with Path(f"/run/netns/{namespace}").open("rb") as file:
        if LIBC.setns(file.fileno(), 0):
            raise OSError(ctypes.get_errno(), f"setns to {namespace}")


def build(task: dict[str, Any]) -> None:
    """Sets up namespaces, links, the queue and propagation."""
    for namespace in (SENDER, ROUTER, RECEIVER):
        run(f"ip netns add {namespace}")
        enter(namespace)
        for key, value in {
            "ipv4/ip_forward": "1",
            "ipv4/tcp_ecn": "1" if task["ecn"] else "0",
            "ipv4/tcp_no_metrics_save": "1",
            "ipv4/tcp_congestion_control": "cubic",
        }.items():
            Path(f"/proc/sys/net/{key}").write_text(value)
    # Packets have 1,500 bytes: no segmentation by the device.
    run(f"ip link add s0 gso_max_segs 1 netns {SENDER} type veth peer name r0 netns {ROUTER}")
    run(f"ip link add r1 netns {ROUTER} type veth peer name c0 netns {RECEIVER}")
    for namespace, device, address in (
        (SENDER, "s0", "10.0.1.1/24"),
        (ROUTER, "r0", "10.0.1.2/24"),
        (ROUTER, "r1", "10.0.2.2/24"),
        (RECEIVER, "c0", "10.0.2.1/24"),
    ):
        run(f"ip -n {namespace} addr add {address} dev {device}")
        run(f"ip -n {namespace} link set {device} up")
    run(f"ip -n {SENDER} route add default via 10.0.1.2")
    run(f"ip -n {RECEIVER} route add default via 10.0.2.2")
    run(f"tc -n {RECEIVER} qdisc add dev c0 root netem delay {task['rtt_ms']}ms limit 100000")
    # `tbf` counts the 14 bytes of an Ethernet header. Its burst is one packet: it holds the next
    # one until the transmission of its predecessor would end.
    bits = round(task["mbps"] * 1e6 * 1514 / 1500)
    run(f"tc -n {ROUTER} qdisc add dev r1 root handle 1: tbf rate {bits}bit burst 1520 limit 10000000")
    run(f"tc -n {ROUTER} qdisc add dev r1 parent 1:1 handle 10: {task['qdisc']}")


def capture(device: str) -> socket.socket:
    """A socket that captures the data packets that cross a device, in either direction."""
    # Load the length; at most LEAST_DATA_BYTES: nothing; otherwise SEEN_BYTES.
    program = [
        (0x80, 0, 0, 0),
        (0x25, 0, 1, LEAST_DATA_BYTES),
        (0x06, 0, 0, SEEN_BYTES),
        (0x06, 0, 0, 0),
    ]
    text = b"".join(struct.pack("HBBI", *line) for line in program)
    program_text = ctypes.create_string_buffer(text, len(text))
    packet_socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    packet_socket.setsockopt(
        socket.SOL_SOCKET,
        SO_ATTACH_FILTER,
        struct.pack("HL", len(program), ctypes.addressof(program_text)),
    )
    packet_socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    packet_socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)
    packet_socket.bind((device, ETH_P_ALL))
    packet_socket.setblocking(False)
    return packet_socket


class PacketCapture:
    """The data packets that one device saw: time, size and mark, by their identity."""

    def __init__(self, device: str) -> None:
        self.socket = capture(device)
        self.packets: dict[tuple[int, int, int], tuple[float, int, bool]] = {}

    def drain(self) -> None:
        """Reads all captured packets."""
        with contextlib.suppress(BlockingIOError):
            while True:
                packet, about, _, _ = self.socket.recvmsg(SEEN_BYTES, 64)
                seconds, nanos = struct.unpack("qq", about[0][2])
                tos, size, number = struct.unpack_from("!xBHH", packet)
                port, sequence = struct.unpack_from("!HxxI", packet, 20)
                self.packets[port, sequence, number] = (seconds + nanos / 1e9, size, tos & 3 == 3)

    def lost(self) -> int:
        """The number of packets for which its socket had no room."""
        _seen, dropped = struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        return int(dropped)


def transfer(task: dict[str, Any]) -> dict[str, Any]:
    """Sends for the task's duration; returns measurements of the queue after the warm-up."""
    enter(ROUTER)
    came, left = PacketCapture("r0"), PacketCapture("r1")
    enter(RECEIVER)
    listener = socket.create_server(("10.0.2.1", PORT), backlog=64)
    events = selectors.DefaultSelector()
    senders, receivers = [], []
    for _flow in range(task["flows"]):
        enter(SENDER)
        sender = socket.create_connection(("10.0.2.1", PORT))
        receiver, _ = listener.accept()
        for end in (sender, receiver):
            end.setblocking(False)
        senders.append(sender)
        receivers.append(receiver)
    for device in (came, left):
        events.register(device.socket, selectors.EVENT_READ, device)
    for receiver in receivers:
        events.register(receiver, selectors.EVENT_READ, None)
    for sender in senders:
        events.register(sender, selectors.EVENT_WRITE, None)
    chunk, into = bytes(1 << 16), bytearray(1 << 18)
    begin = time.time()
    start, end = begin + task["warm_up_s"], begin + task["warm_up_s"] + task["seconds"]
    received = 0
    while (now := time.time()) < end:
        for key, mask in events.select(0.1):
            if isinstance(key.data, PacketCapture):
                key.data.drain()
            elif mask & selectors.EVENT_READ:
                with contextlib.suppress(BlockingIOError):
                    got = key.fileobj.recv_into(into)  # type: ignore[union-attr]
                    received += got if now >= start else 0
            else:
                with contextlib.suppress(BlockingIOError):
                    key.fileobj.send(chunk)  # type: ignore[union-attr]
    for device in (came, left):
        device.drain()
        if device.lost():
            raise RuntimeError(f"{device.lost()} packets were not captured")
    return measured(task, came, left, received, start, end)


def measured(
    task: dict[str, Any], came: PacketCapture, left: PacketCapture, received: int, start: float, end: float
) -> dict[str, Any]:
    """The results of a run, for packets that arrived (or, for departures, left) within the measured interval."""
    if (largest := max(size for _, size, _ in came.packets.values())) > 1500:
        raise RuntimeError(f"a packet of {largest} bytes: segmentation is on")
    arrivals = {key: at for key, (at, _, _) in came.packets.items() if start <= at < end}
    delays = sorted(left.packets[key][0] - at for key, at in arrivals.items() if key in left.packets)
    # Packets that came in the last second may still wait.
    settled = [key for key, at in arrivals.items() if at < end - 1]
    departed = [key for key, (at, _, _) in left.packets.items() if start <= at < end]
    seconds = task["seconds"]
    ports = {key[0] for key in departed}
    shares = [8 * sum(left.packets[key][1] for key in departed if key[0] == port) / seconds / 1e6 for port in ports]
    return {
        "throughput_mbps": sum(shares),
        "shares_mbps": sorted(shares),
        "goodput_mbps": 8 * received * 1500 / 1448 / seconds / 1e6,
        "delay_mean_ms": 1e3 * sum(delays) / len(delays),
        "delay_p50_ms": 1e3 * delays[len(delays) // 2],
        "delay_p95_ms": 1e3 * delays[len(delays) * 95 // 100],
        "loss": sum(key not in left.packets for key in settled) / len(settled),
        "marks": sum(left.packets[key][2] for key in departed) / len(departed),
        "qdisc": run(f"tc -n {ROUTER} -s -d qdisc show dev r1"),
        "kernel": os.uname().release,
    }


def main() -> None:
    """Runs a task, and writes its result."""
    task_file, result_file = sys.argv[1:]
    os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    task = json.loads(Path(task_file).read_text())
    build(task)
    Path(result_file).write_text(json.dumps(transfer(task), indent=1))


if __name__ == "__main__":
    main()
