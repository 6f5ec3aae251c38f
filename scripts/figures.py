"""Runs the commands that documents quote again, and writes their tables on the pages and into `docs/results`.

    python scripts/figures.py --traces FOLDER              # `make figures`: what a run repeats to the last digit
    python scripts/figures.py --traces FOLDER --timed      # `make figures-timed`: what a busy machine would falsify
    python scripts/figures.py --traces FOLDER --only speed.txt
    python scripts/figures.py --only check.csv             # `make check-results`: no recordings are read
    python scripts/figures.py --only kernel-queues.txt     # `make kernel-queues`: takes a guest kernel

A claim is checked on recordings or on built-in channels; without the folder of recordings nothing is written.

Above each table that shows a result, the page names the result (`<!-- from speed.txt -->`), and the
table with the same heads replaces it. A result that its page shows as a whole has no file: a digest
of the tables in `sources.json` tells when one was changed by hand. Of the others, `docs/results` has
the table (`.csv`) or what the program printed (`.txt`).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import kernel_queues
import made_of

import verus
from verus import suites
from verus.lab.scenario import Contestant
from verus.papers.own.arena.field import SENDERS as ARENA
from verus.report.grid import to_csv
from verus.suites.judge import MISSED, PASSED, judge
from verus.suites.show import shown

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "results"
VERUS = Path(sys.executable).with_name("verus")
BENCHMARKS = "../BENCHMARKS.md"

#: The senders that the published suites are run with.
CHECKED = "cubic bbr1 bbr c4 prague copa ledbatpp forward scream verus:ratio=2"
#: Commands of `verus` that write a table and the page's text, with the page that quotes it.
REPRODUCED = {
    "claims.csv": ("reproduce all --modes paper,prototype", "claims.md"),
    "ablation.csv": ("reproduce ablation", "results/ablation.md"),
    "agreement.csv": ("reproduce agreement --jobs 7 --repeat 3", "agreement.md"),
    "peers.csv": ("reproduce peers --jobs 7", "agreement.md"),
    "linux.csv": ("reproduce linux --jobs 2", "beside-linux.md"),
    "later-cs244-linux.csv": ("reproduce later-cs244-linux --jobs 2", "beside-linux.md"),
    "linux-suites.csv": (
        "check linux:cc=cubic linux:cc=bbr --virtual --suite picoquic rfc9743 --seeds 1",
        "beside-linux.md",
    ),
    "arena.csv": ("reproduce arena", "arena.md"),
    "forward.csv": ("reproduce forward --seed 6", "forward.md"),
    "check.csv": (f"check {CHECKED} --suite rfc9743 bbr-draft c4 picoquic rmcat scream laws", "check.md"),
}
#: Results that their page shows as a whole, so that they have no file.
ON_PAGE = {
    "ablation.csv",
    "agreement.csv",
    "arena-cost.txt",
    "arena.csv",
    "check.csv",
    "equilibrium.txt",
    "fairness.txt",
    "forward-parts.txt",
    "growth.txt",
    "hostile.txt",
    "instructions.txt",
    "kernel-queues.txt",
    "kernel.txt",
    "later-cs244-linux.csv",
    "laws.txt",
    "linux-suites.csv",
    "linux.csv",
    "losses.txt",
    "paths.txt",
    "peers.csv",
    "python-rate.txt",
    "speed.txt",
    "sweeps.txt",
    "umts.txt",
    "users.txt",
    "virtual-speed.txt",
}
#: The rows of `forward.csv` that sentences quote, by group; its page shows means of the others.
QUOTED = ("beside one Cubic", "beside three Cubics", "files alone", "jitter")
#: Input files of results: channels, and rows of suites.
CHANNELS = "crates/channel/src/generate/*.tsv"
SUITES = "python/verus/suites/*.toml"


@dataclass(frozen=True)
class Made:
    """The origins of a result that depends on no clock: after a change of one of them, it is made again."""

    #: Senders, by their bare names.
    senders: list[str]
    #: Input files, as patterns.
    inputs: tuple[str, ...] = (CHANNELS,)
    #: Whether packets overtake others on some of its paths.
    reordering: bool = False
    #: Whether some of its sources pause.
    pauses: bool = False


OF: dict[str, Made] = {
    "claims.csv": Made(
        ["cubic", "model", "newreno", "sprout", "vegas", "verus", made_of.PROTOTYPE],
        (CHANNELS, "python/verus/papers/claims.csv"),
        pauses=True,
    ),
    "ablation.csv": Made(["cubic", "verus", made_of.PROTOTYPE]),
    "arena.csv": Made(sorted({scheme.partition(":")[0] for scheme in ARENA.values()}), pauses=True),
    "check.csv": Made(
        sorted({word.partition(":")[0] for word in CHECKED.split()}),
        (CHANNELS, SUITES),
        reordering=True,
        pauses=True,
    ),
    "forward.csv": Made(
        ["cubic", "forward", "newreno", "verus"],
        (CHANNELS, "python/verus/papers/own/forward/recordings.csv"),
        pauses=True,
    ),
    "forward-parts.txt": Made(["cubic", "forward"], (CHANNELS, "python/verus/papers/own/forward/recordings.csv")),
    "recordings.txt": Made(["cubic", "newreno", "verus"]),
    "losses.txt": Made(["cubic", "newreno", "verus"]),
    "fairness.txt": Made(["cubic", "verus"]),
    "umts.txt": Made(["verus"]),
    "linux.csv": Made(["bbr1", "cubic", "newreno", "vegas"], ("python/verus/papers/own/linux.py",)),
    "linux-suites.csv": Made(
        ["c4", "cubic", "prague"], (CHANNELS, "python/verus/suites/picoquic.toml", "python/verus/suites/rfc9743.toml")
    ),
    "later-cs244-linux.csv": Made(["cubic"], ("python/verus/papers/later/cs244_linux.py",)),
    "equilibrium.txt": Made(["forward", "verus"], ("python/verus/papers/own/equilibrium.py",)),
}
#: Results that read no recordings.
WITHOUT_RECORDINGS = {
    "equilibrium.txt",
    "linux-suites.csv",
    "check.csv",
    "laws.txt",
    "paths.txt",
    "arena-cost.txt",
    "instructions.txt",
    "kernel-queues.txt",
    "python-rate.txt",
    "sweeps.txt",
}


@dataclass(frozen=True)
class Printed:
    """A result that is kept as a program prints it."""

    page: str
    commands: tuple[str, ...]
    timed: bool = False


TESTS = "cargo test --release --quiet -p verus-sim --test sim"
PRINTED = {
    "recordings.txt": Printed(
        BENCHMARKS,
        (f"{TESTS} recordings:: -- --ignored --nocapture --test-threads 1",),
    ),
    "speed.txt": Printed(BENCHMARKS, ("cargo bench --quiet -p verus-sim --bench speed",), timed=True),
    "growth.txt": Printed(BENCHMARKS, ("cargo bench --quiet -p verus-sim --bench growth",), timed=True),
    "udp.txt": Printed(BENCHMARKS, ("cargo bench --quiet -p verus-probe --bench udp",), timed=True),
    "strangers.txt": Printed("../SECURITY.md", ("cargo bench --quiet -p verus-probe --bench strangers",), timed=True),
    "quic.txt": Printed("quic.md", ("cargo bench --quiet -p verus-quinn --bench quic",), timed=True),
    "emulator.txt": Printed(BENCHMARKS, ("cargo bench --quiet -p verus-emu",), timed=True),
    "kernel.txt": Printed(
        "kernel.md",
        tuple(f".venv/bin/python scripts/kernel_runs.py {table}" for table in ("page", "cost", "buffers", "clients")),
        timed=True,  # and as root
    ),
    "virtual-speed.txt": Printed("virtual.md", (".venv/bin/python scripts/virtual_speed.py",), timed=True),
    "hostile.txt": Printed("hostile.md", ("make --silent hostile",), timed=True),  # repeats, but takes minutes
}


def losses(_: str) -> Iterator[str]:
    """The share of the link that a flow uses with random losses."""
    yield "| rate, Mbit/s | loss, % | Verus R=2 | Cubic | NewReno |"
    yield "|---|---|---|---|---|"
    for mbps in (5, 20, 100):
        for percent in (0.1, 0.3, 1):
            rows = compared(
                [f"rate:{mbps}"],
                ["verus:ratio=2", "cubic", "newreno"],
                queues=["droptail:bytes=1500000"],
                loss=percent / 100,
            )
            shares = " | ".join(f"{row['utilization']:.2f}" for row in rows)
            yield f"| {mbps} | {percent} | {shares} |"


def fairness(_: str) -> Iterator[str]:
    """Flows of one kind that begin together."""
    yield "| channel | flows | Verus R=2: Jain | used | mean ms | Cubic: Jain | used | mean ms |"
    yield "|---|---|---|---|---|---|---|---|"
    for channel in ("city-stationary-3g-down", "city-stationary-lte-down"):
        for flows in (5, 10, 20):
            cells = (means(channel, scheme, flows) for scheme in ("verus:ratio=2", "cubic"))
            yield f"| `{channel}` | {flows} | {' | '.join(cells)} |"


def means(channel: str, scheme: str, flows: int) -> str:
    """The cells of a scheme, means over three seeds."""
    rows = compared([channel], [scheme], flows=flows, duration_s=100, repeat=3)
    jain, used, delay = (
        statistics.fmean(row[key] for row in rows) for key in ("jain", "utilization", "qdelay_mean_ms")
    )
    return f"{jain:.2f} | {used:.3f} | {delay:.0f}"


def umts(traces: str) -> Iterator[str]:
    """Delay over throughput as R rises, on a channel with outages of seconds, beside the authors' prototype."""
    channel = "mahimahi/TMobile-UMTS-driving"
    queue = "red:min=375000,max=1125000,p=0.1,preset=cs244"
    with (Path(traces).parent / "reference" / "peers-measured.csv").open(newline="") as file:
        measured = {row["scheme"]: row for row in csv.DictReader(file) if row["trace"] == f"{channel}.down.xz"}

    def cells(row: Mapping[str, Any]) -> str:
        used, mean, late = (float(row[key]) for key in ("utilization", "qdelay_mean_ms", "qdelay_p95_ms"))
        return f"{used:.3f} | {mean:.0f} | {late:.0f}"

    yield ("| R | default: utilization | mean ms | p95 ms | prototype as measured: utilization | mean ms | p95 ms |")
    yield "|---|---|---|---|---|---|---|"
    for ratio in (2, 3, 4, 6, 8):
        (row,) = compared(
            [f"{traces}/{channel}.down.xz"],
            [f"verus:ratio={ratio}"],
            queues=[queue],
            ack=f"{traces}/{channel}.up",
            duration_s=60,
        )
        theirs = measured.get(f"verus-prototype:ratio={ratio}")
        yield f"| {ratio} | {cells(row)} | {cells(theirs) if theirs else '– | – | –'} |"


