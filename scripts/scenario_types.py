"""Writes `python/verus/schema.py`: the types of a scenario, from the schema that Rust states.

.venv/bin/python scripts/scenario_types.py     # after a change of crates/sim/src/scenario.rs
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "python" / "verus" / "schema.py"
#: What Rust calls a flow of a scenario has a plainer name here.
NAMES = {"FlowSpec": "Flow"}
PLAIN = {"string": "str", "number": "float", "integer": "int", "boolean": "bool", "null": "None"}

HEAD = '''"""The types of a scenario, written by `scripts/scenario_types.py` from the schema that Rust states.

Ranges and defaults are in `verus.scenario.SCHEMA`.
"""

from __future__ import annotations

from typing import TypedDict
'''


def type_of(rule: Mapping[str, Any]) -> str:
    """A rule of the schema as a Python type."""
    if "$ref" in rule:
        name = rule["$ref"].rpartition("/")[2]
        return NAMES.get(name, name)
    kinds = rule["type"] if isinstance(rule["type"], list) else [rule["type"]]
    return " | ".join(f"list[{type_of(rule['items'])}]" if kind == "array" else PLAIN[kind] for kind in kinds)


def class_of(name: str, rule: Mapping[str, Any]) -> str:
    """A structure as a typed dictionary."""
    summary = rule["description"].split("\n\n")[0].replace("\n", " ").replace("`", "``")
    lines = [f"class {NAMES.get(name, name)}(TypedDict, total=False):", f'    """{summary}"""', ""]
    for field, what in rule["properties"].items():
        meaning = " ".join(what["description"].split())
        lines += textwrap.wrap(meaning, 110, initial_indent="    #: ", subsequent_indent="    #: ")
        lines.append(f"    {field}: {type_of(what)}")
    return "\n".join(lines)


def written(schema: Mapping[str, Any]) -> str:
    """The whole module."""
    definitions = [class_of(name, rule) for name, rule in schema["$defs"].items()]
    return "\n\n\n".join([HEAD.rstrip(), *definitions, class_of("Scenario", schema)]) + "\n"


if __name__ == "__main__":
    from verus import _verus

    TARGET.write_text(written(json.loads(_verus.scenario_schema())), encoding="utf-8")
