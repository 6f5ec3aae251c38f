"""Runs controllers in other processes that can read no file of the lab, reach no network and start no program.

A scheme that is a Python file may be somebody else's program. Within `Sandbox.used` this process does not load such
files: a confined process does so for each run (`verus.lab.confined`), with a budget of processor time and memory. A
scheme's first run is done twice, since a controller that reads a clock has other numbers then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from verus import _verus, controller
from verus.errors import FieldError
from verus.lab import store
from verus.lab.confined import JSON, MOST_ANSWER
from verus.lab.inputs import respelt, with_names
from verus.lab.runner import Ended, Outcome, Progress, cores, in_threads
from verus.lab.scenario import Contestant, make_run

#: Variables of the environment that a confined process keeps.
KEPT = ("LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH")

#: Variables that it has besides. Hashes of text are fixed, so a set has one order.
_SET = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

#: A process that imports nothing of the working folder, and this package from where it is.
_START = """
import sys
places = [place for place, path in enumerate(sys.path) if path.endswith("-packages")]
sys.path.insert(min(places, default=len(sys.path)), sys.argv[1])
from verus.lab.confined import serve
serve()
"""

#: To load a file and to make one controller takes no longer than this, in seconds of processor time.
_LOADING_S = 30


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of one run of a confined controller.

    Attributes:
        memory_mb: Address space of its process, MiB.
        cpu_s: Processor time, s.
    """

    memory_mb: int = 2048
    cpu_s: int = 300


class Sandbox:
    """Confined processes, started when they are needed.

    Attributes:
        budget: Limits of one run.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget or Budget()
        self._idle: queue.SimpleQueue[_Server] = queue.SimpleQueue()
        self._servers: list[_Server] = []
        self._starting = threading.Lock()
        self._known: dict[tuple[Any, ...], tuple[str, str, float, float]] = {}
        self._repeated: set[tuple[str, ...]] = set()

    @contextlib.contextmanager
    def used(self) -> Iterator[Sandbox]:
        """Within the block, files that schemes name are loaded and run here; its processes end with it."""
        before = controller.sandbox.set(self)
        try:
            yield self
        finally:
            controller.sandbox.reset(before)
            self.stop()

    def stop(self) -> None:
        """Ends all processes."""
        with self._starting:
            while self._servers:
                self._servers.pop().stop()
            self._idle = queue.SimpleQueue()

    def find(self, file: str, name: str, pairs: Sequence[tuple[str, str]]) -> tuple[str, str, float, float]:
        """The class's name, its name in messages and its two limits (`verus.controller.find`).

        Raises:
            ValueError: There is no such class or key, or the class refuses a value.
            FieldError: This system has no sandbox.
        """
        key = (str(Path.cwd()), file, name, tuple(map(tuple, pairs)))
        if key not in self._known:
            cpu_s = min(self.budget.cpu_s, _LOADING_S)
            answer = self._asked({"kind": "find", "file": file, "name": name, "pairs": pairs, "cpu_s": cpu_s})
            if not isinstance(answer, dict) or "found" not in answer:
                raise ValueError(_text(answer, "refused") or _text(answer, "failed") or _NO_ANSWER)
            try:
                shown, place, call_s, run_s = answer["found"]
                self._known[key] = str(shown), str(place), float(call_s), float(run_s)
            except (TypeError, ValueError) as error:
                raise ValueError(_NO_ANSWER) from error
        return self._known[key]

    def runs_twice(self, schemes: Sequence[str]) -> bool:
        """Whether to repeat a run, since it is the first with these schemes."""
        key = (str(Path.cwd()), *dict.fromkeys(filter(controller.file_of, schemes)))
        is_first = key not in self._repeated
        self._repeated.add(key)
        return is_first

    def ended(
        self,
        scenarios: Sequence[str],
        *,
        threads: int | None = None,
        columns: bool = True,
        progress: Progress | None = None,
    ) -> Generator[tuple[int, Ended]]:
        """Runs scenarios, and yields each one's index and outcome as soon as it ends.

        Args:
            scenarios: As JSON.
            threads: Processes at a time; as many as there are cores if None.
            columns: Whether arrays are returned beside metrics.
            progress: Called as runs end.

        Raises:
            FieldError: This system has no sandbox.
        """
        plain = [json.loads(text) for text in scenarios]
        schemes = [[flow["scheme"] for flow in scenario["flows"]] for scenario in plain]
        twice = [self.runs_twice(own) for own in schemes]

        def run(index: int) -> Ended:
            file = next(filter(None, map(controller.file_of, schemes[index])), "")
            request = {"kind": "run", "file": file, "scenario": _placed(plain[index]), "columns": columns}
            outcome = self._outcome(request)
            if twice[index] and not isinstance(outcome, RuntimeError):
                again = self._outcome(request)
                if not isinstance(again, RuntimeError) and not _are_equal(outcome, again, columns=columns):
                    again = RuntimeError(
                        f"`{file}`: the same run gave other numbers when it ran again: the class reads a clock, or "
                        "draws random numbers that are not from `self.random`"
                    )
                outcome = again
            return outcome if isinstance(outcome, RuntimeError) else with_names(outcome, plain[index])

        def tell(done: int) -> None:
            if progress is not None:
                progress(done, len(scenarios), done / len(scenarios))

        yield from in_threads(len(scenarios), run, threads=threads or cores(), tell=tell, stop=self.stop)

    def _outcome(self, request: dict[str, Any]) -> Ended:
        try:
            answer = self._asked({**request, "cpu_s": self.budget.cpu_s})
        except RuntimeError as error:
            return error
        outcome = answer.get("outcome") if isinstance(answer, dict) else None
        if isinstance(answer, bytes):
            # A confined process may answer anything.
            with contextlib.suppress(Exception):
                outcome = store.unpack(answer)
        flows = len(json.loads(request["scenario"])["flows"])
        if _is_like(outcome, _example(columns=request["columns"]), flows):
            return cast("Outcome", outcome)
        return RuntimeError(_text(answer, "failed") or f"`{request['file']}`: {_NO_ANSWER}")

    def _asked(self, request: dict[str, Any]) -> Any:
        """A process's answer: what its JSON says, or bytes that `verus.lab.store` packed."""
        try:
            server = self._idle.get_nowait()
        except queue.Empty:
            server = self._started()
        try:
            answer = server.answer({"memory_mb": self.budget.memory_mb, "folder": str(Path.cwd()), **request})
        except RuntimeError:
            server.stop()
            raise
        self._idle.put(server)
        if answer[:1] != JSON:
            return answer[1:]
        try:
            return json.loads(answer[1:])
        except (ValueError, RecursionError):
            return None

    def _started(self) -> _Server:
        if sys.platform != "linux":
            raise _missing("this system offers no Landlock")
        with self._starting:
            server = _Server()
            self._servers.append(server)
        answer = json.loads(server.answer(_CONFINE)[1:])
        if "abi" not in answer:
            raise _missing(answer.get("missing") or answer.get("failed"))
        return server