def research_environment(folder: str) -> dict[str, str]:
    """Builds for research, in which parts of `forward` can be left out and its constants are keys, into `folder`."""
    extension = ["-p", "verus-extension", "-p", "verus-forward", "--features", "verus-forward/parts"]
    subprocess.run(["cargo", "build", "--release", "--quiet", "--target-dir", "target/parts", *extension], check=True)
    package = Path(folder) / "verus"
    shutil.copytree(Path(verus.__file__).parent, package, ignore=shutil.ignore_patterns("_verus.*.so"))
    shutil.copy("target/parts/release/lib_verus.so", package / "_verus.abi3.so")
    return {**os.environ, "PYTHONPATH": folder}


def forward_parts(traces: str) -> Iterator[str]:
    """Measures `forward` without each of its parts."""
    with tempfile.TemporaryDirectory() as folder:
        env = research_environment(folder)
        listed = "from verus import _verus; print(*_verus.complete('scheme', 'forward:without='))"
        schemes = subprocess.run([sys.executable, "-c", listed], env=env, stdout=subprocess.PIPE, check=True, text=True)
        senders = ["--scheme", *(scheme for scheme in schemes.stdout.split() if scheme != "forward:without=none")]
        out = Path(folder) / "forward"
        options = ["--short", "--traces", traces, "--out", str(out), *senders]
        done = subprocess.run([sys.executable, "-m", "verus", "reproduce", "forward", *options], env=env, check=False)
        if done.returncode not in (0, 3):  # 3: a target is missed
            sys.exit(done.returncode)
        yield from (out / "forward.md").read_text().splitlines()


