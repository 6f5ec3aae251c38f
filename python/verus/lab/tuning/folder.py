"""The folder of a search: Optuna's journal, outcomes of runs, candidates, and the judgement."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verus.errors import FieldError
from verus.lab import bounded_reading
from verus.lab.atomic_write import replace_whole
from verus.lab.results_folder import refuse_link
from verus.lab.store import Store

#: Version of the files; a change of their meaning raises it.
FORMAT = 1


class TuneFolder:
    """Where a search is.

    Args:
        path: The folder; made when something is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / "search.journal"
        self.search = path / "search.json"
        self.judged = path / "judged.json"
        self.store = Store(path / "runs")

    def check(self) -> None:
        """Refuses a place that has something else in it.

        Raises:
            FieldError: It is no folder, or not that of a search.
        """
        if self.path.exists() and not self.path.is_dir():
            raise FieldError("out", f"`{self.path}` is not a folder")
        refuse_link(self.path)
        if self.path.is_dir() and not self.search.exists() and any(self.path.iterdir()):
            raise FieldError("out", f"`{self.path}` is not empty, and not the folder of a search")
        self.store.check()

    def begin(self, content: Mapping[str, Any]) -> None:
        """Makes the folder of a search, or checks that the one that is there is of the same.

        Raises:
            FieldError: It is of another search.
            OSError: It cannot be made.
            ValueError: The file of the search is damaged.
        """
        if not self.search.exists():
            self.path.mkdir(parents=True, exist_ok=True)
            self.write(self.search, content)
            return
        before = self.read(self.search)
        if before.get("engine") != content["engine"]:
            raise FieldError("out", f"`{self.path}` was run by another build of the simulator ({before.get('engine')})")
        if before.get("identity") != content["identity"]:
            raise FieldError(
                "out",
                f"`{self.path}` is of another search: its scheme, keys, rows, aims or sampler differ, or a file that "
                "they name has changed",
            )

    def write(self, path: Path, content: Mapping[str, Any]) -> None:
        """Writes one of the JSON files, whole or not at all.

        Raises:
            FieldError: It cannot be written.
        """
        marked = {"format": FORMAT, "kind": "tune", **content}
        replace_whole(path, (json.dumps(marked, indent=1, allow_nan=False) + "\n").encode())

    def read(self, path: Path) -> dict[str, Any]:
        """Reads one of the JSON files.

        Raises:
            OSError: It cannot be read.
            ValueError: It is not one of ours, or of another version.
        """
        try:
            content = json.loads(bounded_reading.content(path, bounded_reading.MOST_JSON))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"`{path}`: not a file of a search ({error})") from error
        if not isinstance(content, dict) or content.get("kind") != "tune" or content.get("format") != FORMAT:
            raise ValueError(f"`{path}`: not a file of a search, or of another version")
        return content

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Holds the folder for this process; the system lets go of it when the process ends, however it ends.

        Raises:
            FieldError: Another process holds it.
        """
        import fcntl

        with (self.path / "lock").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise FieldError("out", f"another process works in `{self.path}`") from error
            self._mend()
            yield

    def _mend(self) -> None:
        """Removes what a killed process left of a write to the journal: a lock, and a line without its end."""
        self.journal.with_name(f"{self.journal.name}.lock").unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError), self.journal.open("r+b") as file:
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
