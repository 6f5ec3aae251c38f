"""The common form of every reproduced figure and table of the papers.

A module defines a `Reproduction`, which becomes an `Experiment`: `runs` returns scenarios, as data;
`measure` a value for each claim of `claims.csv`; `draw` figures, and `tables` tables where the
source has one. Everything runs on built-in channels, which are the same on every machine, and also
on the recordings that the module names if the machine has them. Only saved results are measured and
drawn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from rich.console import RenderableType

from verus import _verus
from verus.lab.interval import half_width
from verus.lab.results import Results
from verus.lab.runner import Outcome, Progress, run_all
from verus.lab.scenario import PAPER_QUEUE, Contestant, Run, make_run
from verus.lab.schema import Scenario
from verus.papers import claims
from verus.papers.claim_tables import claims_html, claims_table
from verus.papers.claims import BUILT_IN, RECORDINGS, Judged
from verus.papers.experiment import Experiment, Options, Work, in_mode
from verus.papers.recordings import MissingRecordings, find_recordings, is_named
from verus.report.figures import Figure
from verus.report.grid import Grid, note, paragraphs
from verus.report.page import Page, Section
from verus.report.summary import Block, blocks_of, mean

Array = npt.NDArray[np.float64]

#: Key of the values that `keep` made from packets, among the computed values of each column.
_KEPT = "packets"

SIGCOMM = (
    "Y. Zaki, T. Pötsch, J. Chen, L. Subramanian and C. Görg, Adaptive Congestion Control for Unpredictable "
    "Cellular Networks, ACM SIGCOMM 2015"
)
MODEL_PAPER = (
    "T. Pötsch, Y. Zaki, J. Chen and L. Subramanian, Model-driven Delay-based Congestion Control for Cellular "
    "Networks, 2016"
)


@dataclass(frozen=True)
class Place:
    """A channel of an experiment.

    Attributes:
        built_in: The built-in channel, as `--trace` takes it.
        recording: Name of the recording used instead where there are recordings, with or without a stretch;
            empty if there is none.
    """

    built_in: str
    recording: str = ""


@cache
def _contestant(scheme: str) -> Contestant:
    """One flow of the scheme, cached: thousands of runs use it, and it may read a model's file."""
    return Contestant.from_scheme(scheme)


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """One set of channels, and the user's options of its runs.

    Attributes:
        name: `BUILT_IN` or `RECORDINGS`.
        channels: For each place of the experiment, the channel as results name it.
        paths: For each place, the channel as the simulator takes it.
        seed: The first seed.
        repeat: Runs of each cell; None for the experiment's own number.
        mode: Mode of Verus for schemes that do not name one, or a setting in place of its default; neither if
            empty.
    """

    name: str
    channels: Mapping[str, str]
    paths: Mapping[str, str]
    seed: int
    repeat: int | None
    mode: str = ""

    @property
    def key(self) -> str:
        """Identifier among the columns of an experiment."""
        return f"{self.name}, {self.mode}" if self.mode else self.name

    def in_mode(self, scheme: str) -> str:
        """The scheme as this column runs it.

        A scheme stays unchanged if it names a mode, or has a setting that the mode does not take.
        """
        if not self.mode or (parsed := _contestant(scheme)).scheme != "verus" or "mode" in parsed.params:
            return scheme
        text = in_mode(scheme, self.mode)
        try:
            _verus.check_scheme(text)
        except ValueError:
            return scheme
        return text

    def seeds(self, count: int) -> range:
        """The seeds of `count` repetitions, or of as many as the user wished."""
        return range(self.seed, self.seed + (self.repeat or count))

    def run(
        self,
        place: str,
        scheme: str,
        *,
        flows: int | Sequence[Mapping[str, Any]] = 1,
        label: str = "",
        part: str = "",
        seed: int | None = None,
        queue: str = PAPER_QUEUE,
        duration_s: float,
        **fields: Any,
    ) -> Run:
        """One simulation.

        Args:
            place: A place of the experiment, or ``rate:MBPS``.
            scheme: The scheme.
            flows: How many flows run it; or each flow as the simulator takes it (`start_s`, `stop_s`, `delay_ms`,
                `bytes`, `traffic`), whose own `scheme`, if it has one, replaces `scheme`.
            label: For tables and figures; the scheme's own if empty.
            part: Identifier among the runs of the same place, scheme and seed.
            seed: Seed of its random draws; the first one if None.
            queue: The bottleneck queue.
            duration_s: Simulated seconds.
            fields: Other fields of the simulator's scenario: `packet_bytes`, `ack`, `changes`, `series` …
        """
        count = flows if isinstance(flows, int) else len(flows)
        label = label or _contestant(scheme).label
        scheme = self.in_mode(scheme)
        contestant = dataclasses.replace(_contestant(scheme), label=label, flows=(scheme,) * count)
        made = make_run(
            trace=self.channels.get(place, place),
            path=self.paths.get(place),
            queue=queue,
            contestant=contestant,
            seed=self.seed if seed is None else seed,
            duration_s=duration_s,
            part=f"{self.key}|{place}|{part}",
        )
        scenario = {**made.scenario, **fields}
        if not isinstance(flows, int):
            scenario["flows"] = [
                {"start_s": 0.0, **flow, "scheme": self.in_mode(flow.get("scheme", scheme))} for flow in flows
            ]
        return dataclasses.replace(made, scenario=cast("Scenario", scenario))


