"""One line per contestant: runs that differ only in their seed are averaged, and blocks share a channel and a queue."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from verus.lab.interval import half_width
from verus.lab.repeats import are_one, paired
from verus.lab.results import Results

#: Metrics that are averaged over seeds and shown.
NUMBERS = (
    "capacity_mbps",
    "throughput_mbps",
    "utilization",
    "qdelay_mean_ms",
    "qdelay_p50_ms",
    "qdelay_p95_ms",
    "signal_delay_p95_ms",
    "rtt_mean_ms",
    "rtt_p95_ms",
    "loss_rate",
    "jain",
    "flow_min_mbps",
    "flow_max_mbps",
    "completions",
    "completion_mean_s",
    "completion_p95_s",
    "completion_p99_s",
    "late",
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A contestant on a channel and a queue.

    Attributes:
        label: The contestant.
        scheme: Its bare name, which decides its colour.
        params: The keys that were set, which decide the shade.
        flows: Flows in the run.
        runs: Index of each run averaged here (they differ in their seed).
        means: Mean over the runs of each of `NUMBERS`; None where no run observed it.
        halves: Half of the 95 % confidence interval of that mean; None where fewer than two runs observed it, or all
            runs are one and the same (`are_one`).
        are_one: Whether all runs are one and the same.
        above: The differences from the block's first contestant, run by run (`repeats.paired`);
            empty for that one, and with fewer than two runs.
        parts: A cell for each scheme of a mix: its flows' total, minimum and maximum throughput,
            and their mean of other metrics.
    """

    label: str
    scheme: str
    params: Mapping[str, Any]
    flows: int
    runs: tuple[int, ...]
    means: Mapping[str, float | None]
    halves: Mapping[str, float | None]
    are_one: bool = False
    above: Mapping[str, Mapping[str, float | int | None]] = field(default_factory=dict)
    parts: tuple[Cell, ...] = ()

    def __getitem__(self, name: str) -> float | None:
        return self.means[name]

    @property
    def title(self) -> str:
        """The label, with the number of flows where there are several; a mix's label has its own numbers."""
        return self.label if self.flows == 1 or self.parts else f"{self.flows} × {self.label}"


@dataclass(frozen=True, kw_only=True)
class Block:
    """All contestants on one channel and one queue.

    Attributes:
        trace: The channel as the user named it.
        short: The shortest unique name of the channel in the results.
        queue: The queue as the user wrote it.
        cells: In the order of the request.
        over: The difference between repeated runs: `seeds`, or also the `stretches` of a recording.
    """

    trace: str
    short: str
    queue: str
    cells: tuple[Cell, ...]
    over: str = "seeds"

    @property
    def repetitions(self) -> str:
        """The runs that the numbers are means of, in words; empty for a single run."""
        if (count := len(self.cells[0].runs)) == 1:
            return ""
        if all(cell.are_one for cell in self.cells):
            return f"{count} identical runs"
        return f"mean of {count} {self.over}, ± 95 %"

    @property
    def has_intervals(self) -> bool:
        """Whether any of its numbers has an interval."""
        return any(half is not None for cell in self.cells for half in cell.halves.values())

    @property
    def capacity_mbps(self) -> float | None:
        """The mean capacity of the channel over all runs of the block, in Mbit/s; None if it was not observed."""
        return mean([cell["capacity_mbps"] for cell in self.cells])


def blocks(results: Results) -> list[Block]:
    """The blocks of the results, in the order of the request."""
    settings = results.config.get("settings") or {}
    over = "seeds" if settings.get("stretches") is None else "stretches"
    return blocks_of(results.rows.to_pylist(), over)


def blocks_of(rows: Sequence[Mapping[str, Any]], over: str = "seeds") -> list[Block]:
    """The blocks of some rows."""
    grouped: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        grouped.setdefault((row["trace"], row["queue"]), {}).setdefault(row["label"], []).append(row)
    names = short_names(trace for trace, _ in grouped)
    return [
        Block(
            trace=trace,
            short=names[trace],
            queue=queue,
            over=over,
            cells=tuple(_cell(label, rows, next(iter(labels.values()))) for label, rows in labels.items()),
        )
        for (trace, queue), labels in grouped.items()
    ]


def short_names(channels: Iterable[str]) -> dict[str, str]:
    """The shortest unique name of each channel: that of the file, with as many folders before it as necessary.

    Example:
        >>> short_names(["lab/town.down.xz", "lab/sea.down", "field/town.down", "rate:5"]).values()
        dict_values(['lab/town.down', 'sea.down', 'field/town.down', 'rate:5'])
        >>> short_names(["lab/a.down[0:9]+lab/b.down", "rate:12Mbit/s"]).values()
        dict_values(['a.down[0:9]+b.down', 'rate:12Mbit/s'])
    """
    distinct = list(dict.fromkeys(channels))

    def last(channel: str, parts: int) -> str:
        words = (word if word.startswith(_RATE) else "/".join(word.split("/")[-parts:]) for word in channel.split("+"))
        return "+".join(_COMPRESSED.sub("", word) for word in words)

    def shortest(channel: str) -> str:
        for parts in range(1, channel.count("/") + 2):
            name = last(channel, parts)
            if all(last(other, parts) != name for other in distinct if other != channel):
                return name
        return channel

    return {channel: shortest(channel) for channel in distinct}


