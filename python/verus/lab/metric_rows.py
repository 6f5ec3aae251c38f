"""The metrics of a run as plain values: the row that `--json` prints, and the `run.json` beside saved columns.

Nothing here needs NumPy or Arrow, whose import would delay the first row.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from verus import _verus
from verus.lab import inputs
from verus.lab.nothing_arrived import SHARES, arrived
from verus.lab.runner import Outcome
from verus.lab.scenario import Run

#: Version of every format in a folder; a change of meaning raises it.
SCHEMA = 1

#: The kind of the results of `verus probe`, which are JSON lines.
PROBE = "probe"

#: Likewise of `verus probe client --record`, with more in `run.json`.
RECORDING = "recording"

#: Likewise of `verus shell`, which puts an emulated link between a program and its network.
SHELL = "shell"

#: The kind of the results of `verus check`: verdicts, as JSON lines.
CHECK = "check"

#: The kind of the results of `verus sweep`, which have a plan in place of a `run.json`.
SWEEP = "sweep"

#: What `verus tune` leaves, which has a `search.json` instead.
TUNE = "tune"


def made_by(kind: str) -> str:
    """The command that wrote results of a kind, in words.

    Example:
        >>> made_by("probe"), made_by("sigcomm-fig10")
        ('`verus probe`', '`verus reproduce sigcomm-fig10`')
    """
    verbs = {
        RECORDING: "probe client --record",
        **{verb: verb for verb in ("compare", PROBE, SHELL, CHECK, SWEEP, TUNE)},
    }
    return "`verus.simulate`, in Python" if kind == "simulate" else f"`verus {verbs.get(kind, f'reproduce {kind}')}`"


#: The metrics of a row, and of each of its flows; null where they were not observed.
NUMBERS, PER_FLOW_NUMBERS = _verus.metric_columns()

#: Fields that `--json` prints for each run, in this order. A contract: tests and other programs
#: read it.
ROW_FIELDS = (
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
    *NUMBERS,
    "per_flow",
)


def rows(runs: Sequence[Run], outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A row for each run: the fields of `ROW_FIELDS`, and `run`, `part`, `label`, `trace_sha256`."""
    return [_row(index, run, outcome) for index, (run, outcome) in enumerate(zip(runs, outcomes, strict=True))]


def printed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as `--json` prints it: the fields of `ROW_FIELDS`, absent numbers as None."""
    return {name: row.get(name) for name in ROW_FIELDS}


def _row(index: int, run: Run, outcome: Outcome) -> dict[str, Any]:
    metrics, scenario = outcome["metrics"], run.scenario
    return {
        "run": index,
        "part": run.part,
        "label": run.contestant.label,
        "trace_sha256": outcome["trace"]["sha256"],
        "schema": SCHEMA,
        "version": _verus.version(),
        "engine": outcome.get("engine", "sim"),
        "transport": outcome.get("transport", "sim"),
        "trace": run.trace,
        "scheme": run.contestant.scheme,
        "params": dict(run.contestant.params),
        "queue": run.queue,
        "ack": scenario["ack"],
        "flows": len(run.contestant.flows),
        "packet_bytes": scenario["packet_bytes"],
        "seed": scenario["seed"],
        "duration_s": float(scenario["duration_s"]),
        "delay_ms": float(scenario["delay_ms"]),
        **_shares(metrics, _numbers(NUMBERS, metrics)),
        "per_flow": [
            {"flow": flow, "scheme": text, **_shares(found, _numbers(PER_FLOW_NUMBERS, found))}
            for flow, (text, found) in enumerate(zip(run.contestant.flows, metrics["per_flow"], strict=True))
        ],
    }


def _shares(metrics: Mapping[str, Any], numbers: dict[str, float | None]) -> dict[str, float | None]:
    """The numbers, with shares as None if nothing arrived."""
    return numbers if arrived(metrics) else numbers | {name: None for name in SHARES if name in numbers}


def _numbers(names: Iterable[str], metrics: Mapping[str, Any]) -> dict[str, float | None]:
    return {name: None if (value := metrics.get(name)) is None else float(value) for name in names}


def config(
    runs: Sequence[Run], outcomes: Sequence[Outcome], *, kind: str, settings: Mapping[str, Any], measured: Any = None
) -> dict[str, Any]:
    """The content of `run.json`; the arguments are those of `Results.collect`."""
    return {
        "schema": SCHEMA,
        "kind": kind,
        "version": _verus.version(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "settings": dict(settings),
        "measured": measured,
        "seeds": sorted({int(run.scenario["seed"]) for run in runs}),
        "channels": channels(runs, outcomes),
        "inputs": inputs.digests(runs),
        "runs": [
            {
                "trace": run.trace,
                "queue": run.queue,
                "scheme": run.contestant.text,
                "label": run.contestant.label,
                "scenario": dict(run.scenario),
                **({"timing": outcome["timing"]} if "timing" in outcome else {}),
            }
            for run, outcome in zip(runs, outcomes, strict=True)
        ],
        "machine": machine(),
    }


def channels(runs: Sequence[Run], outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """The channel of every link of the runs: kind, rate and hash, and the source of a recording."""
    recordings = {entry["sha256"]: entry for entry in _verus.catalogue()}
    named: dict[str, dict[str, Any]] = {}
    for run, outcome in zip(runs, outcomes, strict=True):
        text = run.scenario["trace"]
        # Each stretch of a recording counts as a channel, since its hash differs.
        used = [(text if text.startswith(f"{run.trace}[") else run.trace, text, outcome["trace"])]
        for field, channel in outcome["other_channels"].items():
            other = str(run.scenario[field])  # type: ignore[literal-required]
            used.append((other, other, channel))
        for name, text, trace in used:
            if name in named:
                continue
            checked = _verus.check_channel(text)
            parts = [part["channel"] for part in checked.get("parts", [])]
            entries = [recordings[trace["sha256"]]] if trace["sha256"] in recordings else parts
            sources = [entry for entry in entries if "repository" in entry]
            named[name] = {
                "name": name,
                "kind": checked.get("kind"),
                **{key: trace.get(key) for key in ("sha256", "duration_s", "mean_mbps")},
                "licence": _together(entry["licence"] for entry in sources),
                "citation": _together(entry["paper"] for entry in sources),
                "source": _together(f"{entry['repository']}@{entry['commit']}:{entry['path']}" for entry in sources),
            }
    return list(named.values())


def _together(words: Iterable[str]) -> str | None:
    """Each word once, joined; None without any."""
    return "; ".join(dict.fromkeys(words)) or None


def machine() -> dict[str, Any]:
    """The computer that this runs on."""
    cpu = platform.processor()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
