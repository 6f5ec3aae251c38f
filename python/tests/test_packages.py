"""Published crates have their page's contents, and depend only on published crates."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WORKSPACE = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
CRATES: dict[str, tuple[Path, dict[str, Any]]] = {
    crate["package"]["name"]: (ROOT / member, crate)
    for member in WORKSPACE["members"]
    for crate in [tomllib.loads((ROOT / member / "Cargo.toml").read_text())]
}


def published(crate: dict[str, Any]) -> bool:
    publish = crate["package"].get("publish", True)
    return bool(WORKSPACE["package"]["publish"] if isinstance(publish, dict) else publish)


PUBLISHED = sorted(name for name, (_, crate) in CRATES.items() if published(crate))


def dependencies(crate: dict[str, Any]) -> set[str]:
    """Of the workspace, those that a user of the crate gets too."""
    tables = [crate, *crate.get("target", {}).values()]
    named = {
        name for table in tables for kind in ("dependencies", "build-dependencies") for name in table.get(kind, {})
    }
    return named & CRATES.keys()


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_crate_says_what_it_is(name: str) -> None:
    folder, crate = CRATES[name]
    package = crate["package"]
    assert not package["description"].endswith(".")
    assert package["description"] in " ".join((folder / "README.md").read_text().split())
    inherited = {"version", "edition", "license", "repository", "keywords", "categories", "rust-version"}
    assert all(package[key] == {"workspace": True} for key in inherited)
    assert package["metadata"]["docs"]["rs"]["all-features"] is True
    for licence in ("LICENSE-MIT", "LICENSE-APACHE"):
        assert (folder / licence).read_bytes() == (ROOT / licence).read_bytes()


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_crate_needs_published_ones_of_this_version(name: str) -> None:
    for other in dependencies(CRATES[name][1]):
        assert other in PUBLISHED
        assert WORKSPACE["dependencies"][other]["version"] == WORKSPACE["package"]["version"]
