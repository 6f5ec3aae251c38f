"""Suites that others published, as data: one file each, read and checked here.

A file (`*.toml` beside this module, or a user's own) has rows. A row has a scenario with the
simulator's fields (`verus list scenario`), in which the flow without a scheme is the sender under
test. It also has checks, each a measured quantity with its threshold. `docs/check.md` describes the
format by an example. Nothing here runs anything.
"""

from __future__ import annotations

import fnmatch
import itertools
import json
import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn, cast

from verus import _verus
from verus.errors import FieldError, near_or_all, shown
from verus.lab import bounded_reading
from verus.lab.scenario import DEFAULTS, SCHEMA, base_rtt_ms, check_value
from verus.lab.schema import Scenario
from verus.report.wanted import Wanted

#: Suites that come with the package, in the order in which they run.
NAMES = ("rfc9743", "bbr-draft", "c4", "picoquic", "rmcat", "scream", "laws", "paths", "map")

#: Where a check's number comes from.
KINDS = {
    "published": "the source states the number",
    "law": "the source states an equation, which gives the number for this path",
    "measured": "the source reports what one run of its own gave",
    "derived": "the source asks the question; the number is ours",
    "ours": "the question and the number are ours",
    "scenario only": "the source states a scenario and no number",
}

#: Runs of a row with different seeds, where its source does not ask for another number.
SEEDS = 10

#: The entry of `controllers` that means every sender.
ANY = "any"

#: The use that a check makes of the baseline of its scenario.
DIVIDES, EXCUSES, IGNORED = BASELINES = ("divides", "excuses", "ignored")

#: The stand-in for the sender under test, with which every scenario is checked when it is loaded.
_STAND_IN = "cubic"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One quantity and its threshold.

    Attributes:
        name: Its name within the row, where there are several.
        measure: The quantity, a name of `verus.suites.measures`.
        options: The measure's options: a flow, an interval.
        wanted: The threshold.
        baseline: One of `BASELINES`: the value is divided by the baseline's, or need not be better
            than it, or is independent of it.
    """

    name: str
    measure: str
    options: Mapping[str, Any] = field(default_factory=dict)
    wanted: Wanted
    baseline: str = DIVIDES

    def told(self, unit: str) -> str:
        """The threshold as text."""
        text = self.wanted.told(unit)
        return f"{text}, or the baseline's" if self.baseline == EXCUSES else text


@dataclass(frozen=True, kw_only=True)
class Case:
    """One scenario of a row: the simulator's JSON, except the sender under test.

    Attributes:
        scenario: Every field; a flow of the sender under test has an empty scheme.
        baseline: The scenario that it is compared with, if there is one.
    """

    scenario: Mapping[str, Any]
    baseline: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class When:
    """The moment from which a row counts its times: the beginning of a state of the sender under test.

    Attributes:
        state: Its name in `verus.suites.bbr_states`.
        from_s: The earliest beginning of the state, s.
    """

    state: str
    from_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """A scenario with its checks.

    Attributes:
        id: Unique: `suite/row`.
        about: The scenario and its threshold, in a sentence.
        source: Where it is published.
        kind: A key of `KINDS`.
        controllers: The senders for which the source states it, by our names; `any` for all.
        compares: Whether it is also run with other senders, for comparison.
        seeds: The number of runs, with different seeds, of which the worst value counts.
        when: The origin of the times of path changes and checks, where that is not the beginning.
        deviation: Where the scenario or the number differs from its source, and why.
        needs: The feature that the simulator lacks, if the row cannot be run without it.
        unit_test: The unit test of the controller that asserts it, where a scenario cannot.
        note: A remark about its numbers.
        cases: Its scenarios; the worst counts. Empty where it cannot be run.
        checks: Its checks.
    """

    id: str
    about: str
    source: str
    kind: str
    controllers: tuple[str, ...]
    compares: bool
    seeds: int
    needs: str
    unit_test: str
    note: str
    deviation: str
    when: When | None
    cases: tuple[Case, ...]
    checks: tuple[Check, ...]

    def divides(self, check: Check) -> bool:
        """Whether the values of a check are ratios to those of a baseline."""
        return check.baseline == DIVIDES and any(case.baseline is not None for case in self.cases)

    def names(self, scheme: str) -> bool:
        """Whether the source states it for this sender (a bare name: `cubic`)."""
        return ANY in self.controllers or scheme in self.controllers

    def id_of(self, check: Check) -> str:
        """The name of one of its checks, as reports have it."""
        return f"{self.id}/{check.name}" if check.name else self.id

    def ids(self) -> list[str]:
        """Its own name and that of each check."""
        return [self.id, *map(self.id_of, self.checks)]


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A file of rows.

    Attributes:
        name: Its name for `--suite`.
        title: For headings.
        about: A description, in a few sentences.
        source: Where it is published.
        differences: Differences between the source's simulator and ours.
        rows: In order.
    """

    name: str
    title: str
    about: str
    source: str
    differences: str
    rows: tuple[Row, ...]

    def with_rows(self, patterns: Collection[str]) -> Suite:
        """The suite, reduced to the rows and checks whose names match one of the patterns (`*` and `?`)."""

        def matches(name: str) -> bool:
            return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)

        rows = []
        for row in self.rows:
            checks = row.checks if matches(row.id) else tuple(one for one in row.checks if matches(row.id_of(one)))
            if checks:
                rows.append(replace(row, checks=checks))
        return replace(self, rows=tuple(rows))


