"""`verus list`: schemes, queues, channels and other names, with keys, units and defaults."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from cyclopts import Parameter
from rich import box
from rich.table import Table
from rich.text import Text

from verus import _verus
from verus.commands.options import Json
from verus.commands.tables import narrow_table, table_console
from verus.commands.talk import tell_rows
from verus.errors import FieldError, near_or_all
from verus.lab.scenario import DEFAULTS, SCHEMA

#: Fields of a scenario that are lists, with the schema's name of one entry.
PARTS = {"flows": "FlowSpec", "changes": "Change"}

Names = Annotated[list[str] | None, Parameter(name="NAME", negative="")]


def _lister(verb: str, about: str, example: str, entries: Callable[[], list[dict[str, Any]]]) -> Callable[..., None]:
    """The verb that lists some or all of the entries that Rust has."""

    def run(names: Names = None, /, *, json_: Json = False) -> None:
        _show(verb, entries(), names, as_json=json_)

    run.__name__ = verb
    run.__doc__ = f"""{about}

    Parameters
    ----------
    names
        These with their keys, such as `{example}`. Default: all, a line each.
    json_
        Print one JSON object a line instead of a table.
    """
    return run


schemes = _lister("schemes", "Congestion controllers.", "cubic", _verus.list_schemes)
queues = _lister("queues", "Queue disciplines.", "codel", _verus.list_queues)
traffic = _lister("traffic", "Traffic models: what flows have to send, and when.", "video", _verus.list_traffic)
jitter = _lister(
    "jitter",
    "Models of delay jitter: random additional delay of packets behind the bottleneck, which keeps their order.",
    "wifi",
    _verus.list_jitter,
)
reorder = _lister(
    "reorder",
    "Models of packet reordering: which packets are delayed so that later ones overtake them.",
    "late",
    _verus.list_reorder,
)
loss = _lister(
    "loss",
    "Loss models: which packets are lost before the bottleneck, given those before.",
    "gemodel",
    _verus.list_loss,
)
medium = _lister(
    "medium",
    "Media that data and acknowledgements share.",
    "wifi",
    _verus.list_medium,
)


def measures(*, json_: Json = False) -> None:
    """Quantities on which a test of `verus check` can set a threshold.

    Parameters
    ----------
    json_
        Print one JSON object a line instead of a table.
    """
    from verus.suites.measures import MEASURES

    entries = [{"name": name, "unit": one.unit, "summary": one.about} for name, one in MEASURES.items()]
    if json_:
        tell_rows(entries)
        return
    table = narrow_table("measure", "unit", "what it is", whole=2)
    for entry in entries:
        table.add_row(entry["name"], entry["unit"], Text(entry["summary"]))
    table_console().print(table)


def channels(*, json_: Json = False) -> None:
    """Built-in channels, which need no file, and public recordings, which `verus trace fetch` brings.

    Parameters
    ----------
    json_
        Print one JSON object a line instead of a table.
    """
    entries = [_with_first_minute(entry) for entry in _verus.list_channels()]
    if json_:
        tell_rows(entries)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("channel", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("Mbit/s", justify="right")
    table.add_column("seed 1,\n60 s", justify="right")
    table.add_column("what it is")
    for entry in entries:
        rates = ("" if (rate := entry.get(name)) is None else f"{rate:.2f}" for name in ("mean_mbps", "seed_1_mbps"))
        table.add_row(entry["name"], entry["kind"], *rates, entry["summary"])
    console = table_console()
    console.print(table)
    console.print(
        Text(
            "Mbit/s: of a built-in channel the mean over hours. A run crosses a stretch of it, another for each seed:\n"
            "beside it the capacity in a run of 60 s with seed 1, which is what `verus compare` runs by default.\n"
            "Also `rate:MBPS`, a constant rate, and any file in Mahimahi's format (plain, .gz or .xz).\n"
            "NAME@SEED is one realisation of a built-in channel, NAME[FROM:TO] a stretch in seconds, A+B one after\n"
            "another: 'city-driving-3g-up@1[0:150]+city-driving-3g-up@2[0:150]'.",
            style="dim",
        )
    )


def _with_first_minute(entry: dict[str, Any]) -> dict[str, Any]:
    """A channel with the capacity of a run with the default seed, duration and opportunity size."""
    if entry["kind"] != "built-in":
        return entry
    # Statistics count 1500 bytes an opportunity; a run counts the scenario's `opportunity_bytes`.
    per_opportunity = DEFAULTS["opportunity_bytes"] / 1500
    return {**entry, "seed_1_mbps": _verus.trace_info(entry["name"])["mean_mbps"] * per_opportunity}


def scenario(*, json_: Json = False) -> None:
    """The fields of a scenario, which is what the simulator runs: `run.json` of results has one for each run.

    Parameters
    ----------
    json_
        Print their JSON Schema instead.
    """
    if json_:
        tell_rows([SCHEMA])
        return
    console = table_console()
    parts = {"scenario": SCHEMA, **{f"one of `{name}`": SCHEMA["$defs"][of] for name, of in PARTS.items()}}
    for part, rule in parts.items():
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=part, title_justify="left", title_style="bold")
        table.add_column("field", no_wrap=True)
        table.add_column("default")
        table.add_column("range", no_wrap=True)
        table.add_column("meaning")
        for name, field in rule["properties"].items():
            default = field.get("default")
            shown = "" if default is None or isinstance(default, list) else json.dumps(default).strip('"')
            table.add_row(name, Text(shown), _range(field), Text(" ".join(field["description"].split())))
        console.print(table)


def _range(field: Mapping[str, Any]) -> str:
    """The range of a field, as an interval."""
    if "enum" in field:
        return ", ".join(str(one) for one in field["enum"])
    least, above, most, below = (
        field.get(name) for name in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    )
    if least is None and above is None:
        return ""
    lower_bound = f"({above}" if least is None else f"[{least}"
    return f"{lower_bound}, {most}]" if most is not None else f"{lower_bound}, {'∞' if below is None else below})"


def _show(verb: str, entries: Sequence[Mapping[str, Any]], names: Sequence[str] | None, *, as_json: bool) -> None:
    if names is not None:
        entry_names = [entry["name"] for entry in entries]
        if wrong := next((name for name in names if name not in entry_names), None):
            raise FieldError("name", f"`verus list {verb}` has no `{wrong}`{near_or_all(wrong, entry_names)}")
        entries = [entry for entry in entries if entry["name"] in names]
    if as_json:
        tell_rows(entries)
        return
    console = table_console()
    if names is None:
        width = max(len(entry["name"]) for entry in entries)
        for entry in entries:
            console.print(Text.assemble((f"{entry['name']:{width}}", "bold"), f"  {entry['summary']}"), soft_wrap=True)
        console.print()
        console.print(Text(f"`verus list {verb} NAME` lists its keys.", style="dim"))
        return
    for entry in entries:
        console.print(Text.assemble((entry["name"], "bold"), f"  {entry['summary']}"))
        if not entry["keys"]:
            console.print()
            continue
        table = narrow_table("key", "default", "unit", "meaning", whole=2)
        for key in entry["keys"]:
            default = key.get("default")
            shown = "" if default is None else str(default)
            table.add_row(key["key"], shown, key.get("unit") or "", key.get("meaning") or "")
        console.print(table)
