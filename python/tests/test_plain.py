"""Names that a stranger chose, of files, schemes and fields, drive no terminal and forge no line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from verus.report import printable

Command = Callable[..., Any]

#: A title, a cleared screen, a colour, a separate line, C1, DEL, text that runs backwards; rich's
#: markup.
WORDS = "\x1b]0;owned\x07\x1b[2J\x1b[31mFORGED\r\n10.0.0.9: done\x9b31m\x7f\u202egpj[bold][link=x]"


def harmless(printed: str) -> None:
    assert all(letter.isprintable() or letter in "\n\u00a0\u2009\u202f" for letter in printed), repr(printed)
    assert "FORGED" in printed
    assert not any(line.startswith("10.0.0.9") for line in printed.splitlines())


def trace(folder: Path) -> Path:
    """A trace whose name is hostile."""
    path = folder / WORDS
    path.write_text("".join(f"{time}\n" for time in range(1, 1000)))
    return path


def test_every_letter_is_shown_or_written_out() -> None:
    for code in (*range(0x3000), 0xD800, 0xDCFF, 0xFEFF, 0xE0041):
        harmless(printable.line("FORGED" + chr(code)))
    assert printable.line("Ünïcödé – 資料 עברית · 5 µs") == "Ünïcödé – 資料 עברית · 5 µs"


def test_a_table_shows_a_hostile_name_plainly(verus: Command, tmp_path: Path) -> None:
    ran = verus("trace", "info", trace(tmp_path).name)
    assert ran.code == 0, ran
    harmless(ran.out)
    assert "[bold]" in ran.out.replace("\n", "").replace(" ", "")


def test_json_of_a_hostile_name_is_plain_and_means_the_same(verus: Command, tmp_path: Path) -> None:
    path = trace(tmp_path)
    ran = verus("trace", "info", str(path), "--json")
    harmless(ran.out)
    assert json.loads(ran.out)["name"] == str(path)


def test_an_error_about_a_strangers_folder_is_one_plain_line(verus: Command, tmp_path: Path) -> None:
    folder = tmp_path / WORDS
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"schema": WORDS}))
    for arguments in (["report", str(folder)], ["analyze", str(folder / "log")]):
        ran = verus(*arguments)
        assert ran.code == 2, ran
        harmless(ran.err)
        assert ran.err.count("\n") == 1
    # With its origin, which quotes it.
    verbose = verus("report", str(folder), "-v")
    harmless(verbose.err)


def test_a_name_that_is_no_text_is_shown(verus: Command, tmp_path: Path) -> None:
    name = os.fsdecode(b"FORGED\xff")
    ran = verus("analyze", str(tmp_path / name))
    assert ran.code == 2
    harmless(ran.err)
