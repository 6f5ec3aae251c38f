"""Virtual time: real programs and Linux's TCP in a guest kernel, with the same result each time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from verus.endpoints import guest_kernel
from verus.endpoints.program import find_endpoint
from verus.errors import FieldError
from verus.lab.scenario import LINUX_SCHEMES
from verus.papers.own import linux

from .conftest import Command

#: A sender of data as fast as TCP accepts it, a receiver, and the emulated path that they cross.
SENDER = """
import socket, sys, time
end = time.monotonic() + float(sys.argv[3])
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as stream:
    while time.monotonic() < end:
        stream.sendall(bytes(10_000))
"""
SINK = """
import socket
stream, _ = socket.create_server(("", 5000)).accept()
while stream.recv(65536):
    pass
"""
LINK = ("--down", "rate:8", "--up", "rate:8", "--delay-ms", "20", "--queue", "droptail:bytes=100kB")


class Shell:
    """`verus-endpoint shell --virtual` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        binary, _ = find_endpoint()
        assert binary is not None
        self.binary = binary

    def start(self, *words: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.binary, "shell", "--virtual", *map(str, words)],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(self.folder)},
        )

    def run(self, *words: object) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def guests(self) -> set[int]:
        """Processes of guests whose folders are here, which work in these."""
        ids = set()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it may have ended
                if (entry / "cwd").readlink().match(f"{self.folder}/verus-virtual-*/*"):
                    ids.add(int(entry.name))
        return ids

    def left(self) -> list[Path]:
        return list(self.folder.glob("verus-virtual-*"))


@pytest.fixture(scope="module")
def kernel() -> Path:
    """The guest kernel of the user's cache: without it these tests are skipped, but fail where `CI` is set."""
    try:
        guest_kernel.describe()
        problem = guest_kernel.runs_here()
    except FieldError as error:
        problem = str(error)
    if problem:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"nothing runs on virtual time here: {problem}")
    return guest_kernel.place()


