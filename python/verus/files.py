"""Files that a command writes: never over what exists unless told to, and whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from verus.errors import FieldError


def refuse_existing(path: Path, *, force: bool, field: str = "out") -> None:
    """Refuses a folder, a folder that is not there, and a file that exists unless `force` is set."""
    if path.is_dir():
        raise FieldError(field, f"`{path}` is a folder")
    if path.exists() and not force:
        raise FieldError(field, f"`{path}` exists; --force replaces it")
    if not path.absolute().parent.is_dir():
        raise FieldError(field, f"`{path}` cannot be written: there is no folder `{path.parent}`")


def write_whole(path: Path, content: bytes, *, field: str = "out") -> None:
    """Writes all of it or nothing, whoever else writes the same file at the same time.

    Raises:
        FieldError: It cannot be written; what was there before is unharmed.
    """
    draft = path.with_name(f".{path.name}-{os.urandom(4).hex()}.part")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise FieldError(field, f"`{path}` cannot be written ({error.strerror or error})") from error
