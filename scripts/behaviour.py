"""Which behaviour of senders a result is of.

`goldens.tsv` pins what each sender does, packet by packet, over paths of every kind. A result that depends on no clock
keeps a digest of the lines of its senders, so that a test sees when one of them has changed since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

GOLDENS = Path(__file__).parents[1] / "crates" / "sim" / "tests" / "sim" / "goldens.tsv"


def digest(senders: Collection[str]) -> str:
    """Twelve hexadecimal digits of how these senders behave in this checkout.

    Args:
        senders: By their bare names: `cubic` stands for `cubic:hystart=off`, too.

    Raises:
        ValueError: No run is pinned of a sender.
    """
    lines = GOLDENS.read_text(encoding="utf-8").splitlines()[1:]
    pinned = [(line.split("\t")[1].partition(":")[0], line) for line in lines]
    if unknown := set(senders) - {sender for sender, _ in pinned}:
        raise ValueError(f"{GOLDENS.name} has no run of {', '.join(sorted(unknown))}")
    kept = sorted(line for sender, line in pinned if sender in senders)
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:12]
