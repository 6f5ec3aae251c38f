"""Layers of `verus`: imports point down these layers, and never form a cycle."""

from __future__ import annotations

import ast
import fnmatch
import functools
import graphlib
import re
from pathlib import Path

import pytest

from verus import papers

PACKAGE = Path(__file__).parents[1] / "verus"

#: Layers from the bottom, of which the first match counts. A module may import from lower layers,
#: and from its own layer if that forms no cycle.
LAYERS = (
    ("_verus", "controller", "errors"),
    ("lab*",),
    ("endpoints*",),
    ("report*",),
    ("suites*",),
    ("papers*",),
    ("saved_run", "api", "trace", "gym", ""),
    ("commands*",),
    ("cli", "__main__"),
)


def name_of(path: Path) -> str:
    """A module's name within the package; empty for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in (*PACKAGE.rglob("*.py"), PACKAGE / "_verus.pyi")}


def imported(tree: ast.AST) -> set[str]:
    """Modules of the package that a source imports anywhere: at the top, in functions, for types, or by a string."""
    imports = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in inner if name.removeprefix("verus.") in MODULES}
            imports |= modules | ({node.module} if modules != inner else set())
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # cyclopts imports what is called
            imports |= set(re.findall(r"^(verus\.[\w.]+):\w+$", node.value))
    return {name.partition(".")[2] for name in imports if name.partition(".")[0] == "verus"}


@functools.cache
def graph() -> dict[str, set[str]]:
    imports = {name: imported(ast.parse(path.read_text())) for name, path in MODULES.items()}
    # `papers.find` imports by name.
    imports["papers"] |= {papers.module_of(name) for name in papers.NAMES}
    return imports


def layer(module: str) -> int:
    return next(place for place, names in enumerate(LAYERS) if any(fnmatch.fnmatchcase(module, name) for name in names))


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_down(module: str) -> None:
    imports = graph()[module]
    assert imports <= MODULES.keys()
    upward = {other for other in imports if layer(other) > layer(module)}
    assert not upward


def test_imports_never_lead_back() -> None:
    try:
        graphlib.TopologicalSorter(graph()).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_a_circle_is_seen_wherever_the_import_stands() -> None:
    source = "def f():\n    from verus import report\n    from verus.results import Results\n"
    assert imported(ast.parse(source)) == {"report", "results"}
