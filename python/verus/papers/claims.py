"""Claims of the sources, one row each in `claims.csv`, and their verdicts.

The list was written down before anything was measured. Rows may be added, but not removed or
made easier to meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from verus.papers.published import listed
from verus.report.wanted import Wanted

#: The two sets of channels that an experiment runs on.
BUILT_IN, RECORDINGS = "built-in", "recordings"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How words of a source become numbers.

    Attributes:
        words: The source's words.
        number: Numbers that support the claim, in words.
        wanted: The same as a range, which contains the range of every such claim; empty where the source
            has the number.
    """

    words: str
    number: str
    wanted: str = ""


#: One rule for each kind of words. A claim may ask for more than its rule, not for less.
RULES: Mapping[str, Rule] = {
    "published": Rule(
        words="a number, or numbers from which to which",
        number="what is stated: ranges as they are; counts and sizes within 10 %, Jain's index within 8 points (Verus) "
        "or 10, other numbers as the claim says",
    ),
    "more": Rule(words="more, higher, longer, above, outperforms", number="any more"),
    "less": Rule(words="less, lower, shorter, below", number="any less"),
    "no less": Rule(words="at least as much", number="no less", wanted=">=1"),
    "slightly more": Rule(words="slightly or marginally more", number="1 to 1.25 times", wanted="1..1.25"),
    "slightly less": Rule(words="slightly or marginally less", number="0.8 to 1 times", wanted="0.8..1"),
    "clearly more": Rule(
        words="clearly, significantly more; has an impact", number="1.1 times or more", wanted=">=1.1"
    ),
    "clearly less": Rule(words="significantly less", number="0.9 times or less", wanted="<=0.9"),
    "equal": Rule(
        words="equal, almost equal, identical, independent, negligible or marginal change",
        number="0.9 to 1.1 times; smallest over mean 0.9 or more",
        wanted="0.9..1.1",
    ),
    "similar": Rule(
        words="similar, comparable, roughly the same, behaves like", number="0.8 to 1.25 times", wanted="0.8..1.25"
    ),
    "order of magnitude": Rule(words="an order of magnitude", number="10 times or more", wanted=">=10"),
    "more than twofold": Rule(words="more than twofold", number="2 times or more", wanted=">=2"),
    "about": Rule(
        words="a factor of N; around P %", number="0.75 to 1.25 times N; half of P % more to one and a half of it"
    ),
    "almost": Rule(words="almost N times", number="0.75 N to N times"),
    "up to": Rule(words="up to P % more (of the best case)", number="P % or more in the best repetition"),
    "all": Rule(words="on each, throughout", number="on every one, unless the source names exceptions"),
    "most": Rule(words="most, many", number="half or more, of what is empty or stays; half or less of what is filled"),
    "widely": Rule(
        words="vary widely, difficult to predict", number="95th percentile 2 times the median", wanted=">=2"
    ),
    "dramatically": Rule(words="fluctuates dramatically", number="coefficient of variation 0.25", wanted=">=0.25"),
    "small variation": Rule(words="variation is small", number="coefficient of variation 0.15", wanted="<=0.15"),
    "changes": Rule(words="changes over time", number="90th percentile 1.5 times the 10th", wanted=">=1.5"),
    "fails to track": Rule(words="a predictor fails", number="its error is 0.7 of the deviation", wanted=">=0.7"),
    "goes with": Rule(words="the more, the more; very similar over time", number="correlation 0.5", wanted=">=0.5"),
    "goes against": Rule(words="the less, the more", number="correlation -0.5", wanted="<=-0.5"),
    "follows": Rule(words="a curve through points", number="median distance a quarter of the value", wanted="<=0.25"),
    "good value": Rule(words="a good or reasonable value", number="0.9 of the best value's power", wanted=">=0.9"),
    "fully": Rule(words="fully utilizes; handles", number="0.9 or more", wanted=">=0.9"),
    "good fairness": Rule(words="good fairness", number="Jain's index 0.9", wanted=">=0.9"),
    "almost perfect fairness": Rule(words="almost perfect fairness", number="Jain's index 0.95", wanted=">=0.95"),
    "quickly": Rule(
        words="quickly", number="within 5 s, the time after which section 7 changes the whole network", wanted="<=5"
    ),
    "own": Rule(words="low delay; a significant amount; very similar in all scenarios", number="as the claim says"),
}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence or a number of a source, and the values that would support it.

    Attributes:
        experiment: Which experiment measures it.
        name: Its name in that experiment.
        figure: Where the source says it.
        says: The claim in our words.
        metric: The measured quantity.
        wanted: Values that support it: ``>1``, ``>=10``, ``<=0.5``, ``0.9..1.1`` or ``=36``.
        rule: Which of `RULES` makes this of the source's words.
        unit: Of the value; empty for a bare number.
        headline: Whether it is one of those that matter most.
        channels: On which channels it is checked: `BUILT_IN` or `RECORDINGS`.
    """

    experiment: str
    name: str
    figure: str
    says: str
    metric: str
    wanted: str
    rule: str
    unit: str
    headline: bool
    channels: str

    @property
    def others(self) -> str:
        """The set of channels on which it is not checked; its value is shown for comparison."""
        return RECORDINGS if self.channels == BUILT_IN else BUILT_IN

    def range(self) -> Wanted:
        """The values that support it.

        Example:
            >>> [claim.range().holds(12.0) for claim in of("sigcomm-fig08") if claim.name == "delay-cubic-lte"]
            [True]
        """
        return Wanted.of(self.wanted)


@cache
def everything() -> tuple[Claim, ...]:
    """Every claim, in the order of the file."""
    return tuple(
        Claim(name=row.pop("claim"), headline=row.pop("headline") == "yes", **row)
        for row in listed("verus.papers", "claims.csv")
    )


def of(experiment: str) -> list[Claim]:
    """The claims that an experiment measures."""
    return [claim for claim in everything() if claim.experiment == experiment]


def causes_of(experiment: str) -> dict[str, str]:
    """Claim → why it does not hold (`causes.csv`), and what shows that, for those that do not.

    How much each cause is worth is for the command that it names to say.

    Example:
        >>> causes_of("sigcomm-fig08")["throughput-cubic-lte"].partition(". ")[2]
        '`verus reproduce sigcomm-fig08 --modes without=drains` shows it.'
    """
    return {
        row["claim"]: row["cause"]
        + (f" `verus reproduce {experiment} --modes {row['modes']}` shows it." if row["modes"] else "")
        for row in listed("verus.papers", "causes.csv")
        if row["experiment"] == experiment
    }


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim and its measured values.

    Attributes:
        claim: The claim.
        value: The value on the channels on which it is checked; None if nothing was observed.
        beside: The value on the other channels; None where there is none.
        runs: Whether it could be checked here: recordings may not be on this machine.
        cause: Why it does not hold, where that is known.
        modes: By mode of Verus, the value on the channels on which it is checked; no mode where Verus takes no part.
    """

    claim: Claim
    value: float | None
    beside: float | None
    runs: bool
    cause: str = ""
    modes: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def holds(self) -> bool | None:
        """Whether it holds; None where it could not be checked."""
        return self.claim.range().holds(self.value) if self.runs else None

    @property
    def holds_beside(self) -> bool | None:
        """Whether the value on the other channels would bear it out; None where there is none."""
        return None if self.beside is None else self.claim.range().holds(self.beside)

    @property
    def channels_disagree(self) -> bool:
        """Whether built-in channels and recordings give different answers."""
        return None not in (self.holds, self.holds_beside) and self.holds != self.holds_beside

    def holds_in(self, mode: str) -> bool | None:
        """Whether it holds in that mode of Verus; None where that was not looked at."""
        value = self.modes.get(mode)
        return None if value is None else self.claim.range().holds(value)

    @property
    def why(self) -> str:
        """By how much it is missed, and the cause; empty where it is not."""
        miss = self.claim.range().miss(self.value, self.claim.unit)
        return f"{miss}. {self.cause}".rstrip() if self.holds is False else ""


