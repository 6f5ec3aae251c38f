"""Which behaviour of senders a result is of.

`goldens.tsv` pins what each sender does, packet by packet, over paths of every kind. A result that depends on no clock
keeps a digest of the lines of its senders, so that a test sees when one of them has changed since.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from pathlib import Path

GOLDENS = Path(__file__).parents[1] / "crates" / "sim" / "tests" / "sim" / "goldens.tsv"


def digest(senders: Collection[str], goldens: str | None = None) -> str:
    """Twelve hexadecimal digits of how these senders behave.

    Args:
        senders: By their bare names: `cubic` stands for `cubic:hystart=off`, too.
        goldens: The pinned runs; those of this checkout if None.

    Raises:
        ValueError: No run is pinned of a sender.
    """
    lines = (GOLDENS.read_text(encoding="utf-8") if goldens is None else goldens).splitlines()[1:]
    found = {sender: [line for line in lines if sender in _senders(line)] for sender in senders}
    if unknown := [sender for sender, pinned in found.items() if not pinned]:
        raise ValueError(f"{GOLDENS.name} has no run of {', '.join(unknown)}")
    pinned = sorted({line for lines in found.values() for line in lines})
    return hashlib.sha256("\n".join(pinned).encode()).hexdigest()[:12]


def _senders(line: str) -> set[str]:
    """The bare names of the senders in a pinned run: its second column, a scheme or several joined by `+`."""
    return {scheme.partition(":")[0] for scheme in re.split(r"[+ ]", line.split("\t")[1])}
