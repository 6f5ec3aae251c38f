"""Combines several saved runs: their results, side by side in the same tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from verus.lab.arrow_tables import stack
from verus.lab.metric_rows import PROBE, SHELL, made_by
from verus.lab.results import Results

#: Kinds of results that `overlaid` takes: with the same columns, measured in the same way.
KINDS = ("compare", "simulate", PROBE, SHELL)

#: The separator between a contestant and its folder.
_OF = " · "


def overlaid(saved: Mapping[str, Results]) -> Results:
    """The results of several folders as if one command had written them; each contestant is named with its folder.

    Runs over the same channel and queue then share their charts.

    Args:
        saved: By the names of folders.

    Raises:
        ValueError: One of them cannot be combined with the others; the message says which, and why.
    """
    kinds = {name: str(results.config["kind"]) for name, results in saved.items()}
    for name, kind in kinds.items():
        if kind not in KINDS:
            raise ValueError(f"`{name}` is from {made_by(kind)}, whose page has nothing to lay over others")
    first, *others = saved
    for name in others:
        if saved[name].live != saved[first].live:
            raise ValueError(
                f"`{name}` and `{first}` do not go together: one was measured over a live path, where the "
                "bottleneck queue, which the delays of the other are of, cannot be observed"
            )
    moved, runs = [], 0
    for name, results in saved.items():
        moved.append({table: _moved(own, name, runs) for table, own in _tables(results).items()})
        runs += len(results.config["runs"])
    names = ("rows", "series", "profile")
    joined = {name: stack([own[name] for own in moved if own[name] is not None]) for name in names}
    records = [own["records"] for own in moved if own["records"] is not None]
    return Results(**joined, records=stack(records) if records else None, config=_config(saved))


def _tables(results: Results) -> dict[str, pa.Table | None]:
    return {name: getattr(results, name) for name in ("rows", "series", "profile", "records")}


def _moved(table: pa.Table | None, name: str, runs: int) -> pa.Table | None:
    """A table with its runs numbered after others, and their folder in the labels."""
    if table is None or "label" not in table.column_names:
        return None
    labels = pc.binary_join_element_wise(table.column("label").cast(pa.string()), name, _OF)
    table = table.set_column(table.column_names.index("label"), "label", labels)
    counted = pc.add(table.column("run"), pa.scalar(runs, pa.int32()))
    return table.set_column(table.column_names.index("run"), "run", counted)


def _config(saved: Mapping[str, Results]) -> dict[str, Any]:
    """The fields of a `run.json` that all share, and every channel and run."""
    configs: Sequence[Mapping[str, Any]] = [results.config for results in saved.values()]
    channels = {str(channel): channel for config in configs for channel in config["channels"]}
    return {
        **configs[0],
        "version": ", ".join(dict.fromkeys(str(config["version"]) for config in configs)),
        "created": " and ".join(dict.fromkeys(str(config["created"]) for config in configs)),
        "settings": {name: results.config["settings"] for name, results in saved.items()},
        "seeds": sorted({seed for config in configs for seed in config["seeds"]}),
        "channels": list(channels.values()),
        "runs": [
            {**run, "label": f"{run['label']}{_OF}{name}"} if "label" in run else run
            for name, results in saved.items()
            for run in results.config["runs"]
        ],
    }
