"""All that the papers claim, run again on built-in channels, the same on every machine."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from verus import papers
from verus.papers import claims
from verus.papers.claims import Judged
from verus.papers.experiment import Options

#: The experiments that measure claims of a paper.
MEASURING = list(dict.fromkeys(claim.experiment for claim in claims.everything()))

#: How many of the claims hold on built-in channels; more may, fewer must not.
HELD = 193


def test_every_claim_has_its_experiment_in_the_order_of_the_list() -> None:
    assert [name for name in papers.NAMES if name in MEASURING] == MEASURING


def judge(name: str) -> list[Judged]:
    experiment = papers.find(name)
    return list(experiment.judged(experiment.prepare(Options(built_in=True))(None)))


@pytest.fixture(scope="session")
def everything() -> dict[str, list[Judged]]:
    """Every claim that is checked on built-in channels, by experiment."""
    names = [name for name in MEASURING if any(claim.channels == claims.BUILT_IN for claim in claims.of(name))]
    return {name: judge(name) for name in names}


def test_no_fewer_claims_hold(everything: dict[str, list[Judged]]) -> None:
    holds, of = claims.held([one for judged in everything.values() for one in judged])
    assert holds >= HELD, f"{holds} of {of}"


def test_what_does_not_hold_has_its_cause_written_down(everything: dict[str, list[Judged]]) -> None:
    for name, judged in everything.items():
        missed = {one.claim.name for one in judged if not one.holds}
        causes = claims.causes_of(name)
        assert set(causes) == missed, name
        assert all(len(cause) > 40 for cause in causes.values()), name


def test_the_result_that_the_document_quotes_is_what_comes_out(everything: dict[str, list[Judged]]) -> None:
    path = Path(__file__).parents[2] / "docs" / "results" / "claims.csv"
    with path.open(newline="", encoding="utf-8") as file:
        quoted = {(row["experiment"], row["claim"]): row for row in csv.DictReader(file)}
    for name, judged in everything.items():
        for one in judged:
            row = quoted[name, one.claim.name]
            text = row["measured" if one.claim.channels == claims.BUILT_IN else "beside"]
            value = one.value if one.claim.channels == claims.BUILT_IN else one.beside
            assert (float(text) if text else None) == pytest.approx(value, rel=1e-3), (name, row)


def test_the_same_seed_gives_the_same_values(everything: dict[str, list[Judged]]) -> None:
    for name in ("sigcomm-fig05", "sigcomm-fig13"):
        assert judge(name) == everything[name]
