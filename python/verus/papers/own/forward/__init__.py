"""What `forward` does, and what was wanted of it: recordings, crowds, buffers, company, paths, sources that run dry.

Each row of a table is some runs and what was wanted of them; a group's means stand for its rows. Constants were chosen
on one half of the recordings, and are judged by the other. Recordings that are not on this machine are left out with
the rows that need them. Other senders named by `--scheme` answer the same questions.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from markupsafe import Markup
from rich.console import RenderableType

from verus.lab.results import Results
from verus.lab.runner import Progress, run_all
from verus.papers.claims import BUILT_IN
from verus.papers.experiment import Experiment, Options, Work
from verus.papers.own.forward.field import OVER_CUBIC, P99_OVER_CUBIC, UPLOADS, Field, Row, named, seen
from verus.papers.recordings import MissingRecordings, find_recordings, is_named
from verus.papers.reproduction import Column
from verus.papers.target import Check, table, verdict
from verus.report.grid import Grid, paragraphs, to_csv
from verus.report.page import Page, Section
from verus.report.wanted import Wanted

NAME = "forward"
TITLE = "forward: what it does, and what was wanted of it"

#: Rows are simulated so many runs at a time: the time series of all do not fit memory.
_BATCH = 64


def _recordings(options: Options) -> tuple[dict[str, str], str]:
    """The files of those that are on this machine, and which are not, in a sentence."""
    if options.built_in:
        return {}, "Recordings were left out, as asked."
    files: dict[str, str] = {}
    absent: list[MissingRecordings] = []
    for name in dict.fromkeys(named()):
        try:
            files |= find_recordings([name], options.traces)
        except MissingRecordings as error:
            absent.append(error)
    if absent and not files and is_named(options.traces) and not options.lenient:
        raise absent[0]
    return files, f"{len(absent)} recordings are left out: {absent[0].problem}." if absent else ""


def prepare(options: Options) -> Work:
    """Looks for the recordings; rows on those that are not there are left out."""
    files, missing = _recordings(options)
    column = Column(name=BUILT_IN, channels={}, paths={}, seed=options.seed, repeat=options.repeat)
    senders = (NAME, *options.schemes)

    def work(progress: Progress | None) -> Results:
        with tempfile.TemporaryDirectory() as folder:
            fields = {
                scheme: Field(scheme=scheme, column=column, files=files, folder=Path(folder), short=options.short)
                for scheme in senders
            }
            rows = [(scheme, row) for scheme, field in fields.items() for row in field.rows()]
            measured = list(_measured(rows, progress))
        settings = {
            "experiment": NAME,
            "seed": options.seed,
            "repeat": options.repeat,
            "schemes": list(options.schemes),
            "short": options.short,
            "missing": missing,
        }
        return Results.collect([], [], kind=NAME, settings=settings, measured=measured)

    return work


def _measured(rows: Sequence[tuple[str, Row]], progress: Progress | None) -> Iterator[dict[str, Any]]:
    """Simulates rows batch by batch, and yields the values read from each row's runs."""
    total, done = sum(len(row.runs) for _, row in rows), 0
    while rows:
        count = 1
        while count < len(rows) and sum(len(row.runs) for _, row in rows[: count + 1]) <= _BATCH:
            count += 1
        batch, rows = rows[:count], rows[count:]
        outcomes = iter(run_all([run for _, row in batch for run in row.runs]))
        for scheme, row in batch:
            values = row.read([seen(run, next(outcomes)) for run in row.runs])
            done += len(row.runs)
            if progress is not None:
                progress(done, total, done / total)
            yield {
                "sender": scheme,
                "group": row.group,
                "row": row.name,
                "values": {name: None if math.isnan(value) else value for name, value in values.items()},
                "wanted": {name: list(bounds) for name, bounds in row.bounds.items()},
            }


# --- results --------------------------------------------------------------------------------------


def _kept(row: Mapping[str, Any]) -> dict[str, bool]:
    """For each value with bounds, whether it is within them."""
    return {name: Wanted(*bounds).holds(row["values"][name]) for name, bounds in row["wanted"].items()}


def _holds(row: Mapping[str, Any]) -> bool:
    return all(_kept(row).values())


class SenderResults:
    """The rows of one sender, by group."""

    def __init__(self, rows: Iterable[Mapping[str, Any]], sender: str) -> None:
        self.groups: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            if row["sender"] == sender:
                self.groups.setdefault(row["group"], []).append(row)

    def rows(self, *begin: str) -> list[Mapping[str, Any]]:
        """Those of the groups whose names begin so."""
        return [row for group, rows in self.groups.items() if group.startswith(begin) for row in rows]

    def mean(self, value: str, *begin: str) -> float:
        """Of a value over them; not a number where there is none."""
        values = [row["values"][value] for row in self.rows(*begin) if row["values"].get(value) is not None]
        return fmean(values) if values else math.nan

    def held(self, *begin: str) -> int:
        """How many hold."""
        return sum(map(_holds, self.rows(*begin)))

    def one(self, group: str, row: str, value: str) -> float:
        """A single value."""
        values = [each["values"][value] for each in self.groups.get(group, ()) if each["row"] == row]
        return float(values[0]) if values else math.nan


