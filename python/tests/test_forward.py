"""Targets of `forward`: rows, the values read from them, and verdicts."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from verus.lab.results import Results
from verus.lab.runner import run_all
from verus.papers.claims import BUILT_IN
from verus.papers.experiment import Options
from verus.papers.own import forward
from verus.papers.own.forward.field import OVER_CUBIC, Field, Row, named, recordings, seen
from verus.papers.recordings import MissingRecordings
from verus.papers.reproduction import Column
from verus.trace import Trace

from .conftest import Command, tables

#: Name of Cubic's value in the same row.
CUBIC = "Cubic's used %"
#: Column of the arena whose buffer is eight bandwidth-delay products.
DEEPEST = "beside Cubic, deep"

DOCS = Path(__file__).parents[2] / "docs"


def field_of(folder: Path, *, short: bool = False) -> Field:
    """All rows with one seed; two minutes of a built-in channel replace each recording."""
    recorded = folder / "recorded"
    Trace.generate("city-driving-3g-up", duration_s=120, seed=1).write(recorded)
    column = Column(name=BUILT_IN, channels={}, paths={}, seed=6, repeat=1)
    files = dict.fromkeys(named(), str(recorded))
    return Field(scheme="forward", column=column, files=files, folder=folder, short=short)


def first_of_each_group(field: Field) -> Iterator[Row]:
    """Enough to read each quantity."""
    groups = set()
    for row in field.rows():
        if row.group not in groups:
            groups.add(row.group)
            yield row


def test_each_kind_of_row_can_be_read_and_has_the_values_that_are_wanted(tmp_path: Path) -> None:
    for row in first_of_each_group(field_of(tmp_path)):
        runs = [seen(run, outcome) for run, outcome in zip(row.runs, run_all(row.runs), strict=True)]
        values = row.read(runs)
        assert row.bounds.keys() <= values.keys(), row.group
        assert not any(map(math.isnan, values.values())), (row.group, values)


def test_no_row_is_there_twice_and_the_short_form_has_fewer(tmp_path: Path) -> None:
    whole = [(row.group, row.name) for row in field_of(tmp_path).rows()]
    short = [(row.group, row.name) for row in field_of(tmp_path, short=True).rows()]
    assert len(set(whole)) == len(whole)
    assert set(short) < set(whole)
    assert len(short) < len(whole) / 2


def test_the_halves_are_fifteen_and_nineteen_and_twenty_four_have_room() -> None:
    halves = [one.half for one in recordings()]
    assert (halves.count("judged"), halves.count("tuned")) == (15, 19)
    assert sum(one.reachable for one in recordings()) == 24


@pytest.fixture(scope="module")
def short() -> Results:
    """The short form, of two senders."""
    return forward.EXPERIMENT.prepare(Options(built_in=True, short=True, schemes=("cubic",)))(None)


def test_senders_stand_beside_each_other(short: Results) -> None:
    text = forward.EXPERIMENT.files(short)["forward.md"]  # type: ignore[misc]
    _, _, own, cubic = text.splitlines()
    assert own.startswith("| forward |")
    assert cubic.startswith("| cubic |")
    # Cubic fills the buffers that forward keeps short.
    by_sender = {sender: forward.SenderResults(short.config["measured"], sender) for sender in ("forward", "cubic")}
    assert by_sender["cubic"].mean("delay ms", "10 flows") > 2 * by_sender["forward"].mean("delay ms", "10 flows")
    assert "Beside each other" in [section.title for section in forward.EXPERIMENT.page(short).sections]
    assert forward.EXPERIMENT.summary(short)[0] == "Recordings were left out, as asked."


def test_a_row_holds_if_all_bounds_are_kept(short: Results) -> None:
    heads, *lines = csv.reader(forward.EXPERIMENT.files(short)["forward.csv"].splitlines())  # type: ignore[misc]
    rows = [dict(zip(heads, line, strict=True)) for line in lines]
    for row in rows:
        value = math.nan if row["found"] == "–" else float(row["found"])
        least, most = (float(row[key]) if row[key] else end for key, end in (("least", -math.inf), ("most", math.inf)))
        expected = {True: "met", False: "missed"}[least <= value <= most]
        assert row["verdict"] == (expected if row["least"] or row["most"] else ""), row
    assert {"met", "missed", ""} == {row["verdict"] for row in rows}


def measured(path: Path) -> list[dict[str, Any]]:
    """The rows of `forward.csv`."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for line in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        key = (line["group"], line["row"])
        row = rows.setdefault(
            key, {"sender": line["sender"], "group": key[0], "row": key[1], "values": {}, "wanted": {}}
        )
        row["values"][line["value"]] = None if line["found"] == "–" else float(line["found"])
    return list(rows.values())


def test_what_operators_are_told_is_the_result() -> None:
    results = forward.SenderResults(measured(DOCS / "results" / "forward.csv"), "forward")

    def share(mbps: int, products: str, rivals: str = "one Cubic") -> str:
        return f"{results.one(f'beside {rivals}', f'{mbps} Mbit/s, {products} BDP', 'share'):.2f}"

    def wifi(value: str) -> str:
        both = sorted(results.one("jitter", f"Wi-Fi, bad, {mbps} Mbit/s", value) for mbps in (10, 50))
        return "{:.0f} to {:.0f} %".format(*both)

    page, front, own = (
        " ".join((DOCS / name).read_text(encoding="utf-8").split())
        for name in ("operators.md", "../README.md", "forward.md")
    )
    for products in ("0.5", "1", "2", "4"):
        assert f"| {products} | {share(10, products)} | {share(50, products)} |" in page
    *of_three, last = (share(10, products, "three Cubics") for products in ("0.5", "1", "2", "4"))
    assert f"Beside three Cubics at 10 Mbit/s `forward` gets {', '.join(of_three)} and {last} of a fair share" in page
    deep = [f"{share(mbps, '2')} and {share(mbps, '4')}" for mbps in (10, 50)]
    assert f"gets {deep[0]} of a fair share at 10 Mbit/s, {deep[1]} at 50" in front
    (company,) = (table for table in tables("arena.md") if DEEPEST in table[0])
    (eight,) = (row[company[0].index(DEEPEST)] for row in company if row[0] == "Forward")
    share_of_eight = eight.split()[0]
    assert f"In eight it gets [{share_of_eight}](docs/arena.md) at 20 Mbit/s" in front
    assert f"{share(10, '1')}, {deep[0]} of a fair share at 10 Mbit/s, and {share(50, '1')}, {deep[1]} at 50" in own
    for text in (page, front):
        assert f"{wifi('used %')} of the link, Cubic {wifi(CUBIC)}" in text
    short = results.one("files alone", "300 kB at 5 Mbit/s", OVER_CUBIC)
    assert f"300 kB on 5 Mbit/s take {short:.2f} times as long as with Cubic" in page
    assert f"300 kB on 5 Mbit/s take {short:.2f} times as long as with Cubic" in own


def test_recordings_that_are_not_there_are_left_out_and_said_so(
    verus: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VERUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("VERUS_TRACES", raising=False)
    files, missing = forward._recordings(Options())
    assert not files
    assert missing.startswith(f"{len(set(named()))} recordings are left out: not on this machine: ")
    with pytest.raises(MissingRecordings):
        forward.EXPERIMENT.prepare(Options(traces=tmp_path))
    ran = verus("reproduce", "forward", "--traces", str(tmp_path))
    assert ran.code == 2
    assert "--traces: not on this machine" in ran.err
