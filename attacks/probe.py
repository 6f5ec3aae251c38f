"""Attacks on the server of `verus probe`: networks that change under it, and a flood of first packets."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time

from attacks import probe_wire as wire
from attacks.attack import attack
from attacks.endpoint import Server
from attacks.network import Peer, ip, outgoing_packets_refused
from attacks.stage import HERE, Stage

#: Namespaces, devices and routes of one's own.
NETWORK = ("root", "namespaces")


def another_is_answered(stage: Stage, server: Server, within_s: float = 0.1, times: int = 5) -> None:
    """Expect that another client's hellos are answered at once."""
    times_s = []
    for _ in range(times):
        times_s.append(wire.answer_seconds(server.address))
        time.sleep(0.1)
    worst = max(math.inf if t is None else t for t in times_s)
    stage.figure(answer_ms=None if worst == math.inf else round(worst * 1e3, 1))
    stage.expect(
        worst <= within_s,
        f"others' hellos answered in {worst * 1e3:.1f} ms at most",
        f"another's hello: answered after {worst * 1e3:.0f} ms" if worst < math.inf else "another's hello: no answer",
    )


@attack("probe-broadcast-hello", needs=NETWORK, quick=True)
def broadcast_hello(stage: Stage) -> None:
    """A hello sent to the network's broadcast address.

    The server lives and answers others.
    """
    peer = stage.peer()
    server = stage.probe_server(host=Peer.host)
    with peer.socket(Peer.address) as stranger:
        stranger.sendto(wire.hello(os.urandom(16)), (Peer.broadcast, server.port))
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
        stranger.sendto(wire.hello(os.urandom(16)), (Peer.host, server.port))
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
                stranger.sendto(wire.hello(os.urandom(16)), (Peer.host, server.port))
            time.sleep(0.3)
            ip("route", "del", kind, f"{Peer.other_address}/32")
            if not stage.expect(
                server.process.alive,
                f"it lives with a {kind} route",
                f"{kind}: the server ended, exit {server.process.code}: {server.process.last_line[:120]}",
            ):
                return
        stranger.settimeout(2)
        stranger.sendto(wire.hello(os.urandom(16)), (Peer.host, server.port))
        stage.expect(len(stranger.recv(2000)) > 0, "it answers when the routes are gone")
    another_is_answered(stage, Server(server.process, HERE, server.port))


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
    pool = [wire.hello(os.urandom(16)) for _ in range(500)]
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
