"""Runs comparisons in real time: each run is a separate process, between two network namespaces.

On virtual time, each process has a guest kernel to itself, whose clock stands still while it computes.

Outcomes have the same shape as the simulator's, so all later code is the same for both.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verus import _verus
from verus.endpoints import guest_kernel
from verus.endpoints.program import BAD_INPUT, error_line, find_endpoint
from verus.errors import FieldError
from verus.lab.runner import Ended, Logs, Outcome, Progress, all_of, in_threads
from verus.lab.scenario import Run

#: The transport of our own controllers, by the contestant's; the kernel's senders use TCP.
_OURS = {"quic": "quic"}


def run_all(
    runs: Sequence[Run], *, jobs: int = 1, progress: Progress | None = None, virtual: bool = False
) -> list[Outcome]:
    """As `as_ended`, if all runs must succeed; outcomes are in the order of `runs`.

    Raises:
        RunError: One of them failed.
    """
    ended = dict(as_ended(runs, jobs=jobs, progress=progress, virtual=virtual))
    return all_of(runs, [ended[index] for index in range(len(runs))])


def engine(*, virtual: bool = False) -> str:
    """The identity of the installed program, by the digest of its file: as `verus.lab.store.engine` for the simulator.

    On virtual time, that of the guest kernel follows.

    Raises:
        FieldError: One of them is not installed.
    """
    binary = _binary()
    program = f"{_verus.version()}-{hashlib.sha256(Path(binary).read_bytes()).hexdigest()[:12]}"
    return f"{program}-{_virtual()}" if virtual else program


def _virtual() -> str:
    """The name of virtual time in results, with the beginning of the guest kernel's digest."""
    return f"virtual-{guest_kernel.digest()[:12]}"


def _binary() -> str:
    binary, looked = find_endpoint()
    if binary is None:
        raise FieldError("emulate", f"needs the program `verus-endpoint`, which is not in {looked}")
    return str(binary)


def as_ended(
    runs: Sequence[Run],
    *,
    jobs: int = 1,
    progress: Progress | None = None,
    logs: Logs | None = None,
    virtual: bool = False,
    packets: bool = False,
) -> Generator[tuple[int, Ended]]:
    """Runs everything behind an emulated link; yields each one's index and outcome as soon as it ends.

    A failed run yields its exception.

    Args:
        runs: The runs; each takes its own duration in real time.
        jobs: The number of runs at the same time. They share the machine, so check their lateness.
        progress: Called from time to time.
        logs: The folder for logs of our flows, or None.
        virtual: Whether to run on virtual time, each in a guest kernel of its own.
        packets: Whether outcomes have the fate of each packet at the bottleneck (`records`).

    Raises:
        FieldError: The program or the guest kernel is not installed.
        ValueError: A run is refused, or needs privileges that this process lacks.
        KeyboardInterrupt: Ctrl-C; all runs have stopped by then.
    """
    for refusal in refusals(runs, virtual=virtual):
        if refusal is not None:
            raise ValueError(refusal)
    crew = _Crew(_command(virtual=virtual), _virtual() if virtual else "emulated", packets=packets)
    began = time.monotonic()
    expected_s = sum(float(run.scenario["duration_s"]) for run in runs) / jobs

    def tell(done: int) -> None:
        if progress is not None:
            elapsed = (time.monotonic() - began) / max(expected_s, 1e-9)
            # How fast virtual time passes is not known beforehand.
            fraction = done / len(runs) if virtual or done == len(runs) else min(elapsed, 0.99)
            progress(done, len(runs), fraction)

    def work(index: int) -> Ended:
        try:
            return crew.run(runs[index], None if logs is None else logs.of([index]))
        except RuntimeError as error:
            return error

    return in_threads(len(runs), work, threads=jobs, tell=tell, stop=crew.stop)


def _command(*, virtual: bool) -> list[str]:
    return [_binary(), "emulate", *(["--virtual"] if virtual else [])]


