"""What a person sees: progress on a terminal, words on standard error, tables on standard output."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from verus.fetch import ByteProgress
from verus.runner import Progress

#: Columns for tables where the terminal does not say how many it has.
_WIDE = 110


@Parameter(name="*")
@dataclass(frozen=True)
class Talk:
    """How much is said.

    Attributes:
        verbose: Say what is being done, and where an error comes from.
        quiet: Say nothing but errors.
    """

    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="", show_default=False)] = False
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", show_default=False)] = False

    def say(self, text: str) -> None:
        """A line about the work, unless asked to be quiet."""
        if not self.quiet:
            print(text, file=sys.stderr)

    def detail(self, text: str) -> None:
        """A line for those who asked for more."""
        if self.verbose:
            print(text, file=sys.stderr)

    @contextlib.contextmanager
    def progress(self, what: str) -> Iterator[Progress | None]:
        """A progress bar on standard error while the block runs, if that is a terminal."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)

            def tell(done: int, total: int, fraction: float) -> None:
                bar.update(task, total=total, completed=min(round(fraction * total), done if fraction >= 1 else total))

            yield tell

    @contextlib.contextmanager
    def progress_bytes(self, what: str) -> Iterator[ByteProgress | None]:
        """The same for a download."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from rich.progress import BarColumn, DownloadColumn, TextColumn
        from rich.progress import Progress as Bar

        with Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            console=Console(stderr=True),
            transient=True,
        ) as bar:
            task = bar.add_task(what, total=None)
            yield lambda got, total: bar.update(task, total=total, completed=got)


def table_console() -> Console:
    """Standard output for tables: as wide as the terminal, and never too narrow for one."""
    console = Console()
    if not console.is_terminal:
        return Console(width=_WIDE)
    return console if console.width >= 80 else Console(width=80)
