"""Markdown of the repository: links have targets, pages are on the site, commands exist."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import verus as package
from verus import papers

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import pages  # noqa: E402
import pictures  # noqa: E402
import reference  # noqa: E402

#: Every page of the repository: those of the top, of docs and of the crates.
MARKDOWN = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("crates/*/*.md")])
#: Pages whose Python is run from the first block to the last.
WITH_PYTHON = ["docs/quick-start.md", "docs/tutorials/notebook.md"]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def links(text: str) -> list[str]:
    """The targets of all links and pictures outside of code."""
    prose = re.sub(r"`[^`\n]*`", "code", without_code(text))
    return re.findall(r"\]\(([^)\s]+)\)", prose)


def anchors(text: str) -> set[str]:
    """Anchors of headings in links, as on GitHub."""
    slugs: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?)#*$", without_code(text), flags=re.MULTILINE):
        heading_text = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading).strip().lower()
        slug = base = re.sub(r"[^\w\- ]", "", heading_text).replace(" ", "-")
        count = 0
        while slug in slugs:
            count += 1
            slug = f"{base}-{count}"
        slugs.add(slug)
    return slugs


def broken(page: Path, root: Path) -> Iterator[str]:
    """Links of a page that lead nowhere in a tree."""
    for link in links(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        if ":" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        if (
            not target.exists()
            or not target.is_relative_to(root)
            or (anchor and anchor not in anchors(target.read_text(encoding="utf-8")))
        ):
            yield link


@pytest.mark.parametrize("page", MARKDOWN, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert not list(broken(page, ROOT))


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`: c\n[here](#a-b-c) [gone](#a) [gone](other.md) [out](../x) `[code](x)` [web](https://a.b)\n"
    )
    assert list(broken(page, tmp_path)) == ["#a", "other.md", "../x"]


def test_every_page_is_in_the_navigation_once() -> None:
    written = {f"{pages.REFERENCE}/{name}" for name in reference.PAGES}
    tracked = {name_of(path) for path in MARKDOWN if path.parts[-3] != "crates"}
    assert set(pages.PAGES) == tracked | written
    assert len(pages.PAGES) == len(set(pages.PAGES))


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "pages"
    pages.main(folder)
    return folder


def test_the_site_is_whole(laid_out: Path) -> None:
    listed = re.findall(r"^`verus reproduce (\S+)`$", (ROOT / pages.CLAIMS).read_text(encoding="utf-8"), re.MULTILINE)
    claims = {f"docs/claims/{name}.md" for name in listed}
    present = {str(path.relative_to(laid_out)) for path in laid_out.rglob("*.md")}
    assert present == set(pages.PAGES) | claims
    broken_links = {page: list(broken(laid_out / page, laid_out)) for page in present}
    assert not {page: lost for page, lost in broken_links.items() if lost}


def test_claims_have_a_page_for_each_source_and_none_is_lost(laid_out: Path) -> None:
    whole = (ROOT / pages.CLAIMS).read_text(encoding="utf-8")
    overview = (laid_out / pages.CLAIMS).read_text(encoding="utf-8")
    claim_pages = [path.read_text(encoding="utf-8") for path in (laid_out / "docs" / "claims").iterdir()]
    for line in whole.splitlines():
        assert any(line.removeprefix("#") in page for page in (overview, *claim_pages)), line
    counts = [(int(all_), int(held)) for all_, held in re.findall(r"\.md\) \| (\d+) \| (\d+) \|", overview)]
    held, of = re.findall(r"(\d+) of (\d+) claims hold", whole)[0]
    assert [sum(column) for column in zip(*counts, strict=True)] == [int(of), int(held)]


def test_the_reference_has_every_verb_name_and_field(laid_out: Path) -> None:
    commands, python, scenario, names = (
        (laid_out / pages.REFERENCE / name).read_text(encoding="utf-8") for name in reference.PAGES
    )
    for words in [("compare",), ("trace", "fetch"), ("probe", "client"), ("serve", "token", "add")]:
        assert f"# verus {' '.join(words)}\n\n```text\n" in commands
    for name in package.__all__:
        assert f"\n## {name}\n" in python
    assert "### Comparison.plot_series" in python
    assert "\n    duration_s: float = 60.0,\n" in python
    for field in reference.SCHEMA["properties"]:
        assert f"\n| `{field}` |" in scenario
    for name in ("### verus\n", "### droptail\n", "### on-off\n", "| `city-driving-3g-up` |", "| `ratio` |"):
        assert name in names


def test_pictures_are_those_that_are_drawn_and_shown() -> None:
    shown = {Path(link).name for page in MARKDOWN for link in links(page.read_text()) if "pictures/" in link}
    assert shown == set(pictures.PICTURES) == {path.name for path in pictures.FOLDER.iterdir()}


def commands(text: str, *, inline: bool = True) -> Iterator[list[str]]:
    """The `verus` commands of a page, in blocks of shell and, with `inline`, in code within a line."""
    blocks = "\n".join(re.findall(r"^```sh\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE))
    mentioned = re.findall(r"`(verus [^`\n]+)`", without_code(text)) if inline else []
    for line in [*blocks.replace("\\\n", " ").splitlines(), *mentioned]:
        if re.match(r"(sudo )?verus ", line):
            words = shlex.split(line.replace("…", ""), comments=True)
            yield [word for word in words[words.index("verus") + 1 :] if word != "&"]


@pytest.fixture(scope="module")
def verbs() -> frozenset[tuple[str, ...]]:
    return frozenset(reference.verbs())


@pytest.mark.parametrize(
    "page", [path for path in MARKDOWN if list(commands(path.read_text(encoding="utf-8")))], ids=name_of
)
def test_commands_of_pages_are_known_with_their_options(page: Path, verbs: frozenset[tuple[str, ...]]) -> None:
    text = page.read_text(encoding="utf-8")
    assert all(words[0].startswith("-") or (words[0],) in verbs for words in commands(text, inline=False))
    for words in commands(text):
        verb = tuple(words[:3])
        while verb and verb not in verbs:
            verb = verb[:-1]
        if not verb:
            continue  # `verus VERB`, or another thing of that name
        arguments = words[: words.index("--")] if "--" in words else words
        options = set(re.findall(r"--[a-z][\w-]*", reference.help_of(verb)))
        assert {word.partition("=")[0] for word in arguments if word.startswith("--")} <= options | {"--help"}, words


def test_the_artifact_names_every_experiment() -> None:
    text = (ROOT / "ARTIFACT.md").read_text(encoding="utf-8")
    named = [word for words in commands(text) if words[0] == "reproduce" for word in words[1:] if word in papers.NAMES]
    assert named == list(papers.NAMES)


def test_targets_of_make_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for page in MARKDOWN:
        text = page.read_text(encoding="utf-8")
        named = set(re.findall(r"(?:^|`)make ([a-z][\w-]*)", text, flags=re.MULTILINE))
        assert named <= targets, page


def test_what_pages_run_with_cargo_exists() -> None:
    folders = {"test": "tests", "example": "examples", "bench": "benches"}
    for page in MARKDOWN:
        text = page.read_text(encoding="utf-8")
        for crate, kind, name, module in re.findall(r"-p verus-(\w+) --(test|example|bench) (\w+)(?: (\w+))?", text):
            folder = ROOT / "crates" / crate / folders[kind]
            file = folder / name / f"{module}.rs" if module else folder / f"{name}.rs"
            assert file.is_file(), (page, name, module)


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        exec(block, names)