def equilibrium(_: str) -> Iterator[str]:
    """Equilibria of Verus and `forward`: formulas beside the simulator."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([VERUS, "reproduce", "equilibrium", "--out", folder], check=False)
        if done.returncode not in (0, 3):  # 3: a target is missed
            sys.exit(done.returncode)
        yield from (Path(folder) / "equilibrium.md").read_text().splitlines()


def arena_cost(_: str) -> Iterator[str]:
    """CPU time of a simulated packet with each sender, over that with Cubic."""
    packets_each, rounds = 200 * 10e6 / (8 * 1500), 9
    relative: dict[str, list[float]] = {label: [] for label in ARENA}
    for _round in range(rounds):
        # In turn, so that other load on the machine affects all alike.
        cost = {}
        for label, scheme in ARENA.items():
            began = time.process_time()
            (row,) = compared(["rate:10"], [scheme], queues=["droptail:bytes=200000"], duration_s=200)
            cost[label] = (time.process_time() - began) / (packets_each * row["utilization"])
        for label, cpu_s in cost.items():
            relative[label].append(cpu_s / cost["Cubic"])
    yield f"| sender | CPU time a packet over Cubic's, median of {rounds} | least | greatest |"
    yield "|---|---|---|---|"
    for label, ratios in sorted(relative.items(), key=lambda entry: statistics.median(entry[1])):
        yield f"| {label} | {statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} |"


#: The rate of htsim over that of the lean loop (`bench/lean-anchor` beside the recordings),
#: measured in turn on another machine. It is that of htsim's NewReno, which has no metrics, SACK or
#: recovery of single losses. htsim is no part of this repository.
HTSIM = {"W1, 1 flow": 6.35 / 23.2, "W1, 10 flows": 7.4 / 10.3, "W2, 10 flows": 5.5 / 11.0}


def users(traces: str) -> Iterator[str]:
    """Packets a CPU second of `verus compare --json` as `pip install .` builds it, beside the lean loop, in turn."""
    shared, rounds = Path(traces).parent, 5
    highway = f"{traces}/cs244-2017/highway_drive_2min"
    w1, w2 = ["rate:100", "droptail:bytes=500000"], [highway, "red:min=375000,max=1125000,p=0.1,preset=cs244"]
    #: By name: channel and queue, flows, seconds of the long run and of the short one, and the
    #: loop's arguments.
    workloads: dict[str, tuple[list[str], int, int, int, list[str]]] = {
        "W1, 1 flow": (w1, 1, 300, 10, ["w1", "full", "1", "300"]),
        "W1, 10 flows": (w1, 10, 300, 10, ["w1", "full", "10", "300"]),
        "W2, 10 flows": (w2, 10, 6000, 100, ["w2", "full", "10", "6000", highway]),
    }
    schemes = {"NewReno": "newreno", "Cubic": "cubic", "forward": "forward", "Verus R=2": "verus:ratio=2"}
    yield f"| workload | lean loop, M packets/CPU s | {' | '.join(schemes)} | NewReno over htsim | Cubic over htsim |"
    yield "|---|" + "---|" * (len(schemes) + 3)
    with tempfile.TemporaryDirectory() as folder:
        loop = ["cargo", "build", "--release", "--quiet", "--target-dir", folder, "--manifest-path"]
        subprocess.run([*loop, f"{shared}/bench/lean-anchor/Cargo.toml"], check=True)
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, "."], check=True
        )
        env = {**os.environ, "PYTHONPATH": folder}

        def compare(channel: list[str], scheme: str, flows: int, seconds: int) -> tuple[float, float]:
            """CPU seconds of the whole process, and the packets that it simulated."""
            words = ["--trace", channel[0], "--queue", channel[1], "--scheme", scheme, "--flows", str(flows)]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "verus", "compare", *words, "--duration", str(seconds), "--json"]
            done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            packets = json.loads(done.stdout)["throughput_mbps"] * 1e6 * seconds / (8 * 1500)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, packets

        for name, (channel, flows, long, short, told) in workloads.items():
            rates: dict[str, list[float]] = {each: [] for each in ("lean", *schemes)}
            for _round in range(rounds):
                ran = subprocess.run(
                    [f"{folder}/release/lean-anchor", *told], stdout=subprocess.PIPE, text=True, check=True
                )
                (rate,) = re.findall(r"pkts_per_cpu_s=(\d+)", ran.stdout)
                rates["lean"].append(float(rate) / 1e6)
                for each, scheme in schemes.items():
                    (cpu, packets), (start, few) = (compare(channel, scheme, flows, s) for s in (long, short))
                    rates[each].append((packets - few) / (cpu - start) / 1e6)
            medians = {each: statistics.median(values) for each, values in rates.items()}
            htsim = medians["lean"] * HTSIM[name]
            cells = [*medians.values(), medians["NewReno"] / htsim, medians["Cubic"] / htsim]
            yield f"| {name} | {' | '.join(f'{cell:.2f}' for cell in cells)} |"


class Each(verus.Controller):
    """Adds a packet each round trip, and halves the window after a loss; called for each acknowledgement."""

    def on_start(self, now_s: float, packet_bytes: int) -> None:
        """Begins with ten packets."""
        self.packet_bytes, self.window_bytes = packet_bytes, 10.0 * packet_bytes

    def on_feedback(self, feedback: verus.Feedback) -> None:
        """Halves the window after a loss, else adds its share of a packet."""
        assert self.window_bytes is not None
        if feedback.lost:
            self.window_bytes = max(self.window_bytes / 2, 2.0 * self.packet_bytes)
        else:
            self.window_bytes += feedback.newly_delivered_bytes * self.packet_bytes / self.window_bytes

    def on_timeout(self, timeout: verus.Timeout) -> None:
        """Sets the window to two packets."""
        self.window_bytes = 2.0 * self.packet_bytes


class Together(Each):
    """The same law, called once for all acknowledgements within 5 ms."""

    feedback_every_ms = 5.0


def python_rate(_: str) -> Iterator[str]:
    """Packets a CPU second under one law in Python, called in two ways, in turn; the start of runs is left out."""
    long, short, rounds = 12, 2, 7

    def cost(kind: type[Each]) -> float:
        """The CPU seconds of a packet."""
        samples = []
        for seconds in (long, short):
            began = time.process_time()
            run = verus.simulate(link=verus.Link.constant(100), flows=[verus.Flow(kind)], duration_s=seconds)
            samples.append((time.process_time() - began, run.metrics["departures"]))
        (cpu, packets), (start, few) = samples
        return (cpu - start) / (packets - few)

    costs = [(cost(Each), cost(Together)) for _round in range(rounds)]
    yield "| a class in Python hears of | M packets/CPU s | times the first |"
    yield "|---|---|---|"
    for at, name in enumerate(("each acknowledgement", "those of 5 ms at once (`feedback_every_ms`)")):
        rate = statistics.median(1e-6 / row[at] for row in costs)
        yield f"| {name} | {rate:.2f} | {statistics.median(row[0] / row[at] for row in costs):.1f} |"


#: Studies that measure the speed of sweeps, by name: 10,000 short runs, and runs as long as those
#: of figures.
SWEEPS = {
    "10,000 runs of 10 s": (10.0, 625),
    "4,480 runs of 30 s": (30.0, 280),
}


def sweeps(_: str) -> Iterator[str]:
    """Runs a second of a sweep, and its memory: in one process, and on Dask's workers."""
    yield "| study | on | runs/s | most memory, MB | times one core |"
    yield "|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        for name, (duration_s, seeds) in SWEEPS.items():
            study = Path(folder) / "study.toml"
            study.write_text(
                'trace = ["city-driving-lte-down", "highway-driving-3g-up", "rate:12", "campus-pedestrian-lte-up"]\n'
                f'scheme = ["verus:ratio=2", "forward", "cubic", "bbr"]\nduration_s = {duration_s}\n'
                f"seed = {{ from = 1, to = {seeds} }}\n"
            )
            alone = 0.0
            variants = {"one core": ["--jobs", "1"], "two cores": ["--jobs", "2"]}
            for workers in (1, 2) if duration_s > 10 else ():
                variants[f"{workers} of Dask's workers"] = ["--cluster", f"local:{workers}"]
            for variant, words in variants.items():
                out = Path(folder) / f"{name}, {variant}"
                began = time.monotonic()
                swept = subprocess.Popen(
                    [VERUS, "sweep", study, *words, "--out", out],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                _, status, usage = os.wait4(swept.pid, 0)
                if status:
                    sys.exit(f"{name}, {variant}: the sweep failed")
                rate, memory = 16 * seeds / (time.monotonic() - began), usage.ru_maxrss / 1024
                alone = rate if variant == "one core" else alone
                yield f"| {name} | {variant} | {rate:.0f} | {memory:.0f} | {rate / alone:.2f} |"


#: The senders whose instructions are counted, and the lean loop of the bench beside them.
COUNTED = {
    "lean loop": "lean",
    "NewReno": "newreno",
    "Cubic": "cubic",
    "forward": "forward",
    "Verus R=2": "verus:ratio=2",
}


def instructions(_: str) -> Iterator[str]:
    """Instructions a packet in the bench's workloads, of the simulation alone, unaffected by other processes."""
    built = ["cargo", "bench", "-p", "verus-sim", "--bench", "speed", "--no-run", "--message-format=json"]
    messages = subprocess.run(built, stdout=subprocess.PIPE, text=True, check=True).stdout
    (bench,) = [made["executable"] for line in messages.splitlines() if (made := json.loads(line)).get("executable")]

    def counted(workload: str, scheme: str) -> float:
        inside = "speed::lean::run" if scheme == "lean" else "verus_sim::network::Network::run"
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--toggle-collect={inside}"]
        done = subprocess.run([*command, bench, "--one", workload, scheme], capture_output=True, text=True, check=True)
        (collected,) = re.findall(r"Collected : (\d+)", done.stderr)
        return int(collected) / int(done.stdout.split()[0])

    yield f"| instructions a packet | {' | '.join(COUNTED)} | Cubic/lean | Verus/Cubic | forward/Cubic |"
    yield "|---|" + "---|" * (len(COUNTED) + 3)
    for workload in ("W1, 1 flow", "W1, 10 flows", "W2, 10 flows"):
        lean, newreno, cubic, forward, verus = (counted(workload, scheme) for scheme in COUNTED.values())
        each = " | ".join(f"{count:.0f}" for count in (lean, newreno, cubic, forward, verus))
        yield f"| {workload} | {each} | {cubic / lean:.2f} | {verus / cubic:.2f} | {forward / cubic:.2f} |"


def kernel_queue_rows(_: str) -> Iterator[str]:
    """Linux's queues beside ours."""
    yield from kernel_queues.table(list(kernel_queues.QUEUES), os.cpu_count() or 1)


#: The senders with an equation in `laws`, and Copa without the mode that violates its equation.
LAWFUL = [
    "newreno",
    "cubic",
    "vegas",
    "ledbatpp",
    "prague",
    "copa",
    "copa:competitive=no",
    "vivace",
    "bbr1",
    "bbr",
    "forward",
    "verus:ratio=2",
]
OF["laws.txt"] = Made(sorted({scheme.partition(":")[0] for scheme in LAWFUL}), (CHANNELS, SUITES))


def laws(_: str) -> Iterator[str]:
    """Each sender beside its published equation."""
    yield "| law | asked | sender | worst of all seeds | seeds | holds |"
    yield "|---|---|---|---|---|---|"
    for one in judge([suites.load("laws")], [Contestant.from_scheme(scheme) for scheme in LAWFUL]):
        if one.verdict in (PASSED, MISSED):
            name = one.row.removeprefix("laws/")
            holds = "yes" if one.verdict == PASSED else "no"
            yield f"| `{name}` | {one.wanted} | `{one.scheme}` | {shown(one.value)} | {one.seeds} | {holds} |"


#: The senders whose values are shown too in the rows that `forward` misses.
RIVALS = ["cubic", "bbr"]
OF["paths.txt"] = Made(["bbr", "cubic", "forward"], (CHANNELS, SUITES), reordering=True, pauses=True)


def paths(_: str) -> Iterator[str]:
    """The rows of `paths` and `map` that `forward` misses, the worst of three seeds, and its rivals there."""
    suite_names = ["paths", "map"]
    judged = judge([suites.load(name) for name in suite_names], [Contestant.from_scheme("forward")], seeds=3)
    missed = [one for one in judged if one.verdict == MISSED]
    rows = [one.row for one in missed]
    few = [suites.load(name).with_rows(rows) for name in suite_names]
    others = judge(few, [Contestant.from_scheme(scheme) for scheme in RIVALS], seeds=3)
    values = {(one.row, one.scheme): shown(one.value) for one in others}
    yield f"| row | asked | `forward` | {' | '.join(f'`{scheme}`' for scheme in RIVALS)} |"
    yield "|---|---|---|" + "---|" * len(RIVALS)
    for one in missed:
        beside = " | ".join(values[one.row, scheme] for scheme in RIVALS)
        yield f"| `{one.row}` | {one.wanted} | {shown(one.value)} | {beside} |"
    for name in suite_names:
        verdicts = [one.verdict for one in judged if one.suite == name and one.verdict in (PASSED, MISSED)]
        yield f"| all of `{name}` | {len(verdicts)} rows | {verdicts.count(PASSED)} pass |{' |' * len(RIVALS)}"


#: Tables that are made here: the page, and the function.
MADE: dict[str, tuple[str, Callable[[str], Iterator[str]]]] = {
    "losses.txt": (BENCHMARKS, losses),
    "fairness.txt": (BENCHMARKS, fairness),
    "umts.txt": (BENCHMARKS, umts),
    "forward-parts.txt": ("forward.md", forward_parts),
    "equilibrium.txt": ("equilibrium.md", equilibrium),
    "arena-cost.txt": ("arena.md", arena_cost),
    "instructions.txt": (BENCHMARKS, instructions),
    "python-rate.txt": (BENCHMARKS, python_rate),
    "sweeps.txt": (BENCHMARKS, sweeps),
    "users.txt": (BENCHMARKS, users),
    "kernel-queues.txt": ("kernel-queues.md", kernel_queue_rows),
    "laws.txt": ("check.md", laws),
    "paths.txt": ("forward.md", paths),
}
#: Results of both kinds that other load on the machine would falsify.
TIMED = {
    "agreement.csv",
    "arena-cost.txt",
    "peers.csv",
    "python-rate.txt",
    "sweeps.txt",
    "users.txt",
}
#: Results that are made only if `--only` names them: they need valgrind, or a guest
#: kernel (`verus virtual build`).
ASKED = {
    "instructions.txt",
    "kernel-queues.txt",
    "later-cs244-linux.csv",
    "linux-suites.csv",
    "linux.csv",
    "virtual-speed.txt",
}


def compared(traces: list[str], schemes: list[str], **options: Any) -> list[dict[str, Any]]:
    """The rows of a comparison."""
    return verus.compare(traces=traces, schemes=schemes, **options).rows()


def tables(text: str) -> dict[str, list[str]]:
    """The lines of each Markdown table, by its heads; the key of a second table with the same heads ends in 2."""
    by_heads: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            lines.append(line)
        elif lines:
            heads = "".join(lines[0].split())
            earlier = sum(1 for known in by_heads if known.startswith(heads))
            by_heads[heads + (str(earlier + 1) if earlier else "")] = lines
            lines = []
    return by_heads


def with_tables(page: str, new: str, *, needed: bool) -> str:
    """The page, with its tables replaced by those of `new` that have the same heads."""
    old = tables(page)
    for heads, lines in tables(new).items():
        if heads in old:
            page = page.replace("\n".join(old[heads]), "\n".join(lines))
        elif needed:
            sys.exit(f"no table of the page begins with {lines[0]}")
    return page


def printed(command: str, traces: str) -> str:
    """The output of a command, after the line that ran it; it must succeed."""
    done = subprocess.run(
        command.split(),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "VERUS_SHARED": str(Path(traces).resolve().parent)},
    )
    if done.returncode:
        sys.exit(f"`{command}` ended with {done.returncode}")
    return f"$ {command}\n{done.stdout}".replace(str(Path(traces).resolve()), "FOLDER")


