"""`verus compare`: the main job."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import hashlib
import itertools
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from verus import rows
from verus.checks import at_least
from verus.commands.options import ACK_DELAY, BYTES, COUNT, DELAY, LATENESS, SECONDS, SHARE, Flag, Json, one, words
from verus.commands.talk import Talk, tell_rows, with_defaults
from verus.errors import FieldError
from verus.folder import check_folder, new_folder, read_config
from verus.interval import INTERVAL_NOTE
from verus.numbers import DELAY_NOTE, FILES_NOTE, FRAMES_NOTE
from verus.plain import line
from verus.qlog import new_logs
from verus.runner import Ended, Logs, Outcome, RunError, as_ended, measure_each, sort_out
from verus.scenario import Run, Settings
from verus.store import Keys, Store, complete, engine, kept

if TYPE_CHECKING:
    from verus.results import Results

Words = list[str] | None
Format = Literal["terminal", "csv", "markdown", "latex"]
LogFormat = Literal["draft", "0.3"]
Count = Annotated[int | None, COUNT]


@with_defaults
def compare(
    *,
    trace: Annotated[Words, words("CHANNEL")] = None,
    scheme: Annotated[Words, words("SCHEME")] = None,
    mix: Annotated[Words, words("MIX")] = None,
    queue: Annotated[Words, words("QUEUE")] = None,
    second_trace: Annotated[str | None, one("CHANNEL")] = None,
    second_queue: Annotated[str | None, one("QUEUE")] = None,
    ack: Annotated[str | None, one("CHANNEL")] = None,
    ack_queue: Annotated[str | None, one("QUEUE")] = None,
    delay_ms: Annotated[float | None, DELAY] = None,
    packet_bytes: Annotated[int | None, BYTES] = None,
    opportunity_bytes: Annotated[int | None, BYTES] = None,
    ack_every: Count = None,
    jitter: Annotated[str | None, one("JITTER")] = None,
    ack_jitter: Annotated[str | None, one("JITTER")] = None,
    reorder: Annotated[str | None, one("REORDER")] = None,
    ack_delay_ms: Annotated[float | None, ACK_DELAY] = None,
    delay_series: Annotated[Path | None, one("FILE")] = None,
    loss: Annotated[float | None, SHARE] = None,
    loss_bursts: Annotated[str | None, one("LOST/OF")] = None,
    policer: Annotated[str | None, one("POLICER")] = None,
    ack_loss: Annotated[float | None, SHARE] = None,
    changes: Annotated[Path | None, one("FILE")] = None,
    changes_repeat: Annotated[float | None, SECONDS] = None,
    loop: Annotated[bool | None, Parameter(name="--loop", negative="--once")] = None,
    flows: Count = None,
    traffic: Annotated[str | None, one("TRAFFIC")] = None,
    duration: Annotated[float | None, SECONDS] = None,
    seed: Count = None,
    repeat: Count = None,
    records: Flag = False,
    emulate: Flag = False,
    transport: Annotated[Words, words("NAME")] = None,
    jobs: Count = None,
    max_lateness_ms: Annotated[float | None, LATENESS] = None,
    from_: Annotated[Path | None, one("FILE", name="--from")] = None,
    json_: Json = False,
    format_: Annotated[Format, one("FORMAT", name="--format", show_default=False)] = "terminal",
    out: Annotated[Path | None, one("DIR")] = None,
    qlog: Annotated[Path | None, one("DIR")] = None,
    qlog_format: Annotated[LogFormat | None, one("FORMAT")] = None,
    force: Flag = False,
    report: Annotated[bool | None, Parameter(name="--report", negative="--no-report")] = None,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> int:
    """Run controllers over channels, print a table, write results; with `--report`, draw them.

    Without arguments: Verus at R = 2, 4 and 6, Cubic, NewReno and Vegas on three built-in channels
    over the paper's shared RED queue. `verus list schemes`, `queues` and `channels` show what there is.

    Parameters
    ----------
    trace
        Trace files, names of channels (`verus list channels`), or constant rates in Mbit/s, `rate:12`. Default: three
        built-in channels.
    scheme
        `NAME[:key=value,…]` of `verus list schemes`, such as `cubic` or `verus:ratio=2`; `verus:ratio=2,4` and
        `verus:ratio=2..6` are several schemes. Or a class in Python, `FILE.py:CLASS[:key=value,…]`
        (docs/own-controller.md). Default: `verus:ratio=2,4,6`, `cubic`, `newreno` and `vegas`;
        none with --mix.
    mix
        `SCHEME*N+SCHEME*M`: N flows of one scheme and M of another share the bottleneck in one run.
    queue
        The queue before the bottleneck: `KIND[:key=value,…]`, such as `droptail:bytes=120kB` or `codel` (`verus list
        queues`). Default: `red:min=375000,max=1125000,p=0.1`.
    second_trace
        A second link in series, which data packets cross after the first. Default: none.
    second_queue
        The queue before the second link. Default: `{second_queue}`.
    ack
        The link that acknowledgements cross: `ideal` (no limit; the default), `same` (as the data's), `rate:MBPS`, a
        trace file or a channel.
    ack_queue
        The queue before the link of acknowledgements. Default: `{ack_queue}`.
    delay_ms
        Propagation delay each way, in ms or as `0.02s`. Default: {delay_ms}.
    packet_bytes
        Size of data packets with IP headers, bytes. Default: {packet_bytes}.
    opportunity_bytes
        Bytes that one line of a trace delivers, 1504 or 1500. Default: {opportunity_bytes}.
    ack_every
        One acknowledgement for every N data packets. Default: {ack_every}.
    jitter
        Random additional delay of data packets behind the bottleneck, in order: `none` (the default),
        `gauss:mean_ms=5`, `wifi:mean_ms=7` (`verus list jitter`).
    ack_jitter
        The same for acknowledgements. Default: none.
    reorder
        Reordering: which data packets arrive late, behind later ones: `none` (the default), `late:p=0.05,ms=10` (`verus
        list reorder`).
    ack_delay_ms
        Propagation delay of acknowledgements, in ms or as `0.02s`. Default: as --delay-ms.
    delay_series
        A file with a recorded series of propagation delays each way, in place of --delay-ms: a whole number of ms on
        each line, which holds for 10 ms.
    loss
        Probability of random loss on the data path, as `0.005` or `0.5%`. Default: {loss}.
    loss_bursts
        Losses in bursts, as LOST/OF: `2/18` loses the last two of every 18 packets. Default: `{loss_bursts}`.
    policer
        A policer (token bucket) before the bottleneck, which drops data packets that exceed its rate, and delays none:
        `bucket:rate_mbps=10,burst=150000` (bytes). Default: `{policer}`.
    ack_loss
        Probability of random loss of acknowledgements. Default: {ack_loss}.
    changes
        A JSON file with a list of changes of the path, such as `[{{"at_s": 2, "rate_mbps": 0}}]` (`verus list scenario`
        has the fields).
    changes_repeat
        Period, in seconds or as `2m`, after which the path returns to its first state and the changes start again.
        Default: they happen once.
    loop
        Start a trace again when it ends (the default), or deliver nothing after its end (--once).
    flows
        Flows of each `--scheme` that share the bottleneck in one run; a `--mix` has its own numbers. Default: 1.
    traffic
        Traffic of each flow (`verus list traffic`): `on-off`, `files:bytes=100kB`. Default: `full`, always data to
        send.
    duration
        Duration of each run, in seconds or as `2m`. Default: {duration_s}.
    seed
        First seed. Default: {seed}.
    repeat
        Runs of each combination, with seeds SEED, SEED + 1, … Default: 1.
    records
        Keep one record for each packet (`records.parquet`).
    emulate
        Run in real time, behind an emulated link: our controllers over UDP or QUIC, and the kernel's own
        (`linux:cc=cubic`).
        Needs root or user namespaces (Linux).
    transport
        With --emulate, the transport of our controllers: `udp` (the default), `quic`, or both.
    jobs
        With --emulate, runs at the same time. Default: one for every two cores.
    max_lateness_ms
        With --emulate, exit with code 3 if the 99th percentile of the emulator's lateness in delivering packets was
        above this in any run, in ms.
    from_
        A `run.json` of earlier results: run the same again. Other options given with it replace its values.
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
    force
        Replace the results, or the logs, in a folder that is not empty.
    report
        Draw the report and its figures, too; `verus report` does it later. Default: --no-report.
    """
    asked: dict[str, Any] = {
        "traces": trace,
        "schemes": scheme,
        "mixes": mix,
        "queues": queue,
        "second_trace": second_trace,
        "second_queue": second_queue,
        "ack": ack,
        "ack_queue": ack_queue,
        "delay_ms": delay_ms,
        "packet_bytes": packet_bytes,
        "opportunity_bytes": opportunity_bytes,
        "ack_every": ack_every,
        "jitter": jitter,
        "ack_jitter": ack_jitter,
        "reorder": reorder,
        "ack_delay_ms": ack_delay_ms,
        "delay_series": None if delay_series is None else str(delay_series),
        "loss": loss,
        "loss_bursts": loss_bursts,
        "policer": policer,
        "ack_loss": ack_loss,
        "changes": None if changes is None else _changes(changes),
        "changes_repeat_s": changes_repeat,
        "loop": loop,
        "flows": flows,
        "traffic": traffic,
        "duration_s": duration,
        "seed": seed,
        "repeat": repeat,
        "records": records or None,
        "emulate": emulate or None,
        "transports": transport,
    }
    given = {
        name: tuple(value) if isinstance(value, list) else value for name, value in asked.items() if value is not None
    }
    settings, earlier = _settings(given, from_)
    runs = settings.runs()

    target = out if out is not None or json_ else _new_name()
    if target is not None:
        check_folder(target, force=force)
    talk.detail(f"{len(runs)} runs of {settings.duration_s:g} s")
    if settings.emulate:
        jobs = _side_by_side() if jobs is None else jobs
        at_least("jobs", jobs, 1, 1000)
    else:
        _refuse_real_time(transport, jobs, max_lateness_ms)
    if qlog is None and qlog_format is not None:
        raise FieldError("qlog_format", "is for logs (--qlog DIR)")
    store: Store | None = None
    keys: Sequence[str] = ()
    if target is not None and qlog is None:  # what was run before would write no log
        store, keys = _unfinished(runs, out, emulate=settings.emulate)
    logging = contextlib.nullcontext() if qlog is None else new_logs(qlog, qlog_format or "draft", runs, force=force)
    with contextlib.nullcontext() if store is None else kept(store, keys):
        with logging as logs:
            ended = _run(runs, settings, jobs or 1, store, keys, talk, columns=target is not None, logs=logs)
        runs, outcomes, problems = sort_out(runs, ended)
        if not outcomes:
            raise RunError(problems)
        try:
            _check_channels(rows.channels(runs, outcomes), earlier)
        except FieldError:
            if store is not None:
                store.remove()
            raise
        if json_:
            tell_rows(map(rows.printed, rows.rows(runs, outcomes)))
            sys.stdout.flush()
        if target is not None:
            shown = None if json_ else format_
            _save(runs, outcomes, settings, target, talk, force=force, shown=shown, draw=bool(report))
    if store is not None:
        store.remove()
    if qlog is not None:
        talk.say(f"Logs: {qlog}")
    code = 0
    if settings.emulate:
        code = _judge_timing([outcome["timing"] for outcome in outcomes], max_lateness_ms, talk)
    for problem in problems:
        print(line(f"verus: {problem}"), file=sys.stderr)
    return 1 if problems else code


def _changes(path: Path) -> list[Any]:
    """The changes in a file."""
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise FieldError("changes", f"`{path}` is not JSON: {error}") from error
    if not isinstance(found, list):
        raise FieldError("changes", f"`{path}` must hold a list of changes")
    return found


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
    """Prints the table and writes the folder; draws it where that is asked for."""
    from verus import summary
    from verus.results import Results

    results = summary.with_means(Results.collect(runs, outcomes, kind="compare", settings=settings.to_dict()))
    if shown == "terminal" and not talk.quiet:
        _tell(results, repeated=settings.repeat > 1)
    elif shown not in (None, "terminal"):
        from verus.commands.export import text

        sys.stdout.write(text(results, shown))
        sys.stdout.flush()
    with new_folder(target, force=force) as folder:
        results.write(folder)
        if draw:
            from verus import report

            talk.detail("drawing")
            report.write_page(results, folder)
    if draw:
        talk.say(f"Report: {target / 'report.html'}")
    else:
        talk.say(f"Results: {target} (`verus report {shlex.quote(str(target))}` draws them)")


def _tell(results: Results, *, repeated: bool) -> None:
    """The table for people."""
    from verus import table
    from verus.commands.tables import table_console

    console = table_console()
    for block in table.comparison(results):
        console.print(block)
    console.print(DELAY_NOTE, style="dim")
    if repeated:
        console.print(INTERVAL_NOTE, style="dim")
    if results.has("late"):
        console.print(FRAMES_NOTE, style="dim")
    elif results.has("completions"):
        console.print(FILES_NOTE, style="dim")


def _side_by_side() -> int:
    """How many emulated runs the machine carries at once: each has an emulator that must wake on time, and its ends."""
    return max(1, len(os.sched_getaffinity(0)) // 2)


def _run(
    runs: list[Run],
    settings: Settings,
    jobs: int,
    store: Store | None,
    keys: Sequence[str],
    talk: Talk,
    *,
    columns: bool,
    logs: Logs | None,
) -> list[Ended]:
    """Runs everything; with a store, what is not in it yet."""
    with talk.progress("emulating" if settings.emulate else "simulating") as progress:
        if settings.emulate:
            from verus import emulation

            work = functools.partial(emulation.as_ended, jobs=jobs, progress=progress, logs=logs)
        elif not columns:
            return measure_each(runs, progress=progress, logs=logs)
        else:
            work = functools.partial(as_ended, progress=progress, logs=logs)
        if store is None:
            ended = dict(work(runs))
            return [ended[index] for index in range(len(runs))]
        if there := sum(map(store.has, set(keys))):
            talk.say(f"{there} of {len(runs)} runs are there, in `{store.folder}`")
        failed = complete(runs, keys, store, work)
    return [failed.get(key) or store.outcome(key) for key in keys]


def _unfinished(runs: list[Run], out: Path | None, *, emulate: bool) -> tuple[Store, list[str]]:
    """Where the outcomes of these runs are kept until all are there, and the key of each.

    The folder is named after the one that they are for; without one, after them: the same command finds it again.
    """
    if emulate:
        from verus import emulation

        keys = Keys(emulation.engine())
    else:
        keys = Keys(engine())
    own = [keys.of(run) for run in runs]
    if out is None:
        target = Path("verus-results") / f"compare-{hashlib.sha256(''.join(own).encode()).hexdigest()[:12]}"
    else:
        target = out if out.name not in ("", "..") else out.resolve()
    return Store(target.with_name(f"{target.name}.unfinished")), own


def _refuse_real_time(transport: object, jobs: object, max_lateness_ms: object) -> None:
    for name, given in (("transport", transport), ("jobs", jobs), ("max_lateness_ms", max_lateness_ms)):
        if given is not None:
            raise FieldError(name, "is for runs in real time (--emulate)")


def _judge_timing(timings: list[dict[str, float]], bound: float | None, talk: Talk) -> int:
    """Says how well the emulator kept its time; the exit code."""
    worst = max(timing["lateness_p99_ms"] for timing in timings)
    largest = max(timing["lateness_max_ms"] for timing in timings)
    lost = sum(int(timing["device_losses"]) for timing in timings)
    talk.say(f"Deliveries late: p99 at most {worst:.3f} ms, largest {largest:.3f} ms; devices lost {lost} packets")
    if bound is not None and worst > bound:
        print(f"verus: invalid: a run's deliveries were {worst:.3f} ms late (p99), above {bound:g} ms", file=sys.stderr)
        return 3
    return 0


def _settings(given: dict[str, Any], path: Path | None) -> tuple[Settings, list[dict[str, Any]]]:
    """The settings, and the channels of the run they repeat."""
    if path is None:
        if "mixes" in given and "schemes" not in given:
            given["schemes"] = ()
        return Settings(**given), []

    config = read_config(path)
    if config["kind"] != "compare":
        kind = config["kind"]
        own = {
            rows.PROBE: "`verus probe`",
            rows.RECORDING: "`verus probe client --record`",
            rows.SHELL: "`verus shell`",
            rows.CHECK: "`verus check`",
            "simulate": "`verus.simulate`, in Python",
        }
        raise FieldError(
            "from", f"`{path}` was made by {own.get(kind, f'`verus reproduce {kind}`')}: run that again instead"
        )
    settings = dataclasses.replace(Settings.from_dict(config["settings"]), **given)
    # A built-in channel is made anew for each seed and length; a recording must be what it was.
    same = not {"traces", "seed", "repeat", "duration_s"} & given.keys()
    return settings, config["channels"] if same else []


def _check_channels(now: list[dict[str, Any]], earlier: list[dict[str, Any]]) -> None:
    """Refuses to call it the same run if a trace has changed since."""
    before = {channel["name"]: channel["sha256"] for channel in earlier}
    for channel in now:
        name, found = channel["name"], channel["sha256"]
        if before.get(name, found) != found:
            raise FieldError(
                "from", f"the trace `{name}` is not what it was: its SHA-256 is {found}, then {before[name]}"
            )


def _new_name() -> Path:
    stamp = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
    names = (
        Path("verus-results") / f"compare-{stamp}{suffix}"
        for suffix in itertools.chain([""], map("-{}".format, itertools.count(2)))
    )
    return next(name for name in names if not name.exists())
