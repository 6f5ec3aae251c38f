"""No test passes because it could not run: one that ends early says so where a person reads it."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "early_returns.py"))
WHICH = runpy.run_path(str(ROOT / "scripts" / "which_tests.py"))


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


def test_an_ignored_test_has_one_target_that_runs_it(tmp_path: Path) -> None:
    assert not WHICH["unnamed"]()
    for crate, why in (("net", "takes root: `make test-root`"), ("sim", "reads the clock: make test-clock")):
        folder = tmp_path / "crates" / crate / "tests" / crate
        folder.mkdir(parents=True)
        tests = f'#[test]\n#[ignore = "{why}"]\nfn of_{crate}() {{}}\n#[test]\n#[ignore = "slow"]\nfn slow() {{}}\n'
        (folder / "a.rs").write_text(tests)
    assert WHICH["arguments"]("test-root", tmp_path) == ["--test", "net", "--", "--ignored", "of_net"]
    assert WHICH["unnamed"](tmp_path) == [
        f"crates/{crate}/tests/{crate}/a.rs:5: slow: names no target" for crate in ("net", "sim")
    ]


def test_every_ignored_test_runs_in_some_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in WHICH["TARGETS"]:
        assert f"scripts/which_tests.py {target})" in makefile
        assert len(WHICH["arguments"](target)) > 4, target
    assert "no_history_however_wild_breaks_the_books" in WHICH["properties"]()
    for path in ROOT.glob("crates/**/*.rs"):
        text = path.read_text(encoding="utf-8")
        assert ("proptest! {" in text) == bool(WHICH["PROPERTY"].search(text)), path
