"""Logs of `verus probe` are validated, and become the same page as a comparison."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verus import saved_run
from verus.lab.metric_rows import NUMBERS, ROW_FIELDS
from verus.lab.results import Results
from verus.report.summary import blocks

Command = Callable[..., Any]

UNSEEN = ("capacity_mbps", "utilization", "signal_delay_p95_ms", "path_loss_rate")


def identity(run: int, direction: str) -> dict[str, Any]:
    return {"run": run, "trace": f"phone.example {direction}", "queue": "path", "label": "Verus R=2", "seed": 1}


def row(run: int, direction: str, flows: int) -> dict[str, Any]:
    metrics = {name: None if name in UNSEEN else 3.0 + run for name in NUMBERS}
    each = {
        "throughput_mbps": 3.0,
        "goodput_mbps": 3.0,
        **dict.fromkeys(("qdelay_mean_ms", "qdelay_p50_ms", "qdelay_p95_ms", "qdelay_p99_ms"), 8.5),
        **{"rtt_mean_ms": None, "rtt_p95_ms": None, "loss_rate": 0.0, "retransmit_rate": 0.0, "sent": 1000},
    }
    return {
        **identity(run, direction),
        "part": "",
        "trace_sha256": None,
        "schema": 1,
        "version": "0.1.0",
        "engine": "real",
        "transport": "udp",
        "scheme": "verus",
        "params": {"ratio": 2},
        "ack": "path",
        "flows": flows,
        "packet_bytes": 1400,
        "duration_s": 4.0,
        "delay_ms": None,
        **metrics,
        "per_flow": [{"flow": flow, "scheme": "verus:ratio=2", **each} for flow in range(flows)],
    }


def series(run: int, direction: str, flow: int) -> list[dict[str, Any]]:
    bins = [0.1 * (index + 1) for index in range(40)]
    return [
        {
            **identity(run, direction),
            "flow": flow,
            "time_s": time_s,
            "capacity_mbps": None,
            "throughput_mbps": 3.0 + flow,
            "qdelay_ms": 5.0 + time_s if index else None,
            "rtt_ms": 40.0 if run == 0 else None,
            "window_bytes": 14_000.0,
            "lost": 0,
        }
        for index, time_s in enumerate(bins)
    ]


def profile(run: int, direction: str) -> list[dict[str, Any]]:
    return [
        {**identity(run, direction), "flow": 0, "time_s": 3.0, "kind": kind, "window_packets": w, "delay_ms": 40.0 + w}
        for kind in ("point", "curve")
        for w in range(2, 20)
    ]


def config(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema": 1,
        "kind": "probe",
        "version": "0.1.0",
        "created": "2026-01-02T03:04:05Z",
        "settings": {"host": "phone.example", "scheme": "verus:ratio=2"},
        "measured": None,
        "seeds": [1],
        "channels": [
            {"name": entry["trace"], "kind": "live", "duration_s": 4.0, "mean_mbps": None, "sha256": None}
            for entry in runs
        ],
        "runs": [
            {**{name: entry[name] for name in ("trace", "queue", "scheme", "label")}, "scenario": {}} for entry in runs
        ],
        "machine": {"kernel": "Linux 6.1", "cpu": None, "cores": 4, "python": None},
        "files": ["profile.jsonl", "results.jsonl", "run.json", "series.jsonl"],
    }


def put(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in rows))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run both ways, two flows up and one down, as the client writes it."""
    place = tmp_path / "measured"
    place.mkdir()
    rows = [row(0, "up", 2), row(1, "down", 1)]
    put(place / "results.jsonl", rows)
    put(place / "series.jsonl", series(0, "up", 0) + series(0, "up", 1) + series(1, "down", 0))
    put(place / "profile.jsonl", profile(0, "up"))
    (place / "run.json").write_text(json.dumps(config(rows)))
    return place


def test_a_probe_has_the_columns_of_a_comparison(folder: Path) -> None:
    results = Results.read(folder)
    assert results.live
    assert [entry["trace"] for entry in results.to_rows()] == ["phone.example up", "phone.example down"]
    assert tuple(results.to_rows()[0]) == ROW_FIELDS
    assert results.to_rows()[0]["params"] == {"ratio": 2}
    assert results.to_rows()[0]["per_flow"][1]["throughput_mbps"] == 3.0
    assert results.series.num_rows == 120
    assert results.series.column("capacity_mbps").null_count == 120


