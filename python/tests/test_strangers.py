"""Files and folders of strangers: looking at them runs nothing, writes nowhere else, takes bounded memory and time."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import lzma
import os
import resource
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verus import papers
from verus.commands.play import server
from verus.errors import FieldError
from verus.lab import cluster, store
from verus.lab.scenario import Contestant, make_run

Command = Callable[..., Any]

#: Modules that our own programs import: a file of that name in the working folder is not one of them.
MODULES = ("json", "numpy", "pyarrow", "vl_convert", "verus", "multiprocessing")


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a stranger's code creates if it runs: see `evil`."""
    path = tmp_path / "canary"
    monkeypatch.setenv("CANARY", str(path))
    return path


def evil(path: Path) -> Path:
    """A stranger's Python, which says that it was run."""
    path.write_text("import os\nopen(os.environ['CANARY'], 'a').write('ran')\nraise SystemExit(3)\n")
    return path


@pytest.fixture
def saved(verus: Command, tmp_path: Path) -> Path:
    """A folder of results, as a stranger may have sent it."""
    folder = tmp_path / "saved"
    assert verus("compare", "--trace", "rate:5", "--scheme", "cubic", "--duration", 2, "--out", folder).code == 0
    return folder


@pytest.fixture
def study(verus: Command, tmp_path: Path) -> Path:
    """The same of a study."""
    study_path = tmp_path / "study.toml"
    study_path.write_text('trace = "rate:5"\nscheme = ["cubic", "vegas"]\nduration_s = 1\nseed = [1, 2]\n')
    folder = tmp_path / "studied"
    assert verus("sweep", study_path, "--out", folder).code == 0
    return folder


