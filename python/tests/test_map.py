"""The map of the code, ARCHITECTURE.md, has a place for every module, and names none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
#: Sections by their headings.
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", MAP, flags=re.MULTILINE | re.DOTALL))
CRATES = sorted(path.name for path in (ROOT / "crates").iterdir() if path.is_dir())
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


@pytest.mark.parametrize("crate", CRATES)
def test_every_module_of_a_crate_is_on_the_map(crate: str) -> None:
    (section,) = (text for heading, text in SECTIONS.items() if re.search(rf"crates/{crate}\b", heading))
    files, folders = named(section)
    modules = [path for path in (ROOT / "crates" / crate / "src").rglob("*.rs") if path.name not in PLAIN]
    lost = [str(path) for path in modules if path.name not in files and not folders & {*path.relative_to(ROOT).parts}]
    assert not lost


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
    assert files - there - {path.name for path in ROOT.iterdir()} == {".tsv"}
