"""Runs are stored as they end: a stored run is not repeated, and not taken for another."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verus.lab import store
from verus.lab.runner import run_all
from verus.lab.scenario import Contestant, Run, make_run
from verus.lab.store import Keys, Store

Command = Callable[..., Any]

#: Twelve runs, each long enough for a signal to come between two.
MANY = (
    *("compare", "--trace", "city-driving-3g-up", "--scheme", "verus:ratio=2", "cubic"),
    *("--duration", "25", "--repeat", "6", "--records"),
)


def run(**changes: Any) -> Run:
    scheme = changes.pop("scheme", "cubic")
    return make_run(
        **{"trace": "rate:5", "queue": "infinite", "duration_s": 1.0, **changes},
        contestant=Contestant.from_scheme(scheme),
    )


def kept(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.run"))


def killed(command: tuple[str, ...], folder: Path, number: signal.Signals, place: Path, after: int) -> tuple[int, str]:
    """Exit code and output of the command, ended by a signal once `after` runs are kept."""
    process = subprocess.Popen(
        [sys.executable, "-m", "verus", *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while len(kept(place)) < after:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    return process.returncode, err.decode()


@pytest.mark.parametrize(("number", "out"), [(signal.SIGKILL, ("--out", "one")), (signal.SIGINT, ())])
def test_the_same_command_runs_only_what_is_missing_and_ends_in_the_same_bytes(
    number: signal.Signals, out: tuple[str, ...], verus: Command, tmp_path: Path, simulated: list[str]
) -> None:
    results = tmp_path / "verus-results"
    code, err = killed((*MANY, *out), tmp_path, number, tmp_path, after=3)
    stored = len(kept(tmp_path))
    assert 3 <= stored < 12
    if number == signal.SIGINT:
        assert code == 130, err
        assert err.startswith(f"verus: interrupted; {stored} of 12 runs are kept in `")
        assert err.endswith(".unfinished`; the same command goes on from there\n")
    ran = verus(*MANY, *out)
    assert ran.code == 0
    assert f"{stored} of 12 runs were done before" in ran.err
    assert len(simulated) == 12 - stored
    assert not kept(tmp_path)
    (first,) = [tmp_path / "one"] if out else list(results.iterdir())
    assert verus(*MANY, "--out", "undisturbed").code == 0
    for name in ("results", "series", "profile", "records"):
        one, other = ((folder / f"{name}.parquet").read_bytes() for folder in (first, tmp_path / "undisturbed"))
        assert one == other


def test_a_full_disk_loses_nothing_that_was_written(
    verus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simulated: list[str]
) -> None:
    own, written = os.open, 0

    def full(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        nonlocal written
        handle = own(path, flags, *rest, **more)
        written += bool(flags & os.O_EXCL)
        if flags & os.O_EXCL and written > 2:
            os.close(handle)
            return own("/dev/full", os.O_WRONLY)
        return handle

    words = ("compare", "--trace", "rate:5", "--scheme", "cubic", "--repeat", "5", "--duration", "1", "--out", "one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        ran = verus(*words)
    assert ran.code == 2
    first, second = ran.err.splitlines()
    assert "cannot be written (No space left on device)" in first
    assert second.strip() == "2 of 5 runs are kept in `one.unfinished`; the same command goes on from there"
    assert len([path for path in (tmp_path / "one.unfinished").rglob("*") if path.is_file()]) == 2
    simulated.clear()
    assert verus(*words).code == 0
    assert len(simulated) == 3


def test_one_run_that_fails_costs_none_of_the_others(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("1\n2\nthree\n")
    words = ("compare", "--trace", "rate:5", "broken", "--scheme", "cubic", "--duration", "5", "--repeat", "8")
    words = (*words, "--out", "one")
    ran = verus(*words)
    assert ran.code == 2
    first, second = ran.err.splitlines()
    assert "broken" in first
    stored = len(kept(tmp_path / "one.unfinished"))
    assert stored >= 7
    assert second.strip() == f"{stored} of 16 runs are kept in `one.unfinished`; the same command goes on from there"
    (tmp_path / "broken").write_text("1\n2\n3\n")
    assert f"{stored} of 16 runs were done before" in verus(*words).err


def test_an_outcome_comes_back_as_it_was(tmp_path: Path) -> None:
    (outcome,) = run_all([run(scheme="verus:ratio=2", records=True, trace="city-driving-3g-up")])
    box = Store(tmp_path / "runs")
    box.write("ab12", outcome)
    again = box.read("ab12")
    assert again is not None
    assert again.keys() == outcome.keys()
    assert again["metrics"] == outcome["metrics"]
    for part in ("series", "profiles", "records", "capacity"):
        assert again[part].keys() == outcome[part].keys()
        for name, values in outcome[part].items():
            if isinstance(values, np.ndarray):
                assert again[part][name].dtype == values.dtype
                np.testing.assert_array_equal(again[part][name], values)
            else:
                assert again[part][name] == values
    assert store.pack(outcome) == store.pack(again)


@pytest.mark.parametrize("damage", [lambda whole: whole[:-20], lambda _: b"", lambda whole: whole[:50] + b"x" * 40])
def test_a_damaged_file_counts_as_missing(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    box = Store(tmp_path)
    box.write("ab12", {"metrics": {"power": 1.0}})
    path = box.path("ab12")
    path.write_bytes(damage(path.read_bytes()))
    assert box.read("ab12") is None
    with pytest.raises(RuntimeError, match="removed or changed"):
        box.outcome("ab12")


def test_whatever_decides_the_outcome_is_in_the_key() -> None:
    keys = Keys("one")
    distinct = {
        keys.of(run()),
        keys.of(run(seed=2)),
        keys.of(run(scheme="vegas")),
        keys.of(run(trace="rate:6")),
        keys.of(run(queue="codel")),
        keys.of(run(series=False)),
        keys.of(run(ack="same")),
        Keys("another").of(run()),
    }
    assert len(distinct) == 8
    assert keys.of(run()) == Keys("one").of(run())


def test_files_are_known_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    town, copy, other = Path("town.down"), Path("copy"), Path("other")
    town.write_text("1\n2\n3\n4\n")
    copy.write_text("1\n2\n3\n4\n")
    other.write_text("1\n2\n3\n5\n")

    def key(**changes: Any) -> str:
        return Keys("one").of(run(**changes))

    assert key(trace="town.down") == key(trace="copy") != key(trace="other")
    assert key(ack="town.down") == key(ack="copy") != key(ack="other")
    assert key(delay_series="town.down") == key(delay_series="copy") != key(delay_series="other")
    assert key(delay_series="town.down") != key()
    light = {"light_trace": "town.down", "packet_bytes": 1400}
    assert key(**light) == key(**light | {"light_trace": "copy"}) != key(**light | {"light_trace": "other"})
    sizes = light | {"size_offsets": "town.down"}
    assert key(**sizes) == key(**sizes | {"size_offsets": "copy"}) != key(**light)
    before = key(trace="town.down+other[0:0.003]")
    other.write_text("1\n2\n3\n6\n")
    assert key(trace="town.down+other[0:0.003]") != before


def test_a_class_in_python_is_known_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    before = Keys("one").of(run(scheme=f"{path}:Mine:window=9"))
    path.write_text(MINE.replace("1500", "3000"))
    assert Keys("one").of(run(scheme=f"{path}:Mine:window=9")) != before


MINE = """
from verus import Controller

