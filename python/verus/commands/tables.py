"""Tables on standard output, in letters that are to be seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.segment import Segment
from rich.table import Table

from verus.report.printable import escaped

#: Columns for tables where the terminal does not say how many it has.
_WIDE = 110


def table_console(*, markup: bool = False) -> Console:
    """Standard output for tables: as wide as the terminal, and never too narrow for one.

    Args:
        markup: Whether text may have rich's markup in it, which names that others chose must not.
    """
    console = Console(markup=markup, emoji=False)
    if not console.is_terminal or console.width < 80:
        console.width = 80 if console.is_terminal else _WIDE
    console.push_render_hook(_Plainly())
    return console


def narrow_table(*heads: str, whole: int = 1, **look: Any) -> Table:
    """A table without outer edges; its first columns, as many as are to be `whole`, are never wrapped."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, **look)
    for position, head in enumerate(heads):
        table.add_column(head, no_wrap=position < whole)
    return table


class _Plainly(RenderHook):
    """Puts what tables say into letters that are to be seen, after they were laid out and before they get colours."""

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
