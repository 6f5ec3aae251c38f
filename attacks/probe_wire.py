"""Speaks the wire format of `verus probe` (docs/probe-wire-format.md), honestly or not.

All that changes with the format is in this file.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from blake3 import blake3
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

MAGIC, VERSION = 0x56, 2
HEADER_BYTES, TAG_BYTES = 16, 16
HELLO, RETRY, ACCEPT, REFUSE, DATA, ACK, STATUS, CLOSE, CLOSED, CHALLENGE, RESPONSE = range(1, 12)
HELLO_BYTES = 1200
KEY_CONTEXT = f"Verus probe, wire format {VERSION}, handshake key"
KEY_SALT = f"Verus probe, wire format {VERSION}, salt".encode()
#: What fills packets, byte for byte.
PADDING: bytes = blake3(b"").digest(length=65536)
#: The largest number of 8 bytes.
LARGEST = (1 << 61) - 1
HOUR_NS = 3_600_000_000_000
IP_UDP_BYTES = 28

Address = tuple[str, int]


class RefusedError(Exception):
    """The server refused the test, with a text."""


def handshake_key(secret: bytes | None = None) -> bytes:
    """The key of the first packets: of a pre-shared key, or of nothing."""
    material = b"" if secret is None else b"shared:" + stretched(secret)
    return blake3(material, derive_key_context=KEY_CONTEXT).digest()


def stretched(secret: bytes) -> bytes:
    """A pre-shared key after the work that each guess at it costs."""
    return Argon2id(salt=KEY_SALT, length=32, iterations=3, lanes=4, memory_cost=64 * 1024).derive(secret)


def connection_keys(handshake: bytes, client_nonce: bytes, server_nonce: bytes) -> tuple[bytes, bytes]:
    """The keys of what the client sends and of what the server sends."""

    def derived(name: bytes) -> bytes:
        return blake3(name + client_nonce + server_nonce, key=handshake).digest()

    return derived(b"client to server"), derived(b"server to client")


def packet(key: bytes, kind: int, body: bytes = b"", flow: int = 0, connection: int = 0, size: int = 0) -> bytes:
    """One datagram, padded to `size` bytes."""
    covered = struct.pack(">BBBBHHQ", MAGIC, VERSION, kind, 0, HEADER_BYTES + len(body), flow, connection) + body
    sealed = covered + blake3(covered, key=key).digest()[:TAG_BYTES]
    return sealed + PADDING[len(sealed) : max(len(sealed), size)]


@dataclass(frozen=True)
class Request:
    """What a hello asks for."""

    up: int = 1
    down: int = 0
    packet_bytes: int = 1400
    status_ms: int = 100
    duration_ns: int = 10_000_000_000
    flow_bytes: int = 0
    rate_bps: int = 0
    seed: int = 1
    scheme: bytes = b"verus"


def hello(key: bytes, nonce: bytes, request: Request, token: bytes = b"", size: int = HELLO_BYTES) -> bytes:
    """A hello, with the server's token from the second on."""
    numbers = struct.pack(
        ">HHHHQQQQH",
        *(request.up, request.down, request.packet_bytes, request.status_ms),
        *(request.duration_ns, request.flow_bytes, request.rate_bps, request.seed, len(request.scheme)),
    )
    return packet(key, HELLO, nonce + bytes([len(token)]) + token + numbers + request.scheme, size=size)


@dataclass(frozen=True)
class Packet:
    """The parts of a datagram; nothing is checked."""

    kind: int
    flow: int
    connection: int
    body: bytes

    @classmethod
    def parsed(cls, datagram: bytes) -> Packet:
        """The parts of `datagram`."""
        _, _, kind, _, length, flow, connection = struct.unpack(">BBBBHHQ", datagram[:HEADER_BYTES])
        return cls(kind, flow, connection, datagram[HEADER_BYTES:length])


def hello_parts(body: bytes) -> tuple[bytes, int, int]:
    """The nonce of a hello's body, and how many flows it asks for upward and downward."""
    flows = 17 + body[16]
    return (body[:16], *struct.unpack(">HH", body[flows : flows + 4]))


def close_body(reason: int = 0, text: bytes = b"") -> bytes:
    """The body of a close."""
    return bytes(16) + struct.pack(">HB", reason, len(text)) + text


def status_body(number: int, flows: Sequence[bytes] = ()) -> bytes:
    """The body of a status about some flows."""
    return struct.pack(">QB", number, len(flows)) + b"".join(flows)


def flow_status(flow: int, finished: bool, large: int, small: int) -> bytes:
    """A flow's part of a status: `large` in each field of 8 bytes, `small` in each of 4."""
    return struct.pack(">HBQQQIQQIII", flow, finished, large, large, large, small, large, large, small, small, small)


def data_body(number: int, sent_ns: int, start: int, length: int) -> bytes:
    """The body of a data packet."""
    return struct.pack(">QQQI", number, sent_ns, start, length)


