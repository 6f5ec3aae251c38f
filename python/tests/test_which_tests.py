"""Every ignored Rust test runs in one target of the second tier."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
WHICH = runpy.run_path(str(ROOT / "scripts" / "which_tests.py"))


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
