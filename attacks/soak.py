"""`python -m attacks.soak`: servers under honest clients and attacks, and what they hold at the end.

A probe server, two of `serve` (with a token and without) and an emulated link run for some minutes. 200 honest
clients come and go from as many addresses, one in ten is killed midway, and the attacks that suit a server that others
use are made in turn. At the
end, when all have left, each server must hold what it held after the first minute: resident memory at most the first
minute's largest by 10 % and 8 MB, as many descriptors and threads as before the first client. Needs root.
"""

from __future__ import annotations

import argparse
import base64
import collections
import contextlib
import csv
import dataclasses
import json
import os
import random
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from blake3 import blake3

from attacks import sandbox
from attacks.catalogue import ATTACKS
from attacks.endpoint import Ran, Server, Usage, find_endpoint, ran, until
from attacks.stage import Stage
from attacks.verdict import Verdict

SAMPLE_S = 5.0
FIRST_S = 60.0
#: How long the servers have at the end to forget everybody.
QUIET_S = 120.0
RSS_SHARE, RSS_KB = 1.10, 8192
#: Honest clients that may fail, of all: attackers take their turns on the same two processors.
HONEST_SHARE = 0.01
#: Clients that are killed midway, of all: they acknowledge nothing more and say no goodbye.
KILLED_SHARE = 0.1


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m attacks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="how long (5)")
    parser.add_argument("--clients", type=int, default=200, help="honest clients at a time (200)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="leave soak.json and samples.csv in this folder")
    parser.add_argument("--force", action="store_true", help="replace earlier results in --out")
    parser.add_argument("--endpoint", type=Path, metavar="FILE", help="the binary")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


@dataclasses.dataclass(frozen=True)
class Sample:
    """What a server held at a time."""

    time_s: float
    server: str
    attack: str
    clients: int
    usage: Usage


class Soak:
    """The servers, their clients, and what was seen."""

    def __init__(self, stage: Stage, minutes: float, clients: int) -> None:
        """Start the servers."""
        self.stage, self.clients = stage, clients
        self.seconds = minutes * 60
        self.over = threading.Event()
        self.samples: list[Sample] = []
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.complaints: collections.Counter[str] = collections.Counter()
        self.running = 0
        self.attack = ""
        self.verdicts: list[Verdict] = []
        self.lock = threading.Lock()
        batch = "\n".join(f"addr add {self.address(slot)}/32 dev lo" for slot in range(clients))
        subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)
        self.servers = self.start_servers()
        self.began = time.monotonic()

    @staticmethod
    def address(slot: int) -> str:
        """A client's own address: who connects to it comes from it."""
        return f"10.77.{slot // 200}.{slot % 200 + 1}"

    def start_servers(self) -> dict[str, Server]:
        """A probe server, one of files with a token and one without, and an emulated link."""
        stage, work = self.stage, self.stage.work
        quiet = {"stdout": subprocess.DEVNULL}

        def listening(name: str, port: int, *words: object, options: tuple[str, ...] = ()) -> Server:
            process = stage.endpoint(*words, "--port", port, "--json", **quiet)
            wanted = f":{port:04X} "
            if not until(lambda: any(wanted in Path(f"/proc/net/udp{v}").read_text() for v in ("", "6")), 15):
                raise RuntimeError(f"{name} did not start: {process.last_line}")
            return Server(process, "127.0.0.1", port, options)

        limits = ("--max-clients", 512, "--max-total-flows", 8192, "--max-silence", 20)
        servers = {"probe": listening("probe server", 7001, "probe", "server", *limits)}
        for name, port, more in (("serve", 7002, ()), ("open", 7003, ("--no-token",))):
            folder = stage.folder(name)
            config = work / f"config-{name}"
            words = ("serve", folder, "--config", config, "--max-clients", 256, *more)
            servers[name] = listening(name, port, *words, options=("--config", str(config)))
        honest = work / "open" / "honest"
        honest.mkdir()
        (honest / "big").write_bytes(os.urandom(32 << 20))
        for size in (20, 100, 400):
            (work / "serve" / f"{size}k").write_bytes(os.urandom(size * 1000))
        program = work / "program.sh"
        program.write_text(
            f"while sleep 1; do [ -e {work}/quiet ] || {stage.binary} probe client 100.64.0.1:7001"
            " --direction both --rate-mbps 0.3 --duration 4 -q; done\n"
        )
        link = stage.endpoint("shell", "--down", "rate:8", "--up", "rate:4", "-q", "--", "sh", program, **quiet)
        time.sleep(2)
        if not link.alive:
            raise RuntimeError(f"the emulated link did not start: {link.last_line}")
        servers["shell"] = Server(link, "", 0)
        return servers

    # Honest clients.

    def honest_client(self, slot: int) -> None:
        """Come and go until it is over."""
        rng = random.Random(slot)
        self.over.wait(rng.uniform(0, 20))
        while not self.over.is_set():
            words = self.transfer(slot, rng) if slot % 5 == 4 else self.probe(slot, rng)
            with self.lock:
                self.running += 1
            killed = rng.random() < KILLED_SHARE
            ended = ran([self.stage.binary, *words], seconds=rng.uniform(0.5, 4) if killed else 90)
            with self.lock:
                self.running -= 1
                self.note(str(words[0]), ended, killed=killed)
            self.over.wait(rng.uniform(0.2, 2))

    def note(self, verb: str, ended: Ran, *, killed: bool) -> None:
        """Count how a client fared; one that was cut off by the end does not count."""
        if self.over.is_set():
            return
        if killed and ended.code is None:
            self.outcomes[f"{verb} killed"] += 1
            return
        self.outcomes[f"{verb} {'well' if ended.code == 0 else 'failed'}"] += 1
        if ended.code != 0:
            words = [word for word in ended.last_line.split() if not any(letter.isdigit() for letter in word)]
            self.complaints[f"{verb}: exit {ended.code}: {' '.join(words)[:120]}"] += 1

    def probe(self, slot: int, rng: random.Random) -> list[object]:
        """A light measurement."""
        where = f"{self.address(slot)}:{self.servers['probe'].port}"
        direction, seconds = rng.choice(["up", "down", "both"]), round(rng.uniform(4, 20), 1)
        return ["probe", "client", where, "--direction", direction, "--rate-mbps", 0.05, "--duration", seconds, "-q"]

    def transfer(self, slot: int, rng: random.Random) -> list[object]:
        """A small file up or down, slowly."""
        folder = self.stage.work / "clients" / str(slot)
        folder.mkdir(parents=True, exist_ok=True)
        config = self.stage.work / "config-serve"
        where = f"{self.address(slot)}:{self.servers['serve'].port}"
        trust = ["--token-file", config / "token", "--fingerprint", self.fingerprint, "--config", folder / "config"]
        if rng.random() < 0.5:
            file = folder / f"from{slot}"
            file.write_bytes(rng.randbytes(rng.randrange(20_000, 400_000)))
            slowly = ["--scheme", "constant:rate_mbps=0.4"]
            return ["send", file, where, "--force", "-q", *slowly, *trust]
        return ["receive", f"{where}/{rng.choice(['20k', '100k', '400k'])}", "--into", folder, "--force", "-q", *trust]

    @property
    def fingerprint(self) -> str:
        """The file server's: the first 160 bits of its certificate's BLAKE3 hash, in base 32."""
        end = "-----END CERTIFICATE-----"
        _, begin, rest = (
            (self.stage.work / "config-serve" / "server.pem").read_text().partition("-----BEGIN CERTIFICATE-")
        )
        certificate = begin + rest.partition(end)[0] + end
        digest = blake3(ssl.PEM_cert_to_DER_cert(certificate)).digest()[:20]
        text = base64.b32encode(digest).decode().lower()
        return "-".join(text[at : at + 4] for at in range(0, len(text), 4))

    # Attackers.

    def attackers(self) -> None:
        """All attacks in turn until it is over."""
        suited = [attack for attack in ATTACKS.values() if attack.soak]
        shared = {name: server for name, server in self.servers.items() if name != "shell"}
        while not self.over.is_set():
            for attack in suited:
                if self.over.is_set():
                    return
                self.attack = attack.name
                verdict = sandbox.perform(attack, self.stage.binary, shared=shared)
                if not self.over.is_set():
                    self.verdicts.append(verdict)
                self.attack = ""

    # What the servers hold.

    def sample(self) -> None:
        """Note what each server holds now."""
        now = round(time.monotonic() - self.began, 1)
        for name, server in self.servers.items():
            with contextlib.suppress(OSError):
                self.samples.append(Sample(now, name, self.attack, self.running, server.process.usage()))

    def of(self, server: str, begin_s: float, end_s: float) -> list[Sample]:
        """The samples of a server in an interval."""
        return [each for each in self.samples if each.server == server and begin_s <= each.time_s <= end_s]

    def dead(self) -> list[str]:
        """Servers that have ended."""
        return [
            f"{name} ended, exit {server.process.code}: {server.process.last_line[:160]}"
            for name, server in self.servers.items()
            if not server.process.alive
        ]

    def run(self) -> tuple[dict[str, Usage], dict[str, Usage]]:
        """The whole soak; what each server held before the first client and after the last."""
        before = {name: server.process.usage() for name, server in self.servers.items()}
        self.began = time.monotonic()
        threads = [
            threading.Thread(target=self.honest_client, args=(slot,), daemon=True) for slot in range(self.clients)
        ]
        threads.append(threading.Thread(target=self.attackers, daemon=True))
        for thread in threads:
            thread.start()
        said = 0.0
        while (now := time.monotonic() - self.began) < self.seconds and not self.dead():
            self.sample()
            if now - said >= 60 or not said:
                said = now
                self.say()
            time.sleep(min(SAMPLE_S, max(0.1, self.seconds - now)))
        self.over.set()
        (self.stage.work / "quiet").touch()
        for thread in threads:
            thread.join(120)
        # Until everybody is forgotten, and a little longer: pools of threads shrink after some seconds.
        end = time.monotonic() + QUIET_S
        while time.monotonic() < end and not self.dead():
            self.sample()
            now_held = {name: server.process.usage() for name, server in self.servers.items()}
            if all(
                held.descriptors <= before[name].descriptors and held.threads <= before[name].threads
                for name, held in now_held.items()
            ):
                break
            time.sleep(SAMPLE_S)
        self.sample()
        after = {}
        for name, server in self.servers.items():
            with contextlib.suppress(OSError):
                after[name] = server.process.usage()
        return before, after

    def say(self) -> None:
        """A line of progress."""
        held = " ".join(
            f"{name} {server.process.rss_mb():.0f} MB" for name, server in self.servers.items() if server.process.alive
        )
        done = sum(self.outcomes.values())
        now = time.monotonic() - self.began
        print(
            f"{now:5.0f} s: {self.running} clients, {done} done, {len(self.verdicts)} attacks; {held}",
            file=sys.stderr,
            flush=True,
        )


