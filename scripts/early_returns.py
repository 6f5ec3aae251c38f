#!/usr/bin/env python3
"""Names every test that may end before it has asserted anything, and says nothing of it.

In Python a `return` of the test itself, or a skip without a reason; in Rust a `return` of a `#[test]` function. A test
that cannot run says so: `pytest.skip("no recordings")`, `#[ignore = "takes root: make test-root"]`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: Comments, strings and letters, whose braces are none.
NO_CODE = re.compile(r"""//[^\n]*|r(#*)"[\s\S]*?"\1|"(?:\\[\s\S]|[^"\\])*"|'(?:\\.|[^'\\])'""")


def python_tests(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, test and what is wrong."""
    for test in ast.walk(ast.parse(source)):
        if not isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) or not test.name.startswith("test"):
            continue
        for node in own_nodes(test):
            if isinstance(node, ast.Return):
                yield node.lineno, test.name, "returns"
            elif isinstance(node, ast.Call | ast.Attribute) and re.fullmatch(
                r"pytest\.(mark\.)?(skip|skipif|xfail|importorskip)(\(\)|)", ast.unparse(node)
            ):
                called = [call for call in ast.walk(test) if isinstance(call, ast.Call) and call.func is node]
                reasons = [call for call in called if any(k.arg == "reason" for k in call.keywords) or call.args]
                if isinstance(node, ast.Attribute) and not reasons:
                    yield node.lineno, test.name, "skips without a reason"


def own_nodes(test: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, but not in those within it."""
    for child in ast.iter_child_nodes(test):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from own_nodes(child)


def rust_tests(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, test and what is wrong. Closures that take up lines of their own are told from the test by their braces."""
    for line, text in enumerate(source.splitlines(), start=1):
        if re.search(r'e?println!\("skipped', text):  # what a test prints nobody reads unless it fails
            yield line, "(print)", "says that it skips where nobody hears"
    code = NO_CODE.sub(lambda m: "\n" * m[0].count("\n"), source)
    for found in re.finditer(r"#\[(?:tokio::)?test[^\]]*\](?:\s*#\[[^\]]*\])*\s*(?:async\s+)?fn\s+(\w+)[^{]*\{", code):
        closures: list[bool] = [False]
        at = found.end()
        for token in re.finditer(r"[{}]|\breturn\b(?:\s+Ok\(\(\)\))?\s*;", code[at:]):
            if token[0] == "{":
                before = code[at : at + token.start()].rstrip()
                inner = re.search(r"(\|[^|\n]*\|(\s*->[^{]*)?|\bmove|\basync|\bfn\s+\w+[^{;}]*)$", before) is not None
                closures.append(closures[-1] or inner)
            elif token[0] == "}":
                closures.pop()
                if not closures:
                    break
            elif not closures[-1]:
                yield code[: at + token.start()].count("\n") + 1, found[1], "returns"
        if re.search(r"#\[ignore\]", found[0]):
            yield code[: found.start()].count("\n") + 1, found[1], "is ignored without a reason"


def findings(root: Path = ROOT) -> list[str]:
    """Each as `file:line: test: what`."""
    told = []
    for pattern, look in (("python/**/*.py", python_tests), ("crates/**/*.rs", rust_tests)):
        for path in sorted(root.glob(pattern)):
            where = path.relative_to(root)
            told += [f"{where}:{line}: {test}: {what}" for line, test, what in look(path.read_text())]
    return told


if __name__ == "__main__":
    print(*findings(), sep="\n")
    sys.exit(bool(findings()))
