"""Columns from JSON lines, the form of the measurements of `verus probe`.

A column is a field of a schema; the schema also says what each line must hold. Anything else, such as
a file cut short or edited by hand, is refused with the line where it shows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from verus.errors import shown
from verus.lab import bounded_reading


def read_lines(path: Path, schema: pa.Schema, *, objects: Collection[str] = ()) -> pa.Table:
    """Reads one JSON object a line.

    Args:
        path: The file.
        schema: Its columns. Those that may be null may also be absent. Numbers under other names,
            such as a controller's own quantities, become additional columns.
        objects: Text columns whose values are JSON objects, kept as their text.

    Raises:
        OSError: It cannot be read.
        ValueError: A line does not match the schema; the message names file and line.
    """
    rows: list[dict[str, Any]] = []
    more: dict[str, None] = {}
    with bounded_reading.opened(path, bounded_reading.MOST_LINES) as file:
        for number, line in enumerate(file, start=1):
            try:
                fields = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
                if not isinstance(fields, dict):
                    raise ValueError("not a JSON object")
                row = {name: json.dumps(v, sort_keys=True) if name in objects else v for name, v in fields.items()}
                for name in objects:
                    if not isinstance(fields.get(name), dict):
                        raise ValueError(f"`{name}` must be a JSON object")
                for field in schema:
                    check(field, row.get(field.name), field.name)
                for name in row.keys() - set(schema.names):
                    check(pa.field(name, pa.float64()), row[name], name)
                    more[name] = None
            except (ValueError, RecursionError) as error:
                raise ValueError(f"`{path}`, line {number}: {_one_line(error)}") from error
            rows.append(row)
    whole = pa.schema([*schema, *(pa.field(name, pa.float64()) for name in sorted(more))])
    return pa.Table.from_pylist(rows, schema=whole)


def check(field: pa.Field, value: Any, name: str) -> None:
    """Refuses a value that its column cannot hold.

    Raises:
        ValueError: The message has the given `name`.
    """
    kind = field.type
    if value is None:
        if not field.nullable:
            raise ValueError(f"`{name}` is missing")
    elif pa.types.is_boolean(kind):
        if not isinstance(value, bool):
            raise ValueError(f"`{name}` must be true or false, not {shown(value)}")
    elif pa.types.is_floating(kind):
        if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
            raise ValueError(f"`{name}` must be a number, not {shown(value)}")
    elif pa.types.is_integer(kind):
        maximum = 2 ** (kind.bit_width - 1) - 1
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
            raise ValueError(f"`{name}` must be a whole number from 0 to {maximum}, not {shown(value)}")
    elif pa.types.is_list(kind):
        if not isinstance(value, list):
            raise ValueError(f"`{name}` must be a list, not {shown(value)}")
        for index, entry in enumerate(value):
            check(kind.value_field.with_nullable(False), entry, f"{name}[{index}]")
    elif pa.types.is_struct(kind):
        if not isinstance(value, dict):
            raise ValueError(f"`{name}` must be an object, not {shown(value)}")
        for part in kind:
            check(part, value.get(part.name), f"{name}.{part.name}")
    elif not isinstance(value, str):
        raise ValueError(f"`{name}` must be text, not {shown(value)}")


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def _one_line(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON ({error.msg} at character {error.pos + 1})"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 (byte {error.start + 1})"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
