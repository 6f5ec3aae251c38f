"""Digests of a result's origins, which are the behaviour of its senders and its input files, and of its tables.

`goldens.tsv` pins what each sender does, packet by packet, over paths of every kind. A result that
depends on no clock keeps three digests: of the lines of its senders, of its input files, and of the
recordings. A test then sees when one of them has changed since.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).parents[1]
GOLDENS = ROOT / "crates" / "sim" / "tests" / "sim" / "goldens.tsv"


#: Verus's prototype mode, another controller than its other modes.
PROTOTYPE = "verus:mode=prototype"

#: Pinned runs in which packets overtake others: jitter, and delays that fall.
REORDERED = ("jitter and reordering", "a recorded series of delays", "CellReplay's traces")
#: Pinned runs over impairments that no result has.
IMPAIRED = ("impaired: ",)


def behaviour(senders: Collection[str], *, reordering: bool = False, pauses: bool = False) -> str:
    """A digest (twelve hexadecimal digits) of the behaviour of these senders in this checkout.

    Args:
        senders: Bare names: `cubic` includes `cubic:hystart=off`, and `verus` all but `verus:mode=prototype`.
        reordering: Whether the result has paths on which packets overtake others.
        pauses: Whether the result has sources that pause: pages, calls, users on and off.

    Raises:
        ValueError: A sender has no pinned run.
    """
    lines = GOLDENS.read_text(encoding="utf-8").splitlines()[1:]
    lines = [line for line in lines if not line.startswith(IMPAIRED)]
    if not reordering:
        lines = [line for line in lines if not line.startswith(REORDERED)]
    if not pauses:
        scenarios = json.loads(GOLDENS.with_suffix(".json").read_text(encoding="utf-8"))
        pausing = tuple(name for name, scenario in scenarios.items() if "traffic" in json.dumps(scenario))
        lines = [line for line in lines if not line.startswith(pausing)]
    pinned = [(_controller(line.split("\t")[1]), line) for line in lines]
    if unknown := set(senders) - {sender for sender, _ in pinned}:
        raise ValueError(f"{GOLDENS.name} has no run of {', '.join(sorted(unknown))}")
    return _digest([line for sender, line in pinned if sender in senders])


def _controller(scheme: str) -> str:
    return PROTOTYPE if scheme.startswith(PROTOTYPE) else scheme.partition(":")[0]


def files(patterns: Collection[str]) -> str:
    """A digest, of the same form, of the files of this checkout that fit one of the patterns.

    Raises:
        ValueError: No file fits one of them.
    """
    matches = {pattern: [*ROOT.glob(pattern)] for pattern in patterns}
    if unknown := [pattern for pattern, paths in matches.items() if not paths]:
        raise ValueError(f"no file is called {', '.join(unknown)}")
    paths = {path for some in matches.values() for path in some}
    return _digest([f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in paths])


def recordings(folder: Path) -> str:
    """A digest, of the same form, of a folder of recordings, whose `MANIFEST.csv` has a digest of each.

    Raises:
        OSError: There is no `MANIFEST.csv`.
    """
    with (folder / "MANIFEST.csv").open(encoding="utf-8", newline="") as manifest:
        return _digest([f"{row['file']} {row['sha256']}" for row in csv.DictReader(manifest)])


def tables(page: str, result: str) -> str:
    """A digest, of the same form, of the tables of a page that show a result.

    Above each of them the page names the result (`<!-- from speed.txt -->`). A page that is nothing
    but one result has no such marks: all its tables are meant.

    Raises:
        ValueError: The page has no table of it.
    """
    by_result: dict[str, list[str]] = {}
    above = name = ""
    for line in page.splitlines():
        if line.startswith("|"):
            if not above.startswith("|"):
                mark = re.fullmatch(r"<!-- from (\S+) -->", above)
                name = mark[1] if mark else ""
            by_result.setdefault(name, []).append(line)
        above = line
    lines = by_result.get(result) or (by_result.get("", []) if len(by_result) == 1 else [])
    if not lines:
        raise ValueError(f"no table is marked <!-- from {result} -->")
    return _digest([f"{at} {line}" for at, line in enumerate(lines)])


def _digest(lines: Collection[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:12]