def _senders(results: Results) -> list[str]:
    return list(dict.fromkeys(row["sender"] for row in results.config["measured"]))


def checks(results: Results) -> list[Check]:
    """Targets of `forward` as a whole, except those that its page retires and those without a run."""
    if results.config["settings"]["short"]:
        return []
    sender_results = SenderResults(results.config["measured"], NAME)
    alone = sender_results.rows("judged", "tuned")
    targets = [
        Check(
            name="judged recordings, used", value=sender_results.mean("used %", "judged"), wanted=Wanted(94.3), unit="%"
        ),
        Check(
            name="recordings on which an earlier Verus is better in both",
            value=sum(row["values"]["an earlier Verus is better"] for row in alone) if alone else math.nan,
            wanted=Wanted(most=0),
        ),
    ]
    targets += [
        Check(
            name=f"{flows} flows, Jain's index in windows of 1 s",
            value=sender_results.mean("Jain, 1 s", f"{flows} flows"),
            wanted=Wanted(jain),
        )
        for flows, jain in ((2, 0.97), (5, 0.96), (10, 0.93), (20, 0.86))
    ]
    crowds = [
        row["values"]["Jain, 1 s"] for row in sender_results.rows(*(f"{flows} flows" for flows in (2, 5, 10, 20)))
    ]
    targets += [
        Check(
            name="20 flows, queueing delay",
            value=sender_results.mean("delay ms", "20 flows"),
            wanted=Wanted(most=140),
            unit="ms",
        ),
        Check(name="the least Jain's index of a row", value=min(crowds, default=math.nan), wanted=Wanted(0.8)),
        Check(
            name="rows beside other senders that hold, of 40",
            value=float(sender_results.held("beside")),
            wanted=Wanted(27),
        ),
        Check(
            name="acknowledgements behind others' uploads, used",
            value=sender_results.one("ways of a path", UPLOADS, "used %"),
            wanted=Wanted(95),
            unit="%",
        ),
    ]
    return [check for check in targets if check.value is not None and not math.isnan(check.value)]


# --- shown ---------------------------------------------------------------------------------------


def _number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}g}"


def _groups(sender_results: SenderResults) -> Grid:
    rows = [
        [
            group,
            f"{sum(map(_holds, own))} of {len(own)}",
            ", ".join(f"{name} {_number(sender_results.mean(name, group))}" for name in own[-1]["values"]),
        ]
        for group, own in sender_results.groups.items()
    ]
    return Grid(heads=["scenario", "rows that hold", "means"], rows=rows)


def _rows(group: str, own: Sequence[Mapping[str, Any]]) -> Grid:
    """Every row of a group; missed targets are marked."""
    names = list(dict.fromkeys(name for row in own for name in row["values"]))
    lines = []
    for row in own:
        kept = _kept(row)
        cells = [_number(row["values"].get(name)) + ("" if kept.get(name, True) else " !") for name in names]
        lines.append([row["row"], "holds" if _holds(row) else "missed", *cells])
    return Grid(heads=["", "", *names], rows=lines, title=group)


def _several(results: Results) -> Grid:
    """Senders beside each other, or parts that were left out."""
    lines = []
    for sender in _senders(results):
        measured = SenderResults(results.config["measured"], sender)
        crowds = [f"{flows} flows" for flows in (5, 10, 20)]
        name = sender.removeprefix(f"{NAME}:without=")
        lines.append(
            [
                name,
                f"{_number(measured.mean('used %', 'tuned'))} % at {measured.mean('p95 ms', 'tuned'):.0f} ms",
                ", ".join(f"{measured.mean('Jain, 1 s', crowd):.2f}" for crowd in crowds),
                ", ".join(f"{measured.mean('× alone', crowd):.1f}" for crowd in crowds),
                f"{measured.mean('Jain', 'round trips'):.2f}",
                f"{measured.held('buffers')}, {measured.mean('lost %', 'buffers'):.1f} %",
                f"{measured.held('beside')}",
                f"{measured.held('round trip ', 'outages', 'losses', 'ways')}",
            ]
        )
    heads = [
        "sender, or without",
        "recordings: used at p95",
        "Jain 5, 10, 20",
        "× alone",
        "round trips mixed",
        "buffers",
        "company",
        "paths",
    ]
    return Grid(heads=heads, rows=lines)