def judged(soak: Soak, before: dict[str, Usage], after: dict[str, Usage]) -> dict[str, Any]:
    """What each server held, what was wrong, and how clients and attacks fared."""
    wrong = soak.dead()
    servers: dict[str, Any] = {}
    end_s = max(each.time_s for each in soak.samples)
    for name, held in after.items():
        first = soak.of(name, 0, FIRST_S)
        last = soak.of(name, soak.seconds - FIRST_S, soak.seconds) or soak.of(name, 0, end_s)  # or it was cut short
        peak = max(each.usage.rss_kb for each in first)
        allowed = peak * RSS_SHARE + RSS_KB
        if held.rss_kb > allowed:
            wrong.append(f"{name}: {held.rss_kb} kB resident at the end, {allowed:.0f} allowed")
        for what in ("descriptors", "threads"):
            if getattr(held, what) > getattr(before[name], what):
                wrong.append(f"{name}: {getattr(held, what)} {what} at the end, {getattr(before[name], what)} before")
        servers[name] = {
            "first_minute_peak_rss_kb": peak,
            "first_minute_median_rss_kb": statistics.median(each.usage.rss_kb for each in first),
            "last_minute_median_rss_kb": statistics.median(each.usage.rss_kb for each in last),
            "peak_rss_kb": max(each.usage.rss_kb for each in soak.of(name, 0, end_s)),
            "peak_descriptors": max(each.usage.descriptors for each in soak.of(name, 0, end_s)),
            "peak_threads": max(each.usage.threads for each in soak.of(name, 0, end_s)),
            "before": dataclasses.asdict(before[name]),
            "after": dataclasses.asdict(held),
        }
    done = sum(soak.outcomes.values())
    failed = sum(count for what, count in soak.outcomes.items() if what.endswith("failed"))
    wrong += [
        f"no honest client has done a `{verb}`"
        for verb in ("probe", "send", "receive")
        if not soak.outcomes[f"{verb} well"]
    ]
    if failed > max(2, HONEST_SHARE * done):
        wrong.append(f"{failed} of {done} honest clients failed")
    attacks: dict[str, Any] = {}
    for verdict in soak.verdicts:
        row = attacks.setdefault(verdict.name, {"times": 0, "fell": 0, "wrong": []})
        row["times"] += 1
        if not verdict.held:
            row["fell"] += 1
            row["wrong"] = verdict.wrong
    return {
        "seconds": soak.seconds,
        "clients": soak.clients,
        "held": not wrong,
        "wrong": wrong,
        "servers": servers,
        "honest": {"done": dict(soak.outcomes), "complaints": dict(soak.complaints.most_common(20))},
        "attacks": attacks,
    }


