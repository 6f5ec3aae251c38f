"""Lays out the pages of the site for MkDocs: the repository's Markdown, and the reference from the code.

    python scripts/pages.py [FOLDER]     # part of `make site`; FOLDER is docs_dir of mkdocs.yml

Pages keep their places, so that their links to each other stay valid. A link to anything else of
the repository becomes one to it on the web. The list of claims is long, so each figure and table in
it gets a separate page.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
#: The pages of the navigation, in order.
PAGES = re.findall(r"^ *- [^:\n]+: (\S+\.md)$", CONFIG, flags=re.MULTILINE)
#: The folder of pages that `scripts/reference.py` writes.
REFERENCE = "docs/reference"
REPOSITORY = re.findall(r"^ *- Source code: (\S+)$", CONFIG, flags=re.MULTILINE)[0]
#: Styles of the pages, beside the theme.
STYLE = "docs/site.css"
#: The page with every claim of the sources: a section for each experiment.
CLAIMS = "docs/claims.md"

#: A link or a picture: the text before its target, and the target.
LINK = re.compile(r"(?<!`)(!?\[[^\]\n]*\]\()([^)\s]+)(?=\))")


def lay_out(folder: Path) -> None:
    """Copies the pages, the pictures on them, and their styles."""
    for page in PAGES:
        if not page.startswith(REFERENCE):
            text = (ROOT / page).read_text(encoding="utf-8")
            written = claims(text) if page == CLAIMS else {page: text}
            for name, content in written.items():
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(LINK.sub(partial(link, page, folder), content), encoding="utf-8")
    shutil.copyfile(ROOT / STYLE, folder / STYLE)


def claims(text: str) -> dict[str, str]:
    """The list of claims as pages: an overview with the number that hold, and a page for each experiment."""
    lead, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    pages: dict[str, str] = {}
    rows = ["| source | claims | held | run it again |", "|---|---|---|---|"]
    for section in sections:
        title = section.splitlines()[0].removeprefix("## ")
        command = re.search(r"^`verus reproduce (\S+)`$", section, flags=re.MULTILINE)
        if command is None:  # of all claims
            rows += ["", section]
            continue
        name = command[1]
        held, missed = (len(re.findall(verdict, section)) for verdict in (r"\| held\b", r"\| \*\*not held\b"))
        rows.append(f"| [{title}](claims/{name}.md) | {held + missed} | {held} | `verus reproduce {name}` |")
        pages[f"{CLAIMS.removesuffix('.md')}/{name}.md"] = f"[All claims](../claims.md)\n\n{section[1:]}"
    return {CLAIMS: "\n".join([lead, *rows, ""]), **pages}


def link(page: str, folder: Path, match: re.Match[str]) -> str:
    """The form of a page's link on the site; a picture is copied there."""
    path, _, _ = match[2].partition("#")
    if not path or ":" in path:
        return match[0]
    inside = os.path.normpath(Path(page).parent / path)
    if match[1].startswith("!"):
        (folder / inside).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / inside, folder / inside)
    elif inside not in PAGES:
        return f"{match[1]}{REPOSITORY}/{'tree' if (ROOT / inside).is_dir() else 'blob'}/main/{inside}"
    return match[0]


def main(folder: Path) -> None:
    """Lays out all pages anew."""
    import reference

    shutil.rmtree(folder, ignore_errors=True)
    lay_out(folder)
    reference.write(folder / REFERENCE)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "target" / "site" / "pages")
