"""`verus model`: inspect models that `verus train` wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from verus import _verus
from verus.commands.options import Flag, Json, count, one
from verus.commands.tables import narrow_table, table_console
from verus.commands.talk import tell_rows
from verus.errors import FieldError
from verus.lab.atomic_write import refuse_existing, write_whole
from verus.report.numbers import size


def info(
    names: Annotated[list[Path], Parameter(name="MODEL", negative="")],
    /,
    *,
    plot: Annotated[Path | None, one("FILE")] = None,
    zoom: Annotated[int | None, count("MS")] = None,
    force: Flag = False,
    json_: Json = False,
) -> None:
    """States, ranges, density and sizes of a model; and its matrix as Figs. 5 and 6 of the paper.

    Parameters
    ----------
    names
        Files that `verus train` wrote.
    plot
        Draw the matrix of the (only) model: `.svg`, `.png` or `.pdf` has the first ten quantization steps, as Figs. 5a
        and 6a; `.html` is a page of the whole matrix, with zoom.
    zoom
        With --plot, draw only the quantization step that contains this delay, in ms, as Figs. 5b and 6b.
    force
        Replace a file that exists.
    json_
        Print one JSON object a line for each model.
    """
    models = [_verus.model_info(str(name)) for name in names]
    if zoom is not None and plot is None:
        raise FieldError("zoom", "needs --plot")
    if plot is not None:
        from verus.report import render

        if len(names) != 1:
            raise FieldError("plot", f"draws one model, not {len(names)}")
        if plot.suffix not in (*render.FORMATS, ".html"):
            raise FieldError("plot", f"`{plot}` must end in .svg, .png, .pdf or .html")
        if plot.suffix == ".html" and zoom is not None:
            raise FieldError("zoom", "is for pictures: a page has all of the matrix")
        refuse_existing(plot, force=force, field="plot")
        low, high = models[0]["delay_min_ms"], models[0]["delay_max_ms"]
        if zoom is not None and not low <= zoom <= high:
            raise FieldError("zoom", f"must be between {low} and {high} ms, not {zoom}")
        write_whole(plot, _drawn(names[0], models[0], plot.suffix, zoom), field="plot")
    if json_:
        tell_rows(models)
    else:
        show(models)


def _drawn(path: Path, about: dict[str, Any], suffix: str, zoom_ms: int | None) -> bytes:
    """The matrix as a file of this kind."""
    from verus.report import render
    from verus.report.figures.matrix import matrix, whole
    from verus.report.page import Page, Section, to_html

    if suffix == ".html":
        drawn_whole = whole(path, about)
        lead = (
            f"{about['elements']:,} transitions between {about['states_visited']:,} states of delay d and window w "
            "that were seen."
        )
        if len(drawn_whole) > 1:
            lead += " Each picture is a part of the diagonal; transitions between these parts are not drawn."
        section = Section(title="Transitions", figures=drawn_whole)
        return to_html(Page(title=f"Verus: the matrix of {path.name}", lead=lead, sections=[section])).encode()
    return render.picture(matrix(path, about, zoom_ms=zoom_ms).spec, suffix)


def show(models: Sequence[dict[str, Any]]) -> None:
    """Models as a table on standard output, a column each."""
    table = narrow_table("model")
    for entry in models:
        table.add_column(str(entry["name"]), justify="right", overflow="fold")
    rows: dict[str, Callable[[dict[str, Any]], str]] = {
        "d, ms": lambda e: f"{e['delay_min_ms']} to {e['delay_max_ms']}, by {e['quantization_ms']}",
        "w, packets an epoch": lambda e: f"{e['window_min_packets']} to {e['window_max_packets']}",
        "states m (Eq. 6)": lambda e: f"{e['matrix_size']:,}",
        "  the paper's, Table 2": lambda e: f"{e['paper_matrix_size']:,}",
        "states visited": lambda e: f"{e['states_visited']:,}",
        "elements not empty": lambda e: f"{e['elements']:,}",
        "density": lambda e: f"{e['density']:.3%}",
        "samples": lambda e: f"{e['samples']:,}",
        "  left out as outliers": lambda e: f"{e['outliers']:,} (beyond {e['percentile']:g} %)",
        "transitions": lambda e: f"{e['transitions']:,}",
        "file": lambda e: size(e["file_bytes"]),
        "  as CSV": lambda e: size(e["csv_bytes"]),
        "  the paper's CSV, Table 2": lambda e: _PAPER_CSV.get(e["quantization_ms"], "–"),
        "scheme": lambda e: e["scheme"] or "–",
        "users": lambda e: ", ".join(map(str, e["users"])) or "–",
        "channels": lambda e: ", ".join(e["channels"]) or "–",
        "seconds a run": lambda e: f"{e['duration_s']:g}",
        "seeds": lambda e: _span(e["seeds"]),
    }
    for name, text in rows.items():
        table.add_row(name, *(text(entry) for entry in models))
    table_console().print(table)


#: Sizes of the comma-separated file in Table 2, by quantization.
_PAPER_CSV = {1: "2.4 GB", 2: "620 MB", 5: "100 MB", 10: "25 MB", 20: "7 MB"}


def _span(seeds: Sequence[int]) -> str:
    if not seeds:
        return "–"
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
