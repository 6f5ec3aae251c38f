"""Attacks on `verus probe`: its server, and clients of hostile servers."""

from __future__ import annotations

import contextlib
import math
import os
import random
import select
import socket
import time
from pathlib import Path

from attacks import probe_wire as wire
from attacks.attack import attack
from attacks.endpoint import Process, Server, controls
from attacks.network import Peer, ip, outgoing_packets_refused
from attacks.probe_wire import Client, RefusedError, Request, answer_seconds
from attacks.stage import ATTACKER, HERE, Stage

#: Sets a terminal's title, clears it, and writes forged lines.
ESCAPES = b"\x1b]0;owned\x07\x1b[2J\x1b[32mAll good.\x1b[0m\r\nFORGED LINE"
#: Namespaces, devices and routes of one's own.
NETWORK = ("root", "namespaces")


def another_is_answered(stage: Stage, server: Server, within_s: float = 0.1, times: int = 5) -> None:
    """Expect that another client's hellos are answered at once."""
    times_s = []
    for _ in range(times):
        times_s.append(answer_seconds(server.address))
        time.sleep(0.1)
    worst = max(math.inf if t is None else t for t in times_s)
    stage.figure(answer_ms=None if worst == math.inf else round(worst * 1e3, 1))
    stage.expect(
        worst <= within_s,
        f"others' hellos answered in {worst * 1e3:.1f} ms at most",
        f"another's hello: answered after {worst * 1e3:.0f} ms" if worst < math.inf else "another's hello: no answer",
    )


def clean(stage: Stage, text: str, where: str) -> None:
    """Expect that nothing in a text drives a terminal or pretends to be a line of its own."""
    found = controls(text)
    forged = any(line.lstrip().startswith("FORGED LINE") for line in text.splitlines())
    stage.expect(
        not found and not forged,
        f"no control character in {where}",
        f"{where} has {found or 'a line that was forged'}",
    )


def client_of_ours(stage: Stage, server: Server, secret: bytes | None = None, bind: str = ATTACKER) -> Client:
    """One end of a connection, closed with the stage."""
    client = Client(server.address, secret=secret, bind=bind)
    stage.ending.callback(client.socket.close)
    return client


@attack("probe-amplification", quick=True, soak=True)
def amplification(stage: Stage) -> None:
    """First packets of every kind and many sizes from an address that has proven nothing.

    No more bytes come back than were sent, for any of them; and after a proven hello no more than its own size
    until the client has said something.
    """
    server = stage.probe_server()
    key, worst, total = wire.handshake_key(), 0.0, 0
    sizes = [1, 15, 16, 31, 32, 47, 48, 64, 73, 100, 500, 1199, 1200, 1201, 1400, 9000, 65000]
    for kind in [*range(14), 255]:
        for size in sizes:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.bind((ATTACKER, 0))
                stranger.settimeout(0.004)
                if kind == wire.HELLO and size >= 200:
                    sent = wire.hello(key, os.urandom(16), Request(), size=size)
                else:
                    sent = wire.packet(key, kind, bytes(max(0, min(size, 1200) - 32)), size=size)[:size]
                stranger.sendto(sent, server.address)
                back = 0
                with contextlib.suppress(TimeoutError):
                    while True:
                        back += len(stranger.recv(65535))
                total += back
                worst = max(worst, back / size)
    stage.figure(worst_ratio=round(worst, 3), bytes_back=total)
    stage.expect(worst <= 1, f"at most {worst:.2f} times what was sent came back")
    stage.expect(total > 0, "hellos were answered", "nothing was answered at all")
    for scheme in (b"verus", b"x" * 512):
        client = client_of_ours(stage, server)
        request = Request(down=4, scheme=scheme)
        client.prove(request)
        client.socket.sendto(client.second_hello, server.address)
        back = client.swallow(0.7)
        stage.expect(
            0 < back <= len(client.second_hello),
            f"{back} B in 0.7 s for a proven hello of {len(client.second_hello)} B",
        )
    stage.lives(server)


