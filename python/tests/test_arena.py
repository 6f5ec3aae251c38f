"""Every sender beside every other: order by dominance, runs, repeatability of the short form."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from markupsafe import escape

from verus import _verus, papers
from verus.lab.results import Results
from verus.papers.experiment import Options
from verus.papers.own import ablation, arena
from verus.papers.own.arena import field
from verus.papers.own.arena.questions import QUESTIONS
from verus.papers.own.arena.results import ArenaResults
from verus.papers.own.dominance import Point, dominates, order
from verus.papers.recordings import MissingRecordings
from verus.papers.reproduction import columns_for
from verus.saved_run import page_for

from .conftest import tables

Command = Callable[..., Any]


def points(*pairs: tuple[float, float]) -> list[Point]:
    return [Point(*pair) for pair in pairs]


def test_less_delay_at_the_same_throughput_dominates() -> None:
    short, long = points((10, 50), (8, 70), (9, 60)), points((10, 90), (8, 130), (9, 115))
    assert dominates(short, long)
    assert not dominates(long, short)


def test_who_is_better_on_one_axis_and_worse_on_the_other_dominates_nobody() -> None:
    fast, prompt = points((10, 90), (8, 120), (9, 110)), points((9, 50), (7, 70), (8, 60))
    assert not dominates(fast, prompt)
    assert not dominates(prompt, fast)


def test_a_difference_within_the_margins_is_none() -> None:
    one, other = points((10, 50), (8, 70), (9, 60)), points((10.05, 52), (8.04, 73), (9.05, 62))
    assert not dominates(one, other)
    assert not dominates(other, one)


def test_a_difference_within_the_interval_is_none() -> None:
    steady, now_this_now_that = points((10, 50), (8, 50), (9, 50)), points((10, 20), (8, 400), (9, 90))
    assert not dominates(steady, now_this_now_that)
    assert not dominates(now_this_now_that, steady)


def test_stretches_are_compared_with_themselves() -> None:
    # Stretches differ by far more than the senders, which differ alike on each.
    candidate = points((10, 10), (1, 1000), (5, 100))
    other = points((10, 12), (1, 1200), (5, 120))
    assert dominates(candidate, other)


def test_who_delivers_nothing_is_dominated() -> None:
    assert dominates(points((1, 50), (2, 60)), [Point(0.0, None), Point(0.0, None)])


def test_the_order_is_by_how_often_one_is_dominated() -> None:
    good, bad = points((10, 50), (9, 52)), points((10, 500), (9, 520))
    standings = order({"a": {"X": good, "Y": bad, "Z": bad}, "b": {"X": good, "Y": good, "Z": bad}})
    assert [one.sender for one in standings] == ["X", "Y", "Z"]
    assert [len(one.beaten) for one in standings] == [0, 1, 2]
    assert standings[2].beaten == {"a": ["X"], "b": ["X", "Y"]}
    assert standings[0].beats == {"a": ["Y", "Z"], "b": ["Z"]}


def test_everyone_that_sends_takes_part() -> None:
    listed = {name for name in map(_name, _schemes()) if name not in ("model", "saturate", "constant")}
    assert {scheme.partition(":")[0] for scheme in field.SENDERS.values()} == listed


def _schemes() -> list[dict[str, Any]]:
    schemes: list[dict[str, Any]] = _verus.list_schemes()
    return schemes


def _name(scheme: dict[str, Any]) -> str:
    return str(scheme["name"])


def test_those_who_may_ask_for_marks_do_so_where_there_are_marks() -> None:
    able = {_name(scheme) for scheme in _schemes() if any(key["key"] == "ecn" for key in scheme["keys"])}
    columns, _ = columns_for("arena", field.places(field.FULL), Options(built_in=True))
    alone = [run for run in field.runs(columns[0], field.FULL) if "|alone|" in run.part]
    assert len(alone) == len(field.CHANNELS) * len(field.QUEUES) * len(field.SENDERS) * field.FULL.stretches
    for run in alone:
        marks = any(f"|{queue}|" in run.part for queue in field.MARKING)
        asks = "ecn=yes" in run.scenario["flows"][0]["scheme"]
        assert asks == (marks and run.contestant.scheme in able)


def test_recordings_are_read_in_stretches_that_do_not_overlap() -> None:
    for size in (field.FULL, field.SHORT):
        places = field.places(size)
        for channel in size.channels:
            names = [field.stretch(channel, number) for number in range(1, size.stretches + 1)]
            spans = [places[name].recording.partition("[")[2].rstrip("]").split(":") for name in names]
            assert [float(end) for _, end in spans[:-1]] == [float(start) for start, _ in spans[1:]]
            assert float(spans[-1][1]) <= field.RECORDED_S
            assert len({places[name].built_in for name in names}) == size.stretches


@pytest.fixture(scope="module")
def short() -> Results:
    return field.prepare(Options(built_in=True, short=True))(None)


def test_the_short_form_is_the_same_twice(short: Results) -> None:
    again = field.prepare(Options(built_in=True, short=True))(None)
    assert arena.csv(again) == arena.csv(short)
    assert arena.to_markdown(again) == arena.to_markdown(short)
    assert [figure.spec for figure in arena.page(again).figures()] == [
        figure.spec for figure in arena.page(short).figures()
    ]


def test_each_question_has_a_table_with_everyone_and_a_chart(short: Results) -> None:
    page = page_for(short)
    assert [section.title for section in page.sections] == [question.title for question in QUESTIONS]
    for section, (_, grid) in zip(page.sections, arena.tables(short), strict=True):
        assert len(section.figures) == 1
        assert {row[0] for row in grid.rows} == set(field.SENDERS)
        assert all(len(row) == len(grid.heads) for row in grid.rows)
        assert all(escape(cell) in section.body for cell in grid.rows[0])


def test_the_page_says_which_channels_were_used(short: Results) -> None:
    assert "(built-in)" in arena.lead(short)
    assert "Recordings were left out, as asked." in arena.lead(short)
    assert "the short form" in arena.lead(short)


def test_the_order_of_the_table_is_that_of_dominance(short: Results) -> None:
    results = ArenaResults(short)
    (grid,) = (grid for question, grid in arena.tables(short) if question.name == "order")
    assert [row[0] for row in grid.rows] == [one.sender for one in results.standings()]
    dominated = [int(str(row[1])) for row in grid.rows]
    assert dominated == sorted(dominated)


def test_what_is_known_of_senders_comes_out(short: Results) -> None:
    rows = list(csv.DictReader(io.StringIO(arena.csv(short))))
    cells = {(row["question"], row["sender"], row["column"]): row["found"] for row in rows}

    def first(question: str, sender: str, column: str) -> float:
        return float(cells[question, sender, column].partition(" ")[0])

    # Losses by chance halve NewReno's window again and again, and BBR version 1 does not heed them.
    assert first("loss", "NewReno", "2 % lost") < 30 < 90 < first("loss", "BBR v1", "2 % lost")
    # Cubic fills the deep queue, from which LEDBAT++ retires.
    assert first("company", "LEDBAT++", "beside Cubic, deep") < 0.3


MINE = """
import verus

