"""Tables on standard output, in letters that are to be seen."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.segment import Segment

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
