"""Searches over constants of `forward` on rows that docs/forward.md does not judge it by.

    python scripts/search_forward.py --traces FOLDER --candidates 961 --journal FILE    # an hour on two cores; resumes
    python scripts/search_forward.py --traces FOLDER --compare forward:loss_price=150,damping=5 forward
    python scripts/search_forward.py --traces FOLDER --judge forward:loss_price=20    # beside the default

The rows ask what the study of `forward` asks, at other rates, round trips, numbers of flows, and starts in the
recordings of the tuned half. A candidate's cost is the weighted sum of each group's mean shortfall from the study's
bounds. A candidate whose cost exceeds that of the last finalist runs no further group. Small shares and crowds are
chaotic: candidates have the five round trips in turn, and finalists, and the senders of `--compare`, repeat the rows
with all of them. `--judge` runs the study.

The keys are those of the build for research (the feature `parts`), which this script makes first.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import figures
import optuna

from verus.lab import runner
from verus.papers import reproduction
from verus.papers.own.forward import BUILT_IN, field
from verus.papers.recordings import find_recordings

#: Ranges of the keys.
KEYS = {
    "growth": (20, 150),
    "lateness": (15, 250),
    "loss_price": (5, 200),
    "damping": (2, 14),
    "lost_steps": (4, 32),
    "high_percent": (110, 260),
    "root": (2, 4),
}
#: Constants that the search began with.
START = {"growth": 60, "lateness": 60, "loss_price": 150, "damping": 5, "lost_steps": 8, "high_percent": 150, "root": 3}
#: One-way delays, ms, of the repetitions.
DELAYS_MS = (20.0, 16.3, 23.1, 28.7, 13.2)
#: The shortfall that counts as 1, by value.
SCALE = {
    "used %": 10,
    "p95 ms": 50,
    "Jain, 1 s": 0.2,
    "Jain": 0.2,
    "× alone": 2,
    "newcomers": 0.5,
    "share": 0.5,
    "alone again, ms": 40,
    "lost %": 5,
    "D_min wrong by, ms": 20,
}
#: Weights of the groups.
WEIGHT = {"recordings": 6, "crowds": 6, "company": 12, "buffers": 6, "longer paths": 3, "random losses": 3}
SEED = 101
#: Candidates that repeat the rows with five round trips.
FINALISTS = 24


def rows(scheme: str, files: Mapping[str, str], delay_ms: float) -> Iterator[field.Row]:
    """Rows of a candidate, groups that take less time first: some 80 simulations."""
    column = reproduction.Column(name=BUILT_IN, channels={}, paths={}, seed=SEED, repeat=None)
    study = field.Field(scheme=scheme, column=column, files=files, folder=Path(), short=False)
    run = partial(study.run, delay_ms=delay_ms)
    for mbps, flows in ((10, 1), (30, 4)):
        changes = [{"at_s": 12.0, "delay_ms": delay_ms + 25}]
        yield field.Row(
            group="longer paths",
            name=f"{flows} at {mbps} Mbit/s",
            runs=[run(f"rate:{mbps}", flows=flows, duration_s=22.0, changes=changes)],
            read=partial(field.read_longer, delay_ms + 25),
            bounds={"used %": (95.0, None), "D_min wrong by, ms": (None, 5.0)},
        )
    for loss, mbps in ((0.01, 8), (0.03, 40)):
        runs = [run(f"rate:{mbps}", loss=loss)]
        bounds = {"used %": (90.0 if loss > 0.02 else 95.0, None)}
        yield field.Row(
            group="random losses", name=f"{loss} at {mbps} Mbit/s", runs=runs, read=field.read_chance, bounds=bounds
        )
    for mbps, products, flows in itertools.product((8, 40), (0.25, 0.5, 1, 2), (1, 4)):
        yield field.Row(
            group="buffers",
            name=f"{flows} at {mbps} Mbit/s, {products} BDP",
            runs=[run(f"rate:{mbps}", field.buffer(mbps, products), flows=flows)],
            read=lambda runs: field.shared(runs[0], 3.0, 30.0),
            bounds={"used %": (95.0, None), "lost %": (None, 5.0 if products < 0.5 else 2.0), "Jain": (0.9, None)},
        )
    rivals = (("cubic", 1), ("cubic", 3), ("newreno", 1))
    for (rival, others), mbps, products in itertools.product(rivals, (7, 20), (0.5, 1, 2, 4, 0)):
        queue = field.buffer(mbps, products) if products else field.PAPER_QUEUE
        beside = [{}, *({"scheme": rival, "stop_s": 60.0} for _ in range(others))]
        yield field.Row(
            group="company",
            name=f"{others} {rival}, {mbps} Mbit/s, {products} BDP",
            runs=[run(f"rate:{mbps}", queue, flows=beside, duration_s=80.0)],
            read=partial(field.read_company, others),
            bounds={"share": (0.25 if products > 2 else 0.5, 1.5), "alone again, ms": (None, 40.0)},
        )
    for one in field.recordings():
        ack = field.OPPOSITE.get(one.name)
        if one.half == "judged" or one.limit is None or not files.keys() >= {one.name, ack or one.name}:
            continue
        ends = {"used %": (95.0, None), "p95 ms": (None, 100.0)}
        if not one.reachable:
            ends = {"used %": (one.limit[0] - 3, None), "p95 ms": (None, one.limit[1])}
        entered = partial(field.from_offset, study, offset_s=10)
        runs = [run(entered(one.name), ack=entered(ack) if ack else "rate:12", ack_queue=field.RED, duration_s=40.0)]
        yield field.Row(group="recordings", name=one.name, runs=runs, read=field.whole, bounds=ends)
    for mbps, flows, apart_s in ((8, 2, 5.0), (8, 5, 0.5), (8, 10, 0.5), (24, 5, 5.0), (24, 10, 0.5), (24, 20, 0.5)):
        starts = [{"start_s": apart_s * number} for number in range(flows)]
        end = apart_s * (flows - 1) + 33
        bounds = {
            "Jain, 1 s": (0.95 if flows <= 5 else 0.9, None),
            "Jain": (0.98, None),
            "× alone": (None, 2.0 if flows <= 5 else 3.0 if flows <= 10 else 4.0),
        }
        yield field.Row(
            group="crowds",
            name=f"{flows} at {mbps} Mbit/s",
            runs=[run(f"rate:{mbps}", duration_s=end, flows=own) for own in (1, starts)],
            read=partial(field.read_crowd, flows, apart_s),
            bounds=bounds | ({"newcomers": (0.8, None)} if apart_s > 1 else {}),
        )


def shortfalls(scheme: str, files: Mapping[str, str], delay_ms: float) -> Iterator[tuple[str, list[float]]]:
    """The shortfall of each row, group by group; 0 where all bounds are kept."""
    for group, in_group in itertools.groupby(rows(scheme, files, delay_ms), key=lambda row: row.group):
        all_rows = list(in_group)
        runs = [run for row in all_rows for run in row.runs]
        outcomes = iter(zip(runs, runner.run_all(runs), strict=True))
        totals = []
        for row in all_rows:
            values = row.read([field.seen(*next(outcomes)) for _ in row.runs])
            beyond = [
                max((low - values[name]) if low is not None else 0, (values[name] - high) if high is not None else 0)
                / SCALE[name]
                for name, (low, high) in row.bounds.items()
            ]
            totals.append(sum(1.0 if math.isnan(each) else min(max(each, 0.0), 1.0) for each in beyond))
        yield group, totals


def cost(by_group: Mapping[str, Sequence[float]]) -> float:
    """The weighted sum of the groups' mean shortfalls."""
    return sum(WEIGHT[group] * fmean(each) for group, each in by_group.items())


