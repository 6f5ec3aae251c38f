"""The 2017 reproduction's Cubic, in Linux's own TCP on virtual time.

Zhang and Dutz ran Linux's Cubic behind Mahimahi, as root in a virtual machine (`cs244`). Here our
Cubic runs the same cells in the simulator, and Linux's in a guest kernel. The queue is their
drop-tail of 120 kB; both ways have the same recording.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from verus.lab.results import Results
from verus.lab.runner import Progress
from verus.lab.scenario import Contestant, Run, make_run
from verus.papers.experiment import Options, Work
from verus.papers.later import cs244
from verus.papers.own import side_by_side
from verus.papers.own.linux import ENDS, collect
from verus.papers.recordings import find_recordings
from verus.papers.target import Check
from verus.report.wanted import Wanted

#: The queues, by what the table calls them.
QUEUES = {"drop-tail 120 kB": cs244.CS244_DROPTAIL}

#: Packets as the device takes them. An opportunity carries 1504 bytes, of which its header takes 4 (`cs244`).
PACKET_BYTES = 1500
#: Largest relative differences of throughput and of the delay between simulated and real.
THROUGHPUT, DELAY = 0.05, 0.30

_SIDES = {"linux:cc=cubic": "Linux", "cubic": "simulated"}


def runs(paths: Mapping[str, str], *, seed: int, duration_s: float = cs244.DURATION_S) -> tuple[list[Run], list[Run]]:
    """Runs with Linux's Cubic and with ours, in the same order; `paths` has the recording of each place."""
    made: dict[str, list[Run]] = {scheme: [] for scheme in _SIDES}
    for (name, queue), (place, path), scheme in itertools.product(QUEUES.items(), paths.items(), _SIDES):
        run = make_run(
            trace=place,
            path=path,
            queue=queue,
            contestant=replace(Contestant.from_scheme(scheme), label=_SIDES[scheme]),
            part=name,
            seed=seed,
            duration_s=duration_s,
            ack="same",
            ack_queue=queue,
            packet_bytes=PACKET_BYTES,
            opportunity_bytes=PACKET_BYTES,
            loop=False,
            **({} if scheme.startswith("linux") else ENDS),
        )
        made[scheme].append(run)
    return made["linux:cc=cubic"], made["cubic"]


def prepare(options: Options) -> Work:
    """Finds the recordings; the work is the runs."""
    names = {name: place.recording for name, place in cs244.CHANNELS.items()}
    files = find_recordings(names.values(), options.traces)
    linux, ours = runs({place: files[name] for place, name in names.items()}, seed=options.seed)
    settings = {"experiment": "later-cs244-linux", "seed": options.seed, "jobs": options.jobs}

    def work(progress: Progress | None) -> Results:
        return collect(linux, ours, jobs=options.jobs, progress=progress, settings=settings)

    return work


# --- measured -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Row:
    """One recording behind one queue: the published columns, ours simulated, and Linux's."""

    queue: str
    place: str
    published: Mapping[str, cs244.Published]
    simulated: cs244.Published
    linux: cs244.Published


def rows(results: Results) -> list[Row]:
    """Every recording behind every queue, in the order of running."""
    sides: dict[tuple[str, str], dict[str, cs244.Published]] = {}
    for row in results.rows.to_pylist():
        measured = cs244.Published(row["throughput_mbps"], row[cs244.DELAY])
        sides.setdefault((row["part"], row["trace"]), {})[row["label"]] = measured
    theirs = cs244.published()
    return [
        Row(
            queue=queue,
            place=place,
            published=theirs.get((place, None), {}),
            simulated=both["simulated"],
            linux=both["Linux"],
        )
        for (queue, place), both in sides.items()
    ]


def checks(results: Results) -> list[Check]:
    """Simulated over real, of each row."""
    return [
        Check(
            name=f"{row.place}, {row.queue}: {what}, simulated / Linux's",
            value=value,
            wanted=Wanted(1 - share, 1 + share),
        )
        for row in rows(results)
        for what, value, share in (
            ("throughput", row.simulated.throughput_mbps / row.linux.throughput_mbps, THROUGHPUT),
            ("signal delay", row.simulated.delay_ms / row.linux.delay_ms, DELAY),
        )
    ]


# --- shown --------------------------------------------------------------------------------------

_COLUMNS = ("report", "saved", "simulated", "Linux")
_HEADINGS = ("recording", *(f"{what} {column}" for what in ("Mbit/s", "p95 ms") for column in _COLUMNS))


def _line(row: Row) -> list[str]:
    sides = [*(row.published.get(name) for name in ("report", "saved")), row.simulated, row.linux]
    return [
        row.place,
        *("–" if side is None else f"{side.throughput_mbps:.2f}" for side in sides),
        *("–" if side is None else f"{side.delay_ms:.0f}" for side in sides),
    ]


def _tables(results: Results) -> dict[str, list[list[str]]]:
    by_queue = itertools.groupby(rows(results), key=lambda row: row.queue)
    return {queue: [_line(row) for row in own] for queue, own in by_queue}


EXPERIMENT = side_by_side.experiment(
    name="later-cs244-linux",
    source=cs244.SOURCE,
    prepare=prepare,
    checks=checks,
    tables=_tables,
    headings=_HEADINGS,
    apart="queue",
    title="Verus: the 2017 reproduction's Cubic, published, simulated, and in Linux",
    lead=lambda _: (
        f"One flow for {cs244.DURATION_S:g} s, 20 ms each way, the same recording both ways; the delay is the 95th "
        "percentile of the signal delay."
    ),
    targets=("row", "Ratios"),
)
