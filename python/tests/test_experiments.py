"""Published results: their numbers, their set-up, and that they still come out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verus import papers
from verus.lab.results import Results
from verus.lab.runner import run_all
from verus.papers import claims
from verus.papers.claim_tables import verdict_text
from verus.papers.experiment import Options
from verus.papers.later import cs244
from verus.papers.overview import Overview
from verus.papers.recordings import find_recordings
from verus.papers.reproduction import Column, columns_for
from verus.papers.target import Check, verdict
from verus.report.wanted import Wanted

Command = Callable[..., Any]


def column(name: str, options: Options) -> Column:
    columns, _ = columns_for("cs244", {**cs244.CHANNELS, **cs244.OTHER}, options)
    (found,) = [one for one in columns if one.name == name]
    return found


def test_both_columns_of_all_24_cells_ship() -> None:
    cells = cs244.published()
    assert len(cells) == 24
    assert all(set(columns) == {"report", "saved"} for columns in cells.values())
    assert cells["campus pedestrian", 2]["report"] == cs244.Published(1.36, 181)
    assert cells["T-Mobile LTE", None]["saved"].delay_ms == 296


def test_the_published_numbers_are_those_of_the_reference(shared: Path) -> None:
    lines = (shared / "reference" / "cs244-2017" / "published-results.csv").read_text().splitlines()[1:]
    places = {place.recording.rpartition("/")[2]: name for name, place in cs244.CHANNELS.items()}
    assert len(lines) == 48
    for line in lines:
        source, _, scheme, throughput, delay, trace, _ = line.split(",")
        ratio = None if scheme == "cubic" else int(scheme.removeprefix("verus-r"))
        cell = cs244.published()[places[trace], ratio]["report" if source == "report" else "saved"]
        assert (cell.throughput_mbps, cell.delay_ms) == (float(throughput), float(delay))


@pytest.mark.parametrize("place", cs244.AUTHORS)
@pytest.mark.parametrize(("what", "verus", "cubic"), [("throughput", 0.15, 0.10), ("delay", 0.35, 0.20)])
def test_the_claimed_ranges_are_the_published_columns_widened(
    place: str, what: str, verus: float, cubic: float
) -> None:
    claims_by_name = {claim.name: claim for claim in claims.of("cs244")}
    for ratio in (*cs244.RATIOS, None):
        columns = cs244.published()[place, ratio].values()
        values = [cell.throughput_mbps if what == "throughput" else cell.delay_ms for cell in columns]
        share = cubic if ratio is None else verus
        name = f"{cs244.AUTHORS[place]}-{'cubic' if ratio is None else f'r{ratio}'}-{what}"
        claimed_range = claims_by_name[name].range()
        assert claimed_range.least == pytest.approx(min(values) * (1 - share), rel=1e-3)
        assert claimed_range.most == pytest.approx(max(values) * (1 + share), rel=1e-3)


def test_the_set_up_is_that_of_2017() -> None:
    cells = [run for run in cs244.runs(column("built-in", Options(built_in=True))) if run.part.endswith("|cells")]
    assert len(cells) == 24
    for run in cells:
        verus = run.contestant.scheme == "verus"
        expected = {
            "queue": cs244.CS244_RED if verus else "droptail:bytes=120000",
            "packet_bytes": 1482 if verus else 1504,
            "opportunity_bytes": 1504,
            "ack": "same",
            "delay_ms": 20.0,
            "duration_s": 120.0,
        }
        assert {key: run.scenario[key] for key in expected} == expected
        assert run.scenario["ack_queue"] == run.scenario["queue"]
        assert len(run.scenario["flows"]) == 1
        assert not verus or run.contestant.params["mode"] == "prototype"


def test_the_matrix_is_every_scheme_on_every_queue_and_trace() -> None:
    runs = cs244.runs(column("built-in", Options(built_in=True)))
    matrix = [run for run in runs if run.part.endswith("|matrix")]
    assert len(matrix) == 9 * 3 * 6
    assert len({run.contestant.label for run in matrix}) == 9
    assert {run.scenario["packet_bytes"] for run in matrix} == {1504}


@pytest.fixture(scope="module")
def recorded(shared: Path) -> Column:
    return column("recordings", Options(traces=shared / "traces"))


def test_recordings_run_once_through(recorded: Column) -> None:
    assert not any(run.scenario["loop"] for run in cs244.runs(recorded))


def test_the_2017_claims_hold_on_the_recordings(recorded: Column) -> None:
    runs = [run for run in cs244.runs(recorded) if not run.part.endswith("|matrix")]
    settings = {"columns": {"recordings": {}}, "missing": ""}
    measured = {"recordings": cs244.compute(recorded)}
    results = Results.collect(runs, run_all(runs), kind="cs244", settings=settings, measured=measured)
    missed = {one.claim.name for one in cs244.EXPERIMENT.judged(results) if not one.holds}
    assert missed == set(claims.causes_of("cs244"))


def test_on_built_in_channels_nothing_is_checked(
    verus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cs244, "DURATION_S", 2.0)
    ran = verus("reproduce", "cs244", "--built-in", "--out", "here")
    assert ran.code == 0, ran.err
    assert "0 of 0 claims held" in ran.out
    assert "On one and the same queue" in ran.out
    config = json.loads((tmp_path / "here" / "run.json").read_text())
    assert config["kind"] == "cs244"
    assert len(config["runs"]) == 24 + 162 + 2
    page = (tmp_path / "here" / "report.html").read_text()
    assert "The same queue for everyone" in page


def test_missing_recordings_name_the_command_that_brings_them(verus: Command) -> None:
    ran = verus("reproduce", "cs244")
    assert ran.code == 2
    assert ran.err.count("verus trace fetch cs244") == 1


def test_a_recording_is_found_with_its_stretch(tmp_path: Path) -> None:
    (tmp_path / "cs244-2017").mkdir()
    file = tmp_path / "cs244-2017" / "camp_ped_2min"
    file.touch()
    name = "cs244-2017/camp_ped_2min"
    texts = [name, f"{name}[:60]", f"{name}[60:]+{name}"]
    assert find_recordings(texts, tmp_path) == {text: text.replace(name, str(file)) for text in texts}


#: How many claims the list had when it was fixed; it may grow.
LISTED = 401


def test_the_list_of_claims_never_shrinks() -> None:
    every = claims.everything()
    assert len(every) >= LISTED
    assert len({(claim.experiment, claim.name) for claim in every}) == len(every)
    assert all(claim.says and claim.metric and claim.figure for claim in every)
    for claim in every:
        assert claim.range()


@pytest.mark.parametrize("claim", claims.everything(), ids=lambda claim: f"{claim.experiment}-{claim.name}")
def test_no_claim_asks_for_less_than_the_rule_for_its_words(claim: claims.Claim) -> None:
    rule, wanted = Wanted.of(claims.RULES[claim.rule].wanted or claim.wanted), claim.range()
    # A ratio of the smallest to the mean, and a largest over a smallest, have one end only.
    if rule.least is not None:
        assert (wanted.least is not None and wanted.least >= rule.least) or wanted == Wanted(most=rule.most)
    if rule.most is not None:
        assert (wanted.most is not None and wanted.most <= rule.most) or wanted == Wanted(least=rule.least)
    if claim.rule in ("more", "less"):
        assert claim.wanted in {"more": (">1", ">0"), "less": ("<1",)}[claim.rule]


def test_every_rule_is_used() -> None:
    assert {claim.rule for claim in claims.everything()} == set(claims.RULES)


def test_channels_that_disagree_are_marked_and_counted() -> None:
    """Held on built-in channels by a value that recordings do not have."""
    built_in = {claim.name: 2.0 for claim in claims.of("sigcomm-fig15")}
    judged = claims.judge("sigcomm-fig15", {"built-in": built_in, "recordings": dict.fromkeys(built_in, 0.9)})
    assert all(one.holds and one.channels_disagree for one in judged)
    assert verdict_text(judged[0]) == "held; recordings: not held"
    overview = Overview(parts=[("sigcomm-fig15", "Fig. 15", judged)])
    assert "disagree on 5, of which 5 are headlines" in overview.counts()
    assert overview.to_csv().splitlines()[1].endswith("yes,no")


def test_the_count_of_another_mode_stands_beside_the_defaults() -> None:
    """A claim that does not depend on the mode counts unchanged."""
    names = [claim.name for claim in claims.of("sigcomm-fig15")]
    modes = {"paper": {"built-in": {names[0]: 0.5, names[1]: 2.0}}}
    judged = claims.judge("sigcomm-fig15", {"built-in": dict.fromkeys(names, 2.0)}, modes)
    counts = Overview(parts=[("sigcomm-fig15", "Fig. 15", judged)]).counts()
    assert counts.startswith("5 of 5 claims hold with Verus in its default mode (100 %), 4 in paper mode;")


def test_what_is_measured_is_what_is_claimed() -> None:
    names = [claim.name for claim in claims.of("sigcomm-fig15")]
    values = dict.fromkeys(names, 2.0)
    assert claims.held(claims.judge("sigcomm-fig15", {"built-in": values})) == (5, 5)
    with pytest.raises(ValueError, match="not measured on built-in"):
        claims.judge("sigcomm-fig15", {"built-in": dict.fromkeys(names[1:], 2.0)})
    with pytest.raises(ValueError, match="not claimed"):
        claims.judge("sigcomm-fig15", {"built-in": {**values, "new": 1.0}})


def test_a_missed_target_is_exit_code_3(verus: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    real = papers.find("calibration")
    missed = Check(name="moon", value=2.0, wanted=Wanted(most=1.0), unit="ms")
    moved = papers.Experiment(
        name="calibration",
        source=real.source,
        prepare=lambda _options: (
            lambda _progress: Results.collect([], [], kind="calibration", settings={"seed": 1}, measured=[])
        ),
        checks=lambda _results: [missed],
        page=real.page,
        summary=lambda _results: verdict([missed]),
    )
    monkeypatch.setattr(papers, "find", lambda _name: moved)
    ran = verus("reproduce", "calibration")
    assert ran.code == 3
    assert "Missed: moon: 2 ms, 100 % above 1 ms (wanted at most 1 ms)." in ran.out


def test_list_names_the_experiments(verus: Command) -> None:
    out = verus("reproduce", "list").out
    assert [line.split()[0] for line in out.splitlines()] == list(papers.NAMES)
