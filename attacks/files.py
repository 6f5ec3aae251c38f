"""Attacks on files on their way: a source that is written through a mapping, and very many files."""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import time
from pathlib import Path

from attacks.attack import attack
from attacks.endpoint import Server, until
from attacks.stage import Stage

MIB = 1 << 20
#: Slow enough to do something meanwhile: 32 MiB take more than a second.
SLOWLY = ("--scheme", "constant:rate_mbps=200")


def serving(stage: Stage) -> tuple[Server, Path]:
    """A server of a new folder."""
    folder = stage.folder("served")
    return stage.serve(folder, honest=False, shared=False), folder


def part_of(folder: Path, name: str) -> Path | None:
    """The unfinished file, wherever it is kept."""
    found = [path for path in folder.rglob(f".*{name}*") if path.is_file()]
    return found[0] if found else None


def under_way(stage: Stage, folder: Path, name: str, size: int = 4 * MIB) -> bool:
    """Wait until so much of a file has come."""

    def so_far() -> bool:
        with contextlib.suppress(OSError):
            part = part_of(folder, name)
            return part is not None and part.stat().st_size >= size
        return False

    return stage.expect(until(so_far, 10), "the transfer was under way", "the transfer did not begin")


def write_mapped(source: Path) -> None:
    """Write through a mapping, which moves no time until the pages are written back."""
    with source.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[: 4 * MIB] = b"N" * (4 * MIB)
        at = len(mapped) * 3 // 4
        mapped[at : at + 4 * MIB] = b"N" * (4 * MIB)


@attack("files-source-mapped", quick=True)
def source_mapped(stage: Stage) -> None:
    """The source is written through a mapping while it is sent.

    A message and exit code 1, or the file as it was or is; never a mixture with exit code 0.
    """
    server, served = serving(stage)
    source = stage.work / "file"
    source.write_bytes(os.urandom(32 * MIB))
    was = source.read_bytes()
    time.sleep(0.05)
    process = stage.endpoint("send", source, server.name, *server.client_options, *SLOWLY)
    if under_way(stage, served, "file"):
        write_mapped(source)
    code = process.wait(30)
    arrived = served / "file"
    if arrived.exists():
        torn = arrived.read_bytes() not in (was, source.read_bytes())
        stage.expect(not torn, f"exit {code}, the file is whole", f"exit {code}, and the file that arrived is torn")
    else:
        stage.expect(code == 1, f"exit {code}, nothing under its name: {process.last_line[:100]}")
    stage.lives(server)


@attack("files-many-small", timeout_s=90)
def many_small(stage: Stage) -> None:
    """10,000 tiny files up, again, and down.

    All arrive; the server's memory stays below 128 MB.
    """
    server, served = serving(stage)
    many = stage.folder("many")
    for index in range(10_000):
        (many / f"{index:05}").write_bytes(b"x" * (index % 50))
    for when in ("up", "again"):
        began = time.monotonic()
        ran = stage.run("send", many, server.name, *server.client_options, "-q", seconds=40)
        stage.expect(
            ran.code == 0, f"{when}: {time.monotonic() - began:.1f} s", f"{when}: exit {ran.code}, {ran.last_line}"
        )
    into = stage.work / "into"
    ran = stage.run("receive", f"{server.name}/many", "--into", into, *server.client_options, "-q", seconds=40)
    compared = subprocess.run(["diff", "-r", many, into / "many"], capture_output=True, check=False)
    stage.expect(ran.code == 0 and compared.returncode == 0, "down: identical", f"down: exit {ran.code}, not identical")
    stage.expect(len(list((served / "many").iterdir())) == 10_000, "10,000 files there")
    peak = server.process.peak_mb()
    stage.figure(peak_mb=round(peak, 1))
    stage.expect(peak < 128, f"the server took {peak:.0f} MB at most")