@pytest.fixture
def checked(verus: Command, tmp_path: Path) -> Path:
    """The same of `verus check`."""
    folder = tmp_path / "checked"
    verus("check", "cubic", "--row", "c4/c4_alone", "--out", folder)
    assert (folder / "report.html").exists()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that symbolic links lead to."""
    folder = tmp_path / "home"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "thesis.tex").write_text("precious")
    (folder / ".bashrc").write_text("precious")
    return folder


def untouched(outside: Path) -> bool:
    files = {str(path.relative_to(outside)): path.read_text() for path in outside.rglob("*") if path.is_file()}
    return files == {".bashrc": "precious", "docs/thesis.tex": "precious"}


@pytest.mark.parametrize("kind", ["saved", "study", "checked"])
def test_a_page_replaces_a_link_and_leaves_alone_what_it_leads_to(
    kind: str, outside: Path, verus: Command, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(kind)
    page = folder / "report.html"
    page.unlink(missing_ok=True)
    page.symlink_to(outside / ".bashrc")
    assert verus("report", folder).code == 0
    assert untouched(outside)
    assert not page.is_symlink()
    for drawn in [*folder.glob("figures/*")]:
        drawn.unlink()
        drawn.symlink_to(outside / ".bashrc")
    assert verus("report", folder).code == 0
    assert untouched(outside)


@pytest.mark.parametrize("kind", ["saved", "study"])
def test_figures_are_not_drawn_into_a_folder_that_is_a_link(
    kind: str, outside: Path, verus: Command, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(kind)
    shutil.rmtree(folder / "figures", ignore_errors=True)
    (folder / "figures").symlink_to(outside / "docs")
    ran = verus("report", folder)
    assert ran.code == 2
    assert f"`{folder / 'figures'}` is a link" in ran.err
    assert untouched(outside)


def test_a_page_is_not_written_to_a_device(saved: Path, verus: Command, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (saved / "report.html").symlink_to(tmp_path / "pipe")
    assert verus("report", saved).code == 0  # a writer of the pipe would wait for its reader
    assert (saved / "report.html").read_text().endswith("</html>\n")


def test_force_removes_nothing_behind_a_link(saved: Path, outside: Path, verus: Command) -> None:
    (saved / "old").symlink_to(outside / "docs")
    (saved / "series.parquet").unlink()
    (saved / "series.parquet").symlink_to(outside / ".bashrc")
    record = json.loads((saved / "run.json").read_text())
    record["files"] = ["old/thesis.tex", "series.parquet", "../home/.bashrc", str(outside / ".bashrc"), 7, "a\0b"]
    (saved / "run.json").write_text(json.dumps(record))
    again = ("compare", "--trace", "rate:5", "--scheme", "cubic", "--duration", 1, "--force", "--out", saved)
    assert verus(*again).code == 0
    assert untouched(outside)
    (saved / "figures").symlink_to(outside / "docs")
    before = (saved / "results.parquet").read_bytes()
    ran = verus(*again, "--report")
    assert ran.code == 2
    assert "is a link" in ran.err
    assert untouched(outside)
    assert (saved / "results.parquet").read_bytes() == before  # refused before anything was replaced


def test_a_study_is_not_continued_in_a_folder_behind_a_link(study: Path, outside: Path, verus: Command) -> None:
    shutil.rmtree(study / "runs")
    (study / "runs").symlink_to(outside / "docs")
    ran = verus("sweep", study.parent / "study.toml", "--out", study)
    assert ran.code == 2
    assert "is a link" in ran.err
    assert untouched(outside)


def test_outcomes_are_not_written_through_links_in_a_folder_of_runs(study: Path, outside: Path, verus: Command) -> None:
    outcomes = [*(study / "runs").rglob("*.run")]
    behind = outside / "behind"
    shutil.move(outcomes[0].parent, behind)
    (behind / outcomes[0].name).unlink()
    before = sorted(behind.iterdir())
    outcomes[0].parent.symlink_to(behind)
    ran = verus("sweep", study.parent / "study.toml", "--out", study)
    assert (ran.code, "is a link" in ran.err) == (2, True), ran.err
    assert sorted(behind.iterdir()) == before
    # A link that comes when the work has begun.
    with pytest.raises(FieldError, match="is a link"):
        store.Store(study / "runs").write(outcomes[0].parent.name + outcomes[0].stem, {"metrics": {}})
    assert sorted(behind.iterdir()) == before


@pytest.mark.parametrize("what", ["the file", "the folder that it is in"])
@pytest.mark.parametrize("damage", ["folder", "full folder", "link to itself", "link to nothing", "file"])
def test_what_stands_in_the_place_of_an_outcome_counts_as_missing_and_gives_way(
    damage: str, what: str, study: Path, verus: Command
) -> None:
    whole = (study / "results.parquet").read_bytes()
    place = next((study / "runs").rglob("*.run"))
    place = place if what == "the file" else place.parent
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    if damage in ("folder", "full folder"):
        place.mkdir()
        if damage == "full folder":
            (place / "inner").write_text("text")
    elif damage == "file":
        place.write_text("text")
    else:
        place.symlink_to(place.name if damage == "link to itself" else "nothing")
    status = verus("sweep", "status", study.parent / "study.toml", "--out", study)
    assert status.code == 0, status.err
    for command in (("sweep", study.parent / "study.toml", "--out", study), ("report", study)):
        ran = verus(*command)
        assert ran.code == 0, ran.err
    assert (study / "results.parquet").read_bytes() == whole


def test_a_comparison_is_not_continued_in_a_folder_behind_a_link(outside: Path, verus: Command, tmp_path: Path) -> None:
    words = ("compare", "--trace", "rate:5", "--scheme", "cubic", "--duration", "1", "--out", tmp_path / "out")
    (tmp_path / "out.unfinished").symlink_to(outside)
    ran = verus(*words)
    assert (ran.code, "is a link" in ran.err) == (2, True), ran.err
    assert untouched(outside)
    (tmp_path / "out.unfinished").unlink()
    assert verus(*words).code == 0


def test_looking_at_a_study_runs_none_of_its_files(canary: Path, tmp_path: Path, verus: Command) -> None:
    evil(tmp_path / "evil.py")
    study_path = tmp_path / "study.toml"
    study_path.write_text(
        'trace = "rate:5"\nscheme = ["cubic", "evil.py:Evil", "evil.py:Evil:gain=2"]\nduration_s = 1\n'
    )
    ran = verus("sweep", "status", study_path)
    assert (ran.code, canary.exists()) == (0, False)
    assert "0 of 3 runs are done" in ran.out


def test_status_of_a_study_of_ones_own_controllers_finds_what_was_run(tmp_path: Path, verus: Command) -> None:
    (tmp_path / "mine.py").write_text(
        textwrap.dedent("""
        import verus
        class Mine(verus.Controller):
            def on_start(self, now_s, packet_bytes): self.window_bytes = 10 * packet_bytes
            def on_feedback(self, feedback): pass
            def on_timeout(self, timeout): pass
        """)
    )
    study_path = tmp_path / "study.toml"
    study_path.write_text('trace = "rate:5"\nscheme = ["cubic", "mine.py:Mine"]\nduration_s = 1\n')
    assert verus("sweep", study_path).code == 0
    assert "2 of 2 runs are done" in verus("sweep", "status", study_path).out


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "evil.py"),
        ("analyze", "a", "evil.py:Evil"),
        ("sweep", "status", "study.toml", "evil.py"),
        ("play", "evil.py"),
    ],
)
def test_a_hint_at_what_was_meant_runs_nothing(
    words: tuple[str, ...], canary: Path, tmp_path: Path, verus: Command
) -> None:
    evil(tmp_path / "evil.py")
    ran = verus(*words)
    assert (ran.code, canary.exists()) == (2, False)
    assert "did you mean `--scheme evil.py:" in ran.err


@pytest.mark.parametrize("name", MODULES)
def test_modules_of_the_working_folder_are_not_ours(name: str, canary: Path, saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "unpacked"
    shutil.copytree(saved, folder)
    evil(folder / f"{name}.py")
    command = Path(sys.executable).with_name("verus")
    ran = subprocess.run([command, "report", "."], cwd=folder, capture_output=True, text=True, check=False)
    assert (ran.returncode, canary.exists()) == (0, False), ran.stderr
    assert (folder / "figures").is_dir()


def test_workers_on_this_machine_load_nothing_of_the_working_folder(
    canary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in MODULES:
        evil(tmp_path / f"{name}.py")
    monkeypatch.chdir(tmp_path)
    run = make_run(trace="rate:5", queue="infinite", contestant=Contestant.from_scheme("cubic"), duration_s=1.0)
    ((index, _),) = cluster.as_ended([run.without_series()], address="local:1")
    assert (index, canary.exists()) == (0, False)


def answer(host: str, port: int, request: bytes, *, tls: bool) -> bytes:
    """The answer to a request without our certificate; empty if the connection is closed."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1) as plain:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(plain) if tls else plain as connection:
            connection.sendall(request)
            return connection.recv(100)
    return b""


