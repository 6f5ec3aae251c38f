"""Repetitions: single runs, stretches of a recording, and differences between senders."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from verus import _verus, compare
from verus.errors import FieldError
from verus.lab.scenario import Settings

from .conftest import Command


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """40 s: 4, 8, 2 and 6 Mbit/s, for 10 s each."""
    path = tmp_path / "town.down"
    times = [
        part * 10_000 + round(number * gap)
        for part, gap in enumerate((3.0, 1.5, 6.0, 2.0))
        for number in range(1, int(10_000 / gap) + 1)
    ]
    path.write_text("".join(f"{at}\n" for at in times))
    return path


QUICK = ("compare", "--queue", "droptail:bytes=60000", "--duration", 5)


def test_repetitions_that_are_one_run_are_told_as_one(verus: Command, recording: Path) -> None:
    ran = verus(*QUICK, "--trace", recording, "--scheme", "cubic", "verus", "--repeat", 3, "--out", "out")
    assert ran.code == 0, ran.err
    (warning,) = (line for line in ran.err.splitlines() if "same to the last digit" in line)
    assert warning.startswith(f"Cubic over {recording}: all 3 runs are the same to the last digit")
    assert "--stretches N" in warning
    lines = ran.out.splitlines()
    below = lines[next(at for at, line in enumerate(lines) if line.strip().startswith("Cubic ")) + 1]
    assert "±" not in below
    config = json.loads((recording.parent / "out" / "run.json").read_text())
    one, other = config["means"]
    assert one["throughput_mbps"]["half_width_95"] is None
    assert other["qdelay_mean_ms"]["half_width_95"] > 0


def test_differences_of_identical_runs_have_no_interval(verus: Command, recording: Path) -> None:
    ran = verus(*QUICK, "--trace", recording, "--scheme", "cubic", "newreno", "--repeat", 5, "--out", "out")
    assert ran.code == 0, ran.err
    assert "±" not in ran.out
    assert "5 identical runs" in ran.out
    assert "tells two senders apart" not in ran.out
    assert "they tell no two senders apart" in ran.out
    config = json.loads((recording.parent / "out" / "run.json").read_text())
    (difference,) = config["differences"]
    assert difference["throughput_mbps"]["half_width_95"] is None
    assert difference["throughput_mbps"]["pairs"] == 1
    page = verus("report", "out")
    assert page.code == 0
    text = (recording.parent / "out" / "report.html").read_text()
    assert "5 identical runs" in text
    assert "95 % intervals" not in text
    assert "tells two senders apart" not in text


def test_differences_keep_their_interval_where_one_of_the_two_varies(verus: Command, recording: Path) -> None:
    ran = verus(*QUICK, "--trace", recording, "--scheme", "cubic", "verus", "--repeat", 3, "--out", "out")
    assert "mean of 3 seeds, ± 95 %" in ran.out
    assert "An interval that leaves out 0" in ran.out
    config = json.loads((recording.parent / "out" / "run.json").read_text())
    (difference,) = config["differences"]
    assert difference["throughput_mbps"]["pairs"] == 3
    assert difference["qdelay_mean_ms"]["half_width_95"] > 0


def test_a_mean_over_stretches_is_called_one(verus: Command, recording: Path) -> None:
    words = ("--trace", recording, "--scheme", "cubic", "newreno", "--stretches", 4, "--out", "out", "--report")
    ran = verus(*QUICK, *words)
    assert "mean of 4 stretches, ± 95 %" in ran.out
    assert "over the stretches (Student's t)" in ran.out
    assert "4 seeds" not in ran.out
    text = (recording.parent / "out" / "report.html").read_text()
    assert "mean of 4 stretches" in text
    assert "4 seeds" not in text


def test_where_the_seed_decides_something_nothing_is_told(verus: Command, recording: Path) -> None:
    chance = ("--loss", "1%", "--repeat", 3)
    ran = verus(*QUICK, "--trace", recording, "--scheme", "cubic", *chance, "--out", "out")
    assert ran.code == 0
    assert "same to the last digit" not in ran.err
    ran = verus(*QUICK, "--trace", recording, "--scheme", "cubic", "--out", "single")
    assert "same to the last digit" not in ran.err


def test_stretches_are_the_next_parts_of_a_recording_each_with_a_seed(recording: Path) -> None:
    settings = Settings(
        traces=[str(recording), "city-driving-3g-up"], schemes=["cubic"], stretches=4, duration_s=10.0, seed=5
    )
    runs = settings.runs()
    assert [run.scenario["seed"] for run in runs] == [5, 6, 7, 8] * 2
    assert [run.trace for run in runs[:4]] == [str(recording)] * 4
    assert [run.scenario["trace"] for run in runs[:4]] == [
        f"{recording}[{begin}:{begin + 10}]" for begin in (0, 10, 20, 30)
    ]
    # A built-in channel is another for each seed.
    assert {run.scenario["trace"] for run in runs[4:]} == {"city-driving-3g-up"}


@pytest.mark.parametrize(("end_ms", "runs"), [(59_987, True), (59_850, False)])
def test_the_last_stretch_may_lack_the_recordings_last_milliseconds(end_ms: int, runs: bool, tmp_path: Path) -> None:
    trace = tmp_path / "town.down"
    trace.write_text("".join(f"{at}\n" for at in (*range(1, end_ms, 50), end_ms)))
    settings = Settings(traces=[str(trace)], schemes=["cubic"], stretches=2, duration_s=30.0)
    if runs:
        texts = [run.to_json() for run in settings.runs()]
        assert f"{trace}[30:{end_ms / 1000:g}]" in texts[1]
        assert len(_verus.simulate_many(texts, 1, None)) == 2
    else:
        with pytest.raises(FieldError, match=r"must not overlap: .* has 59\.85 s, which is 1 stretches of 30 s, not 2"):
            settings.runs()


def test_deterministic_senders_have_an_interval_over_stretches(recording: Path) -> None:
    comparison = compare(
        traces=[recording], schemes=["cubic", "newreno"], queues=["droptail:bytes=60000"], stretches=4, duration_s=10
    )
    capacities = comparison.table.column("capacity_mbps").to_pylist()
    assert capacities[:4] == pytest.approx([4, 8, 2, 6], rel=0.01)
    one, other = comparison.results.config["means"]
    for mean in (one, other):
        assert mean["throughput_mbps"]["half_width_95"] > 1


def test_a_recording_that_changed_in_any_stretch_is_not_run_again_as_the_same(verus: Command, recording: Path) -> None:
    words = ("--trace", "town.down", "--scheme", "cubic", "--stretches", 3)
    assert verus(*QUICK, *words, "--out", "out").code == 0
    config = json.loads((recording.parent / "out" / "run.json").read_text())
    names = [channel["name"] for channel in config["channels"]]
    assert names == ["town.down[0:5]", "town.down[5:10]", "town.down[10:15]"]
    again = ("compare", "--from", "out/run.json", "--json")
    assert verus(*again).code == 0
    lines = recording.read_text().splitlines()
    recording.write_text("".join(f"{line}\n" for line in lines if not 11_000 < int(line) < 12_000))
    ran = verus(*again)
    assert ran.code == 2
    assert "`town.down` is not what it was" in ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--trace", "rate:5", "--stretches", 3),
            "--stretches: are those of a recording: `rate:5` is the same all the",
        ),
        (("--trace", "town.down[0:9]", "--stretches", 3), "`town.down[0:9]` is a part already"),
        (("--trace", "town.down", "--stretches", 9), "`town.down` has 40 s, which is 8 stretches of 5 s, not 9"),
        (("--trace", "town.down", "--stretches", 1), "--stretches: must be 2 or more, not 1"),
        (("--trace", "town.down", "--stretches", 3, "--repeat", 2), "--repeat: is not for stretches"),
    ],
)
def test_stretches_that_cannot_be_are_refused(
    verus: Command, recording: Path, words: tuple[Any, ...], message: str
) -> None:
    ran = verus(*QUICK, "--scheme", "cubic", *words)
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert message in line


def _differences(rows: list[Mapping[str, Any]], one: str, other: str, name: str) -> tuple[float, float]:
    """The mean of the differences by seed, and half of its interval, by SciPy's own t distribution."""
    from scipy.stats import t

    values = {(row["scheme"], row["seed"]): row[name] for row in rows}
    seeds = sorted(seed for scheme, seed in values if scheme == one)
    pairs = [values[one, seed] - values[other, seed] for seed in seeds]
    return statistics.fmean(pairs), t.ppf(0.975, len(pairs) - 1) * statistics.stdev(pairs) / len(pairs) ** 0.5


