"""The table of a comparison: what mixes show of their schemes, and the same as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verus.commands import tables
from verus.lab import results
from verus.lab.scenario import Contestant, Settings
from verus.report import table
from verus.report.style import looks
from verus.report.summary import Cell, blocks_of

Command = Callable[..., Any]

MIX = ("compare", "--trace", "rate:8", "--mix", "verus:ratio=2*2+cubic", "--duration", "5", "--out", "here")


def test_a_mix_of_one_scheme_is_as_many_flows_of_it() -> None:
    mix = Contestant.from_mix("verus*4")
    alone = Contestant.from_scheme("verus", flows=4)
    assert (mix.label, mix.scheme, mix.flows) == (alone.label, alone.scheme, alone.flows)


def test_a_mix_of_one_scheme_is_counted_once(verus: Command) -> None:
    out = verus("compare", "--trace", "rate:8", "--mix", "verus*4", "--duration", "1", "--out", "here").out
    assert "4 × Verus R=2" in out
    assert "4 × 4" not in out


def test_below_a_mix_stands_what_each_scheme_got(verus: Command) -> None:
    output = verus(*MIX, "--format", "csv").out
    whole, ours, theirs = csv.DictReader(io.StringIO(output))
    assert [row["scheme"] for row in (whole, ours, theirs)] == [
        "2 Verus R=2 + Cubic",
        "2 Verus R=2 + Cubic: verus:ratio=2",
        "2 Verus R=2 + Cubic: cubic",
    ]
    assert [row["flows"] for row in (whole, ours, theirs)] == ["3", "2", "1"]
    rates = [float(row["throughput_mbps"]) for row in (whole, ours, theirs)]
    assert rates[0] == pytest.approx(rates[1] + rates[2])
    assert float(theirs["utilization"]) == pytest.approx(rates[2] / 8)
    assert verus("report", "here").code == 0
    assert "verus:ratio=2" in verus("compare", "--from", "here/run.json", "--out", "there").out


def test_several_flows_show_the_least_and_the_most_of_each_group(verus: Command) -> None:
    words = ("compare", "--trace", "rate:8", "--duration", "8", "--force", "--out", "here")
    mix = (*words, "--mix", "forward*2+constant:rate_mbps=1+newreno*2")
    (row,) = [json.loads(line) for line in verus(*mix, "--json").out.splitlines()]
    rates = [flow["throughput_mbps"] for flow in row["per_flow"]]
    assert (row["flow_min_mbps"], row["flow_max_mbps"]) == (min(rates), max(rates))

    groups = (rates, rates[:2], rates[2:3], rates[3:])
    csv_rows = list(csv.DictReader(io.StringIO(verus(*mix, "--format", "csv").out)))
    ranges = [(float(row["flow_min_mbps"]), float(row["flow_max_mbps"])) for row in csv_rows]
    assert ranges == [(pytest.approx(min(group)), pytest.approx(max(group))) for group in groups]

    spans = [table.span(min(group), max(group)) for group in groups]
    assert len(set(spans)) == len(spans)
    terminal, markdown, latex = verus(*mix).out, *(verus(*mix, "--format", kind).out for kind in ("markdown", "latex"))
    for one in spans:
        assert f" {one} " in terminal
        assert f"| {one} |" in markdown
        assert f"& {one.replace('–', '--')} &" in latex
    assert verus("report", "here").code == 0
    page = Path("here", "report.html").read_text()
    assert "least flow<br>Mbit/s" in page
    for group in groups:
        assert f"<td>{min(group):.2f}</td><td>{max(group):.2f}</td>" in page
    (mean,) = json.loads(Path("here", "run.json").read_text())["means"]
    assert mean["flow_min_mbps"]["mean"] == pytest.approx(min(rates))

    alone = verus(*words, "--scheme", "cubic", "--flows", "2")
    assert "each flow" in alone.out
    assert "each flow" not in verus(*words, "--scheme", "cubic").out


def test_a_starving_twin_shows_in_the_mean_over_seeds() -> None:
    """A different flow starves in each run, so means of single flows would hide it."""
    shares = [(0.2, 3.8), (3.8, 0.2)]
    rows = [
        {
            "trace": "rate:4",
            "queue": "infinite",
            "label": "2",
            "scheme": "x",
            "params": "{}",
            "flows": 3,
            "run": run,
            "capacity_mbps": 4.0,
            "per_flow": [
                *({"scheme": "x", "throughput_mbps": share} for share in pair),
                {"scheme": "y", "throughput_mbps": 1.0},
            ],
        }
        for run, pair in enumerate(shares)
    ]
    (block,) = blocks_of(rows)
    ours, theirs = block.cells[0].parts
    assert (ours["throughput_mbps"], ours["flow_min_mbps"], ours["flow_max_mbps"]) == (4.0, 0.2, 3.8)
    assert (theirs["flow_min_mbps"], theirs["flow_max_mbps"]) == (1.0, 1.0)


def test_the_table_of_a_mix_fits_a_terminal_of_80_columns(verus: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_WIDE", 80)
    shown = verus(*MIX, "--mix", "verus:ratio=2*2+cubic*2+newreno", "--force").out
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_formats_have_the_numbers_of_the_terminal(verus: Command) -> None:
    shown = verus(*MIX).out
    (row,) = [line for line in shown.splitlines() if line.lstrip().startswith("2 Verus")]
    numbers = row.split("Cubic")[1].split()
    markdown = verus(*MIX, "--force", "--format", "markdown").out
    assert f"| 2 Verus R=2 + Cubic | {' | '.join(numbers)} |" in markdown
    latex = verus(*MIX, "--force", "--format", "latex").out
    assert f"2 Verus R=2 + Cubic & {' & '.join(numbers).replace('–', '--')} \\\\" in latex
    assert r"2 $\times$ verus:ratio=2" in latex


def test_flows_are_refused_where_only_a_mix_has_them(verus: Command) -> None:
    ran = verus("compare", "--mix", "verus*2+cubic", "--flows", "3", "--json")
    assert (ran.code, ran.out) == (2, "")


def test_several_values_of_a_key_are_several_contestants() -> None:
    settings = Settings(traces=["rate:5"], schemes=["verus:ratio=2..4", "cubic", "verus:ratio=2,6"])
    assert [entry.text for entry in settings.contestants()] == [
        "verus:ratio=2",
        "verus:ratio=3",
        "verus:ratio=4",
        "cubic",
        "verus:ratio=6",
    ]
    queues = Settings(traces=["rate:5"], schemes=["cubic"], queues=["droptail:packets=10,20"]).runs()
    assert [run.queue for run in queues] == ["droptail:packets=10", "droptail:packets=20"]


def test_units_are_the_numbers_that_they_stand_for(verus: Command) -> None:
    rows = {
        verus("compare", "--trace", "rate:5", "--scheme", "cubic", "--json", *words).out
        for words in (
            ("--duration", "1", "--delay-ms", "30", "--loss", "0.005", "--packet-bytes", "1200"),
            ("--duration", "1000ms", "--delay", "0.03s", "--loss", "0.5%", "--packet-bytes", "1.2kB"),
        )
    }
    assert len(rows) == 1
    assert rows != {""}


def cell(label: str, scheme: str, **params: Any) -> Cell:
    return Cell(label=label, scheme=scheme, params=params, flows=1, runs=(0,), means={}, halves={})


def test_no_two_contestants_look_alike() -> None:
    many = [cell(f"Verus R={ratio}", "verus", ratio=ratio) for ratio in range(2, 14)]
    many += [cell("paper", "verus", ratio=2, mode="paper"), cell("slow", "verus", ratio=2, epoch_ms=20)]
    many += [cell(f"own {index}", f"own-{index}") for index in range(12)]
    many += [cell("cubic", "cubic"), cell("cubic, no hystart", "cubic", hystart="none")]
    chosen = looks(many)
    assert len(set(chosen.values())) == len(many)


def test_a_rate_with_a_slash_keeps_its_name(verus: Command) -> None:
    ran = verus("compare", "--trace", "rate:12Mbit/s", "--scheme", "cubic", "--duration", "1", "--out", "here")
    assert ran.out.startswith("rate:12Mbit/s  ·")


def test_no_table_is_cut_where_it_is_read_by_a_program(verus: Command) -> None:
    scheme = "x" * 90
    label = "y" * 200
    console = tables.table_console()
    with console.capture() as captured:
        made = tables.narrow_table("name", "number", whole=2)
        made.add_row(label, scheme)
        console.print(made)
    printed = captured.get()
    assert label in printed
    assert scheme in printed
    assert "…" not in printed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--delay", "10"], "20 ms"),
        (["--netem", "delay 20ms rate 5mbit"], "20 ms"),
        (["--ack-delay", "300"], "320 ms"),
        (["--delay-series", "delays"], "recorded"),
        (["--light-trace", "light", "--packet-bytes", "1400"], "recorded"),
    ],
    ids=" ".join,
)
def test_the_heading_has_the_delay_of_both_ways(options: list[str], said: str, verus: Command, tmp_path: Path) -> None:
    (tmp_path / "delays").write_text("30\n" * 50)
    (tmp_path / "light").write_text("0 20 0 1 3\n1000 20 0 1 3\n2000 20 0\n")
    trace = [] if "--netem" in options else ["--trace", "rate:5"]
    ran = verus("compare", *trace, *options, "--scheme", "cubic", "--duration", "1", "--out", "here")
    assert f"  ·  base RTT {said}  ·  1 s" in ran.out, ran.err
    assert results.Results.read(tmp_path / "here").base_rtt([0]) == said


def test_a_delay_beside_recorded_delays_is_refused(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "delays").write_text("30\n" * 50)
    ran = verus("compare", "--trace", "rate:5", "--delay", "70", "--delay-series", "delays", "--duration", "1")
    assert ran.code == 2
    assert "--delay-ms: must be left out beside --delay-series, not 70" in ran.err
