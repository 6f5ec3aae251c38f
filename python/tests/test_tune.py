"""`verus tune`: what its file may state, that a search goes on where it was killed, how it races, and how it judges."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verus as package
from verus.errors import FieldError
from verus.lab import store
from verus.lab.runner import as_ended
from verus.lab.scenario import Contestant
from verus.lab.store import Keys
from verus.lab.study import Value
from verus.lab.tuning import race
from verus.lab.tuning.folder import TuneFolder
from verus.lab.tuning.problem import Key, Problem, problem_of
from verus.lab.tuning.search import Search

pytest.importorskip("optuna", reason="Optuna is not installed: pip install 'verus-cc[tune]'")

Command = Callable[..., Any]
Table = dict[str, Any]

SEARCH = """
scheme = "copa"
rivals = ["cubic", "forward"]

[keys]
delta = { from = 0.05, to = 1.0, log = true }
initial_window_packets = { from = 4, to = 40, step = 4 }

[tune]
trace = ["city-driving-lte-down", "rate:6"]
flows = [1, 2]
duration_s = 2

[judge]
trace = ["highway-driving-3g-down", "rate:9"]
duration_s = 2

[aim]
most = ["utilization"]
least = ["qdelay_p95_ms"]
bounds = ["loss_rate <= 0.9"]

[search]
candidates = 16
batch = 4
finalists = 2
"""

#: A controller that sends a fixed window, or fails.
FIXED = """
import verus


class Fixed(verus.Controller):
    def __init__(self, *, packets: int = 10, mood: str = "calm") -> None:
        self.packets, self.mood = packets, mood

    def on_start(self, now_s: float, packet_bytes: int) -> None:
        self.window_bytes = self.packets * packet_bytes

    def on_feedback(self, feedback: verus.Feedback) -> None:
        if self.mood == "angry":
            raise RuntimeError("no more")
