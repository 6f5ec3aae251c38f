"""Running `verus-endpoint`: servers, clients, and what the system says of a process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Where the endpoint is looked for, in this order, after VERUS_ENDPOINT.
PLACES = (
    Path(sys.executable).with_name("verus-endpoint"),
    Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[1] / "target")) / "debug" / "verus-endpoint",
)

TICKS = os.sysconf("SC_CLK_TCK")

#: What drives a terminal.
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def find_endpoint() -> Path | None:
    """The binary to attack."""
    named = os.environ.get("VERUS_ENDPOINT")
    for place in (Path(named),) if named else PLACES:
        if place.is_file():
            return place.resolve()
    return None


def free_port() -> int:
    """A UDP port that nothing on this machine uses."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Usage:
    """What a process holds."""

    rss_kb: int
    pss_kb: int
    descriptors: int
    threads: int
    cpu_s: float


class Process:
    """A running program, its output in a file."""

    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        """Keep what `subprocess` started."""
        self.popen, self.log = popen, log

    @property
    def pid(self) -> int:
        """The process's number."""
        return self.popen.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.popen.poll() is None

    @property
    def code(self) -> int | None:
        """The exit code of one that has ended."""
        return self.popen.poll()

    @property
    def said(self) -> str:
        """All that it has printed."""
        return self.log.read_text(errors="replace")

    @property
    def last_line(self) -> str:
        """The last line that it printed."""
        lines = self.said.strip().splitlines()
        return printable(lines[-1]) if lines else ""

    def wait(self, seconds: float) -> int | None:
        """The exit code, or None if it still runs after so long."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, number: int = signal.SIGTERM, seconds: float = 3) -> int | None:
        """End it, with SIGKILL if it does not obey."""
        if self.alive:
            self.popen.send_signal(number)
            if self.wait(seconds) is None:
                self.popen.kill()
                self.popen.wait()
        return self.code

    def usage(self) -> Usage:
        """What it holds now.

        Raises:
            OSError: If it has ended.
        """
        base = Path("/proc") / str(self.pid)
        status = dict(line.split(":", 1) for line in (base / "status").read_text().splitlines())
        pss = 0
        with contextlib.suppress(OSError):
            (pss,) = (
                int(line.split()[1])
                for line in (base / "smaps_rollup").read_text().splitlines()
                if line.startswith("Pss:")
            )
        return Usage(
            rss_kb=int(status.get("VmRSS", "0 kB").split()[0]),
            pss_kb=pss,
            descriptors=len(list((base / "fd").iterdir())),
            threads=int(status["Threads"]),
            cpu_s=self.cpu_s(),
        )

    def cpu_s(self) -> float:
        """Processor time that it has used."""
        fields = (Path("/proc") / str(self.pid) / "stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss_mb(self) -> float:
        """Its resident memory."""
        return self.usage().rss_kb / 1024

    def peak_mb(self) -> float:
        """The most that its resident memory has been."""
        for line in (Path("/proc") / str(self.pid) / "status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
        return 0.0


@dataclass
class Server:
    """A server of ours, listening."""

    process: Process
    host: str
    port: int
    #: Options that its clients need, too.
    client_options: tuple[str, ...] = ()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self.host, self.port

    @property
    def name(self) -> str:
        """HOST:PORT."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int | None
    out: str
    err: str

    @property
    def last_line(self) -> str:
        """The last line on standard error, or else on standard output."""
        for text in (self.err, self.out):
            if text.strip():
                return printable(text.strip().splitlines()[-1])
        return ""

    def rows(self) -> list[dict[str, object]]:
        """The JSON Lines on its standard output."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]


def printable(text: str) -> str:
    """The text without anything that drives a terminal."""
    return CONTROL.sub("?", text)


def controls(text: str) -> str:
    """Control characters in a text, as escapes; empty if there is none. Ends of lines are not looked at."""
    return "".join(sorted({match.encode("unicode_escape").decode() for match in CONTROL.findall(text)}))


def until(condition: Callable[[], bool], seconds: float, step_s: float = 0.02) -> bool:
    """Whether the condition became true within so long."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(step_s)
    return True


def ran(command: Sequence[object], *, seconds: float, **more: object) -> Ran:
    """Run a command to its end; its code is None if it had to be killed after so long."""
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **more,  # type: ignore[call-overload]
    )
    try:
        out, err = process.communicate(timeout=seconds)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        code = None
    return Ran(code, out.decode(errors="replace"), err.decode(errors="replace"))
