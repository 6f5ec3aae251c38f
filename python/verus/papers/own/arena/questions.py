"""Questions that the arena's runs answer: a table, a chart and a rule for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from verus.lab.interval import half_width
from verus.papers.own.arena.field import (
    AFTER_S,
    APART_S,
    BLOATED,
    BUFFERS,
    DELAY_MS,
    OUTAGE_FROM_S,
    OUTAGE_MBPS,
    OUTAGE_TO_S,
    OUTAGES,
    QUEUES,
    SHARED_MBPS,
)
from verus.papers.own.arena.results import ArenaResults, Question, number_text, values_of
from verus.papers.own.dominance import dominates
from verus.report import figures
from verus.report.figures import Figure
from verus.report.summary import seen


def _standing_table(results: ArenaResults) -> tuple[list[str], dict[str, list[str]]]:
    everywhere = results.standings()
    by_queue = {queue: {one.sender: one for one in results.standings(queue)} for queue in results.queues()}
    paths = len(results.points())
    each = next(iter(next(iter(by_queue.values())).values())).paths
    heads = [f"dominated on, of {paths}", "by most often", "dominates, pairs"]
    heads += [f"{queue}: of {each}" for queue in by_queue]
    cells = {}
    for one in everywhere:
        by = [other for others in one.beaten.values() for other in others]
        most_frequent = max(dict.fromkeys(by), key=by.count, default="")
        cells[one.sender] = [
            str(len(one.beaten)),
            f"{most_frequent} ({by.count(most_frequent)})" if most_frequent else "–",
            str(sum(map(len, one.beats.values()))),
            *(str(len(own[one.sender].beaten)) for own in by_queue.values()),
        ]
    return heads, cells


def _alone_figure(results: ArenaResults) -> Figure:
    rows: list[dict[str, Any]] = []
    for (queue, channel), senders in results.of("alone").items():
        if queue != BLOATED:
            continue
        for label, own in senders.items():
            axes = {
                "x": [math.log(max(row["qdelay_p95_ms"] or 1.0, 1.0)) for row in own],
                "y": [100 * row["utilization"] for row in own],
            }
            point: dict[str, Any] = {"panel": channel, "name": label}
            for axis, values in axes.items():
                middle, half = fmean(values), half_width(values) or 0.0
                ends = {axis: middle, f"{axis}_low": max(middle - half, 0.0), f"{axis}_high": middle + half}
                if axis == "x":
                    point |= {key: math.exp(value) for key, value in ends.items()}
                else:
                    point |= {key: min(value, 100.0) for key, value in ends.items()}
            rows.append(point)
    caption = (
        f"One flow alone, {QUEUES[BLOATED]}, {DELAY_MS:g} ms each way: mean over the stretches of each channel with "
        "95 % confidence intervals, of the delay's logarithm across. Better is up and to the left. Delay is time in "
        "the bottleneck queue."
    )
    x, y = "95th percentile of queueing delay, ms", "capacity used, %"
    return figures.points(
        rows,
        name="arena-delay",
        title="Throughput and delay of a flow alone",
        caption=caption,
        x=x,
        y=y,
        log_x=True,
        zero=False,
        columns=3,
        size=(280, 220),
    )


def _dominance_figure(results: ArenaResults) -> Figure:
    paths, names = results.points(), results.senders()
    rows = [
        {"x": other, "y": one, "value": float(sum(dominates(own[one], own[other]) for own in paths.values()))}
        for one in names
        for other in names
    ]
    caption = f"On how many of {len(paths)} paths the sender of the row dominates that of the column."
    return figures.heat(
        rows,
        name="arena-dominance",
        title="Which sender dominates which",
        caption=caption,
        x="is dominated",
        y="dominates",
        value="paths",
        size=(920, 360),
        digits=0,
    )


def _delay_table(results: ArenaResults) -> tuple[list[str], dict[str, list[str]]]:
    by_queue: dict[str, dict[str, list[str]]] = {}
    for queue in results.queues():
        for label in results.labels():
            rows = [
                own for (each, _), senders in results.of("alone").items() if each == queue for own in senders[label]
            ]
            delays = [math.log(max(value, 1.0)) for value in seen(values_of(rows, "qdelay_p95_ms"))]
            used = 100 * fmean(row["utilization"] for row in rows)
            text = f"{used:.1f} at {math.exp(fmean(delays)):.0f}" if delays else "–"
            by_queue.setdefault(queue, {})[label] = [text]
    cells = {label: [own[label][0] for own in by_queue.values()] for label in results.senders()}
    return list(by_queue), cells


def _by(results: ArenaResults, value: Callable[[str], float]) -> list[str]:
    """The senders by a number, the largest first."""
    return sorted(results.labels(), key=lambda label: -value(label))


def _fair_table(results: ArenaResults) -> tuple[list[str], dict[str, list[str]]]:
    parts = results.of("fair")
    heads = [f"{count} flows, {buffer}: Jain, ms" for count, buffer in parts]

    def least(label: str) -> float:
        return min(fmean(row["jain_active"] for row in senders[label]) for senders in parts.values())

    return heads, {
        label: [
            f"{number_text(values_of(senders[label], 'jain_active'), 3)}, "
            f"{fmean(seen(values_of(senders[label], 'qdelay_p95_ms'))):.0f}"
            for senders in parts.values()
        ]
        for label in _by(results, least)
    }


def _fair_figure(results: ArenaResults) -> Figure:
    rows = [
        {
            "panel": f"{buffer} buffer",
            "group": label,
            "name": f"{count} flows",
            "y": fmean(row["jain_active"] for row in own),
        }
        for (count, buffer), senders in results.of("fair").items()
        for label, own in senders.items()
    ]
    caption = (
        f"Jain's index in windows of a second over the flows that are on, {SHARED_MBPS:g} Mbit/s, {DELAY_MS:g} ms each "
        f"way, starts over {2 * APART_S:g} s; buffers of {BUFFERS['shallow']} and {BUFFERS['deep']} bandwidth-delay "
        "products."
    )
    title = "Flows of one kind that share a link"
    return figures.bars(
        rows, name="arena-fairness", title=title, caption=caption, x="", y="Jain's index", columns=1, size=(860, 200)
    )


def share(row: Mapping[str, Any]) -> float:
    """The sender's throughput over its fair share, half of the sum of both, while both are on."""
    rival, own = (flow["throughput_on_mbps"] for flow in row["per_flow"])
    return float(2 * own / (own + rival))


