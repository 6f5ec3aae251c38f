"""Model paper 2016, Table 2: how large the matrix is, by quantization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verus.lab.scenario import Run
from verus.papers.model import trained_models
from verus.papers.reproduction import MODEL_PAPER, Column, ColumnResults, Reproduction, Table, with_interval
from verus.report import figures
from verus.report.figures import Figure
from verus.report.numbers import size

#: By quantization in ms: the matrix's dimension, and its file in MiB.
PUBLISHED = {1: (25_488, 2457.6), 2: (12_744, 620.0), 5: (5112, 100.0), 10: (2556, 25.0), 20: (1296, 7.0)}


#: Where what quantization costs is measured, and by how many users.
PLACE, ONE = "#1", 1

#: Bytes of an empty element and its separator: `0.0,`. With `0,`, which `verus train --csv` writes, it is two fewer.
EMPTY_BYTES, OUR_EMPTY_BYTES = 4, 2

MIB = 2**20


def runs(column: Column) -> list[Run]:
    """One user on the first channel, with a model of each quantization."""
    return [
        run
        for step in PUBLISHED
        for run in trained_models.evaluation(column, PLACE, ONE, [ONE], label=_label(step), quantization_ms=step)
    ]


def _label(step: int) -> str:
    return f"model, {step} ms"


def compute(column: Column) -> Any:
    """Description of each model, by quantization."""
    return {
        str(step): trained_models.about(trained_models.model(column, [1], quantization_ms=step)) for step in PUBLISHED
    }


def _csv_bytes(model: Mapping[str, Any]) -> int:
    """Our transitions in a matrix of the paper's ranges, each element without one written as `0.0`."""
    empty = model["paper_matrix_size"] ** 2 - model["elements"]
    ours_empty = model["matrix_size"] ** 2 - model["elements"]
    return int(model["csv_bytes"] - OUR_EMPTY_BYTES * ours_empty + EMPTY_BYTES * empty)


def _coarse_over_fine(results: ColumnResults, of: Callable[[ColumnResults], float]) -> float:
    """Ratio of a coarser step's value to the finest's, for the step that differs most."""
    finest, *coarser = (of(results.where(label=_label(step))) for step in PUBLISHED)
    return max((value / finest for value in coarser), key=lambda ratio: abs(ratio - 1))


def measure(results: ColumnResults) -> Mapping[str, float | None]:
    """A value for each claim."""
    values: dict[str, float | None] = {}
    for step in PUBLISHED:
        model = results.measured[str(step)]
        values[f"dimension-{step}ms"] = float(model["paper_matrix_size"])
        values[f"csv-{step}ms"] = _csv_bytes(model) / MIB
    values["quantization-throughput"] = _coarse_over_fine(results, lambda one: one.mean("throughput_mbps"))
    values["quantization-delay"] = _coarse_over_fine(results, trained_models.packet_delay_ms)
    return values


def tables(results: ColumnResults) -> Sequence[Table]:
    """The paper's table beside what our code makes of its ranges, and our own matrices."""
    same, own = [], []
    for step, (states, megabytes) in PUBLISHED.items():
        model = results.measured[str(step)]
        name = f"{step} ms"
        sizes = [f"{megabytes:,g}", f"{_csv_bytes(model) / MIB:,.1f}"]
        same.append([name, f"{states:,}", f"{model['paper_matrix_size']:,}", *sizes])
        sizes = [size(model["csv_bytes"]), f"{model['elements']:,}", size(model["file_bytes"])]
        own.append([name, f"{model['matrix_size']:,}", *sizes])
    model = results.measured["1"]
    ranges = f"d {model['delay_min_ms']} to {model['delay_max_ms']} ms, w 0 to {model['window_max_packets']}"
    return [
        Table(
            title="The paper's ranges, d 20 to 727 ms, w 0 to 35",
            heads=["quantization", "m, the paper", "m, here", "file in MiB, the paper", "CSV in MiB, here"],
            rows=same,
        ),
        Table(
            title=f"Our own ranges, {ranges}",
            heads=["quantization", "m", "CSV", "elements not empty", "model file"],
            rows=own,
        ),
        Table(
            title="One user on channel #1, by the model's quantization",
            heads=["quantization", "throughput, Mbit/s", "packet delay, ms"],
            rows=[
                [
                    f"{step} ms",
                    with_interval(here.values("throughput_mbps"), 2),
                    f"{trained_models.packet_delay_ms(here):.1f}",
                ]
                for step in PUBLISHED
                for here in (results.where(label=_label(step)),)
            ],
        ),
    ]


def draw(results: ColumnResults) -> Sequence[Figure]:
    """File sizes beside the paper's."""
    rows = [
        {"name": name, "x": float(step), "y": megabytes}
        for step in PUBLISHED
        for model in (results.measured[str(step)],)
        for name, megabytes in (
            ("model paper 2016", PUBLISHED[step][1]),
            ("the same ranges here, CSV", _csv_bytes(model) / MIB),
            ("our matrix, CSV", model["csv_bytes"] / MIB),
            ("our matrix, file", model["file_bytes"] / MIB),
        )
    ]
    caption = (
        "Size of the transition matrix of one user as comma-separated values, and as `verus train` writes it: only the "
        "elements that are not empty, as counts. Five LTE downlinks, 300 s each, Verus in robust mode."
    )
    x, y, title = "quantization, ms", "size, MiB", "File sizes by quantization"
    return [
        figures.lines(
            rows,
            name="table2",
            title=title,
            caption=caption,
            x=x,
            y=y,
            log_x=True,
            log_y=True,
            dots=True,
            size=(560, 280),
        )
    ]


EXPERIMENT = Reproduction(
    name="model-table2",
    title="Table 2: matrix and file sizes",
    source=f"{MODEL_PAPER}, Table 2",
    shows=(
        "With d from 20 to 727 ms and w from 0 to 35 packets the matrix has 25,488 × 25,488 elements at 1 ms and "
        "1,296 × 1,296 at 20 ms; as comma-separated values it takes 2.4 GB and 7 MB."
    ),
    set_up=(
        "The dimensions are those that our grid has for the paper's ranges. The size is that of all its elements in "
        "MiB, "
        "with the transitions of our own training in them and `0.0,` for an empty one: four bytes an element are what "
        "the paper's five sizes have (`verus train --csv` writes `0,`). What quantization costs is measured with one "
        f"user on channel #1. {trained_models.SET_UP}"
    ),
    channels=trained_models.CHANNELS,
    runs=runs,
    compute=compute,
    measure=measure,
    tables=tables,
    draw=draw,
    saved=trained_models.saved,
).experiment()
