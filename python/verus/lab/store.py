"""Outcomes of runs, each saved as it ends under a key that is computed from the run.

A run's key is a digest of all that decides its outcome. It covers the scenario, the contents of the
traces and models that it names (not their paths), and the compiled extension's bytes. After any
interruption (Ctrl-C, `kill -9`, a full disk), the same command continues with the missing runs, and
never takes another engine's outcome for its own. A file is written whole or not at all; a damaged
one counts as missing.
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

#: The length of the digest before a packed outcome.
_DIGEST_BYTES = hashlib.sha256().digest_size

#: Executes runs; yields the index of each with its outcome, in the order in which they end.
Work = Callable[[Sequence[Run]], Generator[tuple[int, Ended]]]


@cache
def engine() -> str:
    """The simulator that runs here: its version, and a digest of the compiled extension.

    Two builds from different sources never have the same one. Two from the same sources may differ,
    too: then some runs are repeated needlessly, but outcomes of two simulators are never mixed.
    """
    return f"{_verus.version()}-{digest_of(Path(_verus.__file__))[:12]}"


class Keys:
    """Computes the keys of runs. Each file that they name is read once.

    Args:
        engine: The engine that executes them.
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._files = Digests()
        self._find = cache(_verus.named_files)
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

        identity = {
            "format": FORMAT,
            "engine": self._engine,
            "transport": run.contestant.transport,
            "scenario": respelt(run.scenario, digest, self._find),
        }
        key = hashlib.sha256(json.dumps(identity, allow_nan=False, sort_keys=True).encode()).hexdigest()
        self._needs[key] = needs
        return key

    def check(self, key: str) -> None:
        """Refuses to keep an outcome under its key if a file changed since the key was computed.

        Raises:
            RuntimeError: A file changed.
        """
        for path in self._needs.get(key, ()):
            self._files.check(path)


class Store:
    """A folder of outcomes, by key. Several processes may use one at the same time.

    Args:
        folder: The folder; made when the first outcome is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        """The path of the outcome of that key, whether or not it exists."""
        return self.folder / key[:2] / f"{key[2:]}.run"

    def check(self) -> None:
        """Refuses links, before any work is done: all files must be written into this folder itself.

        Raises:
            FieldError: It is a link, or a folder in it is.
        """
        refuse_link(self.folder)
        with contextlib.suppress(OSError):  # an absent folder, or a file, is no link
            for inner in self.folder.iterdir():
                if inner.is_dir():
                    refuse_link(inner)

    def has(self, key: str) -> bool:
        """Whether the outcome of that key exists undamaged."""
        try:
            with self._packed(key):
                return True
        except (OSError, ValueError):
            return False

    def read(self, key: str) -> Outcome | None:
        """The outcome of that key; None if it is absent or damaged."""
        try:
            with self._packed(key) as packed:
                return _unpack(packed)
        except Exception:  # an untrusted file: the digest is right, but its content is no outcome
            return None

    @contextmanager
    def _packed(self, key: str) -> Iterator[BinaryIO]:
        """The same, packed: an open file behind its digest, which matched.

        Raises:
            OSError, ValueError: It is absent or damaged.
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
            FieldError: It cannot be written; an earlier file is unharmed.
        """
        packed = pack(outcome)
        name = str(self.path(key).relative_to(self.folder))
        replace_below(self.folder, name, hashlib.sha256(packed).digest() + packed)

    def outcome(self, key: str) -> Outcome:
        """The outcome of that key, which existed a moment ago.

        Raises:
            RuntimeError: It no longer exists.
        """
        outcome = self.read(key)
        if outcome is None:
            raise RuntimeError(f"`{self.path(key)}` was removed or changed while it was needed")
        return outcome

    def remove(self) -> None:
        """Removes the folder with all outcomes."""
        shutil.rmtree(self.folder, ignore_errors=True)


def complete(
    runs: Sequence[Run], keys: Sequence[str], store: Store, work: Work, *, made: Keys | None = None
) -> dict[str, RuntimeError]:
    """Executes the missing runs, and keeps each outcome as soon as it arrives.

    Args:
        runs: The runs.
        keys: The key of each; runs of one key are run once.
        store: The store of outcomes.
        work: Executes the missing ones.
        made: The object that computed the keys: a run whose files have changed since is not kept.

    Returns:
        The errors of failed runs, by key: nothing is kept of these.

    Raises:
        RuntimeError: A file changed while runs read it.
    """
    failed = {}
    run_of = dict(zip(keys, runs, strict=True))
    missing = [key for key in run_of if store.read(key) is None]
    if missing:
        with closing(work([run_of[key] for key in missing])) as ended:
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
    """Adds to any exception in the block how many of its runs are kept, if any are, and how to go on.

    Raises:
        KeyboardInterrupt: Ctrl-C; this is its text.
        Exception: The exception in the block, with this as a note.
    """
    try:
        yield
    except BaseException as error:
        distinct = set(keys)
        if done := sum(map(store.has, distinct)):
            note = f"{done} of {len(distinct)} runs are kept in `{store.folder}`; the same command goes on from there"
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(f"interrupted; {note}") from error
            error.add_note(note)
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


#: The key, in the plain values, of an array's number.
_ARRAY = "\0array"


def unpack(packed: bytes) -> Outcome:
    """The outcome that `pack` packed.

    Raises:
        ValueError: It is no packed outcome, damaged, or larger than a file of ours; likewise
            `IndexError`.
    """
    return _unpack(io.BytesIO(packed))


def _unpack(packed: BinaryIO) -> Outcome:
    """Unpacks the rest of an open file."""
    begin = packed.tell()
    size = packed.seek(0, io.SEEK_END) - begin
    packed.seek(begin)
    content = bounded_reading.gunzip(packed, bounded_reading.most_unpacked(size))
    end = content.getbuffer().nbytes
    values = content.readline()
    arrays = []
    while content.tell() < end:
        arrays.append(_array(content, end))
    outcome: Outcome = json.loads(
        values, object_hook=lambda value: arrays[value[_ARRAY]] if value.keys() == {_ARRAY} else value
    )
    return outcome


def _array(content: io.BytesIO, end: int) -> Any:
    """Reads the next array that `numpy.save` wrote; its header is trusted only up to the size of the content."""
    import numpy as np

    begin = content.tell()
    if np.lib.format.read_magic(content) != (1, 0):
        raise ValueError("an array of another version than ours")
    shape, _, kind = np.lib.format.read_array_header_1_0(content)
    if math.prod(shape) * kind.itemsize > end - content.tell():
        raise ValueError("an array of more than there is")
    content.seek(begin)
    return np.load(content, allow_pickle=False)
