"""`verus sweep`: what a study file may say, and that its dataset is the same however the work was done."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import itertools
import json
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from verus.lab import cluster, inputs, store, study, sweep
from verus.lab.metric_rows import ROW_FIELDS
from verus.lab.scenario import SCHEMA, Settings
from verus.lab.store import Store
from verus.lab.sweep import MOST_PLAN, Plan

Command = Callable[..., Any]

STUDY = """
duration_s = 2
trace = ["rate:5", "city-driving-3g-up"]
seed = { from = 1, to = 3 }

[[part]]
name = "epoch"
scheme = "verus:ratio=2"
params.epoch_ms = [5, 20]

[[part]]
name = "others"
scheme = ["cubic", "vegas"]
queue = ["codel", "infinite"]
flows = [1, 2]
loss = { from = 0, to = 0.02, step = 0.02 }
"""

#: Runs of `STUDY`.
COUNT = 2 * 3 * 2 + 2 * 3 * 2 * 2 * 2 * 2


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(STUDY)
    return path


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "results.parquet").read_bytes()).hexdigest()


def kept(folder: Path) -> int:
    return len(list((folder / "runs").rglob("*.run")))


@pytest.mark.usefixtures("written")
def test_every_value_meets_every_other_and_is_a_row(verus: Command, tmp_path: Path) -> None:
    ran = verus("sweep", "mine.toml")
    assert ran.code == 0, ran.err
    table = pq.read_table(tmp_path / "verus-results" / "mine" / "results.parquet")
    assert table.num_rows == COUNT
    dataset_rows = table.to_pylist()
    assert [row["run"] for row in dataset_rows] == list(range(COUNT))
    # A column of a comparison's rows has what a comparison gives for the same run.
    (row,) = [json.loads(line) for line in verus(*COMPARED, "--json").out.splitlines()]
    (own,) = [
        one
        for one in dataset_rows
        if (one["trace"], one["scheme"], one["params.epoch_ms"], one["seed"]) == ("rate:5", "verus", 20.0, 3)
    ]
    assert json.loads(own.pop("params")) == row.pop("params") == {"ratio": 2, "epoch_ms": 20}
    assert {name: own[name] for name in row} == row
    assert {(row["part"], row["params.epoch_ms"], row["loss"]) for row in dataset_rows} == {
        ("epoch", 5.0, None),
        ("epoch", 20.0, None),
        ("others", None, 0.0),
        ("others", None, 0.02),
    }
    others = {(r["trace"], r["scheme"], r["queue"], r["flows"], r["loss"], r["seed"]) for r in dataset_rows[12:]}
    assert others == set(
        itertools.product(
            ("rate:5", "city-driving-3g-up"), ("cubic", "vegas"), ("codel", "infinite"), (1, 2), (0, 0.02), (1, 2, 3)
        )
    )


COMPARED = ("compare", "--trace", "rate:5", "--scheme", "verus:ratio=2,epoch_ms=20", "--duration", "2", "--seed", "3")


@pytest.mark.usefixtures("written")
def test_killed_in_the_middle_it_goes_on_to_the_same_bytes(
    verus: Command, tmp_path: Path, simulated: list[str]
) -> None:
    undisturbed = tmp_path / "undisturbed"
    assert verus("sweep", "mine.toml", "--out", undisturbed, "--jobs", "1").code == 0
    place = tmp_path / "verus-results" / "mine"
    process = subprocess.Popen([sys.executable, "-m", "verus", "sweep", "mine.toml", "-q"], cwd=tmp_path)
    while kept(place) < 10:
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stored = kept(place)
    assert 10 <= stored < COUNT
    assert not (place / "results.parquet").exists()
    status = json.loads(verus("sweep", "status", "mine.toml", "--json").out)
    assert (status["runs"], status["there"], status["finished"]) == (COUNT, stored, False)
    simulated.clear()
    assert verus("sweep", "mine.toml", "--jobs", "3").code == 0
    assert len(simulated) == COUNT - stored
    assert digest(place) == digest(undisturbed)
    simulated.clear()
    assert verus("sweep", "mine.toml").code == 0
    assert simulated == []
    assert digest(place) == digest(undisturbed)


@pytest.mark.usefixtures("written")
def test_ctrl_c_says_what_is_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "verus", "sweep", "mine.toml", "--jobs", "1"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
    while not kept(tmp_path / "verus-results" / "mine"):
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    stored = kept(tmp_path / "verus-results" / "mine")
    assert process.returncode == 130
    progress = f"{stored} of {COUNT} runs are kept in `verus-results/mine/runs`; the same command goes on from there"
    assert err.decode().splitlines() == [f"verus: interrupted; {progress}"]


@pytest.mark.usefixtures("written")
def test_shards_merged_are_the_same_bytes(verus: Command, tmp_path: Path, simulated: list[str]) -> None:
    assert verus("sweep", "mine.toml", "--out", "whole").code == 0
    simulated.clear()
    for shard in (3, 1, 2):
        assert verus("sweep", "mine.toml", "--out", f"part{shard}", "--shard", f"{shard}/3").code == 0
        assert not (tmp_path / f"part{shard}" / "results.parquet").exists()
    assert len(simulated) == COUNT
    ran = verus("sweep", "merge", "part1", "part3", "--out", "merged")
    assert ran.code == 1
    assert f"{kept(tmp_path / 'part2')} of {COUNT} runs are in none of the folders" in ran.err
    assert not (tmp_path / "merged" / "results.parquet").exists()
    assert verus("sweep", "merge", "merged", "part2", "--out", "merged").code == 0
    assert digest(tmp_path / "merged") == digest(tmp_path / "whole")


@pytest.mark.usefixtures("written")
def test_shards_may_share_a_folder(verus: Command, tmp_path: Path) -> None:
    assert verus("sweep", "mine.toml", "--out", "whole").code == 0
    for shard in (2, 1):
        assert verus("sweep", "mine.toml", "--out", "shared", "--shard", f"{shard}/2").code == 0
    assert digest(tmp_path / "shared") == digest(tmp_path / "whole")


def test_merge_refuses_what_does_not_belong_together(verus: Command, written: Path, tmp_path: Path) -> None:
    assert verus("sweep", "mine.toml", "--out", "one", "--shard", "1/50").code == 0
    written.write_text(STUDY.replace("to = 3", "to = 4"))
    assert verus("sweep", "mine.toml", "--out", "two", "--shard", "1/50").code == 0
    ran = verus("sweep", "merge", "one", "two", "--out", "both")
    assert ran.code == 2
    assert "`two` is not of the same study as `one`" in ran.err
    assert not (tmp_path / "both").exists()
    ran = verus("sweep", "merge", "nowhere", "--out", "both")
    assert ran.code == 2
    assert "`nowhere` is not the folder of a sweep" in ran.err
    (tmp_path / "two" / "plan.json.gz").write_bytes(b"no plan")
    ran = verus("sweep", "merge", "one", "two", "--out", "both")
    assert ran.code == 2
    assert "not the plan of a sweep" in ran.err


def test_whatever_plan_is_written_can_be_read(
    verus: Command, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan.of(study.read(written), store.engine())
    path = tmp_path / "plan.json.gz"
    path.write_bytes(plan.pack())
    assert Plan.read(path) == plan
    size = len(gzip.decompress(path.read_bytes()))
    monkeypatch.setattr(sweep, "MOST_PLAN", size)
    path.write_bytes(plan.pack())
    assert Plan.read(path).digest() == plan.digest()
    monkeypatch.setattr(sweep, "MOST_PLAN", size - 1)
    with pytest.raises(ValueError, match="expands to more than"):
        Plan.read(path)
    ran = verus("sweep", "mine.toml", "--out", "large")
    assert ran.code == 2
    assert f"has {len(plan.runs)} runs, whose plan takes {size} bytes" in ran.err
    assert not (tmp_path / "large").exists()


def test_the_largest_study_has_a_plan_that_can_be_read(written: Path) -> None:
    plan = Plan.of(study.read(written), "one")
    packed = json.loads(gzip.decompress(plan.pack()))
    varied = [
        one["at"]
        for part in (packed["run"], packed["scenario"], packed["swept"])
        for one in part.values()
        if "at" in one
    ]
    # Each run takes its key, and a number with its comma and space for each setting that varies.
    digits = len(str(study.MOST_RUNS)) + 2
    assert len(varied) >= 3
    assert study.MOST_RUNS * (len(plan.keys[0]) + 7 * digits) < MOST_PLAN


@pytest.mark.parametrize("key", ["../" * 21 + "x", "A" * 64, "0" * 63])
def test_the_keys_of_a_plan_are_digests(key: str, verus: Command, written: Path, tmp_path: Path) -> None:
    assert verus("sweep", "mine.toml", "--out", "one", "--shard", "1/50").code == 0
    path = tmp_path / "one" / "plan.json.gz"
    content = json.loads(gzip.decompress(path.read_bytes()))
    path.write_bytes(gzip.compress(json.dumps({**content, "keys": key + content["keys"][64:]}).encode()))
    ran = verus("sweep", "merge", "one", "--out", "both")
    assert ran.code == 2
    assert "a key is no digest" in ran.err


def test_merge_refuses_runs_of_another_engine(
    verus: Command, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert written.exists()
    assert verus("sweep", "mine.toml", "--out", "one", "--shard", "1/50").code == 0
    monkeypatch.setattr(store, "engine", lambda: "0.0.0-another")
    assert verus("sweep", "mine.toml", "--out", "two", "--shard", "2/50").code == 0
    ran = verus("sweep", "merge", "one", "two", "--out", "both")
    assert ran.code == 2
    assert "another build of the simulator (0.0.0-another)" in ran.err
    assert not (tmp_path / "both").exists()


def test_a_study_that_grows_runs_only_what_is_new(verus: Command, written: Path, simulated: list[str]) -> None:
    assert verus("sweep", "mine.toml").code == 0
    written.write_text(STUDY.replace("to = 3", "to = 4"))
    status = json.loads(verus("sweep", "status", "mine.toml", "--json").out)
    assert (status["there"], status["finished"]) == (COUNT, False)
    assert "is of an earlier study" in verus("sweep", "status", "mine.toml").out
    simulated.clear()
    assert verus("sweep", "mine.toml").code == 0
    assert len(simulated) == COUNT / 3


def test_runs_that_parts_share_are_run_once(verus: Command, tmp_path: Path, simulated: list[str]) -> None:
    part = '[[part]]\nname = "{}"\nscheme = {}\n'
    (tmp_path / "s.toml").write_text(
        'duration_s = 1\ntrace = "rate:5"\n' + part.format("one", '["cubic", "vegas"]') + part.format("two", '"cubic"')
    )
    assert verus("sweep", "s.toml").code == 0
    assert len(simulated) == 2
    table = pq.read_table(tmp_path / "verus-results" / "s" / "results.parquet")
    assert table.column("part").to_pylist() == ["one", "one", "two"]
    assert table.column("scheme").to_pylist() == ["cubic", "vegas", "cubic"]


@pytest.mark.usefixtures("written")
def test_means_of_cells_have_intervals(verus: Command, tmp_path: Path) -> None:
    ran = verus("sweep", "mine.toml", "--json")
    cells = [json.loads(line) for line in ran.out.splitlines()]
    assert len(cells) == COUNT / 3
    table = pq.read_table(tmp_path / "verus-results" / "mine" / "results.parquet")
    measured = table.drop_columns(["run", "seed"]).to_pylist()
    for index, cell in enumerate(cells):
        rows = measured[3 * index : 3 * index + 3]
        values = [row["throughput_mbps"] for row in rows]
        assert cell["seeds"] == [1, 2, 3]
        assert cell["throughput_mbps"]["mean"] == pytest.approx(statistics.mean(values))
        # Student's t of 2 degrees of freedom, as tables state it.
        half_width = 4.3027 * statistics.stdev(values) / 3**0.5
        if rows[0] == rows[1] == rows[2]:
            assert cell["throughput_mbps"]["half_width_95"] is None
            continue
        assert cell["throughput_mbps"]["half_width_95"] == pytest.approx(half_width, rel=1e-4, abs=1e-9)
    shown = verus("sweep", "mine.toml").out
    assert "±" in shown
    assert "Student's t" in shown


def test_a_queue_that_stands_for_several_is_each_of_them(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "queues.toml").write_text(CUBIC + 'duration_s = 1\nqueue = ["codel:target_ms=5,20", "infinite"]\n')
    assert verus("sweep", "queues.toml").code == 0
    table = pq.read_table(tmp_path / "verus-results" / "queues" / "results.parquet")
    assert table.column("queue").to_pylist() == ["codel:target_ms=5", "codel:target_ms=20", "infinite"]


#: A study that can be run, to which mistakes are added.
CUBIC = 'trace = "rate:5"\nscheme = "cubic"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trace = ", "not TOML: Invalid value (at end of document)"),
        ('trace = "rate:5"\nschem = "cubic"', "schem: there is no such key; did you mean `scheme`?"),
        (
            'trace = "rate:5"\n[[part]]\nsheme = "cubic"',
            "part `1`: sheme: there is no such key; did you mean `scheme`?",
        ),
        ('scheme = "cubic"', "trace: is missing: which channels?"),
        ('trace = "rate:5"', "scheme: is missing: which controllers? (or `mix`)"),
        ('trace = []\nscheme = "cubic"', "trace: is an empty list: nothing would be run"),
        ('trace = 5\nscheme = "cubic"', "trace: must be a text, not 5"),
        ('trace = "rate:5"\nscheme = ["cubic", 3]', "scheme: must be a text, not 3"),
        (CUBIC + "flows = 1.5", "flows: must be a whole number, not 1.5"),
        (CUBIC + "flows = true", "flows: must be a whole number, not true"),
        (CUBIC + "flows = [1, 1]", "flows: has 1 twice"),
        (CUBIC + 'loop = "yes"', 'loop: must be true or false, not "yes"'),
        (CUBIC + 'duration_s = "long"', 'duration_s: must be a number, not "long"'),
        (CUBIC + "duration_s = -1", "duration_s: must be "),
        (CUBIC + "seed = -1", "seed: must be 0 or more, not -1"),
        (CUBIC + "seed = {from = 1}", "seed.to: is missing"),
        (CUBIC + "seed = {from = 1, too = 2}", "seed.too: there is no such key; did you mean"),
        (CUBIC + "seed = {from = 1, to = 2.5}", "seed.to: must be a whole number, not 2.5"),
        (CUBIC + "seed = {from = 3, to = 2}", "seed: must lead upwards"),
        (CUBIC + "loss = {from = 0, to = inf}", "loss: must lead upwards"),
        ('trace = {from = 1, to = 2}\nscheme = "cubic"', "trace: must be a text or a list, not a range"),
        ('trace = "nowhere"\nscheme = "cubic"', "trace: "),
        ('trace = "rate:5"\nscheme = "verus:ratio=x"', "scheme: "),
        ('trace = "rate:5"\nscheme = "linux:cc=bbr"', "scheme: `linux:cc=bbr` is the kernel's"),
        (CUBIC + 'queue = "codle"', "queue: "),
        (CUBIC + 'queue = ["codel:target_ms=5", "codel:target_ms=5,9"]', 'queue: has "codel:target_ms=5" twice'),
        (
            'trace = "rate:5"\nscheme = ["cubic", "verus:ratio=2..4"]',
            'scheme: "verus:ratio=2..4" stands for several: give the values of its keys under `params`',
        ),
        ('trace = "rate:5"\nmix = "cubic*0"', "mix: "),
        ('trace = "rate:5"\nmix = "cubic*2"\nflows = 3', "flows: is for `scheme`"),
        ('trace = "rate:5"\nmix = "cubic*2"\nparams.x = 3', "params: is for `scheme`"),
        ('trace = "rate:5"\nscheme = "verus"\nparams = 3', "params: must be a table"),
        (
            'trace = "rate:5"\nscheme = "verus"\nparams.epoc_ms = 3',
            "params.epoc_ms: `verus` has no such key; did you mean `epoch_ms`?",
        ),
        ('trace = "rate:5"\nscheme = "verus"\nparams.epoch_ms = "x"', "scheme: "),
        ('trace = "rate:5"\nscheme = "verus"\nparams.epoch_ms = []', "params.epoch_ms: is an empty list"),
        (
            'trace = "rate:5"\nscheme = "verus"\nparams.epoch_ms = [[1]]',
            "params.epoch_ms: must be a number, a text, or",
        ),
        ('part = 3\ntrace = "rate:5"\nscheme = "verus"', "part: must be tables"),
        (CUBIC + '[[part]]\nname = "a"\n[[part]]\nname = "a"', "part 2: name: there is another"),
        ('name = "../x"\ntrace = "rate:5"\nscheme = "cubic"', "name: must be a text that can name a folder"),
        (
            CUBIC + "seed = {from = 1, to = 900000}\nloss = [0, 0.1]",
            "more than 1000000 runs: each value of every key meets every other",
        ),
    ],
)
def test_a_mistake_in_a_study_is_one_message_with_file_and_key(
    text: str, message: str, verus: Command, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(text)
    for words in (("sweep", "mine.toml"), ("sweep", "status", "mine.toml")):
        ran = verus(*words)
        assert ran.code == 2
        assert ran.out == ""
        (line,) = ran.err.splitlines()
        assert line.startswith("verus: `mine.toml`: ")
        assert message in line
    assert not (tmp_path / "verus-results").exists()


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--shard", "4/3"), "--shard: must be K/N with K from 1 to N, such as 3/16, not `4/3`"),
        (("--shard", "0/3"), "--shard: must be K/N"),
        (("--shard", "one"), "--shard: must be K/N"),
        (("--jobs", "0"), "--jobs: must be 1 or more, not 0"),
        (("--jobs", "2", "--cluster", "local:2"), "--jobs: is for this machine"),
        (("--out", "mine.toml"), "--out: `mine.toml` is not a folder"),
        (("--out", "."), "--out: `.` is not empty, and not the folder of a sweep"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_message(words: tuple[str, ...], message: str, verus: Command) -> None:
    ran = verus("sweep", "mine.toml", *words)
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert message in line


def test_a_file_that_is_not_there_is_named(verus: Command) -> None:
    ran = verus("sweep", "none.toml")
    assert (ran.code, ran.err) == (2, "verus: `none.toml`: No such file or directory\n")


def test_a_study_may_vary_every_setting_of_a_simulation() -> None:
    settings = {entry.name for entry in dataclasses.fields(Settings)}
    elsewhere = {
        "emulate",
        "virtual",
        "transports",
        "records",
        "bin_ms",
        "repeat",
        "stretches",
        "changes",
        "changes_repeat_s",
    }
    keys = {study._LISTS.get(key, key) for key in study.KEYS}
    assert keys == settings - elsewhere
    assert set(study.EXTRA) == set(study.KEYS) - set(ROW_FIELDS) - {"mix"}
    kinds = {str: "string", int: "integer", float: "number", bool: "boolean"}
    for key, kind in study.KEYS.items():
        if key in SCHEMA["properties"] and key != "flows":
            schema_type = SCHEMA["properties"][key]["type"]
            assert kinds[kind] in (schema_type if isinstance(schema_type, list) else [schema_type]), key


def test_ranges_have_their_ends_and_no_rounding(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        'trace = "rate:5"\nscheme = "verus"\nloss = { from = 0.1, to = 0.3, step = 0.1 }\n'
        "params.epoch_ms = { from = 2, to = 11, step = 4 }\n"
    )
    parsed = study.read(path)
    assert [one.swept["loss"] for one in parsed.runs] == [0.1] * 3 + [0.2] * 3 + [0.3] * 3
    assert [one.run.contestant.text for one in parsed.runs[:3]] == [f"verus:epoch_ms={ms}" for ms in (2, 6, 10)]


def test_the_study_of_the_paper_is_what_it_says() -> None:
    path = Path(__file__).parents[2] / "examples" / "sensitivity.toml"
    parsed = study.read(path)
    parts = {one.run.part for one in parsed.runs}
    assert parts == {"epoch", "update interval", "decrement", "increment"}
    assert len(parsed.runs) == 4 * 5 * 7 * 5
    assert set(parsed.columns) == {f"params.{key}" for key in KEYS}
    assert {one.run.scenario["duration_s"] for one in parsed.runs} == {120.0}


KEYS = ("epoch_ms", "update_interval_ms", "decrement_ms", "increment_ms")


def test_whatever_is_damaged_is_made_again(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('trace = "rate:5"\nscheme = "cubic"\nduration_s = 1\nseed = [1, 2, 3, 4]\n')
    assert verus("sweep", "s.toml").code == 0
    folder = tmp_path / "verus-results" / "s"
    whole = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert len(whole) == 6
    dice = random.Random(1)
    for flips in range(30):
        for path, content in whole.items():
            damaged = bytearray(content)
            for _ in range(flips % 3 + 1):
                damaged[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
            path.write_bytes(damaged)
        status = json.loads(verus("sweep", "status", "s.toml", "--json").out)
        # A bit that flips twice is whole again.
        assert status["there"] == sum(path.suffix == ".run" and path.read_bytes() == whole[path] for path in whole)
        with contextlib.suppress(ValueError):
            Plan.read(folder / "plan.json.gz")
        ran = verus("sweep", "s.toml")
        assert ran.code == 0, ran.err
        assert {path: path.read_bytes() for path in whole} == whole


def test_a_run_that_fails_costs_none_of_the_others(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    (tmp_path / "s.toml").write_text('trace = "rate:5"\nscheme = ["mine.py:Mine", "cubic"]\nduration_s = 1\n')
    ran = verus("sweep", "s.toml")
    assert ran.code == 1
    first, *_, last = ran.err.splitlines()
    assert "Mine over rate:5, seed 1: " in first
    assert "broken" in first
    assert last.strip().startswith("1 of 2 runs are kept in")
    failing, _ = (one.run for one in study.read(tmp_path / "s.toml").runs)
    texts, files = cluster._packed([failing], inputs.Digests())
    (told,) = cluster._work(texts, store.engine(), None, [*files], BROKEN.encode())
    assert isinstance(told, str)
    assert "broken" in told
    (tmp_path / "mine.py").write_text(BROKEN.replace('raise ValueError("broken")', "..."))
    assert verus("sweep", "s.toml").code == 0


BROKEN = """
from verus import Controller

