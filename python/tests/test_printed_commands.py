"""Commands of README and `docs` run as printed, in their order; long runs are shortened."""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from verus import papers
from verus.endpoints import guest_kernel
from verus.errors import FieldError

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]

PATIENCE_S = 240.0


def commands(page: Path) -> list[str]:
    """Each command of the page's shell blocks, with its comment; lines that go on are one."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    joined = [re.sub(r"\\\n\s*", "", block) for block in blocks]
    return [line for block in joined for line in block.splitlines() if line.strip() and not line.startswith("#")]


PRINTED = {str(page.relative_to(ROOT)): found for page in PAGES if (found := commands(page))}


def elsewhere(command: str) -> str | None:
    """Why a command is not run here; None if it is."""
    words = [word for word in shlex.split(command, comments=True) if not re.match(r"[A-Z_0-9]+=", word)]
    comment = command.partition("#")[2]
    if words[0] in ("dask", "srun"):
        return "a cluster"
    if words[0] in ("make", "git") or words[:2] == ["sudo", "apt"]:
        return "what fetches, builds and tests this, which is done"
    if any(word.startswith("scripts/") for word in words) or words[:3] == ["verus", "virtual", "build"]:
        return "a kernel, which takes minutes to build"
    if ({"virtual", "--virtual"} & set(words)) and (why := no_guest()):
        return f"a guest kernel: {why}"
    if {"sweep", "tune"} & set(words) or any(re.search(r"tide|dctcp\.py|flood\.py|level\.py", word) for word in words):
        return "a study or a controller of the reader's own, whose pages have tests of their own"
    if words == ["verus", "report", "tuned"]:
        return "a search, whose page has tests of its own"
    if words[:2] == ["verus", "check"] and not {"--list", "--explain"} & set(words):
        return "suites, which tests of their own run"
    if words[:2] in (["sudo", "systemctl"], ["sudo", "bpftool"]):
        return "a package that is installed, whose unit a test of crates/kernel runs"
    if (
        of_kernel := re.search(
            r"\bkernel (?:load|unload|status|trace)|tcp_congestion_control|ip route change|--congestion", command
        )
    ) and (why := no_kernel()):
        return f"{of_kernel[0]}: {why}"
    if words == ["verus", "report", "live"] and (why := no_kernel()):
        return f"a trace: {why}"
    if words[0] == "cargo":
        return "a study in Rust, with figures of its own"
    if "the Internet" in comment or any("://" in word and "//100.64." not in word for word in words):
        return "the Internet"
    if "iperf3" in command and shutil.which("iperf3") is None:
        return "no iperf3 on this machine"
    if words[0] == "sudo" and (why := not_root()):
        return f"root: {why}"
    if "--emulate" in words and (why := not_root()):
        return f"namespaces: {why}"
    return None


@functools.cache
def not_root() -> str:
    """Why emulated links cannot be had here; empty if they can."""
    ran = subprocess.run([ROOT / "scripts" / "why-not-test-root"], capture_output=True, text=True, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else ""


@functools.cache
def no_kernel() -> str:
    """Why nothing can be loaded into Linux here; empty if it can."""
    if why := not_root():
        return why
    status = subprocess.run([BIN / "verus-endpoint", "kernel", "status"], capture_output=True, text=True, check=False)
    return status.stderr.strip() if status.returncode else ""


@functools.cache
def no_guest() -> str:
    """Why nothing can run on virtual time here; empty if it can."""
    try:
        guest_kernel.describe()
    except FieldError as error:
        return str(error)
    return guest_kernel.runs_here() or ""


def cut_short(command: str) -> str:
    """The same with little to do: what takes its time is the length of runs, which no option here depends on."""
    said = re.sub(r"\b(?:phone|server)\.example\b", "localhost", command.partition(" #")[0].rstrip())
    said = re.sub(r"--seconds \S+", "--seconds 2", said).replace("=cubic", "=reno")  # which every namespace may have
    said = re.sub(r"iperf3 -c ([\w.]+)( -R)?(?: -t \d+)?", r"iperf3 -c \1\2 -t 2", said)
    said, given = re.subn(r"--duration \S+", "--duration 2", said)
    verb = re.search(r"(?:^|which verus\)\" )(?:verus )?(compare|train|probe client)\b", said)
    if verb and not given and not re.search(r"--from|--bytes", said):
        at = verb.end()
        said = f"{said[:at]} --duration 2{said[at:]}"
    return said


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output of `make demo`, with shorter runs."""
    out = tmp_path_factory.mktemp("made") / "demo"
    subprocess.run([BIN / "verus", "compare", "--duration", "1", "--quiet", "--out", out], check=True)
    return out