def test_senders_are_compared_stretch_by_stretch(verus: Command, recording: Path) -> None:
    schemes = ("cubic", "newreno", "vegas")
    ran = verus(*QUICK, "--trace", recording, "--scheme", *schemes, "--stretches", 6, "--out", "out", "--report")
    assert ran.code == 0, ran.err
    out = recording.parent / "out"
    config = json.loads((out / "run.json").read_text())
    differences = {entry["label"]: entry for entry in config["differences"]}
    assert set(differences) == {"NewReno", "Vegas"}
    assert {entry["from"] for entry in differences.values()} == {"Cubic"}
    rows = compare(
        traces=[recording], schemes=schemes, queues=["droptail:bytes=60000"], stretches=6, duration_s=5
    ).table.to_pylist()
    for label, scheme in (("NewReno", "newreno"), ("Vegas", "vegas")):
        for name in ("throughput_mbps", "qdelay_p95_ms"):
            mean, half = _differences(rows, scheme, "cubic", name)
            assert differences[label][name] == {
                "mean": pytest.approx(mean),
                "half_width_95": pytest.approx(half),
                "pairs": 6,
            }
    # The stretches differ more than the senders do: pairs tell apart what means do not.
    vegas = differences["Vegas"]["throughput_mbps"]
    (alone,) = (entry for entry in config["means"] if entry["label"] == "Vegas")
    assert vegas["half_width_95"] < alone["throughput_mbps"]["half_width_95"] / 3
    mean = f"{vegas['mean']:+.2f}"
    shown = f"{'0.00' if float(mean) == 0 else mean} ± {vegas['half_width_95']:.2f}"  # zero has no sign
    assert "above Cubic" in ran.out
    assert shown in ran.out
    assert shown in (out / "report.html").read_text()