def search(files: Mapping[str, str], candidates: int, journal: Path | None) -> Iterator[str]:
    """The finalists of so many candidates by Optuna's Parzen trees, which begin with `START` or with `journal`."""
    storage = None
    if journal is not None:
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(journal)))
    study = optuna.create_study(study_name="forward", storage=storage, load_if_exists=True)
    earlier = study.trials
    # Random numbers are not in the journal: with the same seed a process that resumes would draw the first ones again.
    study.sampler = optuna.samplers.TPESampler(multivariate=True, n_startup_trials=100, seed=1 + len(earlier))
    if not earlier:
        study.enqueue_trial(START)
    complete = optuna.trial.TrialState.COMPLETE
    best = sorted(trial.values[0] for trial in earlier if trial.state == complete)[:FINALISTS]

    def tried(trial: optuna.Trial) -> float:
        values = {name: trial.suggest_int(name, *ends) for name, ends in KEYS.items()}
        by_group: dict[str, list[float]] = {}
        for step, (group, each) in enumerate(
            shortfalls(named(values), files, DELAYS_MS[trial.number % len(DELAYS_MS)])
        ):
            by_group[group] = each
            trial.report(cost(by_group), step)
            if len(best) == FINALISTS and cost(by_group) > best[-1]:
                raise optuna.TrialPruned
        best[:] = sorted([*best, cost(by_group)])[:FINALISTS]
        return cost(by_group)

    study.optimize(tried, n_trials=max(candidates - len(earlier), 0), show_progress_bar=sys.stderr.isatty())
    full = [trial for trial in study.trials if trial.state == complete]
    finalists = sorted(full, key=lambda trial: trial.values[0])[:FINALISTS]
    yield (
        f"{len(study.trials)} candidates, {len(full)} with all rows; costs, each with one of the five round trips: "
        + ", ".join(f"{trial.values[0]:.2f}" for trial in finalists)
    )
    yield ""
    yield from compare(files, [named(START), "forward", *(named(trial.params) for trial in finalists)])