def _company_table(results: ArenaResults) -> tuple[list[str], dict[str, list[str]]]:
    parts = results.of("company")
    heads = [f"beside {rival}, {buffer}" for rival, buffer in parts]
    heads += [f"Cubic's throughput, {buffer}" for buffer in BUFFERS] + [
        f"Cubic's p95 delay, {buffer}" for buffer in BUFFERS
    ]

    def of_cubic(label: str, buffer: str, key: str) -> str:
        senders = parts["Cubic", buffer]
        own, cubic = (fmean(row["per_flow"][0][key] for row in senders[who]) for who in (label, "Cubic"))
        return f"{own / cubic:.2f}"

    def away(label: str) -> float:
        return -max(abs(math.log(max(fmean(share(row) for row in senders[label]), 1e-3))) for senders in parts.values())

    return heads, {
        label: [
            *(number_text([share(row) for row in senders[label]], 2) for senders in parts.values()),
            *(of_cubic(label, buffer, "throughput_mbps") for buffer in BUFFERS),
            *(of_cubic(label, buffer, "qdelay_p95_ms") for buffer in BUFFERS),
        ]
        for label in _by(results, away)
    }


def _company_figure(results: ArenaResults) -> Figure:
    rows = [
        {
            "x": f"{rival}, {buffer}",
            "y": label,
            "value": fmean(share(row) for row in own),
        }
        for (rival, buffer), senders in results.of("company").items()
        for label, own in senders.items()
    ]
    caption = (
        f"Share of the sender of the row beside the rival of the column: 1 is fair, 2 everything. {SHARED_MBPS:g} "
        f"Mbit/s, {DELAY_MS:g} ms each way, the rival {APART_S:g} s earlier; buffers of {BUFFERS['shallow']} and "
        f"{BUFFERS['deep']} bandwidth-delay products."
    )
    title = "What a sender has beside another kind"
    return figures.heat(
        rows,
        name="arena-company",
        title=title,
        caption=caption,
        x="beside",
        y="",
        value="share",
        middle=1.0,
        size=(520, 360),
    )


