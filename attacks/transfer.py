"""Attacks on `verus serve`, and on clients of hostile servers, over QUIC."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import random
import socket
import time
from pathlib import Path
from typing import Any

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import QuicServer
from aioquic.asyncio.server import serve as aioquic_serve
from aioquic.quic.configuration import QuicConfiguration
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from attacks import transfer_wire as wire
from attacks.attack import attack
from attacks.endpoint import Server, controls
from attacks.network import from_port_zero
from attacks.stage import ATTACKER, HERE, Stage

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[32mAll files sent.\x1b[0m\r\nFORGED LINE"


def clean(stage: Stage, text: str, where: str) -> None:
    """Expect that nothing in a text drives a terminal or pretends to be a line of its own."""
    found = controls(text)
    forged = any(line.lstrip().startswith("FORGED LINE") for line in text.splitlines())
    stage.expect(
        not found and not forged, f"no control character in {where}", f"{where} has {found or 'a line that was forged'}"
    )


def still_serves(stage: Stage, server: Server, within_s: float = 10, name: str = "still") -> None:
    """Expect that an ordinary client's small file arrives."""
    file = stage.work / f"{name}.txt"
    file.write_text("a small file\n")
    began, ran = time.monotonic(), None
    while time.monotonic() - began < within_s:
        ran = stage.run("send", file, server.name, *server.client_options, "-q", seconds=within_s)
        if ran.code == 0:
            break
        time.sleep(0.3)
    took = time.monotonic() - began
    stage.figure(served_after_s=round(took, 2))
    stage.expect(
        ran is not None and ran.code == 0,
        f"another's file arrives within {took:.1f} s",
        f"another's file does not arrive within {took:.0f} s: {ran.last_line[:100] if ran else ''}",
    )


def known(stage: Stage, folder: Path, *options: object, honest: bool = True) -> Server:
    """A server that asks for no token, for attacks by clients that it knows."""
    if "open" in stage.shared:
        return stage.shared["open"]
    return stage.serve(folder, "--no-token", *options, honest=honest)


@attack("transfer-close-reason", quick=True)
def close_reason(stage: Stage) -> None:
    """A stranger closes a QUIC connection with a reason that drives a terminal, before and after greeting.

    Nothing of it reaches the server's output as it is.
    """
    server = known(stage, stage.folder("served"), "--verbose")

    async def close() -> None:
        for greet in (False, True):
            async with wire.connected(server.address, bind=ATTACKER) as connection:
                if greet:
                    await wire.greeted(connection)
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


def server_configuration(stage: Stage) -> QuicConfiguration:
    """Of a hostile server."""
    settings = QuicConfiguration(is_client=False, alpn_protocols=[wire.PROTOCOL], idle_timeout=600)
    settings.load_cert_chain(*certificate(stage.work))
    return settings


def port_of(server: QuicServer) -> int:
    """Where a hostile server listens."""
    assert server._transport is not None
    port: int = server._transport.get_extra_info("sockname")[1]
    return port


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

    async def trap() -> None:
        server = await aioquic_serve(HERE, 0, configuration=server_configuration(stage), create_protocol=Closes)
        port = port_of(server)
        for words in (("send", file, f"{HERE}:{port}"), ("receive", f"{HERE}:{port}/x", "--into", stage.work)):
            ran = await asyncio.to_thread(stage.run, *words, *options, seconds=15)
            stage.expect(ran.code == 1, f"{words[0]} exits with 1", f"{words[0]} exits with {ran.code}")
            clean(stage, ran.out + ran.err, f"{words[0]}'s output")
        server.close()

    asyncio.run(trap())


