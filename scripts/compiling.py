"""Runs cargo so that whoever waits sees what it compiles."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]


def build(*arguments: str, on_terminal: bool = False) -> list[dict[str, Any]]:
    """Build, and return what was made: cargo's messages of reason `compiler-artifact`.

    It takes minutes, in which pip shows what is printed only if it is told to (`--verbose`): with `on_terminal`, each
    crate is named on the terminal, too, where there is one.

    Raises:
        CalledProcessError: If cargo fails, which has said why.
    """
    command = ["cargo", "build", "--locked", "--message-format=json-render-diagnostics", *arguments]
    with contextlib.ExitStack() as stack:
        terminal = None
        if on_terminal and not sys.stderr.isatty():
            with contextlib.suppress(OSError):
                terminal = stack.enter_context(Path("/dev/tty").open("w", encoding="utf-8"))
        cargo = stack.enter_context(
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        assert cargo.stdout is not None
        assert cargo.stderr is not None
        telling = threading.Thread(target=_tell, args=(cargo.stderr, terminal))
        telling.start()
        messages = [json.loads(line) for line in cargo.stdout]
        telling.join()
    if cargo.returncode:
        raise subprocess.CalledProcessError(cargo.returncode, command)
    return [message for message in messages if message["reason"] == "compiler-artifact"]


def _tell(lines: IO[str], terminal: IO[str] | None) -> None:
    for line in lines:
        print(line, end="", file=sys.stderr, flush=True)
        if terminal and line.lstrip().startswith("Compiling"):
            print(f"\r\x1b[K{line.rstrip()}", file=terminal, flush=True)
