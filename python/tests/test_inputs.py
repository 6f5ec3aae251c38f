"""Every file that a run reads is an input, which clusters get too.

If an input changes, the run is repeated, or refused by `--from`.

The fields come from the schema's mark of names, so that a new one is tested as soon as it exists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from verus import _verus
from verus.errors import flag_of
from verus.lab import cluster, inputs, store
from verus.lab.scenario import SCHEMA, Contestant, Run, make_run
from verus.lab.store import Keys

Command = Callable[..., Any]


def lines(*values: object) -> str:
    return "".join(f"{value}\n" for value in values)


def opportunities(every_ms: int) -> str:
    return lines(*range(1, 900, every_ms))


def trains(base_ms: int) -> str:
    return lines(*(f"{time} {base_ms} 0 1 3" for time in range(0, 900, 100)))


CLASS = """
from verus import Controller

class Mine(Controller):
    window_bytes = {packets} * 1500

    def on_feedback(self, feedback) -> None: ...
    def on_timeout(self, timeout) -> None: ...
"""

READS = """
from pathlib import Path
from verus import Controller

class Reads(Controller):
    def __init__(self, *, weights: str) -> None:
        self.window_bytes = 1500 * int(Path(weights).read_text())

    def on_feedback(self, feedback) -> None: ...
    def on_timeout(self, timeout) -> None: ...
"""

IMPORTS = """
from verus import Controller
from beside import PACKETS
import helping.numbers

class Imports(Controller):
    window_bytes = 1500 * (PACKETS + helping.numbers.MORE)

    def on_feedback(self, feedback) -> None: ...
    def on_timeout(self, timeout) -> None: ...