def ack_body(number: int, sent_ns: int, received_bytes: int, newest: int, spans: Sequence[int], run: int) -> bytes:
    """The body of an acknowledgement with one run of `run` packets that came just now."""
    head = struct.pack(">QQQQBB", number, sent_ns, received_bytes, newest, len(spans), 1)
    return head + struct.pack(f">{len(spans)}I", *spans) + struct.pack(">HHI", 0, run, 0)


def data_datagram_bytes(packet_bytes: int) -> int:
    """The UDP payload of a data packet of `packet_bytes`, over IPv4."""
    return packet_bytes - IP_UDP_BYTES


@dataclass
class Client:
    """One end of a probe's connection that does only what it is told to do."""

    server: Address
    secret: bytes | None = None
    bind: str | None = None
    socket: socket.socket = field(default=None)  # type: ignore[assignment]
    patience_s: float = 2.0

    def __post_init__(self) -> None:
        """Open a socket, unless one was given."""
        self.handshake = handshake_key(self.secret)
        self.nonce = os.urandom(16)
        self.statuses = 0
        self.connection = 0
        self.key = self.server_key = b""
        self.token = self.second_hello = b""
        if self.socket is None:
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            if self.bind:
                self.socket.bind((self.bind, 0))
        self.socket.settimeout(self.patience_s)

    def prove(self, request: Request) -> None:
        """Say hello, and keep the server's token."""
        self.socket.sendto(hello(self.handshake, self.nonce, request), self.server)
        answer = self.hear(RETRY)
        self.token = answer.body[17 : 17 + answer.body[16]]
        self.second_hello = hello(self.handshake, self.nonce, request, self.token)

    def connect(self, request: Request | None = None) -> Client:
        """The whole handshake.

        Raises:
            RefusedError: If the server refuses.
            TimeoutError: If it does not answer.
        """
        self.prove(request or Request())
        self.socket.sendto(self.second_hello, self.server)
        answer = self.hear(ACCEPT, REFUSE)
        if answer.kind == REFUSE:
            raise RefusedError(answer.body[19 : 19 + answer.body[18]].decode(errors="replace"))
        self.connection = answer.connection
        self.key, self.server_key = connection_keys(self.handshake, self.nonce, answer.body[16:32])
        return self

    def hear(self, *kinds: int) -> Packet:
        """The next packet of one of these kinds."""
        end = time.monotonic() + self.patience_s
        while time.monotonic() < end:
            heard = Packet.parsed(self.socket.recv(65535))
            if heard.kind in kinds:
                return heard
        raise TimeoutError

    def sealed(self, kind: int, body: bytes = b"", flow: int = 0, size: int = 0) -> bytes:
        """A packet of this connection."""
        return packet(self.key, kind, body, flow, self.connection, size)

    def send(self, kind: int, body: bytes = b"", flow: int = 0, size: int = 0) -> None:
        """Send a packet of this connection."""
        self.socket.sendto(self.sealed(kind, body, flow, size), self.server)

    def status(self) -> None:
        """Say something, so that the server may send."""
        self.statuses += 1
        self.send(STATUS, status_body(self.statuses), size=48)

    def data(self, number: int, flow: int = 0, packet_bytes: int = 1400) -> None:
        """Send a data packet that carries its size."""
        body = data_body(number, time.monotonic_ns(), number * packet_bytes, packet_bytes)
        self.send(DATA, body, flow, data_datagram_bytes(packet_bytes))

    def close(self, reason: int = 0, text: bytes = b"") -> None:
        """Say goodbye."""
        self.send(CLOSE, close_body(reason, text))

    def swallow(self, seconds: float) -> int:
        """Read for so long without a word; the bytes that came."""
        end, total = time.monotonic() + seconds, 0
        self.socket.settimeout(0.05)
        while (left := end - time.monotonic()) > 0:
            self.socket.settimeout(max(0.001, min(0.05, left)))
            try:
                total += len(self.socket.recv(65535))
            except TimeoutError:
                continue
        self.socket.settimeout(self.patience_s)
        return total


def answer_seconds(server: Address, bind: str | None = None, patience_s: float = 1.0) -> float | None:
    """How long the server takes to answer another's hello; None for longer than `patience_s`."""
    client = Client(server, bind=bind, patience_s=patience_s)
    began = time.monotonic()
    try:
        client.prove(Request())
    except (TimeoutError, ConnectionError):
        return None
    finally:
        client.socket.close()
    return time.monotonic() - began


def sealed_with(datagram: bytes, key: bytes) -> bool:
    """Whether a packet's tag is of this key."""
    (length,) = struct.unpack(">H", datagram[4:6])
    return blake3(datagram[:length], key=key).digest()[:TAG_BYTES] == datagram[length : length + TAG_BYTES]
