"""`verus report`: the page of any saved run, drawn from its results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from verus.commands.options import Flag, one
from verus.commands.talk import Talk


def report(
    folders: Annotated[list[Path], Parameter(name="DIR", negative="")],
    /,
    *,
    out: Annotated[Path | None, one("DIR")] = None,
    force: Flag = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> int:
    """Draw `report.html` and the figures of saved runs, or the congestion graph of a qlog.

    The report of one folder is written into it; several folders share one report in a new folder
    (--out).

    Parameters
    ----------
    folders
        Folders that `verus compare`, `sweep`, `tune`, `check`, `reproduce`, `probe` or `shell` wrote. Several must be
        of `compare`, `probe` or `shell`: runs over the same channel and queue then share their charts. Or logs of
        flows (`--qlog`, or of other QUIC stacks), `.sqlog` or `.qlog`, each drawn as a page beside it (`.html`).
    out
        Folder for the report of several folders. Default: a new one in `verus-results`.
    force
        Replace the contents of that folder, or a file beside a log that is no page of it.
    """
    from verus.errors import FieldError
    from verus.lab.metric_rows import CHECK, SWEEP, TUNE
    from verus.lab.qlog_events import is_log_name
    from verus.lab.results import Results
    from verus.lab.results_folder import check_folder, new_folder, new_name, own
    from verus.saved_run import log_pages, write_log_page, write_page

    logs = [path for path in folders if is_log_name(path) and not path.is_dir()]
    folders = [path for path in folders if path not in logs]
    if out is not None and len(folders) < 2:
        raise FieldError("out", "is for the page of several folders; one is drawn into its folder, a log beside it")
    for log, log_page in zip(logs, log_pages(logs, force=force), strict=True):
        with talk.doing(f"drawing {log}"):
            write_log_page(log, log_page)
        talk.say(f"Report: {log_page}")
    if not folders:
        return 0
    kinds = [_kind(folder) for folder in folders]
    if len(folders) > 1:
        target = new_name("report") if out is None else out
        names = [folder.resolve().name for folder in folders]
        distinct = len(set(names)) == len(names)
        if len(set(folders)) < len(folders):
            raise ValueError("`verus report`: a folder is named twice")
        for kind, verb in ((CHECK, "check"), (SWEEP, "sweep"), (TUNE, "tune")):
            if kind in kinds:
                name = names[kinds.index(kind)]
                raise ValueError(f"`{name}` is from `verus {verb}`, whose page has nothing to lay over others")
        from verus.lab.overlay import overlaid

        check_folder(target, force=force)
        saved = {
            name if distinct else str(folder): Results.read(folder) for name, folder in zip(names, folders, strict=True)
        }
        results = overlaid(saved)
        with talk.doing(f"drawing {target}"), new_folder(target, force=force) as draft:
            results.write(draft)
            write_page(results, draft)
        talk.say(f"Report: {target / 'report.html'}")
        return 0
    (folder,), (kind,) = folders, kinds
    with talk.doing(f"drawing {folder}"):
        if kind == CHECK:
            from verus.suites import page

            path = page.draw(folder)
        elif kind == SWEEP:
            from verus.lab.sweep import Folder
            from verus.report.study_page import write_study_page

            path = write_study_page(Folder(folder))
        elif kind == TUNE:
            from verus.lab.tuning.folder import TuneFolder
            from verus.report.tune_page import write_tune_page

            path = write_tune_page(TuneFolder(folder))
        else:
            try:
                path = write_page(Results.read(folder), folder)
            except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError) as error:
                # The contents may have changed since the command wrote them.
                raise ValueError(f"`{folder}` is no whole result of `{kind}`: {error!r}") from error
            own(folder, [path, *(folder / "figures").glob("*")])
    talk.say(f"Report: {path}")
    return 0


def _kind(folder: Path) -> str:
    """The kind of the command that wrote a folder.

    Raises:
        OSError: Its `run.json` cannot be read.
        ValueError: It is not one of ours.
    """
    from verus.lab.metric_rows import SWEEP, TUNE
    from verus.lab.results_folder import read_config
    from verus.lab.sweep import Folder
    from verus.lab.tuning.folder import TuneFolder

    if not (folder / "run.json").exists():
        if Folder(folder).plan_path.exists():
            return SWEEP
        if TuneFolder(folder).search.exists():
            return TUNE
        if not folder.exists():
            raise ValueError(f"`{folder}`: there is no such folder")
        if not folder.is_dir():
            raise ValueError(f"`{folder}` is neither a folder of results nor a qlog (.sqlog, .qlog)")
        raise ValueError(f"`{folder}` holds no results: there is no run.json in it")
    return str(read_config(folder / "run.json")["kind"])
