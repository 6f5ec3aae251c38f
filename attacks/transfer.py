"""An attack on `verus serve` by a client whose QUIC lies: aioquic, changed while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator
from typing import Any

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

from attacks.attack import attack
from attacks.endpoint import Server
from attacks.stage import ATTACKER, Stage


def message(body: bytes) -> bytes:
    """A message of `verus-transfer/1` (docs/transfer.md)."""
    return struct.pack("<H", len(body)) + body


#: Without the proof of a token, for which aioquic would have to export keys of TLS: the server serves without one.
HELLO = message(b"\0\0")
#: There is nothing of the file yet, so that all of it is sent.
CHECK_NOTHING = message(b"\0\1\0") + message(b"\2")


def get(path: bytes) -> bytes:
    """Asks for a file."""
    return message(bytes([2, len(path)]) + path)


async def read_message(reader: asyncio.StreamReader) -> bytes:
    """The next message."""
    (length,) = struct.unpack("<H", await reader.readexactly(2))
    return await reader.readexactly(length)


@contextlib.asynccontextmanager
async def connected(server: Server) -> AsyncIterator[QuicConnectionProtocol]:
    """A QUIC connection that has greeted the server."""
    local = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    local.bind((ATTACKER, 0))
    configuration = QuicConfiguration(
        is_client=True,
        alpn_protocols=["verus-transfer/1"],
        verify_mode=ssl.CERT_NONE,
        server_name="verus",
        idle_timeout=90.0,
        max_data=1 << 30,
        max_stream_data=1 << 30,
    )
    quic = QuicConnection(configuration=configuration)
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(lambda: QuicConnectionProtocol(quic), sock=local)
    try:
        protocol.connect(server.address)
        await asyncio.wait_for(protocol.wait_connected(), 5)
        reader, writer = await protocol.create_stream()
        writer.write(HELLO)
        await asyncio.wait_for(read_message(reader), 5)
        yield protocol
    finally:
        protocol.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(protocol.wait_closed(), 0.5)
        transport.close()


async def lying_download(server: Server, mode: str, path: bytes, seconds: float) -> tuple[int, float, str]:
    """Fetch a file and acknowledge packets that did not come; the bytes, the time, and why the server closed."""
    lies = False

    async with connected(server) as connection:
        quic: Any = connection._quic
        honest = quic._write_ack_frame

        def lying(builder: Any, space: Any, now: float) -> Any:
            if lies and len(space.ack_queue) and space.largest_received_packet > 20:
                space.ack_queue.add(0, space.largest_received_packet + (9 if mode == "ahead" else 1))
            return honest(builder=builder, space=space, now=now)

        quic._write_ack_frame = lying
        lies = True
        began, total = time.monotonic(), 0
        reader, writer = await connection.create_stream()
        writer.write(get(path))
        await read_message(reader)
        writer.write(CHECK_NOTHING)
        with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError, OSError):
            while time.monotonic() - began < seconds:
                got = await asyncio.wait_for(reader.read(1 << 20), 2)
                total += len(got)
                if not got:
                    break
        event = quic._close_event
        reason = f"{event.error_code:#x} {event.reason_phrase}" if event else ""
        return total, time.monotonic() - began, reason


@attack("transfer-optimistic-acknowledgements", soak=True)
def optimistic_acknowledgements(stage: Stage) -> None:
    """A receiver acknowledges all numbers up to the newest that came, or the next 8 as well.

    The server finds out and closes that connection, or the transfer gets nowhere.
    """
    name = b"big"
    if stage.shared:
        server, name = stage.shared["open"], b"honest/big"
    else:
        served = stage.folder("served")
        server = stage.serve(served, "--no-token")
        (served / "big").write_bytes(os.urandom(64 << 20))
    for mode in ("gaps", "ahead"):
        total, took, reason = asyncio.run(lying_download(server, mode, name, 4))
        stage.figure(**{f"{mode}_bytes": total})
        stage.expect(
            bool(reason) or total < 2e6,
            f"{mode}: {total / 1e6:.2f} MB in {took:.1f} s, {reason[:40] or 'then nothing'}",
        )
    stage.lives(server)