def test_a_study_tells_differences_from_the_first_sender_on_the_same_path(verus: Command, recording: Path) -> None:
    (recording.parent / "s.toml").write_text(
        'trace = "city-driving-3g-up"\nduration_s = 5\nseed = { from = 1, to = 4 }\n'
        'queue = ["codel", "droptail:bytes=60000"]\nscheme = ["cubic", "vegas"]\n'
    )
    ran = verus("sweep", "s.toml", "--out", "out", "--json")
    assert ran.code == 0, ran.err
    cells = [json.loads(line) for line in ran.out.splitlines()]
    assert len(cells) == 4
    for cell in cells:
        assert ("above" in cell) == (cell["scheme"] == "vegas")
    rows = compare(
        traces=["city-driving-3g-up"], schemes=["cubic", "vegas"], queues=["codel"], repeat=4, duration_s=5
    ).table.to_pylist()
    (cell,) = (cell for cell in cells if "above" in cell and cell["queue"] == "codel")
    assert cell["from"] == {"scheme": "cubic", "params": {}}
    mean, half = _differences(rows, "vegas", "cubic", "qdelay_p95_ms")
    assert cell["above"]["qdelay_p95_ms"] == {
        "mean": pytest.approx(mean),
        "half_width_95": pytest.approx(half),
        "pairs": 4,
    }
    shown = verus("sweep", "s.toml", "--out", "out", "--report")
    assert f"{mean:+.1f}" in shown.out
    assert f"{mean:+.1f} ± {half:.1f}" in (recording.parent / "out" / "report.html").read_text()


def test_a_study_says_where_its_seeds_change_nothing(verus: Command, recording: Path) -> None:
    (recording.parent / "s.toml").write_text(
        'trace = ["town.down", "city-driving-3g-up"]\nduration_s = 3\nseed = [1, 2]\nscheme = "cubic"\n'
        'queue = "droptail:bytes=60000"\n'
    )
    ran = verus("sweep", "s.toml", "--json")
    assert ran.code == 0, ran.err
    one, other = (json.loads(line)["throughput_mbps"]["half_width_95"] for line in ran.out.splitlines())
    assert one is None
    assert other > 0
    assert "1 of 2 cells are one and the same run for all seeds" in ran.err


