"""The processes of `verus.lab.sandbox`: one answers requests, and forks a child for each, which confines itself.

A child is forked before any foreign code is loaded, and ends with its answer: one run learns nothing from another. It
reads a run's trace before it is confined, and loads the controller's file afterwards.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import resource
import select
import signal
import sys
import sysconfig
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from verus import _verus, controller

#: The most bytes of an answer, and of what a dying child writes about itself.
MOST_ANSWER, MOST_TRACE = 256 << 20, 64 << 10

#: A limit by the clock, since a child may sleep or wait for a processor: this many times its processor time, plus these
#: seconds.
_PATIENCE, _MORE_S = 10, 30

#: Time in which a child that must end can state its line, in seconds.
_LAST_WORDS_S = 1.0

#: Places of the libraries that programs are linked to, which each may read.
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache")

#: The kinds of an answer: its first byte.
JSON, PACKED = b"J", b"P"


def serve() -> None:
    """Answers each line of standard input, a request, with a line that has a size and so many bytes, until it ends."""
    for line in sys.stdin.buffer:
        answer = _answer(json.loads(line))
        sys.stdout.buffer.write(b"%d\n" % len(answer) + answer)
        sys.stdout.buffer.flush()


def _answer(request: Mapping[str, Any]) -> bytes:
    """A child's answer, or a sentence about how it ended without one."""
    answer_end, answer_begin = os.pipe()
    trace_end, trace_begin = os.pipe()
    child = os.fork()
    if child == 0:
        _be_confined(request, answer_begin, trace_begin)
    os.close(answer_begin)
    os.close(trace_begin)
    try:
        content, trace, problem = _collected(child, answer_end, trace_end, request["cpu_s"])
    finally:
        os.close(answer_end)
        os.close(trace_end)
        os.kill(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
    if not problem and content[:1] in (JSON, PACKED):
        return content
    line = _line(trace, request["file"])
    place = f"`{request['file']}`" + (f", line {line}" if line else "")
    problem = problem or _ending(status, used.ru_utime + used.ru_stime, request)
    return JSON + json.dumps({"failed": f"{place}: {problem}"}).encode()


def _collected(child: int, answer: int, trace: int, cpu_s: int) -> tuple[bytes, bytes, str]:
    """The content of both pipes at a child's end, and the reason if it was ended."""
    content = {answer: bytearray(), trace: bytearray()}
    most = {answer: MOST_ANSWER, trace: MOST_TRACE}
    limit_s = cpu_s * _PATIENCE + _MORE_S
    deadline, problem = time.monotonic() + limit_s, ""
    ended = os.pidfd_open(child)
    poll = select.poll()
    for descriptor in (answer, trace, ended):
        poll.register(descriptor, select.POLLIN)
    is_alive = True
    try:
        while is_alive:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                if problem:
                    break
                problem = (
                    f"took longer than {limit_s} s by the clock ({_PATIENCE} times `cpu_s` of [tune], and {_MORE_S} s)"
                )
                os.kill(child, signal.SIGXCPU)  # it writes its line before it ends
                deadline += _LAST_WORDS_S
                continue
            ready = {descriptor for descriptor, _ in poll.poll(left_s * 1e3)}
            is_alive = ended not in ready
            # The pipes are read once more after the end.
            for descriptor in (ready - {ended}) if is_alive else content:
                os.set_blocking(descriptor, False)
                with contextlib.suppress(BlockingIOError):
                    while piece := os.read(descriptor, 1 << 16):
                        content[descriptor] += piece
                        if len(content[descriptor]) > most[descriptor]:
                            return b"", b"", f"answered with more than {most[descriptor]} bytes"
                    if is_alive:
                        poll.unregister(descriptor)  # it was closed
    finally:
        os.close(ended)
    return bytes(content[answer]), bytes(content[trace]), problem


def _ending(status: int, used_s: float, request: Mapping[str, Any]) -> str:
    """How a child ended that gave no answer."""
    if not os.WIFSIGNALED(status):
        return "the process ended without a result"
    by = signal.Signals(os.WTERMSIG(status))
    if by == signal.SIGXCPU or (by == signal.SIGKILL and used_s >= request["cpu_s"]):
        return f"took more than {request['cpu_s']} s of processor time (`cpu_s` of [tune])"
    return f"the process ended by {by.name} (its memory: {request['memory_mb']} MiB, `memory_mb` of [tune])"


def _line(trace: bytes, file: str) -> int | None:
    """The line of a file in a trace of `faulthandler`, innermost first."""
    match = re.search(rf'File "{re.escape(file)}", line (\d+)', trace.decode(errors="replace"))
    return int(match[1]) if match else None


def _be_confined(request: Mapping[str, Any], answer: int, trace: int) -> NoReturn:
    """The child's life."""
    try:
        os.chdir(request["folder"])
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
            if descriptor > 2 and descriptor not in (answer, trace):
                with contextlib.suppress(OSError):  # the list's own
                    os.close(descriptor)
        faulthandler.enable(file=trace)
        faulthandler.register(signal.SIGXCPU, file=trace, all_threads=True, chain=True)
        memory = request["memory_mb"] << 20
        for limit, most in (
            (resource.RLIMIT_AS, (memory, memory)),
            (resource.RLIMIT_CPU, (request["cpu_s"], request["cpu_s"] + 1)),
            (resource.RLIMIT_CORE, (0, 0)),
            (resource.RLIMIT_FSIZE, (0, 0)),
        ):
            resource.setrlimit(limit, most)
        content = _done(request)
    except BaseException as error:  # whatever it is, nothing may run in this process afterwards
        content = JSON + json.dumps({"failed": f"`{request['file']}`: {controller.told(error)}"}).encode()
    with contextlib.suppress(BaseException):
        view = memoryview(content)
        while view:
            view = view[os.write(answer, view) :]
    os._exit(0)


def _done(request: Mapping[str, Any]) -> bytes:
    """The answer to a request."""
    kind = request["kind"]
    if kind == "confine":
        try:
            return JSON + json.dumps({"abi": _confine([])}).encode()
        except OSError as error:
            return JSON + json.dumps({"missing": str(error)}).encode()
    if kind == "find":
        values = [Path(value) for _, value in request["pairs"] if Path(value).is_file()]
        try:
            _confine_before([Path(request["file"]), *values])
            _, *found = controller.find(request["file"], request["name"], request["pairs"])
        except ValueError as error:
            return JSON + json.dumps({"refused": str(error)}).encode()
        except OSError as error:
            return JSON + json.dumps({"refused": f"`{request['file']}` cannot be read: {error.strerror}"}).encode()
        return JSON + json.dumps({"found": found}).encode()
    schemes = dict.fromkeys(flow["scheme"] for flow in json.loads(request["scenario"])["flows"])
    _confine_before(path for text in schemes for _, _, path in _verus.named_files("scheme", text))
    outcome = _verus.simulate_planned(request["scenario"], request["columns"])
    if isinstance(outcome, RuntimeError):
        return JSON + json.dumps({"failed": str(outcome)}).encode()
    if request["columns"]:
        from verus.lab import store

        return PACKED + store.pack(outcome)
    return JSON + json.dumps({"outcome": outcome}, allow_nan=False).encode()


def _confine_before(files: Iterable[Path]) -> None:
    """Confines this process when it is about to load a file; then it can read these and their imports."""
    readable = [path for file in map(Path, files) for path in (file, *controller.imported(file).values())]

    def confine() -> None:
        controller.before_loading = lambda: None
        _confine(readable)

    controller.before_loading = confine


def _confine(files: Iterable[Path]) -> int:
    """Leaves this process the interpreter, its packages and these files; Landlock's version.

    Raises:
        OSError: The system has no Landlock.
    """
    paths = [Path(path) for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    paths += [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    files = list(files)
    return _verus.confine(
        [*paths, *map(Path, _LIBRARIES), Path(controller.__file__).parent, *files],
        # A module is sought in the list of a folder's names.
        list(dict.fromkeys(file.resolve().parent for file in files)),
    )
