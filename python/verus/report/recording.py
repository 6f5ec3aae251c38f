"""The page of a recorded channel (`verus probe client --record`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from markupsafe import Markup

from verus.lab.json_lines import check
from verus.lab.results import Results
from verus.report import figures
from verus.report.comparison import compare_page
from verus.report.grid import Grid, note
from verus.report.page import Page, Section

_NUMBER = pa.float64()
_PAIRS = pa.list_(pa.list_(_NUMBER))


def _fields(**kinds: pa.DataType) -> pa.StructType:
    return pa.struct([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])


_WAY = _fields(
    trace=pa.string(),
    limited_by=pa.string(),
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

#: The directions, in the order of pages.
_WAYS = ("down", "up")

#: Limits of a recorded rate, by `limited_by`: whether the path is the limit, and words for it.
_LIMITS = {
    "path_queue": (True, "the path, where packets queued"),
    "path_drops": (True, "the path, which drops and lets next to none queue"),
    "server_limit": (False, "the rate that the server grants a test (--max-mbps there)"),
    "own_rate": (False, "the constant rate of the load (--rate-mbps)"),
    "own_silence": (False, "this end, which did not run for a while: it was stopped, asleep or busy"),
    "ends": (False, "the two ends, which were no faster"),
}


#: The least share of the time with a queue that counts as all the time.
_STEADY = 0.95


def page(results: Results) -> Page:
    """The page of a recording: bursts as in the paper's Figs. 1 and 2, then the sections of every test.

    Raises:
        ValueError: `run.json` lacks the fields of a recording.
    """
    recording = _checked(results.config)
    directions = {way: recording["ways"][way] for way in _WAYS if way in recording["ways"]}
    arrivals = figures.arrivals({way: found["stretch"] for way, found in directions.items()})
    bursts = figures.distributions({way: found["bursts"] for way, found in directions.items()})
    base = compare_page(results)
    # The series of the test come from acknowledgements, which wait in the other direction's queue.
    rest = [section for section in base.sections if section.title == "Results"]
    sections = [
        Section(title="Recorded", body=_summary(directions) + _clocks(recording["clocks"])),
        Section(
            title="Over time", figures=[figures.recorded({way: found["series"] for way, found in directions.items()})]
        ),
        Section(title="Bursts", figures=[arrivals, bursts]),
        *rest,
    ]
    channel = all(_LIMITS[found["limited_by"]][0] for found in directions.values())
    title = "Verus: a recorded channel" if channel else "Verus: a recording"
    return Page(title=title, lead=" ".join(_lead(way, found) for way, found in directions.items()), sections=sections)


def _lead(way: str, direction: Mapping[str, Any]) -> str:
    """The limit of one direction, and hence the meaning of its trace."""
    is_path, words = _LIMITS[direction["limited_by"]]
    if not is_path:
        return (
            f"{way.title()}: limited by {words}. `{direction['trace']}` is not what the path carries, and no channel."
        )
    if direction["limited_by"] == "path_queue" and direction["queued_share"] < _STEADY:
        share = f"{direction['queued_share'] * 100:.0f}"
        return f"{way.title()}: limited by {words}, {share} % of the time. In the rest it may have carried more."
    return f"{way.title()}: limited by {words}, so what arrived is what it carries."


def _checked(config: Mapping[str, Any]) -> dict[str, Any]:
    recording = config.get("recording")
    try:
        check(pa.field("recording", _RECORDING, nullable=False), recording, "recording")
        assert isinstance(recording, dict)
        directions = recording.get("ways")
        if not isinstance(directions, dict) or not any(way in directions for way in _WAYS):
            raise ValueError("`recording.ways` must tell of `up` or `down`")
        for way in _WAYS:
            if way in directions:
                check(pa.field(way, _WAY, nullable=False), _without_gaps(directions[way]), f"recording.ways.{way}")
                _check_pairs(directions[way], f"recording.ways.{way}")
                if directions[way]["limited_by"] not in _LIMITS:
                    raise ValueError(f"`recording.ways.{way}.limited_by` must be one of {', '.join(_LIMITS)}")
    except ValueError as error:
        raise ValueError(f"not the run.json of a recording: {error}") from error
    return recording


def _without_gaps(way: Any) -> Any:
    """The direction with a number in every bin of delay, in place of null where nothing arrived."""
    series = way.get("series") if isinstance(way, dict) else None
    if not isinstance(series, dict) or not isinstance(series.get("delay_ms"), list):
        return way
    delays = series["delay_ms"]
    return {**way, "series": {**series, "delay_ms": [0.0 if delay is None else delay for delay in delays]}}


def _check_pairs(way: dict[str, Any], name: str) -> None:
    """Refuses values that logarithmic axes cannot show."""
    bursts = way["bursts"]
    for key, pairs in (("stretch", way["stretch"]), *((f"bursts.{key}", bursts[key]) for key in bursts)):
        minimum = 0 if key == "stretch" else 1
        if any(len(pair) != 2 or min(pair) < minimum for pair in pairs):
            raise ValueError(f"`{name}.{key}` must hold pairs of numbers of {minimum} or more")


def _summary(ways: dict[str, Any]) -> Markup:
    heads = [
        "direction",
        "rate, Mbit/s",
        "time, s",
        "packets sent",
        "lost",
        "time unknown",
        "time with a queue, %",
        "limited by",
    ]
    rows = [
        [
            way,
            f"{found['mean_mbps']:.2f}",
            f"{found['duration_s']:.1f}",
            *(str(found[name]) for name in ("sent", "lost", "untimed")),
            f"{found['queued_share'] * 100:.1f}",
            _LIMITS[found["limited_by"]][1],
        ]
        for way, found in ways.items()
    ]
    return Grid(heads=heads, rows=rows, title="What arrived, acknowledgements included").html()


def _clocks(clocks: dict[str, float]) -> Markup:
    words = (
        f"Round trip of the empty path: {clocks['base_rtt_ms']:.2f} ms. One-way delays are known to "
        f"± {clocks['offset_error_ms']:.3f} ms: half of that round trip plus the path's scatter, since how much of it "
        "belongs to which direction cannot be measured. The server's clock gains "
        f"{clocks['drift_ppm']:.2f} ± {clocks['drift_error_ppm']:.2f} millionths on the client's."
    )
    return note(words)
