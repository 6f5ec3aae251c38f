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
