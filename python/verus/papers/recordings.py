"""Where the recordings of an experiment are on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
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


def locate(names: Sequence[str], *, group: str, folder: Path | None) -> dict[str, str]:
    """The file of each recording.

    Looked for in `folder`, then in that of the environment variable `VERUS_TRACES`, then in the cache
    of `verus trace fetch`; in the first two also compressed, and in a folder with the group's name.

    Raises:
        MissingRecordings: Some are nowhere.
        FieldError: `folder` is not a folder.
    """
    if folder is not None and not folder.is_dir():
        raise FieldError("recordings", f"`{folder}` is not a folder")
    known = {
        entry["name"].rpartition("/")[2]: entry for entry in json.loads(_verus.catalogue()) if group in entry["groups"]
    }
    folders = [folder] if folder is not None else []
    if os.environ.get("VERUS_TRACES"):
        folders.append(Path(os.environ["VERUS_TRACES"]))
    found: dict[str, str] = {}
    for name in names:
        entry = known.get(name, {})
        inside = str(entry.get("name", f"{group}/{name}"))
        candidates = [
            place / (way + ending) for place in folders for way in dict.fromkeys((name, inside)) for ending in _ENDINGS
        ]
        if entry.get("cache_path"):
            candidates.append(Path(entry["cache_path"]))
        path = next((path for path in candidates if path.is_file()), None)
        if path is not None:
            found[name] = str(path)
    missing = [name for name in names if name not in found]
    if missing:
        raise MissingRecordings(missing, group)
    return found


def is_named(folder: Path | None) -> bool:
    """Whether the place of recordings is given: by an option, which is `folder`, or in the environment."""
    return folder is not None or bool(os.environ.get("VERUS_TRACES"))


def find_recordings(texts: Sequence[str], folder: Path | None) -> dict[str, str]:
    """Where the recordings are that channels name in full: ``GROUP/NAME``, with or without a stretch ``[FROM:TO]``.

    Returns:
        For each text, the same with the file in place of the name.

    Raises:
        MissingRecordings: Some are nowhere.
        FieldError: `folder` is not a folder.
    """
    names = list(dict.fromkeys(part.partition("[")[0] for text in texts for part in text.split("+")))
    found: dict[str, str] = {}
    for group in dict.fromkeys(name.partition("/")[0] for name in names):
        own = [name.partition("/")[2] for name in names if name.startswith(f"{group}/")]
        found |= {f"{group}/{name}": path for name, path in locate(own, group=group, folder=folder).items()}
    return {
        text: "+".join(found[part.partition("[")[0]] + "".join(part.partition("[")[1:]) for part in text.split("+"))
        for text in texts
    }