@attack("probe-oversized-packets", needs=NETWORK, quick=True)
def oversized_packets(stage: Stage) -> None:
    """A client asks for packets of 9000 B on a path of 1500 B, downward, while another measures.

    That one test ends, both ends say why, the client exits with 1; the server and the other test go on.
    """
    peer = stage.peer()
    server = stage.probe_server(host=Peer.host)
    where = f"{Peer.host}:{server.port}"
    victim = stage.start(
        *peer.prefix, stage.binary, "probe", "client", where, "--duration", 3, "--rate-mbps", 2, "--json"
    )
    time.sleep(0.7)
    options = ("--direction", "down", "--packet-bytes", 9000, "--duration", 1)
    ran = stage.run("probe", "client", where, *options, prefix=peer.prefix, seconds=12)
    stage.expect(ran.code == 1, "the client exits with 1", f"the client exits with {ran.code}")
    stage.expect("9000" in ran.err or "fit" in ran.err, f"it says: {ran.last_line[:120]}")
    code = victim.wait(12)
    stage.expect(
        code == 0, "another test beside it ends well", f"another test beside it: exit {code}: {victim.last_line}"
    )
    stage.lives(server)


@attack("probe-broadcast-hello", needs=NETWORK, quick=True)
def broadcast_hello(stage: Stage) -> None:
    """A hello sent to the network's broadcast address.

    The server lives and answers others.
    """
    peer = stage.peer()
    server = stage.probe_server(host=Peer.host)
    with peer.socket(Peer.address) as stranger:
        stranger.sendto(wire.hello(wire.handshake_key(), os.urandom(16), Request()), (Peer.broadcast, server.port))
    time.sleep(0.3)
    stage.lives(server)
    another_is_answered(stage, Server(server.process, HERE, server.port))


@attack("probe-firewalled-client", needs=NETWORK, quick=True)
def firewalled_client(stage: Stage) -> None:
    """The server's firewall refuses what it sends (EPERM), for a hello and in the middle of a test.

    The server lives; when the firewall lets packets out again, it answers.
    """
    peer = stage.peer()
    server = stage.probe_server(host=Peer.host, honest=False)
    where = f"{Peer.host}:{server.port}"
    options = ("--direction", "down", "--duration", 3, "--rate-mbps", 2)
    running = stage.start(*peer.prefix, stage.binary, "probe", "client", where, *options)
    time.sleep(0.8)
    with outgoing_packets_refused(), peer.socket(Peer.address) as stranger:
        stranger.sendto(wire.hello(wire.handshake_key(), os.urandom(16), Request()), (Peer.host, server.port))
        time.sleep(0.5)
    stage.lives(server)
    another_is_answered(stage, Server(server.process, HERE, server.port))
    code = running.wait(15)
    stage.expect(code in (0, 1), f"the test beside ended with exit {code}")
    stage.lives(server)


@attack("probe-address-lost", needs=NETWORK, quick=True)
def address_lost(stage: Stage) -> None:
    """The server's address goes away in the middle of a test, as when a network changes.

    The server lives and serves others.
    """
    peer = stage.peer()
    server = stage.probe_server(host=Peer.host)
    options = ("--direction", "down", "--duration", 2, "--rate-mbps", 5)
    stage.start(*peer.prefix, stage.binary, "probe", "client", f"{Peer.host}:{server.port}", *options)
    time.sleep(1)
    ip("addr", "del", f"{Peer.host}/24", "dev", "near")
    ip("addr", "add", "10.99.0.7/24", "dev", "near")
    time.sleep(1)
    stage.lives(server)
    another_is_answered(stage, Server(server.process, HERE, server.port))


@attack("probe-interface-down", needs=NETWORK, quick=True)
def interface_down(stage: Stage) -> None:
    """The server's interface goes down and up again in the middle of a test.

    The server lives; the test goes on or fails by itself.
    """
    peer = stage.peer()
    server = stage.probe_server(host=Peer.host)
    options = ("--direction", "down", "--duration", 3, "--rate-mbps", 5)
    client = stage.start(*peer.prefix, stage.binary, "probe", "client", f"{Peer.host}:{server.port}", *options)
    time.sleep(1)
    ip("link", "set", "near", "down")
    time.sleep(0.7)
    ip("link", "set", "near", "up")
    code = client.wait(20)
    stage.expect(code in (0, 1), f"the client ends with {code}", f"the client still waits: {client.last_line}")
    stage.lives(server)


@attack("probe-mtu-shrinks", needs=NETWORK, quick=True)
def mtu_shrinks(stage: Stage) -> None:
    """The path's MTU falls below the size of the packets in the middle of a test.

    That one test ends with its cause and exit code 1; the server lives.
    """
    peer = stage.peer()
    server = stage.probe_server(host=Peer.host)
    options = ("--direction", "down", "--duration", 3, "--rate-mbps", 5)
    client = stage.start(*peer.prefix, stage.binary, "probe", "client", f"{Peer.host}:{server.port}", *options)
    time.sleep(1)
    ip("link", "set", "near", "mtu", 1280)
    code = client.wait(20)
    stage.expect(code == 1, f"the client exits with 1: {client.last_line[:120]}", f"the client exits with {code}")
    stage.lives(server)


