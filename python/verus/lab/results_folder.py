"""A folder of results, written whole or not at all, and never over another one without `force`; and its `run.json`."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from verus.errors import FieldError
from verus.lab import bounded_reading
from verus.lab.atomic_write import replace_whole
from verus.lab.metric_rows import SCHEMA


def read_config(path: Path) -> dict[str, Any]:
    """Reads a `run.json`.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not a `run.json`, or of another version.
    """
    try:
        config = json.loads(bounded_reading.content(path, bounded_reading.MOST_JSON))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"`{path}`: not a run.json ({error})") from error
    if not isinstance(config, dict) or "schema" not in config:
        raise ValueError(f"`{path}`: not a run.json: it states no schema")
    if config["schema"] != SCHEMA:
        raise ValueError(f"`{path}`: schema {config['schema']} is not one that this version reads (it reads {SCHEMA})")
    if not isinstance(config.get("kind"), str):
        raise ValueError(f"`{path}`: not a run.json: it states no kind")
    return config


@contextlib.contextmanager
def new_folder(target: Path, *, force: bool) -> Iterator[Path]:
    """A folder to fill that becomes `target` if the block ends well, and vanishes if it does not.

    An existing empty folder is reused; one with contents is refused unless `force` is set. Then the
    files of the earlier experiment are replaced, and everything else in it is kept.

    Raises:
        FieldError: `target` holds something and `force` is not set, or it cannot be written.
    """
    check_folder(target, force=force)
    with drafted(target) as (draft, place):
        yield draft
        _publish(draft, place)


@contextlib.contextmanager
def drafted(target: Path, field: str = "out") -> Iterator[tuple[Path, Path]]:
    """A hidden folder to fill for `target`, and where `target` is once links are followed.

    The hidden folder vanishes with the block. It lies beside a folder that is not there yet, and can
    get its name. It lies in one that is there, which may be another file system's root.

    Raises:
        FieldError: It cannot be written; `field` names the place.
    """
    place = _place(target)
    above = place if place.is_dir() else place.parent
    draft = above / f".{place.name}-{os.urandom(4).hex()}.part"
    made = _make_parents(above, field)
    try:
        try:
            draft.mkdir()
        except OSError as error:
            raise FieldError(field, f"`{target}` cannot be written ({error.strerror or error})") from error
        yield draft, place
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        _remove(made)
        raise
    shutil.rmtree(draft, ignore_errors=True)


def _place(target: Path) -> Path:
    """The place that a path leads to, links followed, even where nothing is there yet."""
    return Path(os.path.realpath(target))


def check_folder(target: Path, *, force: bool, field: str = "out", replaces: str = "--force") -> None:
    """Refuses a place for results that cannot be used, before any work is done.

    Args:
        target: The place.
        force: Whether it may hold something.
        field: The field that names the place, in the error.
        replaces: The option that sets `force`, as the caller's user knows it.

    Raises:
        FieldError: As `new_folder`.
    """
    place = _place(target)
    try:
        if place.is_symlink() or (place.exists() and not place.is_dir()):  # it is one still where it leads to itself
            raise FieldError(field, f"`{target}` is not a folder")
        if target.is_dir() and any(target.iterdir()) and not force:
            raise FieldError(field, f"`{target}` is not empty; {replaces} replaces the results in it")
        nearest = next(folder for folder in (place, *place.parents) if folder.exists())
    except OSError as error:
        raise FieldError(field, f"`{target}` cannot be used ({error.strerror or error})") from error
    if not nearest.is_dir():
        raise FieldError(field, f"`{target}` cannot be written (`{nearest}` is not a folder)")
    probe = nearest / f".{os.urandom(8).hex()}.part"
    try:  # permissions do not suffice: the file system may be full or read-only
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        problem = f"`{target}` cannot be written (in `{nearest}`: {error.strerror or error})"
        raise FieldError(field, problem) from error


def new_name(what: str) -> Path:
    """A default folder for results, named after their kind and the current time."""
    return Path("verus-results") / f"{what}-{datetime.datetime.now():%Y-%m-%d-%H%M%S}"


def below(folder: Path, name: str) -> Path:
    """The path of `name` in `folder`, which may be untrusted: links in it are refused.

    Raises:
        FieldError: `name` leads out of `folder`, or through a link.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise FieldError("out", f"`{name}` is not a name of something in `{folder}`")
    for way in reversed(Path(name).parents[:-1]):
        refuse_link(folder / way)
    return folder / name


def refuse_link(folder: Path) -> None:
    """Refuses a folder of results that is a link.

    Raises:
        FieldError: It is.
    """
    if folder.is_symlink():
        raise FieldError("out", f"`{folder}` is a link, which may lead anywhere: remove it first")


def _make_parents(parent: Path, field: str) -> list[Path]:
    """Makes `parent`; returns the folders that it created, outermost first."""
    missing = [folder for folder in (parent, *parent.parents) if not folder.exists()][::-1]
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove(missing)
        raise FieldError(field, f"`{parent}` cannot be made ({error.strerror or error})") from error
    return missing


def _remove(folders: Sequence[Path]) -> None:
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _publish(draft: Path, target: Path) -> None:
    config_path = draft / "run.json"
    config = json.loads(config_path.read_text(encoding="utf-8"))
    names = sorted(str(path.relative_to(draft)) for path in draft.rglob("*") if path.is_file())
    config["files"] = names
    config_path.write_text(json.dumps(config, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    if not target.exists():
        draft.replace(target)
        return
    for name in names:  # all of them, before the first is moved
        if below(target, name).is_dir() and not (target / name).is_symlink():
            raise FieldError("out", f"`{target / name}` is a folder, where a file of the results goes")
    for name in _earlier_files(target):
        if name not in names:
            (target / name).unlink(missing_ok=True)
    for name in sorted(names, key="run.json".__eq__):  # that last, which says that all are there
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (draft / name).replace(target / name)


def own(target: Path, paths: Iterable[Path]) -> None:
    """Adds later files to those that the experiment wrote, so that they are removed when it is replaced."""
    path = target / "run.json"
    config = read_config(path)
    listed = config.get("files")
    before = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    config["files"] = sorted({*before, *(str(drawn.relative_to(target)) for drawn in paths if drawn.is_file())})
    if config["files"] != listed:
        replace_whole(path, (json.dumps(config, indent=1, allow_nan=False) + "\n").encode())


def _earlier_files(target: Path) -> list[str]:
    """Files that the experiment saved in `target` lists as its own, without any outside `target`."""
    try:
        names = read_config(target / "run.json").get("files", [])
    except (OSError, ValueError):
        return []
    files = []
    for name in names if isinstance(names, list) else []:
        with contextlib.suppress(FieldError, OSError):  # links and names that lead out of it, or too long ones
            if isinstance(name, str) and "\0" not in name and not below(target, name).is_dir():
                files.append(name)
    return files
