"""Standard output and error: a failure to print costs no result, and every terminal gets readable text.

The work goes on and writes its results if the reader closes a pipe (`| head -2`), the disk is full,
or the terminal lacks our letters.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast

#: The name of the error handler for letters that an encoding lacks.
_PLAINLY = "verus-plainly"


class Printed:
    """The state of standard output.

    Attributes:
        problem: Why it could not be written, or None. A closed pipe is no problem.
    """

    problem: str | None = None

    def fail(self, error: OSError) -> None:
        """Keeps the first error as the problem."""
        if error.errno != errno.EPIPE and self.problem is None:
            self.problem = error.strerror or str(error)


@contextlib.contextmanager
def patient() -> Iterator[Printed]:
    """Prints as much of the block's output as possible; failures to print raise nothing."""
    printed = Printed()
    before = sys.stdout, sys.stderr
    _open_closed()
    sys.stdout = cast("TextIO", _Patient(sys.stdout or _Nowhere(), printed))
    sys.stderr = cast("TextIO", _Patient(sys.stderr or _Nowhere(), Printed()))
    try:
        yield printed
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


def _open_closed() -> None:
    """Opens standard streams that were closed (`>&-`), since a file of ours would take their number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


class _Nowhere(io.StringIO):
    """A stand-in for a stream that was closed before we began: it discards everything."""

    def write(self, text: str) -> int:
        """Discards the text."""
        return len(text)


class _Patient:
    """A stream that is written to until it fails, and discards everything after that."""

    def __init__(self, stream: TextIO, printed: Printed) -> None:
        self._stream = stream
        self._printed = printed
        self._gone = False
        if _is_narrow(stream.encoding):
            with contextlib.suppress(AttributeError):
                stream.reconfigure(errors=_PLAINLY)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes the text, if that is still possible."""
        try:
            if not self._gone:
                self._stream.write(text)
        except OSError as error:
            self._leave(error)
        return len(text)

    def flush(self) -> None:
        """Flushes the stream, if that is still possible."""
        try:
            if not self._gone:
                self._stream.flush()
        except OSError as error:
            self._leave(error)

    def _leave(self, error: OSError) -> None:
        self._gone = True
        self._printed.fail(error)
        # The rest of the stream's buffer goes nowhere: Python flushes it once more at its end.
        with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), self._stream.fileno())


def _is_narrow(encoding: str | None) -> bool:
    """Whether an encoding lacks some letters."""
    try:
        return codecs.lookup(encoding or "utf-8").name not in ("utf-8", "utf-16", "utf-32")
    except LookupError:
        return False


#: A replacement for each of our letters that an encoding lacks; one letter, so that tables stay
#: aligned.
_ALIKE = {"·": "-", "–": "-", "—": "-", "−": "-", "×": "x", "±": "~", "≤": "<", "≥": ">", "→": ">", "…": "."}


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """The error handler for letters that an encoding lacks: similar ASCII text."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(letter: str) -> str:
    r"""A letter in ASCII: a similar one, or its name, or its escape.

    Example:
        >>> "".join(map(_plain, "δ₁ · W² ± 资"))
        'delta1 - W2 ~ \\u8d44'
    """
    if alike := _ALIKE.get(letter):
        return alike
    name = unicodedata.name(letter, "")
    if name.startswith("GREEK SMALL LETTER "):
        return name.split()[-1].lower()
    if name.startswith("GREEK CAPITAL LETTER "):
        return name.split()[-1].capitalize()
    if name.startswith("BOX DRAWINGS "):
        return "|" if "VERTICAL" in name else "-"
    alike = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return alike or letter.encode("unicode_escape").decode()


codecs.register_error(_PLAINLY, _plainly)