def table(found: dict[str, Any]) -> str:
    """The servers, as text."""
    lines = [
        f"{'':8}{'RSS, first minute':>20}{'last minute':>13}{'peak':>8}{'end':>8}"
        f"{'fds before':>12}{'peak':>6}{'end':>5}{'threads before':>16}{'peak':>6}{'end':>5}{'CPU s':>8}",
        f"{'':8}{'peak / median, MB':>20}{'median, MB':>13}{'MB':>8}{'MB':>8}",
    ]
    for name, row in found["servers"].items():

        def mb(key: str, row: dict[str, Any] = row) -> float:
            return float(row[key]) / 1024

        before, after = row["before"], row["after"]
        first = f"{mb('first_minute_peak_rss_kb'):.1f} / {mb('first_minute_median_rss_kb'):.1f}"
        lines.append(
            f"{name:8}{first:>20}{mb('last_minute_median_rss_kb'):13.1f}"
            f"{mb('peak_rss_kb'):8.1f}{after['rss_kb'] / 1024:8.1f}"
            f"{before['descriptors']:12}{row['peak_descriptors']:6}{after['descriptors']:5}"
            f"{before['threads']:16}{row['peak_threads']:6}{after['threads']:5}{after['cpu_s']:8.1f}"
        )
    honest, attacks = found["honest"], found["attacks"]
    lines.append("honest clients: " + ", ".join(f"{count} {what}" for what, count in sorted(honest["done"].items())))
    lines += [f"    {count} × {what}" for what, count in honest["complaints"].items()]
    lines.append(f"attacks: {sum(row['times'] for row in attacks.values())} of {len(attacks)} kinds")
    for name, row in attacks.items():
        if row["fell"]:
            lines.append(f"    {name}: {row['fell']} of {row['times']} fell: {'; '.join(row['wrong'])[:160]}")
    lines.append("at the end as after the first minute" if found["held"] else "NOT as after the first minute:")
    return "\n".join([*lines, *(f"    {each}" for each in found["wrong"])])


