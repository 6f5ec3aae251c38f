"""Files that a command writes: whole or not at all, and never over an existing file without `--force`."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path, PurePath

from verus.errors import FieldError


def refuse_existing(path: Path, *, force: bool, field: str = "out") -> None:
    """Refuses a folder, a folder that is not there, and a file that exists unless `force` is set."""
    if path.is_dir():
        raise FieldError(field, f"`{path}` is a folder")
    if path.exists() and not force and not is_device(path):
        raise FieldError(field, f"`{path}` exists; --force replaces it")
    if not path.absolute().parent.is_dir():
        raise FieldError(field, f"`{path}` cannot be written: there is no folder `{path.parent}`")


def write_whole(path: Path, content: bytes, *, field: str = "out") -> None:
    """Writes all of it or nothing, even while another process writes the same file.

    A device or a pipe, such as `/dev/null` or `/dev/stdout`, is written to directly: a file in its
    place would break it for everyone.

    Raises:
        FieldError: It cannot be written; an earlier file is unharmed.
    """
    if is_device(path):
        try:
            path.write_bytes(content)
        except OSError as error:
            raise FieldError(field, f"`{path}` cannot be written ({error.strerror or error})") from error
        return
    replace_whole(path, content, field=field)


def replace_whole(path: Path, content: bytes, *, field: str = "out") -> None:
    """As `write_whole`, into an untrusted folder: replaces whatever has that name, even a link or a device.

    Raises:
        FieldError: It cannot be written; an earlier file is unharmed.
    """
    draft = path.with_name(f".{path.name}-{os.urandom(4).hex()}.part")
    try:
        with draft.open("xb") as file:
            file.write(content)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise FieldError(field, f"`{path}` cannot be written ({error.strerror or error})") from error


def replace_below(folder: Path, name: str, content: bytes, *, field: str = "out") -> None:
    """As `replace_whole`, in a folder below `folder`, both made where there is none: no link leads out of it.

    Whatever else has the name of the file or of its folder is replaced, such as a link to itself. A
    link to a folder is refused.

    Raises:
        FieldError: It cannot be written; or there is a link to a folder.
    """
    *above, last = PurePath(name).parts
    at = folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as opened:
            into = _entered(opened, os.fspath(folder), None)
            for inner in above:
                at /= inner
                if _is_linked_folder(inner, into):
                    raise FieldError(field, f"`{at}` is a link, which may lead anywhere: remove it first")
                into = _entered(opened, inner, into)
            _place(last, content, into)
    except OSError as error:
        raise FieldError(field, f"`{folder / name}` cannot be written ({error.strerror or error})") from error


def _entered(opened: contextlib.ExitStack, name: str, above: int | None) -> int:
    """A folder, opened; made where there is none. In our own folder, anything that is no folder is replaced."""
    for last_try in (above is None, True):
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=above)
        try:
            handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        except OSError as error:
            if last_try or error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            os.unlink(name, dir_fd=above)
        else:
            opened.callback(os.close, handle)
            return handle
    raise AssertionError("the last try returns or raises")


def _is_linked_folder(name: str, above: int) -> bool:
    """Whether a name in an open folder is a link to a folder."""
    try:
        is_link = stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
        return is_link and stat.S_ISDIR(os.stat(name, dir_fd=above).st_mode)
    except OSError:  # there is none, or it leads nowhere
        return False


def _place(name: str, content: bytes, into: int) -> None:
    """Writes a file in an open folder, whole, in place of whatever has that name, even a folder."""
    draft = f".{name}-{os.urandom(4).hex()}.part"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=into)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        try:
            os.replace(draft, name, src_dir_fd=into, dst_dir_fd=into)
        except IsADirectoryError:
            shutil.rmtree(name, dir_fd=into)
            os.replace(draft, name, src_dir_fd=into, dst_dir_fd=into)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=into)
        raise


def is_device(path: Path) -> bool:
    """Whether it is no file. All of `/dev` counts: `/dev/stdout` is a file where output was redirected to one."""
    return path.exists() and (not path.is_file() or path.absolute().parts[1:2] == ("dev",))