"""


def content(**tables: Any) -> Table:
    """The content of a file that searches `forward`, with these tables in place of its own."""
    return {
        "scheme": "forward",
        "keys": {"budget_ms": {"from": 20.0, "to": 200.0, "log": True}},
        "tune": {"trace": ["rate:4", "rate:8"], "duration_s": 1},
        "judge": {"trace": "rate:6", "duration_s": 1},
        "aim": {"least": ["qdelay_p95_ms"]},
        "rivals": ["cubic"],
        **tables,
    }


def searching(folder: Path, problem: Problem) -> Search:
    """A search on one core."""
    work = functools.partial(as_ended, threads=1, columns=False)
    return Search(problem, TuneFolder(folder), work, keys=Keys(store.engine()))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "gains.toml"
    path.write_text(SEARCH)
    return path


def results(folder: Path) -> Table:
    found: Table = json.loads((folder / "search.json").read_text())
    return found


BAD: list[tuple[Table, str]] = [
    ({"sheme": "x"}, "sheme: there is no such key; did you mean `scheme`?"),
    ({"scheme": "nobody"}, "scheme: scheme `nobody`"),
    ({"scheme": 7}, "scheme: must be a text, not 7"),
    ({"rivals": ["cubic", "cubic"]}, 'rivals: has "cubic" twice'),
    ({"keys": {}}, "keys: is empty"),
    ({"keys": {"budget": {"from": 20, "to": 30}}}, "keys.budget.from: scheme `forward:budget=20`"),
    ({"keys": {"budget_ms": {"from": -1.0, "to": 30}}}, "keys.budget_ms.from: scheme `forward:budget_ms=-1`"),
    ({"keys": {"budget_ms": 30}}, "keys.budget_ms: must be a table, not 30"),
    ({"keys": {"budget_ms": {"from": 20}}}, "keys.budget_ms.to: is missing"),
    ({"keys": {"budget_ms": {"from": 20, "to": 20}}}, "keys.budget_ms.to: must be above `from`, 20, not 20"),
    ({"keys": {"budget_ms": {"from": 20, "to": "30"}}}, 'keys.budget_ms.to: must be a number, not "30"'),
    ({"keys": {"budget_ms": {"from": 20, "to": 30, "stp": 1}}}, "keys.budget_ms.stp: there is no such key"),
    (
        {"keys": {"budget_ms": {"from": 20, "to": 30, "step": 50}}},
        "keys.budget_ms.step: must be above 0 and at most 10",
    ),
    (
        {"keys": {"budget_ms": {"from": 20, "to": 30, "step": 1, "log": True}}},
        "keys.budget_ms.step: is not for a range",
    ),
    ({"keys": {"budget_ms": {"choices": [20]}}}, "keys.budget_ms.choices: must be a list of at least two values"),
    ({"keys": {"budget_ms": {"choices": [20, -1]}}}, "keys.budget_ms.choices: scheme `forward:budget_ms=-1`"),
    ({"scheme": "forward:budget_ms=9"}, "keys.budget_ms: `forward:budget_ms=9` sets it already"),
    ({"tune": {"trace": "rate:x"}}, "tune.trace: "),
    ({"tune": {"trace": "rate:4", "scheme": "cubic"}}, "tune.scheme: there is no such key"),
    ({"tune": {"trace": "rate:4", "part": [{"mix": "cubic*2"}]}}, "tune.mix: `cubic*2` has no flow of `forward`"),
    ({"judge": {"trace": "rate:6", "mix": ["forward+cubic", "bbr+cubic"]}}, "judge.mix: `bbr+cubic` has no flow of"),
    ({"tune": {"trace": "rate:4", "mix": "forward+cubix"}}, "tune.mix: "),
    ({"tune": {"trace": "rate:4", "mix": "forward+cubic", "flows": 2}}, "tune.flows: is for `scheme`"),
    ({"judge": {"trace": "rate:6", "duration_s": "long"}}, "judge.duration_s: must be a number"),
    ({"aim": {}}, "aim: names no metric"),
    ({"aim": {"most": ["utilisation"]}}, "aim.most: there is no metric `utilisation`; did you mean `utilization`?"),
    ({"aim": {"most": ["power"], "least": ["power"]}}, "aim.least: `power` is in `most`, too"),
    ({"aim": {"most": ["power"], "bounds": ["jain > 1"]}}, "aim.bounds: `jain > 1` is not METRIC >= NUMBER"),
    (
        {"aim": {"most": ["power"], "bounds": ["jane >= 1"]}},
        "aim.bounds: there is no metric `jane`; did you mean `jain`?",
    ),
    ({"search": {"sampler": "grid"}}, 'search.sampler: there is no sampler "grid"'),
    ({"search": {"candidates": 0}}, "search.candidates: must be a whole number from 1"),
    ({"search": {"racing": 1}}, "search.racing: must be true or false, not 1"),
    (
        {"search": {"sampler": "cmaes"}, "keys": {"budget_ms": {"choices": [20, 30]}}},
        "search.sampler: `cmaes` is for ranges",
    ),
    ({"search": {"sampler": "cmaes"}, "aim": {"most": ["power", "jain"]}}, "search.sampler: `cmaes` is for one aim"),
]


@pytest.mark.parametrize(("tables", "problem"), BAD, ids=[problem for _, problem in BAD])
def test_a_bad_entry_is_refused_by_its_name(tables: Table, problem: str) -> None:
    with pytest.raises(FieldError) as refused:
        problem_of(content(**tables), "x")
    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize("table", ["scheme", "keys", "tune", "judge", "aim"])
def test_a_file_without_a_table_is_refused(table: str) -> None:
    told = content()
    del told[table]
    with pytest.raises(FieldError, match=f"^{table}: is missing"):
        problem_of(told, "x")


def test_the_command_names_the_file(verus: Command, written: Path) -> None:
    written.write_text(SEARCH.replace("to = 1.0", "to = 0.01"))
    ran = verus("tune", "gains.toml", "--out", "tuned")
    assert (ran.code, ran.err) == (2, "verus: `gains.toml`: keys.delta.to: must be above `from`, 0.05, not 0.01\n")
    written.write_text("scheme = ")
    assert verus("tune", "gains.toml").err.startswith("verus: `gains.toml`: not TOML: ")


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "town.down"
    path.write_text("".join(f"{at}\n" for at in range(1, 20_000, 3)))
    return path


LTE = "city-driving-lte-down"

OVERLAPS: list[tuple[Table, Table, str]] = [
    (
        {"trace": "rate:4", "seed": [1, 2]},
        {"trace": "rate:6", "seed": [2, 3]},
        "judge.seed: overlaps with `tune`: both have seed 2",
    ),
    (
        {"trace": "rate:4"},
        {"trace": "rate:4"},
        "`rate:4` with 1 flow differs from one of `tune` in nothing but the seed",
    ),
    (
        {"trace": "rate:4", "queue": ["droptail:bytes=120kB", "codel"]},
        {"trace": "rate:4.0", "queue": ["droptail:bytes=120000", "codel:target_ms=5"]},
        "`rate:4.0` with 1 flow differs from one of `tune` in nothing but the seed",
    ),
    (
        {"trace": "rate:4", "mix": ["forward+cubic", "forward*2+bbr"]},
        {"trace": "rate:4", "mix": ["forward+bbr", "bbr+forward*2"]},
        "a row over `rate:4` with the mix `bbr+forward*2` differs from one of `tune` in nothing but the seed",
    ),
    (
        {"trace": "rate:4", "flows": 2},
        {"trace": "rate:4", "mix": "forward*2"},
        "`rate:4` with 2 flows differs from one of `tune` in nothing but the seed",
    ),
    (
        {"trace": "town.down", "mix": "forward+cubic"},
        {"trace": "town.down", "mix": "forward+bbr"},
        "both cross `town.down` from 0 s to 1 s",
    ),
    ({"trace": "town.down"}, {"trace": "town.down"}, "both cross `town.down` from 0 s to 1 s"),
    ({"trace": "town.down[5:9]"}, {"trace": "same.down[7:12]"}, "both cross `same.down` (`town.down`) from 7 s to 9 s"),
    ({"trace": f"{LTE}@7[0:9]"}, {"trace": f"{LTE}@7[6:20]"}, f"both cross `{LTE}@7` from 6 s to 8 s"),
    ({"trace": "rate:4", "ack": f"{LTE}@7"}, {"trace": f"{LTE}@7"}, f"both cross `{LTE}@7` from 0 s to 1 s"),
    ({"trace": f"{LTE}@2"}, {"trace": LTE, "seed": 2}, f"both cross `{LTE}@2` from 0 s to 1 s"),
]


@pytest.mark.usefixtures("recording")
@pytest.mark.parametrize(("tune", "judge", "problem"), OVERLAPS, ids=[problem for _, _, problem in OVERLAPS])
def test_an_overlap_is_refused_with_what_is_shared(
    tune: Table, judge: Table, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy("town.down", "same.down")
    seconds = 8 if "[" in tune["trace"] else 1
    with pytest.raises(FieldError, match=re.escape(problem)):
        problem_of(content(tune={"duration_s": seconds, **tune}, judge={"duration_s": seconds, **judge}), "x")


@pytest.mark.usefixtures("recording")
def test_stretches_and_realisations_apart_are_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tune = {"trace": ["town.down[0:5]", f"{LTE}@7[0:9]", LTE, "rate:4"], "duration_s": 3, "seed": [1, 2]}
    judge = {"trace": ["town.down[5:9]", f"{LTE}@7[9:20]", LTE, "rate:5"], "duration_s": 3}
    problem = problem_of(content(tune=tune, judge=judge), "x")
    assert [sorted({run.scenario["seed"] for run in problem.halves[half]}) for half in ("tune", "judge")] == [
        [1, 2],
        [3, 4],
    ]


def test_a_candidate_takes_the_place_of_its_scheme_in_a_mix_alone() -> None:
    tune = {
        "duration_s": 1,
        "part": [
            {"name": "alone", "trace": "rate:4", "flows": 2},
            {"name": "beside", "trace": ["rate:4", "rate:8"], "mix": ["forward+cubic", "forward:budget_ms=50+forward"]},
        ],
    }
    problem = problem_of(content(tune=tune), "x")
    rows = problem.with_sender(problem.halves["tune"], "forward:budget_ms=30")
    assert [run.part for run in rows] == ["alone", *["beside"] * 4]
    mine, other = "forward:budget_ms=30", "forward:budget_ms=50"
    assert [run.contestant.flows for run in rows] == [(mine, mine), *[(mine, "cubic"), (other, mine)] * 2]
    assert [[flow["scheme"] for flow in run.scenario["flows"]] for run in rows] == [
        [*run.contestant.flows] for run in rows
    ]
    (beside_itself,) = problem.with_sender(problem.halves["tune"][1:2], "cubic")
    assert beside_itself.contestant == Contestant.from_scheme("cubic", flows=2)


def test_the_same_path_with_another_mix_is_no_overlap() -> None:
    tune = {"trace": "rate:4", "duration_s": 1, "mix": ["forward+cubic", "forward*2+bbr"]}
    judge = {"trace": "rate:4", "duration_s": 1, "mix": ["forward+bbr", "forward*2+cubic"]}
    problem = problem_of(content(tune=tune, judge=judge), "x")
    assert [run.contestant.text for run in problem.halves["judge"]] == judge["mix"]


def test_a_search_beside_a_rival_finds_who_holds_its_own_and_is_judged_beside_another(
    verus: Command, tmp_path: Path
) -> None:
    (tmp_path / "fixed.py").write_text(FIXED)
    (tmp_path / "gains.toml").write_text("""
