"""The page of a recorded channel (`verus probe client --record`)."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from verus import figures
from verus.comparison import compare_page
from verus.lines import check
from verus.page import Page, Section, table
from verus.results import Results

_NUMBER = pa.float64()
_PAIRS = pa.list_(pa.list_(_NUMBER))


def _fields(**kinds: pa.DataType) -> pa.StructType:
    return pa.struct([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])


_WAY = _fields(
    mean_mbps=_NUMBER,
    duration_s=_NUMBER,
    sent=pa.int64(),
    lost=pa.int64(),
    untimed=pa.int64(),
    queued_share=_NUMBER,
    bursts=_fields(burst_bytes=_PAIRS, gap_ms=_PAIRS),
    stretch=_PAIRS,
    series=_fields(bin_s=_NUMBER, rate_mbps=pa.list_(_NUMBER), delay_ms=pa.list_(_NUMBER)),
)
_RECORDING = _fields(
    mode=pa.string(),
    clocks=_fields(
        **dict.fromkeys(
            ("offset_ms", "offset_error_ms", "drift_ppm", "drift_error_ppm", "base_rtt_ms", "scatter_ms"), _NUMBER
        )
    ),
)

#: In the order of pages.
_WAYS = ("down", "up")


def page(results: Results) -> Page:
    """What was recorded: bursts as the paper's Figs. 1 and 2 show them, then what every test shows.

    Raises:
        ValueError: `run.json` does not tell what a recording tells.
    """
    recording = _checked(results.config)
    ways = {way: recording["ways"][way] for way in _WAYS if way in recording["ways"]}
    arrivals = figures.arrivals({way: found["stretch"] for way, found in ways.items()})
    bursts = figures.distributions({way: found["bursts"] for way, found in ways.items()})
    base = compare_page(results)
    # The series of the test go by acknowledgements, which wait in the other direction's queue.
    rest = [section for section in base.sections if section.title == "Results"]
    sections = [
        Section(title="Recorded", body=_summary(ways) + _clocks(recording["clocks"])),
        Section(title="Over time", figures=[figures.recorded({way: found["series"] for way, found in ways.items()})]),
        Section(title="Bursts", figures=[arrivals, bursts]),
        *rest,
    ]
    saturated = recording["mode"] == "saturate"
    lead = (
        "Packets always waited at the bottleneck, so what arrived is what the channel can carry."
        if saturated
        else "Packets left at a constant rate; what arrived is what the channel made of them."
    )
    return Page(title="Verus: a recorded channel", lead=lead, sections=sections)


def _checked(config: Mapping[str, Any]) -> dict[str, Any]:
    found = config.get("recording")
    try:
        check(pa.field("recording", _RECORDING, nullable=False), found, "recording")
        assert isinstance(found, dict)
        ways = found.get("ways")
        if not isinstance(ways, dict) or not any(way in ways for way in _WAYS):
            raise ValueError("`recording.ways` must tell of `up` or `down`")
        for way in _WAYS:
            if way in ways:
                check(pa.field(way, _WAY, nullable=False), _without_gaps(ways[way]), f"recording.ways.{way}")
                _check_pairs(ways[way], f"recording.ways.{way}")
    except ValueError as error:
        raise ValueError(f"not the run.json of a recording: {error}") from error
    return found


def _without_gaps(way: Any) -> Any:
    """The same with a delay in every bin: null, where nothing arrived, is one too."""
    series = way.get("series") if isinstance(way, dict) else None
    if not isinstance(series, dict) or not isinstance(series.get("delay_ms"), list):
        return way
    delays = series["delay_ms"]
    return {**way, "series": {**series, "delay_ms": [0.0 if delay is None else delay for delay in delays]}}


def _check_pairs(way: dict[str, Any], name: str) -> None:
    """Refuses what logarithmic axes cannot show."""
    bursts = way["bursts"]
    for key, pairs in (("stretch", way["stretch"]), *((f"bursts.{key}", bursts[key]) for key in bursts)):
        least = 0 if key == "stretch" else 1
        if any(len(pair) != 2 or min(pair) < least for pair in pairs):
            raise ValueError(f"`{name}.{key}` must hold pairs of numbers of {least} or more")


def _summary(ways: dict[str, Any]) -> str:
    heads = ["direction", "rate, Mbit/s", "time, s", "packets sent", "lost", "time unknown", "time with a queue, %"]
    rows = [
        f"<tr><th scope=row>{way}</th>"
        + "".join(
            f"<td>{value}</td>"
            for value in (
                f"{found['mean_mbps']:.2f}",
                f"{found['duration_s']:.1f}",
                found["sent"],
                found["lost"],
                found["untimed"],
                f"{found['queued_share'] * 100:.1f}",
            )
        )
        + "</tr>"
        for way, found in ways.items()
    ]
    return table(heads, rows, caption="What arrived, acknowledgements included")


def _clocks(clocks: dict[str, float]) -> str:
    words = (
        f"Round trip of the empty path: {clocks['base_rtt_ms']:.2f} ms. The server's clock is "
        f"{clocks['offset_ms']:.3f} ± {clocks['offset_error_ms']:.3f} ms ahead of the client's, and gains "
        f"{clocks['drift_ppm']:.2f} ± {clocks['drift_error_ppm']:.2f} millionths. The offset's error is half of that "
        "round trip and what the path scatters: nobody can tell how much of it is which direction's."
    )
    return f"<p class=note>{html.escape(words)}</p>"
