"""All claims of several experiments together: how many hold, and which do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from rich import box
from rich.console import RenderableType
from rich.table import Table

from verus.lab.atomic_write import replace_whole
from verus.papers import claims
from verus.papers.claim_tables import claims_html, claims_markdown
from verus.papers.claims import Judged
from verus.report.grid import Grid, paragraphs, to_csv
from verus.report.numbers import value_text
from verus.report.page import Page, Section, to_html

_ABOUT = (
    "Each row is a sentence or number of the papers that can be measured, and what `verus reproduce all` measures, "
    "with seed 1. What a source says in words becomes a range by the rules at the end. A claim is checked on one of "
    "two "
    "sets of channels, built-in or recorded: the one whose column comes first; where the other gives another verdict, "
    "the row says so. Headline claims are bold. Verus is in its default mode; the columns `paper` and `prototype` have "
    "another mode (`--modes`), in bold where the claim does not hold. Below each table stands why a claim does not "
    "hold."
)

_RULES = (
    "One rule for each kind of words, for every source (column `rule` of `claims.csv`). A claim may ask for more than "
    "its rule, never for less. No threshold was made easier after it was measured. The 2017 reproduction, ABC's paper "
    "and ALCC's state numbers; how wide their ranges are, each claim says."
)


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The verdict on every claim.

    Attributes:
        parts: The experiments that measure claims, name and title, and each claim of theirs.
    """

    parts: Sequence[tuple[str, str, Sequence[Judged]]]

    @property
    def judged(self) -> list[Judged]:
        """Every claim."""
        return [one for _, _, judged in self.parts for one in judged]

    def counts(self) -> str:
        """How many hold, in a sentence or two."""
        holds, of = claims.held(self.judged)
        headlines = [one for one in self.judged if one.claim.headline]
        head, heads = claims.held(headlines)
        share = f" ({100 * holds / of:.0f} %)" if of else ""
        modes = claims.modes_of(self.judged)
        beside = "".join(f", {claims.held_in(self.judged, mode)} in {mode} mode" for mode in modes)
        default = " with Verus in its default mode" if modes else ""
        sentence = f"{holds} of {of} claims hold{default}{share}{beside}"
        beside = "".join(f", {claims.held_in(headlines, mode)} in {mode} mode" for mode in modes)
        sentence += f"; of the headlines {head} of {heads}{beside}."
        absent = len(self.judged) - of
        sentence += f" {absent} more need recordings that are not on this machine." if absent else ""
        differ = [one for one in self.judged if one.channels_disagree]
        if differ:
            among = sum(one.claim.headline for one in differ)
            sentence += (
                f" Built-in channels and recordings disagree on {len(differ)}, of which {among} are headlines; "
                "their rows say so."
            )
        return sentence

    def not_held(self) -> list[tuple[str, Judged]]:
        """Those that were checked and do not hold."""
        return [(name, one) for name, _, judged in self.parts for one in judged if one.holds is False]

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
            missed.add_row(experiment, one.claim.says, one.claim.wanted, value_text(one.value, one.claim.unit))
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
            lines += [f"## {title}", "", f"`verus reproduce {name}`", "", *claims_markdown(judged)]
        lines += ["## From words to numbers", "", _RULES, ""]
        rules = [[rule.words, rule.number] for rule in claims.RULES.values()]
        lines += Grid(heads=["the source says", "borne out by"], rows=rules).markdown()
        return "\n".join(lines).rstrip() + "\n"

    def to_csv(self) -> str:
        """A row for each claim: the columns of `claims.csv`, measured values, and verdict."""
        modes = claims.modes_of(self.judged)
        heads = ["experiment", "claim", "figure", "says", "wanted", "unit", "measured", "beside", "held", "held_beside"]
        rows: list[list[object]] = [[*heads, *(head for mode in modes for head in (mode, f"{mode}_held"))]]
        words = {True: "yes", False: "no", None: ""}
        for name, _, judged in self.parts:
            for one in judged:
                claim = one.claim
                names = [name, claim.name, claim.figure, claim.says, claim.wanted, claim.unit]
                verdicts = (each for mode in modes for each in (one.modes.get(mode), words[one.holds_in(mode)]))
                rows.append([*names, one.value, one.beside, words[one.holds], words[one.holds_beside], *verdicts])
        return to_csv(rows)