@attack("probe-refusing-routes", needs=NETWORK, quick=True)
def refusing_routes(stage: Stage) -> None:
    """The server's routes refuse one address (prohibit, blackhole, unreachable), from which hellos come.

    The server lives and answers others, and that address again when the route is gone.
    """
    peer = stage.peer()
    server = stage.probe_server(host=Peer.host)
    with peer.socket(Peer.other_address) as stranger:
        for kind in ("prohibit", "blackhole", "unreachable"):
            ip("route", "add", kind, f"{Peer.other_address}/32")
            for _ in range(3):
                stranger.sendto(wire.hello(wire.handshake_key(), os.urandom(16), Request()), (Peer.host, server.port))
            time.sleep(0.3)
            ip("route", "del", kind, f"{Peer.other_address}/32")
            if not stage.expect(
                server.process.alive,
                f"it lives with a {kind} route",
                f"{kind}: the server ended, exit {server.process.code}: {server.process.last_line[:120]}",
            ):
                return
        stranger.settimeout(2)
        stranger.sendto(wire.hello(wire.handshake_key(), os.urandom(16), Request()), (Peer.host, server.port))
        stage.expect(len(stranger.recv(2000)) > 0, "it answers when the routes are gone")
    another_is_answered(stage, Server(server.process, HERE, server.port))


def load(process: Process, seconds: float) -> float:
    """The share of one processor that a process takes."""
    before, began = process.cpu_s(), time.monotonic()
    time.sleep(seconds)
    return (process.cpu_s() - before) / (time.monotonic() - began)


@attack("probe-ordinary-client-at-absurd-rate", quick=True)
def ordinary_client_at_absurd_rate(stage: Stage) -> None:
    """The ordinary client with `--rate-mbps 1000000 --flows 8` against a server with limits of 5 Mbit/s.

    The server stays below half a processor and answers others; the client ends in time.
    """
    server = stage.probe_server("--max-mbps", 5, "--max-total-mbps", 20)
    options = ("--direction", "down", "--flows", 8, "--rate-mbps", 1_000_000, "--packet-bytes", 200, "--duration", 3)
    client = stage.endpoint("probe", "client", server.name, *options, "-q")
    time.sleep(1)
    share = load(server.process, 1)
    stage.figure(server_cpu=round(share, 2))
    stage.expect(share < 0.5, f"the server takes {share:.0%} of a processor")
    another_is_answered(stage, server)
    code = client.wait(10)
    stage.expect(code in (0, 1, 2), f"the client ends with {code}", "the client hangs")


def hostile_server(stage: Stage, *options: object) -> tuple[socket.socket, Process, wire.Packet, wire.Address]:
    """A socket of ours to which the ordinary client has said hello."""
    ours = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stage.ending.callback(ours.close)
    ours.bind((HERE, 0))
    ours.settimeout(10)
    client = stage.endpoint("probe", "client", f"{HERE}:{ours.getsockname()[1]}", *options)
    while True:
        datagram, address = ours.recvfrom(65535)
        heard = wire.Packet.parsed(datagram)
        if heard.kind == wire.HELLO:
            return ours, client, heard, address


def accepted(ours: socket.socket, hello: wire.Packet, address: wire.Address) -> tuple[bytes, int]:
    """Grant the ordinary client its test: the server's key and the connection."""
    nonce, _, _ = wire.hello_parts(hello.body)
    server_nonce, connection, handshake = os.urandom(16), 0x1122334455667788, wire.handshake_key()
    _, key = wire.connection_keys(handshake, nonce, server_nonce)
    ours.sendto(wire.packet(handshake, wire.ACCEPT, nonce + server_nonce, connection=connection), address)
    return key, connection


@attack("probe-evil-server-closes", quick=True)
def evil_server_closes(stage: Stage) -> None:
    """A server grants a test and closes it with a text that drives a terminal.

    The client exits with 1 and prints nothing of it as it is.
    """
    ours, client, hello, address = hostile_server(stage)
    key, connection = accepted(ours, hello, address)
    ours.recvfrom(65535)
    ours.sendto(wire.packet(key, wire.CLOSE, wire.close_body(4, ESCAPES), connection=connection), address)
    code = client.wait(10)
    stage.expect(code == 1, "the client exits with 1", f"the client exits with {code}")
    clean(stage, client.said, "the client's output")


