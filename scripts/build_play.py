"""Builds the playground's WebAssembly module, and puts it beside its page."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import compiling

ROOT = Path(__file__).parents[1]
TARGET = "wasm32-unknown-unknown"
MODULE = ROOT / "python" / "verus" / "play" / "play.wasm"


def build() -> bool:
    """Builds the module; False if the target's standard library is missing and rustup cannot fetch it."""
    if not _have_target():
        print(
            f"SKIPPED: the playground: the standard library for {TARGET} is not installed, and rustup cannot fetch it."
        )
        return False
    made = compiling.build("--profile", "play", "--package", "verus-play", "--lib", "--target", TARGET)
    files = [file for artifact in made for file in artifact["filenames"]]
    (module,) = (file for file in files if Path(file).name == "verus_play.wasm")
    shutil.copyfile(module, MODULE)
    return True


def _have_target() -> bool:
    def there() -> bool:
        command = ["rustc", "--print", "target-libdir", "--target", TARGET]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return said.returncode == 0 and Path(said.stdout.strip()).is_dir()

    if not there() and shutil.which("rustup"):
        adding = ["rustup", "target", "add", TARGET]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(adding, cwd=ROOT, capture_output=True, timeout=120, check=False)
    return there()


if __name__ == "__main__":
    build()
