"""The build backend for pip: maturin's extension, beside it the program `verus-endpoint`, and the playground.

maturin installs the files in `target/wheel/scripts` beside the interpreter (`data` in
`pyproject.toml`); this module first builds the program into that folder. An editable installation
lacks the program: `make build` installs it separately, so that a change in one does not rebuild the
other.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import build_play
import compiling
import maturin
from maturin import (
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

SCRIPTS = Path("target/wheel/scripts")


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """A wheel with the program and the playground."""
    _leave_folders_out()
    # The same for the extension and the program, whose common crates would otherwise be compiled
    # twice.
    os.environ["CARGO_PROFILE_RELEASE_STRIP"] = "symbols"
    with compiling.on_terminal(), _scripts():
        for made in compiling.build("--release", "--package", "verus-cli"):
            if made["executable"]:
                shutil.copy(made["executable"], SCRIPTS)
        build_play.build()  # without it, `verus play` says how to build it
        return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """A link to the sources, with the extension alone."""
    with _scripts():
        return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def link(library: str, wheel_directory: str) -> None:
    """A link to the sources, like `build_editable`, with an extension that is compiled already (Linux)."""
    package = Path("python/verus")
    shutil.copy(library, package / "_verus.abi3.so")
    folder = Path(wheel_directory)
    metadata = folder / prepare_metadata_for_build_wheel(wheel_directory)
    (folder / "verus_cc.pth").write_text(f"{package.parent.resolve()}\n")
    tag = re.search(r"^Tag: (.+)$", (metadata / "WHEEL").read_text(), re.MULTILINE)
    assert tag
    files = [path for path in folder.rglob("*") if path.is_file()]
    with zipfile.ZipFile(folder / f"{metadata.stem}-{tag[1]}.whl", "w") as wheel:
        for path in files:
            wheel.write(path, path.relative_to(folder))
        wheel.writestr(f"{metadata.name}/RECORD", "".join(f"{path.relative_to(folder)},,\n" for path in files))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """The wheel's metadata."""
    with _scripts():
        return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """The sources of the extension, which maturin packs, and those of the program and the playground."""
    with _scripts():
        name: str = maturin.build_sdist(sdist_directory, config_settings)
    path = Path(sdist_directory, name)
    top = name.removesuffix(".tar.gz")
    draft = path.with_suffix(".part")
    with tarfile.open(path) as packed, tarfile.open(draft, "w:gz") as whole:
        have = set()
        for member in packed:
            have.add(member.name)
            if member.name != f"{top}/Cargo.toml":  # maturin leaves the other crates out of it
                whole.addfile(member, packed.extractfile(member))
        for extra in [Path("Cargo.toml"), *_members(), *sorted(Path("scripts").glob("*.py"))]:
            if extra.is_file() and (extra == Path("Cargo.toml") or f"{top}/{extra}" not in have):
                whole.add(extra, f"{top}/{extra}", filter=_of_nobody)
    draft.replace(path)
    return name


def _members() -> Iterator[Path]:
    """Files of all crates of the workspace: cargo needs every crate, even to build one."""
    workspace = tomllib.loads(Path("Cargo.toml").read_text(encoding="utf-8"))["workspace"]
    for member in workspace["members"]:
        yield from sorted(Path(member).rglob("*"))


def _of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The entry without the packing user's identity."""
    return entry.replace(uid=0, gid=0, uname="", gname="", deep=False)


def _leave_folders_out() -> None:
    """Removes the path of unpacked crates from panic messages in the built programs.

    Such flags are separated by spaces, so a path with a space in it is kept.
    """
    home = os.path.abspath(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")  # noqa: PTH100 (as cargo names it)
    flags = os.environ.get("CARGO_BUILD_RUSTFLAGS", "").split()
    if len(home.split()) == 1:
        os.environ["CARGO_BUILD_RUSTFLAGS"] = " ".join([*flags, f"--remap-path-prefix={home}=cargo"])


@contextlib.contextmanager
def _scripts() -> Iterator[None]:
    """The folder of programs for maturin, while the block runs."""
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        shutil.rmtree(SCRIPTS.parent)