def kept(results: ArenaResults, label: str, part: tuple[str, ...]) -> list[float]:
    """Throughput with losses relative to that without, seed by seed."""
    parts = results.of("loss")
    pairs = zip(parts[part][label], parts[("0",)][label], strict=True)
    return [lossy["goodput_mbps"] / clean["goodput_mbps"] for lossy, clean in pairs]


def _loss_parts(results: ArenaResults) -> list[tuple[str, ...]]:
    return [part for part in results.of("loss") if part != ("0",)]


def _loss_table(results: ArenaResults) -> tuple[list[str], dict[str, list[str]]]:
    parts = _loss_parts(results)
    worst = parts[-1]
    return [f"{100 * float(loss):g} % lost" for (loss,) in parts], {
        label: [number_text(kept(results, label, part), 1, 100.0) for part in parts]
        for label in _by(results, lambda label: fmean(kept(results, label, worst)))
    }


def _loss_figure(results: ArenaResults) -> Figure:
    rows = [
        {"x": f"{100 * float(part[0]):g} %", "y": label, "value": fmean(kept(results, label, part))}
        for part in _loss_parts(results)
        for label in _by(results, lambda label: fmean(kept(results, label, _loss_parts(results)[-1])))
    ]
    caption = (
        f"Goodput where packets are lost by chance over the same sender's without: {SHARED_MBPS:g} Mbit/s, "
        f"{DELAY_MS:g} ms each way, a buffer of one bandwidth-delay product."
    )
    title = "What losses by chance leave"
    return figures.heat(
        rows,
        name="arena-loss",
        title=title,
        caption=caption,
        x="packets lost by chance",
        y="",
        value="of its throughput",
        size=(480, 360),
    )


