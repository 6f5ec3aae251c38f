"""Numbers that sources published, and lists of ours: CSV files that come with the package."""

from __future__ import annotations

import csv
from importlib import resources


def listed(package: str, name: str) -> list[dict[str, str]]:
    """The lines of a file beside the modules of a package, by head; those that begin with `#` say where it is from."""
    text = (resources.files(package) / name).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
