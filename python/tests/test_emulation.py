"""`verus compare --emulate`: real flows behind an emulated link, told as simulated ones are."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from verus.endpoints import emulation
from verus.endpoints.program import find_endpoint
from verus.lab import runner
from verus.lab.metric_rows import ROW_FIELDS
from verus.lab.results import Results
from verus.lab.scenario import Contestant, Settings, make_run
from verus.papers.own import agreement, side_by_side

from .conftest import Command


@pytest.fixture(scope="module")
def emulator() -> None:
    """Emulating takes namespaces and TUN devices, which not every machine grants."""
    binary, looked = find_endpoint()
    if binary is None:
        pytest.fail(f"verus-endpoint is not in {looked}: `make build` makes it")
    run = make_run(
        trace="rate:10",
        queue="infinite",
        contestant=Contestant.from_scheme("cubic"),
        seed=1,
        duration_s=0.1,
        delay_ms=1,
    )
    try:
        emulation.run_all([run])
    except ValueError as error:
        pytest.skip(f"nothing can be emulated here: {error}")


@pytest.mark.usefixtures("emulator")
def test_rows_in_real_time_are_those_of_the_simulator_but_for_engine_and_transport(verus: Command) -> None:
    ran = verus(
        *("compare", "--emulate", "--trace", "rate:8", "--scheme", "verus:ratio=2", "linux:cc=cubic"),
        *("--transport", "udp", "quic", "--duration", 3, "--jobs", 3, "--json"),
    )
    assert ran.code == 0, ran.err
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [(row["scheme"], row["transport"]) for row in rows] == [
        ("verus", "udp"),
        ("verus", "quic"),
        ("linux", "tcp"),
    ]
    for row in rows:
        assert tuple(row) == ROW_FIELDS
        assert row["engine"] == "emulated"
        assert row["capacity_mbps"] == pytest.approx(8, rel=1e-3)
        assert 0.5 < row["utilization"] <= 1.01
        assert 0 < row["qdelay_mean_ms"] < 2000
        assert 0.4 * row["throughput_mbps"] < row["goodput_mbps"] <= 1.02 * row["throughput_mbps"]
    assert rows[2]["params"] == {"cc": "cubic"}
    assert rows[0]["rtt_mean_ms"] == pytest.approx(40 + rows[0]["qdelay_mean_ms"], rel=0.25)


def test_a_sender_that_this_machine_has_not_is_refused_before_any_run(verus: Command, tmp_path: Path) -> None:
    schemes = ("--scheme", "cubic", "linux:cc=nosuch")
    began = time.monotonic()
    ran = verus("compare", "--emulate", "--trace", "rate:5", *schemes, "--duration", 600, "--jobs", 1, "--out", "there")
    assert (ran.code, ran.out) == (2, "")
    assert "scheme `linux:cc=nosuch`: this kernel has " in ran.err
    assert time.monotonic() - began < 60
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("format_", ["draft", "0.3"])
def test_flows_of_our_controllers_have_logs(format_: str, verus: Command, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    ran = verus(
        *("compare", "--emulate", "--trace", "rate:8", "--mix", "verus+linux:cc=cubic", "--transport", "udp", "quic"),
        *("--duration", 4, "--jobs", 2, "--json", "--qlog", logs, "--qlog-format", format_),
    )
    assert ran.code == 0, ran.err
    suffix = "sqlog" if format_ == "draft" else "qlog"
    mix = "verus+linux-cc=cubic"
    names = [f"verus_rate-8_{transport}_{mix}_seed1_flow0.{suffix}" for transport in ("quic", "udp")]
    assert sorted(path.name for path in logs.iterdir()) == names
    for path in logs.iterdir():
        content = path.read_bytes()
        sent = content.count(b":packet_sent")
        assert sent > 50
        assert content.count(b'"bytes_in_flight"') > 10


@pytest.mark.usefixtures("emulator")
def test_marks_come_back_over_quic_to_whoever_asks_for_them(verus: Command, tmp_path: Path) -> None:
    ran = verus(
        *("compare", "--emulate", "--trace", "rate:8", "--scheme", "cubic:ecn=yes", "cubic", "--transport", "quic"),
        *("--queue", "codel:ecn=yes", "--duration", 5, "--jobs", 2, "--json", "--qlog", tmp_path / "logs"),
    )
    assert ran.code == 0, ran.err
    asking, other = (path.read_bytes() for path in sorted((tmp_path / "logs").iterdir()))
    assert b'"scheme":"cubic:ecn=yes"' in asking
    assert asking.count(b'"ce":') > 10
    assert b'"ce":' not in other
    # Packets that are not marked are dropped instead.
    assert asking.count(b"quic:packet_lost") < other.count(b"quic:packet_lost")


@pytest.mark.usefixtures("emulator")
def test_flows_that_share_a_link_are_told_apart_and_make_a_report(verus: Command, tmp_path: Path) -> None:
    ran = verus(
        *("compare", "--emulate", "--trace", "rate:20", "--mix", "verus:ratio=2+linux:cc=cubic"),
        *("--duration", 4, "--out", tmp_path / "out", "--report"),
    )
    assert ran.code == 0, ran.err
    assert "Deliveries late" in ran.err
    results = Results.read(tmp_path / "out")
    (row,) = results.to_rows()
    assert row["transport"] == "udp+tcp"
    assert [flow["scheme"] for flow in row["per_flow"]] == ["verus:ratio=2", "linux:cc=cubic"]
    assert all(flow["throughput_mbps"] > 0.5 for flow in row["per_flow"])
    assert results.config["runs"][0]["timing"]["deliveries"] > 1000
    assert (tmp_path / "out" / "report.html").exists()


#: A datagram of 200 bytes each 5 ms, and a receiver of these.
METRONOME = """
import socket, sys, time
host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
due = time.monotonic()
end = due + seconds
while due < end:
    sender.sendto(bytes(200), (host, port))
    due += 0.005
    time.sleep(max(due - time.monotonic(), 0))
