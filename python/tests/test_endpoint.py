"""The verbs of `verus-endpoint` are the same through `verus`: signals, closed pipes, exit codes, words, results."""

from __future__ import annotations

import json
import os
import random
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BINARY = Path(sys.executable).with_name("verus-endpoint")

#: Two programs with the same verbs.
PROGRAMS = {"verus": [sys.executable, "-m", "verus"], "verus-endpoint": [str(BINARY)]}

PATIENCE_S = 30.0

each_program = pytest.mark.parametrize("program", PROGRAMS)


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """`make build` puts the binary there; a build without it has nothing to test here."""
    if not BINARY.exists():
        pytest.fail(f"{BINARY} is absent: `make build` makes it")


def interruptible() -> None:
    """In the child: what a shell in the background had it ignore ends it again."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(program: str, *arguments: object, **more: Any) -> subprocess.Popen[str]:
    command = [*PROGRAMS[program], *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.Popen(command, text=True, stdin=subprocess.DEVNULL, preexec_fn=interruptible, **pipes)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and errors of a process that is about to end."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    return process.returncode, out, err


def ran(program: str, *arguments: object) -> tuple[int, str, str]:
    return ended(started(program, *arguments))


def line(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next event that a server prints."""
    assert process.stdout is not None
    text = b""
    while not text.endswith(b"\n"):  # byte by byte: what lies in a buffer, `select` does not see
        assert select.select([process.stdout], [], [], PATIENCE_S)[0], f"it says nothing after {text!r}"
        byte = os.read(process.stdout.fileno(), 1)
        assert byte, f"it ended after {text!r}"
        text += byte
    event: dict[str, Any] = json.loads(text)
    return event