@pytest.fixture
def shell(kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv(guest_kernel.VARIABLE, str(kernel))
    return Shell(tmp_path)


def test_output_and_exit_code_are_those_of_the_program(shell: Shell) -> None:
    code, out, err = shell.run(*LINK, "--", "sh", "-c", "pwd; echo $MAHIMAHI_BASE; echo problem >&2; exit 3")
    assert (code, out) == (3, f"{shell.folder}\n100.64.0.1\n")
    assert "problem\n" in err
    assert "devices lost 0 packets" in err
    assert shell.run(*LINK, "--", "nosuchprogram")[0] == 127
    assert shell.left() == []


def test_output_comes_while_the_program_runs(shell: Shell) -> None:
    program = "import time\nprint('first', flush=True)\ntime.sleep(0.01)\nwhile True: pass"
    process = shell.start(*LINK, "--stall-s", 5, "--", sys.executable, "-c", program)
    assert process.stdout is not None
    began = time.monotonic()
    assert process.stdout.readline() == "first\n"
    assert process.poll() is None, f"it ended after {time.monotonic() - began} s"
    process.communicate(timeout=120)


def test_a_program_that_waits_without_sleeping_ends_with_a_sentence(shell: Shell) -> None:
    code, _, err = shell.run(*LINK, "--stall-s", 2, "--", sys.executable, "-c", "while True: pass")
    assert code == 125
    assert "clock stood still for 2 s of processor time" in err
    assert shell.guests() == set()
    assert shell.left() == []


def test_what_sleeps_takes_no_time(shell: Shell) -> None:
    began = time.monotonic()
    code, out, _ = shell.run(*LINK, "--", "sh", "-c", "date +%s; sleep 600; date +%s")
    assert code == 0
    first, last = map(int, out.split())
    assert last - first == 600
    assert time.monotonic() - began < 300


def test_two_runs_are_the_same_to_the_byte(shell: Shell) -> None:
    (shell.folder / "send.py").write_text(SENDER)
    (shell.folder / "sink.py").write_text(SINK)
    sink = f"{sys.executable} sink.py"
    contents = []
    for name in ("one", "two"):
        code, out, err = shell.run(
            *(*LINK, "--server", sink, "--seed", 4, "--loss", "0.5%", "--out", name, "--log-up", f"{name}.log"),
            *(
                "--",
                "sh",
                "-c",
                f"{sys.executable} send.py $MAHIMAHI_BASE 5000 5; head -c 8 /dev/urandom | od; date +%N",
            ),
        )
        assert code == 0, err
        logs = [shell.folder / f"{name}.log", *sorted((shell.folder / name).iterdir())]
        contents.append([out, *(hashlib.sha256(path.read_bytes()).hexdigest() for path in logs)])
    run = json.loads((shell.folder / "one" / "run.json").read_text())
    assert run["kernel_sha256"] == guest_kernel.digest()
    assert run["timing"]["lateness_p99_ms"] < 0.1
    assert run["timing"]["device_losses"] == 0
    (up,) = (
        json.loads(line) for line in (shell.folder / "one" / "results.jsonl").read_text().splitlines() if "(up)" in line
    )
    assert 6 < up["throughput_mbps"] <= 8.01
    # The settings have the folder's name nowhere, and the wall clock is the guest's.
    assert contents[0] == contents[1]


#: Servers of others that serve `file` in the folder `{here}`, and clients that fetch it.
NGINX = """
daemon off; master_process off; pid /dev/null; error_log /dev/null;
events {}
http {
  access_log off; server { listen 5000; root {here}; }
  client_body_temp_path {here}/body; proxy_temp_path {here}/proxy; fastcgi_temp_path {here}/fastcgi;
  uwsgi_temp_path {here}/uwsgi; scgi_temp_path {here}/scgi;
}
"""
SSHD = (
    "mkdir -p /run/sshd && exec $(command -v sshd || echo /usr/sbin/sshd) -D -p 5000 -f /dev/null -h {here}/key"
    " -o AuthorizedKeysFile={here}/key.pub -o StrictModes=no -o UsePAM=no"
)
SSH = "ssh -q -p 5000 -i {here}/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null $MAHIMAHI_BASE"


@pytest.mark.parametrize(
    ("programs", "server", "client"),
    [
        (("iperf3",), "iperf3 -s -p 5000 > /dev/null", "iperf3 -p 5000 -R -t 1 -J -c $MAHIMAHI_BASE | tee /dev/stderr"),
        (
            ("nginx", "curl"),
            "exec $(command -v nginx || echo /usr/sbin/nginx) -c {here}/nginx.conf",
            "curl -s http://$MAHIMAHI_BASE:5000/file",
        ),
        (
            ("rsync",),
            "rsync --daemon --no-detach --port 5000 --config {here}/rsyncd.conf",
            "rsync rsync://$MAHIMAHI_BASE:5000/it/file /dev/shm/it; cat /dev/shm/it",
        ),
        (("sshd", "ssh", "ssh-keygen"), SSHD, SSH + " cat {here}/file"),
    ],
    ids=["iperf3", "nginx", "rsync", "ssh"],
)
def test_programs_of_others_take_the_same_time_twice(
    programs: tuple[str, ...], server: str, client: str, shell: Shell
) -> None:
    path = f"{os.environ['PATH']}:/usr/sbin"
    if missing := [name for name in programs if shutil.which(name, path=path) is None]:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"not on this machine: {', '.join(missing)}")
    here = shell.folder
    (here / "file").write_bytes(bytes(1_000_000))
    (here / "nginx.conf").write_text(NGINX.replace("{here}", str(here)))
    (here / "rsyncd.conf").write_text(
        f"use chroot = no\nuid = {os.getuid()}\ngid = {os.getgid()}\n[it]\npath = {here}\n"
    )
    if "ssh" in programs:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", here / "key"], check=True)
    served, timed = (text.replace("{here}", str(here)) for text in (server, f"{client} | cksum; date +%s.%N"))
    words = (*LINK, "--server", f"sh -c '{served}'", "--", "sh", "-c", timed)
    one, two = shell.run(*words), shell.run(*words)
    assert one == two
    code, out, err = one
    assert code == 0, err
    _, size, ended = out.split()
    assert size == "1000000" or "iperf3" in client
    # A megabyte at 8 Mbit/s, after the server's second.
    assert 2 < float(ended) - 1767225600 < 6


def test_another_seed_is_another_run(shell: Shell) -> None:
    random = ("--", "sh", "-c", "head -c 8 /dev/urandom | od")
    one, two = (shell.run(*LINK, "--seed", seed, *random) for seed in (1, 2))
    assert one[0] == two[0] == 0
    assert one[1] != two[1]


