"""Another host in a namespace, and what a firewall does. As root, in a namespace of one's own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import subprocess
from collections.abc import Iterator

NEW_NETWORK = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def ip(*words: object) -> None:
    """`ip WORDS`."""
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, timeout=10)


def enter(descriptor: int) -> None:
    """Move this thread to a network namespace."""
    if LIBC.setns(descriptor, NEW_NETWORK) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


class Peer:
    """Another host: a namespace that lasts as long as a process of ours, behind a pair of devices.

    We are 10.99.0.1 on `near`; it is 10.99.0.2 and 10.99.0.66 on `far`, and reaches the rest through us.
    """

    host, address, other_address, broadcast = "10.99.0.1", "10.99.0.2", "10.99.0.66", "10.99.0.255"

    def __init__(self) -> None:
        """Make it."""
        self.holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        assert self.holder.stdout is not None
        self.holder.stdout.readline()
        ip("link", "add", "near", "type", "veth", "peer", "name", "far", "netns", self.holder.pid)
        ip("addr", "add", f"{self.host}/24", "brd", "+", "dev", "near")
        ip("link", "set", "near", "up")
        for words in (
            ("addr", "add", f"{self.address}/24", "brd", "+", "dev", "far"),
            ("addr", "add", f"{self.other_address}/24", "dev", "far"),
            ("link", "set", "far", "up"),
            ("link", "set", "lo", "up"),
            ("route", "add", "default", "via", self.host),
        ):
            self.command("ip", *words)

    @property
    def prefix(self) -> list[str]:
        """Words before a command that make it run there."""
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]

    def command(self, *words: str) -> None:
        """Run a command there."""
        subprocess.run([*self.prefix, *words], check=True, capture_output=True, timeout=10)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Sockets that are made in this block are the peer's."""
        with open("/proc/self/ns/net") as here, open(f"/proc/{self.holder.pid}/ns/net") as there:  # noqa: PTH123
            enter(there.fileno())
            try:
                yield
            finally:
                enter(here.fileno())

    def socket(self, address: str, port: int = 0) -> socket.socket:
        """A UDP socket of the peer's."""
        with self.inside():
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            made.bind((address, port))
            return made

    def close(self) -> None:
        """Let the namespace go, and the devices with it."""
        self.holder.kill()
        self.holder.wait()


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def _message(kind: int, flags: int, number: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, number, 0) + body


@contextlib.contextmanager
def outgoing_packets_refused() -> Iterator[None]:
    """A firewall that lets nothing out of this namespace: sending fails with EPERM.

    A table of nftables with one chain whose policy is to drop, by netlink: `nft` need not be there.
    """
    subsystem, request, acknowledge, create = 10 << 8, 1, 4, 0x400
    new_table, delete_table, new_chain, inet_family = 0, 2, 3, 2
    begin = _message(16, request, 1, struct.pack("=BBH", 0, 0, socket.htons(10)))
    end = _message(17, request, 9, struct.pack("=BBH", 0, 0, socket.htons(10)))
    family, table = struct.pack("=BBH", inet_family, 0, 0), _attribute(1, b"attacks\0")
    output_hook = _attribute(4 | 0x8000, _attribute(1, struct.pack(">I", 3)) + _attribute(2, struct.pack(">i", 0)))
    chain = (
        table + _attribute(3, b"out\0") + output_hook + _attribute(5, struct.pack(">I", 0)) + _attribute(7, b"filter\0")
    )

    def batch(*messages: bytes) -> None:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as netlink:
            netlink.settimeout(2)
            netlink.send(begin + b"".join(messages) + end)
            for _ in messages:
                answer = netlink.recv(8192)
                (error,) = struct.unpack("=i", answer[16:20])
                if error:
                    raise OSError(-error, os.strerror(-error))

    batch(
        _message(subsystem | new_table, request | acknowledge | create, 2, family + table),
        _message(subsystem | new_chain, request | acknowledge | create, 3, family + chain),
    )
    try:
        yield
    finally:
        batch(_message(subsystem | delete_table, request | acknowledge, 2, family + table))
