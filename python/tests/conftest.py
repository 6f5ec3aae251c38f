"""What the tests of the front share: the command run in this process, and where recordings are."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from verus import cli

# A shell that runs the tests in the background has its children ignore Ctrl-C, and they theirs;
# tests of Ctrl-C would then wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Ran]


@pytest.fixture
def verus(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`verus ARGUMENTS` in an empty folder, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERUS_CACHE", str(tmp_path / ".cache"))
    monkeypatch.delenv("VERUS_TRACES", raising=False)
    monkeypatch.delenv("VERUS_TRACE_URL", raising=False)

    def command(*arguments: object) -> Ran:
        capsys.readouterr()
        code = cli.run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return command


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with recordings and reference figures, which is not part of the repository."""
    folder = Path(os.environ.get("VERUS_SHARED", Path(__file__).parents[3] / "shared"))
    if not (folder / "traces").is_dir():
        pytest.skip(f"no recordings: {folder} is absent (set VERUS_SHARED)")
    return folder


@pytest.fixture
def left_behind() -> Callable[[Path], list[str]]:
    """Everything in a folder, by path."""

    def look(folder: Path) -> list[str]:
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))

    return look