def test_ctrl_c_reaches_the_program(shell: Shell) -> None:
    program = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done"
    process = shell.start(*LINK, "--", "sh", "-c", program)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (7, "caught\n")
    assert shell.left() == []


def test_nothing_is_left_of_a_process_that_was_killed(shell: Shell) -> None:
    for delay in (0.0, 0.1, 0.5, 2.0):
        process = shell.start(*LINK, "--", "sh", "-c", "while :; do sleep 0.05; done")
        time.sleep(delay)
        assert shell.guests() or delay < 1
        process.kill()
        process.communicate(timeout=60)
        until = time.monotonic() + 20
        while (still := shell.guests()) and time.monotonic() < until:
            time.sleep(0.05)
        assert not still
    assert shell.run(*LINK, "--", "true")[0] == 0
    assert shell.left() == []


@pytest.fixture
def lab(kernel: Path, verus: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv(guest_kernel.VARIABLE, str(kernel))
    return verus


def test_a_comparison_is_the_same_each_time(lab: Command, tmp_path: Path) -> None:
    (tmp_path / "send.py").write_text(SENDER)
    program = f"cmd[own]:{sys.executable} send.py {{host}} {{port}} {{seconds}}"
    words = (
        *("compare", "--virtual", "--trace", "rate:8", "--queue", "droptail:bytes=60kB", "--duration", 4),
        *("--scheme", "forward", "cubic", "linux:cc=cubic", "linux:cc=bbr", program, "--json"),
    )
    one, two = lab(*words), lab(*words, "--jobs", 1)
    assert one.code == 0, one.err
    assert one.out == two.out
    rows = [json.loads(line) for line in one.out.splitlines()]
    assert [row["transport"] for row in rows] == ["udp", "udp", "tcp", "tcp", "program"]
    for row in rows:
        assert row["engine"] == f"virtual-{guest_kernel.digest()[:12]}"
        assert row["capacity_mbps"] == pytest.approx(8, rel=1e-3)
        assert 0.5 < row["utilization"] <= 1.01
    assert "Deliveries late: p99 at most 0.0" in one.err


def test_what_the_guest_has_not_is_refused_before_any_run(lab: Command, tmp_path: Path) -> None:
    ran = lab("compare", "--virtual", "--trace", "rate:5", "--scheme", "cubic", "linux:cc=nosuch", "--duration", 600)
    assert (ran.code, ran.out) == (2, "")
    assert "scheme `linux:cc=nosuch`: the guest kernel has " in ran.err
    ran = lab("compare", "--virtual", "--trace", "rate:5", "--scheme", "kernel:forward", "--duration", 600)
    assert ran.code == 2
    assert "--virtual takes no programs" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_status_says_what_the_kernel_can_do(lab: Command) -> None:
    ran = lab("virtual", "status", "--json")
    assert ran.code == 0, ran.err
    status = json.loads(ran.out)
    assert {"bbr", "cubic", "reno", "vegas"} <= set(status["congestion_controls"])
    assert status["sha256"] == guest_kernel.digest()
    assert status["runs"]
    ran = lab("virtual", "status")
    assert "yes" in ran.out


#: Rows that hold for Linux's Cubic, and one for which the emulator has no flow.
SUITE = """
name = "mine"
title = "Mine"
about = "What Linux does."
source = "me"
seeds = 1

[scenario]
trace = "rate:5"
queue_bdp = 2
duration_s = 8

[[rows]]
id = "whole"
about = "Of two flows, the second begins at 1 s and sends 400 kB: delivered by 4 s."
kind = "published"
controllers = ["cubic"]
flows = [{}, { start_s = 1, bytes = 400_000 }]
checks = [{ measure = "completion", options = { flow = 1 }, most = 4 }]

[[rows]]
id = "stops"
about = "A flow that stops at 2 s leaves the link to the other, and few packets are lost."
kind = "published"
controllers = ["cubic"]
flows = [{}, { scheme = "cubic", stop_s = 2 }]
checks = [
  { name = "gone", measure = "throughput", options = { flow = 1, from_s = 3 }, most = 0 },
  { name = "alone", measure = "throughput", options = { from_s = 4 }, least = 4 },
  { name = "loss", measure = "loss", most = 0.1 },
  { name = "rate", measure = "packets_per_second", options = { from_s = 4 }, near = 416, within = 0.1 },
  { name = "waits", measure = "qdelay_p95", options = { from_s = 4 }, most = 85 },
]

[[rows]]
id = "late"
about = "A flow that begins at 1.5 s sends nothing before."
kind = "published"
controllers = ["cubic"]
flows = [{ start_s = 1.5 }]
checks = [
  { name = "before", measure = "packets_per_second", options = { to_s = 1.5 }, most = 0 },
  { name = "after", measure = "throughput", options = { from_s = 3 }, least = 4.5 },
]

[[rows]]
id = "files"
about = "Files of 50 kB take no longer than 2 s."
kind = "published"
controllers = ["cubic"]
flows = [{ traffic = "files:bytes=50000,gap_s=1" }]
checks = [{ measure = "median_completion", most = 2 }]
"""


def test_linux_is_judged_by_suites(lab: Command, tmp_path: Path) -> None:
    path, junit = tmp_path / "mine.toml", tmp_path / "junit.xml"
    path.write_text(SUITE)
    ran = lab("check", "linux:cc=cubic", "--virtual", "--suite", path, "--json", "--junit", junit)
    verdicts = {row["row"].partition("/")[2]: row for row in map(json.loads, ran.out.splitlines())}
    assert ran.code == 0, (ran.err, verdicts)
    assert {row["verdict"] for name, row in verdicts.items() if name != "files"} == {"passed"}
    assert verdicts["files"]["verdict"] == "not applicable"
    assert "flows send without pauses" in verdicts["files"]["why"]
    assert {row["scheme"] for row in verdicts.values()} == {"linux:cc=cubic"}
    assert junit.read_text().count("<skipped") == 1


def _side(goodput: float, delay: float, throughput: float | None = None) -> linux.Side:
    return linux.Side(goodput_mbps=goodput, throughput_mbps=throughput or goodput, qdelay_ms=delay, loss=0.0)


@pytest.mark.parametrize(
    ("linuxes", "ours", "verdict"),
    [
        ({"": _side(10, 100)}, {"": _side(10.2, 109)}, "near"),
        ({"": _side(10, 100)}, {"": _side(10, 120), "each ACKed": _side(10, 115)}, "open"),
        ({"": _side(10, 100)}, {"": _side(10, 120), "each ACKed": _side(10, 105)}, "each ACKed"),
        # The receiver's program has not read what arrived behind a gap.
        ({"": _side(9, 100, throughput=10)}, {"": _side(10, 100)}, "unread"),
        ({"": _side(10, 100), "window": _side(10, 130)}, {"": _side(10, 135)}, "window"),
        # Ranges of all starts: ours is 135 to 140 ms, Linux's reaches 130.
        ({"": _side(10, 100), "chance 1": _side(10, 130)}, {"": _side(10, 140), "chance 2": _side(10, 135)}, "chance"),
        ({"": _side(10, 100), "chance 1": _side(10, 120)}, {"": _side(10, 140), "chance 2": _side(10, 135)}, "open"),
    ],
)
def test_the_first_experiment_that_explains_a_difference_is_its_cause(
    linuxes: dict[str, linux.Side], ours: dict[str, linux.Side], verdict: str
) -> None:
    ours = {"each ACKed": ours[""], **ours}
    cell = linux.Cell(channel="1 Mbit/s", part="RED|1|reno|", linuxes=linuxes, simulated=ours)
    assert cell.verdict == verdict


def test_our_senders_can_be_put_beside_those_of_linux(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(guest_kernel.VARIABLE, str(kernel))
    real, ours = linux.runs([linux.Place.of_rate(1)], seed=1, repeat=1, flows=(1,))
    results = linux.collect(real, ours, jobs=2, progress=None, settings={"experiment": "linux"})
    cells = linux.cells(results)
    assert [cell.place for cell in cells] == [
        (queue, "1", sender) for queue in ("drop-tail", "RED") for sender in LINUX_SCHEMES
    ]
    for cell in cells:
        assert cell.linux.goodput_mbps == pytest.approx(cell.ours.goodput_mbps, rel=0.2), cell.name
        assert 0 < cell.linux.qdelay_ms < 151, cell.name
    assert len(linux.checks(results)) == 2 * len(cells)