"""
LISTENER = """
import os, socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind((os.environ["VERUS_HOST"], int(os.environ["VERUS_PORT"])))
while True:
    receiver.recv(2000)
"""
#: A sender of data as fast as TCP accepts it.
FLOOD = """
import socket, sys
sender = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    sender.sendall(bytes(65536))
"""


@pytest.fixture
def programs(tmp_path: Path) -> str:
    for name, source in (("metronome", METRONOME), ("listener", LISTENER), ("flood", FLOOD)):
        (tmp_path / f"{name}.py").write_text(source)
    return sys.executable


@pytest.mark.usefixtures("emulator")
def test_any_program_stands_in_the_table(verus: Command, programs: str) -> None:
    both = f"{programs} metronome.py {{host}} {{port}} {{seconds}} => {programs} listener.py"
    ran = verus(
        *("compare", "--emulate", "--trace", "rate:8", "--duration", 3, "--json", "--jobs", 3, "--scheme"),
        *(f"cmd[Metronome]:{both}", f"cmd:{programs} flood.py {{host}} {{port}}", "linux:cc=cubic"),
    )
    assert ran.code == 0, ran.err
    metronome, flood, cubic = map(json.loads, ran.out.splitlines())
    assert (metronome["scheme"], metronome["transport"]) == ("cmd", "program")
    assert metronome["params"] == dict(zip(("sender", "receiver"), both.split(" => "), strict=True))
    # 228 bytes each 5 ms, which nothing holds up.
    assert metronome["throughput_mbps"] == pytest.approx(228 * 8 / 5000, rel=0.1)
    assert metronome["qdelay_p50_ms"] < 2
    assert metronome["goodput_mbps"] is None
    assert flood["params"]["receiver"] is None
    assert flood["utilization"] == pytest.approx(cubic["utilization"], abs=0.15)
    assert 0.8 < flood["goodput_mbps"] / flood["throughput_mbps"] <= 1.02


@pytest.mark.usefixtures("emulator")
def test_a_program_that_fails_harms_no_other_run(verus: Command, programs: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import sys\nprint('first', file=sys.stderr)\nsys.exit('no such host')\n")
    bad, other = f"cmd:{programs} bad.py", f"cmd:sleep 9 => {programs} bad.py"
    ran = verus(
        *("compare", "--emulate", "--trace", "rate:8", "--duration", 2, "--jobs", 3, "--out", "out", "--scheme"),
        *(bad, other, "cubic"),
    )
    assert ran.code == 1
    assert "Cubic" in ran.out
    assert ran.err.splitlines()[-2:] == [
        f"verus: {Path(programs).name} over rate:8, seed 1: flow of `{bad}`: "
        "the sender ended with code 1: no such host",
        f"verus: sleep over rate:8, seed 1: flow of `{other}`: the receiver ended with code 1: no such host",
    ]


@pytest.mark.usefixtures("emulator")
def test_a_receiver_that_never_listens_is_named(verus: Command) -> None:
    ran = verus(
        *("compare", "--emulate", "--trace", "rate:8", "--duration", 1, "--json"),
        *("--scheme", "cmd:sleep 60 => sleep 61"),
    )
    assert (ran.code, ran.err.splitlines()[-1]) == (
        1,
        "verus: sleep over rate:8, seed 1: flow of `cmd:sleep 60 => sleep 61`: the receiver `sleep 61` did not listen "
        "at 100.64.0.2:6000 ({host}:{port}) within 15 s, over TCP or UDP",
    )


@pytest.mark.usefixtures("emulator")
def test_nothing_of_a_program_goes_on_after_its_run(verus: Command, programs: str, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    # A shell that starts another program, which would write for a minute.
    command = f"for i in $(seq 600); do date > {sign}; sleep 0.1; done & wait"
    ran = verus(
        *("compare", "--emulate", "--trace", "rate:8", "--duration", 1, "--json"),
        *("--scheme", f"cmd:{programs} metronome.py {{host}} {{port}} 60 & {command}"),
    )
    assert sign.exists(), ran.err
    sign.unlink()
    time.sleep(0.5)
    assert not sign.exists()


@pytest.mark.usefixtures("emulator")
def test_simulated_and_emulated_agree() -> None:
    """The short form of `verus reproduce agreement`: one channel, and every sender."""
    emulated, simulated = agreement.runs({"city": "city-driving-lte-down"}, seed=1, repeat=2, duration_s=20)
    real = emulation.run_all(emulated, jobs=len(agreement.SENDERS))
    results = Results.collect(
        [*emulated, *simulated],
        [*real, *runner.run_all(simulated)],
        kind="agreement",
        settings={"repeat": 2},
    )
    missed = [f"{check.name}: {check.miss()}" for check in agreement.checks(results) if not check.met]
    assert not missed, "\n".join([*missed, side_by_side.timing(results)])


@pytest.mark.usefixtures("emulator")
def test_an_interrupted_comparison_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "verus", "compare", "--emulate", "--trace", "rate:5", "--duration", "60"]
    process = subprocess.Popen(
        [*command, "--scheme", "cubic", "--out", str(tmp_path / "out")],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors.strip()) == (130, "verus: interrupted; nothing was written")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--scheme", "linux:cc=cubic"), "--scheme: `linux:cc=cubic` is the kernel's: it runs in real time only"),
        (
            ("--scheme", "cmd:iperf3 -c {host}"),
            "--scheme: `cmd:iperf3 -c {host}` is a program: it runs in real time only",
        ),
        (("--mix", "cubic+linux:cc=bbr"), "--scheme: `cubic+linux:cc=bbr` is the kernel's: it runs in real time only"),
        (("--emulate", "--scheme", "cmd: => iperf3 -s"), "--scheme: `cmd: => iperf3 -s` names no command"),
        (("--emulate", "--scheme", "cmd:iperf3 =>"), "--scheme: `cmd:iperf3 =>` names no command"),
        (("--transport", "quic"), "--transport: is for runs in real time (--emulate)"),
        (("--jobs", "2"), "--jobs: is for runs in real time (--emulate)"),
        (("--emulate", "--transport", "sctp"), "--transport: `sctp` is neither udp nor quic"),
        (("--emulate", "--scheme", "linux:cc="), "--scheme: `linux:cc=` names no congestion control"),
        (("--emulate", "--scheme", "linux:cc=none"), "scheme `linux:cc=none`: this kernel has "),
        (("--emulate", "--scheme", "cubic", "--max-events", "9"), "in real time, there are no events to be counted"),
        (
            ("--emulate", "--scheme", "cubic", "--ack", "same", "--medium", "wifi"),
            "in real time, the two directions share no medium",
        ),
        (("--emulate", "--scheme", "cubic", "--handshake"), "in real time, each transport has a handshake"),
        (("--emulate", "--scheme", "cubic", "--quick-acks", "9"), "in real time, each transport has a handshake"),
        (("--emulate", "--scheme", "cubic", "--records"), "in real time, there is no record of each packet"),
        (("--emulate", "--scheme", "cubic", "--ack-every", "2"), "in real time, ack_every must be 1"),
        (("--emulate", "--scheme", "cubic", "--packet-bytes", "100"), "in real time, packet_bytes must be between"),
        (("--emulate", "--jobs", "0"), "--jobs: must be 1 or more, not 0"),
    ],
)
def test_what_cannot_be_had_is_one_message(
    verus: Command, tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    ran = verus("compare", "--trace", "rate:5", *arguments, "--duration", 1, "--out", tmp_path / "out")
    assert ran.code == 2, ran.err
    assert ran.err.startswith(f"verus: {problem}"), ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_settings_know_who_is_carried_by_what() -> None:
    settings = Settings(
        traces=["rate:5"], schemes=["cubic", "linux:cc=reno"], emulate=True, transports=["udp", "quic"], duration_s=1
    )
    assert [run.contestant.label for run in settings.runs()] == ["Cubic", "Cubic in QUIC", "Linux reno"]
    assert Settings.from_dict(settings.to_dict()) == Settings(
        traces=("rate:5",),
        schemes=("cubic", "linux:cc=reno"),
        emulate=True,
        transports=("udp", "quic"),
        duration_s=1,
    )