def test_no_other_user_reaches_workers_on_this_machine() -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'verus-cc[cluster]'")
    psutil = pytest.importorskip("psutil")
    run = make_run(trace="rate:5", queue="infinite", contestant=Contestant.from_scheme("cubic"), duration_s=1.0)
    working = cluster.as_ended([run.without_series()] * 4, address="local:1")
    next(working)
    this_process = psutil.Process()
    listening = [
        (process.pid, *opened.laddr)
        for process in (this_process, *this_process.children(recursive=True))
        for opened in process.net_connections("tcp")
        if opened.status == psutil.CONN_LISTEN
    ]
    assert len({pid for pid, *_ in listening}) >= 2, "the scheduler and a worker listen"
    for _, host, port in listening:
        for tls in (False, True):
            assert answer(host, port, b"", tls=tls) == b"", f"{port} speaks to anybody"
        for page in (
            "info/main/workers.html",
            "health",
            "metrics",
            "json/identity.json",
            "sysmon",
            "api/v1/get_workers",
        ):
            reply = answer(host, port, f"GET /{page} HTTP/1.0\r\n\r\n".encode(), tls=False)
            assert reply == b"" or reply.startswith(b"HTTP/1.1 404 "), f"{port} serves {page}: {reply!r}"
    assert len([*working]) == 3


