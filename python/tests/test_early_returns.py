"""No test passes because it could not run: one that ends early says so where a person reads it."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "early_returns.py"))

#: How many do it still, by file: fewer may, more must not.
STILL = {
    "crates/cli/tests/probe_paths.rs": 4,
    "crates/cli/tests/serve_access.rs": 5,
    "crates/cli/tests/shell.rs": 22,
    "crates/cli/tests/transfer_errors.rs": 4,
    "crates/emu/tests/host.rs": 3,
    "crates/net/tests/probe_wire.rs": 1,
    "crates/net/tests/quic_wire.rs": 1,
}


def test_no_more_tests_end_before_they_assert() -> None:
    found = SCRIPT["findings"]()
    count = Counter(line.partition(":")[0] for line in found)
    assert not count - Counter(STILL), "\n".join(found)


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