@dataclass(frozen=True, kw_only=True)
class Series:
    """One run over time: a row for each flow, a column for each bin; not-a-number where nothing was seen."""

    time_s: Array
    capacity_mbps: Array
    throughput_mbps: Array
    qdelay_ms: Array


@dataclass(frozen=True, kw_only=True)
class ColumnResults:
    """Results of the runs of one column.

    Attributes:
        column: `BUILT_IN` or `RECORDINGS`.
        mode: Mode of Verus, as in `Column`.
        key: The column's `key`.
        results: Everything that was saved, of both columns.
        rows: A row for each run of this column, with the `place` and `part` it was asked under.
    """

    column: str
    mode: str
    key: str
    results: Results
    rows: Sequence[Mapping[str, Any]]

    def where(self, **wanted: Any) -> ColumnResults:
        """The rows with these values: ``column.where(place="LTE", label="Cubic")``."""
        rows = [row for row in self.rows if all(row[key] == value for key, value in wanted.items())]
        return dataclasses.replace(self, rows=rows)

    def values(self, key: str) -> list[float]:
        """The metric `key` of each row where it was observed."""
        return [row[key] for row in self.rows if row[key] is not None]

    def mean(self, key: str) -> float:
        """Its mean over the rows.

        Raises:
            ValueError: The metric was observed in no row.
        """
        average = mean(self.values(key))
        if average is None:
            raise ValueError(f"{key}: nothing was observed")
        return average

    def flows(self, key: str) -> list[float]:
        """The metric `key` of every flow of every row, where it was observed."""
        return [flow[key] for row in self.rows for flow in row["per_flow"] if flow[key] is not None]

    def points(self, panel: Callable[[Mapping[str, Any]], str]) -> list[dict[str, Any]]:
        """A point for each flow: delay across, throughput upwards, in the panel that `panel` names for its row."""
        return [
            {
                "panel": panel(row),
                "name": row["label"],
                "x": flow["qdelay_mean_ms"],
                "y": flow["throughput_mbps"],
            }
            for row in self.rows
            for flow in row["per_flow"]
        ]

    def blocks(self) -> list[Block]:
        """A block for each channel and queue, as comparisons have them; runs that differ in their seed are averaged."""
        return blocks_of(self.rows)

    def labels(self) -> list[str]:
        """Labels of the schemes that ran, in the order of the runs."""
        return list(dict.fromkeys(row["label"] for row in self.rows))

    def seeds_text(self) -> str:
        """Their seeds, for a caption: ``seed 1`` or ``seeds 1 to 5``."""
        seeds = sorted({row["seed"] for row in self.rows})
        return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"

    def places(self) -> list[str]:
        """Where, in the order of the runs."""
        return list(dict.fromkeys(row["place"] for row in self.rows))

    @property
    def measured(self) -> Any:
        """Values that the experiment computed on this column without simulating."""
        return self.results.config["measured"][self.key]

    def kept(self, row: Mapping[str, Any]) -> Any:
        """Values that `keep` made from one run's packets."""
        return self.results.config["measured"][_KEPT][row["run"]]

    @cached_property
    def _bounds(self) -> Array:
        runs: Array = self.results.series.column("run").to_numpy()
        return runs

    def series(self, row: Mapping[str, Any]) -> Series:
        """The time series of one run."""
        low, high = np.searchsorted(self._bounds, [row["run"], row["run"] + 1])
        part = self.results.series.slice(int(low), int(high - low))
        flow = part.column("flow").to_numpy()
        count = int(flow.max()) + 1 if len(flow) else 0

        def shaped(name: str) -> Array:
            values: Array = part.column(name).to_numpy(zero_copy_only=False).astype(float)
            return values.reshape(count, -1)

        return Series(
            time_s=shaped("time_s")[0],
            capacity_mbps=shaped("capacity_mbps")[0],
            throughput_mbps=shaped("throughput_mbps"),
            qdelay_ms=shaped("qdelay_ms"),
        )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half the width of its 95 % confidence interval (Student's t); no width for a single value.

    Example:
        >>> [round(x, 2) for x in interval([1.0, 2.0, 3.0])]
        [2.0, 2.48]
    """
    margin = half_width(values)
    return float(np.mean(values)), float("nan") if margin is None else margin


def with_interval(values: Sequence[float], digits: int) -> str:
    """Mean and interval for a table; the mean alone for a single value.

    Example:
        >>> with_interval([1.0, 2.0, 3.0], 1), with_interval([2.0], 1)
        ('2.0 ± 2.5', '2.0')
    """
    middle, half = interval(values)
    return f"{middle:.{digits}f}" if np.isnan(half) else f"{middle:.{digits}f} ± {half:.{digits}f}"


#: Numbers as the source tabulates them.
Table = Grid


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A figure or a table of a paper: its runs, measured values and drawings.

    Attributes:
        name: As in `verus reproduce NAME` and `claims.csv`.
        title: Number and subject: ``Fig. 9: R trades throughput for delay``.
        source: The citation.
        shows: The source's result, in our words.
        set_up: The runs, and choices that the source leaves open, in a few sentences.
        channels: Its places by name; empty if it needs no channel but constant rates.
        measure: From the runs of a column to a value for each claim; None where nothing was observed.
        draw: From the same to figures, which look like the original.
        runs: The simulations, as data.
        compute: Computes plain values without simulating.
        keep: For runs with `records`: reduces a run's packets to the plain values saved in place of them.
        tables: Numbers beside the figures.
        sentences: Sentences about the figures, made from their numbers.
        saved: Converts a run as simulated to the run that results record, where these differ.
    """

    name: str
    title: str
    source: str
    shows: str
    set_up: str
    channels: Mapping[str, Place]
    measure: Callable[[ColumnResults], Mapping[str, float | None]]
    draw: Callable[[ColumnResults], Sequence[Figure]]
    runs: Callable[[Column], Sequence[Run]] = lambda _: ()
    compute: Callable[[Column], Any] = lambda _: None
    keep: Callable[[Outcome], Any] | None = None
    tables: Callable[[ColumnResults], Sequence[Table]] = lambda _: ()
    sentences: Callable[[ColumnResults], Sequence[str]] = lambda _: ()
    saved: Callable[[Run], Run] = lambda run: run

    def experiment(self) -> Experiment:
        """The experiment for `verus reproduce`."""
        return Experiment(
            name=self.name,
            title=self.title,
            source=self.source,
            prepare=self._prepare,
            judged=self._judged,
            page=self._page,
            summary=self._summary,
        )

    def _prepare(self, options: Options) -> Work:
        columns, missing = columns_for(self.name, self.channels, options)

        def work(progress: Progress | None) -> Results:
            plans = self._plans(columns, options.modes)
            planned = [run for plan in plans.values() for run in plan]
            computed: dict[str, Any] = {column.key: self.compute(column) for column in plans}
            settings = {
                "experiment": self.name,
                "seed": options.seed,
                "repeat": options.repeat,
                "columns": {column.key: dict(column.channels) for column in plans},
                "modes": {column.key: [column.name, column.mode] for column in plans if column.mode},
                "missing": missing,
            }
            outcomes = _run(planned, progress)
            if self.keep is not None:
                computed[_KEPT] = [self.keep(outcome) for outcome in outcomes]
                outcomes = [{**outcome, "records": None} for outcome in outcomes]
            named = [self.saved(run) for run in planned]
            return Results.collect(named, outcomes, kind=self.name, settings=settings, measured=computed)

        return work

    def _plans(self, columns: Sequence[Column], modes: Sequence[str]) -> dict[Column, list[Run]]:
        """The runs of each column, and of those in which claims are checked again for each mode of Verus."""
        checked = {claim.channels for claim in claims.of(self.name)}
        again = [
            dataclasses.replace(column, mode=mode) for mode in modes for column in columns if column.name in checked
        ]
        plans = {column: list(self.runs(column)) for column in (*columns, *again)}
        default = {run.to_json() for column in columns for run in plans[column]}
        # Where no flow of Verus runs in its default mode, its modes say nothing: all runs are the same.
        says_nothing = {
            column for column in again if plans[column] and not {run.to_json() for run in plans[column]} - default
        }
        return {column: plan for column, plan in plans.items() if column not in says_nothing}

    def _judged(self, results: Results) -> list[Judged]:
        measured: dict[str, dict[str, Mapping[str, float | None]]] = {"": {}}
        for column in _everything(results):
            measured.setdefault(column.mode, {})[column.column] = self.measure(column)
        return claims.judge(self.name, measured.pop(""), measured)

    def _summary(self, results: Results) -> Sequence[RenderableType]:
        parts: list[RenderableType] = [claims_table(self.title, self._judged(results))]
        for column in _columns(results):
            parts += [one.terminal(title=f"{one.title} ({column.column})") for one in self.tables(column)]
            parts += self.sentences(column)
        if missing := results.config["settings"]["missing"]:
            parts.append(f"{missing}\n")
        return parts

    def _page(self, results: Results) -> Page:
        columns = _columns(results)
        body = paragraphs([self.shows, self.set_up])
        if missing := results.config["settings"]["missing"]:
            body += note(missing)
        sections = [
            Section(title="What the source shows, and what we run", body=body),
            *(self._section(one, alone=len(columns) == 1) for one in columns),
            Section(title="Claims", body=claims_html(self._judged(results))),
        ]
        return Page(title=f"Verus: {self.title}", lead=f"Source: {self.source}.", sections=sections)

    def _section(self, column: ColumnResults, *, alone: bool) -> Section:
        """The section of one column."""
        figures = [
            figure if column.column == BUILT_IN else dataclasses.replace(figure, name=f"{figure.name}-recordings")
            for figure in self.draw(column)
        ]
        title = "Results" if alone else {BUILT_IN: "On built-in channels", RECORDINGS: "On recordings"}[column.column]
        after = Markup("").join(one.html() for one in self.tables(column))
        return Section(title=title, body=paragraphs(self.sentences(column)), figures=figures, after=after)


def _everything(results: Results) -> list[ColumnResults]:
    """Results of each column, including those of other modes."""
    settings = results.config["settings"]
    rows: dict[str, list[Mapping[str, Any]]] = {key: [] for key in settings["columns"]}
    for row in results.rows.to_pylist():
        key, place, part = row["part"].split("|", 2)
        rows[key].append({**row, "place": place, "part": part})
    modes = settings.get("modes", {})
    columns = {key: modes.get(key, (key, "")) for key in rows}
    return [
        ColumnResults(column=column, mode=mode, key=key, results=results, rows=rows[key])
        for key, (column, mode) in columns.items()
    ]


def _columns(results: Results) -> list[ColumnResults]:
    """Results of each column with Verus in its default mode."""
    return [column for column in _everything(results) if not column.mode]


def columns_for(name: str, channels: Mapping[str, Place], options: Options) -> tuple[list[Column], str]:
    """Sets of channels that this machine can run, and why recordings are not among them.

    Recordings are among them if all that are named are on this machine. The reason is empty if
    they are, or if no recording is named.

    Raises:
        MissingRecordings: They are not, and no claim of the experiment can be checked without; or it has none, and a
            folder is named that should have them.
        FieldError: The folder to look in is none.
    """
    common = {"seed": options.seed, "repeat": options.repeat}
    built_in = {place: one.built_in for place, one in channels.items()}
    columns = [Column(name=BUILT_IN, channels=built_in, paths=built_in, **common)]  # type: ignore[arg-type]
    recorded = {place: one.recording for place, one in channels.items() if one.recording}
    if not recorded:
        return columns, ""
    if options.built_in:
        return columns, "Recordings were left out, as asked."
    try:
        paths = find_recordings(list(recorded.values()), options.traces)
    except MissingRecordings as error:
        experiment_claims = claims.of(name)
        # Without a claim to check, an experiment does without recordings unless somebody said where they are.
        needed = (
            all(claim.channels == RECORDINGS for claim in experiment_claims)
            if experiment_claims
            else is_named(options.traces)
        )
        if needed and not options.lenient:
            raise
        return columns, f"Built-in channels only: {error.problem}."
    names = {**built_in, **recorded}
    where = {place: paths.get(text, text) for place, text in names.items()}
    columns.append(Column(name=RECORDINGS, channels=names, paths=where, **common))  # type: ignore[arg-type]
    return columns, ""


#: Outcomes of runs without series and records, which are small, by scenario.
_DONE: dict[str, Outcome] = {}


def _run(planned: Sequence[Run], progress: Progress | None) -> list[Outcome]:
    """Runs simulations that no experiment of this process ran before: figures share baselines."""
    texts = [run.to_json() for run in planned]
    pending = {text: run for text, run in zip(texts, planned, strict=True) if text not in _DONE}
    simulated = dict(zip(pending, run_all(list(pending.values()), progress=progress), strict=True)) if pending else {}
    outcomes = [simulated[text] if text in simulated else _DONE[text] for text in texts]
    small = {
        text: simulated[text]
        for text, run in pending.items()
        if not (run.scenario.get("series", True) or run.scenario["records"])
    }
    _DONE.update(small)
    return outcomes
