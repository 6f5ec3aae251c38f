"""Fixtures of the Python tests: the command in this process, recordings, and a browser."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:  # loaded by those who ask for a browser alone
    from playwright.sync_api import Browser, BrowserContext, Page, Request, Route

from verus import _verus, cli, suites

# A shell that runs the tests in the background has its children ignore Ctrl-C, and they theirs;
# tests of Ctrl-C would then wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Set before NumPy loads, as `verus` does for itself: with more threads, small matrices take several times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Tests start hundreds of programs. Each would compile the package anew where the environment forbids to keep it.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


#: Tests of pages as readers see them, which take minutes: `make test-pages`.
PAGES = ("test_printed_commands", "test_own_controller_page")
#: Tests that compute for minutes: `make test-claims`.
CLAIMS = ("test_claims", "test_arena")
#: Tests over public recordings: `make test-recordings`.
RECORDINGS = ("test_on_recordings",)
#: Tests in a guest kernel: `make test-virtual`.
VIRTUAL = ("test_virtual",)

#: Files that take longest, which begin first: each stays on one worker, and for the last one all others would wait.
LONGEST = (
    *(*PAGES, *CLAIMS, *RECORDINGS),
    *("test_strangers", "test_tune", "test_output", "test_report", "test_endpoint", "test_sweep"),
)


def pytest_xdist_auto_num_workers() -> int:
    """Twice as many as processors, for `--numprocesses=logical`: half of their time, workers wait for programs."""
    return 2 * (os.cpu_count() or 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that emulate links `real_time`: they run alone (`make test-clock`).

    Tests that need a browser are marked `pages` (`make test-pages`), and so are those of documents.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "emulator" in fixtures:
            item.add_marker(pytest.mark.real_time)
        if "browser" in fixtures or item.path.stem in PAGES:
            item.add_marker(pytest.mark.pages)
        if item.path.stem in CLAIMS:
            item.add_marker(pytest.mark.claims)
        if item.path.stem in RECORDINGS:
            item.add_marker(pytest.mark.recordings)
        if item.path.stem in VIRTUAL:
            item.add_marker(pytest.mark.virtual)
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


class Watch(threading.Thread):
    """Sleeps beside a test that reads the clock, and notes how late it wakes."""

    #: A failure means nothing if a thread woke later. Python's threads wait for each other, a few times 5 ms.
    LIMIT_MS = 50.0

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.worst_ms = 0.0
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.is_set():
            before = time.monotonic()
            time.sleep(0.001)
            self.worst_ms = max(self.worst_ms, (time.monotonic() - before) * 1e3 - 1)

    def stop(self) -> None:
        self._done.set()
        self.join()


WATCH = pytest.StashKey[Watch]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Beside each test that is marked `real_time`."""
    if item.get_closest_marker("real_time") is None:
        return (yield)
    item.stash[WATCH] = watch = Watch()
    watch.start()
    try:
        return (yield)
    finally:
        watch.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where such a test fails on a busy machine, it says so in the words that `scripts/tests` looks for."""
    report = yield
    watch = item.stash.get(WATCH, None)
    if report.failed and watch is not None and watch.worst_ms > watch.LIMIT_MS:
        said = f"the machine was too busy to say: a thread that slept woke {watch.worst_ms:.0f} ms late"
        report.sections.append(("the machine", said))
    return report


@dataclass(frozen=True)
class Ran:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Ran]


@pytest.fixture
def verus(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`verus ARGUMENTS` in an empty folder, with a separate cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERUS_CACHE", str(tmp_path / ".cache"))
    monkeypatch.delenv("VERUS_TRACES", raising=False)
    monkeypatch.delenv("VERUS_TRACE_URL", raising=False)

    def command(*arguments: object) -> Ran:
        capsys.readouterr()
        code = cli.run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return command


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The scenarios that this process simulates from here on."""
    scenarios: list[str] = []
    simulate_many = _verus.simulate_many

    def counted(texts: list[str], *rest: Any, **more: Any) -> Any:
        scenarios.extend(texts)
        return simulate_many(texts, *rest, **more)

    monkeypatch.setattr(_verus, "simulate_many", counted)
    return scenarios


DOCS = Path(__file__).parents[2] / "docs"


def tables(page: str) -> list[list[list[str]]]:
    """The cells of each table of a page in `docs`, heads first."""
    page_tables: list[list[list[str]]] = []
    inside = False
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not inside:
            page_tables.append([cells_of(line)])
        elif line.startswith("|") and not line.startswith("|---"):
            page_tables[-1].append(cells_of(line))
        inside = line.startswith("|")
    return page_tables


def cells_of(line: str) -> list[str]:
    """The cells of one line of a table."""
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def suite_cells() -> Iterator[tuple[str, str, str, str, str]]:
    """Suite, row, kind, scheme and cell of each verdict on the page of suites: `8.45 ✗` is missed, `(1 ✓)` compared."""
    for (suite, *columns), *rows in tables("check.md"):
        if suite in suites.NAMES:
            for name, kind, _, *cells in rows:
                for scheme, cell in zip(columns[2:], cells, strict=True):
                    # Where only some runs tried the row, their number stands behind the verdict.
                    yield suite, name.strip("`"), kind, scheme.strip("`"), cell.partition(", tried in")[0]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with recordings and reference figures, which is not part of the repository."""
    folder = Path(os.environ.get("VERUS_SHARED", Path(__file__).parents[3] / "shared"))
    if not (folder / "traces").is_dir():
        pytest.skip(f"no recordings: {folder} is absent (set VERUS_SHARED)")
    return folder


@pytest.fixture
def left_behind() -> Callable[[Path], list[str]]:
    """Everything in a folder, by path."""

    def look(folder: Path) -> list[str]:
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))

    return look


#: Names of Chromium's program (the last: on macOS).
BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)


@pytest.fixture(scope="module")  # no longer: while Playwright runs, this thread has a running event loop
def browser() -> Iterator[Browser]:
    """A headless Chromium that is installed; nothing is downloaded. Where there is none, its tests are skipped, but
    fail where `CI` is set.
    """
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        why = "no Chromium: none of chromium, chromium-browser and google-chrome is on the PATH (apt install chromium)"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        launched = playwright.chromium.launch(executable_path=path, args=arguments)
        yield launched
        launched.close()


class Chromium:
    """`chromium(PLACE, width=1440, height=900, dark=False)` opens a file, or an address: `http://127.0.0.1:8000/`.

    `complaints` lists the pages' faults: errors on the console, uncaught exceptions, and requests
    to another origin (for a file, requests for anything except files). The test fails if any is left at its end.
    """

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.contexts: list[BrowserContext] = []
        self.complaints: list[str] = []

    def __call__(self, place: Path | str, *, width: int = 1440, height: int = 900, dark: bool = False) -> Page:
        address = place.resolve().as_uri() if isinstance(place, Path) else place
        home = urlsplit(address)
        context = self.browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        self.contexts.append(context)

        def request(route: Route, asked: Request) -> None:
            target = urlsplit(asked.url)
            if target.scheme in ("data", "blob") or (target.scheme, target.netloc) == (home.scheme, home.netloc):
                route.continue_()
            else:
                self.complaints.append(f"asked for {asked.url}")
                route.abort()

        context.route("**/*", request)
        page = context.new_page()
        page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(address)
        return page


@pytest.fixture
def chromium(browser: Browser) -> Iterator[Chromium]:
    """Opens pages in a browser without a network; see `Chromium`."""
    opener = Chromium(browser)
    yield opener
    for context in opener.contexts:
        context.close()
    assert not opener.complaints
