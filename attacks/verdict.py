"""What came of an attack."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Verdict:
    """What happened."""

    name: str
    held: bool = True
    #: What was seen, in order; what should not have been first.
    seen: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    #: The honest client's figures beside the attack, over those without it.
    honest: dict[str, float] = field(default_factory=dict)
    skipped: str = ""
    seconds: float = 0.0

    @property
    def happened(self) -> str:
        """One line."""
        return self.skipped or "; ".join(self.wrong + self.seen)

    @property
    def word(self) -> str:
        """The verdict in one word."""
        return "skipped" if self.skipped else "held" if self.held else "FELL"
