"""The list of rows, and a description of one row with a command or a scenario to run it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from verus.errors import FieldError, flag_of, near_or_all
from verus.lab.scenario import DEFAULTS
from verus.suites import ANY, KINDS, Check, Row, Suite
from verus.suites.judge import scenario_of
from verus.suites.measures import MEASURES

#: Fields of a scenario that a command shows, where they differ from the default.
_SHOWN = ("trace", "queue", "ack", "ack_queue", "delay_ms", "packet_bytes", "ack_every", "loss", "duration_s")
#: Fields that select outputs, and the seed, which has a separate flag.
_KEPT = ("series", "records", "epochs", "bin_ms", "seed", "flows")

#: The placeholder of the sender under test in a command or a scenario.
_PLACE = "SCHEME"


def listed(suites: Sequence[Suite]) -> Iterator[str]:
    """A line for each check of each row."""
    for suite in suites:
        runs = sum(len(row.checks) for row in suite.rows if row.cases)
        total = sum(len(row.checks) for row in suite.rows)
        yield f"{suite.name}: {suite.title}, {total} rows, of which {runs} can be run ({suite.source})"
        for row in suite.rows:
            for check in row.checks:
                yield f"  {row.id_of(check):36} {row.kind:14} {', '.join(row.controllers):8} {_state(row)}"


def _state(row: Row) -> str:
    if row.needs:
        return f"cannot be run: needs {row.needs}"
    if row.unit_test:
        return f"asserted by the unit test {row.unit_test}"
    return "runs" + (", with other senders for comparison" if row.compares else "")


def explained(suites: Sequence[Suite], name: str) -> Iterator[str]:
    """The description of a row.

    Raises:
        FieldError: There is no row of that name.
    """
    rows = {identity: (suite, row) for suite in suites for row in suite.rows for identity in row.ids()}
    if name not in rows:
        raise FieldError("explain", f"there is no row `{name}`{near_or_all(name, rows)}")
    yield from _of(*rows[name])


def _of(suite: Suite, row: Row) -> Iterator[str]:
    yield f"{row.id}: {row.about}"
    yield f"source: {row.source or suite.source}" + (f" ({suite.source})" if row.source else "")
    yield f"kind: {row.kind} ({KINDS[row.kind]})"
    whom = "every sender" if ANY in row.controllers else ", ".join(row.controllers)
    yield f"for: {whom}" + ("; with other senders for comparison" if row.compares else "")
    yield f"runs: the worst of {row.seeds} seeds"
    if row.when is not None:
        later = f", of those from {row.when.from_s:g} s on" if row.when.from_s else ""
        yield f"times: count from the moment at which the sender goes into {row.when.state} first{later}"
    for check in row.checks:
        yield f"asked: {_asked(row, check)}"
    if row.note:
        yield f"note: {row.note}"
    if row.deviation:
        yield f"deviation from the source: {row.deviation}"
    if suite.differences:
        yield f"differences: {suite.differences}"
    if not row.cases:
        yield _state(row)
        return
    if len(row.cases) > 1:
        yield f"{len(row.cases)} scenarios, of which the worst counts; the first:"
    yield from _runnable(row)


def _asked(row: Row, check: Check) -> str:
    measure = MEASURES.get(check.measure)
    about = check.measure.replace("_", " ") if measure is None else measure.about
    unit = "" if measure is None or row.divides(check) else measure.unit
    options = "".join(f", {name} {value:g}" for name, value in check.options.items())
    threshold = f": {check.told(unit)}" if check.wanted else ""
    return f"{row.id_of(check)}: {about}{options}{threshold}"


def _runnable(row: Row) -> Iterator[str]:
    """The first scenario as a command, or as JSON for the simulator; and its baseline."""
    case, check = row.cases[0], row.checks[0]
    for title, scenario in (("run", case.scenario), ("compared with", case.baseline)):
        if scenario is None:
            continue
        whole = scenario_of(scenario, row, check, _PLACE, 1)
        command = _command(whole)
        if command is not None:
            yield f"{title}: {command}"
            continue
        said = {key: value for key, value in whole.items() if value != DEFAULTS.get(key) or key in ("trace", "flows")}
        said["flows"] = [{key: value for key, value in flow.items() if value is not None} for flow in whole["flows"]]
        yield f"{title}: {json.dumps(said)}"


def _command(scenario: Mapping[str, Any]) -> str | None:
    """The scenario as a `verus compare` command; None if no command can express it."""
    flows = scenario["flows"]
    kinds = {flow.get("traffic") for flow in flows}
    is_plain = all(not (flow.keys() - {"scheme", "traffic"}) for flow in flows) and len(kinds) == 1
    others = [key for key in scenario if key not in _SHOWN and key not in _KEPT and scenario[key] != DEFAULTS.get(key)]
    if not is_plain or others:
        return None
    words = ["verus", "compare"]
    schemes = [flow["scheme"] for flow in flows]
    words += ["--scheme", *schemes] if len(schemes) == 1 else ["--mix", _mix(schemes)]
    for key in _SHOWN:
        if scenario[key] != DEFAULTS[key] or key in ("trace", "queue"):  # type: ignore[literal-required]
            words += [flag_of(key), f"{scenario[key]:g}" if isinstance(scenario[key], float) else str(scenario[key])]
    traffic = next(iter(kinds))
    if traffic is not None:
        words += ["--traffic", traffic]
    return shlex.join(words)


def _mix(schemes: Sequence[str]) -> str:
    counted = {scheme: schemes.count(scheme) for scheme in schemes}
    return "+".join(scheme if count == 1 else f"{scheme}*{count}" for scheme, count in counted.items())