def refusals(runs: Sequence[Run], *, virtual: bool = False) -> list[str | None]:
    """For each run, why the emulator does not support it, or None, before the first begins.

    Raises:
        FieldError: The program or the guest kernel is not installed.
        ValueError: One of them is no run.
    """
    jobs = dict.fromkeys(json.dumps(_job(run), allow_nan=False) for run in runs)
    command = [*_command(virtual=virtual), "--check"]
    checked = subprocess.run(command, input="\n".join(jobs), capture_output=True, text=True, check=False)
    if checked.returncode:
        raise ValueError(_problem(checked.stderr, checked.returncode))
    refused = dict(zip(jobs, json.loads(checked.stdout), strict=True))
    return [refused[json.dumps(_job(run), allow_nan=False)] for run in runs]


def _job(run: Run) -> dict[str, Any]:
    scenario = {name: value for name, value in run.scenario.items() if name != "transport"}
    return {"scenario": scenario, "transport": _OURS.get(run.contestant.transport, "udp")}


def _problem(errors: str, code: int) -> str:
    return error_line(errors) or f"the emulator ended with {code}"


class _Crew:
    """The running processes."""

    def __init__(self, command: Sequence[str], engine: str, *, packets: bool) -> None:
        self._command = command
        self._engine = engine
        self._packets = packets
        self._lock = threading.Lock()
        self._working: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(self, run: Run, logs: tuple[Path, str, list[str]] | None) -> Outcome:
        job_fields = {**_job(run), "packets": self._packets}
        if logs is not None:
            folder, format_, (channel,) = logs
            job_fields["qlog"] = {"folder": str(folder.absolute()), "format": format_, "channel": channel}
        job = json.dumps(job_fields, allow_nan=False)
        with self._lock:
            if self._stopped:
                raise RuntimeError("stopped")
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            self._working.add(process)
        try:
            out, errors = process.communicate(job)
        finally:
            with self._lock:
                self._working.discard(process)
        if process.returncode:
            problem = _problem(errors, process.returncode)
            if process.returncode == BAD_INPUT:
                raise ValueError(problem)
            raise RuntimeError(problem)
        return {**_outcome(json.loads(out)), "engine": self._engine}

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._working:
                process.terminate()


def _outcome(report: Mapping[str, Any]) -> Outcome:
    """The endpoint's output, in the shape of the simulator's outcome."""
    capacity = np.asarray(report["capacity_mbps"], dtype=float)
    bins, flows = len(capacity), len(report["series"])
    times = np.arange(bins) * (float(report["bin_ms"]) / 1000.0)
    series: dict[str, Any] = {
        "flow": np.repeat(np.arange(flows, dtype=np.int32), bins),
        "time_s": np.tile(times, flows),
    }
    for name in ("throughput_mbps", "qdelay_ms", "qdelay_max_ms"):
        series[name] = np.concatenate([_padded(flow[name], bins) for flow in report["series"]])
    windows = [flow["window_bytes"] for flow in report["flows"]]
    if any(windows):
        # Senders report every 100 ms, whatever the width of the bins.
        at = np.arange(bins) * float(report["bin_ms"]) / 100.0
        series["window_bytes"] = np.concatenate(
            [_padded(window, int(at[-1]) + 1)[at.astype(int)] for window in windows]
        )
    points = [(index, point) for index, flow in enumerate(report["flows"]) for point in flow["profiles"]]
    profiles = {
        "flow": np.asarray([index for index, _ in points], dtype=np.int32),
        "time_s": np.asarray([point["time_s"] for _, point in points], dtype=float),
        "kind": [point["kind"] for _, point in points],
        "window_packets": np.asarray([point["window_packets"] for _, point in points], dtype=float),
        "delay_ms": np.asarray([point["delay_ms"] for _, point in points], dtype=float),
    }
    return {
        "transport": "+".join(dict.fromkeys(flow["transport"] for flow in report["flows"])),
        "metrics": report["metrics"],
        "trace": report["trace"],
        "other_channels": report["other_channels"],
        "capacity": {"time_s": times, "capacity_mbps": capacity},
        "series": series,
        "profiles": profiles,
        "records": None if report["packets"] is None else _columns(report["packets"]),
        "timing": report["timing"],
    }


def _columns(packets: Mapping[str, Sequence[float | None]]) -> dict[str, Any]:
    """Columns of packets; not-a-number where there is no value."""
    return {name: np.asarray(values, dtype=float) for name, values in packets.items()}


def _padded(values: Sequence[float | None], length: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The values, padded with not-a-number to `length`."""
    padded = np.full(length, np.nan)
    array = np.asarray(values[:length], dtype=float)
    padded[: len(array)] = array
    return padded