@attack("probe-evil-server-lies", quick=True)
def evil_server_lies(stage: Stage) -> None:
    """A server reports the largest numbers there are in statuses and data, for each of 16 flows.

    The client ends in time, without a panic, and keeps less than 100 MB.
    """
    ours, client, hello, address = hostile_server(stage, "--direction", "both", "--flows", 8, "--duration", 2, "--json")
    key, connection = accepted(ours, hello, address)
    _, up, down = wire.hello_parts(hello.body)
    began, number, closed, peak = time.monotonic(), 0, False, 0.0
    ours.settimeout(0.03)
    while time.monotonic() - began < 8 and client.alive:
        number += 1
        late = time.monotonic() - began > 2
        flows = [wire.flow_status(flow, late, wire.LARGEST, 2**32 - 1) for flow in range(min(up + down, 18))]
        ours.sendto(wire.packet(key, wire.STATUS, wire.status_body(number, flows), connection=connection), address)
        for flow in range(down):
            body = wire.data_body(wire.LARGEST - 1000 + number, wire.LARGEST, wire.LARGEST - 5, 2**32 - 1)
            ours.sendto(wire.packet(key, wire.DATA, body, flow, connection), address)
        with contextlib.suppress(OSError):
            peak = max(peak, client.peak_mb())
        try:
            while True:
                if wire.Packet.parsed(ours.recvfrom(65535)[0]).kind == wire.CLOSE:
                    closed = True
                    ours.sendto(wire.packet(key, wire.CLOSED, connection=connection), address)
        except TimeoutError:
            pass
    code = client.wait(10)
    stage.figure(peak_mb=round(peak, 1), closed=closed)
    stage.expect(code in (0, 1), f"the client ends with {code}", f"the client: exit {code}, {client.last_line[:120]}")
    stage.expect("panicked" not in client.said, "no panic", f"it panicked: {client.last_line[:160]}")
    stage.expect(peak < 100, f"it takes {peak:.0f} MB at most")
    clean(stage, client.said, "the client's output")


@attack("probe-garbage", soak=True)
def garbage(stage: Stage) -> None:
    """60,000 random, truncated, mutated and, with a session's own key, ill-formed packets.

    The server lives, keeps nothing of them, sends no more than it got, and measures for others meanwhile.
    """
    server = stage.probe_server()
    count, rng = 60_000 if not stage.shared else 20_000, random.Random(7)
    ours = client_of_ours(stage, server).connect(Request(up=1, down=1, duration_ns=60 * 10**9))
    ours.status()
    first = wire.ack_body(1, 1, 1400, 3, [4], 4)
    valid = [
        ours.second_hello,
        wire.hello(ours.handshake, os.urandom(16), Request()),
        ours.sealed(wire.DATA, wire.data_body(1, 1, 0, 1400), size=1372),
        ours.sealed(wire.ACK, first),
        ours.sealed(wire.STATUS, wire.status_body(5), size=48),
        ours.sealed(wire.CLOSE, wire.close_body()),
        ours.sealed(wire.CLOSED),
        ours.sealed(wire.RESPONSE, bytes(16)),
    ]
    kinds = [wire.DATA, wire.ACK, wire.STATUS, wire.CHALLENGE, wire.RESPONSE, 12, 0, 99, wire.RETRY, wire.ACCEPT]
    before, sent, back = server.process.rss_mb(), 0, 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind((ATTACKER, 0))
        stranger.setblocking(False)

        def collect() -> int:
            total = 0
            with contextlib.suppress(BlockingIOError):
                while True:
                    total += len(stranger.recv(65535))
            return total

        for index in range(count):
            match index % 4:
                case 0:
                    datagram = rng.randbytes(rng.randrange(0, 1500))
                case 1:
                    whole = rng.choice(valid)
                    datagram = whole[: rng.randrange(len(whole))]
                case 2:
                    changed = bytearray(rng.choice(valid))
                    for _ in range(rng.randrange(1, 4)):
                        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
                    datagram = bytes(changed)
                case _:
                    body = rng.randbytes(rng.randrange(0, 120))
                    if rng.random() < 0.5:
                        large = rng.randrange
                        body = wire.data_body(large(1 << 61), large(1 << 61), large(1 << 61), large(1 << 32))
                    datagram = ours.sealed(rng.choice(kinds), body, rng.choice([0, 0, 0, 1, 65535]))
            with contextlib.suppress(BlockingIOError):
                stranger.sendto(datagram, server.address)
                sent += len(datagram)
            if index % 50 == 0:
                back += collect()
                time.sleep(0.001)
        time.sleep(0.3)
        back += collect()
    grown = server.process.rss_mb() - before
    stage.figure(packets=count, bytes_in=sent, bytes_back=back, rss_growth_mb=round(grown, 1))
    stage.expect(back <= sent, f"{sent / 1e6:.0f} MB in, {back / 1e6:.2f} MB back")
    stage.expect(grown < 16, f"memory grew by {grown:.1f} MB")
    stage.lives(server)
    another_is_answered(stage, server)


