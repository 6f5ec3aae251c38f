"""What an attack is: a function that tries something on a stage and says what it expected and saw."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from attacks.stage import Stage

Run = Callable[[Stage], None]


@dataclass(frozen=True)
class Attack:
    """One attack, as it is listed."""

    name: str
    against: str
    run: Run
    #: What it takes beyond an ordinary user: `root`, `namespaces` (of the network).
    needs: frozenset[str]
    #: Takes a few seconds and little work: part of the test suite.
    quick: bool
    #: Why an honest client beside it may fall short; empty if it must not.
    flood: str
    #: Makes sense against a server that others use at the same time.
    soak: bool
    timeout_s: float

    @property
    def tried(self) -> str:
        """What is tried: the first line of its docstring."""
        return inspect.getdoc(self.run).splitlines()[0]  # type: ignore[union-attr]

    @property
    def must(self) -> str:
        """What must happen: the rest of its docstring."""
        return " ".join(inspect.getdoc(self.run).splitlines()[1:]).strip()  # type: ignore[union-attr]


ATTACKS: dict[str, Attack] = {}


def attack(
    name: str,
    *,
    needs: tuple[str, ...] = (),
    quick: bool = False,
    flood: str = "",
    soak: bool = False,
    timeout_s: float = 40.0,
) -> Callable[[Run], Run]:
    """List a function as an attack; the first word of its name is what it is against."""

    def listed(run: Run) -> Run:
        assert name not in ATTACKS, name
        against = name.split("-", 1)[0]
        ATTACKS[name] = Attack(name, against, run, frozenset(needs), quick, flood, soak, timeout_s)
        return run

    return listed