def most_memory(code: str, *arguments: object) -> tuple[str, int]:
    """The output of code in a separate Python, and its peak memory, in MB."""
    expression = "next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))"
    words = [sys.executable, "-c", f"{code}\nprint({expression}.split()[1])", *map(str, arguments)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    *said, peak = ran.stdout.splitlines()
    return "\n".join(said), int(peak) // 1024


READ = """
import sys
from pathlib import Path
from verus.lab.results import Results
from verus.lab.sweep import Plan
try:
    (Plan if sys.argv[1].endswith(".gz") else Results).read(Path(sys.argv[1]))
except ValueError as error:
    print(error)
"""


ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


@ON_LINUX
def test_a_small_table_cannot_become_a_large_one(saved: Path) -> None:
    zeros = pa.table({"a": pa.array([0.0]).take(pa.array([0] * 10_000_000, pa.int32()))})
    with pq.ParquetWriter(saved / "series.parquet", zeros.schema, compression="zstd") as writer:
        for _ in range(20):
            writer.write_table(zeros)
    assert (saved / "series.parquet").stat().st_size < 2_000_000
    said, peak = most_memory(READ, saved)
    assert "its file is too small" in said
    assert peak < 500


@ON_LINUX
def test_a_small_table_of_long_texts_cannot_either(saved: Path) -> None:
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), pa.array(["x" * 1_000_000]))
    schema = pa.schema([("a", pa.dictionary(pa.int32(), pa.string()))])
    pq.write_table(pa.table({"a": text}, schema=schema), saved / "series.parquet", store_schema=False)
    assert (saved / "series.parquet").stat().st_size < 1_100_000
    said, peak = most_memory(READ, saved)
    assert "its file is too small" in said
    assert peak < 1500  # whole, it would take three GB


@ON_LINUX
def test_a_small_plan_cannot_become_a_large_one(study: Path) -> None:
    plan = study / "plan.json.gz"
    whole = json.loads(gzip.decompress(plan.read_bytes()))
    plan.write_bytes(gzip.compress(json.dumps(whole).encode() + b" " * 300_000_000, compresslevel=1))
    said, peak = most_memory(READ, plan)
    assert "expands to more than" in said
    assert peak < 400


def npy(claimed: int, there: int) -> bytes:
    """An array whose header claims so many bytes, and so many zeros."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({claimed},), }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(there)


@ON_LINUX
@pytest.mark.parametrize(
    ("claimed", "there", "places"), [(1 << 29, 1 << 29, 1), (1 << 40, 10, 1), (1 << 26, 1 << 26, 40)]
)
def test_a_small_stored_run_cannot_become_a_large_one(claimed: int, there: int, places: int, tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps([{"\0array": 0}] * places).encode() + b"\n" + npy(claimed, there))
    key = "ab" + "0" * 62
    path = store.Store(tmp_path).path(key)
    path.parent.mkdir()
    path.write_bytes(hashlib.sha256(packed).digest() + packed)
    read = "import pathlib, sys\nfrom verus.lab.store import Store\nStore(pathlib.Path(sys.argv[1])).read(sys.argv[2])"
    _, peak = most_memory(read, tmp_path, key)
    assert peak < 500


def test_a_pipe_in_a_store_counts_as_missing(tmp_path: Path) -> None:
    runs = store.Store(tmp_path)
    key = "ab" + "0" * 62
    runs.path(key).parent.mkdir()
    os.mkfifo(runs.path(key))
    assert runs.read(key) is None


@pytest.mark.parametrize("name", ["run.json", "results.parquet"])
def test_a_pipe_in_a_folder_is_refused_at_once(name: str, saved: Path, verus: Command) -> None:
    (saved / name).unlink()
    os.mkfifo(saved / name)
    ran = verus("report", saved)
    assert ran.code == 2
    assert f"`{saved / name}`: is not a file" in ran.err


PLACES = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a hole": lambda path: (path.touch(), os.truncate(path, 1 << 41)),
}


def put(what: str, path: Path) -> None:
    path.unlink(missing_ok=True)
    PLACES[what](path)


def run_alone(*words: object, cwd: Path, most_gib: float = 6) -> subprocess.CompletedProcess[str]:
    """A command in a separate process, which must end soon, within `most_gib` of address space."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (int(most_gib * (1 << 30)),) * 2)

    command = [sys.executable, "-m", "verus", *map(str, words)]
    return subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=limit,
        stdin=subprocess.DEVNULL,
    )


@ON_LINUX
@pytest.mark.parametrize("what", PLACES)
@pytest.mark.parametrize("name", ["plan.json.gz", "results.parquet", "run"])
def test_what_is_no_file_of_a_study_counts_as_missing(name: str, what: str, study: Path) -> None:
    path = next(study.rglob("*.run")) if name == "run" else study / name
    before = path.read_bytes()
    put(what, path)
    ran = run_alone("sweep", study.parent / "study.toml", "--out", study, "-q", cwd=study.parent)
    assert ran.returncode == 0, ran.stderr
    assert path.read_bytes() == before
    assert not path.is_symlink()


