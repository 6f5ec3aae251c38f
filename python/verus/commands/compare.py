"""`verus compare`: the main job."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from verus import _verus
from verus.commands.options import COUNT, LATENESS, Flag, Json, one
from verus.commands.settings import takes_settings
from verus.commands.talk import Talk, tell_rows
from verus.errors import FieldError, flag_of
from verus.lab import bounded_reading, inputs, metric_rows, nothing_arrived
from verus.lab.arguments import at_least
from verus.lab.inputs import Digests
from verus.lab.log_folder import new_captures, new_logs
from verus.lab.results_folder import check_folder, new_folder, new_name, read_config
from verus.lab.runner import Captures, Ended, Logs, Outcome, RunError, as_ended, measure_each, sort_out
from verus.lab.scenario import Run, Settings, late_changes, warning
from verus.lab.store import Keys, Store, complete, engine, kept
from verus.report.numbers import DELAY_NOTE, FILES_NOTE, FRAMES_NOTE
from verus.report.printable import line

if TYPE_CHECKING:
    from verus.lab.results import Results

Format = Literal["terminal", "csv", "markdown", "latex"]
LogFormat = Literal["draft", "0.3"]
Count = Annotated[int | None, COUNT]


@takes_settings
def compare(
    *,
    netem: Annotated[str | None, one("OPTIONS")] = None,
    jobs: Count = None,
    max_lateness_ms: Annotated[float | None, LATENESS] = None,
    from_: Annotated[Path | None, one("FILE", name="--from")] = None,
    json_: Json = False,
    format_: Annotated[Format | None, one("FORMAT", name="--format")] = None,
    out: Annotated[Path | None, one("DIR")] = None,
    qlog: Annotated[Path | None, one("DIR")] = None,
    qlog_format: Annotated[LogFormat | None, one("FORMAT")] = None,
    pcap: Annotated[Path | None, one("DIR")] = None,
    force: Flag = False,
    report: Annotated[bool | None, Parameter(name="--report", negative="--no-report")] = None,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
    **asked: Any,
) -> int:
    """Run controllers over channels, print a table, write results; with `--report`, draw them.

    Without arguments: `forward`, Verus at R = 2 and 6, Cubic, BBR and Copa on three built-in channels
    over the paper's shared RED queue. `verus list schemes`, `queues` and `channels` show what there is.

    Parameters
    ----------
    netem
        Options of Linux's netem for the way of the data, such as `delay 20ms 5ms loss gemodel 1% 10%`, in place of the
        options here that say the same, which are printed.
    jobs
        With --emulate, runs at the same time. Default: one for every two cores; with --virtual, for every core.
    max_lateness_ms
        With --emulate, exit with code 3 if the 99th percentile of the emulator's lateness in delivering packets was
        above this in any run, in ms.
    from_
        Earlier results, a folder or its `run.json`: run the same again. Other options given with it replace its values.
    json_
        Print one JSON object a line for each run, and nothing else.
    format_
        How the table is printed: `terminal`, `csv`, `markdown` or `latex`. Default: terminal.
    out
        Folder for results. Default: a new one in `verus-results`; none with --json.
    qlog
        Folder for a qlog of each flow, of at most 64 MiB each: packets, losses, window, round trips. With --emulate,
        only flows of our controllers have one.
    qlog_format
        `draft` (the current drafts, `.sqlog`; the default) or `0.3` (what the viewer qvis opens, `.qlog`).
    pcap
        Folder for a capture of each simulated run (`SCHEME_CHANNEL_seedN.pcapng`): the headers of all packets, on both
        sides of the bottleneck, for Wireshark, tshark and `verus analyze`.
    force
        Replace the results, or the logs and captures, in a folder that is not empty.
    report
        Draw the report and its figures, too; `verus report` does it later. Default: --no-report.
    """
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in asked.items()
    }
    if "changes" in options:
        options["changes"] = _changes(options["changes"])
    if netem is not None:
        translated = _netem(netem, options)
        options |= translated
        words = (f"{flag_of(field)} {_words(value)}" for field, value in translated.items())
        talk.say(f"netem: {' '.join(words)}")
    settings, earlier = _settings(options, from_)
    before = _inputs(earlier, options)
    _check_found(before)
    runs = settings.runs()
    _check_unchanged(runs, before)
    digests = Digests()
    read = set(inputs.files_of(run.scenario for run in runs).values())
    for path in read:
        digests.of(path)

    target = out if out is not None or json_ else _new_name()
    if target is not None:
        check_folder(target, force=force)
    else:
        for name, value in {**options, "report": report}.items():
            if name in ("records", "report", "bin_ms") and value:
                raise FieldError(name, "is for saved results (with --json also --out DIR)")
    talk.detail(f"{len(runs)} runs of {settings.duration_s:g} s")
    for cut_warning in inputs.cut_warnings(run.scenario for run in runs):
        talk.say(f"Warning: {cut_warning}")
    if path_warning := warning(runs[0].scenario):
        talk.say(f"Warning: {path_warning}")
    if change_warning := late_changes(runs[0].scenario):
        talk.say(f"Warning: {change_warning}")
    if settings.emulate:
        jobs = _side_by_side(virtual=settings.virtual) if jobs is None else jobs
        at_least("jobs", jobs, 1, 1000)
    else:
        _refuse_real_time(transports=options.get("transports"), jobs=jobs, max_lateness_ms=max_lateness_ms)
    if json_ and format_ is not None:
        raise FieldError("format", "is for the table, in whose place --json prints objects")
    if qlog is None and qlog_format is not None:
        raise FieldError("qlog_format", "is for logs (--qlog DIR)")
    store: Store | None = None
    made: Keys | None = None
    keys: Sequence[str] = ()
    if pcap is not None and settings.emulate:
        raise FieldError("pcap", "is for simulated runs (without --emulate)")
    if pcap is not None and any(run.scenario["duplicate"] for run in runs):
        raise FieldError("pcap", "has a packet once, so it takes paths without --duplicate")
    if target is not None and qlog is None and pcap is None:  # what was run before would write no log
        store, keys = _unfinished(runs, out, made := _keys(settings))
    logging = contextlib.nullcontext() if qlog is None else new_logs(qlog, qlog_format or "draft", runs, force=force)
    capturing = contextlib.nullcontext() if pcap is None else new_captures(pcap, runs, force=force)
    with contextlib.nullcontext() if store is None else kept(store, keys):
        with logging as logs, capturing as captures:
            files = (logs, captures)
            ended = _run(runs, settings, jobs or 1, store, keys, made, talk, columns=target is not None, files=files)
        for path in read:
            digests.check(path)
        runs, outcomes, problems = sort_out(runs, ended)
        if not outcomes:
            raise RunError(problems)
        for empty in [] if path_warning else nothing_arrived.warnings(runs, outcomes):
            talk.say(f"Warning: {empty}")
        if json_:
            tell_rows(map(metric_rows.printed, metric_rows.rows(runs, outcomes)))
            sys.stdout.flush()
        if target is not None:
            shown = None if json_ else format_ or "terminal"
            _save(runs, outcomes, settings, target, talk, force=force, shown=shown, draw=bool(report))
    if store is not None:
        store.remove()
    if qlog is not None:
        talk.say(f"Logs: {qlog}")
    if pcap is not None:
        talk.say(f"Captures: {pcap}")
    code = 0
    if settings.emulate:
        code = _judge_timing([outcome["timing"] for outcome in outcomes], max_lateness_ms, talk)
    for problem in problems:
        print(line(f"verus: {problem}"), file=sys.stderr)
    return 1 if problems else code


def _netem(text: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that say the same as options of netem. It delays one direction, so acknowledgements are not delayed.

    Raises:
        FieldError: They are no such options, have no equal, or set a setting twice.
    """
    try:
        fields = _verus.netem(text)
    except ValueError as error:
        raise FieldError("netem", str(error).removeprefix("netem: ")) from error
    several = {"trace": "traces", "queue": "queues"}
    settings = {several.get(field, field): (value,) if field in several else value for field, value in fields}
    if "delay_ms" in settings:
        settings |= {"ack_delay_ms": 0.0} if "ack_delay_ms" not in options else {}
    if twice := next((field for field in settings if field in options), None):
        raise FieldError("netem", f"sets {flag_of(twice)}, which is given too: leave one of them out")
    return settings


