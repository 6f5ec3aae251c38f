"""SIGCOMM 2015, section 7: short flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from verus.lab.scenario import PAPER_QUEUE, Run
from verus.papers.reproduction import SIGCOMM, Column, ColumnResults, Reproduction, Table, interval, with_interval
from verus.papers.sigcomm import five_scenarios
from verus.report import figures
from verus.report.figures import Figure

SIZES = {"15 kB": 15_000, "60 kB": 60_000, "150 kB": 150_000, "2 MB": 2_000_000}
#: Verus begins with one packet, today's TCP with ten; NewReno's least window of two would make its first one two.
FIRST_ONE = "initial_window_packets=1,min_window_packets=1"
SCHEMES = {
    "Verus": "verus:ratio=2",
    "NewReno from one packet": f"newreno:{FIRST_ONE}",
    "Cubic from one packet": f"cubic:{FIRST_ONE}",
    "Cubic": "cubic",
}
#: A file begins every ten seconds, so that two rarely overlap; the last has twenty seconds.
FILES, EVERY_S, DURATION_S = 29, 10.0, 300.0


def runs(column: Column) -> list[Run]:
    """Files of each size (the run's `part`) over each channel, at the same times for each sender."""
    return [
        column.run(
            place,
            scheme,
            flows=[{"bytes": size, "start_s": EVERY_S * number} for number in range(FILES)],
            label=label,
            part=part,
            seed=seed,
            duration_s=DURATION_S,
            series=False,
        )
        for place in five_scenarios.CHANNELS
        for part, size in SIZES.items()
        for label, scheme in SCHEMES.items()
        for seed in column.seeds(1)
    ]


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    values: dict[str, float | None] = {
        f"slow-start-{part.replace(' ', '').lower()}": _over(results, part, "NewReno from one packet")
        for part in list(SIZES)[:3]
    }
    delivered = results.where(label="Verus")
    values["complete"] = sum(delivered.values("completions")) / (FILES * len(delivered.rows))
    values["after-slow-start"] = _over(results, "2 MB", "Cubic")
    return values


def _over(results: ColumnResults, part: str, other: str) -> float:
    verus, beside = (np.mean(_times(results.where(part=part, label=label))) for label in ("Verus", other))
    return float(verus / beside)


def _times(results: ColumnResults) -> list[float]:
    """How long each file took, in seconds; those that did not arrive are left out."""
    return results.flows("completion_mean_s")


def tables(results: ColumnResults) -> Sequence[Table]:
    """Completion times over all channels, and how many files arrived."""
    rows = []
    for label in SCHEMES:
        by_size = [results.where(label=label, part=part) for part in SIZES]
        arrived = sum(sum(one.values("completions")) for one in by_size) / sum(FILES * len(one.rows) for one in by_size)
        rows.append([label, *(with_interval(_times(one), 3) for one in by_size), f"{arrived:.1%}"])
    title = "Mean completion time over the five channels, s, with 95 % confidence intervals over the files"
    return [Table(title=title, heads=["", *SIZES, "files delivered"], rows=rows)]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """Mean completion time, a panel for each size."""
    rows = []
    for part in SIZES:
        for place in five_scenarios.CHANNELS:
            for label in SCHEMES:
                middle, half = interval(_times(results.where(part=part, place=place, label=label)))
                ends = {"low": middle - half, "high": middle + half}
                rows.append({"panel": f"Files of {part}", "group": place, "name": label, "y": middle, **ends})
    traces = ", ".join(dict.fromkeys(row["trace"] for row in results.rows))
    caption = (
        f"Mean completion time of {FILES} files, one each {EVERY_S:g} s, with 95 % confidence intervals. Channels: "
        f"{traces}; {results.seeds_text()}. Queue {PAPER_QUEUE}, 20 ms of propagation each way. Verus in "
        "robust mode with R = 2."
    )
    return [
        figures.bars(
            rows,
            name="short-flows",
            title="Completion times of short flows",
            caption=caption,
            x="",
            y="mean completion time, s",
            columns=2,
            size=(560, 220),
        )
    ]


EXPERIMENT = Reproduction(
    name="sigcomm-short-flows",
    title="Section 7: short flows",
    source=f"{SIGCOMM}, section 7",
    shows=(
        "A flow that does not get beyond slow start behaves like TCP, since slow start is the same. After slow start "
        "Verus uses the profile to adapt quickly. The paper says so and measures nothing."
    ),
    set_up=(
        f"Files of 15, 60 and 150 kB and of 2 MB, {FILES} of each over each channel, a new connection each {EVERY_S:g} "
        "s at the same instants whoever sends, mostly alone on the link. Time counts from the first packet until the "
        f"last byte has arrived; there is no handshake. {five_scenarios.WORDS} Queue and propagation as in Table 1. "
        "Verus begins with one packet, as the paper says; so does the NewReno that it is compared with here. After "
        "slow start it is compared with Cubic as Linux has it, which begins with ten packets; from one packet it is "
        "shown beside."
    ),
    channels=five_scenarios.CHANNELS,
    runs=runs,
    measure=measure,
    tables=tables,
    draw=draw,
).experiment()
