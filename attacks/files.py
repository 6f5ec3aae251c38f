"""Attacks on files on their way: interruption, sources that change, full disks, links, and others' part files."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from attacks.attack import attack
from attacks.endpoint import Process, Server, until
from attacks.stage import Stage, mounted

MIB = 1 << 20
#: Slow enough to do something meanwhile: 32 MiB take more than a second.
SLOWLY = ("--scheme", "constant:rate_mbps=200")


def serving(stage: Stage, name: str = "served", *options: object) -> tuple[Server, Path]:
    """A server of a new folder."""
    folder = stage.folder(name)
    return stage.serve(folder, *options, honest=False, shared=False), folder


def random_file(path: Path, size: int) -> Path:
    """A file of random bytes."""
    path.write_bytes(os.urandom(size))
    return path


def sending(stage: Stage, file: Path, server: Server, *options: object) -> Process:
    """A `send` under way."""
    return stage.endpoint("send", file, server.name, *server.client_options, *options)


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


def same(one: Path, other: Path) -> bool:
    """Whether two files have the same bytes."""
    return one.is_file() and other.is_file() and one.read_bytes() == other.read_bytes()


@attack("files-sender-interrupted", quick=True)
def sender_interrupted(stage: Stage) -> None:
    """Ctrl-C midway.

    The sender ends with 130 and nothing is under the file's name; the same command again completes it.
    """
    server, served = serving(stage)
    source = random_file(stage.work / "big", 32 * MIB)
    process = sending(stage, source, server, *SLOWLY)
    under_way(stage, served, "big")
    code = process.stop(signal.SIGINT)
    stage.expect(code == 130, "the sender ends with 130", f"the sender ends with {code}")
    stage.expect(not (served / "big").exists(), "nothing under its name")
    ran = stage.run("send", source, server.name, *server.client_options)
    stage.expect(ran.code == 0 and same(source, served / "big"), "sent again: whole")


def grow(source: Path) -> None:
    """Append."""
    with source.open("ab") as file:
        file.write(bytes(MIB))


def shrink(source: Path) -> None:
    """Cut the end off."""
    os.truncate(source, source.stat().st_size // 2)


def replace(source: Path) -> None:
    """Put another file in its place."""
    other = source.with_name("other")
    other.write_bytes(bytes(source.stat().st_size))
    other.replace(source)


def rewrite(source: Path) -> None:
    """Write at the beginning and near the end, and put the time of modification back."""
    before = source.stat()
    with source.open("r+b") as file:
        file.write(b"NEWHEAD" * MIB)
        file.seek(before.st_size * 3 // 4)
        file.write(b"N" * (before.st_size // 8))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))


def write_mapped(source: Path) -> None:
    """Write through a mapping, which moves no time until the pages are written back."""
    with source.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[: 4 * MIB] = b"N" * (4 * MIB)
        at = len(mapped) * 3 // 4
        mapped[at : at + 4 * MIB] = b"N" * (4 * MIB)


def changed_meanwhile(stage: Stage, change: Callable[[Path], None]) -> None:
    """Change a source while it is sent; what arrives, if anything, is what it was or what it is."""
    server, served = serving(stage)
    source = random_file(stage.work / "file", 32 * MIB)
    was = source.read_bytes()
    time.sleep(0.05)
    process = sending(stage, source, server, *SLOWLY)
    if under_way(stage, served, "file"):
        change(source)
    code = process.wait(30)
    arrived = served / "file"
    if arrived.exists():
        torn = arrived.read_bytes() not in (was, source.read_bytes())
        stage.expect(not torn, f"exit {code}, the file is whole", f"exit {code}, and the file that arrived is torn")
    else:
        stage.expect(code == 1, f"exit {code}, nothing under its name: {process.last_line[:100]}")
    stage.lives(server)


@attack("files-source-grows", quick=True)
def source_grows(stage: Stage) -> None:
    """The source grows while it is sent.

    A message and exit code 1, or the file as it was; never a mixture.
    """
    changed_meanwhile(stage, grow)


@attack("files-source-shrinks", quick=True)
def source_shrinks(stage: Stage) -> None:
    """The source is cut while it is sent.

    A message and exit code 1, or the file as it was; never a mixture.
    """
    changed_meanwhile(stage, shrink)


@attack("files-source-replaced", quick=True)
def source_replaced(stage: Stage) -> None:
    """Another file takes the source's name while it is sent.

    A message and exit code 1, or either file; never a mixture.
    """
    changed_meanwhile(stage, replace)


@attack("files-source-mapped", quick=True)
def source_mapped(stage: Stage) -> None:
    """The source is written through a mapping while it is sent.

    A message and exit code 1, or the file as it was or is; never a mixture with exit code 0.
    """
    changed_meanwhile(stage, write_mapped)


@attack("files-two-writers", quick=True)
def two_writers(stage: Stage) -> None:
    """Two clients send other contents under one name at the same time; and an empty file, twice.

    The newer one wins whole, the older one is told; nothing is left beside it.
    """
    server, served = serving(stage)
    one = random_file(stage.folder("a") / "same", 24 * MIB)
    other = random_file(stage.folder("b") / "same", 24 * MIB)
    older = sending(stage, one, server, *SLOWLY)
    under_way(stage, served, "same")
    newer = sending(stage, other, server, *SLOWLY)
    codes = older.wait(20), newer.wait(20)
    stage.expect(codes == (1, 0), f"the older one: exit {codes[0]}, the newer one: exit {codes[1]}")
    stage.expect(same(other, served / "same"), "the newer one's file is there, whole")
    empty = stage.work / "empty"
    empty.touch()
    again = [stage.run("send", empty, server.name, *server.client_options).code for _ in range(2)]
    stage.expect(again == [0, 0] and (served / "empty").exists(), "an empty file arrives, and again")
    left = [path.name for path in served.iterdir() if path.name.startswith(".") and path.is_file()]
    stage.expect(not left, "nothing is left beside them", f"left: {left}")


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


@attack("files-receiver-disk-full", needs=("root", "mount"), quick=True)
def receiver_disk_full(stage: Stage) -> None:
    """The receiver's disk is full midway.

    Exit code 1, nothing under the file's name, and room on the disk again.
    """
    server, served = serving(stage)
    random_file(served / "big", 40 * MIB)
    with mounted(stage.work / "full", "16m") as full:
        ran = stage.run("receive", f"{server.name}/big", "--into", full, *server.client_options)
        stage.expect(ran.code == 1, f"exit {ran.code}: {ran.last_line[:100]}")
        stage.expect(not (full / "big").exists(), "nothing under its name")
        free = shutil.disk_usage(full).free
        stage.expect(
            free > MIB, f"{free / MIB:.0f} MiB free again", f"{free / MIB:.1f} MiB free: the part keeps it full"
        )
    stage.lives(server)


def swapping(change: Callable[[], None]) -> tuple[threading.Thread, threading.Event]:
    """Do something again and again beside."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                change()

    thread = threading.Thread(target=work)
    thread.start()
    return thread, over


