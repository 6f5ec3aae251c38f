"""Files that a command writes: never over what exists unless told to, and whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from verus.errors import FieldError


def refuse_existing(path: Path, *, force: bool, field: str = "out") -> None:
    """Refuses a folder, a folder that is not there, and a file that exists unless `force` is set."""
    if path.is_dir():
        raise FieldError(field, f"`{path}` is a folder")
    if path.exists() and not force and not _is_device(path):
        raise FieldError(field, f"`{path}` exists; --force replaces it")
    if not path.absolute().parent.is_dir():
        raise FieldError(field, f"`{path}` cannot be written: there is no folder `{path.parent}`")


def write_whole(path: Path, content: bytes, *, field: str = "out") -> None:
    """Writes all of it or nothing, even while another process writes the same file.

    A device or a pipe, such as `/dev/null` or `/dev/stdout`, is written to: a file in its place
    would break it for everyone.

    Raises:
        FieldError: It cannot be written; what was there before is unharmed.
    """
    if _is_device(path):
        try:
            path.write_bytes(content)
        except OSError as error:
            raise FieldError(field, f"`{path}` cannot be written ({error.strerror or error})") from error
        return
    replace_whole(path, content, field=field)


def replace_whole(path: Path, content: bytes, *, field: str = "out") -> None:
    """As `write_whole`, into a folder that may be a stranger's: what has that name gives way, even a link or device.

    Raises:
        FieldError: It cannot be written; what was there before is unharmed.
    """
    draft = path.with_name(f".{path.name}-{os.urandom(4).hex()}.part")
    try:
        with draft.open("xb") as file:
            file.write(content)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise FieldError(field, f"`{path}` cannot be written ({error.strerror or error})") from error


def _is_device(path: Path) -> bool:
    """Whether it is something other than a file; what is in `/dev` may be a file by way of where output was sent."""
    return path.exists() and (not path.is_file() or path.absolute().parts[1:2] == ("dev",))
