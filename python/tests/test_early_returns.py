"""No test passes because it could not run: one that ends early says so where a person reads it."""

from __future__ import annotations

import runpy
from pathlib import Path

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "early_returns.py"))


def test_no_test_ends_before_it_asserts() -> None:
    found = SCRIPT["findings"]()
    assert not found, "\n".join(found)


def test_what_ends_early_is_seen() -> None:
    python = """
def test_a():
    if not here():
        return
    assert False
def test_b():
    pytest.skip()
def test_c():
    pytest.skip("no recordings")
    def inner():
        return 1
"""
    assert [test for _, test, _ in SCRIPT["python_tests"](python)] == ["test_a", "test_b"]
    rust = """
#[test]
fn early() {
    if !as_root() {
        return;
    }
    let words = "{";
}
#[test]
fn late() {
    let work = || {
        return;
    };
    work();
}
fn helper() {
    eprintln!("skipped: no devices");
    return;
}
"""
    assert {test for _, test, _ in SCRIPT["rust_tests"](rust)} == {"early", "(print)"}


def test_an_ignored_test_has_one_target_that_runs_it() -> None:
    def ignored(why: str) -> str:
        return f'#[test]\n#[ignore = "{why}"]\nfn a() {{}}\n'

    root, recordings = ignored("takes root: `make test-root`"), ignored("reads recordings: make test-recordings")
    apart = {"crates/net/tests/net/a.rs": root, "crates/sim/tests/sim/b.rs": recordings}
    assert not list(SCRIPT["ignored_tests"](apart))
    (found,) = SCRIPT["ignored_tests"]({"crates/net/tests/net.rs": ignored("slow")})
    assert found.startswith("crates/net/tests/net.rs:2: names no target")
    mixed = {"crates/net/tests/net/a.rs": root + root, "crates/net/tests/net/b.rs": recordings}
    (found,) = SCRIPT["ignored_tests"](mixed)
    assert "`net` has ignored tests of two targets" in found
    alike = {"crates/net/tests/corpus.rs": root, "crates/sim/tests/corpus/b.rs": recordings}
    assert len(list(SCRIPT["ignored_tests"](alike))) == 1