#: The prefix of a constant rate, whose unit may have a slash.
_RATE = "rate:"

#: The suffix of a compressed file, before a stretch of it.
_COMPRESSED = re.compile(r"\.(xz|gz)(?=$|[\[@])")


def _cell(label: str, rows: Sequence[Mapping[str, Any]], first: Sequence[Mapping[str, Any]]) -> Cell:
    # A test that ended early does not measure the requested duration.
    cut = any(row.get("cut") for row in rows)
    return Cell(
        label=f"{label} (cut)" if cut else label,
        scheme=rows[0]["scheme"],
        params=json.loads(rows[0]["params"]),
        flows=rows[0]["flows"],
        runs=tuple(row["run"] for row in rows),
        parts=_parts(rows),
        means={name: mean([row.get(name) for row in rows]) for name in NUMBERS},
        halves=_halves({name: [row.get(name) for row in rows] for name in NUMBERS}, rows),
        are_one=are_one(rows),
        above=paired(rows, first, NUMBERS) if len(rows) > 1 and rows is not first else {},
    )


def _halves(values: Mapping[str, Sequence[float | None]], rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Half of the interval of each mean; None if all runs are one and the same."""
    single = are_one(rows)
    return {name: None if single else half_width(seen(each)) for name, each in values.items()}


def _parts(rows: Sequence[Mapping[str, Any]]) -> tuple[Cell, ...]:
    """A cell for each scheme, where the flows have several."""
    schemes = dict.fromkeys(flow["scheme"] for row in rows for flow in row["per_flow"])
    if len(schemes) < 2:
        return ()
    return tuple(_part(scheme, rows) for scheme in schemes)


def _part(scheme: str, rows: Sequence[Mapping[str, Any]]) -> Cell:
    """The results of the flows of one scheme."""
    flows = [[flow for flow in row["per_flow"] if flow["scheme"] == scheme] for row in rows]
    each: dict[str, list[float | None]] = {
        name: [mean([flow.get(name) for flow in several]) for several in flows] for name in NUMBERS
    }
    rates = [seen(flow["throughput_mbps"] for flow in several) for several in flows]
    for name, of in (("throughput_mbps", sum), ("flow_min_mbps", min), ("flow_max_mbps", max)):
        each[name] = [of(several) if several else None for several in rates]
    each["utilization"] = [
        None if got is None or not row["capacity_mbps"] else got / row["capacity_mbps"]
        for got, row in zip(each["throughput_mbps"], rows, strict=True)
    ]
    return Cell(
        label=scheme,
        scheme=scheme,
        params={},
        flows=len(flows[0]),
        runs=tuple(row["run"] for row in rows),
        means={name: mean(values) for name, values in each.items()},
        halves=_halves(each, rows),
    )


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of the observed values; None if there are none.

    Example:
        >>> mean([1.0, None, 3.0])
        2.0
    """
    observed = seen(values)
    return sum(observed) / len(observed) if observed else None


def seen(values: Iterable[float | None]) -> list[float]:
    """The values that were observed."""
    return [value for value in values if value is not None]


def with_means(results: Results) -> Results:
    """The results with `means` in their `run.json`, an entry for each contestant on a channel and a queue.

    An entry has the contestant's `runs`, and each of `NUMBERS` that was observed: its `mean` over
    these runs and `half_width_95`, half of the mean's 95 % confidence interval. The interval is
    null where fewer than two runs observed the metric, or all are one and the same run. Likewise
    `differences`: by how much each contestant (`label`) is above the first one there (`from`), as
    `repeats.paired`.
    """
    all_blocks = blocks(results)
    means = [
        {
            "trace": block.trace,
            "queue": block.queue,
            "label": cell.label,
            "runs": list(cell.runs),
            **{
                name: {"mean": value, "half_width_95": cell.halves[name]}
                for name, value in cell.means.items()
                if value is not None
            },
        }
        for block in all_blocks
        for cell in block.cells
    ]
    differences = [
        {"trace": block.trace, "queue": block.queue, "label": cell.label, "from": block.cells[0].label, **cell.above}
        for block in all_blocks
        for cell in block.cells
        if cell.above
    ]
    return replace(results, config={**results.config, "means": means, "differences": differences})


def warnings(results: Results) -> list[str]:
    """A sentence for each channel and queue over which repetitions of a contestant are one and the same run."""
    said = []
    for block in blocks(results):
        alike = [cell for cell in block.cells if cell.are_one]
        if not alike:
            continue
        names = ", ".join(cell.title for cell in alike)
        said.append(
            f"{names} over {block.trace}: all {len(alike[0].runs)} runs are the same to the last digit, since nothing "
            "in them depends on the seed: they are one run, without an interval. Over a recording, --stretches N runs "
            "each over another part of it."
        )
    return said
