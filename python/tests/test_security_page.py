"""SECURITY.md promises what tests hold: each that it names exists, and the results of the attacks list every one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from attacks.catalogue import ATTACKS  # noqa: E402

PROMISES = (ROOT / "SECURITY.md").read_text()
RESULTS = (ROOT / "docs/results/attacks.txt").read_text()

#: `file::test`, as in `crates/probe/tests/hostile_probe.rs::a_test_s_name`.
NAMED = sorted(set(re.findall(r"`([\w/.-]+\.(?:rs|py))::(\w+)`", PROMISES)))
#: An attack, by its name.
TRIED = sorted(set(re.findall(r"`((?:probe|transfer|load|files|shell|report)-[a-z0-9-]+)`", PROMISES)))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_test_that_holds_a_promise_exists(file: str, name: str) -> None:
    path = ROOT / file
    assert path.is_file(), f"{file} is absent"
    assert re.search(rf"\b(?:fn|def) {name}\b", path.read_text()), f"{file} has no {name}"


def test_promises_name_what_holds_them() -> None:
    rows = [line for line in PROMISES.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 15
    for row in rows:
        assert re.search(r"`[\w/.-]+::\w+`|`(?:probe|transfer|load|files|shell|report)-", row), row


def test_the_attacks_that_promises_name_exist() -> None:
    assert TRIED
    assert not set(TRIED) - set(ATTACKS)


def test_the_results_list_every_attack_and_none_fell() -> None:
    rows = {
        row[0].strip("` "): row
        for row in (line.strip("|").split(" | ") for line in RESULTS.splitlines())
        if len(row) == 5
    }
    listed = {name for name in rows if "-" in name and name in ATTACKS}
    assert listed == set(ATTACKS)
    for name in listed:
        assert ATTACKS[name].tried.replace("|", "\\|").replace("<", "&lt;") in rows[name][1]
        assert "held" in rows[name][4], name
