"""Packets on their way through the bottleneck's queue, one by one, for a short stretch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from verus.lab.results import Results
from verus.report.figures.chart import Figure, Spec, axis_of, conditions, floats, grid, heading, short
from verus.report.style import named
from verus.report.summary import Block, Cell

#: Bounds of the stretch that is drawn: its length, ms, and the packets of one contestant that arrive in it.
_LONGEST_MS, _MOST_PACKETS = 1000.0, 120

#: The most packets of a contestant that are drawn: those that arrive, and those already in the
#: queue.
_MOST_DRAWN = 1500

_WIDTH, _HEIGHT = 440, 260


def packets(results: Results, block: Block, *, name: str) -> Figure | None:
    """A panel for each contestant: each packet is a bar from its arrival in the queue to its departure, in order.

    The left edges of the bars are the arrivals, the right edges the departures. A bar's length is
    the packet's delay, and the bars above each other at an instant are the queue. This is Newell's
    diagram of cumulative arrivals and departures.

    Returns:
        None if packets were not recorded (`verus compare --records`).
    """
    if results.records is None:
        return None
    run_of = results.records.column("run").to_numpy()
    recorded = [(cell, results.records.filter(run_of == cell.runs[0])) for cell in block.cells]
    recorded = [(cell, part) for cell, part in recorded if part.num_rows]
    if not recorded:
        return None
    times = [floats(part, "sent_ms") for _, part in recorded]
    begin = max(float(np.nanmax(sent)) for sent in times) / 2
    count = max(int(((sent >= begin) & (sent < begin + _LONGEST_MS)).sum()) for sent in times)
    length = _LONGEST_MS * min(1.0, _MOST_PACKETS / max(count, 1))
    flows = max(cell.flows for cell, _ in recorded)
    colors = named(f"flow {index}" for index in range(flows))
    panels = [_panel(cell, part, begin, begin + length, colors) for cell, part in recorded]
    caption = (
        f"{block.trace}. {conditions(results, [block])} {length:.0f} ms from the middle of the run. Each bar is a "
        "packet, from when it came to the queue to when it left: as long as its delay; as many above each other as "
        "wait at that instant. A cross is a packet that was dropped."
    )
    if len(results.config["seeds"]) > 1:
        caption += " The first seed is shown."
    spec = {**grid(panels, columns=2), "resolve": {"scale": {"color": "shared"}}}
    return Figure(name=name, title=f"Packets in the queue: {block.short}", caption=caption, spec=spec)


def _panel(cell: Cell, part: pa.Table, begin: float, end: float, colors: dict[str, str]) -> Spec:
    sent, departed, dropped = (floats(part, f"{key}_ms") for key in ("sent", "departed", "dropped"))
    gone = np.fmin(np.where(np.isfinite(departed), departed, np.inf), np.where(np.isfinite(dropped), dropped, np.inf))
    chosen = np.flatnonzero((sent < end) & (gone >= begin))
    chosen = chosen[np.argsort(sent[chosen], kind="stable")][:_MOST_DRAWN]
    flow, number = part.column("flow").to_numpy(), part.column("number").to_numpy()
    rows = [
        {
            "name": f"flow {flow[index]}",
            "number": int(number[index]),
            "order": order,
            "came": short(sent[index] - begin),
            "left": short(min(float(gone[index]), 10 * end) - begin),
            "waited": short(float(gone[index] - sent[index])),
            "fate": "dropped" if np.isfinite(dropped[index]) else "left",
        }
        for order, index in enumerate(chosen.tolist())
    ]
    x: Spec = axis_of("came", "time, ms", grid=False, scale={"domain": [0, short(end - begin)], "nice": False})
    y: Spec = axis_of("order", "packet, in order", tickCount=5)
    color = {
        "field": "name",
        "type": "nominal",
        "scale": {"domain": list(colors), "range": list(colors.values())},
        "legend": {"title": None, "orient": "top"} if len(colors) > 1 else None,
    }
    tooltip = [
        {"field": "name", "title": "of"},
        {"field": "number", "title": "packet"},
        {"field": "came", "title": "came, ms"},
        {"field": "waited", "title": "waited, ms"},
        {"field": "fate", "title": "fate"},
    ]
    layers: list[Spec] = [
        {
            "transform": [{"filter": "datum.fate === 'left'"}],
            "mark": {"type": "rule", "strokeWidth": 1.7, "opacity": 0.9, "clip": True},
            "encoding": {"x": x, "x2": {"field": "left"}, "y": y, "color": color, "tooltip": tooltip},
        },
        {
            "transform": [{"filter": "datum.fate === 'dropped'"}],
            "mark": {"type": "point", "shape": "cross", "size": 40, "filled": True, "opacity": 1, "clip": True},
            "encoding": {"x": {**x, "field": "left"}, "y": y, "color": color, "tooltip": tooltip},
        },
        *heading(cell.title),
    ]
    return {"width": _WIDTH, "height": _HEIGHT, "data": {"values": rows}, "layer": layers}
