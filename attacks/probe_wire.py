"""Speaks the wire format of `verus probe` (docs/probe-wire-format.md) as far as attacks need it, without our Rust."""

from __future__ import annotations

import os
import socket
import struct
import time

from blake3 import blake3
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

MAGIC, VERSION = 0x56, 2
HEADER_BYTES, TAG_BYTES = 16, 16
HELLO, RETRY = 1, 2
HELLO_BYTES = 1200
KEY_CONTEXT = f"Verus probe, wire format {VERSION}, handshake key"
KEY_SALT = f"Verus probe, wire format {VERSION}, salt".encode()
#: What fills packets, byte for byte.
PADDING: bytes = blake3(b"").digest(length=HELLO_BYTES)

Address = tuple[str, int]


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


def hello(nonce: bytes) -> bytes:
    """A first hello, which asks for one flow upward of 10 s."""
    scheme = b"verus"
    flows = struct.pack(">HHHH", 1, 0, 1400, 100)
    request = flows + struct.pack(">QQQQH", 10_000_000_000, 0, 0, 1, len(scheme)) + scheme
    body = nonce + b"\0" + request
    covered = struct.pack(">BBBBHHQ", MAGIC, VERSION, HELLO, 0, HEADER_BYTES + len(body), 0, 0) + body
    sealed = covered + tag(covered, handshake_key())
    return sealed + PADDING[len(sealed) :]


def tag(covered: bytes, key: bytes) -> bytes:
    """What a key makes of the bytes that it covers."""
    return blake3(covered, key=key).digest()[:TAG_BYTES]


def sealed_with(datagram: bytes, key: bytes) -> bool:
    """Whether a packet's tag is of this key."""
    (length,) = struct.unpack(">H", datagram[4:6])
    return tag(datagram[:length], key) == datagram[length : length + TAG_BYTES]


def answer_seconds(server: Address, patience_s: float = 1.0) -> float | None:
    """How long the server takes to answer a hello; None for longer than `patience_s`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(patience_s)
        began = time.monotonic()
        client.sendto(hello(os.urandom(16)), server)
        try:
            answer = client.recv(65535)
        except (TimeoutError, ConnectionError):
            return None
        return time.monotonic() - began if answer[2] == RETRY else None
