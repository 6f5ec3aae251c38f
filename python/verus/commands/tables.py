"""Tables on standard output, in letters that the terminal can show."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table

from verus.report.printable import escaped

#: Columns for tables where the terminal does not report its width.
_WIDE = 110


def table_console(*, markup: bool = False) -> TableConsole:
    """A console on standard output for tables: as wide as the terminal, and never too narrow for one.

    Args:
        markup: Whether text may have rich's markup in it; untrusted names must not.
    """
    console = TableConsole(markup=markup, emoji=False)
    if not console.is_terminal or console.width < 80:
        console.width = 80 if console.is_terminal else _WIDE
    console.push_render_hook(_Plainly())
    return console


def narrow_table(*heads: str, whole: int = 1, **look: Any) -> Table:
    """A table without outer edges, whose first `whole` columns are never wrapped."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, **look)
    for position, head in enumerate(heads):
        table.add_column(head, no_wrap=position < whole)
    return table


def middle_out(texts: Iterable[str], width: int) -> dict[str, str]:
    """Each text in at most so many characters, without its middle; in more where two would be the same.

    Example:
        >>> list(middle_out(["campus-pedestrian-3g-down", "campus-pedestrian-3g-up", "rate:5"], 13).values())
        ['campus…g-down', 'campus…-3g-up', 'rate:5']
        >>> list(middle_out(["aaaa-1-zzzz", "aaaa-2-zzzz"], 7).values())
        ['aaaa-1-zzzz', 'aaaa-2-zzzz']
    """
    distinct = list(dict.fromkeys(texts))
    longest = max(map(len, distinct), default=0)
    for most in range(max(width, 3), longest):
        tail = (most - 1) // 2
        shown = [text if len(text) <= most else f"{text[: most - 1 - tail]}…{text[-tail:]}" for text in distinct]
        if len(set(shown)) == len(distinct):
            return dict(zip(distinct, shown, strict=True))
    return {text: text for text in distinct}


class TableConsole(Console):
    """A console that prints tables in full width where standard output is no terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Prints as `Console` does, but tables in full width."""
        usual = self.width
        if not self.is_terminal:
            self.width = max([usual, *(self._measured(one).minimum for one in objects if isinstance(one, Table))])
        super().print(*objects, **options)
        self.width = usual

    def natural_width(self, table: Table) -> int:
        """The width of a table without any limit."""
        return self._measured(table).maximum

    def _measured(self, table: Table) -> Measurement:
        return self.measure(table, options=self.options.update(max_width=sys.maxsize))


class _Plainly(RenderHook):
    """Replaces letters that the terminal lacks, after tables are laid out and before they get colours."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Plain(renderable) for renderable in renderables]


@dataclass(frozen=True)
class _Plain:
    inner: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.inner, options):
            if segment.control:
                yield segment
                continue
            for index, text in enumerate(segment.text.split("\n")):
                if index:
                    yield Segment.line()
                if text:
                    yield Segment(escaped(text), segment.style)
