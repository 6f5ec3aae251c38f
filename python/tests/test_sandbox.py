"""Controllers of others in confined processes: what they cannot do, its messages, and what honest ones notice."""

from __future__ import annotations

import contextlib
import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from verus import controller
from verus.errors import FieldError
from verus.lab import sandbox
from verus.lab.metric_rows import rows
from verus.lab.runner import as_ended, measure_each, run_each
from verus.lab.sandbox import Budget, Sandbox
from verus.lab.scenario import Contestant, Run, make_run
from verus.lab.store import pack
from verus.lab.tuning.problem import problem_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")

Command = Callable[..., Any]

#: A controller with a constant window; `{}` runs as the flow begins, in line 11.
SOURCE = """import verus
import helper


class Mine(verus.Controller):
    def __init__(self, *, packets: int = 10) -> None:
        self.packets = packets

    def on_start(self, now_s: float, packet_bytes: int) -> None:
        self.packet_bytes = packet_bytes
        {}
        self.window_bytes = self.packets * helper.ONE * packet_bytes

    def on_feedback(self, feedback: verus.Feedback) -> None:
        pass

    def on_timeout(self, timeout: verus.Timeout) -> None:
        pass
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a trace, in which controllers are written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper.py").write_text("ONE = 1\n")
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "search.json").write_text("{}")
    (tmp_path / "judged.down").write_text("".join(f"{at}\n" for at in range(1, 3_000, 3)))
    monkeypatch.setenv("SECRET", "the judged half begins at 3 s")
    return tmp_path


def written(line: str = "pass") -> str:
    """The scheme of a controller that does this as its flow begins."""
    Path("mine.py").write_text(SOURCE.format(line))
    return "mine.py:Mine"


def over(scheme: str, *, trace: str = "rate:4", seed: int = 1) -> Run:
    return make_run(trace=trace, queue="droptail:packets=50", contestant=contestant(scheme), seed=seed, duration_s=0.5)


def contestant(scheme: str) -> Contestant:
    with controller.unloaded():
        return Contestant.from_scheme(scheme)


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    """One sandbox for many: each starts processes."""
    box = Sandbox()
    yield box
    box.stop()


def ending(scheme: str, box: Sandbox) -> str:
    """How its run in a sandbox fails."""
    ((_, end),) = box.ended([over(scheme).to_json()], threads=1, columns=False)
    assert isinstance(end, RuntimeError), end
    return str(end)


#: Lines of a stranger's controller, each with the pattern of its error.
TRIES = {
    "a trace of the judged half": ('open("judged.down")', r"PermissionError: .*'judged.down' \(line 11\)"),
    "what the lab keeps": (
        '__import__("pathlib").Path("tuned/search.json").write_text("{}")',
        r"PermissionError: .*\(line 11\)",
    ),
    "the environment": ('__import__("os").environ["SECRET"]', r"KeyError: 'SECRET' \(line 11\)"),
    "the environment by its file": ('open("/proc/self/environ")', r"PermissionError: .*\(line 11\)"),
    "a socket": ('__import__("socket").socket()', r"PermissionError: .*\(line 11\)"),
    "a datagram": (
        's = __import__("socket"); s.socket(s.AF_INET, s.SOCK_DGRAM)',
        r"PermissionError: .*\(line 11\)",
    ),
    "a pair of sockets": (
        's = __import__("socket"); s.socketpair(s.AF_UNIX, s.SOCK_DGRAM)',
        r"PermissionError: .*\(line 11\)",
    ),
    "word for the next run in a file's times": ('__import__("os").utime("mine.py")', r"PermissionError: .*\(line 11\)"),
    "a file's rights": ('__import__("os").chmod("mine.py", 0o600)', r"PermissionError: .*\(line 11\)"),
    "a fork bomb": ('[__import__("os").fork() for _ in iter(int, 1)]', r"PermissionError: .*\(line 11\)"),
    "another program": (
        '__import__("subprocess").run(["true"])',
        r"PermissionError: .*\(line 11\)",
    ),
    "another process": ("import os; os.kill(os.getppid(), 9)", r"PermissionError: .*\(line 11\)"),
    "wider limits": (
        'r = __import__("resource"); r.setrlimit(r.RLIMIT_CPU, (9, 9))',
        r"(PermissionError|ValueError): .*\(line 11\)",
    ),
    "memory": ("self.hog = bytearray(1 << 32)", r"MemoryError \(line 11\)"),
    "no answer": ('__import__("os")._exit(0)', "the process ended without a result"),
    "a crash": ('__import__("os").abort()', "line 11: the process ended by SIGABRT"),
}


@pytest.mark.parametrize(("line", "problem"), TRIES.values(), ids=TRIES)
def test_a_controller_that_peeks_or_takes_too_much_fails_by_its_file_and_line(
    line: str, problem: str, box: Sandbox
) -> None:
    said = ending(written(line), box)
    assert re.search(f"^`mine.py`.*{problem}", said), said
    assert "\n" not in said


def test_a_loop_without_end_is_ended_with_its_line(monkeypatch: pytest.MonkeyPatch, box: Sandbox) -> None:
    scheme = written("[0 for _ in iter(int, 1)]")
    Path("mine.py").write_text(Path("mine.py").read_text().replace("    def", "    call_limit_s = 1e9\n\n    def", 1))
    monkeypatch.setattr(box, "budget", Budget(cpu_s=1))
    assert ending(scheme, box) == "`mine.py`, line 13: took more than 1 s of processor time (`cpu_s` of [tune])"


def test_a_clock_is_noticed_since_the_same_run_has_other_numbers(box: Sandbox) -> None:
    said = ending(written('self.packets = 2 + __import__("time").time_ns() // 1000 % 997'), box)
    assert said == (
        "`mine.py`: the same run gave other numbers when it ran again: the class reads a clock, or draws random "
        "numbers that are not from `self.random`"
    )


def test_random_numbers_of_ones_own_are_noticed_and_those_of_the_flow_are_not(box: Sandbox) -> None:
    assert "gave other numbers" in ending(written('self.packets = __import__("random").randrange(2, 999)'), box)
    run = over(written("self.packets = self.random.randrange(2, 999)"), seed=2)
    ((_, end),) = box.ended([run.to_json()], columns=False)
    assert not isinstance(end, RuntimeError), end


def test_one_run_leaves_nothing_for_the_next(box: Sandbox) -> None:
    """A count in the module begins anew in each run, so a candidate cannot tell which row it is on."""
    runs = [over(written("helper.ONE += 1"), seed=seed).to_json() for seed in (1, 2, 3)]
    ended = [end for _, end in sorted(box.ended(runs, threads=1, columns=False), key=lambda pair: pair[0])]
    assert ended[0] == ended[1] == ended[2]
    assert not isinstance(ended[0], RuntimeError)


def test_an_honest_controller_has_the_same_outcomes_with_arrays_and_without() -> None:
    scheme = written()
    runs = [over(scheme), over("cubic"), over(f"{scheme}:packets=30", trace="judged.down", seed=3)]
    confined: list[Any] = []
    with Sandbox().used():
        confined += [measure_each(runs), run_each(runs)]
        plain = [run.without_series() for run in runs]
        confined.append([end for _, end in sorted(as_ended(plain, columns=False), key=lambda pair: pair[0])])
    assert controller.sandbox.get() is None
    free = [measure_each(runs), run_each(runs)]
    for one, other in zip([*confined], [*free, free[0]], strict=True):
        assert [pack(end) for end in one] == [pack(end) for end in other]


def test_a_file_is_loaded_in_the_sandbox_alone() -> None:
    scheme = written()
    with Path("mine.py").open("a") as file:
        file.write('open("loaded", "w").close()\n')
    with Sandbox().used(), pytest.raises(FieldError, match=r"`mine.py` cannot be loaded: line 19: PermissionError"):
        Contestant.from_scheme(scheme)
    assert not Path("loaded").exists()


def test_keys_are_checked_there_with_the_same_words() -> None:
    scheme = written()
    problems = []
    for place in (Sandbox().used(), contextlib.nullcontext()):
        with place:
            assert Contestant.from_scheme(f"{scheme}:packets=3").label == "Mine (packets=3)"
            for wrong in (f"{scheme}:packet=3", f"{scheme}:packets=many", "mine.py:Yours", "yours.py:Mine"):
                with pytest.raises(FieldError) as refused:
                    Contestant.from_scheme(wrong)
                problems.append(str(refused.value))
    assert problems[:4] == problems[4:]


SEARCH = """
scheme = "mine.py:Mine"
rivals = ["cubic"]
keys = { packets = { from = 4, to = 60 } }
tune = { trace = ["rate:4", "judged.down"], duration_s = 0.5, seed = [1, 2], memory_mb = 1024 }
judge = { trace = "rate:6", duration_s = 0.5 }
aim = { most = ["utilization"], least = ["qdelay_p95_ms"], bounds = ["check:own.toml"] }
search = { candidates = 6, batch = 3, finalists = 2 }
"""

#: A suite that runs the candidate, too.
SUITE = """
name = "own"
title = "Own"
about = "One row."
source = "here"
seeds = 1