def test_the_page_of_a_probe_shows_what_was_seen_and_a_dash_for_the_rest(folder: Path, verus: Command) -> None:
    ran = verus("report", folder)
    assert (ran.code, ran.err) == (0, f"Report: {folder / 'report.html'}\n")
    page = (folder / "report.html").read_text()
    words = re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.S)
    assert "Verus: a live path" in words
    assert "one-way delay" in words
    assert "live path cannot be observed" in words
    assert "Verus R=2 over phone.example up, phone.example down." in words
    assert "omniscient" not in page[page.index("const figures") :]
    for absent in ("omniscient", "NaN", "None", "null", "nan", "Simulated", "give the same numbers"):
        assert absent not in words, absent
    (table,) = re.findall(r"<table><caption><b>phone.example down</b>.*?</table>", words)
    frames = ["4.000", "4.000", "4.000", "4"]  # completion times: mean, p95, p99; how many were late
    assert re.findall(r"<td>([^<]*)</td>", table) == ["4.00", "4.0", "4.0", "4.0", "4.0", "4.0", "400.0", *frames]
    names = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert names == {
        "delay-throughput",
        "series-phone.example-up",
        "flows-phone.example-up",
        "series-phone.example-down",
        "delay-profile",
    }


SCRIPT = "</script><script>PWN()</script><img src=x onerror=PWN()>'\"+PWN()+'../../../x"