def machine() -> str:
    """This machine, as results name it."""
    about = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.partition(":")[2].strip() for line in about if line.startswith("model name")), "")
    return f"{cpu}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def main() -> None:
    """Runs the commands, and writes results and pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", default="", help="the folder of recordings, as for `verus reproduce`")
    parser.add_argument("--made", type=Path, help="a folder that holds what an earlier call reproduced; it is not run")
    parser.add_argument("--timed", action="store_true", help="what depends on the machine, instead of what does not")
    parser.add_argument("--only", nargs="*", metavar="RESULT", help="these results alone")
    options = parser.parse_args()
    results = [*REPRODUCED, *PRINTED, *MADE]
    timed = TIMED | {name for name, entry in PRINTED.items() if entry.timed}
    names = options.only or [name for name in results if name not in ASKED and (name in timed) == options.timed]
    if unknown := set(names) - set(results):
        sys.exit(f"--only: no result is called {', '.join(sorted(unknown))}; known: {', '.join(results)}")
    if not options.traces and not WITHOUT_RECORDINGS.issuperset(names):
        parser.error("--traces is missing")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            if name in REPRODUCED:
                command, page = REPRODUCED[name]
                text = reproduced(name, options.traces, options.made or Path(folder), run=options.made is None)
                command = f"verus {command}" + ("" if name in WITHOUT_RECORDINGS else " --traces FOLDER")
            elif name in MADE:
                page, make = MADE[name]
                command = f"python scripts/figures.py --only {name}"
                command += "" if name in WITHOUT_RECORDINGS else " --traces FOLDER"
                text = "\n".join(make(options.traces)) + "\n"
            else:
                page, command = PRINTED[name].page, "; ".join(PRINTED[name].commands)
                text = "\n".join(printed(line, options.traces) for line in PRINTED[name].commands)
            if not name.endswith(".csv") and name not in ON_PAGE:
                (RESULTS / name).write_text(text)
            path = DOCS / page
            whole = name == "claims.csv" or path.parent == RESULTS
            needed = name not in PRINTED or name in ON_PAGE
            path.write_text(text if whole else with_tables(path.read_text(), text, needed=needed))
            # One by one, so that earlier results are kept when a later command fails.
            sources = json.loads((RESULTS / "sources.json").read_text())
            sources[name] = {
                "page": page,
                "command": command,
                "made": date.today().isoformat(),
                "commit": commit.strip(),
                "machine": machine(),
            }
            if name in ON_PAGE or name == "forward.csv":
                sources[name]["tables"] = made_of.tables(path.read_text(), name)
            if of := OF.get(name):
                paths = {"reordering": of.reordering, "pauses": of.pauses}
                digest = made_of.behaviour(of.senders, **paths)
                sources[name] |= {"senders": of.senders, **paths, "behaviour": digest}
                sources[name] |= {"inputs": of.inputs, "read": made_of.files(of.inputs)}
                if name not in WITHOUT_RECORDINGS:
                    sources[name]["recordings"] = made_of.recordings(Path(options.traces))
            lines = (f'"{name}": {json.dumps(source, ensure_ascii=False)}' for name, source in sources.items())
            (RESULTS / "sources.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def reproduced(name: str, traces: str, folder: Path, *, run: bool) -> str:
    """Runs `verus reproduce` or `verus check` and keeps its table; returns the page's text."""
    out = folder / Path(name).stem
    if run:
        recordings = [] if name in WITHOUT_RECORDINGS else ["--traces", traces]
        words = [*REPRODUCED[name][0].split(), *recordings, "--out", str(out)]
        done = subprocess.run([VERUS, *words], check=False)
        if done.returncode not in (0, 3):  # 3: a claim does not hold
            sys.exit(done.returncode)
    if name not in ON_PAGE:
        with (out / name).open(encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file))
        kept = [lines[0], *(line for line in lines[1:] if name != "forward.csv" or line[1] in QUOTED)]
        (RESULTS / name).write_text(to_csv(kept), encoding="utf-8")
    of_suites = REPRODUCED[name][0].startswith("check ")
    return (out / ("check.md" if of_suites else f"{Path(name).stem}.md")).read_text()


if __name__ == "__main__":
    main()
