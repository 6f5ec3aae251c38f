"""The page of a search: the gap from tuned to judged, the front, what each key does, and the finalists row by row."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from verus.lab.atomic_write import replace_whole
from verus.lab.nothing_arrived import SHARES
from verus.lab.repeats import PAIRED_NOTE
from verus.lab.tuning.folder import TuneFolder
from verus.lab.tuning.judging import EQUAL
from verus.lab.tuning.problem import HALVES, JUDGE, TUNE, key_text
from verus.lab.tuning.search import BROKEN, COMPLETE, STOPPED
from verus.report import figures, render
from verus.report.figures import Figure
from verus.report.grid import Cell, Grid, Line, note, paragraphs
from verus.report.numbers import DELAY_NOTE, number, percent
from verus.report.page import Page, Section, to_html

#: What the rows of each half are called.
_ROWS = {TUNE: "tuned rows", JUDGE: "judged rows"}

#: Rows of a table that a page has.
_MOST_ROWS = 500

#: Metrics that are shares, beside those that are None if nothing arrives.
_SHARES = {*SHARES, "utilization", "loss_rate", "path_loss_rate", "retransmit_rate"}

#: Units by the ends of names.
_UNITS = {"ms": "ms", "s": "s", "mbps": "Mbit/s"}

Json = Mapping[str, Any]


def write_tune_page(folder: TuneFolder) -> Path:
    """Draws `report.html` and `figures/` of a search; returns where the page is.

    Raises:
        OSError: Something cannot be read.
        ValueError: The folder holds no whole search, or no candidate is done.
    """
    search = folder.read(folder.search)
    judged = folder.read(folder.judged) if folder.judged.exists() else None
    if not search.get("candidates"):
        raise ValueError(f"`{folder.path}`: no candidate is done: `verus tune` tries them")
    try:
        made = tune_page(search, judged if judged and "senders" in judged else None)
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"`{folder.path}` is no whole search: {error!r}") from error
    path = folder.path / "report.html"
    with render.writing(list(made.figures()), folder.path / "figures"):
        replace_whole(path, to_html(made).encode())
    return path


def tune_page(search: Json, judged: Json | None) -> Page:
    """The page of what `search.json` and `judged.json` state."""
    drawn = [Section(title="Front", figures=_front(search, judged), after=front_table(search).html())]
    if search["importance"]:
        drawn.append(Section(title="Importance of the keys", figures=[_importance(search)]))
    drawn.append(Section(title="Slices", figures=[_slices(search, name) for name in search["keys"]]))
    sections = [
        *([] if judged is None else [Section(title="From tuned to judged", body=_gap(search, judged))]),
        *drawn,
        *([] if judged is None else [Section(title="Finalists, row by row", body=_row_by_row(search, judged))]),
        Section(title="All candidates", body=_candidates(search)),
        Section(title="The search", body=_about(search)),
    ]
    return Page(title=f"Verus: search {search['name']}", lead=_lead(search, judged), sections=sections)


def _aims(search: Json) -> list[str]:
    return [*search["most"], *search["least"]]


def _word(metric: str) -> str:
    """A metric with its unit.

    Example:
        >>> _word("qdelay_p95_ms"), _word("utilization"), _word("power")
        ('qdelay p95, ms', 'utilization, %', 'power')
    """
    name, _, unit = metric.rpartition("_")
    if metric in _SHARES:
        return f"{metric.replace('_', ' ')}, %"
    return f"{name.replace('_', ' ')}, {_UNITS[unit]}" if name and unit in _UNITS else metric.replace("_", " ")


def _text(metric: str, value: float | None, *, signed: bool = False) -> str:
    """A value of a metric for a column.

    Example:
        >>> _text("utilization", 0.914), _text("qdelay_p95_ms", 3.0, signed=True), _text("power", None)
        ('91.4', '+3.0', '–')
    """
    if value is None:
        return "–"
    shown = percent(value) if metric in _SHARES else number(value, 2 if abs(value) < 1 else 1)
    return f"+{shown}" if signed and value > 0 else shown


def _shown(metric: str, value: float) -> float:
    """A value as an axis has it: shares in percent."""
    return 100 * value if metric in _SHARES else value


def _keys(params: Json) -> str:
    return " ".join(f"{name}={key_text(value)}" for name, value in params.items())


def saved(search: Json) -> str:
    """How many simulations racing saved."""
    runs, seconds = search["runs"], search["simulated_s"]
    share = percent(1 - seconds["done"] / seconds["all"]) if seconds["all"] else "0.0"
    done = len(search["candidates"])
    stopped = sum(candidate["state"] == STOPPED for candidate in search["candidates"])
    return (
        f"{done} of {max(done, search['planned'])} candidates: {runs['done']} of {runs['all']} runs; racing "
        f"stopped {stopped} candidates and saved {share} % of the simulated time"
    )


def _lead(search: Json, judged: Json | None) -> str:
    """The gap from tuned to judged, or that there is no judgement."""
    if judged is None:
        return (
            "Not judged: every number here is of tuned rows, for which the candidates were chosen. "
            "`verus tune FILE --judge` judges the finalists on other rows."
        )
    finalists = _finalists(search, judged)
    if not finalists:
        return f"Each finalist failed on the judged rows. Judged on {judged['began']}, once."
    best = finalists[0]
    gaps = []
    for aim in _aims(search):
        if aim in best["gap"]:
            tuned, on_judged = (best["above"][half][aim]["mean"] for half in HALVES)
            gaps.append(
                f"{_text(aim, best['gap'][aim], signed=True)} in {_word(aim)} "
                f"({_text(aim, tuned, signed=True)} on tuned rows, {_text(aim, on_judged, signed=True)} on judged rows)"
            )
    return (
        f"Gap from tuned to judged: {'; '.join(gaps)}. This is how the difference between {best['scheme']}, the first "
        f"finalist, and {search['scheme']} changed. Judged on {judged['began']}, once."
    )


def _finalists(search: Json, judged: Json) -> list[Json]:
    """The finalists among the senders that were judged."""
    schemes = [search["candidates"][number]["scheme"] for number in judged["finalists"]]
    return [sender for sender in judged["senders"] if sender["scheme"] in schemes]


def _sender(search: Json, sender: Json) -> str:
    """A sender in a table: a finalist by its keys, the start, a rival by its name."""
    known = {candidate["scheme"]: candidate for candidate in search["candidates"]}
    if sender["scheme"] == search["scheme"]:
        return f"{sender['label']} (start)"
    if sender["scheme"] in known:
        candidate = known[sender["scheme"]]
        return f"#{candidate['number']} {_keys(candidate['params'])}"
    return str(sender["label"])


def judged_table(search: Json, judged: Json) -> Grid:
    """Each sender on both halves: means, and whether it is better than the start on the judged rows."""
    aims = _aims(search)
    words = [_word(aim).replace(", ", "\n") for aim in aims]
    heads = ["sender", *(f"{word}\n{half}" for word in words for half in ("tuned", "judged"))]
    heads += ["judged\nviolates"] if _bounded(search) else []
    rows = []
    for sender in judged["senders"]:
        is_start = sender["scheme"] == search["scheme"]
        cells = []
        for aim in aims:
            tuned, on_judged = (_text(aim, sender["means"][half][aim]) for half in HALVES)
            cells += [tuned, on_judged if is_start else f"{on_judged} {sender['verdicts'][JUDGE][aim]}"]
        cells += ["; ".join(sender["violates"])] if _bounded(search) else []
        rows.append([_sender(search, sender), *cells])
    return Grid(heads=heads, rows=rows)


def _gap(search: Json, judged: Json) -> Markup:
    """By how much each sender is above the start on each half, and what of it is left."""
    aims = _aims(search)
    heads = ["sender", *(f"{_word(aim)}\n{what}" for aim in aims for what in ("tuned", "judged", "gap"))]
    rows: list[Line] = []
    for sender in judged["senders"]:
        if sender["scheme"] == search["scheme"]:
            continue
        cells: list[str | Cell] = []
        for aim in aims:
            for half in HALVES:
                cells.append(_difference(aim, sender["above"][half].get(aim), sender["verdicts"][half][aim]))
            cells.append(_text(aim, sender["gap"].get(aim), signed=True))
        rows.append([_sender(search, sender), *cells])
    words = (
        f"By how much each sender is above the start ({search['scheme']}), row by row, on the tuned and on the judged "
        f"rows; the gap is the second less the first. `{EQUAL}`: the interval of the differences has 0 in it. "
        f"{PAIRED_NOTE}"
    )
    failures = paragraphs(f"{scheme} failed {why}" for scheme, why in judged["failed"].items())
    return (
        failures
        + Grid(heads=heads, rows=rows).html()
        + note(words)
        + judged_table(search, judged).html()
        + note(DELAY_NOTE)
    )


def _difference(aim: str, above: Json | None, verdict: str) -> Cell:
    if above is None:
        return Cell("–")
    half = above["half_width_95"]
    text = _text(aim, above["mean"], signed=True) + ("" if half is None else f" ± {_text(aim, half)}")
    return Cell(text, small=verdict)


def front_table(search: Json) -> Grid:
    """The candidates that no other beats in all aims, beside the start and its rivals, on the tuned rows."""
    metrics = [*_aims(search), *(name for name in _bounded(search) if name not in _aims(search))]
    rows = [
        [
            f"#{candidate['number']} {_keys(candidate['params'])}",
            *(_text(m, candidate["means"].get(m)) for m in metrics),
        ]
        for candidate in (search["candidates"][number] for number in search["front"])
    ]
    rows += [[_sender(search, one), *(_text(m, one["means"].get(m)) for m in metrics)] for one in search["fixed"]]
    return Grid(heads=["tuned rows", *map(_word, metrics)], rows=rows)


def _bounded(search: Json) -> list[str]:
    """Metrics of bounds."""
    return list(dict.fromkeys(bound.split()[0] for bound in search["bounds"] if not bound.startswith("check:")))


def _points(search: Json) -> list[tuple[str, Json]]:
    """The name of each point of the tuned rows, and its means."""
    front = set(search["front"])
    points = []
    for candidate in search["candidates"]:
        if candidate["state"] == COMPLETE:
            meets = all(value <= 0 for value in candidate["excess"].values())
            name = "front" if candidate["number"] in front else "other" if meets else "violates a bound"
            points.append((name, candidate["means"]))
        elif candidate["state"] == STOPPED:
            points.append(("stopped (estimate)", candidate["means"]))
    order = ("stopped (estimate)", "violates a bound", "other", "front")
    points.sort(key=lambda point: order.index(point[0]))
    return points + [(_sender(search, one), one["means"]) for one in search["fixed"]]


def _front(search: Json, judged: Json | None) -> list[Figure]:
    """Each aim against the first one, on the tuned rows, and on the judged rows if there are any."""
    aims = _aims(search)
    halves = {TUNE: _points(search)}
    if judged is not None:
        finalists = [sender["scheme"] for sender in _finalists(search, judged)]
        halves[JUDGE] = [
            ("front" if sender["scheme"] in finalists else _sender(search, sender), sender["means"][JUDGE])
            for sender in judged["senders"]
        ]
    if len(aims) == 1:
        return [_progress(search, aims[0])]
    drawn = []
    for aim in aims[1:]:
        rows = [
            {"name": name, "panel": _ROWS[half], "x": _shown(aim, means[aim]), "y": _shown(aims[0], means[aims[0]])}
            for half, points in halves.items()
            for name, means in points
            if means.get(aim) is not None and means.get(aims[0]) is not None
        ]
        drawn.append(
            figures.points(
                rows,
                name=figures.slug(f"front-{aims[0]}-{aim}"),
                title=f"{_word(aims[0])} against {_word(aim)}",
                caption=f"{_caption(search)} {_better(search, aims[0], aim)} Axes do not begin at 0.",
                x=_word(aim),
                y=_word(aims[0]),
                zero=False,
                columns=2,
                size=(440, 300),
                mark_size=60,
            )
        )
    return drawn


def _better(search: Json, up: str, across: str) -> str:
    """Where on a figure is better.

    Example:
        >>> _better({"most": ["utilization"]}, "utilization", "qdelay_p95_ms")
        'Up and left is better.'
    """
    return (
        f"{'Up' if up in search['most'] else 'Down'} and {'right' if across in search['most'] else 'left'} is better."
    )


def _caption(search: Json) -> str:
    count = {half: len(search["rows"][half]) for half in HALVES}
    return (
        f"Means over {count[TUNE]} tuned rows, of {len(search['candidates'])} candidates of {search['scheme']}; "
        f"finalists over {count[JUDGE]} judged rows, once they are judged."
    )


def _progress(search: Json, aim: str) -> Figure:
    """The one aim of each candidate, in the order of proposals."""
    rows = [
        {"name": "stopped (estimate)" if one["state"] == STOPPED else "complete", "x": one["number"], "y": y}
        for one in search["candidates"]
        if one["state"] != BROKEN and (y := _shown(aim, one["means"][aim])) is not None
    ]
    return figures.points(
        rows,
        name=figures.slug(f"progress-{aim}"),
        title=f"{_word(aim)} of each candidate",
        caption=f"{_caption(search)} Axes do not begin at 0.",
        x="candidate",
        y=_word(aim),
        zero=False,
        size=(860, 260),
    )


def _importance(search: Json) -> Figure:
    rows = [
        {"group": key, "name": _word(aim), "y": 100 * share}
        for aim, shares in search["importance"].items()
        for key, share in shares.items()
    ]
    rows.sort(key=lambda row: list(search["keys"]).index(row["group"]))
    return figures.bars(
        rows,
        name="importance",
        title="Importance of the keys",
        caption=(
            "The share of an aim's variance over the searched ranges that a key explains: fANOVA (Hutter, Hoos and "
            "Leyton-Brown, ICML 2014) by Optuna, over the candidates that ran all tuned rows."
        ),
        x="",
        y="share of the variance, %",
    )


def _slices(search: Json, name: str) -> Figure:
    """Each aim against a key, a panel for each aim."""
    key = search["keys"][name]
    listed = key.get("choices")
    rows = []
    for aim, candidate in itertools.product(_aims(search), search["candidates"]):
        if candidate["state"] == BROKEN or aim not in candidate["means"]:
            continue
        value = candidate["params"][name]
        rows.append(
            {
                "name": "stopped (estimate)" if candidate["state"] == STOPPED else "complete",
                "panel": _word(aim),
                "x": listed.index(value) + 1 if listed else float(value),
                "y": _shown(aim, candidate["means"][aim]),
            }
        )
    words = f" Values are {', '.join(map(key_text, listed))}, numbered from 1." if listed else ""
    return figures.points(
        rows,
        name=figures.slug(f"slice-{name}"),
        title=f"By {name}",
        caption=f"{_caption(search)} Axes do not begin at 0.{words}",
        x=name,
        y="mean",
        log_x=bool(key.get("log")),
        zero=False,
        columns=2,
        size=(440, 240),
    )


def _row_by_row(search: Json, judged: Json) -> Markup:
    """For each half and aim a table: a line for each row, a column for each sender."""
    parts = Markup()
    numbers = {
        candidate["scheme"]: f"#{candidate['number']}"
        for candidate in search["candidates"]
        if candidate["number"] in judged["finalists"]
    }
    heads = [
        "start" if sender["scheme"] == search["scheme"] else numbers.get(sender["scheme"], sender["label"])
        for sender in judged["senders"]
    ]
    for half, aim in itertools.product((JUDGE, TUNE), _aims(search)):
        rows: list[Line] = [
            [_row_name(row), *(_text(aim, sender["rows"][half][at].get(aim)) for sender in judged["senders"])]
            for at, row in enumerate(search["rows"][half][:_MOST_ROWS])
        ]
        parts += Grid(heads=[_ROWS[half], *heads], rows=rows, title=f"{_word(aim)}, {_ROWS[half]}").html()
    return parts


def _row_name(row: Json) -> str:
    flows = row.get("mix") or f"{row['flows']} flow{'s' if row['flows'] > 1 else ''}"
    part = [row["part"]] if row["part"] else []
    return ", ".join([*part, row["trace"], flows, row["queue"], f"{row['delay_ms']:g} ms", f"seed {row['seed']}"])


def _candidates(search: Json) -> Markup:
    """Every candidate by its first aim, the best first; broken ones last."""
    aims = _aims(search)
    sign = 1 if aims[0] in search["most"] else -1

    def place(candidate: Json) -> tuple[bool, float]:
        return candidate["state"] == BROKEN, -sign * candidate["means"].get(aims[0], 0.0)

    rows: list[Line] = []
    for candidate in sorted(search["candidates"], key=place)[:_MOST_ROWS]:
        bounds = [text for text, value in candidate["excess"].items() if value > 0]
        rows.append(
            [
                f"#{candidate['number']} {_keys(candidate['params'])}",
                candidate["state"],
                str(candidate["rows"]),
                *(_text(aim, candidate["means"].get(aim)) for aim in aims),
                Cell("; ".join(bounds) or candidate["why"], "text"),
            ]
        )
    heads = ["candidate", "state", "rows", *map(_word, aims), "violates, or why it is broken"]
    left = len(search["candidates"]) - len(rows)
    words = f"{saved(search)}. Of tuned rows; of a stopped candidate an estimate from the rows that it ran."
    return Grid(heads=heads, rows=rows).html() + note(words + (f" {left} more are in `search.json`." if left else ""))


def _about(search: Json) -> Markup:
    keys: list[Line] = [
        [name, Cell(", ".join(f"{word} {value}" for word, value in key.items()), "text")]
        for name, key in search["keys"].items()
    ]
    words = [
        f"Scheme {search['scheme']}; sampler {search['sampler']}; engine {search['engine']}.",
        f"Most {', '.join(search['most']) or 'of nothing'}; least {', '.join(search['least']) or 'of nothing'}; bounds "
        f"{', '.join(search['bounds']) or 'none'}. Each is a mean over the rows.",
    ]
    return Grid(heads=["key", "values"], rows=keys).html() + paragraphs(words)
