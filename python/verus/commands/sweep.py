"""`verus sweep`: a study from a file, on one machine, in shards, or on a cluster."""

from __future__ import annotations

import functools
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from verus.commands.options import COUNT, Flag, Json, one
from verus.commands.tables import middle_out, table_console
from verus.commands.talk import Talk, tell, tell_rows
from verus.controller import unloaded
from verus.errors import FieldError
from verus.lab import store
from verus.lab.arguments import at_least
from verus.lab.inputs import cut_warnings
from verus.lab.nothing_arrived import arrived
from verus.lab.runner import Ended, Progress, RunError, as_ended, sort_out
from verus.lab.scenario import Run, late_changes, warning
from verus.lab.store import Keys, complete, kept
from verus.lab.study import Study, read
from verus.lab.sweep import IDENTITY, Folder, Plan, cells, merge
from verus.report.numbers import number, percent
from verus.report.printable import line

app = App(name="sweep")

#: Cells of a study that are shown as a table; more are for programs.
_MOST_SHOWN = 100

#: Metrics in such a table: the head and the format of each.
_SHOWN = {
    "throughput_mbps": ("Mbit/s", functools.partial(number, digits=2)),
    "utilization": ("used\n%", percent),
    "qdelay_mean_ms": ("mean\nms", number),
    "qdelay_p95_ms": ("p95\nms", number),
    "loss_rate": ("loss\n%", percent),
    "power": ("power", functools.partial(number, digits=3)),
}

#: Further metrics in it where several flows share a link.
_OF_FLOWS = {
    "flow_min_mbps": ("least\nflow", functools.partial(number, digits=2)),
    "flow_max_mbps": ("most\nflow", functools.partial(number, digits=2)),
}