async def holding(stage: Stage, server: Server, mode: str, seconds: float, count: int = 40) -> None:
    """Many clients of one address greet and do nothing, or leave requests half done; another is served."""

    async def one(index: int, end: float) -> None:
        small = {"max_stream_data": 2000, "max_data": 60_000} if mode == "list" else {}
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with wire.connected(server.address, bind=ATTACKER, **small) as connection:
                kept = [await wire.greeted(connection)]
                stage.verdict.figures["greeted"] = stage.verdict.figures.get("greeted", 0) + 1
                wire.hold(connection)
                for number in range(16 if mode != "idle" else 0):
                    reader, writer = await connection.create_stream()
                    writer.write(
                        wire.list_folder(b"many")
                        if mode == "list"
                        else wire.put(b"slow%d-%d" % (index, number), 1 << 30)
                    )
                    kept.append((reader, writer))
                await asyncio.sleep(max(0, end - time.monotonic()))

    end = time.monotonic() + seconds
    tasks = [asyncio.create_task(one(index, end)) for index in range(count)]
    await asyncio.sleep(2.5)
    await asyncio.to_thread(still_serves, stage, server, 2.5, mode)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def hold_places(stage: Stage, mode: str) -> None:
    """Hold places at a server, and see what that costs and whether others are served."""
    served = stage.folder("served")
    (served / "many").mkdir()
    if mode == "list":
        for index in range(3000):
            (served / "many" / ("n" * 60 + f"{index}")).touch()
    server = known(stage, served)
    before = server.process.usage()
    asyncio.run(holding(stage, server, mode, 6))
    after = server.process.usage()
    grown = (after.rss_kb - before.rss_kb) / 1024
    stage.figure(rss_growth_mb=round(grown, 1), threads=after.threads, descriptors=after.descriptors)
    stage.expect(stage.verdict.figures.get("greeted", 0) > 0, "clients were let in", "no client was let in")
    stage.expect(
        grown < 128 and after.threads < 300 and after.descriptors < 512,
        f"memory grew by {grown:.0f} MB, {after.descriptors} descriptors, {after.threads} threads",
    )
    stage.lives(server)


@attack("transfer-half-read-lists", soak=True)
def half_read_lists(stage: Stage) -> None:
    """40 clients of one address hold 16 half-read lists each.

    Another client is served beside them; memory, threads and descriptors are bounded.
    """
    hold_places(stage, "list")


@attack("transfer-silent-puts", soak=True)
def silent_puts(stage: Stage) -> None:
    """40 clients of one address offer 16 files of 1 GiB each and send nothing of them.

    Another client is served beside them; memory, threads and descriptors are bounded.
    """
    hold_places(stage, "put")


@attack("transfer-deep-lists", soak=True)
def deep_lists(stage: Stage) -> None:
    """One address makes a folder 60 deep, and 4 connections of it hold 16 lists of it half-read each.

    Descriptors do not run out: another client is served.
    """
    server = known(stage, stage.folder("served"))
    deep = b"/".join([b"d" * 60] * 60)

    async def one(first: bool, end: float) -> None:
        async with wire.connected(
            server.address, bind=ATTACKER, max_stream_data=20_000, max_data=300_000
        ) as connection:
            kept = [await wire.greeted(connection)]
            for path in (deep, *(deep + b"/e%d" % index for index in range(100))) if first else ():
                reader, writer = await connection.create_stream()
                writer.write(wire.make_folder(path))
                await asyncio.wait_for(wire.hear(reader), 5)
            wire.hold(connection)
            for _ in range(16):
                reader, writer = await connection.create_stream()
                writer.write(wire.list_folder(b"d" * 60))
                kept.append((reader, writer))
            await asyncio.sleep(max(0, end - time.monotonic()))

    async def all_of_them() -> int:
        end = time.monotonic() + 5
        tasks = [asyncio.create_task(one(True, end))]
        await asyncio.sleep(1.5)
        tasks += [asyncio.create_task(one(False, end)) for _ in range(3)]
        await asyncio.sleep(1)
        most = server.process.usage().descriptors
        await asyncio.to_thread(still_serves, stage, server, 2.5, "deep")
        most = max(most, server.process.usage().descriptors)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return most

    most = asyncio.run(all_of_them())
    limits = (Path("/proc") / str(server.process.pid) / "limits").read_text()
    (limit,) = (int(line.split()[3]) for line in limits.splitlines() if line.startswith("Max open files"))
    stage.figure(descriptors=most, limit=limit)
    stage.expect(most < limit - 32, f"{most} descriptors at most, of {limit}")
    stage.lives(server)


