"""Writes `python/verus/lab/schema.py`: the types of a scenario, from Rust's schema.

.venv/bin/python scripts/scenario_types.py     # after a change of crates/sim/src/scenario.rs
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "python" / "verus" / "lab" / "schema.py"
#: Python's names of Rust's types.
NAMES = {"FlowSpec": "Flow"}
PLAIN = {"string": "str", "number": "float", "integer": "int", "boolean": "bool", "null": "None"}

#: Fields that Python has as settings of a whole run.
OF_A_RUN = ("packet_bytes", "handshake", "ack_every", "quick_acks", "duration_s", "seed", "bin_ms", "max_events")
#: Fields that are no setting: Python has several of them, or computes them. All others belong to
#: the path.
NO_SETTINGS = ("trace", "queue", "flows", "ack_bytes", "records", "series", "epochs")

HEAD = '''"""A scenario's types and settings, written by `scripts/scenario_types.py` from Rust's schema.

Functions that take a path or a run have their settings from here: as keywords (`…Options`), and as values with
defaults (`…Settings`). Ranges are in `verus.lab.scenario.SCHEMA`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict
'''


def type_of(rule: Mapping[str, Any]) -> str:
    """A rule of the schema as a Python type."""
    if "$ref" in rule:
        name = rule["$ref"].rpartition("/")[2]
        return NAMES.get(name, name)
    kinds = rule["type"] if isinstance(rule["type"], list) else [rule["type"]]
    return " | ".join(f"Sequence[{type_of(rule['items'])}]" if kind == "array" else PLAIN[kind] for kind in kinds)


def class_of(name: str, summary: str, fields: Mapping[str, Any], bases: Sequence[str] = ("TypedDict",)) -> str:
    """Fields as a typed dictionary."""
    lines = [f"class {name}({', '.join(bases)}, total=False):", f'    """{summary}"""', ""]
    for field, what in fields.items():
        meaning = " ".join(what["description"].split())
        lines += textwrap.wrap(meaning, 110, initial_indent="    #: ", subsequent_indent="    #: ")
        lines.append(f"    {field}: {type_of(what)}")
    return "\n".join(lines)


def settings_of(name: str, summary: str, fields: Mapping[str, Any]) -> str:
    """Fields as values, each with its default."""
    lines = ["@dataclass(frozen=True, kw_only=True)", f"class {name}:", f'    """{summary}"""', ""]
    for field, what in fields.items():
        default = "()" if what["default"] == [] else json.dumps(what["default"])
        default = {"null": "None", "true": "True", "false": "False"}.get(default, default)
        lines.append(f"    {field}: {type_of(what)} = {default}")
    return "\n".join(lines)


def summary_of(rule: Mapping[str, Any]) -> str:
    """The first paragraph of a structure's description."""
    return rule["description"].split("\n\n")[0].replace("\n", " ").replace("`", "``")


def written(schema: Mapping[str, Any]) -> str:
    """The whole module."""
    properties = schema["properties"]
    path = {name: what for name, what in properties.items() if name not in (*OF_A_RUN, *NO_SETTINGS)}
    run = {name: properties[name] for name in OF_A_RUN}
    rest = {name: properties[name] for name in NO_SETTINGS}
    parts = [
        HEAD.rstrip(),
        *(
            class_of(NAMES.get(name, name), summary_of(rule), rule["properties"])
            for name, rule in schema["$defs"].items()
        ),
        class_of("PathOptions", "The fields of a path beside its channel and queue.", path),
        class_of("RunOptions", "The fields of a whole run.", run),
        class_of("Scenario", summary_of(schema), rest, ("PathOptions", "RunOptions")),
        settings_of(
            "PathSettings", "The fields of a path beside its channel and queue: `PathOptions`, with defaults.", path
        ),
        settings_of("RunSettings", "The fields of a whole run: `RunOptions`, with defaults.", run),
    ]
    return "\n\n\n".join(parts) + "\n"


if __name__ == "__main__":
    from verus import _verus

    TARGET.write_text(written(_verus.scenario_schema()), encoding="utf-8")
