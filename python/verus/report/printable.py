"""Makes lines safe to print: text from any source cannot control a terminal or forge another line.

Names in a run folder, a log or an error may be untrusted. Commands pass all their output through
here as they print it, as the Rust binary does (`plain.rs`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

#: The longest line, in characters.
MOST = 1024
_LEFT_OUT = " … "


def line(text: str) -> str:
    r"""One line: newlines and invisible letters are escaped; the middle of a long line is left out.

    Example:
        >>> print(line("\x1b[2J資料\r\nforged \u202egpj\udcff"))
        \x1b[2J資料\r\nforged \u202egpj\udcff
        >>> len(line("x" * 9000))
        1024
    """
    shown = escaped(text)
    if len(shown) <= MOST:
        return shown
    kept = MOST - len(_LEFT_OUT)
    return shown[: kept // 2] + _LEFT_OUT + shown[-(kept - kept // 2) :]


def escaped(text: str) -> str:
    """The text with every invisible letter escaped, whatever its length."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    # Spaces of other widths are harmless.
    return letter if letter in "\u00a0\u2009\u202f" else letter.encode("unicode_escape").decode("ascii")


def rows(values: Iterable[Any]) -> str:
    r"""Values as JSON, one a line.

    Example:
        >>> print(rows([{"name": "\x1b\x7f\u202e"}]))
        {"name": "\u001b\u007f\u202e"}
    """
    # `json` escapes everything beyond ASCII, but not DEL.
    return "\n".join(json.dumps(value, allow_nan=False).replace("\x7f", "\\u007f") for value in values)