def captured_hello(stage: Stage, key: Path) -> tuple[Process, bytes | None]:
    """The first packet of an ordinary client that has a key."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.bind((HERE, 0))
        ours.settimeout(0.1)
        client = stage.endpoint("probe", "client", f"{HERE}:{ours.getsockname()[1]}", "--key-file", key)
        end = time.monotonic() + 30
        while client.alive and time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                return client, ours.recv(65535)
        return client, None


@attack("probe-guess-key", quick=True)
def guess_key(stage: Stage) -> None:
    """A captured hello is tried against a dictionary of pre-shared keys.

    A key of 8 letters is refused; of a longer one, each guess costs so much that fewer than 100 a second can be tried.
    """
    key = stage.work / "key"
    for text in ("password", "passwordpassword"):
        key.write_text(text + "\n")
        key.chmod(0o600)
        client, captured = captured_hello(stage, key)
        if captured is None:
            stage.expect(client.code == 2, f"{len(text)} letters: {client.last_line[:120]}")
            continue
        client.stop()
        found = wire.sealed_with(captured, wire.handshake_key(text.encode()))
        # Of a processor's time, however much of it this machine has left for us.
        began, guesses, taken = time.process_time(), 0, 0.0
        while taken < 1:
            wire.sealed_with(captured, wire.handshake_key(f"guess{guesses:04}".encode()))
            guesses += 1
            taken = time.process_time() - began
        rate = guesses / taken
        stage.figure(guesses_per_s=round(rate, 1))
        stage.expect(found, "the right one is known when it is met", "the right one is not known: out of date")
        stage.expect(rate < 100, f"{len(text)} letters: {rate:.0f} guesses a second")


@attack("probe-idle-clients", soak=True, quick=True)
def idle_clients(stage: Stage) -> None:
    """64 clients from as many addresses take flows, speak once or never, and then say nothing.

    The server takes little memory for each, and next to no processor.
    """
    server = stage.probe_server("--max-clients", 128) if not stage.shared else stage.probe_server()
    before, held, clients = server.process.rss_mb(), 0, []
    for index in range(64):
        client = client_of_ours(stage, server, bind=f"127.66.1.{index + 1}")
        try:
            clients.append(client.connect(Request(up=4, down=4, duration_ns=wire.HOUR_NS, status_ms=1000)))
            held += 1
        except (RefusedError, TimeoutError):
            break
    for client in clients[::2]:
        client.status()
    grown = server.process.rss_mb() - before
    share = load(server.process, 2)
    stage.figure(clients=held, mb_each=round(grown / max(1, held), 3), server_cpu=round(share, 2))
    stage.expect(held > 0 and grown / max(1, held) < 1, f"{held} clients, {grown / max(1, held) * 1e3:.0f} kB each")
    if not stage.shared:
        limit = 0.25 if not stage.honest else 0.5
        stage.expect(share < limit, f"the server takes {share:.0%} of a processor")
    stage.lives(server)


@attack("probe-hello-flood", soak=True, flood="0.5 MB at once, 400 packets that have to be looked at")
def hello_flood(stage: Stage) -> None:
    """50,000 bogus first hellos from 200 addresses.

    Nothing is kept of them, less comes back than was sent, and others are answered.
    """
    server = stage.probe_server()
    strangers = []
    for index in range(200):
        stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        stage.ending.callback(stranger.close)
        stranger.bind((f"127.66.{2 + index // 100}.{1 + index % 100}", 0))
        stranger.setblocking(False)
        strangers.append(stranger)
    pool = [wire.hello(wire.handshake_key(), os.urandom(16), Request()) for _ in range(500)]
    before, sent, back = server.process.rss_mb(), 0, 0
    for index in range(50_000):
        with contextlib.suppress(BlockingIOError):
            sent += strangers[index % 200].sendto(pool[index % 500], server.address)
        if index % 400 == 399:
            time.sleep(0.02)
    for stranger in strangers:
        with contextlib.suppress(BlockingIOError):
            while True:
                back += len(stranger.recv(2000))
    grown = server.process.rss_mb() - before
    stage.figure(bytes_in=sent, bytes_back=back, rss_growth_mb=round(grown, 1))
    stage.expect(back <= sent, f"{sent / 1e6:.0f} MB in, {back / 1e6:.2f} MB back")
    stage.expect(grown < 8, f"memory grew by {grown:.1f} MB")
    another_is_answered(stage, server)


def served_after(stage: Stage, server: Server, seconds: float) -> float | None:
    """How long until an ordinary client is served; None if it is not within so long."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if stage.run("probe", "client", server.name, "--duration", 0.2, "-q", seconds=10).code == 0:
            return time.monotonic() - began
        time.sleep(0.2)
    return None


