"""Attacks on `verus serve` and on its clients by a QUIC that our Rust cannot speak.

It closes with a frame of the transport's that has a reason in it, and acknowledges what did not come.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve as aioquic_serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from attacks.attack import attack
from attacks.endpoint import Server, controls
from attacks.stage import ATTACKER, HERE, Stage

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[32mAll files sent.\x1b[0m\r\nFORGED LINE"


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
async def connected(server: Server, *, greet: bool = True) -> AsyncIterator[QuicConnectionProtocol]:
    """A QUIC connection that has greeted the server, if it is to."""
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
        if greet:
            reader, writer = await protocol.create_stream()
            writer.write(HELLO)
            await asyncio.wait_for(read_message(reader), 5)
        yield protocol
    finally:
        protocol.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(protocol.wait_closed(), 0.5)
        transport.close()


def clean(stage: Stage, text: str, where: str) -> None:
    """Expect that nothing in a text drives a terminal or pretends to be a line of its own."""
    found = controls(text)
    forged = any(line.lstrip().startswith("FORGED LINE") for line in text.splitlines())
    stage.expect(
        not found and not forged, f"no control character in {where}", f"{where} has {found or 'a line that was forged'}"
    )


@attack("transfer-close-reason", quick=True)
def close_reason(stage: Stage) -> None:
    """A stranger closes a QUIC connection with a reason that drives a terminal, before and after greeting.

    Nothing of it reaches the server's output as it is.
    """
    server = stage.serve(stage.folder("served"), "--no-token", "--verbose")

    async def close() -> None:
        for greet in (False, True):
            async with connected(server, greet=greet) as connection:
                connection._quic.close(error_code=0, frame_type=0, reason_phrase=ESCAPES)
                connection.transmit()
                await asyncio.sleep(0.2)

    asyncio.run(close())
    time.sleep(0.3)
    clean(stage, server.process.said, "the server's log")
    stage.lives(server)


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "verus")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("verus")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return paths


def client_files(stage: Stage) -> tuple[Path, list[object]]:
    """A file to send, and options with which any server is believed."""
    file = stage.work / "file"
    file.write_bytes(os.urandom(100_000))
    token = stage.work / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    token.chmod(0o600)
    return file, ["--token-file", token, "--config", stage.config()]


@attack("transfer-evil-server-closes", quick=True)
def evil_server_closes(stage: Stage) -> None:
    """A server closes the ordinary client's connection with a reason that drives a terminal.

    The client exits with 1 and prints nothing of it as it is.
    """

    class Closes(QuicConnectionProtocol):
        def quic_event_received(self, event: Any) -> None:
            if type(event).__name__ == "HandshakeCompleted":
                self._quic.close(error_code=0, frame_type=0, reason_phrase=ESCAPES)
                self.transmit()

    file, options = client_files(stage)
    settings = QuicConfiguration(is_client=False, alpn_protocols=["verus-transfer/1"], idle_timeout=600)
    settings.load_cert_chain(*certificate(stage.work))

    async def trap() -> None:
        server = await aioquic_serve(HERE, 0, configuration=settings, create_protocol=Closes)
        assert server._transport is not None
        port: int = server._transport.get_extra_info("sockname")[1]
        for words in (("send", file, f"{HERE}:{port}"), ("receive", f"{HERE}:{port}/x", "--into", stage.work)):
            ran = await asyncio.to_thread(stage.run, *words, *options, seconds=15)
            stage.expect(ran.code == 1, f"{words[0]} exits with 1", f"{words[0]} exits with {ran.code}")
            clean(stage, ran.out + ran.err, f"{words[0]}'s output")
        server.close()

    asyncio.run(trap())


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
