"""A table of texts, and its forms for a terminal, a page, a document and a program."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich import box
from rich.table import Table

#: The templates of pages. Every text that is no markup already is escaped.
TEMPLATES = Environment(
    loader=PackageLoader("verus.report", "."),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


@dataclass(frozen=True)
class Cell:
    """A text with its look on a page.

    Attributes:
        text: Its text; escaped if it is no `Markup`.
        kind: Its class in the page's style sheet.
        small: The text below it, in small letters.
        swatch: Its colour, as a dot before the text.
        hint: Its tooltip.
    """

    text: str
    kind: str = ""
    small: str = ""
    swatch: str = ""
    hint: str = ""


#: The cells of a row.
Line = Sequence[str | Cell]


class Row(tuple[str | Cell, ...]):
    """The cells of a row with a special look, by its class in the page's style sheet."""

    kind = ""

    @classmethod
    def of(cls, kind: str, cells: Iterable[str | Cell]) -> Row:
        """A row of that kind."""
        made = cls(cells)
        made.kind = kind
        return made


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table.

    Attributes:
        heads: The heads of the columns; a line break in one is kept in the table.
        rows: Rows of cells, the first of each being its name.
        title: One line; `Markup` is not escaped.
    """

    heads: Line
    rows: Sequence[Line]
    title: str = ""

    def terminal(self, *, title: str = "", caption: str | None = None) -> Table:
        """For a terminal: names to the left, values to the right."""
        shown = title or self.title or None
        table = Table(title=shown, caption=caption, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
        for position, head in enumerate(self.heads):
            table.add_column(_text(head), justify="right" if position else "left", no_wrap=not position)
        for row in self.rows:
            table.add_row(*map(_text, row))
        return table

    def html(self) -> Markup:
        """For a page."""
        return Markup(_table(self))

    def markdown(self) -> list[str]:
        r"""The lines of a Markdown table; texts of cells are Markdown already, and missed values are bold.

        Example:
            >>> print(*Grid(heads=["sender", "p95"], rows=[["Cubic", "90 ms"]]).markdown(), sep="\n")
            | sender | p95 |
            |---|---|
            | Cubic | 90 ms |
        """
        lines = [f"| {' | '.join(map(_marked, row))} |" for row in (self.heads, *self.rows)]
        return [lines[0], "|" + "---|" * len(self.heads), *lines[1:]]

    def cells(self) -> Iterable[list[str]]:
        """A line for each cell: the name of its row, the head of its column, and its text."""
        for name, *row in self.rows:
            for head, cell in zip(self.heads[1:], row, strict=True):
                yield [_text(name), _text(head), _text(cell)]


def _text(cell: str | Cell) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def _marked(cell: str | Cell) -> str:
    return f"**{cell.text}**" if isinstance(cell, Cell) and cell.kind == "missed" else _text(cell)


def to_csv(rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def facts(rows: Iterable[tuple[str, str]], *, title: str = "") -> Markup:
    """A short table for a page: names and values."""
    return Grid(heads=["", ""], rows=list(rows), title=title).html()


def paragraphs(texts: Iterable[str]) -> Markup:
    """Sentences for a page, each a paragraph."""
    return Markup("").join(Markup("<p>{}</p>").format(text) for text in texts)


def note(text: str) -> Markup:
    """A paragraph in small letters, for a page."""
    return Markup("<p class=note>{}</p>").format(text)


_table: Callable[[Grid], str] = getattr(TEMPLATES.get_template("table.html").module, "table")  # noqa: B009