"""

LIGHT = {"light_trace": "light", "packet_bytes": 1400}

#: Other fields that a field needs, and two contents of its file.
SAMPLES: Mapping[str, tuple[Mapping[str, Any], str, str]] = {
    "channel": ({}, opportunities(3), opportunities(5)),
    "delay_series": ({}, lines(*[20] * 100), lines(*[40] * 100)),
    "loss_series": ({}, lines(*[0] * 50, *[0.5] * 50), lines(*[0.5] * 50, *[0] * 50)),
    "light_trace": ({"packet_bytes": 1400}, trains(20), trains(30)),
    "ack_light_trace": ({"ack": "rate:5"}, trains(20), trains(30)),
    "size_offsets": (LIGHT, *(lines(*(f"{size} {ms}" for size in range(100, 1500, 100))) for ms in (1, 3))),
    "ack_size_offsets": (
        {"ack_light_trace": "light", "ack": "rate:5"},
        *(lines(*(f"{size} {ms}" for size in range(100, 1500, 100))) for ms in (1, 3)),
    ),
}

#: How a scheme may name a file, and two contents of it; models are trained.
SCHEMES = {
    "FILE:Mine": (CLASS.format(packets=2), CLASS.format(packets=9)),
    "reads.py:Reads:weights=FILE": ("2\n", "9\n"),
    "imports.py:Imports": ("PACKETS = 2\n", "PACKETS = 9\n"),
    "model:file=FILE": ("", ""),
}


def named(kind: str) -> Iterator[str]:
    """The fields of a scenario or a part of it that name something of a kind."""
    for rule in (SCHEMA, *SCHEMA["$defs"].values()):
        yield from (name for name, field in rule["properties"].items() if field.get("x-names") == kind)


CASES = [
    *((field, text) for field in named("channel") for text in ("FILE", "FILE[0:0.3]+FILE+city-driving-3g-up@1[0:0.1]")),
    *((field, "FILE") for field in named("file")),
    *((field, text) for field in named("scheme") for text in SCHEMES),
]


def test_the_schema_has_fields_of_every_kind() -> None:
    assert {"trace", "second_trace", "ack"} <= set(named("channel"))
    assert {"delay_series", "light_trace", "loss_series", "size_offsets"} <= set(named("file"))
    assert set(named("scheme")) == {"scheme"}


class Tried:
    """A run in this folder, one of whose fields names a file."""

    def __init__(self, verus: Command, field: str, text: str) -> None:
        self.field = field
        names = {"FILE:Mine": "a.py", "imports.py:Imports": "beside.py"}
        name = names.get(text, "a b,c" if field in named("file") else "a-file")
        self.text = text.replace("FILE", name)
        self.file = Path(name)
        Path("light").write_text(trains(25))
        Path("reads.py").write_text(READS)
        Path("imports.py").write_text(IMPORTS)
        Path("helping").mkdir()
        Path("helping/__init__.py").write_text("from . import numbers\n")
        Path("helping/numbers.py").write_text("MORE = 1\n")
        if field == "scheme":
            self.beside: Mapping[str, Any] = {}
            self.contents: tuple[str | bytes, ...] = SCHEMES[text]
            if text.startswith("model"):
                for seed in (1, 2):
                    assert verus("train", f"{seed}.model", "--duration", "5", "--seed", seed).code == 0
                self.contents = tuple(Path(f"{seed}.model").read_bytes() for seed in (1, 2))
        else:
            kind = "channel" if field in named("channel") else field
            assert kind in SAMPLES, f"a new field `{field}`: say two contents of its file"
            self.beside, *rest = SAMPLES[kind]
            self.contents = tuple(rest)
        self.write(0)

    def write(self, which: int, path: Path | None = None) -> None:
        content = self.contents[which]
        (path or self.file).write_bytes(content if isinstance(content, bytes) else content.encode())

    def fields(self) -> dict[str, Any]:
        named_file = {} if self.field == "scheme" else {self.field: self.text}
        return {"trace": "rate:5", "queue": "infinite", "duration_s": 1.0, **self.beside, **named_file}

    def scheme(self) -> str:
        return self.text if self.field == "scheme" else "cubic"

    def run(self, text: str | None = None) -> Run:
        whole = {**self.fields(), "series": False}
        if self.field != "scheme":
            whole[self.field] = text or self.text
        scheme = text if text and self.field == "scheme" else self.scheme()
        return make_run(**whole, contestant=Contestant.from_scheme(scheme))

    def flags(self) -> list[object]:
        return [word for name, value in self.fields().items() for word in (flag_of(name), value)]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}={case[1]}")
def tried(request: pytest.FixtureRequest, verus: Command) -> Tried:
    return Tried(verus, *request.param)


def test_a_run_is_known_by_what_its_file_has(tried: Tried) -> None:
    run = tried.run()
    before = Keys("one").of(run)
    assert Keys("one").of(run) == before
    if str(tried.file) in tried.text:
        other = tried.file.with_name(f"other{tried.file.suffix}")
        tried.write(0, other)
        assert Keys("one").of(tried.run(tried.text.replace(str(tried.file), str(other)))) == before
    tried.write(1)
    assert Keys("one").of(run) != before


def test_a_changed_file_is_not_run_as_the_same(tried: Tried, verus: Command) -> None:
    ran = verus("compare", "--scheme", tried.scheme(), *tried.flags(), "--out", "one", "--quiet")
    assert ran.code == 0, ran.err
    assert verus("compare", "--from", "one", "--json").code == 0
    tried.write(1)
    ran = verus("compare", "--from", "one", "--json")
    assert (ran.code, ran.out) == (2, "")
    assert "is not what it was: its SHA-256 is" in ran.err
    assert f"`{tried.file}`" in ran.err or "`imports.py`" in ran.err


def test_a_study_runs_again_what_read_a_changed_file(tried: Tried, verus: Command) -> None:
    settings = {**tried.fields(), "scheme": tried.scheme()}
    Path("s.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    runs = Path("verus-results/s/runs")
    for which, kept in [(0, 1), (0, 1), (1, 2), (0, 2)]:
        tried.write(which)
        ran = verus("sweep", "s.toml")
        assert ran.code == 0, ran.err
        assert len([*runs.rglob("*.run")]) == kept


def test_a_worker_needs_none_of_the_files(tried: Tried, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tried.run()
    (local,) = _verus.simulate_many([run.to_json()], 1, None, columns=False)
    texts, files = cluster._packed([run], inputs.Digests())
    contents = [path.read_bytes() for path in files.values()]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (packed,) = cluster._work(texts, store.engine(), None, [*files], *contents)
    assert isinstance(packed, bytes), packed
    remote = store.unpack(packed)
    assert remote["metrics"] == local["metrics"]
    with pytest.raises(RuntimeError, match="a worker has another build of the simulator"):
        cluster._work(texts, "another", None, [*files], *contents)


def test_what_is_no_file_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ideal", "same", "9", "mine.py"):
        Path(name).write_text(CLASS.format(packets=2))
    run = make_run(
        trace="rate:5", queue="infinite", ack="same", contestant=Contestant.from_scheme("cubic"), duration_s=1.0
    )
    assert inputs.files_of([run.scenario]) == {}
    (flow,) = run.scenario["flows"]
    scenario = {**run.scenario, "flows": [{**flow, "scheme": "mine.py:Mine:window=9"}]}
    assert inputs.files_of([scenario]) == {"mine.py": Path("mine.py")}


def test_what_a_class_imports_is_found_as_python_finds_it(tmp_path: Path) -> None:
    for name, text in {
        "mine.py": "import os, a.b.c\nfrom d import e, f\nfrom d.g import *\nimport mine\n",
        "a/__init__.py": "",
        "a/b/__init__.py": "from .. import h\nfrom ..i import j\nfrom . import c\n",
        "a/b/c.py": "this is no Python",
        "a/h.py": "",
        "a/i.py": "def late():\n    import k\n",
        "a/unused.py": "",
        "d/e.py": "",
        "d/g.py": "",
        "k.py": "",
        "other.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    modules = ["a/__init__.py", "a/b/__init__.py", "a/b/c.py", "a/h.py", "a/i.py", "d/e.py", "d/g.py", "k.py"]
    assert [*inputs.imported(tmp_path / "mine.py")] == modules
    assert inputs.imported(tmp_path / "k.py") == {}