@contextmanager
def server(program: str = "verus-endpoint") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server on a free port of this machine."""
    arguments = ("probe", "server", "--bind", "127.0.0.1", "--port", 0, "--json")
    process = started(program, *arguments)
    try:
        first = line(process)
        assert first["event"] == "listening"
        yield process, first["address"]
    finally:
        process.kill()
        process.communicate()


def shape(text: str) -> list[str]:
    """Words without their numbers."""
    return re.sub(r"[–\d][\d.]*", "#", text).split()


@pytest.mark.real_time
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_a_client_with_the_results_so_far(name: str) -> None:
    outcomes = {}
    for program in PROGRAMS:
        with server() as (serving, address):
            client = started(program, "probe", "client", address, "--rate-mbps", 5, "--duration", 20)
            assert line(serving)["event"] == "began"
            time.sleep(1.7)  # the load begins after a second
            began = time.monotonic()
            client.send_signal(getattr(signal, name))
            code, out, err = ended(client)
            assert time.monotonic() - began < 5
        assert code == 128 + getattr(signal, name)
        (up,) = re.findall(r"up \(1 flow\) +([\d.]+)", out)
        assert 1 < float(up) < 10
        outcomes[program] = (code, shape(out), err)
    assert outcomes["verus"] == outcomes["verus-endpoint"]
    assert outcomes["verus"][2] == "stopped; results are those so far\n"


@pytest.mark.real_time
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_a_server(name: str) -> None:
    outcomes = {}
    for program in PROGRAMS:
        with server(program) as (serving, address):
            client = started("verus-endpoint", "probe", "client", address, "--rate-mbps", 5, "--duration", 20)
            assert line(serving)["event"] == "began"
            # Half a second of load, after a second in which the path is idle.
            time.sleep(1.5)
            serving.send_signal(getattr(signal, name))
            code, out, err = ended(serving)
            client_outcome = ended(client)
        last = json.loads(out)
        assert last["event"] == "ended"
        assert last["up_bytes"] > 100_000
        assert (code, err) == (128 + getattr(signal, name), "")
        # The server notifies the client, which prints its results so far.
        assert client_outcome[0] == 1
        assert client_outcome[1].startswith("   ")
        assert "the server was stopped" in client_outcome[2]
        outcomes[program] = (client_outcome[0], shape(client_outcome[1]), shape(client_outcome[2]))
    assert outcomes["verus"] == outcomes["verus-endpoint"]


@each_program
def test_a_closed_pipe_is_silent(program: str) -> None:
    with server() as (serving, address):
        reading, writing = os.pipe()
        client = started(program, "probe", "client", address, "--rate-mbps", 1, "--duration", 0.5, stdout=writing)
        os.close(writing)
        assert line(serving)["event"] == "began"
        os.close(reading)
        code, _, err = ended(client)
    assert (code, err) == (0, "")


@each_program
def test_a_server_whose_listener_went_away_ends_silently(program: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    serving = started(program, "probe", "server", "--bind", "127.0.0.1", "--port", 0, stdout=writing)
    os.close(writing)
    code, _, err = ended(serving)
    assert (code, err) == (0, "")


BAD_USAGE: Sequence[tuple[tuple[str, ...], str]] = [
    (("probe",), "Usage: verus probe"),
    (("probe", "sideways"), "`verus probe` has no `sideways`"),
    (("probe", "client"), "<HOST>"),
    (("probe", "client", "localhost", "--colour"), "--colour"),
    (("probe", "client", "localhost:port"), "localhost:port"),
    (("probe", "client", "localhost", "--scheme", "reno"), "reno"),
    (("probe", "client", "localhost", "--scheme", "verus:ratio=-1"), "ratio"),
    (("probe", "client", "localhost", "--duration", "0"), "0.1"),
    (("probe", "client", "localhost", "--duration", "nan"), "0.1"),
    (("probe", "client", "localhost", "--bytes", "many"), "20MB"),
    (("probe", "client", "localhost", "--packet-bytes", "99"), "200"),
    (("probe", "client", "localhost", "--key-file", "absent"), "absent"),
    (("probe", "client", "localhost", "--out", "/dev/null"), "/dev/null"),
    (("probe", "client", "localhost", "--force"), "--out"),
    (("probe", "server", "--port", "65536"), "65536"),
    (("serve",), "DIR"),
    (("serve", "absent"), "cannot serve `absent`"),
    (("send", "localhost"), "FILE"),
    (("send", "absent", "localhost"), "cannot send `absent`"),
    (("receive",), "HOST/PATH"),
    (("receive", "localhost/x", "--scheme", "reno"), "reno"),
    (("probe", "client", "127.0.0.1:9", "--scheme", "mine.py:Mine"), "a class in Python runs in the simulator only"),
    (("probe", "server", "--bind", "203.0.113.7"), "203.0.113.7"),
    (("shell", "--", "true"), "--down"),
    (("shell", "--down", "absent", "--", "true"), "absent"),
    (("shell", "--up", "rate:5", "--queue", "droptail", "--", "true"), "droptail"),
]


@pytest.mark.parametrize(("arguments", "word"), BAD_USAGE)
def test_bad_usage_is_told_alike(arguments: Sequence[str], word: str) -> None:
    front = ran("verus", *arguments)
    code, out, err = ran("verus-endpoint", *arguments)
    assert (code, out) == (2, "")
    assert front == (code, out, err.replace("Usage: verus-endpoint", "Usage: verus"))
    assert word in front[2]
    assert "panicked" not in err


@each_program
def test_a_program_behind_a_link_ends_with_its_own_code(program: str, tmp_path: Path) -> None:
    command = ("shell", "-q", "--down", "rate:20", "--up", "rate:5", "--out", tmp_path / "run", "--log-down")
    code, out, err = ran(program, *command, tmp_path / "down.log", "--", "sh", "-c", "echo here; exit 3")
    if code == 2:
        pytest.skip(err.strip())
    assert (code, out, err) == (3, "here\n", "")
    assert ran("verus", "report", tmp_path / "run")[0] == 0
    assert "behind rate:5 (up), rate:20 (down)" in (tmp_path / "run" / "report.html").read_text()
    code, out, err = ran("verus", "analyze", tmp_path / "down.log")
    assert (code, "capacity_mbps" in out) == (0, True), err


@each_program
def test_a_server_that_is_not_there_fails_the_run(program: str) -> None:
    with server() as (_, address):
        pass
    assert ran(program, "probe", "client", address) == (
        1,
        "",
        f"verus: {address}: nobody listens there (connection refused)\n",
    )


@each_program
def test_a_measurement_becomes_a_page(program: str, tmp_path: Path) -> None:
    place = tmp_path / "measured"
    with server(program) as (_, address):
        options = ("--direction", "both", "--flows", 2, "--rate-mbps", 2, "--duration", 2, "--out", place, "--json")
        code, out, err = ran(program, "probe", "client", address, *options)
    assert (code, err) == (0, f"results in `{place}`; `verus report` draws them\n")
    rows = [json.loads(text) for text in out.splitlines()]
    assert [row["trace"] for row in rows] == ["127.0.0.1 up", "127.0.0.1 down"]
    for row in rows:
        assert 2 < row["throughput_mbps"] < 4.1
        assert len(row["per_flow"]) == 2
    drawn = ran("verus", "report", place)
    assert drawn == (0, "", f"Report: {place / 'report.html'}\n")
    page = (place / "report.html").read_text()
    assert "Forward over 127.0.0.1 up, 127.0.0.1 down." in page
    assert len(list((place / "figures").glob("*.svg"))) >= 5
    # Not replaced without being told to.
    code, out, err = ran(program, "probe", "client", address, "--out", place)
    assert (code, out, err) == (2, "", f"verus: --out: `{place}` is not empty; --force replaces the results in it\n")


@each_program
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_nobody_reads_costs_no_measurement(program: str, form: tuple[str, ...], tmp_path: Path) -> None:
    place = tmp_path / "measured"
    reading, writing = os.pipe()
    os.close(reading)
    with server(program) as (_, address):
        command = ("probe", "client", address, "--duration", 1, "--out", place, *form)
        measuring = started(program, *command, stdout=writing)
        os.close(writing)
        code, _, err = ended(measuring)
    assert (code, (place / "run.json").is_file()) == (0, True), err


def test_what_the_readme_says_of_measuring_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (commands,) = (
        block for block in re.findall(r"```sh\n(.*?)```", readme, re.DOTALL) if "probe client localhost  " in block
    )
    with server() as (_, address):
        for command in commands.splitlines():
            words = shlex.split(command.replace("localhost", address), comments=True)[1:]
            if "server" in words:  # which runs already
                continue
            shorter = ("--duration", 0.5) if "client" in words else ()
            code, _, err = ran("verus", *words, *shorter)
            assert code == 0, (command, err)
    assert (tmp_path / "measured" / "report.html").exists()


@each_program
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_files_cross_as_the_readme_says(
    name: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERUS_CONFIG", str(tmp_path / "config"))
    for folder in ("shared", "docs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "docs" / "one").write_bytes(random.Random(1).randbytes(300_000))
    (tmp_path / "README.md").write_text("hello")
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (commands,) = (block for block in re.findall(r"```sh\n(.*?)```", readme, re.DOTALL) if "verus send" in block)
    serving = started(program, "serve", "shared", "--bind", "127.0.0.1", "--port", 0, "--json")
    try:
        address = line(serving)["address"]
        for command in commands.splitlines():
            if not re.match("verus (send|receive) ", command):  # the server and its folder, which are there
                continue
            code, out, err = ran(program, *shlex.split(command.replace("localhost", address), comments=True)[1:])
            assert code == 0, (command, err)
            assert "Mbit/s" in out
        serving.send_signal(getattr(signal, name))
        code, _, err = ended(serving)
    finally:
        serving.kill()
        serving.communicate()
    assert (code, err) == (128 + getattr(signal, name), "")
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {"shared/README.md", "shared/docs/one", "shared/docs/README.md", "copies/docs/README.md"} <= files
    assert (tmp_path / "copies" / "docs" / "one").read_bytes() == (tmp_path / "docs" / "one").read_bytes()