#: A request that only confines a process.
_CONFINE = {"kind": "confine", "file": "", "folder": "/", **dataclasses.asdict(Budget())}


def _missing(why: str) -> FieldError:
    """The error of a system without what confines a process."""
    return FieldError(
        "sandbox",
        f"{why}, so Python files would run as your user, and could read the judged rows: read the files first, and go "
        "on with --no-sandbox (in Python: sandbox=False)",
    )


def _placed(scenario: dict[str, Any]) -> str:
    """A scenario as JSON, its traces by their paths: a confined process does not know where recordings are kept."""
    path = respelt({**scenario, "flows": []}, lambda _, file: str(file.absolute()))
    return json.dumps({**path, "flows": scenario["flows"]}, allow_nan=False)


def _are_equal(one: Any, other: Any, *, columns: bool) -> bool:
    """Whether two outcomes are the same."""
    return store.pack(one) == store.pack(other) if columns else one == other


@functools.cache
def _example(*, columns: bool) -> Outcome:
    """An outcome of a built-in scheme, which has the shape of any outcome."""
    contestant = Contestant.from_scheme("constant")
    run = make_run(trace="city-driving-3g-up", queue="infinite", contestant=contestant, seed=1, duration_s=0.1)
    (outcome,) = _verus.simulate_many([run.to_json()], 1, None, columns=columns)
    # Records are in an outcome only if the run asks for them.
    return {name: value for name, value in cast("Outcome", outcome).items() if name != "records"}


def _is_like(value: Any, example: Any, flows: int) -> bool:
    """Whether a value has the shape of an outcome, so that it can be read as one: its keys, types and flows."""
    if isinstance(example, dict):
        return isinstance(value, dict) and all(
            name in value and _is_like(value[name], one, flows) for name, one in example.items()
        )
    if isinstance(example, list):
        if not (example and isinstance(example[0], dict)):
            return isinstance(value, list)
        return (
            isinstance(value, list) and len(value) == flows and all(_is_like(one, example[0], flows) for one in value)
        )
    if isinstance(example, str):
        return value is None or isinstance(value, str)
    if example is None or isinstance(example, int | float):
        return value is None or (type(value) in (int, float) and math.isfinite(value))
    return type(value) is type(example) and value.dtype.kind == example.dtype.kind


#: Message for an answer that is not well-formed.
_NO_ANSWER = "the process gave no valid answer"


def _text(answer: Any, name: str) -> str:
    """A text of an answer, on one line; empty if there is none."""
    text = answer.get(name) if isinstance(answer, dict) else None
    return " ".join(text.split())[:2000] if isinstance(text, str) else ""


class _Server:
    """A process of `verus.lab.confined`."""

    def __init__(self) -> None:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, str(Path(controller.__file__).parents[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, **_SET},
            start_new_session=True,  # Ctrl-C is for this process, which ends the others
        )

    def answer(self, request: dict[str, Any]) -> bytes:
        """The answer to a request.

        Raises:
            RuntimeError: The process ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            size = int(self._process.stdout.readline(20) or b"0")
            answer = self._process.stdout.read(min(size, MOST_ANSWER + 1))
        except (OSError, ValueError) as error:
            raise RuntimeError(f"a process of the sandbox ended: {error}") from error
        if not answer:
            raise RuntimeError("a process of the sandbox ended")
        return answer

    def stop(self) -> None:
        """Ends it, and the run under way with it."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self._process.wait()
