"""Refuses a search whose judged rows share anything with its tuned rows that a candidate could have learned.

Two rows share a recording if a stretch of it crosses both, whatever its file is called: recordings are compared by the
digest of their opportunities. They share a realisation of a generated channel if its name and its seed are equal and
the stretches meet. Halves share no seed, and no path of constant rate with the same senders beside the candidate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from verus import _verus
from verus.errors import FieldError
from verus.lab.inputs import digest_of
from verus.lab.scenario import SCHEMA, Run
from verus.lab.schema import Scenario

#: Fields of a scenario that name a channel, and those that name another file of a path.
_CHANNELS, _FILES = (
    tuple(name for name, rule in SCHEMA["properties"].items() if rule.get("x-names") == kind)
    for kind in ("channel", "file")
)
_QUEUES = ("queue", "second_queue", "ack_queue")


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A part of a channel that a row crosses.

    Attributes:
        channel: The channel's identity: a digest, or a name with a seed.
        name: For messages.
        from_s: The beginning, s.
        to_s: The end, s.
    """

    channel: str
    name: str
    from_s: float
    to_s: float


def refuse_overlap(tune: Sequence[Run], judge: Sequence[Run], scheme: str) -> None:
    """Refuses halves that share a seed, a stretch of a channel, or a path.

    Args:
        tune: Rows of one half.
        judge: Rows of the other.
        scheme: The candidate's in these rows; other schemes are what it is mixed with.

    Raises:
        FieldError: They do; it names what they share.
        OSError: A trace cannot be read.
    """
    for known in (_checked, _recording, _file_digest):  # files may have changed since
        known.cache_clear()
    seeds = {run.scenario["seed"] for run in tune} & {run.scenario["seed"] for run in judge}
    if seeds:
        shared = ", ".join(map(str, sorted(seeds)[:5]))
        raise FieldError("judge.seed", f"overlaps with `tune`: both have seed {shared}")
    tuned: dict[str, list[Stretch]] = {}
    for stretch in _distinct(tune):
        tuned.setdefault(stretch.channel, []).append(stretch)
    for stretch in _distinct(judge):
        for other in tuned.get(stretch.channel, ()):
            from_s, to_s = max(stretch.from_s, other.from_s), min(stretch.to_s, other.to_s)
            if from_s < to_s:
                names = f"`{stretch.name}`" if stretch.name == other.name else f"`{stretch.name}` (`{other.name}`)"
                raise FieldError(
                    "judge.trace",
                    f"overlaps with `tune`: both cross {names} from {from_s:.10g} s to {to_s:.10g} s",
                )
    paths = {_constant_path(run, scheme) for run in tune}
    for run in judge:
        path = _constant_path(run, scheme)
        if path is not None and path in paths:
            raise FieldError(
                "judge.trace",
                f"overlaps with `tune`: a row over `{run.trace}` with {_flows(run)} differs from one of `tune` in "
                "nothing but the seed",
            )


def _flows(run: Run) -> str:
    """The flows of a row in words."""
    if is_mixed(run):
        return f"the mix `{run.contestant.text}`"
    flows = len(run.contestant.flows)
    return f"{flows} flow{'s' if flows > 1 else ''}"


def is_mixed(run: Run) -> bool:
    """Whether a row has senders beside the candidate."""
    return len(set(run.contestant.flows)) > 1


def path_of(run: Run, scheme: str) -> str:
    """All of a row that does not depend on its seed or the candidate, whose scheme this is there.

    The senders beside the candidate are part of it, in whatever order a mix states them.
    """
    scenario: dict[str, Any] = {**run.scenario, "seed": None}
    flows = [{**flow, "scheme": None if flow["scheme"] == scheme else flow["scheme"]} for flow in run.scenario["flows"]]
    scenario["flows"] = sorted(flows, key=lambda flow: json.dumps(flow, sort_keys=True))
    return json.dumps(scenario, sort_keys=True)


def _distinct(runs: Sequence[Run]) -> Iterator[Stretch]:
    """The stretches that runs cross, each once."""
    yield from dict.fromkeys(stretch for run in runs for stretch in _stretches(run))


def _stretches(run: Run) -> Iterator[Stretch]:
    scenario: dict[str, Any] = dict(run.scenario)
    for _, text in _channels(scenario):
        yield from _crossed(text, scenario["seed"], scenario["duration_s"])
    for field in _FILES:
        if scenario[field] is not None:
            digest = _file_digest(scenario[field])
            yield Stretch(channel=digest, name=scenario[field], from_s=0.0, to_s=scenario["duration_s"])


def _channels(scenario: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields of a scenario that name a channel, with their texts."""
    for name in _CHANNELS:
        text = scenario[name]
        if text is not None and text not in SCHEMA["properties"][name].get("x-words", ()):
            yield name, text


def _crossed(text: str, seed: int, duration_s: float) -> Iterator[Stretch]:
    """The stretches of a channel that a run of this duration crosses: a trace that ends begins again."""
    channel_info = _checked(text)
    if channel_info["kind"] == "rate":
        return
    if "parts" not in channel_info:
        if channel_info["kind"] == "built-in":
            yield Stretch(channel=f"{text}@{seed}", name=f"{text}@{seed}", from_s=0.0, to_s=duration_s)
        else:
            digest, there_s = _recording(text)
            yield Stretch(channel=digest, name=text, from_s=0.0, to_s=min(duration_s, there_s))
        return
    left_s = duration_s
    for part in channel_info["parts"]:
        if left_s <= 0:
            return
        name = part["text"]
        from_s = part["from_s"] or 0.0
        if part["channel"]["kind"] == "built-in":
            own_seed = seed if part["seed"] is None else part["seed"]
            channel = name = f"{name}@{own_seed}"
            to_s = from_s + left_s if part["to_s"] is None else part["to_s"]
        else:
            channel, there_s = _recording(name)
            to_s = there_s if part["to_s"] is None else part["to_s"]
        to_s = min(to_s, from_s + left_s)
        yield Stretch(channel=channel, name=name, from_s=from_s, to_s=to_s)
        left_s -= to_s - from_s


@cache
def _checked(text: str) -> dict[str, Any]:
    channel_info: dict[str, Any] = _verus.check_channel(text)
    return channel_info


@cache
def _recording(text: str) -> tuple[str, float]:
    """The digest of a recording's opportunities, and its duration, s."""
    trace_info = _verus.trace_info(text)
    return trace_info["sha256"], trace_info["duration_s"]


@cache
def _file_digest(path: str) -> str:
    return digest_of(Path(path))


def _constant_path(run: Run, scheme: str) -> str | None:
    """All of a row but seed and candidate, where its channel has a constant rate; None for other channels.

    Rates and queues have one spelling in it: `rate:12.0` is the path `rate:12`.
    """
    scenario: dict[str, Any] = dict(run.scenario)
    if _checked(scenario["trace"])["kind"] != "rate":
        return None
    for name, text in _channels(scenario):
        channel_info = _checked(text)
        if channel_info["kind"] == "rate":
            scenario[name] = channel_info["mean_mbps"]
    for name in _QUEUES:
        scenario[name] = _verus.check_queue(scenario[name])["text"]
    return path_of(replace(run, scenario=cast("Scenario", scenario)), scheme)