def named(values: Mapping[str, int]) -> str:
    """The scheme with these constants."""
    return "forward:" + ",".join(f"{name}={value}" for name, value in values.items())


def compare(files: Mapping[str, str], schemes: Sequence[str]) -> Iterator[str]:
    """Rows that hold, and the cost, of each scheme over five round trips."""
    groups = list(WEIGHT)
    yield f"| constants | cost | {' | '.join(groups)} |"
    yield f"|{'---|' * (len(groups) + 2)}"
    for scheme in schemes:
        each = [dict(shortfalls(scheme, files, delay_ms)) for delay_ms in DELAYS_MS]
        held = [
            f"{sum(value == 0 for one in each for value in one[group])} of {sum(len(one[group]) for one in each)}"
            for group in groups
        ]
        yield f"| {scheme} | {fmean(map(cost, each)):.2f} | {' | '.join(held)} |"


def judge(traces: str, schemes: Sequence[str]) -> Iterator[str]:
    """The study of `forward`, whose rows the search does not have, with these beside the default."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "forward"
        options = ["--seed", "6", "--traces", traces, "--out", str(out), "--scheme", *schemes]
        # Exit code 3: a target is missed.
        subprocess.run([sys.executable, "-m", "verus", "reproduce", "forward", *options], check=False)
        yield (out / "forward.md").read_text(encoding="utf-8").rstrip("\n")


def main() -> None:
    """Builds for research, and runs itself with that build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", required=True, help="the folder of recordings")
    parser.add_argument("--candidates", type=int, default=120)
    parser.add_argument("--journal", type=Path, help="file that records the candidates; a search that finds it resumes")
    parser.add_argument("--compare", nargs="+", metavar="SCHEME", default=[])
    parser.add_argument("--judge", nargs="+", metavar="SCHEME", default=[])
    options = parser.parse_args()
    if "VERUS_RESEARCH" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            env = figures.research_environment(folder) | {"VERUS_RESEARCH": "1"}
            sys.exit(subprocess.run([sys.executable, *sys.argv], env=env, check=False).returncode)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    files = find_recordings(
        [one.name for one in field.recordings()] + list(field.OPPOSITE.values()), Path(options.traces)
    )
    if options.judge:
        lines = judge(options.traces, options.judge)
    elif options.compare:
        lines = compare(files, options.compare)
    else:
        lines = search(files, options.candidates, options.journal)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