class Mine(Controller):
    window_bytes = 15000

    def on_feedback(self, feedback):
        raise ValueError("broken")

    def on_timeout(self, timeout): ...
"""


def test_two_clusters_on_one_machine_need_no_port_in_common() -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'verus-cc[cluster]'")
    with cluster.connected("local:1") as first, cluster.connected("local:1") as second:
        ports = [client.cluster.scheduler.http_server.port for client in (first, second)]
    assert 8787 not in ports, "Dask's default, of which it warns if another has it"


def test_a_killed_worker_costs_nothing_but_time(verus: Command, written: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'verus-cc[cluster]'")
    psutil = pytest.importorskip("psutil")
    (tmp_path / "town.down").write_text("".join(f"{time}\n" for time in range(1, 900, 3)))
    written.write_text(STUDY.replace('"rate:5"', '"town.down"').replace("duration_s = 2", "duration_s = 20"))
    assert verus("sweep", "mine.toml", "--out", "here").code == 0
    command = [sys.executable, "-m", "verus", "sweep", "mine.toml", "--out", "there", "--cluster", "local:2", "-q"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
    box = Store(tmp_path / "there" / "runs")
    while len(list(box.folder.rglob("*.run"))) < 5:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    workers = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "spawn_main" in " ".join(child.cmdline())
    ]
    assert len(workers) == 2
    assert len(list(box.folder.rglob("*.run"))) < COUNT - 10
    workers[0].kill()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err.decode()
    assert digest(tmp_path / "there") == digest(tmp_path / "here")


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("address", ["local:0", "local:x", "nowhere", "tls://127.0.0.1:9"])
def test_a_cluster_that_cannot_be_is_one_message(address: str, verus: Command) -> None:
    ran = verus("sweep", "mine.toml", "--cluster", address)
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert line.startswith("verus: --cluster: ")


def test_without_dask_the_message_says_what_to_install(
    verus: Command, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert written.exists()
    monkeypatch.setitem(sys.modules, "distributed", None)
    ran = verus("sweep", "mine.toml", "--cluster", "local:2")
    assert ran.code == 2
    assert "pip install 'verus-cc[cluster]'" in ran.err


def test_where_several_flows_share_a_link_the_least_and_the_most_of_one_are_shown(
    verus: Command, tmp_path: Path
) -> None:
    head = 'trace = "rate:8"\nduration_s = 2\nscheme = ["verus", "newreno"]\n'
    for flows, is_shown in ((1, False), (3, True)):
        (tmp_path / "s.toml").write_text(f"{head}flows = {flows}\n")
        ran = verus("sweep", "s.toml", "--out", f"of-{flows}", "--report")
        assert ran.code == 0, ran.err
        assert ("most" in ran.out) == is_shown
        assert ("least flow<br>Mbit/s" in (tmp_path / f"of-{flows}" / "report.html").read_text()) == is_shown
    for row in pq.read_table(tmp_path / "of-3" / "results.parquet").to_pylist():
        rates = [flow["throughput_mbps"] for flow in row["per_flow"]]
        assert (row["flow_min_mbps"], row["flow_max_mbps"]) == (min(rates), max(rates))
        assert f"{min(rates):.2f}" in ran.out


#: A study whose rows differ in a key of the sender, in the queue and in the direction; their names begin and end alike.
ALIKE = """
trace = ["campus-pedestrian-3g-down", "campus-pedestrian-3g-up"]
scheme = ["verus:ratio=2", "verus:ratio=4"]
queue = ["droptail:bytes=120kB", "droptail:bytes=60kB"]
duration_s = 1
"""


def test_the_table_names_what_rows_differ_in_and_says_once_what_they_share(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "alike.toml").write_text(ALIKE)
    ran = verus("sweep", "alike.toml")
    shared, _, _, heads, _, *rows = ran.out.splitlines()
    assert shared == "ack ideal · delay ms 20 · packet bytes 1500 · duration s 1 · flows 1"
    assert heads.split()[:3] == ["sender", "trace", "queue"]
    named = [re.split("  +", row.strip())[:3] for row in rows if "campus" in row]
    # In a pipe, nothing is cut.
    assert "…" not in ran.out
    assert set(map(tuple, named)) == set(
        itertools.product(
            ("Verus R=2", "Verus R=4"),
            ("campus-pedestrian-3g-down", "campus-pedestrian-3g-up"),
            ("droptail:bytes=120kB", "droptail:bytes=60kB"),
        )
    )


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_a_terminal_of_any_width_shows_no_two_rows_alike(
    width: int, verus: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alike.toml").write_text(ALIKE + "seed = [1, 2]\n")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    output = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", verus("sweep", "alike.toml").out)
    lines = [text.rstrip() for text in output.splitlines()]
    rows = [text for text in lines if text.startswith(" Verus")]
    assert len(rows) == 8
    assert len({re.split(r"  +\d", row)[0] for row in rows}) == 8, rows
    assert max(map(len, lines)) <= max(width, 80)
    is_too_narrow = any(text.startswith("Too narrow for power") for text in lines)
    assert is_too_narrow == (not any("power" in text for text in lines if "sender" in text))
    assert is_too_narrow == (width <= 100)
