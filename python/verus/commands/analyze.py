"""`verus analyze`: the metrics of a link log in Mahimahi's format."""

from __future__ import annotations

from verus import _verus
from verus.commands.options import Json
from verus.commands.tables import narrow_table, table_console
from verus.commands.talk import Talk, tell_rows
from verus.report.numbers import DELAY_NOTE
from verus.report.printable import line


def analyze(
    log: str,
    /,
    *,
    json_: Json = False,
    talk: Talk = Talk(),  # noqa: B008 (frozen)
) -> None:
    """Every metric of a Mahimahi link log (plain, .gz or .xz), defined as for simulated runs.

    Parameters
    ----------
    log
        The log that `mm-link --uplink-log` or `--downlink-log` wrote.
    json_
        Print one JSON object instead of a table.
    """
    analysis = _verus.analyze_log(log)
    if analysis.pop("has_unfinished_line"):
        talk.say(f"Warning: `{log}`: its last line is cut off, and left out")
    metrics = {**{key: value for key, value in analysis.items() if not isinstance(value, dict)}, **analysis["metrics"]}
    metrics = {key: value for key, value in metrics.items() if key not in ("series", "capacity")}
    if json_:
        tell_rows([{"schema": 1, "version": _verus.version(), "log": log, **metrics}])
        return
    table = narrow_table("metric")
    table.add_column("value", justify="right")
    for key, value in metrics.items():
        if not isinstance(value, list):
            table.add_row(key, "–" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value))
    console = table_console()
    console.print(line(log), style="bold", highlight=False)
    console.print(table)
    console.print(DELAY_NOTE, style="dim")
