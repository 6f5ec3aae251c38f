"""Suites as bounds of a search, such as `check:paths`: read before the search begins."""

from __future__ import annotations

import functools

from verus import suites
from verus.errors import FieldError
from verus.lab.tuning.problem import Problem
from verus.lab.tuning.search import Check
from verus.suites import judge


def checks_of(problem: Problem, threads: int | None = None) -> dict[str, Check]:
    """For the suite of each bound what finds the checks that a scheme misses.

    Args:
        problem: The search.
        threads: Cores to use; all of them if None.

    Raises:
        FieldError: There is no such suite.
        ValueError: A suite's file is not what it must be.
    """
    checks: dict[str, Check] = {}
    for bound in problem.bounds:
        if bound.suite:
            try:
                suite = suites.load(bound.suite)
            except FieldError as error:
                raise FieldError("aim.bounds", error.problem) from error
            judge.check_measures(suite, bound.suite)
            checks[bound.suite] = functools.partial(judge.missed, suite, threads=threads)
    return checks