@attack("probe-places-of-many-addresses", soak=True, quick=True)
def places_of_many_addresses(stage: Stage) -> None:
    """80 addresses prove themselves, take every place, and never say a word.

    They have seconds: another client is served within 10 s.
    """
    server = stage.probe_server()
    taken = 0
    for index in range(80):
        with contextlib.suppress(RefusedError, TimeoutError):
            client_of_ours(stage, server, bind=f"127.66.4.{index + 1}").connect(Request(duration_ns=wire.HOUR_NS))
            taken += 1
    after = served_after(stage, server, 10)
    stage.figure(places=taken, served_after_s=after)
    stage.expect(
        after is not None,
        f"they took {taken} places; another was served after {after or 0:.1f} s",
        f"they took {taken} places; another was kept out for more than 10 s",
    )


def swallow_all(clients: list[Client], seconds: float) -> int:
    """Read what comes to several for so long, without a word; the bytes."""
    end, total = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0:
        for ready in select.select([client.socket for client in clients], [], [], left)[0]:
            total += len(ready.recv(65535))
    return total


@attack("probe-vanishing-client", soak=True, quick=True)
def vanishing_client(stage: Stage) -> None:
    """Clients ask for 4 flows each, of packets of up to 65,000 B, speak, and acknowledge nothing.

    The server sends at most 64 MB in 5 s, single packets in the last second, and keeps less than 64 MB for them.
    """
    server = stage.probe_server()
    before, clients = server.process.rss_mb(), []
    for packet_bytes, scheme in (
        (1400, b"constant:rate_mbps=20"),
        (65_000, b"constant:rate_mbps=20"),
        (1400, b"cubic"),
    ):
        client = client_of_ours(stage, server)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        request = Request(up=0, down=4, packet_bytes=packet_bytes, duration_ns=wire.HOUR_NS, scheme=scheme)
        try:
            clients.append(client.connect(request))
        except RefusedError as refused:
            stage.expect(True, f"refused: {refused}")
    for client in clients:
        client.status()
    early = swallow_all(clients, 3)
    for client in clients:  # it is there, and that is all
        client.status()
    early += swallow_all(clients, 1)
    late = swallow_all(clients, 1)
    grown = server.process.rss_mb() - before
    stage.figure(bytes=early + late, bytes_last_second=late, rss_growth_mb=round(grown, 1))
    stage.expect(len(clients) > 0 and early > 0, f"{len(clients)} tests were granted")
    stage.expect(early + late < 64e6, f"{(early + late) / 1e6:.2f} MB sent to them")
    stage.expect(late < 300_000, f"{late / 1e3:.0f} kB in the last second")
    stage.expect(grown < 64, f"memory grew by {grown:.0f} MB")
    stage.lives(server)


@attack("probe-sprout-receivers", soak=True, quick=True)
def sprout_receivers(stage: Stage) -> None:
    """8 clients with 32 flows each whose receiver half has the most to compute, one packet each.

    Others are answered at once.
    """
    server = stage.probe_server()
    taken = 0
    for index in range(8):
        client = client_of_ours(stage, server, bind=f"127.66.7.{index + 1}")
        try:
            client.connect(Request(up=32, duration_ns=wire.HOUR_NS, scheme=b"sprout", status_ms=1000))
        except (RefusedError, TimeoutError):
            continue
        taken += 1
        client.status()
        for flow in range(32):
            client.data(0, flow)
    share = load(server.process, 1)
    stage.figure(clients=taken, server_cpu=round(share, 2))
    stage.expect(taken > 0, f"{taken} clients: {share:.0%} of a processor")
    another_is_answered(stage, server)
