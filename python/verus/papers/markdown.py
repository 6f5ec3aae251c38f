"""Tables for documents."""

from __future__ import annotations

from collections.abc import Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    r"""The lines of a table in Markdown, from cells that are Markdown already.

    Example:
        >>> print(*table(["sender", "p95"], [["Cubic", "90 ms"]]), sep="\n")
        | sender | p95 |
        |---|---|
        | Cubic | 90 ms |
    """
    return [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *(f"| {' | '.join(row)} |" for row in rows)]
