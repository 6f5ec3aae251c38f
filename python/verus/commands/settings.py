"""The settings of a comparison as options of the command line: types are those of `Settings`, words are for people."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

from cyclopts import Parameter

from verus.commands.options import number, one, words
from verus.errors import flag_of
from verus.lab.scenario import DEFAULTS, Settings
from verus.lab.schema import Change

Verb = TypeVar("Verb", bound=Callable[..., Any])

#: The units of numbers, by what the help says that an option takes.
_UNITS = {"MS": "ms", "TIME": "s", "SIZE": "bytes", "SHARE": "share"}

#: What each option takes, where it takes something, and what it is, in the order of the help.
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
    "second_trace": (
        "CHANNEL",
        "A second link in series, which data packets cross after the first. Default: none.",
    ),
    "second_queue": ("QUEUE", "The queue before the second link. Default: `{second_queue}`."),
    "ack": (
        "CHANNEL",
        "The link that acknowledgements cross: `ideal` (no limit; the default), `same` (as the data's), `rate:MBPS`, a "
        "trace file or a channel.",
    ),
    "ack_queue": ("QUEUE", "The queue before the link of acknowledgements. Default: `{ack_queue}`."),
    "delay_ms": ("MS", "Propagation delay each way, in ms or as `0.02s`. Default: {delay_ms}."),
    "packet_bytes": ("SIZE", "Size of data packets with IP headers, bytes. Default: {packet_bytes}."),
    "opportunity_bytes": (
        "SIZE",
        "Bytes that one line of a trace delivers, 1504 or 1500. Default: {opportunity_bytes}.",
    ),
    "ack_every": ("N", "One acknowledgement for every N data packets. Default: {ack_every}."),
    "jitter": (
        "JITTER",
        "Random additional delay of data packets behind the bottleneck, in order: `none` (the default), "
        "`gauss:mean_ms=5`, `wifi:mean_ms=7` (`verus list jitter`).",
    ),
    "ack_jitter": ("JITTER", "The same for acknowledgements. Default: none."),
    "reorder": (
        "REORDER",
        "Reordering: which data packets arrive late, behind later ones: `none` (the default), `late:p=0.05,ms=10` "
        "(`verus list reorder`).",
    ),
    "ack_delay_ms": (
        "MS",
        "Propagation delay of acknowledgements, in ms or as `0.02s`. Default: as --delay-ms.",
    ),
    "delay_series": (
        "FILE",
        "A file with a recorded series of propagation delays each way, in place of --delay-ms: a whole number of ms on "
        "each line, which holds for 10 ms.",
    ),
    "light_trace": (
        "FILE",
        "CellReplay's light trace, in place of --delay-ms on the way of the data: a packet train on each line, `time "
        "base off0 off1 …` in ms. --trace is then its heavy trace, each line of which delivers 1400 bytes; "
        "--packet-bytes must not be above that.",
    ),
    "ack_light_trace": ("FILE", "The same for acknowledgements, whose heavy trace is --ack."),
    "light_timer_ms": (
        "MS",
        "How long nothing must have left a light trace before a packet begins another train, in ms or as `0.02s`. "
        "Default: {light_timer_ms}.",
    ),
    "size_offsets": (
        "FILE",
        "A file with what is added to the light trace's delay by size of packet: lines of `size offset`, for 100, 200, "
        "… 1400 bytes, in ms.",
    ),
    "ack_size_offsets": ("FILE", "The same for acknowledgements."),
    "loss": ("SHARE", "Probability of random loss on the data path, as `0.005` or `0.5%`. Default: {loss}."),
    "loss_bursts": (
        "LOST/OF",
        "Losses in bursts, as LOST/OF: `2/18` loses the last two of every 18 packets. Default: `{loss_bursts}`.",
    ),
    "policer": (
        "POLICER",
        "A policer (token bucket) before the bottleneck, which drops data packets that exceed its rate, and delays "
        "none: `bucket:rate_mbps=10,burst=150000` (bytes). Default: `{policer}`.",
    ),
    "ack_loss": ("SHARE", "Probability of random loss of acknowledgements. Default: {ack_loss}."),
    "changes": (
        "FILE",
        'A JSON file with a list of changes of the path, such as `[{{"at_s": 2, "rate_mbps": 0}}]` (`verus list '
        "scenario` has the fields).",
    ),
    "changes_repeat_s": (
        "TIME",
        "Period, in seconds or as `2m`, after which the path returns to its first state and the changes start again. "
        "Default: they happen once.",
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
    "duration_s": ("TIME", "Duration of each run, in seconds or as `2m`. Default: {duration_s}."),
    "max_events": (
        "N",
        "The most events that a run may take (a packet's arrival is one, and so is a timer): it fails if it takes "
        "more. A core does some millions a second. Default: no bound.",
    ),
    "seed": ("N", "First seed. Default: {seed}."),
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
        "(`linux:cc=cubic`), or ours in it (`kernel:forward`, `kernel:verus`; as root). Needs root or user "
        "namespaces (Linux).",
    ),
    "transports": (
        "NAME",
        "With --emulate, the transport of our controllers: `udp` (the default), `quic`, or both.",
    ),
}


def takes_settings(verb: Verb) -> Verb:
    """The verb, with an option for each setting in place of its `**asked`; it gets those that are given."""
    found = inspect.signature(verb)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(name))
        for name in _OPTIONS
    ]
    own = [entry for entry in found.parameters.values() if entry.kind is not entry.VAR_KEYWORD]
    verb.__signature__ = found.replace(parameters=[*options, *own])  # type: ignore[attr-defined]
    return verb


#: Of the settings, as `Settings` has them.
_KINDS = get_type_hints(Settings)

#: What a scenario has where nothing is said, as help has it.
_DEFAULTS = {name: f"{value:g}" if isinstance(value, float) else value for name, value in DEFAULTS.items()}


def setting(name: str) -> Parameter:
    """How the option of this setting is read and what its help says, its default included."""
    takes, about = _OPTIONS[name]
    kind = _KINDS[name]
    flag = flag_of(name)
    names = [flag, flag.removesuffix("-ms")] if flag.endswith("-ms") else [flag]
    said: dict[str, Any] = {"help": about.format_map(_DEFAULTS), "name": names, "show_default": False}
    if kind is bool:
        return Parameter(negative="--once" if name == "loop" else "", **said)
    if kind == Sequence[str]:
        return words(takes, **said)
    if takes in _UNITS:
        return number(_UNITS[takes], takes, whole=kind is int, **said)
    return one(takes, allow_leading_hyphen=kind is int, **said)


def _option(name: str) -> Any:
    """The option's type, which is None where it is not given."""
    read: dict[Any, Any] = {Sequence[str]: list[str], Sequence[Change]: Path}
    kind = _KINDS[name]
    return Annotated[read.get(kind, kind) | None, setting(name)]