scheme = "fixed.py:Fixed"
rivals = ["cubic"]
keys = { packets = { from = 2, to = 60 } }
tune = { trace = "rate:4", mix = "fixed.py:Fixed+cubic", duration_s = 3, queue = "droptail:packets=30", delay_ms = 20 }
judge = { trace = "rate:4", mix = "fixed.py:Fixed+bbr", duration_s = 3, queue = "droptail:packets=30", delay_ms = 20 }
aim = { most = ["jain"] }
search = { candidates = 12, racing = false }
""")
    assert verus("tune", "gains.toml", "--out", "tuned", "-q").code == 0
    found = results(tmp_path / "tuned")
    jain = {one["params"]["packets"]: one["means"]["jain"] for one in found["candidates"]}
    best = found["candidates"][found["finalists"][0]]
    assert best["means"]["jain"] == max(jain.values())
    assert best["means"]["jain"] > jain[min(jain)] + 0.1  # too few packets lose against Cubic
    (rival,) = (one for one in found["fixed"] if one["scheme"] == "cubic")
    assert rival["means"]["jain"] > 0.5
    assert found["rows"]["tune"][0]["mix"] == "fixed.py:Fixed+cubic"
    assert verus("tune", "gains.toml", "--out", "tuned", "-q", "--judge").code == 0
    assert verus("report", "tuned").code == 0
    assert "fixed.py:Fixed+bbr" in (tmp_path / "tuned" / "report.html").read_text()


def test_killed_in_the_middle_it_ends_with_the_same_front(verus: Command, written: Path, tmp_path: Path) -> None:
    assert verus("tune", "gains.toml", "--out", "undisturbed").code == 0
    whole = results(tmp_path / "undisturbed")
    assert [candidate["number"] for candidate in whole["candidates"]] == [*range(16)]
    assert whole["front"]
    journal = tmp_path / "tuned" / "search.journal"
    for lines in (25, 80):  # in the first batch, and in a later one
        command = [sys.executable, "-m", "verus", "tune", "gains.toml", "--out", "tuned", "-q"]
        process = subprocess.Popen(command, cwd=tmp_path)
        while not journal.exists() or journal.read_text().count("\n") < lines:
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert len(results(tmp_path / "tuned").get("candidates", [])) < 16
    assert verus("tune", "gains.toml", "--out", "tuned").code == 0
    assert results(tmp_path / "tuned") == whole
    # And once more, there is nothing to do.
    assert verus("tune", "gains.toml", "--out", "tuned").code == 0
    assert results(tmp_path / "tuned") == whole


def test_a_proposal_that_was_half_drawn_is_drawn_as_it_would_have_been(tmp_path: Path) -> None:
    keys = {
        "ratio": {"from": 2.0, "to": 8.0},
        "epoch_ms": {"from": 5, "to": 40},
        "mode": {"choices": ["paper", "robust"]},
    }
    problem = problem_of(content(scheme="verus", keys=keys, search={"candidates": 4, "batch": 4}), "x")
    whole, half = (searching(tmp_path / name, problem) for name in ("whole", "half"))
    for search in (whole, half):
        search._begin()
    drawn = [whole._proposed(number)[1] for number in range(3)]
    assert half._proposed(0)[1] == drawn[0]
    half._study.sampler = half._sampler(1, 0)
    half._study.ask().suggest_float("ratio", 2.0, 8.0)  # with another seed: the one that is used is the first key's
    again = searching(tmp_path / "half", problem)
    again._begin()
    assert again._proposed(1)[1] | {"ratio": 0} == drawn[1] | {"ratio": 0}
    assert again._proposed(2)[1] == drawn[2]


def test_what_a_kill_leaves_of_a_write_is_mended(tmp_path: Path) -> None:
    problem = problem_of(content(search={"candidates": 4, "batch": 2}), "x")
    whole = searching(tmp_path / "x", problem).run()
    folder = TuneFolder(tmp_path / "x")
    with folder.journal.open("ab") as file:
        file.write(b'{"op_code": 4, "wor')
    (tmp_path / "x" / "search.journal.lock").symlink_to("nowhere")
    assert searching(tmp_path / "x", problem).run() == whole


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "cmaes"])
def test_each_sampler_finds_a_short_queue_and_the_same_twice(sampler: str, tmp_path: Path) -> None:
    keys = {"packets": {"from": 1.0, "to": 3.0}}
    (tmp_path / "fixed.py").write_text(FIXED.replace("packets: int", "packets: float"))
    tables = content(scheme=f"{tmp_path}/fixed.py:Fixed", keys=keys, search={"sampler": sampler, "candidates": 24})
    problem = problem_of(tables | {"aim": {"most": ["power"]}}, "x")
    one, two = (searching(tmp_path / name, problem).run() for name in ("one", "two"))
    assert one == two
    assert len({candidate["scheme"] for candidate in one["candidates"]}) > 12
    assert len(one["finalists"]) == 5


def test_a_candidate_that_fails_is_broken_and_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "fixed.py").write_text(FIXED)
    keys = {"packets": {"from": 5, "to": 50}, "mood": {"choices": ["calm", "angry"]}}
    problem = problem_of(content(scheme=f"{tmp_path}/fixed.py:Fixed", keys=keys, search={"candidates": 12}), "x")
    found = searching(tmp_path / "x", problem).run()
    for candidate in found["candidates"]:
        assert (candidate["state"] == "broken") == (candidate["params"]["mood"] == "angry")
    broken = next(candidate for candidate in found["candidates"] if candidate["state"] == "broken")
    assert re.match(r"over rate:\d, seed 1: .*fixed\.py`: Fixed\.on_feedback .*no more", broken["why"])
    assert all(found["candidates"][number]["params"]["mood"] == "calm" for number in found["front"])


def test_a_front_has_only_what_meets_the_bounds(tmp_path: Path) -> None:
    (tmp_path / "fixed.py").write_text(FIXED)
    keys = {"packets": {"from": 5, "to": 60}}
    aim = {"most": ["utilization"], "least": ["qdelay_p95_ms"], "bounds": ["utilization >= 0.5", "rtt_p95_ms <= 60"]}
    problem = problem_of(
        content(scheme=f"{tmp_path}/fixed.py:Fixed", keys=keys, aim=aim, search={"candidates": 24}), "x"
    )
    found = searching(tmp_path / "x", problem).run()
    complete = [one for one in found["candidates"] if one["state"] == "complete"]
    front = [found["candidates"][number] for number in found["front"]]
    assert 1 < len(front) < len(complete)
    for one in complete:
        values = one["means"]
        meets = values["utilization"] >= 0.5 and values["rtt_p95_ms"] <= 60
        assert meets == all(excess <= 0 for excess in one["excess"].values())
        dominated = any(
            other["means"]["utilization"] >= values["utilization"]
            and other["means"]["qdelay_p95_ms"] < values["qdelay_p95_ms"]
            for other in front
        )
        assert not (one in front and (dominated or not meets))


def test_a_suite_bounds_a_search(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "fixed.py").write_text(FIXED)
    (tmp_path / "own.toml").write_text("""