def _words(value: object) -> str:
    """The value of a setting, as typed."""
    if isinstance(value, tuple):
        return " ".join(value)
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _changes(path: Path) -> list[Any]:
    """The changes in a file."""
    try:
        text = bounded_reading.given(path, bounded_reading.MOST_TEXT)
    except ValueError as error:
        raise FieldError("changes", str(error)) from error

    def fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        change = dict(pairs)
        if len(change) < len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise FieldError("changes", f"`{path}` has `{twice}` twice in one change")
        return change

    try:
        changes = json.loads(text.decode("utf-8-sig"), object_pairs_hook=fields)
    except FieldError:
        raise
    except RecursionError:
        raise FieldError("changes", f"`{path}` is nested too deeply") from None
    except ValueError as error:
        raise FieldError("changes", f"`{path}` is not JSON: {error}") from error
    if not isinstance(changes, list):
        raise FieldError("changes", f"`{path}` must hold a list of changes")
    return changes


def _save(
    runs: list[Run],
    outcomes: list[Outcome],
    settings: Settings,
    target: Path,
    talk: Talk,
    *,
    force: bool,
    shown: Format | None,
    draw: bool,
) -> None:
    """Prints the table and writes the folder; draws the report if `draw` is set."""
    from verus.lab.results import Results
    from verus.report import summary

    results = summary.with_means(Results.collect(runs, outcomes, kind="compare", settings=settings.to_dict()))
    repeated = settings.repeat > 1 or settings.stretches is not None
    if shown == "terminal" and not talk.quiet:
        _tell(results)
    elif shown not in (None, "terminal"):
        from verus.commands.export import text

        sys.stdout.write(text(results, shown))
        sys.stdout.flush()
    if repeated:
        for warning in summary.warnings(results):
            talk.say(warning)
    with new_folder(target, force=force) as folder:
        results.write(folder)
        if draw:
            from verus import saved_run

            with talk.doing("drawing the report"):
                saved_run.write_page(results, folder)
    if draw:
        talk.say(f"Report: {target / 'report.html'}")
    else:
        talk.say(f"Results: {target} (`verus report {shlex.quote(str(target))}` draws them)")