def load(name: str) -> Suite:
    """The suite of that name, or of that file (`*.toml`).

    Raises:
        FieldError: There is none.
        ValueError: The file is invalid; the message names file, row and field.
    """
    if name.endswith(".toml"):
        path = Path(name)
        try:
            text = bounded_reading.given(path, bounded_reading.MOST_TEXT).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"`{name}`: not UTF-8 (byte {error.start + 1})") from error
        except OSError as error:
            raise FieldError("suite", f"`{name}` cannot be read ({error.strerror or error})") from error
        suite = read(text, name)
        if suite.name in NAMES:
            raise ValueError(f"`{name}`: `name` must be another than `{suite.name}`, which comes with Verus")
        return suite
    if name not in NAMES:
        raise FieldError(
            "suite", f"there is no suite `{name}`{near_or_all(name, NAMES)}; a file of one's own ends in `.toml`"
        )
    return read((resources.files("verus.suites") / f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml")


def read(text: str, name: str) -> Suite:
    """A suite from the text of its file; `name` is the file's name in messages.

    Raises:
        ValueError: It is invalid; the message names file, row and field.
    """
    try:
        parsed = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"`{name}`: not TOML: {error}") from error
    table = _Table(parsed, f"`{name}`")
    suite = table.get("text", "name")
    if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", suite):
        table.refuse("name", f"must be small letters, digits, `-`, `_` and `.`, not `{suite}`")
    texts = {key: table.get("text", key) for key in ("title", "about", "source")}
    differences = table.get("text", "differences", "")
    seeds, shared = table.get("count", "seeds", SEEDS), table.get("table", "scenario", {})
    asks, common = table.get("number", "asks_rtts", 0.0), table.get("table", "row", {})
    rows = []
    for index, own in enumerate(table.get("tables", "rows", [])):
        entry, identity = {**common, **own}, own.get("id")
        place = f"row `{identity}`" if isinstance(identity, str) else f"row {index + 1}"
        for each, label in _each(entry, f"`{name}`, {place}"):
            rows.append(_row(_Table(each, label), suite, seeds, shared, asks))
    table.end()
    if not rows:
        table.refuse("rows", "must have at least one")
    identities: set[str] = set()
    for row in rows:
        for identity in map(row.id_of, row.checks):
            if identity in identities:
                raise ValueError(f"`{name}`, row `{row.id.partition('/')[2]}`: `{identity}` is there twice")
            identities.add(identity)
    return Suite(name=suite, **texts, differences=differences, rows=tuple(rows))


def _each(entry: Mapping[str, Any], place: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The rows of an entry, each with its name in messages: one, or one for each combination of each grid of `each`."""
    table = _Table(entry, place)
    grids = table.get("tables", "each", [])
    if not grids:
        yield entry, place
        return
    identity, about, scenario = table.get("text", "id"), table.get("text", "about"), table.get("table", "scenario", {})
    shared = {key: value for key, value in entry.items() if key != "each"}
    for grid in grids:
        for key, values in grid.items():
            if not isinstance(values, list) or not values:
                table.refuse(f"each.{key}", "must be a list of values")
        for chosen in itertools.product(*grid.values()):
            fields = dict(zip(grid, chosen, strict=True))
            words = {key: re.split("[:=]", str(value))[-1] for key, value in fields.items()}
            fields.pop("name", None)
            named = _filled(table, "id", identity, words)
            row = {"id": named, "about": _filled(table, "about", about, words), "scenario": {**scenario, **fields}}
            yield {**shared, **row}, f"{place.partition(',')[0]}, row `{named}`"


def _filled(table: _Table, key: str, text: str, values: Mapping[str, str]) -> str:
    """The text with the last part of a field's value in place of `{FIELD}`: 64 of `droptail:packets=64`."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return values[name] if name in values else table.refuse(key, f"has `{{{name}}}`, which `each` has not")

    return re.sub(r"\{(\w+)\}", value, text)


def _row(table: _Table, suite: str, seeds: int, shared: Mapping[str, Any], asks: float) -> Row:
    identity = table.get("text", "id")
    if not re.fullmatch(r"[A-Za-z0-9][\w.+-]*(/[\w.+-]+)*", identity):
        table.refuse("id", f"must be words joined by `/`, not `{identity}`")
    kind = table.get("text", "kind")
    if kind not in KINDS:
        table.refuse("kind", f"must be one of {', '.join(KINDS)}, not `{kind}`")
    texts = {key: table.get("text", key, "") for key in ("source", "note", "needs", "unit_test", "deviation")}
    checks = tuple(
        _check(_Table(entry, f"{table.place}, check {number + 1}"), kind)
        for number, entry in enumerate(table.get("tables", "checks", []))
    )
    row = Row(
        id=f"{suite}/{identity}",
        about=table.get("text", "about"),
        kind=kind,
        controllers=_controllers(table, may_lack=bool(texts["needs"])),
        compares=table.get("flag", "compares", False),
        seeds=table.get("count", "seeds", seeds),
        when=_when(table),
        cases=() if texts["needs"] or texts["unit_test"] else tuple(_cases(table, shared, asks)),
        checks=checks,
        **texts,
    )
    if not checks:
        table.refuse("checks", "must have at least one")
    if any(check.baseline != DIVIDES for check in checks) and not table.get("table", "against", {}):
        table.refuse("checks", "may say what a `baseline` is for only where the row has `against`")
    table.read_keys |= {
        "scenario",
        "flows",
        "sweep",
        "against",
    }  # a row that cannot be run may still describe its scenario
    table.end()
    return row


def _controllers(table: _Table, *, may_lack: bool) -> tuple[str, ...]:
    """The senders that a row is for. One that we lack may be named where the row cannot be run."""
    names: tuple[str, ...] = table.get("names", "controllers")
    known = [ANY, "cmd", "kernel", *(scheme["name"] for scheme in _verus.list_schemes())]
    for name in names:
        if not (may_lack or name in known or name[0].isupper()):
            classes = "; the name of a class of one's own begins with a capital letter"
            table.refuse("controllers", f"has `{name}`, which is no sender{near_or_all(name, known)}{classes}")
    return names


def _when(table: _Table) -> When | None:
    fields = table.get("table", "when", {})
    if not fields:
        return None
    when = _Table(fields, f"{table.place}, when")
    moment = When(state=when.get("text", "state"), from_s=when.get("number", "from_s", 0.0))
    when.end()
    if moment.from_s < 0:
        when.refuse("from_s", f"must be 0 or more, not {moment.from_s:g}")
    return moment


def _check(table: _Table, kind: str) -> Check:
    bounds = {word: table.get("number", word, None) for word in ("most", "least", "near")}
    baseline = table.get("text", "baseline", DIVIDES)
    if baseline not in BASELINES:
        table.refuse("baseline", f"must be one of {', '.join(BASELINES)}, not `{baseline}`")
    word, within = table.get("text", "is", None), table.get("number", "within", None)
    check = Check(
        name=table.get("text", "name", ""),
        measure=table.get("text", "measure"),
        options=table.get("table", "options", {}),
        wanted=Wanted(**bounds, within=within or 0.0, word=word),
        baseline=baseline,
    )
    table.end()
    stated = [key for key, value in {**bounds, "is": word}.items() if value is not None]
    if kind == "scenario only" and stated:
        table.refuse(stated[0], "must be left out where the source states a scenario only")
    if kind != "scenario only" and (not stated or (len(stated) > 1 and stated != ["most", "least"])):
        stated_keys = " and ".join(f"`{key}`" for key in stated) or "none"
        table.refuse("checks", f"must ask one thing (`most`, `least`, both, `near` or `is`), not {stated_keys}")
    if baseline == EXCUSES and stated not in (["most"], ["least"]):
        table.refuse("baseline", f"must not be `{EXCUSES}` without `most` or `least`, one of them")
    if (bounds["near"] is None) != (within is None):
        table.refuse("within", "must be there with `near`, and with nothing else")
    if within is not None and within < 0:
        table.refuse("within", f"must be 0 or more, not {within:g}")
    if bounds["near"] is not None and bounds["near"] <= 0:
        table.refuse("near", f"must be above 0, as `within` is a share of it, not {bounds['near']:g}")
    if stated == ["most", "least"] and bounds["least"] > bounds["most"]:
        table.refuse("least", f"must be at most `most`, {bounds['most']:g}, not {bounds['least']:g}")
    return check


def _cases(table: _Table, shared: Mapping[str, Any], asks: float) -> Iterator[Case]:
    """Each scenario of a row, from the suite's shared fields, the row's fields, and each variant of its `sweep`."""
    own, sweep, against = (table.get("table", key, {}) for key in ("scenario", "sweep", "against"))
    flows = table.get("tables", "flows", [])
    if not flows:
        table.refuse("flows", "must have at least one, the sender under test")
    for key, values in sweep.items():
        if not isinstance(values, list) or not values:
            table.refuse(f"sweep.{key}", "must be a list of values")
    for values in itertools.product(*sweep.values()):
        fields = _over(_over(shared, own), dict(zip(sweep, values, strict=True)))
        scenario = _scenario(table, fields, flows, asks)
        baseline = None
        if against:
            changed = dict(against)
            others = changed.pop("flows", flows)
            baseline = _scenario(table, _over(fields, changed), others, asks)
        yield Case(scenario=scenario, baseline=baseline)


#: Fields that set the length of the bottleneck's queue; the later one overrides the earlier.
_QUEUES = {"queue", "queue_bdp"}


def _over(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `first`, overridden by those of `then`."""
    replaced = _QUEUES if _QUEUES & then.keys() else set()
    return {**{key: value for key, value in first.items() if key not in replaced}, **then}


def _scenario(
    table: _Table, fields: Mapping[str, Any], flows: Sequence[Mapping[str, Any]], asks: float
) -> Mapping[str, Any]:
    """A whole scenario, checked with a stand-in for the sender under test."""
    scenario: dict[str, Any] = {**DEFAULTS, **fields, "flows": []}
    queue_bdp, least = scenario.pop("queue_bdp", None), scenario.pop("queue_least_packets", _LEAST_PACKETS)
    asks = scenario.pop("asks_rtts", asks)
    for key in scenario:
        if key not in SCHEMA["properties"]:
            table.refuse(f"scenario.{key}", f"is no field of a scenario{near_or_all(key, SCHEMA['properties'])}")
    for flow in flows:
        flow_fields = {key: value for key, value in flow.items() if key != "count"}
        count = flow.get("count", 1)
        if type(count) is not int or not 1 <= count <= 1000:
            table.refuse("flows.count", f"must be a whole number from 1 to 1000, not {count}")
        scenario["flows"] += [{"scheme": "", **flow_fields}] * count
    _try(table, scenario)
    if type(asks) not in (int, float) or not 0 <= asks <= 1000:
        table.refuse("scenario.asks_rtts", f"must be a number from 0 to 1000, not {shown(asks)}")
    if asks:
        scenario["flows"] = [_later(table, scenario, flow, asks) for flow in scenario["flows"]]
    if queue_bdp is not None:
        scenario["queue"] = f"droptail:bytes={_bdp_bytes(table, scenario, queue_bdp, least)}"
    if asks or queue_bdp is not None:
        _try(table, scenario)
    return scenario


def _later(table: _Table, scenario: Mapping[str, Any], flow: Mapping[str, Any], asks: float) -> Mapping[str, Any]:
    """The flow, later by as many round trips."""
    rtt_s = _base_rtt_s(table, "asks_rtts", scenario, flow.get("delay_ms"))
    return {**flow, "start_s": round(flow.get("start_s", 0.0) + asks * rtt_s, 9)}


#: The minimum size, in packets, of a queue given in bandwidth-delay products, where a suite does
#: not ask for more.
_LEAST_PACKETS = 2


def _bdp_bytes(table: _Table, scenario: Mapping[str, Any], count: float, least_packets: int) -> int:
    """Bytes of `count` bandwidth-delay products, or of `least_packets` if these are more."""
    if type(least_packets) is not int or not 1 <= least_packets <= 1_000_000:
        table.refuse("scenario.queue_least_packets", f"must be from 1 to 1000000, not {shown(least_packets)}")
    rate = re.fullmatch(r"rate:([\d.]+)", scenario["trace"])
    if rate is None:
        table.refuse("scenario.queue_bdp", "must be left out where the channel is not `rate:MBPS`")
    if type(count) not in (int, float) or not 0 < count <= 1000:
        table.refuse("scenario.queue_bdp", f"must be a number above 0 and at most 1000, not {shown(count)}")
    rtt_s = _base_rtt_s(table, "scenario.queue_bdp", scenario)
    return max(round(float(rate[1]) * 1e6 / 8 * rtt_s * count), least_packets * int(scenario["packet_bytes"]))


def _base_rtt_s(table: _Table, key: str, scenario: Mapping[str, Any], flow_delay_ms: float | None = None) -> float:
    """The round trip of which the field `key` is a multiple."""
    rtt_ms = base_rtt_ms(scenario, flow_delay_ms)
    return table.refuse(key, "must be left out where delays are recorded") if rtt_ms is None else rtt_ms / 1e3


def _try(table: _Table, scenario: Mapping[str, Any]) -> None:
    """Has the simulator check it, with a stand-in for the sender under test."""
    try:
        for name, value in scenario.items():
            check_value(name, value)
        text = json.dumps(with_sender(scenario, _STAND_IN), allow_nan=False)
        _verus.check_scenario(text)
        _verus.check_queue(scenario["queue"])
        _verus.check_queue(scenario["ack_queue"])
        for flow in scenario["flows"]:
            if flow["scheme"]:
                _verus.check_scheme(flow["scheme"])
    except FieldError as error:
        table.refuse(error.field, error.problem)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{table.place}: {error}") from error


def with_sender(scenario: Mapping[str, Any], scheme: str, seed: int = 1) -> Scenario:
    """The scenario with that sender in place of the one under test."""
    flows = [{**flow, "scheme": flow["scheme"] or scheme} for flow in scenario["flows"]]
    return cast("Scenario", {**scenario, "flows": flows, "seed": seed})


def _is_list(value: Any, of: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, of) for each in value)


#: Kinds of values in a file: the error message, the test, and the conversion.
_VALUES: Mapping[str, tuple[str, Callable[[Any], bool], Callable[[Any], Any]]] = {
    "text": (
        "must be text, not {}",
        lambda value: isinstance(value, str) and bool(value.strip()),
        lambda text: " ".join(text.split()),
    ),
    "names": ("must be a list of names, not {}", lambda value: _is_list(value, str) and all((value, *value)), tuple),
    "number": ("must be a number, not {}", lambda value: type(value) in (int, float) and math.isfinite(value), float),
    "count": (
        "must be a whole number from 1 to 100000, not {}",
        lambda value: type(value) is int and 1 <= value <= 100_000,
        int,
    ),
    "flag": ("must be true or false, not {}", lambda value: isinstance(value, bool), bool),
    "table": ("must be a table, not {}", lambda value: isinstance(value, dict), dict),
    "tables": ("must be a list of tables", lambda value: _is_list(value, dict), list),
}


@dataclass
class _Table:
    """A table of the file: each key is read once, as a value of some kind, and none may remain unread."""

    values: Mapping[str, Any]
    place: str
    read_keys: set[str] = field(default_factory=set)

    def refuse(self, key: str, problem: str) -> NoReturn:
        raise ValueError(f"{self.place}: `{key}` {problem}")

    def end(self) -> None:
        """Refuses keys that were not read."""
        for key in self.values:
            if key not in self.read_keys:
                self.refuse(key, f"is not known here{near_or_all(key, sorted(self.read_keys))}")

    def get(self, kind: str, key: str, default: Any = ...) -> Any:
        """The value of a key, of a kind in `_VALUES`; the default if it is absent, and an error without a default."""
        self.read_keys.add(key)
        value = self.values.get(key)
        if value is None:
            return self.refuse(key, "is missing") if default is ... else default
        problem, fits, made = _VALUES[kind]
        if not fits(value):
            self.refuse(key, problem.format(shown(value)))
        return made(value)
