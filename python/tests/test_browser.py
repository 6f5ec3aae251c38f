"""The browser of the tests: it reports faults of pages, and is present where required."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FAULTS = {
    "a console error": ("<script>console.error('lost')</script>", "lost"),
    "an exception": ("<script>throw new Error('lost')</script>", "lost"),
    "a request that leaves": ("<img src='http://192.0.2.1/picture.png'>", "asked for http://192.0.2.1/picture.png"),
    "a script from elsewhere": ("<script src='https://example.com/a.js'></script>", "asked for https://example.com"),
}


def test_a_page_is_opened_as_wide_and_dark_as_asked(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<title>here</title><script>console.log('well')</script>")
    page = chromium(path, width=390, dark=True)
    assert page.title() == "here"
    assert page.evaluate("[innerWidth, matchMedia('(prefers-color-scheme: dark)').matches]") == [390, True]


@pytest.mark.parametrize(("content", "complaint"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_of_a_page_is_seen(chromium: Any, tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(content)
    chromium(path)
    assert any(complaint in told for told in chromium.complaints)
    chromium.complaints.clear()


@pytest.mark.parametrize(("ci", "outcome"), [("true", "1 error"), ("", "1 skipped")])
def test_without_a_browser_tests_are_skipped_but_fail_in_ci(
    ci: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_it.py").write_text("def test_it(chromium):\n    pass\n")
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    words = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(tmp_path)]
    ran = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == (1 if ci else 0)
    assert "no Chromium" in ran.stdout
    assert outcome in ran.stdout