name = "own"
title = "Own"
about = "One row."
source = "here"
seeds = 1

[[rows]]
id = "alone"
about = "Alone on 4 Mbit/s, the queue stays below 30 ms."
source = "here"
kind = "ours"
controllers = ["any"]
scenario = { trace = "rate:4", duration_s = 2 }
flows = [{}]
checks = [{ measure = "qdelay_p95", most = 30 }]
""")
    (tmp_path / "gains.toml").write_text("""
scheme = "fixed.py:Fixed"
rivals = []
keys = { packets = { choices = [5, 10, 40] } }
tune = { trace = "rate:4", duration_s = 1 }
judge = { trace = "rate:6", duration_s = 1 }
aim = { most = ["utilization"], bounds = ["check:own.toml"] }
search = { candidates = 8 }
""")
    ran = verus("tune", "gains.toml", "--out", "tuned")
    assert ran.code == 0, ran.err
    excess = {
        one["params"]["packets"]: one["excess"]["check:own.toml"] for one in results(tmp_path / "tuned")["candidates"]
    }
    assert excess == {packets: float(packets == 40) for packets in excess}
    assert len(excess) > 1
    path = tmp_path / "gains.toml"
    path.write_text(path.read_text().replace("check:own.toml", "check:laww"))
    ran = verus("tune", "gains.toml", "--out", "other")
    assert (ran.code, ran.err[:62]) == (2, "verus: --aim.bounds: there is no suite `laww`; did you mean `l")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a search of two aims that was judged."""
    place = tmp_path_factory.mktemp("judged")
    (place / "gains.toml").write_text(SEARCH.replace("candidates = 16", "candidates = 12"))
    for more in ([], ["--judge"]):
        command = [sys.executable, "-m", "verus", "tune", "gains.toml", "--out", "tuned", "-q", *more]
        subprocess.run(command, cwd=place, check=True)
    return place


