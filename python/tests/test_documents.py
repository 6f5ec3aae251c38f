"""What documents quote is in `docs/results`, which a command writes (`make figures`): page and result agree."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from verus import _verus, experiments
from verus.experiments.shared import claims
from verus.experiments.shared.experiment import in_mode
from verus.experiments.shared.overview import Overview

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results"
SOURCES = json.loads((RESULTS / "sources.json").read_text())

#: Pages of measurements that no result stands behind yet: nothing holds them to what their commands give today.
UNCOVERED = {
    "../BENCHMARKS.md": "`cargo bench`, on a machine with nothing else to do",
    "emulator.md": "`cargo bench`, likewise",
    "forward.md": "`cargo run --release -p verus-sim --example forward_study`, which writes no file yet",
    "hostile.md": "`make hostile`: its bounds are tests, its table is what they print",
    "model.md": "`verus reproduce model-…`: its claims are in claims.csv, tables of its own are not",
    "quic.md": "`cargo bench`, on a machine with nothing else to do",
    "recording.md": "channels recorded in real time",
    "transfer.md": "transfers in real time",
}
#: Pages whose tables are no measurements: formats, keys.
NO_RESULTS = {"metrics.md", "probe-wire-format.md", "traffic.md"}


def rows_of(name: str) -> list[list[str]]:
    with (RESULTS / name).open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def tables(page: str) -> list[list[list[str]]]:
    """The cells of each table of a page, heads first, after the line in bold before it."""
    found: list[list[list[str]]] = []
    title, inside = "", False
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        if bold := re.fullmatch(r"\*\*(.+)\*\*", line):
            title = bold[1]
        if not (is_row := line.startswith("|")):
            inside = False
        elif not inside:
            inside = is_row
            found.append([[title, *cells_of(line)]])
        elif not line.startswith("|---"):
            found[-1].append([title, *cells_of(line)])
    return found


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def test_every_result_says_where_it_comes_from() -> None:
    assert {path.name for path in RESULTS.iterdir()} == {"sources.json", *SOURCES}
    for name, source in SOURCES.items():
        assert all(source[key] for key in ("page", "command", "made", "commit", "machine")), name
        assert (DOCS / source["page"]).exists()


def test_every_page_with_a_table_has_a_result_or_is_known_to_have_none() -> None:
    pages = {path.name for path in DOCS.glob("*.md") if tables(path.name)} | {"../BENCHMARKS.md"}
    covered = {source["page"] for source in SOURCES.values()}
    assert pages == covered | set(UNCOVERED) | NO_RESULTS
    assert not covered & set(UNCOVERED)


def test_the_page_of_claims_is_written_from_its_result() -> None:
    titles = {name: experiments.find(name).title for name in experiments.NAMES}
    overview = Overview.from_csv((RESULTS / "claims.csv").read_text(encoding="utf-8"), titles)
    assert overview.to_markdown() == (DOCS / "claims.md").read_text(encoding="utf-8")
    assert overview.to_csv() == (RESULTS / "claims.csv").read_text(encoding="utf-8")
    assert len(overview.judged) == len(claims.everything())


def test_the_ablation_of_the_page_is_the_result() -> None:
    heads, *rows = rows_of("ablation.csv")
    assert heads == ["without", "test", "found"]
    cells = [
        [name, head, cell]
        for (_, _, *heads), *lines in tables("verus.md")
        for _, name, *found in lines
        for head, cell in zip(heads, found, strict=True)
    ]
    assert cells == rows


def test_what_the_prose_on_the_ablation_quotes_is_in_the_result() -> None:
    known = set(re.findall(r"\d+(?:\.\d+)?", (RESULTS / "ablation.csv").read_text(encoding="utf-8")))
    lines = (DOCS / "verus.md").read_text(encoding="utf-8").partition("```sh")[2].partition("```")[2].splitlines()
    prose = " ".join(line for line in lines if not line.startswith("|"))
    assert not numbers(prose) - known


@pytest.mark.parametrize("name", ["agreement.csv", "peers.csv"])
def test_what_was_measured_in_real_time_stands_on_its_page(name: str) -> None:
    own = [row for head, *rows in tables("agreement.md") if head[1] == "sender" for row in rows]
    shown = {tuple(row) for row in own} | {tuple(row[1:]) for row in own}
    assert not {tuple(row) for row in rows_of(name)} - shown
    assert len(own) == len(rows_of("agreement.csv")) + len(rows_of("peers.csv"))


def numbers(prose: str) -> set[str]:
    """Numbers of a text that are neither code nor what things are called: `R = 2`, Eq. 5, Fig. 9, 3G, a year."""
    numbered = r"(?:Eqs?\.|Figs?\.|§|section|seed) ?[\d.]+(?: to \d+)?|[1-5]G\b|(?<= )\d\. (?=\*\*)"
    named = r"`[^`]*`|\bR [=≥] \d+(?:(?:, | and | to )\d+)*|\b(?:19|20)\d\d\b"
    prose = re.sub(f"{named}|{numbered}", "", prose)
    return set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?", prose))


def test_a_cause_states_no_number_and_what_shows_it_can_be_run() -> None:
    text = (Path(claims.__file__).parent / "causes.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        assert not numbers(row["cause"]), row
        for mode in filter(None, row["modes"].split(",")):
            _verus.check_scheme(in_mode("verus", mode))
    known = {(claim.experiment, claim.name) for claim in claims.everything()}
    assert {(row["experiment"], row["claim"]) for row in csv.DictReader(text.splitlines())} <= known


def test_a_number_that_no_result_has_is_seen() -> None:
    assert numbers("Alone (`x=3`) it costs 182 ms at R = 4 by Eq. 5, in 2016") == {"182"}