class Mine(verus.Controller):
    def on_start(self, now_s, packet_bytes):
        self.window_bytes = 20 * packet_bytes

    def on_feedback(self, feedback): ...
    def on_timeout(self, timeout): ...
"""


def test_a_sender_of_ones_own_takes_part_in_every_question(
    verus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    scheme = f"{tmp_path}/mine.py:Mine"
    size = field.Size(("campus 3G up",), (field.BLOATED,), stretches=2, stretch_s=2.0, seeds=2, shared_s=3.0)
    monkeypatch.setattr(field, "SHORT", size)
    results = field.prepare(Options(built_in=True, short=True, schemes=(scheme, "cubic", "verus:ratio=4")))(None)
    for _, grid in arena.tables(results):
        assert {row[0] for row in grid.rows} == {*field.SENDERS, "Mine", "cubic", "Verus R=4"}
    assert f"{len(field.SENDERS) + 3} senders over" in arena.lead(results)
    assert all("Mine" in section.body for section in page_for(results).sections)
    ran = verus("reproduce", "arena", "--short", "--built-in", "--scheme", "mine.py:Mien")
    assert ran.code == 2
    assert "`mine.py` has no class `Mien`" in ran.err
    ran = verus("reproduce", "calibration", "--built-in", "--scheme", "mine.py:Mine")
    assert (ran.code, ran.err) == (
        2,
        "verus: --scheme: `calibration` runs what its source ran; `arena` takes others beside its own\n",
    )


def test_only_what_has_a_short_form_takes_the_option(verus: Command) -> None:
    ran = verus("reproduce", "calibration", "--short", "--built-in")
    assert ran.code == 2
    assert "--short: `calibration` has no short form" in ran.err


def test_more_stretches_than_recordings_have_are_refused(verus: Command) -> None:
    ran = verus("reproduce", "arena", "--repeat", "9", "--built-in")
    assert ran.code == 2
    assert "at most 4" in ran.err


@pytest.mark.parametrize("module", [field, ablation])
def test_without_recordings_it_runs_on_built_in_channels(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VERUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("VERUS_TRACES", raising=False)
    monkeypatch.setattr(module, "run_all", lambda *_, **__: [])
    monkeypatch.setattr(ablation, "order_on", lambda _: list(ablation.PARTS))
    monkeypatch.setattr(module.Results, "collect", lambda runs, _, *, settings, **__: (runs, settings))
    planned, settings = module.prepare(Options())(None)
    assert settings["channels"] == "built-in"
    assert settings["missing"].startswith("Built-in channels only: not on this machine: ")
    assert not any("/" in run.scenario["trace"] for run in planned)
    # With an explicit folder, recordings are required.
    for said in (Options(traces=tmp_path), Options()):
        if said.traces is None:
            monkeypatch.setenv("VERUS_TRACES", str(tmp_path))
        with pytest.raises(MissingRecordings):
            module.prepare(said)


def test_the_ablation_says_that_it_ran_without_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "tables", lambda _: {})
    results: Any = SimpleNamespace(config={"settings": {"missing": "Built-in channels only: none."}})
    assert ablation.summary(results) == [
        "Built-in channels only: none.",
        "These are some of the columns; the page has all of them.",
    ]
    assert ablation.page(results).lead.endswith("Built-in channels only: none.")


def test_all_does_without() -> None:
    assert "arena" in papers.NAMES
    assert "arena" not in papers.ALL


def test_the_page_has_a_table_for_each_question_and_a_row_for_each_sender() -> None:
    questions = {heads[0]: [row[0] for row in rows] for heads, *rows in tables("arena.md")}
    assert [name for name in questions if name in {question.name for question in QUESTIONS}] == [
        question.name for question in QUESTIONS
    ]
    for question in QUESTIONS:
        assert set(questions[question.name]) == set(field.SENDERS), question.name
