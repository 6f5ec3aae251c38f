"""All claims of several experiments together: how many hold, and which do not."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from rich import box
from rich.console import RenderableType
from rich.table import Table

from verus.lab.atomic_write import replace_whole
from verus.papers import claims
from verus.papers.claim_tables import claims_html, value_text
from verus.papers.claims import Judged
from verus.report.grid import Grid, paragraphs, to_csv
from verus.report.page import Page, Section, to_html

_ABOUT = (
    "Each row is a sentence or number of the papers that can be measured, and what `verus reproduce all` measures, "
    "with seed 1. The list (`claims.csv`) was written before anything was measured. A claim is checked on one of "
    "two sets of channels, built-in or recorded: the one whose column comes first. Headline claims are bold. Verus is "
    "in its default mode; the columns `paper` and `prototype` have another mode (`--modes`), in bold where the claim "
    "does not hold. Below each table stands why a claim does not hold."
)


@dataclass(frozen=True, kw_only=True)
class Overview:
    """What became of every claim.

    Attributes:
        parts: The experiments that measure claims, name and title, and each claim of theirs.
    """

    parts: Sequence[tuple[str, str, Sequence[Judged]]]

    @classmethod
    def from_csv(cls, text: str, titles: Mapping[str, str]) -> Overview:
        """From what `to_csv` wrote, and the title of each experiment."""
        rows: dict[str, dict[str, dict[str, str]]] = {}
        for row in csv.DictReader(text.splitlines()):
            rows.setdefault(row["experiment"], {})[row["claim"]] = row
        return cls(parts=[(name, titles[name], _judged_again(name, own)) for name, own in rows.items()])

    @property
    def judged(self) -> list[Judged]:
        """Every claim."""
        return [one for _, _, judged in self.parts for one in judged]

    def counts(self) -> str:
        """How many hold, in a sentence or two."""
        holds, of = claims.held(self.judged)
        head, heads = claims.held([one for one in self.judged if one.claim.headline])
        share = f" ({100 * holds / of:.0f} %)" if of else ""
        sentence = f"{holds} of {of} claims hold{share}; of the headlines {head} of {heads}."
        absent = len(self.judged) - of
        sentence += f" {absent} more need recordings that are not on this machine." if absent else ""
        for mode in claims.modes_of(self.judged):
            ours = [one for one in self.judged if one.runs and one.holds_in(mode) is not None]
            holds, theirs = sum(one.check.met for one in ours), sum(bool(one.holds_in(mode)) for one in ours)
            sentence += (
                f" Of the {len(ours)} that Verus's default mode takes part in, {holds} hold in it and {theirs} in "
                f"{mode} mode."
            )
        return sentence

    def not_held(self) -> list[tuple[str, Judged]]:
        """Those that were checked and do not hold."""
        return [(name, one) for name, _, judged in self.parts for one in judged if one.missed]

    def summary(self) -> Sequence[RenderableType]:
        """For a terminal: a line for each experiment, then each claim that does not hold, and how many do."""
        if not self.parts:
            return []
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("experiment", no_wrap=True)
        table.add_column("", overflow="fold")
        for name in ("claims", "held", "headlines", "held"):
            table.add_column(name, justify="right", no_wrap=True)
        for name, title, judged in self.parts:
            holds, of = claims.held(judged)
            head, heads = claims.held([one for one in judged if one.claim.headline])
            cells = (str(of), f"[{'green' if holds == of else 'red'}]{holds}[/]") if of else ("–", "–")
            table.add_row(name, title, *cells, *((str(heads), str(head)) if heads else ("", "")))
        missed = Table(title="Not held", title_justify="left", box=box.SIMPLE_HEAD)
        for name in ("experiment", "claim"):
            missed.add_column(name)
        for name in ("wanted", "measured"):
            missed.add_column(name, justify="right", no_wrap=True)
        for experiment, one in self.not_held():
            value = value_text(one.check.value, one.claim.unit)
            missed.add_row(experiment, one.claim.says, one.claim.wanted, value)
        return [table, *([missed] if self.not_held() else []), self.counts()]

    def write(self, folder: Path) -> None:
        """Writes `report.html`, which leads to each experiment's own page, `claims.csv` and `claims.md`."""
        sections = [Section(title="Summary", body=paragraphs([self.counts()]))]
        for name, title, judged in self.parts:
            link = Markup('<p><a href="{}/report.html">{}: figures and set-up</a></p>').format(name, title)
            sections.append(Section(title=title, body=link + claims_html(judged)))
        page = Page(title="Verus: the papers, run again", lead="Every claim, and what we measure.", sections=sections)
        replace_whole(folder / "report.html", to_html(page).encode())
        replace_whole(folder / "claims.csv", self.to_csv().encode())
        replace_whole(folder / "claims.md", self.to_markdown().encode())

    def to_markdown(self) -> str:
        """The same for a document: a table for each experiment, and why what does not hold does not."""
        lines = ["# What the sources claim, and what comes out", "", f"{_ABOUT} {self.counts()}", ""]
        for name, title, judged in self.parts:
            first = judged[0].claim
            modes = claims.modes_of(judged)
            lines += [f"## {title}", "", f"`verus reproduce {name}`", ""]
            heads = ["claim", "measured", "wanted", first.channels, first.others, "", *modes]
            rows = []
            for one in judged:
                claim = one.claim
                says = f"**{claim.says}**" if claim.headline else claim.says
                values = [value_text(value, claim.unit) for value in (one.check.value, one.beside)]
                verdict = "" if not one.runs else "held" if one.check.met else "**not held**"
                cells = [says, claim.metric, f"`{claim.wanted}`", *values, verdict]
                rows.append([*cells, *(_mode_text(one, mode) for mode in modes)])
            head, *others = Grid(heads=heads, rows=rows).markdown()
            lines += [head.replace("|  |", "| |"), *others, ""]
            missed = [one for one in judged if one.missed]
            causes = [
                ["; ".join(one.claim.says for one in missed if one.cause == cause), cause]
                for cause in dict.fromkeys(one.cause for one in missed)
            ]
            if causes:
                lines += [*Grid(heads=["not held", "cause"], rows=causes).markdown(), ""]
        return "\n".join(lines).rstrip() + "\n"

    def to_csv(self) -> str:
        """A row for each claim: the columns of the list of claims, what was measured, and whether it holds."""
        modes = claims.modes_of(self.judged)
        heads = ["experiment", "claim", "figure", "says", "wanted", "unit", "measured", "beside", "held"]
        rows = [[*heads, *(head for mode in modes for head in (mode, f"{mode}_held"))]]
        for name, _, judged in self.parts:
            for one in judged:
                claim = one.claim
                values = ["" if value is None else repr(value) for value in (one.check.value, one.beside)]
                verdict = "" if not one.runs else "yes" if one.check.met else "no"
                names = [name, claim.name, claim.figure, claim.says, claim.wanted, claim.unit]
                verdicts = []
                for mode in modes:
                    value, met = one.modes.get(mode), one.holds_in(mode)
                    verdicts += ["" if value is None else repr(value), "" if met is None else "yes" if met else "no"]
                rows.append([*names, *values, verdict, *verdicts])
        return to_csv(rows)


def _judged_again(experiment: str, rows: Mapping[str, Mapping[str, str]]) -> list[Judged]:
    heads = list(next(iter(rows.values())))
    modes = [head.removesuffix("_held") for head in heads[heads.index("held") + 1 :] if head.endswith("_held")]
    modes = [mode for mode in modes if any(row[mode] for row in rows.values())]
    causes = claims.causes_of(experiment)
    return [
        Judged(
            claim=claim,
            check=claim.check(_value(row["measured"])),
            beside=_value(row["beside"]),
            runs=row["held"] != "",
            cause=causes.get(claim.name, ""),
            modes={mode: _value(row[mode]) for mode in modes},
        )
        for claim in claims.of(experiment)
        if (row := rows.get(claim.name))
    ]


def _value(text: str) -> float | None:
    return float(text) if text else None


def _mode_text(one: Judged, mode: str) -> str:
    """What a mode has, in bold where the claim does not hold in it."""
    met = one.holds_in(mode)
    text = value_text(one.modes.get(mode), one.claim.unit)
    return f"**{text}**" if met is False else text
