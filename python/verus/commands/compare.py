"""`verus compare`: the main job."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import hashlib
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from verus import rows
from verus.commands.talk import Talk, tell_rows, with_defaults
from verus.errors import FieldError
from verus.folder import check_folder, new_folder, read_config
from verus.interval import INTERVAL_NOTE
from verus.numbers import DELAY_NOTE, FILES_NOTE, FRAMES_NOTE
from verus.plain import line
from verus.runner import Ended, Outcome, RunError, as_ended, measure_each, sort_out
from verus.scenario import Run, Settings, at_least
from verus.store import Keys, Store, complete, engine, kept

Words = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]
Number = Annotated[float | None, Parameter(allow_leading_hyphen=True)]
Count = Annotated[int | None, Parameter(allow_leading_hyphen=True)]
Flag = Annotated[bool, Parameter(negative="", show_default=False)]


@with_defaults
def compare(
    *,
    trace: Words = None,
    scheme: Words = None,
    mix: Words = None,
    queue: Words = None,
    second_trace: str | None = None,
    second_queue: str | None = None,
    ack: str | None = None,
    ack_queue: str | None = None,
    delay_ms: Number = None,
    packet_bytes: Count = None,
    opportunity_bytes: Count = None,
    ack_every: Count = None,
    jitter: str | None = None,
    ack_jitter: str | None = None,
    reorder: str | None = None,
    ack_delay_ms: Number = None,
    delay_series: Path | None = None,
    loss: Number = None,
    loss_bursts: str | None = None,
    policer: str | None = None,
    ack_loss: Number = None,
    changes: Path | None = None,
    changes_repeat: Number = None,
    loop: Annotated[bool | None, Parameter(name="--loop", negative="--once")] = None,
    flows: Count = None,
    traffic: str | None = None,
    duration: Number = None,
    seed: Count = None,
    repeat: Count = None,
    records: Flag = False,
    emulate: Flag = False,
    transport: Words = None,
    jobs: Count = None,
    max_lateness_ms: Number = None,
    from_: Annotated[Path | None, Parameter(name="--from")] = None,
    json_: Annotated[bool, Parameter(name="--json", negative="", show_default=False)] = False,
    out: Path | None = None,
    force: Flag = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> int:
    """Run controllers over channels, print a table, write results and a report.

    Without arguments: Verus at R = 2, 4 and 6, Cubic, NewReno and Vegas on three built-in channels
    over the paper's shared RED queue. `verus list schemes`, `queues` and `channels` show what there is.

    Parameters
    ----------
    trace
        Trace files, names of channels, or `rate:MBPS`.
    scheme
        `NAME[:key=value,…]`, such as `verus:ratio=2` or `cubic`; or a class in Python, `FILE.py:CLASS[:key=value,…]`
        (docs/own-controller.md).
    mix
        `SCHEME*N+SCHEME*M`: flows of several schemes in one run.
    queue
        `KIND[:key=value,…]`, such as `droptail:bytes=120000` or `codel`. Default: `red:min=375000,max=1125000,p=0.1`.
    second_trace
        A second channel that data cross behind the first. Default: none.
    second_queue
        The queue before it. Default: `{second_queue}`.
    ack
        What acknowledgements cross: `ideal` (the default), `same`, `rate:MBPS`, a trace file or a channel.
    ack_queue
        The queue they wait in. Default: `{ack_queue}`.
    delay_ms
        Propagation each way. Default: {delay_ms}.
    packet_bytes
        Size of data packets (IP). Default: {packet_bytes}.
    opportunity_bytes
        What one line of a trace carries, 1504 or 1500. Default: {opportunity_bytes}.
    ack_every
        Packets for each acknowledgement. Default: {ack_every}.
    jitter
        What packets wait for on their way out of the bottleneck: `none` (the default), `gauss:mean_ms=5`,
        `wifi:mean_ms=7` (`verus list jitter`).
    ack_jitter
        The same for acknowledgements.
    reorder
        Which packets others overtake: `none` (the default), `late:p=0.05,ms=10` (`verus list reorder`).
    ack_delay_ms
        Propagation of acknowledgements. Default: as --delay-ms.
    delay_series
        A file with a recorded series of propagation delays each way, in place of --delay-ms: a whole number of ms a
        line, each for 10 ms.
    loss
        Probability of random loss on the data path. Default: {loss}.
    loss_bursts
        Losses in bursts, as LOST/OF: `2/18` loses the last two of every 18 packets. Default: `{loss_bursts}`.
    policer
        What drops data packets that come to the bottleneck faster than a rate, and queues nothing:
        `bucket:rate_mbps=10,burst=150000` (bytes). Default: `{policer}`.
    ack_loss
        Probability of random loss of acknowledgements. Default: {ack_loss}.
    changes
        A JSON file with a list of changes of the path, such as `[{{"at_s": 2, "rate_mbps": 0}}]` (`verus list scenario`
        has the fields).
    changes_repeat
        Seconds after which the path is as at first and the changes come again. Default: once.
    loop
        Start a trace again when it ends (the default), or let the link end with it.
    flows
        Flows of each scheme in one run. Default: 1.
    traffic
        What each flow has to send, and when: `full` (the default), or `on-off`, `c.r1002`, `files:bytes=N`, `video`
        with keys.
    duration
        Simulated seconds. Default: {duration_s}.
    seed
        First seed. Default: {seed}.
    repeat
        Runs of each, with seeds SEED, SEED + 1, … Default: 1.
    records
        Keep one record for each packet (`records.parquet`).
    emulate
        Run in real time, behind an emulated link: our controllers over UDP or QUIC, and the kernel's own
        (`linux:cc=cubic`).
        Takes root, or user namespaces.
    transport
        What carries our controllers then: `udp` (the default), `quic`, or both.
    jobs
        Emulated runs at the same time. Default: 1.
    max_lateness_ms
        Exit with code 3 if the emulator delivered later than this in a run (99th percentile).
    from_
        A `run.json`: run the same again. Other options given with it replace what it says.
    json_
        Print one JSON object a line for each run, and nothing else.
    out
        Folder for results and report. Default: a new one in `verus-results`; none with --json.
    force
        Replace the results in a folder that is not empty.
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
        at_least("jobs", 1 if jobs is None else jobs, 1, 1000)
    else:
        _refuse_real_time(transport, jobs, max_lateness_ms)
    store, keys = (None, ()) if target is None else _unfinished(runs, out, emulate=settings.emulate)
    with contextlib.nullcontext() if store is None else kept(store, keys):
        runs, outcomes, problems = sort_out(runs, _run(runs, settings, jobs or 1, store, keys, talk))
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
            _report(runs, outcomes, settings, target, talk, force=force, tell=not json_)
    if store is not None:
        store.remove()
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


