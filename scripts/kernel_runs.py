#!/usr/bin/env python3
"""Measures `forward` in Linux's TCP, beside Cubic and BBR: four tables, each by its command (as root).

    python scripts/kernel_runs.py page                                   # a page beside a bulk flow of the same host
    python scripts/kernel_runs.py cost                                   # per acknowledgement, per flow
    python scripts/kernel_runs.py buffers                                # short ones, on a cable without delay
    python scripts/kernel_runs.py clients                                # iperf3, curl, ssh, rsync of real servers

`--short` runs little of each, for a test that it works, without meaningful numbers. Everything
happens in network namespaces. While it runs, the congestion controls allowed in a namespace are
those that are tried here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
ENDPOINT = str(BIN / "verus-endpoint")

#: The name of `forward` in the kernel while this runs.
FORWARD = "verus_runs"
#: Congestion controls: the name in tables, and the kernel's.
SENDERS = {"forward": FORWARD, "Cubic": "cubic", "BBR": "bbr"}
#: The drop-tail queue of all emulated links.
QUEUE = "droptail:bytes=600kB"
CHANNEL = "city-driving-lte-down"
SYSCTL = Path("/proc/sys")


def run(*words: str, **options: Any) -> str:
    """The output of a program, which must succeed."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"`{' '.join(words)}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


# --- what runs are made in ----------------------------------------------------------------------


@contextlib.contextmanager
def sysctl(name: str, value: str) -> Iterator[None]:
    """Changes a setting of the machine, and restores it afterwards."""
    path = SYSCTL / name.replace(".", "/")
    before = path.read_text(encoding="ascii")
    path.write_text(value, encoding="ascii")
    try:
        yield
    finally:
        path.write_text(before, encoding="ascii")


@contextlib.contextmanager
def loaded() -> Iterator[None]:
    """Loads `forward` into the kernel, and allows Cubic and BBR in all namespaces.

    First unloads the one that a killed run may have left.
    """
    if Path("/sys/fs/bpf/verus", FORWARD).exists():
        run(ENDPOINT, "--quiet", "kernel", "unload", FORWARD)
    run(ENDPOINT, "--quiet", "kernel", "load", "forward", "--name", FORWARD)
    try:
        # `forward` is in the list: without it, namespaces could not use it.
        allowed = (SYSCTL / "net/ipv4/tcp_allowed_congestion_control").read_text(encoding="ascii").split()
        names = " ".join(dict.fromkeys([*allowed, "cubic", "bbr"]))
        with sysctl("net.ipv4.tcp_allowed_congestion_control", names):
            yield
    finally:
        run(ENDPOINT, "--quiet", "kernel", "unload", FORWARD)


@dataclass(frozen=True)
class Host:
    """A network namespace."""

    name: str

    def words(self, *words: str) -> list[str]:
        """The command that runs a program in it, with the file systems of all."""
        return ["nsenter", f"--net=/run/netns/{self.name}", *words]

    def run(self, *words: str, **options: Any) -> str:
        """As `run`, in the namespace."""
        return run(*self.words(*words), **options)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Starts a server in the namespace."""
        return subprocess.Popen(self.words(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def prefer(self, control: str) -> None:
        """Sets the congestion control of its new connections."""
        self.run("sysctl", "-qw", f"net.ipv4.tcp_congestion_control={control}")


@contextlib.contextmanager
def host(name: str) -> Iterator[Host]:
    """A namespace while the block runs."""
    made = Host(f"verus-runs-{os.getpid()}-{name}")
    run("ip", "netns", "add", made.name)
    try:
        run("ip", "-n", made.name, "link", "set", "lo", "up")
        yield made
    finally:
        run("ip", "netns", "del", made.name)


@contextlib.contextmanager
def ended(*servers: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ends servers after the block."""
    try:
        yield
    finally:
        for server in servers:
            server.terminate()
            server.wait()


def behind(server: Host, client: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The output of a client behind the channel, whose servers are on `server`, and the metrics of the link to it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        link = ["--down", CHANNEL, "--queue", QUEUE, "--out", str(out)]
        said = server.run(ENDPOINT, "--quiet", "shell", *link, "--", *client)
        rows = [json.loads(line) for line in (out / "results.jsonl").read_text(encoding="utf-8").splitlines()]
        return said, next(row for row in rows if row["trace"].endswith("(down)"))


# --- a page beside a bulk flow ------------------------------------------------------------------

PAGE_BYTES = 2_000_000


def page(options: argparse.Namespace) -> Iterator[str]:
    """The load time of a page beside a bulk flow of the same host, through the same queue."""
    loads = 1 if options.short else 30
    yield f"A page of 2 MB, {loads} times, beside a bulk flow of the same host, through `{CHANNEL}`."
    yield ""
    yield "| sender | page, median s | p95 s | link, Mbit/s | mean queueing delay, ms | p95, ms |"
    yield "|---|---|---|---|---|---|"
    with loaded(), host("server") as server:
        for name, control in SENDERS.items():
            with ended(server.start(sys.executable, __file__, "serve", control)):
                said, link = behind(server, [sys.executable, __file__, "load", str(loads)])
            seconds = json.loads(said)
            tail = np.percentile(seconds, 95)
            yield (
                f"| {name} | {statistics.median(seconds):.2f} | {tail:.2f} | {link['throughput_mbps']:.2f} "
                f"| {link['qdelay_mean_ms']:.0f} | {link['qdelay_p95_ms']:.0f} |"
            )


PORT = 7000


def serve(control: str) -> None:
    """Sends a page or an endless flow, as each connection asks."""
    with socket.create_server(("", PORT), backlog=64) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    """Serves one connection of `serve`."""
    with connection, contextlib.suppress(ConnectionError):
        if connection.recv(1) == b"p":
            connection.sendall(bytes(PAGE_BYTES))
            return
        while True:
            connection.sendall(bytes(1 << 16))


def asked(word: bytes) -> socket.socket:
    """A connection to `serve`, over the link."""
    until = time.monotonic() + 10
    while True:
        try:
            connection = socket.create_connection((os.environ["MAHIMAHI_BASE"], PORT), timeout=60)
            break
        except ConnectionRefusedError:  # it is starting
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
    connection.sendall(word)
    return connection


def load(times: int) -> None:
    """Loads the page `times` times beside a bulk flow, and prints each load time, in s."""
    bulk = asked(b"b")

    def drink() -> None:
        with contextlib.suppress(OSError):
            while bulk.recv(1 << 16):
                pass

    threading.Thread(target=drink, daemon=True).start()
    time.sleep(5)
    taken = []
    for _ in range(times):
        began = time.monotonic()
        with asked(b"p") as connection:
            got = 0
            while part := connection.recv(1 << 16):
                got += len(part)
        assert got == PAGE_BYTES, got
        taken.append(time.monotonic() - began)
        time.sleep(1)
    print(json.dumps(taken))


# --- cost ---------------------------------------------------------------------------------------

#: Rates in the syntax of tc; the last is unlimited. At less a flow takes no more than what the machine does without it.
RATES = ("1gbit", "10gbit", None)


def cost(options: argparse.Namespace) -> Iterator[str]:
    """Processor time over veth (medians of runs in turn), time for an acknowledgement, and memory for a flow."""
    seconds, rounds = (1, 1) if options.short else (3, 7)
    yield (
        f"One flow over veth, {rounds} runs of {seconds} s of each sender in turn: medians. Processor time is the "
        "machine's, both ends together, less what it takes without a flow; an acknowledgement's, with the bursts after "
        "it, is of one more run, as counting it takes time itself."
    )
    yield ""
    yield "| link | sender | Mbit/s | processor, s per Gbyte | over BBR's | an acknowledgement, ns | all, s per Gbyte |"
    yield "|---|---|---|---|---|---|---|"
    began = busy_s()
    time.sleep(seconds)
    usual = (busy_s() - began) / seconds
    for rate in RATES[:1] if options.short else RATES:
        # In turn, and each as often first, so that other load on the machine affects all alike.
        runs: dict[str, list[Carried]] = {name: [] for name in SENDERS}
        with loaded():
            for start in range(rounds):
                names = list(SENDERS)
                for name in names[start % len(names) :] + names[: start % len(names)]:
                    runs[name].append(carried(rate, SENDERS[name], seconds, usual))
        with sysctl("kernel.bpf_stats_enabled", "1"), loaded():
            counted = carried(rate, FORWARD, seconds, usual)
            mine = json.loads(run(ENDPOINT, "kernel", "status", "--json"))["loaded"]
        per_ack = next(one["cpu_per_ack_ns"] for one in mine if one["name"] == FORWARD and one["registered"])
        for name, of_sender in runs.items():
            mbps = statistics.median(one.mbps for one in of_sender)
            busy = statistics.median(one.busy_s_per_gbyte for one in of_sender)
            over = statistics.median(
                one.busy_s_per_gbyte / bbr.busy_s_per_gbyte for one, bbr in zip(of_sender, runs["BBR"], strict=True)
            )
            law = f"{per_ack} | {per_ack * counted.acks_per_gbyte / 1e9:.3f}" if name == "forward" else "– | –"
            yield f"| {rate or 'no limit'} | {name} | {mbps:.0f} | {busy:.2f} | {over:.2f} | {law} |"
    flows = 200 if options.short else 10_000
    yield ""
    yield f"{flows} connections at once, both ends on one host, 20 kB carried by each."
    yield ""
    yield "| sender | kernel memory for a connection, both ends, bytes | `kernel status`, s |"
    yield "|---|---|---|"
    for name, control in SENDERS.items():
        with loaded(), host("a") as one:
            usage = json.loads(one.run(sys.executable, __file__, "hold", control, str(flows)))
        yield f"| {name} | {usage['bytes'] / flows:.0f} | {usage['status_s']:.2f} |"


@dataclass(frozen=True)
class Carried:
    """The data of one flow, and their cost."""

    mbps: float
    busy_s_per_gbyte: float
    acks_per_gbyte: float


def carried(rate: str | None, control: str, seconds: int, usual: float) -> Carried:
    """One flow over a cable of that rate, where `usual` processors are busy without it."""
    with host("a") as left, host("b") as right:
        join(left, right, *(["rate", rate, "burst", "512kb", "latency", "50ms"] if rate else []))
        began, busy_before = time.monotonic(), busy_s()
        sent = iperf3(left, right, control, 1, seconds)
        busy = busy_s() - busy_before - usual * (time.monotonic() - began)
        ack_packets = json.loads(left.run("ip", "-s", "-j", "link", "show", "v0"))[0]["stats64"]["rx"]["packets"]
    gbytes = sent["bytes"] / 1e9
    return Carried(sent["bits_per_second"] / 1e6, busy / gbytes, ack_packets / gbytes)


def busy_s() -> float:
    """Time in which the machine's processors were not idle, since a fixed moment, s."""
    words = Path("/proc/stat").read_text(encoding="ascii").split(maxsplit=6)
    idle = (int(words[4]) + int(words[5])) / os.sysconf("SC_CLK_TCK")
    return time.monotonic() * os.sysconf("SC_NPROCESSORS_ONLN") - idle


def iperf3(left: Host, right: Host, control: str, flows: int, seconds: int) -> dict[str, Any]:
    """Sends from the left host to the right one; returns what iperf3 reports of all flows together."""
    with ended(right.start("iperf3", "--server")):
        time.sleep(0.3)
        words = ["iperf3", "--client", "10.9.0.2", "--json", "--congestion", control, "--time", str(seconds)]
        sent: dict[str, Any] = json.loads(left.run(*words, "--parallel", str(flows)))["end"]["sum_sent"]
        return sent


def join(left: Host, right: Host, *limit: str) -> None:
    """Connects two hosts by a cable; from the left one with a token bucket filter of these options, if any."""
    run("ip", "link", "add", "v0", "netns", left.name, "type", "veth", "peer", "name", "v0", "netns", right.name)
    for number, one in enumerate((left, right), start=1):
        run("ip", "-n", one.name, "addr", "add", f"10.9.0.{number}/24", "dev", "v0")
        run("ip", "-n", one.name, "link", "set", "v0", "up")
    if limit:
        run("tc", "-n", left.name, "qdisc", "add", "dev", "v0", "root", "tbf", *limit)


def hold(control: str, flows: int) -> None:
    """Holds `flows` connections open, and prints their memory and the time of a status."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with socket.create_server(("127.0.0.1", PORT), backlog=1024) as listener:
        ready, tell = os.pipe()
        before = kernel_bytes()
        far = os.fork()  # one process may not open enough files for both ends
        if far == 0:
            drain(listener, flows, tell)
        near = []
        for _ in range(flows):
            connection = socket.socket()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
            connection.connect(("127.0.0.1", PORT))
            connection.sendall(bytes(HELD_BYTES))
            near.append(connection)
        assert os.read(ready, 1) == b"!"
        after, began = kernel_bytes(), time.monotonic()
        status = json.loads(run(ENDPOINT, "kernel", "status", "--json"))
        took = time.monotonic() - began
        os.kill(far, signal.SIGKILL)
        os.waitpid(far, 0)
    listed = sum(len(connection["flows"]) for connection in status["loaded"])
    assert listed == (flows if control == FORWARD else 0), listed
    print(json.dumps({"bytes": after - before, "status_s": took}))


#: Data of each of these connections, bytes.
HELD_BYTES = 20_000


def drain(listener: socket.socket, flows: int, tell: int) -> NoReturn:
    """The far ends: reads the data of each, reports when all has come, and holds them until the process is ended."""
    connections = []
    for _ in range(flows):
        connection, _ = listener.accept()
        expected = HELD_BYTES
        while expected and (part := connection.recv(expected)):
            expected -= len(part)
        connections.append(connection)
    os.write(tell, b"!")
    while True:
        signal.pause()


def kernel_bytes() -> int:
    """Memory that the kernel uses itself, bytes."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    amounts = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return 1024 * (amounts["Slab"] + amounts["Percpu"] + amounts["VmallocUsed"])


# --- short buffers ------------------------------------------------------------------------------

#: Rate, bytes that may pass at once, and buffer, in the syntax of tc.
SHORT_BUFFERS = (("10mbit", "5kb", "15kb"), ("100mbit", "5kb", "24kb"), ("1gbit", "64kb", "96kb"))


def buffers(options: argparse.Namespace) -> Iterator[str]:
    """Losses in buffers of a millisecond to twelve, where the round trip without a queue is some microseconds."""
    seconds, rounds = (1, 1) if options.short else (5, 3)
    yield f"Flows over veth, {rounds} runs of {seconds} s of each sender: the mean, and the largest share sent again."
    yield ""
    yield "| link | buffer | flows | sender | Mbit/s | sent again, % | at most, % |"
    yield "|---|---|---|---|---|---|---|"
    with loaded():
        for rate, burst, buffer in SHORT_BUFFERS[:1] if options.short else SHORT_BUFFERS:
            for flows in (1, 2):
                for name, control in SENDERS.items():
                    runs = [
                        overflowing(["rate", rate, "burst", burst, "limit", buffer], control, flows, seconds)
                        for _round in range(rounds)
                    ]
                    mbps = statistics.fmean(each for each, _ in runs)
                    again = [share for _, share in runs]
                    yield (
                        f"| {rate} | {buffer} | {flows} | {name} | {mbps:.1f} | {statistics.fmean(again):.1f} "
                        f"| {max(again):.1f} |"
                    )


def overflowing(limit: Sequence[str], control: str, flows: int, seconds: int) -> tuple[float, float]:
    """Mbit/s of all flows together, and the percentage of segments that were sent again."""
    with host("a") as left, host("b") as right:
        join(left, right, *limit)
        sent = iperf3(left, right, control, flows, seconds)
        counts = dict(line.split()[:2] for line in left.run("nstat", "-asz").splitlines()[1:])
    first, again = int(counts["TcpOutSegs"]), int(counts["TcpRetransSegs"])
    return sent["bits_per_second"] / 1e6, 100 * again / (first + again)


# --- clients ------------------------------------------------------------------------------------


def clients(options: argparse.Namespace) -> Iterator[str]:
    """Everyday programs, whose server is behind the channel."""
    missing = [name for name in ("iperf3", "curl", "nginx", "ssh", "sshd", "rsync") if shutil.which(name) is None]
    if missing:
        sys.exit(
            f"not on this machine: {', '.join(missing)} (apt install iperf3 curl nginx-light openssh-server rsync)"
        )
    size = 500_000 if options.short else 20_000_000
    yield f"Each fetches {size / 1e6:g} MB from a real server through `{CHANNEL}`; the queue holds 600 kB."
    yield ""
    yield "| client | sender | s | Mbit/s | mean queueing delay, ms | p95, ms |"
    yield "|---|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder, loaded(), host("server") as server:
        place = Path(folder)
        place.chmod(0o755)
        (place / "file").write_bytes(os.urandom(size))
        asking = servers(place, server, size)
        with ended(*(server.start(*words) for words, _ in asking.values())):
            for client, (_, words) in asking.items():
                for name, control in SENDERS.items():
                    server.prefer(control)
                    again = f"for i in $(seq 50); do {words} && exit; sleep 0.1; done; exit 1"  # it may be starting
                    began = time.monotonic()
                    _, link = behind(server, ["sh", "-c", again])
                    took = time.monotonic() - began
                    yield (
                        f"| {client} | {name} | {took:.1f} | {link['throughput_mbps']:.2f} "
                        f"| {link['qdelay_mean_ms']:.0f} | {link['qdelay_p95_ms']:.0f} |"
                    )


def servers(place: Path, server: Host, size: int) -> dict[str, tuple[list[str], str]]:
    """The server's command and the client's, by client."""
    key, known = place / "key", place / "host"
    for name in (key, known):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(name))
    Path("/run/sshd").mkdir(exist_ok=True)
    settings = f"events {{}} http {{ server {{ listen 8080; root {place}; }} }}"
    (place / "nginx.conf").write_text(
        f"daemon off; user root; pid {place}/nginx.pid; error_log {place}/error.log; {settings}", encoding="ascii"
    )
    (place / "rsyncd.conf").write_text(f"uid = 0\nuse chroot = no\n[all]\npath = {place}\n", encoding="ascii")
    sshd = [str(shutil.which("sshd")), "-D", "-p", "2222", "-h", str(known), "-o", f"AuthorizedKeysFile={key}.pub"]
    sshd += ["-o", "StrictModes=no", "-o", "UsePAM=no", "-o", "PidFile=none", "-f", "/dev/null"]
    ssh = f"ssh -q -i {key} -p 2222 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null root@$MAHIMAHI_BASE"
    return {
        "iperf3": (
            ["iperf3", "--server"],
            f"iperf3 --client $MAHIMAHI_BASE --reverse --bytes {size} > {place}/iperf3.log",
        ),
        "curl, nginx": (
            ["nginx", "-c", str(place / "nginx.conf"), "-e", str(place / "error.log")],
            "curl -fsS -o /dev/null http://$MAHIMAHI_BASE:8080/file",
        ),
        "ssh": (sshd, f"{ssh} cat {place}/file > /dev/null"),
        "rsync": (
            ["rsync", "--daemon", "--no-detach", f"--config={place}/rsyncd.conf"],
            f"rm -f {place}/copy && rsync rsync://$MAHIMAHI_BASE/all/file {place}/copy",
        ),
    }


# --- the command --------------------------------------------------------------------------------

TABLES = {"page": page, "cost": cost, "buffers": buffers, "clients": clients}


def main() -> None:
    """Prints a table, or does a part of one in a process that it started itself."""
    match sys.argv[1:]:
        case ["serve", control]:
            return serve(control)
        case ["load", times]:
            return load(int(times))
        case ["hold", control, flows]:
            return hold(control, int(flows))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--short", action="store_true", help="little of it: whether it works")
    options = parser.parse_args()
    commit = run("git", "describe", "--always", "--dirty", cwd=ROOT).strip()
    print(f"Commit {commit}, Linux {os.uname().release}, {os.cpu_count()} processors.", flush=True)
    for line in TABLES[options.table](options):
        print(line, flush=True)
    return None


if __name__ == "__main__":
    main()
