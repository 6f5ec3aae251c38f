"""Messages: progress on a terminal, sentences on standard error, results on standard output."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from verus.lab.runner import Progress
from verus.report.printable import line, rows

if TYPE_CHECKING:  # a download takes what nothing else does
    from verus.lab.fetch import ByteProgress


@Parameter(name="*")
@dataclass(frozen=True)
class Talk:
    """The amount of messages.

    Attributes:
        verbose: Report progress in detail, and print the traceback of an error.
        quiet: Print errors only.
    """

    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="", show_default=False)] = False
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", show_default=False)] = False

    def say(self, text: str) -> None:
        """Prints a line about the work, unless `quiet` is set."""
        if not self.quiet:
            print(line(text), file=sys.stderr)

    def detail(self, text: str) -> None:
        """Prints a line of detail, if `verbose` is set."""
        if self.verbose:
            print(line(text), file=sys.stderr)

    @contextlib.contextmanager
    def progress(self, what: str) -> Iterator[Progress | None]:
        """A progress bar on standard error while the block runs, if that is a terminal.

        Prints of controllers go there, too.
        """
        with contextlib.redirect_stdout(sys.stderr), self._bar(what) as progress:
            yield progress

    @contextlib.contextmanager
    def _bar(self, what: str) -> Iterator[Progress | None]:
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[told]}"))
        began = time.monotonic()
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=1.0, told="")

            def tell(done: int, total: int, fraction: float) -> None:
                remaining = time_left(time.monotonic() - began, fraction)
                bar.update(task, completed=fraction, told=f"{done}/{total}{remaining}")

            yield tell

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Names the block's work on standard error while it runs, if that is a terminal; with `-v` anywhere."""
        if self.quiet or not sys.stderr.isatty():
            self.detail(what)
            yield
            return
        from rich.console import Console

        with Console(stderr=True, markup=False).status(f"{line(what)} …"):
            yield

    @contextlib.contextmanager
    def progress_bytes(self, what: str) -> Iterator[ByteProgress | None]:
        """The same for a download."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
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


def time_left(elapsed_s: float, fraction: float) -> str:
    """The estimated remaining time, at the speed so far, to follow a count; empty before anything is done.

    Example:
        >>> time_left(30.0, 0.25), time_left(0.2, 0.0)
        (', 1:30 left', '')
    """
    if fraction <= 0:
        return ""
    remaining_s = round(elapsed_s * (1 - fraction) / fraction)
    hours, minutes = f"{remaining_s // 3600}:" if remaining_s >= 3600 else "", remaining_s // 60 % 60
    return (
        f", {hours}{minutes:02d}:{remaining_s % 60:02d} left" if hours else f", {minutes}:{remaining_s % 60:02d} left"
    )


def tell(text: str) -> None:
    """Prints a line of the result."""
    print(line(text))


def tell_rows(values: Iterable[Any]) -> None:
    """Prints lines of the result for a program: each value as JSON."""
    if text := rows(values):
        print(text)