@ON_LINUX
@pytest.mark.parametrize("what", PLACES)
@pytest.mark.parametrize("name", ["t.down", "delays", "c.py", "helper.py", "study.toml"])
def test_looking_at_a_study_waits_for_nothing_and_reads_no_more_than_a_file(
    name: str, what: str, tmp_path: Path
) -> None:
    study_text = 'trace="t.down"\nscheme=["./c.py:C"]\ndelay_series="delays"\nduration_s=1\n'
    contents = {
        "study.toml": study_text,
        "t.down": "1\n2\n",
        "delays": "20\n",
        "c.py": "import helper\n",
        "helper.py": "",
    }
    for each, text in contents.items():
        (tmp_path / each).write_text(text)
    put(what, tmp_path / name)
    ran = run_alone("sweep", "status", "study.toml", cwd=tmp_path, most_gib=2)
    is_none = name == "helper.py" and what != "a hole"  # then it is no module
    assert ran.returncode == (0 if is_none else 2)
    assert "Traceback" not in ran.stderr


@ON_LINUX
@pytest.mark.parametrize("what", PLACES)
@pytest.mark.parametrize("words", [("trace", "info"), ("analyze",), ("check", "cubic", "--suite"), ("sweep",)])
def test_what_is_no_file_is_refused_at_once(words: tuple[str, ...], what: str, tmp_path: Path) -> None:
    put(what, tmp_path / "a.toml")
    ran = run_alone(*words, "a.toml", cwd=tmp_path, most_gib=2)
    assert ran.returncode == 2
    assert "a.toml" in ran.stderr


@ON_LINUX
def test_a_large_python_file_takes_little_memory_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text("x=1\n" * 1_000_000)
    (tmp_path / "study.toml").write_text('trace="rate:5"\nscheme=["./c.py:C"]\nduration_s=1\n')
    ran = run_alone("sweep", "status", "study.toml", cwd=tmp_path, most_gib=1.5)
    assert ran.returncode == 0, ran.stderr


@ON_LINUX
def test_a_small_run_needs_little_address_space(tmp_path: Path) -> None:
    words = ("compare", "--trace", "rate:5", "--scheme", "cubic", "--duration", "1", "--out", "o", "-q")
    assert run_alone(*words, cwd=tmp_path, most_gib=3).returncode == 0


@pytest.mark.parametrize("files", [5, None, [[1]], ["a", 1], {"a": 1}])
def test_files_that_a_folder_says_it_has_may_be_anything(files: object, saved: Path, verus: Command) -> None:
    config = json.loads((saved / "run.json").read_text())
    (saved / "run.json").write_text(json.dumps(config | {"files": files}))
    ran = verus("report", saved)
    assert ran.code == 0
    assert "report.html" in json.loads((saved / "run.json").read_text())["files"]


@pytest.mark.parametrize(
    "change",
    [
        {"columns": []},
        {"columns": {"a": "nosuch"}},
        {"columns": {"a": []}},
        {"scenario": None},
        {"scenario": {}},
        {"run": None},
        {"contestant": []},
        {"swept": {"a": {"values": [1]}}},
        {"swept": 5},
        {"name": 5},
        {"engine": None},
        {"keys": 5},
    ],
)
def test_a_plan_of_another_kind_is_refused_in_words(
    change: Mapping[str, object], study: Path, verus: Command, tmp_path: Path
) -> None:
    plan = study / "plan.json.gz"
    whole = json.loads(gzip.decompress(plan.read_bytes()))
    plan.write_bytes(gzip.compress(json.dumps(whole | change).encode()))
    for words in (("report", study), ("sweep", "merge", study, "--out", tmp_path / "merged")):
        ran = verus(*words)
        assert ran.code == 2
        assert "not the plan of a sweep" in ran.err
        assert "Error" not in ran.err