def _after(results: ArenaResults) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Sender → kind of outage → unused seconds and delay after it, seed by seed."""
    after: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for (kind,), senders in results.of("outage").items():
        for label, rows in senders.items():
            after.setdefault(label, {})[kind] = [results.after_outage(row) for row in rows]
    return after


def _outage_table(results: ArenaResults) -> tuple[list[str], dict[str, list[str]]]:
    after = _after(results)
    heads = [f"{words}: {what}" for words in OUTAGES.values() for what in ("s unused", "p95 ms after")]

    def total(label: str) -> float:
        return -sum(fmean(unused for unused, _ in own) for own in after[label].values())

    return heads, {
        label: [
            text
            for kind in OUTAGES
            for text in (
                number_text([unused for unused, _ in after[label][kind]], 2),
                number_text([delay for _, delay in after[label][kind]], 0),
            )
        ]
        for label in _by(results, total)
    }


def _outage_figure(results: ArenaResults) -> Figure:
    rows = [
        {"panel": title, "group": label, "name": OUTAGES[kind], "y": fmean(values[axis] for values in own)}
        for axis, title in enumerate(("seconds of the link unused", "95th percentile of delay after it, ms"))
        for label, kinds in _after(results).items()
        for kind, own in kinds.items()
    ]
    caption = (
        f"{OUTAGE_MBPS:g} Mbit/s, {DELAY_MS:g} ms each way, nothing moves from {OUTAGE_FROM_S:g} to {OUTAGE_TO_S:g} s. "
        f"Above: what of the {AFTER_S:g} s after that went unused, beyond what usually does. Below: delay from the "
        "second of these on."
    )
    title = "After an outage"
    return figures.bars(rows, name="arena-outage", title=title, caption=caption, x="", y="", columns=1, size=(860, 180))


def late(row: Mapping[str, Any]) -> float:
    """The share of the frames that were late, in percent."""
    frames = VIDEO_FPS * row["duration_s"]
    return float(100 * min(1.0, row["late"] / frames))


#: Frames a second of `traffic = video`.
VIDEO_FPS = 30


def _video_table(results: ArenaResults) -> tuple[list[str], dict[str, list[str]]]:
    parts = results.of("video")
    heads = [f"{channel}: late %, p95 ms" for (channel,) in parts]

    def mean_late(label: str) -> float:
        return -fmean(late(row) for senders in parts.values() for row in senders[label])

    def cell(rows: Sequence[Mapping[str, Any]]) -> str:
        waited = [1000 * value for value in seen(values_of(rows, "completion_p95_s"))]
        return f"{number_text([late(row) for row in rows], 1)}, {fmean(waited):.0f}" if waited else "100.0, –"

    return heads, {label: [cell(senders[label]) for senders in parts.values()] for label in _by(results, mean_late)}


def _video_figure(results: ArenaResults) -> Figure:
    rows = [
        {"group": label, "name": channel, "y": fmean(late(row) for row in own)}
        for (channel,), senders in results.of("video").items()
        for label, own in senders.items()
    ]
    caption = (
        "Frames of a live source of 1.2 Mbit/s (30 a second, key frames ten times as large) that took longer than 250 "
        f"ms, or never came; {QUEUES[BLOATED]}, {DELAY_MS:g} ms each way. Only SCReAM tells the source which bitrate "
        "it can carry."
    )
    title = "Frames of a live source that are late"
    return figures.bars(
        rows, name="arena-video", title=title, caption=caption, x="", y="frames late, %", columns=1, size=(860, 220)
    )


QUESTIONS = (
    Question(
        name="order",
        title="Dominance",
        rule=(
            "A path is a channel and a queue. A sender dominates another on a path where it is not worse on throughput "
            "and 95th percentile of queueing delay, and better on one: the whole 95 % confidence interval of their "
            "ratio, over the same stretches, beyond 1 % of throughput or 5 % of delay. The order: dominated on the "
            "fewest paths, then most often dominates others. There is no score: it would need a price of a millisecond "
            "in Mbit/s."
        ),
        table=_standing_table,
        draw=_dominance_figure,
    ),
    Question(
        name="delay at equal throughput",
        title="Throughput and delay of one flow",
        rule=(
            "One flow alone over each channel. Cells: share of the capacity used in percent, mean over channels and "
            "stretches, at the geometric mean of the 95th percentile of queueing delay in ms. Queues that mark: Cubic, "
            "NewReno and Vegas ask for marks there. In the order of dominance."
        ),
        table=_delay_table,
        draw=_alone_figure,
    ),
    Question(
        name="fairness",
        title="Fairness among flows of one sender",
        rule=(
            "2 and 10 flows with one round trip, staggered. Cells: Jain's index in windows of a second, and the 95th "
            "percentile of queueing delay in ms. By the least index of the row."
        ),
        table=_fair_table,
        draw=_fair_figure,
    ),
    Question(
        name="company",
        title="Beside Cubic or BBR",
        rule=(
            "One flow beside one of Cubic or BBR v1, which began earlier. Cells: its share (1 is fair, 2 everything); "
            "then Cubic's throughput and 95th percentile of delay over what it has beside another Cubic: 1 is no harm. "
            "By the share that is farthest from 1."
        ),
        table=_company_table,
        draw=_company_figure,
    ),
    Question(
        name="loss",
        title="Random loss",
        rule=("Cells: goodput in percent of the same sender's without loss. By the last column."),
        table=_loss_table,
        draw=_loss_figure,
    ),
    Question(
        name="outage",
        title="After an outage",
        rule=(
            "Nothing moves for 2 s: packets wait before the link, or are lost. Cells: seconds of the link that went "
            "unused in the 10 s after it, beyond what this sender usually leaves, and the 95th percentile of delay in "
            "them. By the seconds of both."
        ),
        table=_outage_table,
        draw=_outage_figure,
    ),
    Question(
        name="video",
        title="Late video frames",
        rule=(
            "Frames of a live source of 1.2 Mbit/s over channels that may carry less for a while. Cells: frames that "
            "took longer than 250 ms or never came, in percent, and the 95th percentile of those that came, in ms. By "
            "the mean share of late ones."
        ),
        table=_video_table,
        draw=_video_figure,
    ),
)
