"""Standard output and error: what is printed there costs no result, and every terminal gets words.

A pipe that its reader has closed (`| head -2`), a full disk and a terminal without our letters are the terminal's
trouble: the work goes on, and what it found is written.
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

#: What is done with letters that an encoding does not have, as codecs know it.
_PLAINLY = "verus-plainly"


class Printed:
    """What became of standard output.

    Attributes:
        problem: Why it could not be written, if it could not; that its reader went away is none.
    """

    problem: str | None = None

    def fail(self, error: OSError) -> None:
        """Remembers why."""
        if error.errno != errno.EPIPE and self.problem is None:
            self.problem = error.strerror or str(error)


@contextlib.contextmanager
def patient() -> Iterator[Printed]:
    """Whatever is printed in the block is printed as far as that is possible; what is not costs nothing else."""
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
    """A stream that was closed before we began: it keeps nothing."""

    def write(self, text: str) -> int:
        """Takes it."""
        return len(text)


class _Patient:
    """A stream that is written to until it fails, and then to nowhere."""

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
        """Writes it, if that is still possible."""
        try:
            if not self._gone:
                self._stream.write(text)
        except OSError as error:
            self._leave(error)
        return len(text)

    def flush(self) -> None:
        """The same for what was written."""
        try:
            if not self._gone:
                self._stream.flush()
        except OSError as error:
            self._leave(error)

    def _leave(self, error: OSError) -> None:
        self._gone = True
        self._printed.fail(error)
        # What the stream still holds goes nowhere: Python flushes it once more at its end.
        with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), self._stream.fileno())


def _is_narrow(encoding: str | None) -> bool:
    """Whether there are letters that an encoding does not have."""
    try:
        return codecs.lookup(encoding or "utf-8").name not in ("utf-8", "utf-16", "utf-32")
    except LookupError:
        return False


#: Letters of ours, and what stands for each where it is not known: of one letter, so that tables stay in line.
_ALIKE = {"·": "-", "–": "-", "—": "-", "−": "-", "×": "x", "±": "~", "≤": "<", "≥": ">", "→": ">", "…": "."}


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """What is printed for letters that an encoding does not have, as a codec asks it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(letter: str) -> str:
    r"""A letter in ASCII: alike, or by its name, or escaped.

    Example:
        >>> "".join(map(_plain, "δ₁ · W² ± 资"))
        'delta1 - W2 ~ \\u8d44'
    """
    if found := _ALIKE.get(letter):
        return found
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
