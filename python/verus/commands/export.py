"""The table of a comparison for other programs: CSV with full precision, Markdown and LaTeX with rounded numbers."""

from __future__ import annotations

from collections.abc import Sequence

from verus.lab.results import Results
from verus.report.grid import to_csv
from verus.report.printable import line
from verus.report.summary import NUMBERS, blocks
from verus.report.table import columns


def text(results: Results, kind: str) -> str:
    """The table as text that ends with a new line.

    Args:
        results: The results. Each contestant on each channel and queue has a line, the mean over
            its seeds, and below a mix each of its schemes has one.
        kind: `csv`, `markdown` or `latex`.
    """
    return {"csv": _csv, "markdown": _markdown, "latex": _latex}[kind](results)


def _csv(results: Results) -> str:
    heads = ["trace", "queue", "scheme", "flows", "runs", *NUMBERS, *(f"{name}_half_width_95" for name in NUMBERS)]
    rows: list[list[object]] = [[*heads]]
    for block in blocks(results):
        for cell in block.cells:
            for name, shown in [(cell.label, cell), *((f"{cell.label}: {part.label}", part) for part in cell.parts)]:
                numbers = [shown[key] for key in NUMBERS] + [shown.halves[key] for key in NUMBERS]
                rows.append([block.trace, block.queue, name, shown.flows, len(shown.runs), *numbers])
    return to_csv(rows)


def _grids(results: Results) -> list[tuple[str, list[str], list[list[str]]]]:
    """The name, the heads (each on one line) and the rows of each block."""
    grids = []
    for block in blocks(results):
        heads, rows = columns(block)
        flat = [[" ".join(text.split("\n")) for text in texts] for texts in (heads, *rows)]
        grids.append((f"{line(block.short)}, {line(block.queue)}", flat[0], flat[1:]))
    return grids


def _markdown(results: Results) -> str:
    parts = []
    for title, heads, rows in _grids(results):
        lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
        parts.append(f"**{title}**\n\n" + "".join(f"| {' | '.join(map(_bar, cells))} |\n" for cells in lines))
    return "\n".join(parts)


def _bar(text: str) -> str:
    return text.replace("|", r"\|")


def _latex(results: Results) -> str:
    """For the package booktabs."""
    parts = []
    for title, heads, rows in _grids(results):
        body = [_row(heads), r"\midrule", *map(_row, rows)]
        made = [f"% {title}", rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}", r"\toprule", *body]
        parts.append("\n".join([*made, r"\bottomrule", r"\end{tabular}", ""]))
    return "\n".join(parts)


def _row(cells: Sequence[str]) -> str:
    return " & ".join(map(_escaped, cells)) + r" \\"


#: Characters that mean something in LaTeX, escaped.
_LATEX = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "×": r"$\times$",
    "±": r"$\pm$",
}


def _escaped(text: str) -> str:
    shown = "".join(_LATEX.get(letter, letter) for letter in text)
    return rf"\quad {shown.lstrip()}" if shown.startswith(" ") else shown