class Mine(Controller):
    def __init__(self, *, window: int = 1) -> None:
        self.window_bytes = 1500 * window

    def on_feedback(self, feedback) -> None: ...
    def on_timeout(self, timeout) -> None: ...
"""


def test_a_model_is_known_by_content(verus: Command, tmp_path: Path) -> None:
    for seed in ("1", "2"):
        ran = verus("train", f"{seed}.model", "--duration", "5", "--seed", seed)
        assert ran.code == 0, ran.err
    one, two = (Keys("one").of(run(scheme=f"model:file={tmp_path / f'{seed}.model'}")) for seed in (1, 2))
    assert one != two
    (tmp_path / "1.model").write_bytes((tmp_path / "2.model").read_bytes())
    assert Keys("one").of(run(scheme=f"model:file={tmp_path / '1.model'}")) == two


def test_no_damage_is_taken_for_an_outcome(tmp_path: Path) -> None:
    (outcome,) = run_all([run(scheme="verus")])
    box = Store(tmp_path)
    box.write("ab12", outcome)
    path = box.path("ab12")
    whole = path.read_bytes()
    dice = random.Random(1)
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(dice.choice([1, 1, 2, 50])):
            damaged[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
        if dice.random() < 0.2:
            del damaged[dice.randrange(len(whole)) :]
        if bytes(damaged) != whole:
            path.write_bytes(damaged)
            assert (box.read("ab12"), box.has("ab12")) == (None, False)
    path.write_bytes(whole)
    assert store.pack(box.outcome("ab12")) == store.pack(outcome)