def test_closed_standard_output_costs_no_result(tmp_path: Path) -> None:
    for words in (("compare", "--trace", "rate:5", "--scheme", "cubic", "--duration", "1", "--out", "o"), ("list",)):
        command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "verus", *words]
        ran = subprocess.run(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
        assert "Traceback" not in ran.stderr
    assert (tmp_path / "o" / "run.json").exists()


def test_a_hole_is_no_content(saved: Path, verus: Command) -> None:
    os.truncate(saved / "run.json", 1 << 40)
    ran = verus("report", saved)
    assert ran.code == 2
    assert "at most" in ran.err


@pytest.mark.parametrize("kind", [*papers.NAMES, "record", "shell", "probe"])
def test_a_folder_that_says_another_kind_than_it_holds_is_drawn_or_refused(
    kind: str, saved: Path, verus: Command
) -> None:
    config = json.loads((saved / "run.json").read_text())
    (saved / "run.json").write_text(json.dumps(config | {"kind": kind}))
    ran = verus("report", saved)
    assert ran.code in (0, 2)
    assert ran.err.count("\n") <= 1
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000])
def test_deep_nesting_is_refused(text: str, saved: Path, verus: Command) -> None:
    (saved / "run.json").write_text(text)
    ran = verus("report", saved)
    assert ran.code == 2
    assert "run.json" in ran.err
    (saved / "deep.toml").write_text("a = " + "[" * 50_000)
    for words in (("sweep", "status", saved / "deep.toml"), ("check", "cubic", "--suite", saved / "deep.toml")):
        ran = verus(*words)
        assert ran.code == 2
        assert "deep.toml" in ran.err


def test_a_compressed_log_is_unpacked_nowhere(tmp_path: Path, verus: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))  # there is no such folder to write to
    log = tmp_path / "down.log.xz"
    event = b"5 # 1504\n"
    log.write_bytes(lzma.compress(b"# base timestamp: 5\n" + event * 10_000_000, preset=1))
    assert log.stat().st_size < 100_000
    ran = verus("analyze", log, "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["opportunities"] == 10_000_000
    log.write_bytes(log.read_bytes()[:-50])
    assert "damaged or cut short" in verus("analyze", log).err


@pytest.fixture
def playing() -> Iterator[int]:
    """The port of a playground's server."""
    with server({"index.html": b"page"}, None) as serving:
        ticking = threading.Thread(target=serving.serve_forever)
        ticking.start()
        yield serving.server_port
        serving.shutdown()
        ticking.join()


def test_idle_connections_keep_no_one_out_and_hold_few_threads(playing: int) -> None:
    before = threading.active_count()
    idle = []
    for _ in range(400):
        idle.append(socket.create_connection(("127.0.0.1", playing)))
        idle[-1].sendall(b"GET / HT")
    with urllib.request.urlopen(f"http://127.0.0.1:{playing}/", timeout=20) as answer:
        assert answer.read() == b"page"
    end = time.monotonic() + 60
    while threading.active_count() - before > 70 and time.monotonic() < end:
        time.sleep(0.05)
    assert threading.active_count() - before <= 70
    for one in idle:
        one.close()


def reset(port: int) -> None:
    """A client that asks for much, and resets its connection before it is there."""
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(b"GET /play.wasm HTTP/1.1\r\nHost: a\r\n\r\n" * 3)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.skipif(sys.platform != "linux", reason="threads of another process are counted in /proc")
def test_clients_that_leave_hold_no_threads_and_print_nothing_even_if_nobody_reads_the_terminal() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(1 << 12))
    os.set_blocking(writing, True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).parent / "verus"), "play", "--no-browser", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writing) as playing, contextlib.ExitStack() as end:
        end.callback(playing.kill)
        os.close(writing)
        assert playing.stdout is not None
        assert b"until Ctrl-C" in playing.stdout.readline()
        for _ in range(300):
            reset(port)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
            assert answer.status == 200
        tasks = Path(f"/proc/{playing.pid}/task")
        until = time.monotonic() + 30
        while len([*tasks.iterdir()]) > 2 and time.monotonic() < until:
            time.sleep(0.05)
        assert len([*tasks.iterdir()]) <= 2, "a connection that ended has a thread"
        playing.send_signal(signal.SIGINT)
        assert playing.wait(timeout=20) == 0
        os.set_blocking(reading, False)
        with os.fdopen(reading, "rb") as terminal:
            assert not (terminal.read() or b"").strip(b"\0")
