"""Outcomes of runs, each saved as it ends and found again by what was run.

A run's key is a digest of all that decides its outcome: the scenario, the contents of the traces and models that it
names (not where they lie), and the engine, down to the compiled extension's bytes. So whatever ends the work (Ctrl-C,
`kill -9`, a full disk), the same command goes on with what is missing, and no outcome of another engine is taken for
one of this. A file is written whole or not at all; a damaged one counts as missing.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import math
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from verus import _verus
from verus.lab import bounded_reading
from verus.lab.atomic_write import replace_below
from verus.lab.inputs import Digests, digest_of, respelt
from verus.lab.results_folder import refuse_link
from verus.lab.runner import Ended, Outcome
from verus.lab.scenario import Run

#: Version of the files and of the keys; a change of either raises it.
FORMAT = 4

#: How long the digest is that stands before a packed outcome.
_DIGEST_BYTES = hashlib.sha256().digest_size

#: Runs what it is given; yields the index of each with its outcome, in the order in which they end.
Work = Callable[[Sequence[Run]], Generator[tuple[int, Ended]]]


@cache
def engine() -> str:
    """The simulator that runs here: its version, and a digest of the compiled extension.

    Two builds from different sources never have the same one. Two from the same sources may differ, too: then runs are
    repeated that need not be, but none is mixed with those of another simulator.
    """
    return f"{_verus.version()}-{digest_of(Path(_verus.__file__))[:12]}"


class Keys:
    """What runs are found by. Each file that they name is read once.

    Args:
        engine: What runs them.
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._files = Digests()
        self._needs: dict[str, set[Path]] = {}

    def of(self, run: Run) -> str:
        """The key of a run.

        Raises:
            OSError: A trace or a model cannot be read.
            ValueError: A channel is unknown.
        """
        needs: set[Path] = set()

        def digest(_: str, path: Path) -> str:
            needs.add(path)
            return self._files.of(path)

        told = {
            "format": FORMAT,
            "engine": self._engine,
            "transport": run.contestant.transport,
            "scenario": respelt(run.scenario, digest),
        }
        key = hashlib.sha256(json.dumps(told, allow_nan=False, sort_keys=True).encode()).hexdigest()
        self._needs[key] = needs
        return key

    def check(self, key: str) -> None:
        """Refuses to take what came of a run for that of its key if a file is no longer what it was.

        Raises:
            RuntimeError: One is not.
        """
        for path in self._needs.get(key, ()):
            self._files.check(path)


