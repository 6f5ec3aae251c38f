"""The Rust program beside the interpreter: its verbs and its location."""

from __future__ import annotations

import os
import sys

#: Verbs of the Rust binary, which is installed beside the interpreter, and their purposes.
ENDPOINT_VERBS = {
    "probe": "Measure a live path under the load of any of the controllers.",
    "serve": "Serve a folder over QUIC to clients with a token.",
    "send": "Send files and folders to a server.",
    "receive": "Fetch files and folders from a server.",
    "shell": "Run any program behind an emulated link, in real time.",
    "kernel": "Give every TCP program of this machine low delay, by eBPF.",
}
ENDPOINT = "verus-endpoint"

#: The environment variable with the program's path, where it is not beside the interpreter.
VARIABLE = "VERUS_ENDPOINT"

#: The exit code of both programs for invalid arguments or input.
BAD_INPUT = 2


def find_endpoint() -> tuple[str | None, str]:
    """The path of the Rust binary, beside the interpreter or this command, and the places of the search, in words.

    `VERUS_ENDPOINT` names another program, such as one with additional algorithms.
    """
    if own := os.environ.get(VARIABLE):
        return (own if os.access(own, os.X_OK) else None), f"`{own}`, where {VARIABLE} says"
    # Without pathlib, which costs start-up.
    folders = dict.fromkeys(os.path.dirname(os.path.abspath(path)) for path in (sys.executable, sys.argv[0]))  # noqa: PTH100, PTH120
    binary = next((path for folder in folders if os.access(path := os.path.join(folder, ENDPOINT), os.X_OK)), None)  # noqa: PTH118
    return binary, " or ".join(f"`{folder}`" for folder in folders)


def error_line(errors: str) -> str:
    """The message that the endpoint wrote to its standard error, on one line."""
    return "; ".join(part.strip() for part in errors.strip().removeprefix("verus: ").splitlines())