@app.default
def sweep(
    study: Annotated[Path, Parameter(name="STUDY")],
    /,
    *,
    out: Annotated[Path | None, one("DIR")] = None,
    shard: Annotated[str | None, one("K/N")] = None,
    jobs: Annotated[int | None, COUNT] = None,
    cluster: Annotated[str | None, one("WORKERS")] = None,
    report: Flag = False,
    partial: Flag = False,
    json_: Json = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> int:
    """Run a study: a file that varies any parameters over channels, queues and seeds.

    Each run is saved as it ends, and the same command, given again, does only the missing ones. The dataset is written
    once all runs are done.

    Parameters
    ----------
    study
        The TOML file of the study (docs/studies.md).
    out
        Folder of the study. Default: `verus-results/NAME`.
    shard
        `K/N`: only the K-th of N equal shares of the runs, to divide a study among machines without a scheduler.
    jobs
        Cores to use. Default: all of them.
    cluster
        Run on Dask workers: `tcp://HOST:PORT` of a scheduler, or `local:N` for N processes of this machine.
    report
        Draw the report of the runs done so far, `report.html`, as `verus report` does.
    partial
        Where runs fail for good, such as those of a controller of your own, write the dataset without them, too. It
        names them, and the exit code is still 1.
    json_
        Print one JSON object a line for each configuration of the finished study: means over seeds with 95 % confidence
        intervals, and by how much each sender is above the first one, seed by seed.
    """
    if jobs is not None:
        at_least("jobs", jobs, 1, 1000)
        if cluster is not None:
            raise FieldError("jobs", "is for this machine; a cluster has as many as its workers")
    share = _shard(shard)
    if partial and share[1] > 1:
        raise FieldError("partial", "is for a whole study: a shard (--shard) writes no dataset")
    made = Keys(store.engine())
    folder, plan = _planned(read(study), out, made)
    folder.begin(plan)
    scenarios = [planned.run.scenario for planned in plan.runs]
    paths = [sentence for check in (warning, late_changes) for sentence in map(check, scenarios) if sentence]
    for problem in [*cut_warnings(scenarios), *dict.fromkeys(paths)]:
        talk.say(f"Warning: {problem}")
    shard_runs = [*plan.distinct().items()][share[0] - 1 :: share[1]]
    keys = [key for key, _ in shard_runs]
    done = sum(map(folder.store.has, keys))
    if done:
        talk.say(f"{done} of {len(shard_runs)} runs were done before, in `{folder.path}`")
    with kept(folder.store, keys), talk.progress(plan.name) as progress:
        work = functools.partial(_work, jobs, cluster, progress)
        failed = complete([run for _, run in shard_runs], keys, folder.store, work, made=made)
        wrong = [(run, failed[key]) for key, run in shard_runs if key in failed]
        problems = sort_out([run for run, _ in wrong], [end for _, end in wrong])[2]
        if problems and (not partial or len(problems) == len(shard_runs)):
            raise RunError(problems)
    if share[1] > 1:
        talk.say(f"Shard {shard}: {len(shard_runs)} runs are done")
    code = _finish(folder, plan, talk, json_=json_, failed={key: str(end) for key, end in failed.items()})
    for problem in problems:
        print(line(f"verus: {problem}"), file=sys.stderr)
    if report:
        from verus.report.study_page import write_study_page

        talk.say(f"Report: {write_study_page(folder)}")
    return code


def _work(
    jobs: int | None, cluster: Annotated[str | None, one("WORKERS")], progress: Progress | None, runs: Sequence[Run]
) -> Generator[tuple[int, Ended]]:
    if cluster is None:
        return as_ended(runs, threads=jobs, columns=False, progress=progress)
    from verus.lab import cluster as dask

    return dask.as_ended(runs, address=cluster, progress=progress)


@app.command
def status(
    study: Annotated[Path, Parameter(name="STUDY")],
    /,
    *,
    out: Annotated[Path | None, one("DIR")] = None,
    json_: Json = False,
) -> int:
    """Print how many runs of a study are done.

    Parameters
    ----------
    study
        A TOML file.
    out
        Folder of the study. Default: `verus-results/NAME`.
    json_
        Print it as one JSON object.
    """
    with unloaded():
        folder, plan = _planned(read(study), out)
    missing = folder.missing(plan)
    parts: dict[str, list[int]] = {}
    for key, planned in zip(plan.keys, plan.runs, strict=True):
        count = parts.setdefault(planned.run.part, [0, 0])
        count[0] += key not in missing
        count[1] += 1
    total = len(plan.distinct())
    finished = folder.is_finished(plan)
    if json_:
        common = {"study": plan.name, "folder": str(folder.path), "engine": plan.engine, "runs": total}
        shares = [{"part": name, "rows": rows, "there": there} for name, (there, rows) in parts.items()]
        tell_rows([{**common, "there": total - len(missing), "finished": finished, "parts": shares}])
        return 0
    tell(f"{plan.name}: {total - len(missing)} of {total} runs are done, in `{folder.path}` (engine {plan.engine})")
    if len(parts) > 1:
        width = max(map(len, parts))
        for name, (there, rows) in parts.items():
            tell(f"  {name:{width}}  {there} of {rows} rows")
    if finished:
        state = "is written"
    elif left := folder.left_out():
        state = f"is written without {len(left)} runs that failed"
    else:
        state = "is of an earlier study" if folder.dataset.exists() else "is written once all are done"
    tell(f"`{folder.dataset}` {state}")
    return 0


@app.command(name="merge")
def merge_(
    folders: Annotated[list[Path], Parameter(name="DIR", negative="")],
    /,
    *,
    out: Annotated[Path, one("DIR")],
    json_: Json = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> int:
    """Merge the runs that several folders have of one study. Exit code 1 if runs are still missing.

    Parameters
    ----------
    folders
        Folders of the same study, run by the same build of Verus.
    out
        Folder to merge into; it may be one of them.
    json_
        Print one JSON object a line for each configuration, as `verus sweep` does.
    """
    into = Folder(out)
    into.check()
    plan = merge([Folder(path) for path in folders], into)
    if missing := into.missing(plan):
        raise RuntimeError(
            f"{len(missing)} of {len(plan.distinct())} runs are in none of the folders: "
            f"`verus sweep STUDY --out {out}` runs them"
        )
    return _finish(into, plan, talk, json_=json_)


def _shard(text: str | None) -> tuple[int, int]:
    """The number of a share, and the number of shares."""
    if text is None:
        return 1, 1
    number, slash, count = text.partition("/")
    digits = number.isascii() and number.isdigit() and count.isascii() and count.isdigit() and len(text) < 20
    if not slash or not digits or not 1 <= int(number) <= int(count):
        raise FieldError("shard", f"must be K/N with K from 1 to N, such as 3/16, not `{text}`")
    return int(number), int(count)


def _planned(study: Study, out: Annotated[Path | None, one("DIR")], keys: Keys | None = None) -> tuple[Folder, Plan]:
    folder = Folder(Path("verus-results") / study.name if out is None else out)
    folder.check()
    return folder, Plan.of(study, store.engine(), keys)


def _finish(folder: Folder, plan: Plan, talk: Talk, *, json_: bool, failed: Mapping[str, str] | None = None) -> int:
    """Writes the dataset and shows it, once all runs are done except those that failed for good."""
    failed = failed or {}
    if missing := folder.missing(plan).keys() - failed.keys():
        total = len(plan.distinct())
        talk.say(f"{total - len(missing)} of {total} runs of the study are done, in `{folder.path}`")
        return 0
    written = folder.finish(plan, failed)
    if empty := sum(not arrived(row) for row in written.select(["goodput_mbps", "throughput_mbps"]).to_pylist()):
        talk.say(f"Warning: nothing arrived in {empty} of {written.num_rows} runs: their shares are empty")
    all_cells = [*cells(written)]
    if json_:
        tell_rows(all_cells)
    elif not talk.quiet:
        _show(all_cells)
    several = [cell for cell in all_cells if len(cell["seeds"]) > 1]
    if one := sum(cell["throughput_mbps"]["half_width_95"] is None for cell in several if "throughput_mbps" in cell):
        talk.say(
            f"{one} of {len(several)} cells are one and the same run for all seeds: nothing in them depends on the "
            "seed, and they have no interval"
        )
    missing_runs = f", {len(plan.runs) - written.num_rows} of {len(plan.runs)} are missing" if failed else ""
    talk.say(f"Results: {folder.dataset} ({written.num_rows} rows{missing_runs})")
    return 1 if failed else 0


def _show(all_cells: Sequence[dict[str, Any]]) -> None:
    """A table of means over seeds: axes, and the most important metrics; above it, the values that all cells share."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from verus.lab.interval import interval_note
    from verus.lab.repeats import note_of
    from verus.report.numbers import DELAY_NOTE
    from verus.report.table import DIFFERENCES, difference

    rows = _words(all_cells)
    shared, varied = _shared(rows)
    compared = any("above" in cell and len(cell["seeds"]) > 1 for cell in all_cells)
    shown = _SHOWN | (_OF_FLOWS if any(cell["flows"] > 1 for cell in all_cells) else {})
    columns = {
        head: [_with_interval(cell.get(name), as_text) for cell in all_cells[:_MOST_SHOWN]]
        for name, (head, as_text) in shown.items()
    }
    for name, head in _ABOVE.items() if compared else ():
        as_text = DIFFERENCES[name][1]
        above = (difference(cell.get("above", {}).get(name), as_text) for cell in all_cells[:_MOST_SHOWN])
        columns[head] = [text.replace(" ± ", "\n±") for text in above]
    has_intervals = any("±" in text for name, (head, _) in shown.items() for text in columns[head])
    console = table_console()

    def drawn(width: int) -> Table:
        """The table, with names of at most `width` characters."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for name in varied:
            table.add_column(name, overflow="fold")
        for head in columns:
            table.add_column(head, justify="right", no_wrap=True)
        names = {name: middle_out((row[name] for row in rows), width) for name in varied}
        for row, *values in zip(rows, *columns.values(), strict=False):
            table.add_row(*(names[name][row[name]] for name in varied), *values)
        return table

    def fitting() -> Table | None:
        """The table with the longest names that fit the terminal; None if none fits."""
        widest = max((len(row[name]) for row in rows for name in varied), default=0)
        tables = map(drawn, range(max(widest, _LEAST_NAME), _LEAST_NAME - 1, -1))
        return next((table for table in tables if console.natural_width(table) <= console.width), None)

    if shared:
        console.print(Text(" · ".join(shared), style="bold", overflow="fold"))
    left_out = []
    table = fitting() if console.is_terminal else drawn(sys.maxsize)
    while table is None and len(columns) > 1:
        dropped = next(head for head in (*_LEAST_WANTED, *reversed(columns)) if head in columns)
        left_out.append(" ".join(dropped.split()))
        del columns[dropped]
        table = fitting()
    console.print(drawn(_LEAST_NAME) if table is None else table)
    if left_out:
        console.print(f"Too narrow for {', '.join(left_out)}: a wider terminal, or a pipe, shows all.", style="dim")
    if len(all_cells) > _MOST_SHOWN:
        console.print(f"{len(all_cells) - _MOST_SHOWN} more cells: --json prints all", style="dim")
    console.print(DELAY_NOTE, style="dim")
    if has_intervals:
        console.print(interval_note(), style="dim")
    if compared:
        note = note_of(cell.get("above", {}) for cell in all_cells)
        console.print(f"The first is the first sender on the same path. {note}", style="dim")


#: Differences from the first sender that it shows.
_ABOVE = {"throughput_mbps": "above first\nMbit/s", "qdelay_p95_ms": "above first\np95 ms"}

#: Columns that are dropped on a narrow terminal, in this order.
_LEAST_WANTED = ("power", _ABOVE["qdelay_p95_ms"], _ABOVE["throughput_mbps"])

#: The minimum width of a name in a terminal's table.
_LEAST_NAME = 12


def _words(all_cells: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Texts that tell each cell apart: the sender as `verus compare` labels it, and the study's settings."""
    from verus.report.summary import short_names

    traces = short_names(cell["trace"] for cell in all_cells)
    axes = [
        name for name in all_cells[0] if name in IDENTITY or name.startswith("params.") or not _is_mean(all_cells, name)
    ]
    axes = [name for name in axes if name not in ("seeds", "params", "scheme", "label", "above", "from")]
    senders = _senders(all_cells)
    return [
        {
            "sender": line(sender),
            **{
                name.removeprefix("params."): _as_text({**cell, "trace": traces[cell["trace"]]}.get(name))
                for name in axes
            },
        }
        for cell, sender in zip(all_cells, senders, strict=True)
    ]


def _senders(all_cells: Sequence[dict[str, Any]]) -> list[str]:
    """The label of each cell's sender; with all its settings where several senders have the same label."""
    others: dict[str, set[str]] = {}
    full = []
    for cell in all_cells:
        keys = ",".join(f"{key}={value}" for key, value in cell["params"].items())
        full.append(f"{cell['scheme']}:{keys}" if keys else cell["scheme"])
        swept = [cell[name] for name in cell if name.startswith("params.")]
        others.setdefault(f"{cell['label']} {swept}", set()).add(full[-1])
    return [
        cell["label"]
        if len(others[f"{cell['label']} {[cell[name] for name in cell if name.startswith('params.')]}"]) == 1
        else text
        for cell, text in zip(all_cells, full, strict=True)
    ]


def _as_text(value: Any) -> str:
    return line(f"{value:g}" if isinstance(value, float) else "" if value is None else str(value))


def _shared(rows: Sequence[dict[str, str]]) -> tuple[list[str], list[str]]:
    """Values that all rows share, in words, and the names of those that vary."""
    varied = [name for name in rows[0] if len({row[name] for row in rows}) > 1]
    bare = ("sender", "trace", "queue")
    shared = [
        value if name in bare else f"{name.replace('_', ' ')} {value}"
        for name, value in rows[0].items()
        if name not in varied and value
    ]
    return shared, varied


def _is_mean(all_cells: Sequence[dict[str, Any]], name: str) -> bool:
    return any(isinstance(cell.get(name), dict) and "mean" in cell[name] for cell in all_cells)


def _with_interval(mean: dict[str, float | None] | None, as_text: Any) -> str:
    if mean is None:
        return "–"
    half_width = mean["half_width_95"]
    return str(as_text(mean["mean"])) + ("" if half_width is None else f"\n±{as_text(half_width)}")