def _tell(results: Results) -> None:
    """Prints the table for a terminal."""
    from verus.commands.tables import table_console
    from verus.report import summary, table

    console = table_console()
    for block in table.comparison(results):
        console.print(block)
    console.print(DELAY_NOTE, style="dim")
    for note in table.notes(summary.blocks(results)):
        console.print(note, style="dim")
    if results.has("late"):
        console.print(FRAMES_NOTE, style="dim")
    elif results.has("completions"):
        console.print(FILES_NOTE, style="dim")


def _side_by_side(*, virtual: bool) -> int:
    """The number of emulated runs at once: each has an emulator that must wake on time, and its endpoints.

    A guest on virtual time uses one core, and nothing in it is ever late.
    """
    cores = len(os.sched_getaffinity(0))
    return cores if virtual else max(1, cores // 2)


def _run(
    runs: list[Run],
    settings: Settings,
    jobs: int,
    store: Store | None,
    keys: Sequence[str],
    made: Keys | None,
    talk: Talk,
    *,
    columns: bool,
    files: tuple[Logs | None, Captures | None],
) -> list[Ended]:
    """Runs everything; with a store, only the runs that it lacks."""
    logs, captures = files
    with talk.progress("emulating" if settings.emulate else "simulating") as progress:
        if settings.emulate:
            from verus.endpoints import emulation

            virtual = settings.virtual
            work = functools.partial(emulation.as_ended, jobs=jobs, progress=progress, logs=logs, virtual=virtual)
        elif not columns:
            return measure_each(runs, progress=progress, logs=logs, captures=captures)
        else:
            work = functools.partial(as_ended, progress=progress, logs=logs, captures=captures)
        if store is None:
            ended = dict(work(runs))
            return [ended[index] for index in range(len(runs))]
        if done := sum(map(store.has, set(keys))):
            talk.say(f"{done} of {len(runs)} runs were done before, in `{store.folder}`")
        failed = complete(runs, keys, store, work, made=made)
    return [failed.get(key) or store.outcome(key) for key in keys]


def _keys(settings: Settings) -> Keys:
    """Computes the keys of runs, for the engine that runs them."""
    if settings.emulate:
        from verus.endpoints import emulation

        return Keys(emulation.engine(virtual=settings.virtual))
    return Keys(engine())


def _unfinished(runs: list[Run], out: Path | None, keys: Keys) -> tuple[Store, list[str]]:
    """The store that keeps the outcomes of these runs until all are done, and the key of each.

    Its folder is named after the results folder. Without one it is named after the keys, so that
    the same command finds it again.

    Raises:
        FieldError: It is a link.
    """
    run_keys = [keys.of(run) for run in runs]
    if out is None:
        target = Path("verus-results") / f"compare-{hashlib.sha256(''.join(run_keys).encode()).hexdigest()[:12]}"
    else:
        target = out if out.name not in ("", "..") else out.resolve()
    store = Store(target.with_name(f"{target.name}.unfinished"))
    store.check()
    return store, run_keys


def _refuse_real_time(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise FieldError(name, "is for runs in real time (--emulate)")


def _judge_timing(timings: list[dict[str, float]], bound: float | None, talk: Talk) -> int:
    """Reports the emulator's lateness; returns the exit code."""
    worst = max(timing["lateness_p99_ms"] for timing in timings)
    largest = max(timing["lateness_max_ms"] for timing in timings)
    lost = sum(int(timing["device_losses"]) for timing in timings)
    talk.say(f"Deliveries late: p99 at most {worst:.3f} ms, largest {largest:.3f} ms; devices lost {lost} packets")
    if bound is not None and worst > bound:
        print(f"verus: invalid: a run's deliveries were {worst:.3f} ms late (p99), above {bound:g} ms", file=sys.stderr)
        return 3
    return 0


def _settings(options: dict[str, Any], path: Path | None) -> tuple[Settings, Mapping[str, Any]]:
    """The settings, and the `run.json` of the run that they repeat."""
    if path is not None and path.is_dir():
        path = path / "run.json"
    if path is None:
        if "mixes" in options and "schemes" not in options:
            options["schemes"] = ()
        return Settings(**options), {}

    config = read_config(path)
    if config["kind"] != "compare":
        raise FieldError("from", f"`{path}` was made by {metric_rows.made_by(config['kind'])}: run that again instead")
    settings = dataclasses.replace(Settings.from_dict(config["settings"]), **options)
    return settings, config


def _inputs(earlier: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, str]:
    """The digests of the files that earlier runs read, by what names them; not of files that are named anew."""
    before = earlier.get("inputs")
    if not isinstance(before, Mapping):  # of results that were written before there were any
        return {}
    anew = " ".join(map(str, options.values()))
    return {text: digest for text, digest in before.items() if text not in anew}


def _check_found(before: Mapping[str, str]) -> None:
    """Refuses to repeat runs in another folder than theirs, whose files are not found from there."""
    recordings = {recording["name"].rpartition("/")[2] for recording in _verus.catalogue()}
    for text in before:
        if text.rpartition("/")[2] not in recordings and not Path(text).exists():
            folder = "" if Path(text).is_absolute() else f" in `{Path.cwd()}`"
            problem = f"there is no `{text}`{folder}: run this where these results were made, or name the file anew"
            raise FieldError("from", problem)


def _check_unchanged(runs: list[Run], before: Mapping[str, str]) -> None:
    """Refuses to repeat runs if a file that they read has changed since."""
    for text, digest in inputs.digests(runs).items():
        if before.get(text, digest) != digest:
            problem = f"`{text}` is not what it was: its SHA-256 is {digest}, then {before[text]}"
            raise FieldError("from", problem)


def _new_name() -> Path:
    first = new_name("compare")
    others = (first.with_name(f"{first.name}-{number}") for number in itertools.count(2))
    return next(name for name in itertools.chain([first], others) if not name.exists())