def poisoned(value: Any, key: str = "") -> Any:
    """The same with a script at the end of every text that a peer may choose."""
    if isinstance(value, dict):
        return {name: poisoned(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [poisoned(each, key) for each in value]
    chosen = ("trace", "label", "queue", "name", "host", "version", "created", "cpu", "kernel")
    return value + SCRIPT if isinstance(value, str) and key in chosen else value


def test_texts_of_a_strangers_run_are_no_markup_and_lead_nowhere(folder: Path, verus: Command) -> None:
    for name in ("results.jsonl", "series.jsonl", "profile.jsonl"):
        put(folder / name, [poisoned(json.loads(line)) for line in (folder / name).read_text().splitlines()])
    (folder / "run.json").write_text(json.dumps(poisoned(json.loads((folder / "run.json").read_text()))))
    beside = set(folder.parent.rglob("*")) - set(folder.rglob("*"))
    ran = verus("report", folder)
    assert ran.code == 0, ran.err
    page = (folder / "report.html").read_text()
    assert "PWN" in page
    drawn = [path.read_text() for path in folder.rglob("*.svg")]
    assert len(drawn) > 3
    for text in (page, *drawn):
        for markup in ("<script>PWN", "<img src=x", "</script><script>"):
            assert markup not in text
    assert set(folder.parent.rglob("*")) - set(folder.rglob("*")) == beside


def test_a_test_that_was_cut_and_one_that_a_server_limited_are_read_and_marked(folder: Path, verus: Command) -> None:
    rows = [{**row(0, "up", 2), "cut": True, "server_limit_mbps": None}, {**row(1, "down", 1), "cut": False}]
    put(folder / "results.jsonl", rows)
    assert verus("report", folder).code == 0
    labels = [cell.label for block in blocks(Results.read(folder)) for cell in block.cells]
    assert labels == ["Verus R=2 (cut)", "Verus R=2"]
    put(folder / "results.jsonl", [{**rows[0], "cut": 1}, rows[1]])
    ran = verus("report", folder)
    assert ran.code == 2
    assert "line 1: `cut` must be true or false, not 1" in ran.err


def test_no_figure_of_a_probe_draws_a_capacity(folder: Path) -> None:
    for figure in saved_run.page_for(Results.read(folder)).figures():
        text = json.dumps(figure.spec, allow_nan=False)
        assert '"values": [{"t": []' not in text
        assert '"capacity": [' not in text, figure.name
        assert '"omniscient"' not in text, figure.name
        assert "apacity" not in figure.caption, figure.name


def test_a_probe_in_which_nothing_arrived_still_has_a_page(folder: Path, verus: Command) -> None:
    empty = {**row(0, "up", 1), **dict.fromkeys(NUMBERS), "throughput_mbps": 0.0, "goodput_mbps": 0.0}
    put(folder / "results.jsonl", [empty])
    put(folder / "series.jsonl", [])
    put(folder / "profile.jsonl", [])
    (folder / "run.json").write_text(json.dumps(config([empty])))
    assert verus("report", folder).code == 0
    assert blocks(Results.read(folder))[0].capacity_mbps is None


def recorded(folder: Path) -> dict[str, Any]:
    """Makes the run a recording; returns its `run.json`."""
    direction: dict[str, Any] = {
        **{"trace": "up.trace", "limited_by": "path_queue"},
        **{"mean_mbps": 7.5, "duration_s": 30.0, "sent": 20_000, "lost": 3, "untimed": 1, "queued_share": 0.995},
        "bursts": {"burst_bytes": [[1500, 90], [3000, 10]], "gap_ms": [[1, 60], [7, 39]]},
        "stretch": [[0.0, 1400], [0.0, 1400], [3.5, 120]],
        "series": {"bin_s": 0.1, "rate_mbps": [7.0, 0.0, 8.0], "delay_ms": [500.0, None, 510.5]},
    }
    clocks = {"offset_ms": 12.5, "offset_error_ms": 20.1, "drift_ppm": 1.5, "drift_error_ppm": 3.0}
    run = json.loads((folder / "run.json").read_text())
    run["kind"] = "recording"
    run["recording"] = {
        "mode": "saturate",
        "clocks": {**clocks, "base_rtt_ms": 40.2, "scatter_ms": 0.1},
        "ways": {"up": direction, "down": {**json.loads(json.dumps(direction)), "mean_mbps": 16.25}},
    }
    (folder / "run.json").write_text(json.dumps(run))
    return run


def test_the_page_of_a_recording_shows_bursts_rates_and_clocks(folder: Path, verus: Command) -> None:
    recorded(folder)
    ran = verus("report", folder)
    assert (ran.code, ran.err) == (0, f"Report: {folder / 'report.html'}\n")
    words = re.sub(r"<(script|style)>.*?</\1>", "", (folder / "report.html").read_text(), flags=re.S)
    assert "Verus: a recorded channel" in words
    assert "Down: limited by the path, where packets queued, so what arrived is what it carries." in words
    (table,) = re.findall(r"<table><caption>What arrived.*?</table>", words)
    down, up = re.findall(r"<tr><th scope=row>.*?</tr>", table)
    assert re.findall(r"<td>([^<]*)</td>", down) == [
        *["16.25", "30.0", "20000", "3", "1", "99.5"],
        "the path, where packets queued",
    ]
    assert re.findall(r"<td>([^<]*)</td>", up)[0] == "7.50"
    assert "One-way delays are known to ± 20.100 ms" in words
    assert "1.50 ± 3.00 millionths" in words
    names = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert names == {"arrivals", "bursts", "recorded"}


@pytest.mark.parametrize(
    ("limit", "share", "said"),
    [
        ("server_limit", 0.0, "Up: limited by the rate that the server grants a test (--max-mbps there)."),
        ("own_rate", 0.1, "Up: limited by the constant rate of the load (--rate-mbps)."),
        ("own_silence", 0.9, "Up: limited by this end, which did not run for a while: it was stopped, asleep or busy."),
        ("ends", 0.2, "Up: limited by the two ends, which were no faster."),
        ("path_queue", 0.6, "Up: limited by the path, where packets queued, 60 % of the time. In the rest it may have"),
    ],
)
def test_what_the_path_did_not_bound_is_called_no_channel(limit: str, share: float, said: str, folder: Path) -> None:
    run = recorded(folder)
    direction = {"limited_by": limit, "queued_share": share, "trace": "up-it.trace"}
    run["recording"]["ways"]["up"].update(direction)
    (folder / "run.json").write_text(json.dumps(run))
    page = saved_run.page_for(Results.read(folder))
    assert said in page.lead
    no_channel = "`up-it.trace` is not what the path carries, and no channel." in page.lead
    assert no_channel == (limit != "path_queue")
    assert ("a recorded channel" in page.title) != no_channel


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        (("recording", "ways", "up", "limited_by"), "x", "`recording.ways.up.limited_by` must be one of path_queue, "),
        (("recording",), None, "`recording` is missing"),
        (("recording", "ways"), {}, "`recording.ways` must tell of `up` or `down`"),
        (("recording", "clocks", "drift_ppm"), "x", "`recording.clocks.drift_ppm` must be a number"),
        (("recording", "ways", "up", "lost"), -1, "`recording.ways.up.lost` must be a whole number"),
        (
            ("recording", "ways", "up", "bursts", "gap_ms"),
            [[0, 5]],
            "`recording.ways.up.bursts.gap_ms` must hold pairs",
        ),
        (("recording", "ways", "up", "stretch"), [[1.0]], "`recording.ways.up.stretch` must hold pairs"),
    ],
)
def test_a_damaged_recording_is_refused(
    place: tuple[str, ...], value: Any, complaint: str, folder: Path, verus: Command
) -> None:
    run = recorded(folder)
    inner = run
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    (folder / "run.json").write_text(json.dumps(run))
    ran = verus("report", folder)
    assert ran.code == 2
    assert complaint in ran.err, ran.err
    assert not (folder / "report.html").exists()