def expected(sender_results: SenderResults) -> Grid:
    """The page's table of results to expect."""
    mean = sender_results.mean
    crowds = [f"{flows} flows" for flows in (2, 5, 10, 20)]
    mixed = [sender_results.one("round trips of 20 to 200 ms", f"{mbps} Mbit/s", "Jain") for mbps in (5, 20, 50, 100)]
    rivals = [group for group in sender_results.groups if group.startswith("beside")]
    wifi = [sender_results.one("jitter", f"Wi-Fi, bad, {mbps} Mbit/s", "used %") for mbps in (10, 50)]

    def alone(group: str) -> str:
        used, p95 = mean("used %", group), mean("p95 ms", group)
        return f"{used:.1f} % of the link, 95th percentile of queueing delay {p95:.0f} ms"

    def buffers(flows: str) -> str:
        group = f"buffers, {flows}"
        return f"{mean('used %', group):.1f} % used, {mean('lost %', group):.1f} % lost"

    rows = [
        [f"one flow, {len(sender_results.rows('judged'))} judged recordings", alone("judged")],
        [f"one flow, {len(sender_results.rows('tuned'))} tuned recordings", alone("tuned")],
        [f"one flow, {len(sender_results.rows('built-in'))} built-in channels", alone("built-in")],
        [
            "2, 5, 10, 20 flows: Jain's index in windows of 1 s",
            ", ".join(f"{mean('Jain, 1 s', crowd):.3f}" for crowd in crowds),
        ],
        ["… mean queueing delay, ms", ", ".join(f"{mean('delay ms', crowd):.0f}" for crowd in crowds)],
        [
            "flows with round trips of 20 to 200 ms, on 5, 20, 50, 100 Mbit/s: Jain's index",
            ", ".join(f"{jain:.3f}" for jain in mixed),
        ],
        ["one flow in buffers of 0.25 to 4 bandwidth-delay products", buffers("1 flow")],
        ["four flows in the same buffers", buffers("4 flows")],
        [
            "queues that mark (CoDel, FQ-CoDel, PIE), one flow",
            f"{mean('used %', 'queues that mark, 1 flow'):.1f} % used, "
            f"{mean('lost %', 'queues that mark, 1 flow'):.1f} % lost",
        ],
        [
            f"beside {', '.join(rival.removeprefix('beside ') for rival in rivals)}: share of a fair share",
            ", ".join(f"{mean('share', rival):.2f}" for rival in rivals),
        ],
        ["random loss of 0.1 to 3 %", f"{mean('used %', 'losses'):.1f} % used"],
        [
            "acknowledgements behind other people's uploads",
            f"{sender_results.one('ways of a path', UPLOADS, 'used %'):.1f} % used",
        ],
        ["bad Wi-Fi, 10 and 50 Mbit/s", f"{wifi[0]:.0f} and {wifi[1]:.0f} % used"],
        [
            "files alone; beside a bulk flow: time over Cubic's",
            "; ".join(f"{mean(OVER_CUBIC, group):.2f}" for group in ("files alone", "files beside")),
        ],
        [
            "video beside a bulk flow: 99th percentile of delay over that beside Cubic",
            f"{mean(P99_OVER_CUBIC, 'video beside'):.2f}",
        ],
    ]
    return Grid(heads=["scenario", "result"], rows=rows)


def _missing(results: Results) -> list[str]:
    missing = results.config["settings"]["missing"]
    return [missing] if missing else []


def summary(results: Results) -> Sequence[RenderableType]:
    """For a terminal."""
    by_sender = {sender: SenderResults(results.config["measured"], sender) for sender in _senders(results)}
    shown = [_groups(own).terminal(title=sender) for sender, own in by_sender.items()]
    if len(by_sender) > 1:
        shown.append(_several(results).terminal())
    targets = checks(results)
    return [*_missing(results), *shown, *(["\n".join(verdict(targets))] if targets else [])]


def page(results: Results) -> Page:
    """For a browser: every row."""
    asked, sections = checks(results), []
    if asked:
        sections.append(Section(title="In short", body=paragraphs(verdict(asked)) + table(asked, "what")))
    if len(_senders(results)) > 1:
        sections.append(Section(title="Beside each other", body=_several(results).html()))
    for sender in _senders(results):
        groups = SenderResults(results.config["measured"], sender).groups.items()
        body = Markup("").join(_rows(group, own).html() for group, own in groups)
        sections.append(Section(title=sender, body=body))
    lead = "\n".join([__doc__ or "", *_missing(results)])
    return Page(title=TITLE, lead=lead.rstrip(), sections=sections)


def files(results: Results) -> dict[str, str]:
    """Every value for a program, and a document's tables."""
    lines = [
        [row["sender"], row["group"], row["row"], name, _number(value, 6), *_asked(row, name)]
        for row in results.config["measured"]
        for name, value in row["values"].items()
    ]
    senders = _senders(results)
    document = (
        _several(results) if len(senders) > 1 else expected(SenderResults(results.config["measured"], senders[0]))
    )
    heads = ["sender", "group", "row", "value", "found", "least", "most", "verdict"]
    return {"forward.csv": to_csv([heads, *lines]), "forward.md": "\n".join([*document.markdown(), ""])}


def _asked(row: Mapping[str, Any], name: str) -> list[str]:
    if name not in row["wanted"]:
        return ["", "", ""]
    bounds = ["" if bound is None else f"{bound:g}" for bound in row["wanted"][name]]
    return [*bounds, "met" if _kept(row)[name] else "missed"]


EXPERIMENT = Experiment(
    name=NAME,
    source="none: our own sender",
    title="What forward does, and what was wanted of it",
    prepare=prepare,
    checks=checks,
    page=page,
    summary=summary,
    files=files,
    short=True,
    takes_schemes=True,
)
