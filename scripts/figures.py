"""Runs again what the documents quote, and writes it where they and the tests read it: `docs/results`.

    python scripts/figures.py [--traces FOLDER]     # `make figures`

A claim is checked on recordings or on built-in channels; without the folder of recordings nothing is written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "results"
#: What is run for each result, and the page that quotes it.
COMMANDS = {
    "claims.csv": ("reproduce all --modes paper,prototype", "claims.md"),
    "ablation.csv": ("reproduce ablation", "verus.md"),
}


def tables(text: str) -> dict[str, list[str]]:
    """The lines of each Markdown table, by its heads."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            lines.append(line)
        elif lines:
            found["".join(lines[0].split())] = lines
            lines = []
    return found


def with_tables(page: str, new: str) -> str:
    """The page, the tables that `new` has under the same heads put in place of its own."""
    old = tables(page)
    for heads, lines in tables(new).items():
        if heads not in old:
            sys.exit(f"no table of the page begins with {lines[0]}")
        page = page.replace("\n".join(old[heads]), "\n".join(lines))
    return page


def main() -> None:
    """Runs, and writes results and pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", required=True, help="the folder of recordings, as for `verus reproduce`")
    parser.add_argument("--made", type=Path, help="a folder that holds what an earlier call ran; nothing is run")
    told = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        sources = json.loads((RESULTS / "sources.json").read_text())
        for name, (command, page) in COMMANDS.items():
            out = Path(told.made or folder, Path(name).stem)
            if told.made is None:
                words = [*command.split(), "--traces", told.traces, "--out", str(out)]
                done = subprocess.run([Path(sys.executable).with_name("verus"), *words], check=False)
                if done.returncode not in (0, 3):  # 3: a claim does not hold
                    sys.exit(done.returncode)
            config = json.loads(min(out.rglob("run.json")).read_text())
            machine = config["machine"]
            (RESULTS / name).write_bytes((out / name).read_bytes())
            text = (out / name).with_suffix(".md").read_text()
            path = DOCS / page
            path.write_text(text if name == "claims.csv" else with_tables(path.read_text(), text))
            sources[name] = {
                "page": page,
                "command": f"verus {command} --traces FOLDER",
                "made": config["created"][:10],
                "commit": commit.strip(),
                "machine": f"{machine['cpu']}, {machine['cores']} cores, {machine['kernel']}",
            }
        (RESULTS / "sources.json").write_text(json.dumps(sources, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
