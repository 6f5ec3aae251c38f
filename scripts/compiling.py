"""Runs cargo, and shows the crates that it compiles."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def build(*arguments: str) -> list[dict[str, Any]]:
    """Build, and return the artifacts: cargo's messages of reason `compiler-artifact`.

    Raises:
        CalledProcessError: cargo failed, after printing the reason.
    """
    command = ["cargo", "build", "--locked", "--message-format=json-render-diagnostics", *arguments]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    messages = map(json.loads, built.stdout.splitlines())
    return [message for message in messages if message["reason"] == "compiler-artifact"]


@contextlib.contextmanager
def on_terminal() -> Iterator[None]:
    """Print each compiled crate on the terminal, too, if there is one and standard error is redirected.

    Compiling takes minutes, in which pip hides all output (`--verbose` shows it).
    """
    with contextlib.ExitStack() as stack:
        if sys.stderr.isatty():
            yield
            return
        try:
            terminal = stack.enter_context(Path("/dev/tty").open("w", encoding="utf-8"))
        except OSError:
            yield
            return
        error = os.dup(2)
        reading, writing = os.pipe()
        os.dup2(writing, 2)
        os.close(writing)

        def tell() -> None:
            with os.fdopen(reading, errors="replace") as lines:
                for line in lines:
                    os.write(error, line.encode())
                    if line.lstrip().startswith("Compiling"):
                        print(f"\r\x1b[K{line.rstrip()}", file=terminal, flush=True)

        telling = threading.Thread(target=tell)
        telling.start()
        try:
            yield
        finally:
            os.dup2(error, 2)
            telling.join()
            os.close(error)