@pytest.fixture
def copy(tmp_path: Path, demo: Path) -> Path:
    """A folder that looks as a fresh copy does after `make demo`."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "verus.md").write_text("a page\n")
    (tmp_path / "README.md").write_text("another\n")
    (tmp_path / ".venv").symlink_to(BIN.parent)
    shutil.copytree(demo, tmp_path / "verus-results" / "demo")
    return tmp_path


@pytest.fixture(scope="module")
def network() -> Iterator[list[str]]:
    """Prefix that runs a command in a separate network, where the printed ports are free.

    Nothing where that cannot be had.
    """
    own, mapped = (["-n"], []) if os.geteuid() == 0 else (["-n", "-U"], ["--map-current-user", "--keep-caps"])
    words = ["unshare", *own, *mapped, "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"]
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        yield []
        return
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert holder.stdout is not None
    with holder:
        is_up = holder.stdout.readline() == b"up\n"
        yield ["nsenter", "--preserve-credentials", "-t", str(holder.pid), *own] if is_up else []
        holder.kill()


@pytest.fixture
def shell(copy: Path, network: list[str]) -> Iterator[Shell]:
    """A shell in it, and another one beside it for servers."""
    shell = Shell(copy, network)
    yield shell
    shell.close()


class Shell:
    """Runs commands as a reader would type them."""

    def __init__(self, folder: Path, network: list[str]) -> None:
        self._folder = folder
        self._network = network
        self._servers: list[subprocess.Popen[bytes]] = []
        self._ports: dict[str, str] = {}
        sudo = "" if shutil.which("sudo") else 'sudo() { "$@"; }; '  # root needs none
        self._before = f"{sudo}set -e; "
        self._environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",  # a server says at once that it is there
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / ".config"),
            guest_kernel.VARIABLE: str(guest_kernel.place()),
        }

    def run(self, command: str) -> None:
        """Where the network is everybody's, a client finds its server on the port that this one was given."""
        if command.startswith("kill %"):
            for server in self._servers[-1:]:  # none where its program is not on this machine
                server.terminate()
                server.wait()
            del self._servers[-1:]
            return
        # A loopback is no channel, so that its traces have other names.
        for trace in ("commute/down.trace", "commute/up.trace"):
            for named in self._folder.glob(trace.replace(".", "*.")):
                command = command.replace(trace, str(named.relative_to(self._folder)))
        if "probe" in self._ports:
            command = re.sub(
                r"(?<=probe client )((?:--duration \S+ )?(?:localhost|100\.64\.0\.1))\b",
                lambda host: f"{host[0]}:{self._ports['probe']}",
                command,
            )
        if "serve" in self._ports and re.match(r"verus (send|receive) ", command):
            command = re.sub(r"\blocalhost\b", f"localhost:{self._ports['serve']}", command)
        ran = subprocess.run(
            [*self._network, "bash", "-c", self._before + command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}"

    def serve(self, command: str) -> None:
        """Serves on the printed port in a separate network; without one, on a free port."""
        # Into a file, iperf3 would keep back its first line, which shows that it listens.
        command = command.removesuffix("&").replace("iperf3 -", "iperf3 --forceflush -", 1)
        verb = command.split()[1]
        free = not self._network and verb in ("probe", "serve")
        if free:
            command += " --port 0"
        log = self._folder / f"server-{len(self._servers)}.log"
        with log.open("wb") as out:
            server = subprocess.Popen(
                [*self._network, "bash", "-c", f"exec {command}"],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self._servers.append(server)
        until = time.monotonic() + 30
        while log.stat().st_size == 0 and time.monotonic() < until:
            assert server.poll() is None, log.read_text()
            time.sleep(0.05)
        if free:
            (self._ports[verb],) = re.findall(r"UDP \S*:(\d+)", log.read_text().splitlines()[0])

    def close(self) -> None:
        for server in self._servers:
            server.terminate()
            server.wait()


@pytest.mark.parametrize("page", PRINTED)
def test_what_is_printed_runs(page: str, shell: Shell, copy: Path) -> None:
    if page == "docs/recording.md":  # whose other machine is this one here
        shell.serve("verus probe server")
    if page == "docs/paths.md":  # which says what is in the file
        (copy / "delay_18.txt").write_text("20\n21\n")
        for way in ("down", "up"):
            (copy / f"{way}-light").write_text("0 20 0 1 3\n100 24 0 2 2 9\n200 22 0 1\n")
            shell.run(f"verus trace generate city-driving-3g-up {way}-pdo --duration 5")
        shell.run("verus trace generate city-driving-3g-up bw_18.txt --duration 5")
    if page == "docs/kernel.md" and not no_kernel():  # a host with a way out
        shell.run("ip link add eth0 type veth peer name eth1; ip link set eth0 up; ip link set eth1 up")
        shell.run("ip addr add 192.0.2.2/24 dev eth0; ip route add default via 192.0.2.1 dev eth0")
    ran = 0
    for command in PRINTED[page]:
        said = cut_short(command)
        if elsewhere(command):
            continue
        ran += 1
        if "until Ctrl-C" in command or said.endswith("&"):
            shell.serve(said)
        elif (wanted := re.match(r"verus reproduce (\S+)", said)) and wanted[1] != "list":
            # Other tests run each experiment; this one checks that its name and options exist.
            assert wanted[1] == "all" or papers.find(wanted[1])
            shell.run(f"{said} --help")
        else:
            shell.run(said)
    if not ran:
        pytest.skip("; ".join(sorted({why for command in PRINTED[page] if (why := elsewhere(command))})))


def test_what_takes_root_the_internet_or_minutes_is_marked() -> None:
    for line in PRINTED["README.md"]:
        comment = line.partition("#")[2]
        if "sudo" in line.split():
            assert '"$(which verus)"' in line, line
        if "reproduce all" in line:
            assert "minutes" in comment
        if "fetch" in line:
            assert "the Internet" in comment