[[rows]]
id = "alone"
about = "Alone on 4 Mbit/s, some arrives."
source = "here"
kind = "ours"
controllers = ["any"]
scenario = { trace = "rate:4", duration_s = 1 }
flows = [{}]
checks = [{ measure = "qdelay_p95", most = 1000 }]
"""


def test_a_search_ends_with_the_same_front_with_and_without(verus: Command) -> None:
    pytest.importorskip("optuna")
    written()
    Path("gains.toml").write_text(SEARCH)
    Path("own.toml").write_text(SUITE)
    found = []
    for more in ([], ["--no-sandbox"]):
        out = f"found{len(more)}"
        ran = verus("tune", "gains.toml", "--out", out, "-q", *more)
        assert ran.code == 0, ran.err
        ran = verus("tune", "gains.toml", "--out", out, "-q", "--judge", *more)
        assert ran.code == 0, ran.err
        judged = json.loads(Path(out, "judged.json").read_text())
        found.append((json.loads(Path(out, "search.json").read_text()), judged["senders"]))
    assert found[0] == found[1]
    assert found[0][0]["front"]


def test_a_search_whose_candidates_peek_has_none_of_them_and_suites_run_there_too(verus: Command) -> None:
    pytest.importorskip("optuna")
    written('self.packets > 20 and open("own.toml")')
    with Path("mine.py").open("a") as file:
        file.write('\ntry:\n    open("loaded", "w").close()\nexcept OSError:\n    pass\n')
    Path("gains.toml").write_text(SEARCH)
    Path("own.toml").write_text(SUITE)
    ran = verus("tune", "gains.toml", "--out", "found", "-q")
    assert ran.code == 0, ran.err
    candidates = json.loads(Path("found/search.json").read_text())["candidates"]
    for one in candidates:
        assert (one["state"] == "broken") == (one["params"]["packets"] > 20)
        assert one["state"] != "broken" or re.search(r"`mine.py`: Mine.on_start .*\(line 11\)$", one["why"])
    assert {one["state"] for one in candidates} > {"broken"}
    assert not Path("loaded").exists()


def test_a_system_without_landlock_is_named_and_its_user_decides(
    verus: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    missing = """
