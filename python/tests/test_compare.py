"""`verus compare`: the contract of its rows, files and exit codes."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from verus.lab.results import Results

Command = Callable[..., Any]
Look = Callable[[Path], list[str]]

FIELDS = [
    "schema",
    "version",
    "engine",
    "transport",
    "trace",
    "scheme",
    "params",
    "queue",
    "ack",
    "flows",
    "packet_bytes",
    "seed",
    "duration_s",
    "delay_ms",
    "capacity_mbps",
    "throughput_mbps",
    "goodput_mbps",
    "utilization",
    "qdelay_mean_ms",
    "qdelay_p50_ms",
    "qdelay_p95_ms",
    "qdelay_p99_ms",
    "signal_delay_p95_ms",
    "rtt_mean_ms",
    "rtt_p95_ms",
    "loss_rate",
    "path_loss_rate",
    "retransmit_rate",
    "jain",
    "jain_active",
    "flow_min_mbps",
    "flow_max_mbps",
    "power",
    "completions",
    "completion_mean_s",
    "completion_p50_s",
    "completion_p95_s",
    "completion_p99_s",
    "completion_max_s",
    "late",
    "per_flow",
]

QUICK = ("compare", "--trace", "city-driving-3g-up", "rate:5", "--scheme", "verus:ratio=2", "cubic", "--duration", "3")


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.parquet"))}


def test_json_prints_rows_of_the_contract_and_writes_nothing(verus: Command, tmp_path: Path, left_behind: Look) -> None:
    ran = verus(*QUICK, "--json")
    assert ran.code == 0
    assert ran.err == ""
    results = rows(ran.out)
    assert [list(row) for row in results] == [FIELDS] * 4
    assert [(row["trace"], row["scheme"], row["params"]) for row in results] == [
        ("city-driving-3g-up", "verus", {"ratio": 2}),
        ("city-driving-3g-up", "cubic", {}),
        ("rate:5", "verus", {"ratio": 2}),
        ("rate:5", "cubic", {}),
    ]
    assert results[0]["queue"] == "red:min=375000,max=1125000,p=0.1"
    assert left_behind(tmp_path) == []


def test_each_trace_queue_scheme_and_seed_is_a_row(verus: Command) -> None:
    ran = verus(*QUICK, "--queue", "codel", "--queue", "infinite", "--repeat", "2", "--seed", "7", "--json")
    results = rows(ran.out)
    assert len(results) == 2 * 2 * 2 * 2
    assert [row["seed"] for row in results[:4]] == [7, 8, 7, 8]
    assert {row["queue"] for row in results} == {"codel", "infinite"}


def test_metrics_hold_together(verus: Command) -> None:
    for row in rows(verus(*QUICK, "--json").out):
        assert 0 < row["utilization"] <= 1.0001
        assert row["utilization"] == pytest.approx(row["throughput_mbps"] / row["capacity_mbps"], rel=1e-6)
        assert row["qdelay_p50_ms"] <= row["qdelay_p95_ms"] <= row["qdelay_p99_ms"]
        assert row["rtt_mean_ms"] >= 2 * row["delay_ms"]


def test_a_mix_has_flows_of_each_scheme(verus: Command) -> None:
    (row,) = rows(
        verus("compare", "--trace", "rate:10", "--mix", "verus:ratio=4*2+cubic", "--duration", "3", "--json").out
    )
    assert row["flows"] == 3
    assert [flow["scheme"] for flow in row["per_flow"]] == ["verus:ratio=4", "verus:ratio=4", "cubic"]
    assert 0 < row["jain"] <= 1


def test_flows_share_the_link(verus: Command) -> None:
    (row,) = rows(
        verus("compare", "--trace", "rate:10", "--scheme", "cubic", "--flows", "4", "--duration", "3", "--json").out
    )
    assert row["flows"] == len(row["per_flow"]) == 4
    assert sum(flow["throughput_mbps"] for flow in row["per_flow"]) == pytest.approx(row["throughput_mbps"], rel=1e-6)


def test_without_arguments_the_schemes_of_the_readme_run(verus: Command, tmp_path: Path) -> None:
    ran = verus("compare", "--duration", "2", "--report")
    assert ran.code == 0
    for name in ("Forward", "Verus R=2", "Verus R=6", "Cubic", "BBR v3", "Copa", "omniscient"):
        assert ran.out.count(name) == 3
    assert "propagation is not in it" in ran.out
    (folder,) = (tmp_path / "verus-results").iterdir()
    assert f"Report: verus-results/{folder.name}/report.html" in ran.err
    names = {path.name for path in folder.iterdir()}
    assert names == {"results.parquet", "series.parquet", "profile.parquet", "run.json", "report.html", "figures"}


def test_the_same_seed_gives_the_same_bytes(verus: Command, tmp_path: Path) -> None:
    verus(*QUICK, "--records", "--out", "one")
    verus(*QUICK, "--records", "--out", "two")
    assert set(digests(tmp_path / "one")) == {"results.parquet", "series.parquet", "profile.parquet", "records.parquet"}
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    verus(*QUICK, "--seed", "2", "--records", "--out", "three")
    assert digests(tmp_path / "one")["series.parquet"] != digests(tmp_path / "three")["series.parquet"]


def test_a_saved_run_runs_again_to_the_same_bytes(verus: Command, tmp_path: Path) -> None:
    verus(*QUICK, "--ack", "rate:3", "--queue", "droptail:bytes=60000", "--loss", "0.01", "--once", "--out", "one")
    assert verus("compare", "--from", "one/run.json", "--out", "two").code == 0
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    changed = verus("compare", "--from", "one/run.json", "--scheme", "vegas", "--json")
    assert {row["scheme"] for row in rows(changed.out)} == {"vegas"}


@pytest.mark.parametrize("carries", ["--trace", "--ack"])
def test_a_trace_that_changed_is_not_run_as_the_same(carries: str, verus: Command, tmp_path: Path) -> None:
    (tmp_path / "town").write_text("".join(f"{time}\n" for time in range(1, 2000, 3)))
    verus("compare", "--trace", "rate:5", carries, "town", "--scheme", "cubic", "--duration", "1", "--out", "one")
    channels = json.loads((tmp_path / "one" / "run.json").read_text())["channels"]
    town = next(channel for channel in channels if channel["name"] == "town")
    assert town["kind"] == "file"
    assert len(town["sha256"]) == 64
    assert verus("compare", "--from", "one/run.json", "--json").code == 0
    (tmp_path / "town").write_text("".join(f"{time}\n" for time in range(1, 2000, 4)))
    ran = verus("compare", "--from", "one/run.json", "--json")
    assert ran.code == 2
    assert "town" in ran.err
    assert "SHA-256" in ran.err
    assert ran.out == ""


def test_from_another_folder_a_missing_trace_is_named(
    verus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "town").write_text("1\n2\n3\n")
    verus("compare", "--trace", "town", "--scheme", "cubic", "--duration", "1", "--out", "one")
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    ran = verus("compare", "--from", "../one", "--json")
    assert ran.code == 2
    assert f"--from: there is no `town` in `{other}`: run this where these results were made" in ran.err
    assert verus("compare", "--from", "../one", "--trace", "../town", "--json").code == 0


def test_files_have_their_times_in_the_table_the_rows_and_the_page(verus: Command, tmp_path: Path) -> None:
    arguments = ("--trace", "rate:12", "--scheme", "newreno", "--traffic", "files:bytes=3000,gap_s=0.5")
    ran = verus("compare", *arguments, "--duration", "3", "--out", "one", "--report")
    assert "file s" in ran.out
    assert "(p95)" in ran.out
    assert "0.02 (0.02)" in ran.out
    assert "file p95<br>s" in (tmp_path / "one" / "report.html").read_text()
    (row,) = rows(verus("compare", "--from", "one/run.json", "--json").out)
    # Two packets of 1 ms each, and 20 ms of propagation; one every 522 ms.
    assert row["completions"] == 6
    assert row["completion_mean_s"] == pytest.approx(0.022)
    (flow,) = row["per_flow"]  # type: ignore[misc]
    assert flow["on_s"] == pytest.approx(6 * 0.022)
    assert "file s" not in verus("compare", "--trace", "rate:5", "--scheme", "cubic", "--duration", "1").out


def test_frames_have_their_times_and_the_late_are_counted(verus: Command, tmp_path: Path) -> None:
    traffic = "video:bytes=3000,key_bytes=6000,group=50,fps=50,deadline_ms=23,count=100"
    arguments = ("--trace", "rate:12", "--scheme", "newreno", "--traffic", traffic)
    ran = verus("compare", *arguments, "--duration", "3", "--out", "one", "--report")
    assert "22.0 (24.0)" in ran.out
    assert "is late" in ran.out
    assert "frame p99<br>s" in (tmp_path / "one" / "report.html").read_text()
    (row,) = rows(verus("compare", "--from", "one/run.json", "--json").out)
    # Two packets of 1 ms each, four in the two key frames, and 20 ms of propagation.
    assert (row["completions"], row["late"]) == (100, 2)
    assert row["completion_mean_s"] == pytest.approx(0.02204)
    assert row["completion_p99_s"] == pytest.approx(0.024)


def test_run_json_says_what_is_needed_to_judge_the_numbers(verus: Command, tmp_path: Path, left_behind: Look) -> None:
    verus(*QUICK, "--out", "one")
    config = json.loads((tmp_path / "one" / "run.json").read_text())
    assert config["schema"] == 1
    assert config["kind"] == "compare"
    assert config["seeds"] == [1]
    assert config["settings"]["duration_s"] == 3
    assert {"kernel", "cpu", "cores"} <= set(config["machine"])
    channel = config["channels"][0]
    assert channel["name"] == "city-driving-3g-up"
    assert len(channel["sha256"]) == 64
    assert {"licence", "citation"} <= set(channel)
    assert sorted(config["files"]) == [
        name for name in left_behind(tmp_path / "one") if not (tmp_path / "one" / name).is_dir()
    ]


def test_run_json_states_licence_and_paper_of_a_recording_however_it_was_named(
    verus: Command, tmp_path: Path, shared: Path
) -> None:
    recording = shared / "traces" / "cs244-2017" / "city_drive_2min"
    copy = tmp_path / "town.down"
    copy.write_bytes(recording.read_bytes())
    ran = verus("compare", "--trace", recording, copy, "--scheme", "cubic", "--duration", "1", "--out", "one")
    assert ran.code == 0, ran.err
    channels = json.loads((tmp_path / "one" / "run.json").read_text())["channels"]
    assert [channel["kind"] for channel in channels] == ["file", "file"]
    for channel in channels:
        assert channel["licence"] == "no licence stated"
        assert channel["citation"].startswith("Zaki et al.")
        assert channel["source"].startswith("sanderszzw/cs244-verus@")


def test_force_replaces_results_and_leaves_the_rest(verus: Command, tmp_path: Path, left_behind: Look) -> None:
    verus(*QUICK, "--records", "--out", "one")
    assert verus("report", "one").code == 0
    assert "figures/series-city-driving-3g-up.svg" in left_behind(tmp_path / "one")
    (tmp_path / "one" / "mine.txt").write_text("keep")
    other = ("compare", "--trace", "rate:9", "--scheme", "vegas", "--duration", "1", "--out", "one", "--force")
    assert verus(*other).code == 0
    names = left_behind(tmp_path / "one")
    assert "mine.txt" in names
    assert "records.parquet" not in names
    assert "report.html" not in names
    assert verus(*other, "--report").code == 0
    names = left_behind(tmp_path / "one")
    assert "figures/series-rate-9.svg" in names
    assert "figures/series-city-driving-3g-up.svg" not in names
    assert pq.read_table(tmp_path / "one" / "results.parquet").num_rows == 1


@pytest.mark.parametrize("option", ["--out", "--qlog", "--pcap"])
@pytest.mark.parametrize("name", [".", "link", "dangling"])
def test_a_folder_of_results_may_be_this_one_or_behind_a_link(
    name: str, option: str, verus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_behind: Look
) -> None:
    place = tmp_path / "empty"
    place.mkdir()
    (tmp_path / "link").symlink_to(place)
    (tmp_path / "dangling").symlink_to(place / "new")
    monkeypatch.chdir(place if name == "." else tmp_path)
    words = ("compare", "--trace", "rate:5", "--scheme", "cubic", "--duration", "1", option, name)
    for more in ([], ["--force"]):
        ran = verus(*words, *(["--json"] if option != "--out" else []), *more)
        assert ran.code == 0, ran.err
        kept = ["profile.parquet", "results.parquet", "run.json", "series.parquet"]
        files = left_behind(Path(name))
        assert files == kept if option == "--out" else len(files) == 1
    assert {path.name for path in tmp_path.iterdir()} <= {"empty", "link", "dangling", ".cache"}


def test_quiet_says_nothing(verus: Command, tmp_path: Path) -> None:
    ran = verus(*QUICK, "-q", "--out", "one")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert (tmp_path / "one" / "run.json").exists()


def test_no_color_is_honoured_and_no_progress_leaves_the_terminal(
    verus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    ran = verus(*QUICK, "--out", "one")
    assert "\x1b" not in ran.out + ran.err


@pytest.mark.parametrize("arguments", [("--out", "here"), ("--json",)])
def test_ctrl_c_leaves_whole_files_or_none(arguments: tuple[str, ...], tmp_path: Path, left_behind: Look) -> None:
    command = [sys.executable, "-m", "verus", "compare", "-v", "--duration", "100000", "--scheme", "cubic", *arguments]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "NO_COLOR": "1"}
    )
    assert process.stderr is not None
    assert process.stderr.readline().endswith(b" runs of 100000 s\n")  # it begins now
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert out == b""
    assert "verus: interrupted; nothing was written" in err.decode().splitlines()
    assert left_behind(tmp_path) == []


def test_ctrl_c_while_drawing_keeps_the_runs(tmp_path: Path, left_behind: Look) -> None:
    traces = [f"rate:{mbps}" for mbps in range(1, 7)]
    command = [
        sys.executable,
        "-m",
        "verus",
        "compare",
        "--duration",
        "1",
        "--trace",
        *traces,
        "--report",
        "--out",
        "deep/here",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    while b"propagation is not in it" not in process.stdout.readline():
        pass
    time.sleep(0.7)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    progress = "36 of 36 runs are kept in `deep/here.unfinished`; the same command goes on from there"
    assert err.decode().splitlines() == [f"verus: interrupted; {progress}"]
    assert sum(name.endswith(".run") for name in left_behind(tmp_path)) == 36
    assert not (tmp_path / "deep" / "here").exists()
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert b"36 of 36 runs were done before" in again.stderr
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["here"]


def test_rows_printed_at_once_are_those_of_saved_results(verus: Command, tmp_path: Path) -> None:
    words = (
        "compare",
        "--trace",
        "rate:8",
        "--mix",
        "verus+cubic",
        "--traffic",
        "files:bytes=40000",
        "--duration",
        "3",
    )
    at_once = verus(*words, "--json").out
    assert verus(*words, "--json", "--out", "here").out == at_once
    saved = Results.read(tmp_path / "here").to_rows()
    assert [json.loads(line) for line in at_once.splitlines()] == saved


@pytest.mark.parametrize(
    ("option", "other"),
    [
        (["--ack-queue", "codel"], "--ack"),
        (["--second-queue", "codel"], "--second-trace"),
        (["--changes-repeat", "2"], "--changes"),
    ],
)
def test_options_of_what_the_path_has_not_are_refused(verus: Callable[..., Any], option: list[str], other: str) -> None:
    refused = verus("compare", "--trace", "rate:8", "--scheme", "cubic", "--duration", "1", "--json", *option)
    assert (refused.code, refused.out) == (2, "")
    assert f"{option[0]}: must be left out" in refused.err
    assert f"{other}, not" in refused.err


def test_json_takes_no_format_of_the_table(verus: Command) -> None:
    refused = verus("compare", "--trace", "rate:8", "--scheme", "cubic", "--duration", "1", "--json", "--format", "csv")
    assert (refused.code, refused.out) == (2, "")
    assert "--format: is for the table" in refused.err


@pytest.mark.parametrize("option", [["--records"], ["--report"], ["--bin", "50"]])
def test_options_of_saved_results_are_refused_where_none_are_saved(
    verus: Callable[..., Any], option: list[str]
) -> None:
    refused = verus("compare", "--trace", "rate:8", "--scheme", "cubic", "--duration", "1", "--json", *option)
    assert (refused.code, refused.out) == (2, "")
    assert f"{option[0]}" in refused.err
    assert "is for saved results" in refused.err
