"""`scripts/tests`: it goes on after a failure, shows a page of each, and lists at its end what failed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "tests"

#: With the workspace's features, so that nothing is compiled again.
CARGO_TEST = "cargo test --workspace $(scripts/kernel-features 2>/dev/null) --locked"

RUST = """
     Running unittests src/lib.rs (target/debug/deps/verus_core-1)
test fine ... ok
test a::long ... FAILED
test a::late ... FAILED

failures:

---- a::long stdout ----
{lines}
thread 'a::long' panicked at a.rs:1:1:
it was too long
---- a::late stdout ----
the machine was too busy to say: a thread that slept woke 90 ms late
failures:
    a::long
    a::late

test result: FAILED. 1 passed; 2 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.00s
error: test failed, to rerun pass `-p verus-core --lib`
error: test failed, to rerun pass `-p verus-probe --test probe`
error: 2 targets failed:
"""

PYTHON = """
_____________ test_b[x y] _____________
{lines}
E   assert 1 == 2
=========== short test summary info ============
FAILED python/tests/test_b.py::test_b[x y] - assert 1 == 2
======= 1 failed, 2 passed, 1 skipped in 5.19s =======
"""


def ran(folder: Path, targets: dict[str, tuple[str, int]], *idle: str) -> subprocess.CompletedProcess[str]:
    """The script, where each target prints a text and ends with a code; those called `idle` run beside the others."""
    (folder / "scripts").mkdir()
    shutil.copy(SCRIPT, folder / "scripts" / "tests")
    rules = []
    for name, (text, code) in targets.items():
        (folder / name).write_text(text)
        # Where some run beside the others, which takes Linux, those wait for one of them to begin.
        beside = idle and shutil.which("chrt")
        first = "" if not beside else "touch begun;" if name in idle else "until [ -e begun ]; do sleep 0.01; done;"
        rules.append(f"make-{name}:\n\t@{first} cat {name}; exit {code}\n")
    (folder / "Makefile").write_text("\n".join(rules))
    # Its own cargo, which stays busy.
    (folder / "cargo").write_text("#!/bin/sh\necho 'the machine was too busy to say: still'; exit 101\n")
    (folder / "cargo").chmod(0o755)
    command = [folder / "scripts" / "tests", *(f"make-{name}" for name in targets if name not in idle)]
    command += ["--idle", *(f"make-{name}" for name in idle)] if idle else []
    path = f"{folder}:/usr/bin:/bin:{Path(shutil.which('python3') or '').parent}"
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": path}, timeout=60)


def test_it_goes_on_and_lists_what_failed_with_the_command_that_runs_it_alone(tmp_path: Path) -> None:
    lines = "\n".join(f"line {number}" for number in range(1000))
    result = ran(tmp_path, {"rust": (RUST.format(lines=lines), 1), "python": (PYTHON.format(lines=lines), 1)})
    assert result.returncode == 1
    end = result.stdout.partition("\nmake-rust: ")[2]
    counts, _, failed = end.partition("\n\nFailed")
    assert "1 passed, 2 failed, 3 ignored" in counts
    assert "1 failed, 2 passed, 1 skipped" in counts
    failed, _, busy = failed.partition("The machine was too busy")
    alone = f"{CARGO_TEST} --lib -- --exact a::long --include-ignored\n"
    assert f"{alone}      thread 'a::long' panicked at a.rs:1:1:\n      it was too long\n" in failed
    assert f"{CARGO_TEST} --test probe\n" in failed, "it ended before it could tell"
    assert ".venv/bin/python -m pytest 'python/tests/test_b.py::test_b[x y]'\n      E   assert 1 == 2\n" in failed
    assert "a::late" not in failed
    assert "--exact a::late" in busy
    assert result.stdout.count("again, alone: a::late") == 3

    # A page of each failure; all of it in the log.
    assert len(result.stdout.splitlines()) < 200
    assert "line 0\n" in result.stdout
    assert "line 999\n" in result.stdout
    assert (tmp_path / "target" / "tests" / "make-rust.log").read_text().count("line ") >= 1000


@pytest.mark.parametrize(("text", "code"), [("fine\n", 0), ("error: could not compile `verus-core`\n", 2), ("", 2)])
def test_what_fails_without_a_test_fails_as_a_whole(tmp_path: Path, text: str, code: int) -> None:
    result = ran(tmp_path, {"rust": (text, code)})
    assert result.returncode == (code != 0)
    assert ("    make make-rust\n" in result.stdout) == (code != 0)


def test_what_was_drawn_stands_before_the_command(tmp_path: Path) -> None:
    drawn = "Drawn with PROPTEST_RNG_SEED=7 PROPTEST_CASES=9 (make test-seeds SEED=7)"
    text = f"{drawn}\ntest a ... FAILED\nerror: test failed, to rerun pass `-p x --lib`\n"
    result = ran(tmp_path, {"rust": (text, 1)})
    assert f"    PROPTEST_RNG_SEED=7 PROPTEST_CASES=9 {CARGO_TEST} --lib -- --exact a " in result.stdout


def test_what_is_idle_runs_beside_the_others_and_is_told_after_them(tmp_path: Path) -> None:
    result = ran(tmp_path, {"waits": ("", 0), "computes": (PYTHON.format(lines="line"), 1)}, "computes")
    assert result.returncode == 1
    assert (
        result.stdout.index("line")
        < result.stdout.index("make-waits: ")
        < result.stdout.index("make-computes: 1 failed")
    )
    assert "FAILED python/tests/test_b.py" in (tmp_path / "target" / "tests" / "make-computes.log").read_text()
    assert ".venv/bin/python -m pytest 'python/tests/test_b.py::test_b[x y]'\n" in result.stdout
