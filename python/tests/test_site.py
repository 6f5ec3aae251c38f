"""The site as `make site` built it, which runs this: it asks nobody else, and is read at every width, light or dark."""

from __future__ import annotations

import http.server
import os
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

Chromium = Callable[..., "Page"]

BUILT = os.environ.get("VERUS_SITE")
pytestmark = pytest.mark.skipif(BUILT is None, reason="`make site` builds the site, and tests it then")
SITE = Path(BUILT or ".").resolve()

#: Pages of claims are alike, so one is tested.
ONE_CLAIM = ("docs/claims/sigcomm-fig09",)

WIDTHS = (390, 820, 1440)

#: Requests that a page makes without a click.
LOADS = (
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?([^"'\s>]+)"""
    r"""|<link\b(?![^>]*canonical)[^>]*\bhref=["']?([^"'\s>]+)"""
)


def names() -> list[str]:
    """Every page, as its address ends."""
    return sorted(str(path.parent.relative_to(SITE)).removeprefix(".") for path in SITE.rglob("index.html"))


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and says nothing of it."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is written."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address at which the site is served."""
    handler = partial(Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}/"
        serving.shutdown()


def test_no_page_names_a_foreign_host_for_what_it_loads() -> None:
    assert len(names()) > 60
    foreign = {
        (str(path.relative_to(SITE)), target)
        for path in SITE.rglob("*.html")
        for found in re.findall(LOADS, path.read_text(encoding="utf-8"))
        for target in found
        if re.match(r"(?:\w+:)?//", target)
    }
    sheets = {
        (path.name, target)
        for path in SITE.rglob("*.css")
        for target in re.findall(
            r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')]+)""", path.read_text(encoding="utf-8")
        )
    }
    assert not foreign | sheets


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_asks_a_foreign_host_and_no_command_is_cut(width: int, site: str, chromium: Chromium) -> None:
    """The fixture `chromium` fails the test for every request that leaves the site."""
    page = chromium(site, width=width)
    cut: dict[str, list[str]] = {}
    for name in (name for name in names() if name in ONE_CLAIM or not name.startswith("docs/claims/")):
        # Requests that pages make without a click do not depend on their width.
        page.goto(f"{site}{name}/" if name else site, wait_until="load" if width == 1440 else "domcontentloaded")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        overflowing = page.evaluate(
            """() => [...document.querySelectorAll(".language-sh code")]
              .filter((code) => code.scrollWidth > code.clientWidth + 1)
              .map((code) => code.textContent.slice(0, 80))"""
        )
        if overflowing:
            cut[name] = overflowing
    assert not cut


def test_the_first_picture_is_seen_without_a_scroll(site: str, chromium: Chromium) -> None:
    for width in WIDTHS:
        box = chromium(site, width=width).locator("article img").first.bounding_box()
        assert box
        assert box["y"] + box["height"] < 900


def test_pages_are_dark_where_the_system_is_and_a_button_changes_it(site: str, chromium: Chromium) -> None:
    def ground(page: Page) -> int:
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", color)[:3]))

    light, dark = chromium(site), chromium(site, dark=True)
    assert ground(light) == 3 * 255
    assert ground(dark) < 150
    dark.locator("label[title='Light pages']").click()
    assert ground(dark) == 3 * 255
    dark.locator("label[title='Dark pages']").click()
    assert ground(dark) < 150


def test_no_page_of_claims_is_endless(site: str, chromium: Chromium) -> None:
    page = chromium(site)
    for name in (name for name in names() if name.startswith("docs/claims")):
        page.goto(f"{site}{name}/", wait_until="domcontentloaded")
        assert page.evaluate("document.documentElement.scrollHeight") < 8000, name
