"""`verus report`: the page of any saved run, drawn again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from verus.commands.talk import Talk


def report(
    folders: Annotated[list[Path], Parameter(name="DIR", negative="")],
    /,
    *,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> int:
    """Draw `report.html` and the figures of saved runs again, from their results alone.

    Parameters
    ----------
    folders
        Folders that `verus compare` or `verus reproduce` wrote.
    """
    from verus.report import write_page
    from verus.results import Results

    saved = [(folder, Results.read(folder)) for folder in folders]
    for folder, results in saved:
        talk.say(f"Report: {write_page(results, folder)}")
    return 0