def judge(
    experiment: str,
    values: Mapping[str, Mapping[str, float | None]],
    modes: Mapping[str, Mapping[str, Mapping[str, float | None]]] | None = None,
) -> list[Judged]:
    """Every claim of an experiment with its measured values.

    Args:
        experiment: Which.
        values: By channels (`BUILT_IN`, `RECORDINGS`), the measured value of each claim.
        modes: By mode of Verus, the same as `values`, where it was looked at.

    Raises:
        ValueError: The measured values do not match the claims: one is missing, or one too many.
    """
    claims, causes = of(experiment), causes_of(experiment)
    for column, measured in values.items():
        checked = {claim.name for claim in claims if claim.channels == column}
        claimed = {claim.name for claim in claims}
        if checked - measured.keys() or measured.keys() - claimed:
            missing, unknown = sorted(checked - measured.keys()), sorted(measured.keys() - claimed)
            raise ValueError(f"{experiment}: not measured on {column}: {missing}; not claimed: {unknown}")
    return [
        Judged(
            claim=claim,
            value=values.get(claim.channels, {}).get(claim.name),
            beside=values.get(claim.others, {}).get(claim.name),
            runs=claim.channels in values,
            cause=causes.get(claim.name, ""),
            modes={mode: of_mode.get(claim.channels, {}).get(claim.name) for mode, of_mode in (modes or {}).items()},
        )
        for claim in claims
    ]


def modes_of(judged: Sequence[Judged]) -> list[str]:
    """The modes of Verus that were looked at beside its default."""
    return list(dict.fromkeys(mode for one in judged for mode in one.modes))


def held_in(judged: Sequence[Judged], mode: str) -> int:
    """How many hold with Verus in that mode; where Verus takes no part, as many as hold."""
    return sum(bool(one.holds if (verdict := one.holds_in(mode)) is None else verdict) for one in judged if one.runs)


def held(judged: Sequence[Judged]) -> tuple[int, int]:
    """How many hold, of how many that could be checked."""
    checked = [one.holds for one in judged if one.holds is not None]
    return sum(checked), len(checked)
