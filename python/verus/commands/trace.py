"""`verus trace`: look at traces, make them, convert them, fetch public recordings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from verus import _verus
from verus.commands.options import COUNT, SECONDS, Flag, Json, one
from verus.commands.tables import narrow_table, table_console
from verus.commands.talk import Talk, tell, tell_rows
from verus.errors import FieldError, flag_of
from verus.lab.arguments import above_zero, check_seed, checked
from verus.lab.atomic_write import refuse_existing, write_whole
from verus.lab.inputs import cut_warnings
from verus.report.numbers import value_text
from verus.trace import LONGEST_GENERATED_S


def info(
    names: Annotated[list[str], Parameter(name="TRACE", negative="")],
    /,
    *,
    json_: Json = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> None:
    """Statistics of a trace: rate, variation at three time scales, outages.

    Parameters
    ----------
    names
        Trace files or names of channels (`verus list channels`).
    json_
        Print one JSON object a line for each trace.
    """
    traces = [_verus.trace_info(name) for name in names]
    for warning in cut_warnings({"trace": name} for name in names):
        talk.say(f"Warning: {warning}")
    if json_:
        tell_rows(traces)
        return
    table = narrow_table("statistic")
    for entry in traces:
        table.add_column(str(entry["name"]), justify="right", overflow="fold")
    for key in dict.fromkeys(key for entry in traces for key in entry if key != "name"):
        values = (entry.get(key) for entry in traces)
        table.add_row(key, *(value_text(one) if isinstance(one, float | None) else str(one) for one in values))
    table_console().print(table)


def plot(
    name: str,
    /,
    *,
    out: Annotated[Path | None, one("FILE")] = None,
    seed: Annotated[int, COUNT] = 1,
    duration: Annotated[float, SECONDS] = 60.0,
    force: Flag = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> None:
    """Draw a trace's rate over time, in bins of 100 ms and 1 s.

    Parameters
    ----------
    name
        A trace file or the name of a channel.
    out
        File to write: `.svg`, `.png`, `.pdf` or `.html`. Default: the trace's name as `.svg`.
    seed
        Random seed of a built-in channel.
    duration
        Duration of a built-in channel, in seconds or as `2m`.
    force
        Replace a file that exists.
    """
    above_zero("duration_s", duration, "seconds", LONGEST_GENERATED_S)
    check_seed(seed)
    checked("trace", name, _verus.check_channel)
    from verus.report import figures, page, render

    target = out or Path(f"{figures.slug(Path(name).name)}.svg")
    if target.suffix not in (*render.FORMATS, ".html"):
        raise FieldError("out", f"`{target}` must end in .svg, .png, .pdf or .html")
    refuse_existing(target, force=force)
    times = _verus.trace_read(name, seed, duration)["times_ms"]
    for warning in cut_warnings([{"trace": name}]):
        talk.say(f"Warning: {warning}")

    figure = figures.trace_rate(name, times)
    if target.suffix == ".html":
        section = page.Section(title=figure.title, figures=[figure])
        content = page.to_html(page.Page(title=figure.title, lead="", sections=[section])).encode()
    else:
        content = render.picture(figure.spec, target.suffix)
    write_whole(target, content)
    tell(str(target))


def convert(
    raw: Path,
    out: Path,
    /,
    *,
    rates: Flag = False,
    force: Flag = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> None:
    """Turn a log of packet arrivals (Unix times in seconds, one a line) into a trace.

    Parameters
    ----------
    raw
        The log, or with --rates a series of rates.
    out
        The trace to write: plain, `.gz` or `.xz` by its ending.
    rates
        RAW is a series of rates: a CSV file with the header `start_s,end_s,mbps`. Such a file, if its name ends in
        `.csv`, can also be used as a channel directly.
    force
        Replace a file that exists.
    """
    refuse_existing(out, force=force, field="name")
    times, period_ms = _verus.trace_convert(str(raw), rates)
    if rates:
        # A trace lasts until its last opportunity. At the end of its millisecond rather than at its beginning, the last
        # one of a series that is not silent there is at the end of the series.
        times = times + 1
    if warning := _verus.cut_warning(raw):
        talk.say(f"Warning: {warning}")
    _verus.trace_write(times, str(out))
    last_ms = int(times[-1])
    missing = f" (a trace ends with its last opportunity, {(period_ms - last_ms) / 1000:g} s before the end of `{raw}`)"
    tell(f"{out}: {len(times)} opportunities, {last_ms / 1000:g} s{missing if period_ms > last_ms else ''}")


def generate(
    name: str,
    out: Path,
    /,
    *,
    seed: Annotated[int, COUNT] = 1,
    duration: Annotated[float, SECONDS] = 60.0,
    force: Flag = False,
) -> None:
    """Write a synthetic channel as a trace file.

    Parameters
    ----------
    name
        A built-in channel (`verus list channels`).
    out
        The trace to write: plain, `.gz` or `.xz` by its ending.
    seed
        Random seed; the same seed gives the same trace.
    duration
        Duration, in seconds or as `2m`.
    force
        Replace a file that exists.
    """
    above_zero("duration_s", duration, "seconds", LONGEST_GENERATED_S)
    check_seed(seed)
    refuse_existing(out, force=force, field="name")
    times = _verus.trace_generate(name, seed, duration)
    _verus.trace_write(times, str(out))
    tell(f"{out}: {len(times)} opportunities, {int(times[-1]) / 1000:g} s")


def fetch(
    names: Annotated[list[str] | None, Parameter(name="NAME", negative="")] = None,
    /,
    *,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> int:
    """Download public recordings, check them, and keep them in the cache.

    Without a name it lists the recordings. They are not part of Verus: `verus list channels` has the licence of each
    and the paper to cite.

    Parameters
    ----------
    names
        Recordings (`cs244-2017/city_drive_2min`) or groups of them (`cs244`).
    """
    from verus.lab import fetch as fetching

    if not names:
        for recording in fetching.recordings():
            print(f"{recording.name}  ({', '.join(recording.groups)})  {recording.licence}")
        return 0
    failures = []
    chosen = fetching.select(names)
    for recording in chosen:
        try:
            with talk.progress_bytes(recording.name) as progress:
                path, fresh = fetching.fetch(recording, progress=progress)
        except fetching.FetchError as error:
            failures.append(str(error))
            continue
        talk.say(f"{recording.name}: {path}" + ("" if fresh else " (already there)"))
        if fresh:
            talk.say(f"  licence: {recording.licence}; cite: {recording.paper}")
    if len(chosen) > 1 and failures:
        several = fetching.FetchError(f"{len(failures)} of {len(chosen)} recordings could not be fetched:")
        for failure in failures:
            several.add_note(failure)
        raise several
    if failures:
        raise fetching.FetchError(failures[0])
    return 0


def fit(
    name: str,
    /,
    *,
    json_: Json = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> int:
    """Fit models to a recording or to a log, as options of `verus compare`.

    A recording has a rate: constant, or the nearest built-in channel. A log of packets has losses (Gilbert and Elliott,
    or four states) and jitter, and a link log has a rate and losses. Beside each is the distance of Kolmogorov and
    Smirnov between a fit of the first half and the second half.
    It is 0 where both distributions agree, and at most 1.

    Parameters
    ----------
    name
        A trace file, the name of a channel, or a log. A log is a folder of `verus compare --records` with one run, a
        CSV file with the header `sent_ms,received_ms` and a line for each packet, without a second number if lost, or
        a link log of Mahimahi.
    json_
        Print one JSON object a line for each model, with histograms.
    """
    from verus.lab import fitting

    path = Path(name)
    fits: list[fitting.Fit] = []
    problems = []
    works: dict[str, Callable[[], fitting.Fit | None]] = {}
    try:
        if fitting.is_log(path):
            packets = fitting.read_packets(path)
            works = {
                "loss": lambda: fitting.fit_loss(packets.lost),
                "jitter": lambda: fitting.fit_jitter(packets.delays_ms),
            }
        elif path.is_file() and (log := fitting.read_link_log(path)):
            works = {"rate": lambda: fitting.fit_rate(log.times_ms), "loss": lambda: fitting.fit_loss(log.lost)}
    except ValueError as error:
        raise FieldError("name", str(error)) from error
    warnings: list[str] = []
    if works:
        cut_off = _verus.cut_warning(path) if path.is_file() else None
        warnings += [] if cut_off is None else [cut_off]
        for model, work in works.items():
            try:
                result = work()
            except ValueError as error:
                problems.append(f"{model}: {error}")
                continue
            fits += [result] if result is not None else []
            problems += [] if result is not None else [f"{model}: all packets took equally long"]
    else:
        checked("name", name, _verus.check_channel)
        try:
            channel = _verus.trace_read(name)
            fits.append(fitting.fit_rate(channel["times_ms"], channel["period_ms"]))
        except ValueError as error:
            raise FieldError("name", str(error)) from error
        warnings += cut_warnings([{"trace": name}])
    for warning in warnings:
        talk.say(f"Warning: {warning}")
    for problem in problems:
        talk.say(f"No fit of {problem}")
    if json_:
        tell_rows(entry.to_dict() for entry in fits)
        return 0 if fits else 1
    table = narrow_table("model", "what is compared", "KS", whole=1)
    for entry in fits:
        table.add_row(entry.model, entry.method, "")
        for quantity in entry.quantities:
            table.add_row("", quantity.name, f"{quantity.ks_distance:.3f}")
    if fits:
        table_console().print(table)
        tell(" ".join(f"{flag_of(field)} {value}" for entry in fits for field, value in entry.settings.items()))
    return 0 if fits else 1
