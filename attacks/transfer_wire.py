"""Speaks `verus-transfer/1` (docs/transfer.md) over aioquic, honestly or not.

aioquic has no TLS exporter, so there is no proof of a token here: its server serves without one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from typing import Any

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

PROTOCOL = "verus-transfer/1"

Address = tuple[str, int]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def configuration(**more: Any) -> QuicConfiguration:
    """A client's, which believes any certificate."""
    return QuicConfiguration(
        is_client=True,
        alpn_protocols=[PROTOCOL],
        verify_mode=ssl.CERT_NONE,
        server_name="verus",
        **{"idle_timeout": 90.0, **more},
    )


def varint(number: int) -> bytes:
    """A number as postcard writes it."""
    out = b""
    while True:
        low, number = number & 0x7F, number >> 7
        out += bytes([low | (0x80 if number else 0)])
        if not number:
            return out


def counted(data: bytes) -> bytes:
    """Bytes behind their number."""
    return varint(len(data)) + data


def frame(body: bytes) -> bytes:
    """A message."""
    return struct.pack("<H", len(body)) + body


HELLO = frame(varint(0) + b"\0")
END_OF_PIECES = frame(varint(2))


def list_folder(path: bytes) -> bytes:
    """Asks for what is in a folder."""
    return frame(varint(1) + counted(path))


def get(path: bytes) -> bytes:
    """Asks for a file."""
    return frame(varint(2) + counted(path))


def put(path: bytes, size: int) -> bytes:
    """Offers a file."""
    return frame(varint(3) + counted(path) + varint(size) + b"\0\0" + b"\0")


def make_folder(path: bytes) -> bytes:
    """Asks for a new folder."""
    return frame(varint(4) + counted(path))


def check_nothing() -> bytes:
    """Says that there is nothing of the file yet, so that all of it is sent."""
    return frame(varint(0) + varint(1) + varint(0)) + END_OF_PIECES


async def hear(reader: asyncio.StreamReader) -> bytes:
    """The next message."""
    (length,) = struct.unpack("<H", await reader.readexactly(2))
    return await reader.readexactly(length)


def hold(connection: QuicConnectionProtocol) -> None:
    """Grant the server no more to send; aioquic would drain everything by itself."""
    connection._quic._write_connection_limits = lambda *_, **__: None  # type: ignore[method-assign]
    connection._quic._write_stream_limits = lambda *_, **__: None  # type: ignore[method-assign]


@contextlib.asynccontextmanager
async def connected(
    server: Address, *, bind: str, patience_s: float = 5.0, **settings: Any
) -> AsyncIterator[QuicConnectionProtocol]:
    """A QUIC connection from one of this machine's addresses."""
    local = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    local.bind((bind, 0))
    quic = QuicConnection(configuration=configuration(**settings))
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(lambda: QuicConnectionProtocol(quic), sock=local)
    try:
        protocol.connect(server)
        await asyncio.wait_for(protocol.wait_connected(), patience_s)
        yield protocol
    finally:
        protocol.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(protocol.wait_closed(), 0.5)
        transport.close()


async def greeted(connection: QuicConnectionProtocol) -> Stream:
    """The first stream of a connection, after the welcome."""
    reader, writer = await connection.create_stream()
    writer.write(HELLO)
    await asyncio.wait_for(hear(reader), 5)
    return reader, writer


def initial(server: Address) -> bytes:
    """A client's first datagram."""
    quic = QuicConnection(configuration=configuration())
    quic.connect(server, now=0.0)
    datagram: bytes = quic.datagrams_to_send(now=0.0)[0][0]
    return datagram