@pytest.fixture
def tuned(judged: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(judged, tmp_path, dirs_exist_ok=True)
    return tmp_path / "tuned"


def test_finalists_are_judged_beside_the_start_and_its_rivals(tuned: Path) -> None:
    search, judgement = results(tuned), json.loads((tuned / "judged.json").read_text())
    assert len(judgement["finalists"]) == 2
    assert set(judgement["finalists"]) <= set(search["front"])
    finalists = [search["candidates"][number]["scheme"] for number in judgement["finalists"]]
    assert [sender["scheme"] for sender in judgement["senders"]] == [*finalists, "copa", "cubic", "forward"]
    # Each number again, from the simulator alone.
    seconds = {"tune": ([LTE, "rate:6"], (1, 2)), "judge": (["highway-driving-3g-down", "rate:9"], (1,))}
    for half, (traces, flows) in seconds.items():
        seed = {"tune": 1, "judge": 2}[half]
        for sender in judgement["senders"]:
            rows = [
                row
                for count in flows
                for row in package.compare(
                    traces=traces, schemes=[sender["scheme"]], flows=count, duration_s=2, seed=seed
                ).rows()
            ]
            assert len(rows) == len(search["rows"][half])
            for aim in ("utilization", "qdelay_p95_ms"):
                assert sender["means"][half][aim] == pytest.approx(sum(row[aim] for row in rows) / len(rows))


def test_a_difference_within_its_interval_is_equal(tuned: Path) -> None:
    judgement = json.loads((tuned / "judged.json").read_text())
    verdicts = set()
    for sender, half, aim in itertools.product(
        judgement["senders"], ("tune", "judge"), ("utilization", "qdelay_p95_ms")
    ):
        above, verdict = sender["above"][half][aim], sender["verdicts"][half][aim]
        better = above["mean"] if aim == "utilization" else -above["mean"]
        half_width = above["half_width_95"]
        is_apart = half_width is not None and abs(better) > half_width
        assert verdict == ("equal" if not is_apart else "better" if better > 0 else "worse")
        verdicts.add(verdict)
        if half == "judge":
            assert sender["gap"][aim] == pytest.approx(above["mean"] - sender["above"]["tune"][aim]["mean"])
    assert "equal" in verdicts
    assert len(verdicts) > 1


def test_a_folder_is_judged_once(verus: Command, tuned: Path) -> None:
    before = (tuned / "judged.json").read_bytes()
    began = json.loads(before)["began"]
    ran = verus("tune", "gains.toml", "--out", "tuned", "--judge")
    assert ran.code == 2
    assert f"verus: --judge: `tuned` was judged on {began}, and is judged once" in ran.err
    path = tuned.parent / "gains.toml"
    text = path.read_text()
    path.write_text(text.replace("candidates = 12", "candidates = 20"))
    ran = verus("tune", "gains.toml", "--out", "tuned")
    assert ran.code == 2
    assert f"verus: --out: `tuned` was judged on {began}: a search that goes on needs another folder" in ran.err
    path.write_text(text.replace("highway-driving-3g-down", "campus-pedestrian-3g-down"))
    for more in ((), ("--judge",)):
        ran = verus("tune", "gains.toml", "--out", "tuned", *more)
        assert ran.code == 2
        assert "`tuned` is of another search" in ran.err
    assert (tuned / "judged.json").read_bytes() == before


def test_a_judgement_that_was_interrupted_goes_on_with_the_same_finalists(verus: Command, tuned: Path) -> None:
    whole = json.loads((tuned / "judged.json").read_text())
    left = {name: value for name, value in whole.items() if name != "senders"}
    (tuned / "judged.json").write_text(json.dumps(left))
    for path in random.Random(1).sample(sorted((tuned / "runs").rglob("*.run")), 10):
        path.unlink()
    assert verus("tune", "gains.toml", "--out", "tuned", "--judge").code == 0
    assert json.loads((tuned / "judged.json").read_text()) == whole


def test_a_finalist_that_fails_on_judged_rows_is_named(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "fixed.py").write_text(
        FIXED.replace('self.mood == "angry"', "self.packets == 20 and feedback.min_rtt_ms > 100")
    )
    (tmp_path / "gains.toml").write_text("""
scheme = "fixed.py:Fixed"
rivals = []
keys = { packets = { choices = [10, 20] } }
tune = { trace = "rate:4", duration_s = 1 }
judge = { trace = "rate:6", duration_s = 1, delay_ms = 80 }
aim = { most = ["utilization"] }
search = { candidates = 8, finalists = 8 }
""")
    assert verus("tune", "gains.toml", "--out", "tuned").code == 0
    ran = verus("tune", "gains.toml", "--out", "tuned", "--judge")
    assert ran.code == 0
    assert "Warning: `fixed.py:Fixed:packets=20` failed over rate:6, seed 2: " in ran.err
    assert verus("report", "tuned").code == 0
    assert "fixed.py:Fixed:packets=20 failed over rate:6" in words(tmp_path / "tuned")


@pytest.mark.parametrize(("choices", "failed", "code"), [(["angry", "furious"], 4, 1), (["calm", "angry"], None, 0)])
def test_candidates_that_fail_are_counted_with_the_reason_of_the_first(
    verus: Command, tmp_path: Path, choices: list[str], failed: int | None, code: int
) -> None:
    (tmp_path / "fixed.py").write_text(FIXED.replace('self.mood == "angry"', 'self.mood != "calm"'))
    (tmp_path / "gains.toml").write_text(f"""
scheme = "fixed.py:Fixed"
rivals = []
keys = {{ packets = {{ from = 5, to = 50 }}, mood = {{ choices = {json.dumps(choices)} }} }}
tune = {{ trace = "rate:4", duration_s = 1 }}
judge = {{ trace = "rate:6", duration_s = 1 }}
aim = {{ most = ["utilization"] }}
search = {{ candidates = 4, batch = 4 }}
""")
    ran = verus("tune", "gains.toml", "--out", "tuned", "--json")
    candidates = json.loads((tmp_path / "tuned" / "search.json").read_text())["candidates"]
    broken = sum(candidate["state"] == "broken" for candidate in candidates)
    assert broken == failed if failed else 0 < broken < 4
    before = "verus" if code else "Warning"
    assert ran.code == code
    assert re.search(rf"{before}: {broken} of 4 candidates failed; the first, `fixed\.py:.*no more", ran.err)
    if code:
        judged = verus("tune", "gains.toml", "--out", "tuned", "--judge")
        assert (judged.code, judged.err[:44]) == (2, "verus: `tuned`: all candidates failed (4 of ")


def test_nothing_is_judged_before_the_search_is_done(verus: Command, written: Path) -> None:
    ran = verus("tune", "gains.toml", "--out", "tuned", "--judge")
    assert (ran.code, ran.err[:39]) == (2, "verus: --judge: `tuned` holds no search")
    written.write_text(SEARCH.replace("candidates = 16", "candidates = 4"))
    assert verus("tune", "gains.toml", "--out", "tuned").code == 0
    written.write_text(SEARCH)
    ran = verus("tune", "gains.toml", "--out", "tuned", "--judge")
    assert ran.err.startswith("verus: --judge: 4 of 16 candidates are done")


def words(folder: Path) -> str:
    """The words of a page, without its scripts."""
    text = re.sub(r"<(script|style).*?</\1>", "", (folder / "report.html").read_text(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


def test_the_page_begins_with_the_gap_and_shows_front_slices_and_rows(verus: Command, tuned: Path) -> None:
    ran = verus("report", "tuned")
    assert (ran.code, ran.err) == (0, "Report: tuned/report.html\n")
    said = words(tuned)
    judgement = json.loads((tuned / "judged.json").read_text())
    gap = 100 * judgement["senders"][0]["gap"]["utilization"]
    first = re.search(r"Gap from tuned to judged: ([-+]?[\d.]+) in utilization, %", said)
    assert first is not None
    assert float(first[1]) == pytest.approx(gap, abs=0.06)
    assert f"Judged on {judgement['began']}, once." in said
    titles = ["From tuned to judged", "Front", "Slices", "Finalists, row by row", "All candidates", "The search"]
    places = [said.rindex(f" {title} ") for title in titles]
    assert places == sorted(places)
    assert {"front-utilization-qdelay_p95_ms", "slice-delta", "slice-initial_window_packets"} <= {
        path.stem for path in (tuned / "figures").glob("*.svg")
    }
    assert "highway-driving-3g-down, 1 flow" in said
    assert "http://" not in said


def test_a_page_before_the_judgement_says_so(verus: Command, tuned: Path) -> None:
    (tuned / "judged.json").unlink()
    assert verus("report", "tuned").code == 0
    assert "Not judged: every number here is of tuned rows" in words(tuned)


def test_a_damaged_folder_is_one_message(verus: Command, tuned: Path) -> None:
    whole = results(tuned)
    for damage in ("{", "[]", json.dumps({**whole, "kind": "check"}), json.dumps({**whole, "keys": 7})):
        (tuned / "search.json").write_text(damage)
        ran = verus("report", "tuned")
        assert ran.code in (1, 2)
        (line,) = ran.err.splitlines()
        assert line.startswith("verus: `tuned")


def test_importance_is_of_the_key_that_matters(tmp_path: Path) -> None:
    (tmp_path / "fixed.py").write_text(FIXED.replace('mood: str = "calm"', "mood: int = 0"))
    keys = {"packets": {"from": 2, "to": 20}, "mood": {"from": 0, "to": 9}}
    search = {"candidates": 24, "racing": False}
    tables = content(scheme=f"{tmp_path}/fixed.py:Fixed", keys=keys, aim={"most": ["utilization"]}, search=search)
    found = searching(tmp_path / "x", problem_of(tables, "x")).run()
    shares = found["importance"]["utilization"]
    assert shares["packets"] > 0.8 > 0.2 > shares["mood"]


def test_two_workers_of_dask_find_the_same(verus: Command, written: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'verus-cc[cluster]'")
    written.write_text(SEARCH.replace("candidates = 16", "candidates = 4"))
    for place, more in (("here", ()), ("there", ("--cluster", "local:2"))):
        ran = verus("tune", "gains.toml", "--out", place, *more)
        assert ran.code == 0, ran.err
    assert results(tmp_path / "here") == results(tmp_path / "there")
    assert verus("tune", "gains.toml", "--jobs", 1, "--cluster", "local:2").err.startswith(
        "verus: --jobs: is for this machine"
    )


def test_only_one_process_works_in_a_folder(tmp_path: Path) -> None:
    search = searching(tmp_path / "x", problem_of(content(search={"candidates": 2}), "x"))
    with search.folder.held(), pytest.raises(FieldError, match="another process works in"):
        search.run()


def test_without_optuna_it_says_what_to_install(verus: Command, written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    ran = verus("tune", "gains.toml", "--out", "tuned")
    assert ran.code == 2
    assert ran.err.startswith("verus: `verus tune` needs Optuna: pip install 'verus-cc[tune]'")
    assert not (written.parent / "tuned").exists()


def test_other_verbs_do_not_load_optuna() -> None:
    code = "import sys, verus.cli, verus.api, verus.commands.tune; sys.exit('optuna' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tune_in_python_takes_a_class_and_an_objective(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fixed_window.py").write_text(FIXED)
    monkeypatch.syspath_prepend(tmp_path)
    import fixed_window

    def far(row: Mapping[str, Any]) -> dict[str, float]:
        return {"far": abs(row["utilization"] - 0.5)}

    def tune(**more: Any) -> package.Tuning:
        return package.tune(
            scheme=fixed_window.Fixed,
            keys={"packets": {"from": 2, "to": 40}},
            tune_on={"trace": "rate:10", "duration_s": 1},
            judge_on={"trace": "rate:11", "duration_s": 1},
            least=["far"],
            measure=far,
            measures=["far"],
            rivals=["cubic"],
            candidates=16,
            threads=1,
            out=tmp_path / "tuned",
            **more,
        )

    tuning = tune()
    (best,) = tuning.front
    assert best["means"]["far"] == min(one["means"]["far"] for one in tuning.candidates)
    assert (
        0.4 < package.compare(traces=["rate:10"], schemes=[best["scheme"]], duration_s=1).rows()[0]["utilization"] < 0.6
    )
    assert tune() == tuning
    with pytest.raises(FieldError, match="of another search"):
        tune(seed=2)
    with pytest.raises(FieldError, match="samplr: there is no such key"):
        tune(samplr="tpe")
    judged = tuning.judge()
    assert judged[0]["scheme"] == best["scheme"]
    assert tuning.report().is_file()
    with pytest.raises(FieldError, match="is judged once"):
        tuning.judge()


def test_a_class_that_no_file_defines_is_refused(tmp_path: Path) -> None:
    class Inner(package.Controller):
        pass

    for kind in (Inner, int):
        with pytest.raises(FieldError, match="scheme: "):
            package.tune(scheme=kind, keys={}, tune_on={}, judge_on={}, out=tmp_path / "x")


def test_each_path_comes_once_before_any_comes_again() -> None:
    paths = [f"{path}" for path in range(5) for _ in range(4)]
    order = race.row_order(paths)
    assert sorted(order) == [*range(20)]
    for layer in range(4):
        assert sorted(paths[row] for row in order[5 * layer : 5 * layer + 5]) == sorted(set(paths))
    assert len({row % 4 for row in order[:5]}) > 1  # not of one seed


@pytest.mark.parametrize("count", [1, 2, 3, 7, 30, 1000])
def test_a_candidate_is_looked_at_a_few_times(count: int) -> None:
    for paths in (1, count // 4 or 1, count):
        looks = race.looks(count, paths)
        assert looks == sorted(set(looks))
        assert looks[-1] == count
        assert len(looks) < 12


def test_only_what_is_worse_in_each_aim_is_hopeless() -> None:
    rows = [*range(8)]
    noise = np.random.default_rng(1).normal(size=(8, 2))
    worse, mixed, same = noise - 1, noise + np.array([-1, 0.1]), noise.copy()
    assert race.is_hopeless(worse, [noise], rows)
    assert race.is_hopeless(noise - [1, 0], [noise], rows)  # the same in one aim
    for other in (mixed, same, noise + 1):
        assert not race.is_hopeless(other, [noise], rows)
    assert not race.is_hopeless(worse, [], rows)
    assert not race.is_hopeless(worse[:, :], [noise], rows[:2])  # too few
    one = noise[:, :1]
    assert race.is_hopeless(one - 1, [one - 9, one], rows)  # by Optuna's pruner, beside the best
    assert not race.is_hopeless(one, [one - 9, one - 1], rows)


def test_rows_that_repeat_another_are_not_counted() -> None:
    paths = ["a", "a", "b", "b"]
    one, two = np.array([[1.0], [1.0], [1.0], [1.0]]), np.array([[2.0], [2.0], [2.0], [3.0]])
    assert race.repeats(paths, [one]) == {1, 3}
    assert race.repeats(paths, [one, two]) == {1}


#: Ours with more and less of what makes them, what they are measured beside, and what is broken or made for one link.
SENDERS = (
    *(f"forward:budget_ms={budget}" for budget in (30, 45, 60, 90, 200, 400)),
    *(f"verus:ratio={ratio}" for ratio in (2, 4, 8, 16)),
    *(f"copa:delta={delta}" for delta in (0.04, 0.1, 0.5, 0.7, 1)),
    *("cubic", "newreno", "vegas", "bbr", "bbr1", "ledbatpp", "c4", "scream", "prague"),
    *(f"constant:rate_mbps={rate}" for rate in (0.2, 1, 5, 12, 40)),
    "saturate",
)


class Ranked(Problem):
    """A search whose one key is the number of a sender."""

    def scheme_text(self, values: Mapping[str, Value]) -> str:
        return SENDERS[int(values["sender"])]


def test_a_race_ranks_thirty_senders_as_the_full_study_does(tmp_path: Path) -> None:
    """In simulated seconds of a flow, of which processor time is made."""
    assert len(SENDERS) == 30
    tune = {
        "trace": [LTE, "highway-driving-3g-down", "campus-pedestrian-3g-down", "rate:5"],
        "queue": "droptail:bytes=150000",
        "seed": {"from": 1, "to": 16},
        "duration_s": 2,  # in the first second alone, most senders start alike, and chance ranks them
    }
    aim = {"least": ["qdelay_p95_ms"]}
    base = problem_of(content(tune=tune, aim=aim, rivals=[]), "x")
    own = {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}
    everyone: dict[int, Mapping[str, Value]] = {number: {"sender": number} for number in range(30)}

    def ranking(folder: Path, *, racing: bool) -> tuple[list[float], float]:
        """The aim of each sender, as far as it ran, and the simulated seconds."""
        problem = Ranked(**own | {"keys": (Key(name="sender", low=0, high=29),), "racing": racing})
        search = searching(folder, problem)
        search._begin()
        found = search.raced(everyone, [])
        seconds = sum(search.evaluation.seconds(search.order[: candidate.rows]) for candidate in found)
        return [candidate.means["qdelay_p95_ms"] for candidate in found], seconds

    from scipy.stats import kendalltau

    raced, some = ranking(tmp_path / "raced", racing=True)
    full, every = ranking(tmp_path / "full", racing=False)
    assert every == 30 * 4 * 16 * 2
    assert kendalltau(raced, full).statistic > 0.9
    assert some < 0.2 * every


PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "tuning.md"


def blocks(language: str) -> list[str]:
    """The blocks of the tutorial in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_tutorial_runs_as_printed(verus: Command, tmp_path: Path) -> None:
    """With fewer and shorter runs, on which nothing here depends."""
    controller, code = blocks("python")
    (search,) = blocks("toml")
    (tmp_path / "level.py").write_text(controller)
    short = re.sub(r"duration_s = \d+", "duration_s = 1", search).replace("candidates = 60", "candidates = 4")
    (tmp_path / "gains.toml").write_text(short)
    problem_of(tomllib.loads(search) | {"scheme": f"{tmp_path}/level.py:Level"}, "gains")
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert [line.split()[1] for line in commands] == ["compare", "tune", "tune", "report"]
    for line in commands:
        ran = verus(*shlex.split(line.replace("--duration 10", "--duration 1"))[1:])
        assert ran.code == 0, (line, ran.err)
    code = re.sub(r'"duration_s": \d', '"duration_s": 1', code).replace("candidates=16", "candidates=4")
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "queue_ms" in ran.stdout
    assert len(PAGE.read_text(encoding="utf-8").split()) <= 700
