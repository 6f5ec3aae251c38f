"""The settings of a comparison as options of the command line: types come from `Settings`, help texts from here."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from cyclopts import Parameter

from verus.commands.options import count, number, one, words
from verus.errors import flag_of
from verus.lab.scenario import DEFAULTS, SCHEMA, Settings
from verus.lab.schema import Change, PathSettings, RunSettings

Verb = TypeVar("Verb", bound=Callable[..., Any])

#: The units of numbers, by the placeholder in the help; and the help's text in place of a unit that
#: the schema states.
_UNITS = {"MS": "ms", "TIME": "s", "SIZE": "bytes", "SHARE": "share"}
_WRITTEN = {"MS": (", ms", ", in ms or as `0.02s`"), "TIME": (", s", ", in seconds or as `2m`")}


def _of_scenario(name: str) -> tuple[str, str]:
    """The placeholder and the description of a scenario field's option, from the schema."""
    rule = SCHEMA["properties"][name]
    about = re.sub(
        r"`(\w+)`", lambda word: flag_of(word[1]) if word[1] in SCHEMA["properties"] else word[0], rule["description"]
    )
    about = " ".join(about.split())
    is_text = "string" in rule["type"]
    if rule.get("exclusiveMaximum") == 1:
        takes, about = "SHARE", f"{about.removesuffix('.')}, as `0.005` or `0.5%`."
    elif is_text:
        of_file = {"channel": "CHANNEL", "file": "FILE"}
        takes = of_file.get(rule["x-names"], name.rpartition("_")[2].upper())
    else:
        takes = {"ms": "MS", "s": "TIME", "bytes": "SIZE"}.get(name.rpartition("_")[2], "N")
    about = about.replace(*_WRITTEN.get(takes, ("", "")), 1)
    default = rule["default"]
    if default is not None:
        about += f" Default: `{default}`." if is_text else f" Default: {default:g}."
    return takes, about


#: The placeholder (empty for a flag) and the description of each option, in the order of the help.
#: They come from the schema unless the command line differs from it, as where it takes several
#: values.
_OPTIONS: dict[str, tuple[str, str]] = {
    "traces": (
        "CHANNEL",
        "Trace files, names of channels (`verus list channels`), or constant rates in Mbit/s, `rate:12`. Default: "
        "three built-in channels.",
    ),
    "schemes": (
        "SCHEME",
        "`NAME[:key=value,…]` of `verus list schemes`, such as `cubic` or `verus:ratio=2`; `verus:ratio=2,4` and "
        "`verus:ratio=2..6` are several schemes. Or a class in Python, `FILE.py:CLASS[:key=value,…]` "
        "(docs/own-controller.md). Default: `forward`, `verus:ratio=2,6`, `cubic`, `bbr` and `copa`; none with --mix.",
    ),
    "mixes": (
        "MIX",
        "`SCHEME*N+SCHEME*M`: N flows of one scheme and M of another share the bottleneck in one run.",
    ),
    "queues": (
        "QUEUE",
        "The queue before the bottleneck: `KIND[:key=value,…]`, such as `droptail:bytes=120kB` or `codel` (`verus list "
        "queues`). Default: `red:min=375000,max=1125000,p=0.1`.",
    ),
    **{entry.name: _of_scenario(entry.name) for entry in fields(PathSettings) if entry.name not in ("loop", "changes")},
    "changes": (
        "FILE",
        'A JSON file with a list of changes of the path, such as `[{"at_s": 2, "rate_mbps": 0}]` (`verus list '
        "scenario` has the fields).",
    ),
    "loop": (
        "",
        "Start a trace again when it ends (the default), or deliver nothing after its end (--once).",
    ),
    "flows": (
        "N",
        "Flows of each `--scheme` that share the bottleneck in one run; a `--mix` has its own numbers. Default: 1.",
    ),
    "traffic": (
        "TRAFFIC",
        "Traffic of each flow (`verus list traffic`): `on-off`, `files:bytes=100kB`. Default: `full`, always data to "
        "send.",
    ),
    **{entry.name: _of_scenario(entry.name) for entry in fields(RunSettings)},
    "seed": ("N", f"First seed. Default: {DEFAULTS['seed']}."),
    "repeat": ("N", "Runs of each combination, with seeds SEED, SEED + 1, … Default: 1."),
    "stretches": (
        "N",
        "Runs of each combination, each over another part of a recording: the first --duration of it, the next, and so "
        "on, with seeds SEED, SEED + 1, … In place of --repeat.",
    ),
    "records": ("", "Keep one record for each packet (`records.parquet`)."),
    "emulate": (
        "",
        "Run in real time, behind an emulated link: our controllers over UDP or QUIC, and the kernel's own "
        "(`linux:cc=cubic`), or ours in it (`kernel:forward`; as root). Needs root or user "
        "namespaces (Linux).",
    ),
    "virtual": (
        "",
        "As --emulate, on virtual time: in a guest kernel (`verus virtual build`), without root, and with the same "
        "results each time (docs/virtual.md).",
    ),
    "transports": (
        "NAME",
        "With --emulate, the transport of our controllers: `udp` (the default), `quic`, or both.",
    ),
}


def takes_settings(verb: Verb) -> Verb:
    """The verb, with an option for each setting in place of its `**asked`; it is called with those that are set."""
    signature = inspect.signature(verb)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(name))
        for name in _OPTIONS
    ]
    parameters = [entry for entry in signature.parameters.values() if entry.kind is not entry.VAR_KEYWORD]
    verb.__signature__ = signature.replace(parameters=[*options, *parameters])  # type: ignore[attr-defined]
    return verb


#: Types of the settings, from `Settings`.
_KINDS = get_type_hints(Settings)


def setting(name: str) -> Parameter:
    """The parser and the help of this setting's option, with its default."""
    takes, about = _OPTIONS[name]
    kind = _KINDS[name]
    flag = flag_of(name)
    names = [flag, flag.removesuffix("-ms")] if flag.endswith("-ms") else [flag]
    said: dict[str, Any] = {"help": about, "name": names, "show_default": False}
    if kind is bool:
        return Parameter(negative="--once" if name == "loop" else "", **said)
    if kind == Sequence[str]:
        return words(takes, **said)
    if takes in _UNITS:
        return number(_UNITS[takes], takes, whole=kind is int, **said)
    return count(takes, **said) if int in (kind, *get_args(kind)) else one(takes, **said)


def _option(name: str) -> Any:
    """The type of an option, whose value is None where it is not given."""
    read: dict[Any, Any] = {Sequence[str]: list[str], Sequence[Change]: Path}
    kind = _KINDS[name]
    return Annotated[read.get(kind, kind) | None, setting(name)]
