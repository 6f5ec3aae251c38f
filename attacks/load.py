"""Many clients at once: who is served, how fairly, and what it takes."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

from attacks.attack import attack
from attacks.endpoint import Process
from attacks.stage import HONEST_BYTES, HONEST_MBPS, Stage

#: Clients of `serve`, the bytes of a file of each, and places for all.
CLIENTS, FILE_BYTES = 100, 4_000_000
PLACES = ("--max-clients", 200, "--clients-per-address", 200)
#: Clients share the processors with the server: at this niceness they take what it leaves.
NICE = ("nice", "-n", "19")


def jain(shares: Sequence[float]) -> float:
    """Jain's index of fairness: 1 if all are equal."""
    squares = len(shares) * sum(share * share for share in shares)
    return sum(shares) ** 2 / squares if squares else 0.0


def ended(clients: Sequence[Process], seconds: float) -> float:
    """Wait for all to end; how long that took."""
    began = time.monotonic()
    for client in clients:
        client.wait(max(0.0, began + seconds - time.monotonic()))
    return time.monotonic() - began


def goodputs(stage: Stage, clients: Sequence[Process]) -> list[float]:
    """What each had, Mbit/s, of those that ended well; expects that all did."""
    well = [client for client in clients if client.code == 0]
    why = next((client.last_line for client in clients if client.code != 0), "")
    stage.expect(
        len(well) == len(clients),
        f"all {len(clients)} are served",
        f"{len(well)} of {len(clients)} are served: {why[:100]}",
    )
    return [json_of(client)["goodput_mbps"] for client in well]


def json_of(client: Process) -> dict[str, float]:
    """The object that it printed."""
    line = next(line for line in client.said.splitlines() if line.startswith("{"))
    printed: dict[str, float] = json.loads(line)
    return printed


def fair(stage: Stage, shares: Sequence[float], least: float) -> None:
    """Expect that they are."""
    index = jain(shares)
    stage.figure(jain=round(index, 3))
    stage.expect(index >= least, f"Jain's index {index:.3f}, at least {least}")


@attack("load-greedy-probes", timeout_s=90)
def greedy_clients(stage: Stage) -> None:
    """200 clients want as much as they can have of the 40 Mbit/s that a server gives all.

    All end well, and Jain's index of what they had is 0.9 at least.
    """
    many = ("--max-clients", 400, "--max-clients-per-address", 400, "--max-total-flows", 8000)
    server = stage.probe_server(*many, "--max-total-mbps", 40, honest=False)
    words = (
        "probe",
        "client",
        server.name,
        "--direction",
        "down",
        "--duration",
        20,
        "--scheme",
        "cubic",
        "--json",
        "-q",
    )
    clients = [stage.endpoint(*words) for _ in range(200)]
    ended(clients, 70)
    fair(stage, goodputs(stage, clients), 0.9)
    stage.lives(server)


def files(stage: Stage, where: str) -> list[Path]:
    """Of each client, a file of its own."""
    folder = stage.folder(where)
    made = [folder / f"{number:03}" for number in range(CLIENTS)]
    for number, file in enumerate(made):
        file.write_bytes(random.Random(number).randbytes(FILE_BYTES))
    return made


def arrived(stage: Stage, sources: Sequence[Path], folder: Path) -> None:
    """Expect all files in the folder."""
    whole = sum((folder / file.name).read_bytes() == file.read_bytes() for file in sources)
    stage.expect(whole == len(sources), f"{whole} of {len(sources)} files are whole")


@attack("load-downloads", timeout_s=120)
def many_downloads(stage: Stage) -> None:
    """100 clients fetch 4 MB each as fast as they can.

    All arrive whole, and the server takes 100 MB of memory at most.
    """
    sources, into = files(stage, "served"), stage.folder("into")
    server = stage.serve(sources[0].parent, "--no-token", *PLACES, honest=False)
    words = ("--into", into, "--json", "-q", *server.client_options)
    clients = [stage.endpoint("receive", f"{server.name}/{file.name}", *words) for file in sources]
    ended(clients, 90)
    goodputs(stage, clients)
    arrived(stage, sources, into)
    peak = server.process.peak_mb()
    stage.figure(peak_mb=round(peak, 1))
    stage.expect(peak <= 100, f"the server took {peak:.0f} MB at most")
    stage.lives(server)


@attack("load-uploads", timeout_s=90)
def many_uploads(stage: Stage) -> None:
    """100 clients send 200 MB each as fast as they can.

    Once all are under way, Jain's index of what arrives of each in the same twenty seconds is 0.8 at least.
    """
    source, served = stage.work / "source", stage.folder("served")
    source.write_bytes(os.urandom(50 * FILE_BYTES))
    server = stage.serve(served, "--no-token", *PLACES, honest=False)
    words = ("-q", *server.client_options)
    names = [f"{number:03}" for number in range(CLIENTS)]
    clients = [stage.start(*NICE, stage.binary, "send", source, f"{server.name}/{name}", *words) for name in names]

    def arrived_of_each() -> list[int]:
        parts = [served / name / f".{source.name}.verus-part" for name in names]
        return [part.stat().st_blocks * 512 if part.exists() else 0 for part in parts]

    began = time.monotonic()
    while time.monotonic() < began + 30 and not all(before := arrived_of_each()):
        time.sleep(0.1)
    time.sleep(20)
    after = arrived_of_each()
    going = sum(client.alive for client in clients)
    stage.expect(all(before) and going == CLIENTS, f"{going} of {CLIENTS} were under way meanwhile")
    fair(stage, [float(late - early) for early, late in zip(before, after, strict=True)], 0.8)
    stage.lives(server)


@attack("load-beside-one", timeout_s=120)
def beside_one(stage: Stage) -> None:
    """100 clients send at 1 Mbit/s each, beside an honest client at 5.

    All are let in and served on; the honest client has the same goodput as alone, within 5 %.
    """
    source, honest = stage.work / "source", stage.work / "honest"
    source.write_bytes(os.urandom(4 * FILE_BYTES))
    honest.write_bytes(os.urandom(HONEST_BYTES))
    server = stage.serve(stage.folder("served"), "--no-token", *PLACES, honest=False)

    def goodput(name: str) -> float:
        options = ("--scheme", f"constant:rate_mbps={HONEST_MBPS}", "--json", *server.client_options)
        rows = stage.run("send", honest, f"{server.name}/{name}", *options, seconds=60).rows()
        return float(rows[0]["goodput_mbps"]) if rows else 0.0  # type: ignore[arg-type]

    alone = goodput("alone")
    words = ("-q", *server.client_options, "--scheme", "constant:rate_mbps=1")
    names = (f"{server.name}/{number:03}" for number in range(CLIENTS))
    clients = [stage.start(*NICE, stage.binary, "send", source, name, *words) for name in names]
    time.sleep(10)
    beside = goodput("beside")
    going = sum(client.alive for client in clients)
    stage.expect(going == CLIENTS, f"{going} others of {CLIENTS} were under way meanwhile")
    stage.figure(alone_mbps=round(alone, 2), beside_mbps=round(beside, 2))
    stage.expect(abs(beside - alone) <= 0.05 * alone, f"{beside:.2f} Mbit/s beside them, {alone:.2f} alone")
    stage.lives(server)