def _report(
    runs: list[Run], outcomes: list[Outcome], settings: Settings, target: Path, talk: Talk, *, force: bool, tell: bool
) -> None:
    """Prints the table and writes the folder."""
    from verus import report, summary, table
    from verus.commands.tables import table_console
    from verus.results import Results

    results = summary.with_means(Results.collect(runs, outcomes, kind="compare", settings=settings.to_dict()))
    if tell and not talk.quiet:
        console = table_console()
        for block in table.comparison(results):
            console.print(block)
        console.print(DELAY_NOTE, style="dim")
        if settings.repeat > 1:
            console.print(INTERVAL_NOTE, style="dim")
        if results.has("late"):
            console.print(FRAMES_NOTE, style="dim")
        elif results.has("completions"):
            console.print(FILES_NOTE, style="dim")
    talk.detail("drawing")
    with new_folder(target, force=force) as folder:
        results.write(folder)
        report.write_page(results, folder)
    talk.say(f"Report: {target / 'report.html'}")


def _run(
    runs: list[Run], settings: Settings, jobs: int, store: Store | None, keys: Sequence[str], talk: Talk
) -> list[Ended]:
    """Runs everything; with a store, what is not in it yet."""
    with talk.progress("emulating" if settings.emulate else "simulating") as progress:
        if settings.emulate:
            from verus import emulation

            work = functools.partial(emulation.as_ended, jobs=jobs, progress=progress)
        elif store is None:
            return measure_each(runs, progress=progress)
        else:
            work = functools.partial(as_ended, progress=progress)
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