async def lying_download(server: Server, mode: str, path: bytes, seconds: float) -> tuple[int, float, str]:
    """Fetch a file and acknowledge packets that did not come; the bytes, the time, and why the server closed."""
    lies = False

    async with wire.connected(server.address, bind=ATTACKER, max_data=1 << 30, max_stream_data=1 << 30) as connection:
        quic: Any = connection._quic
        honest = quic._write_ack_frame

        def lying(builder: Any, space: Any, now: float) -> Any:
            if lies and len(space.ack_queue) and space.largest_received_packet > 20:
                space.ack_queue.add(0, space.largest_received_packet + (9 if mode == "ahead" else 1))
            return honest(builder=builder, space=space, now=now)

        quic._write_ack_frame = lying
        await wire.greeted(connection)
        lies = mode != "honest"
        began, total = time.monotonic(), 0
        reader, writer = await connection.create_stream()
        writer.write(wire.get(path))
        await wire.hear(reader)
        writer.write(wire.check_nothing())
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
    served = stage.folder("served")
    server = known(stage, served)
    name = b"big"
    if stage.shared:
        name = b"honest/big"
    else:
        (served / "big").write_bytes(os.urandom(64 << 20))
    for mode in ("gaps", "ahead"):
        total, took, reason = asyncio.run(lying_download(server, mode, name, 4))
        stage.figure(**{f"{mode}_bytes": total})
        stage.expect(
            bool(reason) or total < 2e6,
            f"{mode}: {total / 1e6:.2f} MB in {took:.1f} s, {reason[:40] or 'then nothing'}",
        )
    stage.lives(server)


def fingerprint(certificate_file: Path) -> str:
    """What `--fingerprint` takes: the first 160 bits of the certificate's BLAKE3 hash, in base 32."""
    from blake3 import blake3

    der = x509.load_pem_x509_certificate(certificate_file.read_bytes()).public_bytes(serialization.Encoding.DER)
    import base64

    text = base64.b32encode(blake3(der).digest()[:20]).decode().lower()
    return "-".join(text[at : at + 4] for at in range(0, len(text), 4))


@attack("transfer-garbage", soak=True)
def garbage(stage: Stage) -> None:
    """20,000 random, truncated and mutated datagrams.

    The server lives, keeps nothing of them, and sends no more than it got.
    """
    server = stage.serve(stage.folder("served"))
    count, rng = 20_000, random.Random(3)
    pool = [wire.initial(server.address) for _ in range(30)]
    before, sent, back = server.process.rss_mb(), 0, 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind((ATTACKER, 0))
        stranger.setblocking(False)
        for index in range(count):
            match index % 3:
                case 0:
                    datagram = rng.randbytes(rng.randrange(1, 1400))
                case 1:
                    whole = rng.choice(pool)
                    datagram = whole[: rng.randrange(1, len(whole))]
                case _:
                    changed = bytearray(rng.choice(pool))
                    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
                    datagram = bytes(changed)
            with contextlib.suppress(BlockingIOError):
                sent += stranger.sendto(datagram, server.address)
            if index % 50 == 49:
                time.sleep(0.004)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        back += len(stranger.recv(65535))
    grown = server.process.rss_mb() - before
    stage.figure(packets=count, bytes_in=sent, bytes_back=back, rss_growth_mb=round(grown, 1))
    stage.expect(back <= sent, f"{sent / 1e6:.0f} MB in, {back / 1e6:.2f} MB back")
    stage.expect(grown < 32, f"memory grew by {grown:.1f} MB")
    still_serves(stage, server, name="garbage")
    stage.lives(server)


def bytes_back(server: Server, datagram: bytes, seconds: float) -> int:
    """What comes back within so long for a datagram from an address that says no more."""
    total, end = 0, time.monotonic() + seconds
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind((ATTACKER, 0))
        stranger.sendto(datagram, server.address)
        with contextlib.suppress(TimeoutError):
            while (left := end - time.monotonic()) > 0:
                stranger.settimeout(left)
                total += len(stranger.recv(65535))
    return total


@attack("transfer-source-port-0", needs=("root",), quick=True, soak=True)
def source_port_zero(stage: Stage) -> None:
    """Good QUIC Initials from UDP port 0, which nobody can answer.

    The server lives and serves others.
    """
    server = stage.serve(stage.folder("served"))
    for _ in range(10):
        from_port_zero(server.address, wire.initial(server.address), ATTACKER)
    time.sleep(0.3)
    stage.lives(server)
    still_serves(stage, server, name="port0")