FAILS = """
import verus

class Fails(verus.Controller):
    def __init__(self, *, least: int = 10):
        self.least = least

    def on_start(self, now_s, packet_bytes):
        self.window_bytes = self.least * packet_bytes

    def on_feedback(self, feedback):
        1 / (10 - self.least)

    def on_timeout(self, timeout): ...
"""


def test_a_study_of_which_a_run_fails_for_good_has_its_dataset_if_that_is_asked_for(
    verus: Command, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "fails.py").write_text(FAILS)
    (tmp_path / "s.toml").write_text(
        'trace = "rate:5"\nduration_s = 2\nscheme = ["fails.py:Fails:least=5", "fails.py:Fails:least=10", "cubic"]\n'
    )
    whole = ("sweep", "s.toml", "--out", "out")
    ran = verus(*whole)
    assert ran.code == 1
    assert not (tmp_path / "out" / "results.parquet").exists()
    problem = "`fails.py`: Fails.on_feedback at "
    ran = verus(*whole, "--partial", "--report")
    assert ran.code == 1
    assert "2 rows, 1 of 3 are missing" in ran.err
    assert problem in ran.err
    table = pq.read_table(tmp_path / "out" / "results.parquet")
    assert table.column("run").to_pylist() == [0, 2]
    (left,) = json.loads(table.schema.metadata[b"verus.missing"])
    assert (left["run"], left["scheme"], left["seed"]) == (1, "fails.py:Fails:least=10", 1)
    assert problem in left["problem"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "fails.py:Fails:least=10" in page
    assert problem in page
    assert "without 1 runs that failed" in verus("sweep", "status", "s.toml", "--out", "out").out
    # Once it is mended, the same command makes the dataset whole.
    (tmp_path / "fails.py").write_text(FAILS.replace("1 / (10 - self.least)", "pass"))
    assert verus(*whole).code == 0
    table = pq.read_table(tmp_path / "out" / "results.parquet")
    assert table.num_rows == 3
    assert b"verus.missing" not in table.schema.metadata


def test_nothing_that_failed_altogether_is_written(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    (tmp_path / "s.toml").write_text('trace = "rate:5"\nduration_s = 2\nscheme = "fails.py:Fails"\n')
    ran = verus("sweep", "s.toml", "--out", "out", "--partial")
    assert ran.code == 1
    assert not (tmp_path / "out" / "results.parquet").exists()
    assert verus("sweep", "s.toml", "--shard", "1/2", "--partial").code == 2


def test_recordings_are_named_by_what_tells_them_apart(verus: Command, recording: Path) -> None:
    folders = [recording.parent / "a-folder-with-a-long-name-of-its-own" / name for name in ("field", "lab")]
    for folder in folders:
        folder.mkdir(parents=True)
        for name in ("town.down", f"{folder.name}.up"):
            (folder / name).write_bytes(recording.read_bytes())
    traces = [str(folder / name) for folder in folders for name in ("town.down", f"{folder.name}.up")]
    names = ["field/town.down", "field.up", "lab/town.down", "lab.up"]
    ran = verus("compare", "--duration", 1, "--scheme", "cubic", "--trace", *traces, "--out", "out", "--report")
    assert ran.code == 0, ran.err
    heads = [line.partition("  ·  ")[0] for line in ran.out.splitlines() if "base RTT" in line]
    assert heads == names
    page = (recording.parent / "out" / "report.html").read_text()
    assert all(f"<b>{name}</b>" in page for name in names)
    listed = ", ".join(json.dumps(trace) for trace in traces)
    (recording.parent / "s.toml").write_text(f'trace = [{listed}]\nduration_s = 1\nscheme = "cubic"\n')
    ran = verus("sweep", "s.toml", "--out", "study", "--report")
    assert ran.code == 0, ran.err
    assert all(any(line.strip().startswith(f"{name} ") for line in ran.out.splitlines()) for name in names)
    assert "…" not in ran.out
    page = (recording.parent / "study" / "report.html").read_text()
    assert all(f"<th scope=row>{name}</th>" in page for name in names)
