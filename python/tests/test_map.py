"""ARCHITECTURE.md, the map: every crate and what it depends on, every module of Python, and nothing that is not there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
#: Sections by their headings.
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", MAP, flags=re.MULTILINE | re.DOTALL))
CRATES = sorted(path.name for path in (ROOT / "crates").iterdir() if path.is_dir())
#: The rows of the table of crates: name, what it holds, what it depends on, what is never there.
ROWS = [
    [cell.strip() for cell in row.strip("|").split("|")]
    for row in re.findall(r"^\| `\w+` \|.*\|$", MAP, flags=re.MULTILINE)
]
#: What every crate or package has, and what speaks for itself.
PLAIN = {"lib.rs", "main.rs", "__init__.py", "__main__.py"}


def named(text: str) -> tuple[set[str], set[str]]:
    """The names of files in a text, without their folders, and the folders of which it names all files.

    Example:
        >>> sorted(named("`tcp/{reno,cubic}.rs`, `bbr.rs`, `bbr/*`")[0])
        ['bbr.rs', 'cubic.rs', 'reno.rs']
    """
    files, folders = set(), set()
    for words in re.findall(r"`([\w./{},*-]+)`", text):
        if whole := re.fullmatch(r"(?:.*/)?(\w+)/\*", words):
            folders.add(whole[1])
            continue
        before, brace, rest = words.partition("{")
        stems, _, after = rest.partition("}")
        for stem in stems.split(",") if brace else [""]:
            files.add(f"{before}{stem}{after}".rpartition("/")[2])
    return files, folders


def dependencies_of(crate: str) -> set[str]:
    """The crates of ours that a crate needs where it is used, not where it is tested."""
    manifest = tomllib.loads((ROOT / "crates" / crate / "Cargo.toml").read_text(encoding="utf-8"))
    tables = [manifest, *manifest.get("target", {}).values()]
    names = {name for table in tables for name in table.get("dependencies", {})}
    return {name.removeprefix("verus-") for name in names if name.startswith("verus-")}


@pytest.mark.parametrize("crate", CRATES)
def test_the_map_has_a_crate_and_what_it_depends_on(crate: str) -> None:
    ((*_, needs, _never),) = (row for row in ROWS if row[0] == f"`{crate}`")
    assert set(re.findall(r"`([a-z]+)`", needs)) - {"qlog"} == dependencies_of(crate)


def test_nothing_depends_upwards() -> None:
    """Cargo refuses circles; this is what it would not see: tests' dependencies in what is used."""
    assert not {crate for crate in CRATES if "faults" in dependencies_of(crate)}
    assert dependencies_of("words") == set()
    assert dependencies_of("quinn") <= {"core", "verus", "measure"}


def test_every_module_of_the_package_is_on_the_map() -> None:
    (section,) = (text for heading, text in SECTIONS.items() if "python/verus" in heading)
    files, _ = named(section)
    assert {path.name for path in (ROOT / "python" / "verus").glob("*.py")} - PLAIN <= files


def test_the_map_names_no_file_that_is_not_there() -> None:
    there = {
        path.name
        for folder in ("crates", "python", "scripts", "attacks", "docs")
        for path in (ROOT / folder).rglob("*.*")
    }
    files = {name for name in named(MAP)[0] if name.endswith((".rs", ".py", ".tsv", ".js"))}
    assert files - there - {path.name for path in ROOT.iterdir()} == set()