def damage(path: Path, line: int, change: Callable[[str], str]) -> None:
    lines = path.read_text().splitlines(keepends=True)
    lines[line - 1] = change(lines[line - 1])
    path.write_text("".join(lines))


def with_value(name: str, value: Any) -> Callable[[str], str]:
    return lambda line: json.dumps({**json.loads(line), name: value}) + "\n"


def without(name: str) -> Callable[[str], str]:
    return lambda line: json.dumps({k: v for k, v in json.loads(line).items() if k != name}) + "\n"


@pytest.mark.parametrize(
    ("file", "line", "change", "complaint"),
    [
        ("series.jsonl", 7, lambda line: line[:30] + "\n", "not JSON"),
        ("series.jsonl", 120, lambda line: line[:-40], "not JSON"),
        ("series.jsonl", 2, lambda _: "x\n", "not JSON (Expecting value at character 1)"),
        ("series.jsonl", 2, lambda _: "[1]\n", "not a JSON object"),
        ("series.jsonl", 2, lambda _: "[" * 100_000, "nested too deeply"),
        ("series.jsonl", 3, without("time_s"), "`time_s` is missing"),
        ("series.jsonl", 3, with_value("time_s", "3"), '`time_s` must be a number, not "3"'),
        ("series.jsonl", 3, with_value("time_s", True), "`time_s` must be a number, not true"),
        ("series.jsonl", 3, lambda line: line.replace("14000.0", "NaN"), "NaN is not JSON"),
        ("series.jsonl", 3, lambda line: line.replace("14000.0", "1e999"), "must be a number, not Infinity"),
        ("series.jsonl", 3, lambda line: line.replace("14000.0", "1" + "0" * 400), "must be a number, not 1000"),
        ("series.jsonl", 3, with_value("flow", 1.5), "`flow` must be a whole number from 0 to 2147483647, not 1.5"),
        ("series.jsonl", 3, with_value("flow", 2**31), "`flow` must be a whole number"),
        ("series.jsonl", 9, with_value("run", 2), "there is no run 2 in `results.jsonl`"),
        ("series.jsonl", 9, with_value("note", "hello"), '`note` must be a number, not "hello"'),
        ("profile.jsonl", 5, with_value("kind", None), "`kind` is missing"),
        ("profile.jsonl", 5, with_value("kind", 4), "`kind` must be text, not 4"),
        ("results.jsonl", 2, with_value("params", None), "`params` must be a JSON object"),
        ("results.jsonl", 2, with_value("schema", 2), "schema 2 is not one that this version reads (it reads 1)"),
        ("results.jsonl", 2, with_value("run", 0), "`run` must be 1, not 0"),
        ("results.jsonl", 1, with_value("per_flow", {}), "`per_flow` must be a list, not {}"),
        ("results.jsonl", 1, with_value("per_flow", [3]), "`per_flow[0]` must be an object, not 3"),
        ("results.jsonl", 1, with_value("per_flow", [{"loss_rate": "x"}]), "`per_flow[0].loss_rate` must be a number"),
    ],
)
def test_a_damaged_line_is_named(
    file: str, line: int, change: Callable[[str], str], complaint: str, folder: Path, verus: Command
) -> None:
    damage(folder / file, line, change)
    ran = verus("report", folder)
    assert ran.code == 2
    assert ran.err.startswith(f"verus: `{folder / file}`, line {line}: "), ran.err
    assert complaint in ran.err
    assert ran.err.count("\n") == 1
    assert len(ran.err) < 400
    assert not (folder / "report.html").exists()


