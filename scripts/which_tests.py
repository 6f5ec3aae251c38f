#!/usr/bin/env python3
"""Arguments for cargo to run the tests of one target of the Makefile: their programs, and their names.

    cargo test --workspace $(scripts/which_tests.py test-root)

A test that needs more than a checkout is ignored, with a reason that names the target that runs it:
`#[ignore = "takes root: make test-root"]`. `test-seeds` runs the properties: tests with arguments,
which proptest draws.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

TARGETS = ("test-pages", "test-root", "test-clock", "test-recordings")

PROPERTY = re.compile(r"#\[test\]\s*(?:#\[[^\]]*\]\s*)*fn\s+(\w+)\(\s*[^)\s]")
IGNORED = re.compile(r"#\[ignore\b(?P<why>[^\]]*)\]\s*(?:#\[[^\]]*\]\s*)*(?:async\s+)?fn\s+(?P<test>\w+)")


def ignored(source: str) -> Iterator[tuple[int, str, list[str]]]:
    """The line and the name of each ignored test, and the targets that its reason names."""
    for found in IGNORED.finditer(source):
        line = source[: found.start()].count("\n") + 1
        yield line, found["test"], [target for target in TARGETS if f"make {target}" in found["why"]]


def sources(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Each file of a test program, and the program's name."""
    for folder in ("crates", "examples"):
        for path in sorted(root.glob(f"{folder}/*/tests/**/*.rs")):
            yield path, path.parts[path.parts.index("tests") + 1].removesuffix(".rs")


def arguments(target: str, root: Path = ROOT) -> list[str]:
    """Arguments for cargo to run the tests of a target."""
    programs, names = set(), set()
    for path, program in sources(root):
        tests = {test for _, test, targets in ignored(path.read_text(encoding="utf-8")) if targets == [target]}
        programs |= {program} if tests else set()
        names |= tests
    return [*(word for name in sorted(programs) for word in ("--test", name)), "--", "--ignored", *sorted(names)]


def properties(root: Path = ROOT) -> list[str]:
    """Arguments for cargo to run every property."""
    names = {
        name for path in root.glob("crates/*/**/*.rs") for name in PROPERTY.findall(path.read_text(encoding="utf-8"))
    }
    return ["--lib", "--tests", "--", *sorted(names)]


def unnamed(root: Path = ROOT) -> list[str]:
    """Ignored tests whose reason names no target, or several."""
    return [
        f"{path.relative_to(root)}:{line}: {test}: names {' and '.join(targets) or 'no target'}"
        for path, _ in sources(root)
        for line, test, targets in ignored(path.read_text(encoding="utf-8"))
        if len(targets) != 1
    ]


if __name__ == "__main__":
    if sys.argv[1:] == ["test-seeds"]:
        print(*properties())
    elif sys.argv[1:] in [[target] for target in TARGETS]:
        print(*arguments(sys.argv[1]))
    else:
        sys.exit(f"one of test-seeds, {', '.join(TARGETS)} is wanted")
