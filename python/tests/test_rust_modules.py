"""Dependencies between modules of a crate: `use` and paths form no cycle.

A module and its submodules count as one: a submodule may use items of the modules that contain it.
Tests may use anything.
"""

from __future__ import annotations

import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CRATES = Path(__file__).parents[2] / "crates"

#: A path in code, such as `crate::units::Time`.
_PATH = re.compile(r"\b(?:crate|self|super)(?:::\w+)+")
_USE = re.compile(r"\buse\s+([^;]+);")
_NESTED = re.compile(r"((?:\w+::)*)\{(.*)\}", re.DOTALL)


def modules_of(crate: Path) -> dict[str, Path]:
    """A crate's modules by path (`verus::robust`), the crate itself being empty."""
    modules = {}
    for path in (crate / "src").rglob("*.rs"):
        name = "::".join(path.relative_to(crate / "src").with_suffix("").parts)
        modules["" if name in ("lib", "main") else name] = path
    return modules


def without_tests(source: str) -> str:
    source = re.sub(r"//[^\n]*", "", source)
    return re.split(r"#\[cfg\(test\)\]\s*mod \w+ \{", source)[0]


def flattened(tree: str, before: str = "") -> Iterator[str]:
    """The paths of a `use` tree: `a::{b, c::{d, e}}` are `a::b`, `a::c::d` and `a::c::e`."""
    depth, start = 0, 0
    for at, letter in enumerate(tree + ","):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            part, start = tree[start:at].strip(), at + 1
            if nested := _NESTED.fullmatch(part):
                yield from flattened(nested[2], before + nested[1])
            elif part:
                yield before + part.partition(" as ")[0]


def paths_in(source: str) -> set[str]:
    used = {path for use in _USE.findall(source) for path in flattened(use)}
    return used | set(_PATH.findall(_USE.sub("", source)))


def resolved(path: str, module: str, modules: dict[str, Path]) -> str | None:
    """The module that `path`, as `module` writes it, is in; `None` for another crate's."""
    parts = path.split("::")
    base = module.split("::") if module else []
    if parts[0] == "crate":
        base, parts = [], parts[1:]
    elif parts[0] in ("self", "super"):
        while parts and parts[0] in ("self", "super"):
            base, parts = (base[:-1] if parts[0] == "super" else base), parts[1:]
    elif "::".join([*base, parts[0]]) not in modules:
        return None
    full = base + parts
    while full and "::".join(full) not in modules:
        full.pop()
    return "::".join(full)


def graph(crate: Path) -> dict[str, set[str]]:
    modules = modules_of(crate)
    uses: dict[str, set[str]] = {}
    for module, path in modules.items():
        used = {resolved(path, module, modules) for path in paths_in(without_tests(path.read_text()))}
        inside_of = {"", module} | {other for other in modules if module.startswith(f"{other}::")}
        uses[module] = {other for other in used if other is not None} - inside_of
    return uses


@pytest.mark.parametrize("crate", sorted(path.name for path in CRATES.iterdir() if (path / "src").is_dir()))
def test_modules_never_lead_back(crate: str) -> None:
    try:
        graphlib.TopologicalSorter(graph(CRATES / crate)).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_a_circle_is_seen_however_it_is_written(tmp_path: Path) -> None:
    source = tmp_path / "src"
    (source / "a").mkdir(parents=True)
    (source / "lib.rs").write_text("mod a;\nmod b;\n")
    (source / "a.rs").write_text("mod inner;\nuse std::fmt::{self, Debug};\n")
    (source / "a" / "inner.rs").write_text("use crate::{b::{self, Other as _}};\n")
    (source / "b.rs").write_text("fn f() { super::a::inner::g() }\n#[cfg(test)]\nmod tests { use crate::a; }\n")
    assert graph(tmp_path) == {"": set(), "a": set(), "a::inner": {"b"}, "b": {"a::inner"}}