def test_text_in_another_encoding_is_refused_by_line(folder: Path, verus: Command) -> None:
    path = folder / "profile.jsonl"
    path.write_bytes(path.read_bytes() + b'{"label": "caf\xe9"}\n')
    ran = verus("report", folder)
    assert (ran.code, ran.err) == (2, f"verus: `{path}`, line 37: not UTF-8 (byte 15)\n")


def test_files_that_do_not_fit_together_are_refused(folder: Path, verus: Command) -> None:
    put(folder / "results.jsonl", [row(0, "up", 2)])
    assert "it has 1 line, and `run.json` tells of 2 runs" in verus("report", folder).err
    (folder / "series.jsonl").unlink()
    put(folder / "results.jsonl", [row(0, "up", 2), row(1, "down", 1)])
    assert verus("report", folder).err == f"verus: `{folder / 'series.jsonl'}`: No such file or directory\n"


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("kind", 7, "it states no kind"),
        ("seeds", 7, "`seeds` must be a list, not 7"),
        ("seeds", ["x"], '`seeds[0]` must be a whole number from 0 to 9223372036854775807, not "x"'),
        ("runs", None, "`runs` is missing"),
        ("runs", [7], "`runs[0]` must be an object, not 7"),
        ("machine", {"cpu": "x"}, "`machine.kernel` is missing"),
        ("channels", [{"kind": "live"}], "`channels[0].name` is missing"),
        ("settings", [], "`settings` must be an object, not []"),
        ("version", 7, "`version` must be text, not 7"),
        ("created", None, "`created` is missing"),
    ],
)
def test_a_damaged_run_json_is_refused(name: str, value: Any, complaint: str, folder: Path, verus: Command) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    ran = verus("report", folder)
    assert ran.code == 2
    assert ran.err == f"verus: `{path}`: not a run.json: {complaint}\n"


def test_a_probe_cannot_be_run_again_by_compare(folder: Path, verus: Command) -> None:
    ran = verus("compare", "--from", folder / "run.json")
    assert ran.code == 2
    assert ran.err == f"verus: --from: `{folder / 'run.json'}` was made by `verus probe`: run that again instead\n"


@pytest.fixture
def shell_folder(folder: Path) -> Path:
    """Logs of `verus shell`: the link's capacity is known, the endpoints are not observed."""
    ends = ("goodput_mbps", "rtt_mean_ms", "rtt_p95_ms", "retransmit_rate", "power")
    metrics = {"capacity_mbps": 6.0, "utilization": 0.5, "signal_delay_p95_ms": 9.0, "delay_ms": 20.0}
    rows = [
        {
            **row(run, direction, 1),
            **metrics,
            **dict.fromkeys(ends),
            "engine": "emulated",
            "transport": "any",
            "label": "curl",
        }
        for run, direction in enumerate(("up", "down"))
    ]
    unseen = {"window_bytes": None, "rtt_ms": None, "lost": None, "capacity_mbps": 6.0, "label": "curl"}
    put(folder / "results.jsonl", rows)
    put(folder / "series.jsonl", [{**entry, **unseen} for entry in series(0, "up", 0) + series(1, "down", 0)])
    put(folder / "profile.jsonl", [])
    timing = {
        **{"deliveries": 8000, "lateness_p50_ms": 0.046, "lateness_p99_ms": 0.113, "lateness_max_ms": 4.703},
        **{"missed_bytes": 5419, "device_losses": 3, "valid": False},
    }
    (folder / "run.json").write_text(json.dumps({**config(rows), "kind": "shell", "timing": timing}))
    return folder


def test_the_page_of_a_shell_has_capacity_and_the_emulators_own_timing(shell_folder: Path, verus: Command) -> None:
    results = Results.read(shell_folder)
    assert results.emulated
    assert not results.live
    assert verus("report", shell_folder).code == 0
    page = (shell_folder / "report.html").read_text()
    words = re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.S)
    for word in ("Verus: a program behind a link", "Emulated in real time", "omniscient", "0.113 ms", "4.703 ms"):
        assert word in words, word
    assert "no: the run is invalid" in words
    for absent in ("NaN", "None", "nan", "Simulated", "acknowledgements", "give the same numbers", "live path"):
        assert absent not in words, absent
    assert "window, kB" not in page[page.index("const figures") :]
