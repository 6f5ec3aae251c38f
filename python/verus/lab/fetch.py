"""Public recordings by name: downloaded once, checked against the catalogue, kept in a cache.

It needs only the standard library. A download goes to a temporary file beside its target. It is
renamed only if its length and SHA-256 are right, so a broken one leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verus import _verus
from verus.errors import FieldError, near

#: The limit of a recording, bytes; a server that sends more is refused.
MOST_BYTES = 64 * 2**20

_TIMEOUT_S = 30
_CHUNK = 1 << 16

#: Called with the bytes received and the total (None if the server does not say).
ByteProgress = Callable[[int, int | None], None]


class FetchError(RuntimeError):
    """A recording could not be downloaded; nothing of it was kept."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A public recording, as the catalogue describes it.

    Attributes:
        name: ``FOLDER/FILE``; the part after the slash suffices as a name.
        groups: Names for it and others together.
        url: Where it is published.
        path: Its path in the cache; None if this machine has no place for a cache.
        sha256: Of the file as published.
        licence: As far as the source states one.
        paper: To cite.
    """

    name: str
    groups: Sequence[str]
    url: str
    path: Path | None
    sha256: str
    licence: str
    paper: str


def recordings() -> list[Recording]:
    """Everything in the catalogue."""
    return [_recording(entry) for entry in _verus.catalogue()]


def _recording(entry: dict[str, Any]) -> Recording:
    return Recording(
        name=entry["name"],
        groups=tuple(entry["groups"]),
        url=entry["url"],
        path=Path(entry["cache_path"]) if entry["cache_path"] else None,
        sha256=entry["sha256"],
        licence=entry["licence"],
        paper=entry["paper"],
    )


def select(names: Sequence[str]) -> list[Recording]:
    """The recordings with these names, short names or groups, each once.

    Raises:
        FieldError: There is no recording or group of that name.
    """
    catalogue = recordings()
    chosen: dict[str, Recording] = {}
    for name in names:
        matches = [entry for entry in catalogue if entry.name == name]
        matches = matches or [entry for entry in catalogue if entry.name.rpartition("/")[2] == name]
        matches = matches or [entry for entry in catalogue if name in entry.groups]
        if not matches:
            groups = sorted({group for entry in catalogue for group in entry.groups})
            hint = (
                near(name, [*groups, *(entry.name for entry in catalogue)]) or f"; the groups are {', '.join(groups)}"
            )
            raise FieldError("name", f"there is no recording or group `{name}`{hint} (`verus trace fetch`)")
        chosen.update((entry.name, entry) for entry in matches)
    return list(chosen.values())


def fetch(recording: Recording, *, progress: ByteProgress | None = None) -> tuple[Path, bool]:
    """Downloads a recording into the cache, unless it is there already and correct.

    Returns:
        Its path, and whether it was downloaded now.

    Raises:
        FetchError: The download failed, is cut short, too large, or not the recording.
    """
    target = recording.path
    if target is None:
        raise FetchError(f"`{recording.name}`: no place for a cache; set VERUS_CACHE to a folder")
    if target.is_file() and _sha256(target) == recording.sha256:
        return target, False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    except OSError as error:
        raise FetchError(
            f"`{recording.name}`: the cache `{target.parent}` cannot be written ({error.strerror or error})"
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            digest = _download(recording, file.write, progress)
        if digest != recording.sha256:
            raise FetchError(
                f"`{recording.name}`: what {recording.url} sent is not the recording "
                f"(SHA-256 {digest}, expected {recording.sha256})"
            )
        Path(draft).chmod(0o644)
        Path(draft).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(draft).unlink()
        raise
    return target, True


def _download(recording: Recording, write: Callable[[bytes], Any], progress: ByteProgress | None) -> str:
    """Passes the content on as it comes; returns its SHA-256."""
    name, url = recording.name, recording.url
    if not url.startswith(("https://", "http://")):
        raise FetchError(f"`{name}`: `{url}` is not an http address")
    digest = hashlib.sha256()
    got = 0
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            length = answer.headers.get("Content-Length")
            total = int(length) if length is not None and length.isdigit() else None
            while chunk := answer.read(_CHUNK):
                got += len(chunk)
                if got > MOST_BYTES:
                    raise FetchError(
                        f"`{name}`: {url} sends more than {MOST_BYTES >> 20} MiB, more than any recording has"
                    )
                digest.update(chunk)
                write(chunk)
                if progress is not None:
                    progress(got, total)
    except urllib.error.HTTPError as error:
        raise FetchError(f"`{name}`: {url} answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise FetchError(f"`{name}`: {url} cannot be reached ({error.reason})") from error
    except http.client.IncompleteRead as error:
        raise FetchError(
            f"`{name}`: the download from {url} was cut short after {got + len(error.partial)} bytes"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise FetchError(f"`{name}`: the download from {url} failed after {got} bytes ({error})") from error
    if total is not None and got < total:
        raise FetchError(f"`{name}`: the download from {url} was cut short after {got} of {total} bytes")
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
