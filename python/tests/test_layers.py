"""Who may know of whom: imports of `verus` point down these layers, and never round."""

from __future__ import annotations

import ast
import fnmatch
import graphlib
import re
from pathlib import Path

import pytest

from verus import experiments

PACKAGE = Path(__file__).parents[1] / "verus"

#: From the bottom: each may import what is below it, and of its own layer what does not lead back.
LAYERS = {
    "words, numbers and what Rust knows": (
        "_verus",
        "controller",
        "errors",
        "checks",
        "plain",
        "output",
        "numbers",
        "interval",
        "labels",
        "endpoint",
        "files",
        "bounded",
    ),
    "what to run": ("schema", "scenario", "inputs", "keywords", "study", "fetch", "suites"),
    "running it": ("runner", "emulation", "store", "cluster"),
    "what came of it": ("rows", "repeats", "folder", "qlog", "lines", "columns", "probe", "results", "overlay"),
    "what came of many runs": ("sweep", "training"),
    "what is shown": ("summary", "style", "table", "figures*", "render"),
    "pages": ("page", "comparison", "recording", "study_page", "notebook"),
    "suites, run and judged": ("suites.seen", "suites.bbr_states", "suites.measures", "suites.judge", "suites.explain"),
    "suites, shown": ("suites.show", "suites.junit", "suites.results", "suites.page"),
    "what experiments share": ("experiments.shared*",),
    "experiments": (
        "experiments.sigcomm*",
        "experiments.model*",
        "experiments.later*",
        "experiments.others*",
    ),
    "their list": ("experiments",),
    "the page of anything": ("report",),
    "for Python": ("api", "trace", "gym", ""),
    "for people": ("commands*", "verbs", "mistakes"),
    "the command": ("cli", "__main__"),
}


def name_of(path: Path) -> str:
    """A module's name within the package; empty for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in (*PACKAGE.rglob("*.py"), PACKAGE / "_verus.pyi")}


def imported(tree: ast.AST) -> set[str]:
    """Modules of the package that a source imports anywhere: at the top, in functions, for types, or by a string."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in inner if name.removeprefix("verus.") in MODULES}
            found |= modules | ({node.module} if modules != inner else set())
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # cyclopts imports what is called
            found |= set(re.findall(r"^(verus\.[\w.]+):\w+$", node.value))
    return {name.partition(".")[2] for name in found if name.partition(".")[0] == "verus"}


def graph() -> dict[str, set[str]]:
    known = {name: imported(ast.parse(path.read_text())) for name, path in MODULES.items()}
    # `experiments.find` imports by name.
    known["experiments"] |= {experiments.module_of(name) for name in experiments.NAMES}
    return known


GRAPH = graph()


def layer(module: str) -> int:
    (found,) = [
        place for place, names in enumerate(LAYERS.values()) if any(fnmatch.fnmatchcase(module, name) for name in names)
    ]
    return found


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_down(module: str) -> None:
    assert GRAPH[module] <= MODULES.keys()
    upward = {other for other in GRAPH[module] if layer(other) > layer(module)}
    assert not upward


def test_imports_never_lead_back() -> None:
    try:
        graphlib.TopologicalSorter(GRAPH).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_a_circle_is_seen_wherever_the_import_stands() -> None:
    source = "def f():\n    from verus import report\n    from verus.results import Results\n"
    assert imported(ast.parse(source)) == {"report", "results"}