import verus._verus
def confine(*_): raise OSError("this system offers no Landlock")
verus._verus.confine = confine
from verus.lab"""
    monkeypatch.setattr(sandbox, "_START", sandbox._START.replace("from verus.lab", missing.strip()))
    written()
    Path("gains.toml").write_text(SEARCH.replace('bounds = ["check:own.toml"]', "bounds = []"))
    ran = verus("tune", "gains.toml", "--out", "found", "-q")
    assert ran.code == 2
    assert "this system offers no Landlock, so Python files would run as your user" in ran.err
    assert "--no-sandbox" in ran.err
    assert not Path("found").exists()
    assert verus("tune", "gains.toml", "--out", "found", "-q", "--no-sandbox").code == 0


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"memory_mb": 1}, "tune.memory_mb: must be a whole number from 128 to 1048576, not 1"),
        ({"cpu_s": 0.5}, "tune.cpu_s: must be a whole number from 1 to 86400, not 0.5"),
    ],
)
def test_a_budget_that_is_none_is_refused(entry: dict[str, Any], problem: str) -> None:
    content = {
        "scheme": "forward",
        "keys": {"budget_ms": {"from": 20, "to": 30}},
        "tune": {"trace": "rate:4", "duration_s": 1, **entry},
        "judge": {"trace": "rate:6", "duration_s": 1},
        "aim": {"most": ["utilization"]},
    }
    with pytest.raises(FieldError) as refused:
        problem_of(content, "x")
    assert str(refused.value) == problem


STRANGE = [
    b"",
    b"J",
    b"P",
    b"J[]",
    b'J{"outcome": 1}',
    b'J{"outcome": {}}',
    b'J{"outcome": {"metrics": {}, "flows": []}}',
    b'J{"failed": 1}',
    b"J" + b"[" * 100_000,
    b"J\xff",
    b"P\x1f\x8b",
]


def test_no_answer_of_a_strangers_process_upsets_this_one() -> None:
    draw = random.Random(1)
    run = over("cubic")
    (whole,), (plain,) = run_each([run]), measure_each([run])
    assert not isinstance(whole, RuntimeError)
    assert not isinstance(plain, RuntimeError)
    packed = pack(whole)
    for _ in range(200):
        damaged = bytearray(packed)
        damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        STRANGE.append(b"P" + bytes(damaged[: draw.randrange(len(damaged) + 1)]))
    for answer in STRANGE:
        end = outcome_of(answer)
        assert isinstance(end, RuntimeError | dict)
        # An answer that is accepted can be read as an outcome.
        assert isinstance(end, RuntimeError) or rows([run], [end])
    assert pack(outcome_of(b"P" + packed)) == packed
    assert outcome_of(b"J" + json.dumps({"outcome": plain}).encode(), columns=False) == plain
    for name in ("power", "per_flow"):
        broken = {**plain, "metrics": {**plain["metrics"], name: "none"}}
        assert isinstance(outcome_of(b"J" + json.dumps({"outcome": broken}).encode(), columns=False), RuntimeError)
    assert str(outcome_of(b'J{"failed": "no\\nmore"}')) == "no more"


def outcome_of(answer: bytes, *, columns: bool = True) -> Any:
    """The outcome of a run of one flow that has this answer."""

    class Strange(sandbox._Server):
        def __init__(self) -> None:
            pass

        def answer(self, request: dict[str, Any]) -> bytes:
            return answer

    box = Sandbox()
    box._idle.put(Strange())
    scenario = json.dumps({"flows": [{"scheme": "mine.py:Mine"}]})
    return box._outcome({"kind": "run", "file": "mine.py", "scenario": scenario, "columns": columns})
