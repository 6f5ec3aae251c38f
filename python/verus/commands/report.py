"""`verus report`: the page of any saved run, drawn from its results."""

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
    """Draw `report.html` and the figures of saved runs, from their results alone.

    Parameters
    ----------
    folders
        Folders that `verus compare`, `check`, `reproduce`, `probe` or `shell` wrote.
    """
    from verus.folder import own, read_config
    from verus.report import write_page
    from verus.results import Results
    from verus.rows import CHECK
    from verus.suites import page

    kinds = [read_config(folder / "run.json")["kind"] for folder in folders]
    saved = [None if kind == CHECK else Results.read(folder) for folder, kind in zip(folders, kinds, strict=True)]
    for folder, results in zip(folders, saved, strict=True):
        path = page.draw(folder) if results is None else write_page(results, folder)
        if results is not None:
            own(folder, [path, *(folder / "figures").glob("*")])
        talk.say(f"Report: {path}")
    return 0
