"""ARCHITECTURE.md lists each crate's dependencies; released code needs no crate for tests."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CRATES = sorted(path.name for path in (ROOT / "crates").iterdir() if path.is_dir())
#: The table's rows: name, contents, dependencies, forbidden contents.
ROWS = [row.strip("|").split("|") for row in re.findall(r"^\| `\w+` \|.*\|$", MAP, flags=re.MULTILINE)]


def dependencies_of(crate: str) -> set[str]:
    """The crates of ours that a crate needs where it is used, not where it is tested."""
    manifest = tomllib.loads((ROOT / "crates" / crate / "Cargo.toml").read_text(encoding="utf-8"))
    tables = [manifest, *manifest.get("target", {}).values()]
    names = {name for table in tables for name in table.get("dependencies", {})}
    return {name.removeprefix("verus-") for name in names if name.startswith("verus-")}


@pytest.mark.parametrize("crate", CRATES)
def test_the_map_has_a_crate_and_what_it_depends_on(crate: str) -> None:
    (needs,) = (row[-2] for row in ROWS if row[0].strip() == f"`{crate}`")
    assert set(re.findall(r"`([a-z]+)`", needs)) - {"qlog"} == dependencies_of(crate)


def test_what_is_used_needs_nothing_that_is_for_tests_and_an_operator_needs_little() -> None:
    assert not {crate for crate in CRATES if "faults" in dependencies_of(crate)}
    assert dependencies_of("words") == set()
    for stack in ("quinn", "noq"):
        assert dependencies_of(stack) <= {"core", "forward", "protocol", "quic"}
    assert dependencies_of("quic") <= {"core", "measure"}