def leave(folder: Path, soak: Soak, found: dict[str, Any]) -> None:
    """Write the results."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "soak.json").write_text(json.dumps(found, indent=2) + "\n")
    with (folder / "samples.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        fields = [field.name for field in dataclasses.fields(Usage)]
        writer.writerow(["time_s", "server", "attack", "clients", *fields])
        for each in soak.samples:
            writer.writerow([each.time_s, each.server, each.attack, each.clients, *dataclasses.astuple(each.usage)])


def inside(args: argparse.Namespace, binary: Path) -> int:
    """In the sandbox: the soak itself."""
    sandbox.settle(args.inside)
    os.environ["TMPDIR"] = tempfile.tempdir = str(args.inside)
    with Stage(Verdict("soak"), binary, args.inside) as stage:
        soak = Soak(stage, args.minutes, args.clients)
        before, after = soak.run()
        found = judged(soak, before, after)
        print(table(found))
        if args.out:
            leave(args.out, soak, found)
    return 0 if found["held"] else 1


def main() -> int:
    """Make a sandbox and soak in it; the exit code."""
    args = arguments()
    binary = args.endpoint or find_endpoint()
    if binary is None or not binary.is_file():
        print("no verus-endpoint: `make build` makes it; or set VERUS_ENDPOINT or --endpoint", file=sys.stderr)
        return 2
    if args.inside:
        return inside(args, binary.resolve())
    if args.minutes < 0.5 or not 1 <= args.clients <= 10_000:
        print("at least half a minute, and 1 to 10,000 clients", file=sys.stderr)
        return 2
    if why := sandbox.available():
        print(f"{why}: clients come from addresses of their own, in a network of its own", file=sys.stderr)
        return 2
    if not Path("/dev/net/tun").exists():
        print("needs /dev/net/tun, for the emulated link", file=sys.stderr)
        return 2
    if args.out and args.out.is_dir() and any(args.out.iterdir()) and not args.force:
        print(f"{args.out} is not empty; --force replaces what is in it", file=sys.stderr)
        return 2
    words = ["--minutes", args.minutes, "--clients", args.clients, "--endpoint", binary.resolve()]
    if args.out:
        words += ["--out", args.out.absolute()]
    with sandbox.work_folder(isolated=True) as folder:
        command = [*sandbox.UNSHARE, sys.executable, "-m", "attacks.soak", *map(str, words), "--inside", str(folder)]
        child = subprocess.Popen(command, cwd=sandbox.ROOT, start_new_session=True, preexec_fn=sandbox.dies_with_us)
        try:
            return child.wait(args.minutes * 60 + 600)
        except subprocess.TimeoutExpired:
            print("the soak does not end", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
        finally:
            child.kill()
            child.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was begun is ended first
    sys.exit(main())
