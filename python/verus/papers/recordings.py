"""Where the recordings of an experiment are on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from verus import _verus
from verus.errors import FieldError

_ENDINGS = ("", ".xz", ".gz")


class MissingRecordings(FieldError):  # noqa: N818 (reads as what it is)
    """Recordings are not on this machine; the message says which command brings them."""

    def __init__(self, names: Sequence[str], group: str) -> None:
        some = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
        super().__init__(
            "recordings",
            f"not on this machine: {some}; `verus trace fetch {group}` brings them, "
            "or --built-in runs the same comparison on built-in channels",
        )


def is_named(folder: Path | None) -> bool:
    """Whether the place of recordings is given: by an option, which is `folder`, or in the environment."""
    return folder is not None or bool(os.environ.get("VERUS_TRACES"))


def find_recordings(texts: Iterable[str], folder: Path | None) -> dict[str, str]:
    """Paths of recordings that channels name in full: ``GROUP/NAME``, also with ``[FROM:TO]``.

    Searches `folder`, then the folder of the environment variable `VERUS_TRACES`, then the cache of
    `verus trace fetch`. The first two may hold compressed recordings, and a folder with the group's
    name.

    Returns:
        For each text, the same with the file in place of the name.

    Raises:
        MissingRecordings: Some are nowhere.
        FieldError: `folder` is not a folder.
    """
    if folder is not None and not folder.is_dir():
        raise FieldError("recordings", f"`{folder}` is not a folder")
    folders = [*([folder] if folder is not None else []), *map(Path, filter(None, [os.environ.get("VERUS_TRACES")]))]
    entries = {
        f"{group}/{entry['name'].rpartition('/')[2]}": entry
        for entry in _verus.catalogue()
        for group in entry["groups"]
    }
    split = {text: [part.partition("[") for part in text.split("+")] for text in texts}
    paths: dict[str, str] = {}
    missing: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for parts in split.values() for name, _, _ in parts):
        group, _, file = name.partition("/")
        entry = entries.get(name, {})
        names = dict.fromkeys((file, entry.get("name", name)))
        candidates = [place / (stem + ending) for place in folders for stem in names for ending in _ENDINGS]
        candidates += [Path(entry["cache_path"])] if entry.get("cache_path") else []
        path = next((path for path in candidates if path.is_file()), None)
        absent = missing.setdefault(group, [])
        if path is None:
            absent.append(file)
        else:
            paths[name] = str(path)
    for group, files in missing.items():
        if files:
            raise MissingRecordings(files, group)
    return {
        text: "+".join(paths[name] + bracket + stretch for name, bracket, stretch in parts)
        for text, parts in split.items()
    }