@attack("files-link-swapped", quick=True)
def link_swapped(stage: Stage) -> None:
    """A file of the served folder becomes a link out of it, and a file again, at any moment, while it is fetched.

    What arrives is never what lies outside.
    """
    server, served = serving(stage)
    secret = stage.folder("secret") / "f"
    secret.write_text("secret")
    place = served / "x"
    plain, link = served / "plain", served / "link"

    def swap() -> None:
        plain.write_text("plain")
        plain.replace(place)
        # Now and then for as long as a transfer takes, which refuses a file that changes meanwhile.
        time.sleep(random.choice((0, 0, 0.003, 0.03)))
        link.unlink(missing_ok=True)
        link.symlink_to("../secret/f")
        link.replace(place)

    thread, over = swapping(swap)
    got = {"plain": 0, "nothing": 0, "secret": 0}
    for index in range(30):
        into = stage.work / f"into{index}"
        stage.run("receive", f"{server.name}/x", "--into", into, *server.client_options, "-q")
        text = (into / "x").read_text() if (into / "x").is_file() else "nothing"
        got[text] = got.get(text, 0) + 1
    over.set()
    thread.join()
    stage.expect(got["secret"] == 0, f"of 30 tries: {got}")
    stage.expect(got["plain"] > 0, "some arrived", "none arrived: nothing was tried")
    stage.lives(server)


@attack("files-folder-swapped", quick=True)
def folder_swapped(stage: Stage) -> None:
    """A folder on the way becomes a link out of the served one, and a folder again, while files are put into it.

    No file is written outside.
    """
    server, served = serving(stage)
    secret, inner, aside = stage.folder("secret"), served / "inner", served / "aside"
    inner.mkdir()

    def swap() -> None:
        inner.rename(aside)
        inner.symlink_to("../secret")
        inner.unlink()
        aside.rename(inner)

    thread, over = swapping(swap)
    codes = []
    for index in range(30):
        file = stage.work / f"p{index}"
        file.write_text(str(index))
        codes.append(stage.run("send", file, f"{server.name}/inner", *server.client_options, "-q").code)
    over.set()
    thread.join()
    outside = sorted(path.name for path in secret.iterdir())
    stage.expect(not outside, f"nothing outside; {codes.count(0)} of 30 arrived", f"outside: {outside}")
    stage.lives(server)