class Store:
    """A folder of outcomes, by key. Several processes may use one at the same time.

    Args:
        folder: Made as soon as there is something to put into it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        """Where the outcome of that key is, or would be."""
        return self.folder / key[:2] / f"{key[2:]}.run"

    def check(self) -> None:
        """Refuses links, before any work is done: what is written into this folder is in it.

        Raises:
            FieldError: It is a link, or a folder in it is.
        """
        refuse_link(self.folder)
        with contextlib.suppress(OSError):  # that there is none, or that it is none, is no link
            for inner in self.folder.iterdir():
                if inner.is_dir():
                    refuse_link(inner)

    def has(self, key: str) -> bool:
        """Whether the outcome of that key is there, as it was written."""
        try:
            with self._packed(key):
                return True
        except (OSError, ValueError):
            return False

    def read(self, key: str) -> Outcome | None:
        """The outcome of that key; None if it is not there, or damaged."""
        try:
            with self._packed(key) as packed:
                return _unpack(packed)
        except Exception:  # a stranger's: the digest is right, and what follows it is nothing of ours
            return None

    @contextmanager
    def _packed(self, key: str) -> Iterator[BinaryIO]:
        """The same, packed: a file at its place in it. What is there was written, or its digest would be another.

        Raises:
            OSError, ValueError: It is not there, or damaged.
        """
        with bounded_reading.opened(self.path(key), bounded_reading.MOST_UNPACKED) as file:
            written = file.read(_DIGEST_BYTES)
            if hashlib.file_digest(file, "sha256").digest() != written:  # type: ignore[arg-type]
                raise ValueError(f"`{self.path(key)}`: damaged")
            file.seek(_DIGEST_BYTES)
            yield file

    def write(self, key: str, outcome: Outcome) -> None:
        """Keeps an outcome.

        Raises:
            FieldError: It cannot be written; what was there before is unharmed.
        """
        packed = pack(outcome)
        name = str(self.path(key).relative_to(self.folder))
        replace_below(self.folder, name, hashlib.sha256(packed).digest() + packed)

    def outcome(self, key: str) -> Outcome:
        """The outcome of that key, which was there a moment ago.

        Raises:
            RuntimeError: It is not there any more.
        """
        found = self.read(key)
        if found is None:
            raise RuntimeError(f"`{self.path(key)}` was removed or changed while it was needed")
        return found

    def remove(self) -> None:
        """Removes the folder with all outcomes."""
        shutil.rmtree(self.folder, ignore_errors=True)


def complete(
    runs: Sequence[Run], keys: Sequence[str], store: Store, work: Work, *, made: Keys | None = None
) -> dict[str, RuntimeError]:
    """Runs what is missing, and keeps each outcome as soon as it is there.

    Args:
        runs: What is wanted.
        keys: The key of each; runs of one key are run once.
        store: Where outcomes are looked for and kept.
        work: What runs the missing ones.
        made: What made the keys: nothing is kept of a run whose files have changed since.

    Returns:
        Why runs failed that did, by key: nothing is kept of these.

    Raises:
        RuntimeError: A file changed while runs read it.
    """
    failed = {}
    wanted = dict(zip(keys, runs, strict=True))
    missing = [key for key in wanted if store.read(key) is None]
    if missing:
        with closing(work([wanted[key] for key in missing])) as ended:
            for index, end in ended:
                if made is not None:
                    made.check(missing[index])
                if isinstance(end, RuntimeError):
                    failed[missing[index]] = end
                else:
                    store.write(missing[index], end)
    return failed


@contextmanager
def kept(store: Store, keys: Sequence[str]) -> Iterator[None]:
    """Whatever ends the block early: says how many of its runs are kept, if any are, and how to go on.

    Raises:
        KeyboardInterrupt: Ctrl-C; this is its text.
        Exception: What ended it; this is a note of it.
    """
    try:
        yield
    except BaseException as error:
        wanted = set(keys)
        if there := sum(map(store.has, wanted)):
            told = f"{there} of {len(wanted)} runs are kept in `{store.folder}`; the same command goes on from there"
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(f"interrupted; {told}") from error
            error.add_note(told)
        raise


def pack(outcome: Outcome) -> bytes:
    """An outcome, compressed: a line of JSON with the plain values, then each array as `numpy.save` writes it.

    Example:
        >>> unpack(pack({"metrics": {"power": 0.1, "late": None}, "phases": ["drain", None]}))
        {'metrics': {'power': 0.1, 'late': None}, 'phases': ['drain', None]}
    """
    import numpy as np

    arrays: list[Any] = []

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            arrays.append(value)
            return {_ARRAY: len(arrays) - 1}
        if isinstance(value, Mapping):
            return {name: plain(inner) for name, inner in value.items()}
        return value

    content = io.BytesIO()
    content.write(json.dumps(plain(outcome), allow_nan=False).encode() + b"\n")
    for array in arrays:
        np.save(content, array, allow_pickle=False)
    return gzip.compress(content.getvalue(), compresslevel=6, mtime=0)


#: What stands in the plain values for an array: its number.
_ARRAY = "\0array"


def unpack(packed: bytes) -> Outcome:
    """What `pack` packed.

    Raises:
        ValueError: It is nothing of that kind, damaged, or holds more than a file of ours; likewise `IndexError`.
    """
    return _unpack(io.BytesIO(packed))


def _unpack(packed: BinaryIO) -> Outcome:
    """The same of what is left of an open file."""
    begin = packed.tell()
    size = packed.seek(0, io.SEEK_END) - begin
    packed.seek(begin)
    content = bounded_reading.gunzip(packed, bounded_reading.most_unpacked(size))
    end = content.getbuffer().nbytes
    plain = content.readline()
    arrays = []
    while content.tell() < end:
        arrays.append(_array(content, end))
    found: Outcome = json.loads(
        plain, object_hook=lambda value: arrays[value[_ARRAY]] if value.keys() == {_ARRAY} else value
    )
    return found


def _array(content: io.BytesIO, end: int) -> Any:
    """The next that `numpy.save` wrote; its header is believed as far as there is content for it."""
    import numpy as np

    begin = content.tell()
    if np.lib.format.read_magic(content) != (1, 0):
        raise ValueError("an array of another version than ours")
    shape, _, kind = np.lib.format.read_array_header_1_0(content)
    if math.prod(shape) * kind.itemsize > end - content.tell():
        raise ValueError("an array of more than there is")
    content.seek(begin)
    return np.load(content, allow_pickle=False)
