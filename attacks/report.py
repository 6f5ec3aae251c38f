"""Attacks on `verus report` by a run folder from a stranger."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from attacks.attack import attack
from attacks.endpoint import ran
from attacks.stage import Stage

SCRIPT = "</script><script>PWN()</script><img src=x onerror=PWN()>'\"+PWN()+'../../../x"
ADDED = ("trace", "label", "queue")
REPLACED = ("name", "host", "address", "licence", "citation", "source", "cpu", "kernel", "version", "created", "scheme")


def poisoned(value: Any, key: str = "") -> Any:
    """The same with a script in every text that a page may show."""
    if isinstance(value, dict):
        return {name: poisoned(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [poisoned(each, key) for each in value]
    if isinstance(value, str) and key in ADDED + REPLACED:
        return value + SCRIPT if key in ADDED else SCRIPT
    return value


def rewrite(path: Path) -> None:
    """Poison a file of JSON Lines."""
    if path.exists():
        lines = [json.dumps(poisoned(json.loads(line))) for line in path.read_text().splitlines()]
        path.write_text("\n".join(lines) + "\n")


@attack("report-scripts", timeout_s=90)
def scripts(stage: Stage) -> None:
    """Every text of a run folder holds scripts, and names that lead out of the folder.

    The page runs none of them, and nothing is written elsewhere.
    """
    server = stage.probe_server(honest=False)
    folder = stage.folder("given") / "run"
    ran_probe = stage.run("probe", "client", server.name, "--duration", 2, "--out", folder, "-q")
    stage.expect(ran_probe.code == 0, "a run to poison", f"no run to poison: {ran_probe.last_line}")
    for name in ("results.jsonl", "series.jsonl", "profile.jsonl"):
        rewrite(folder / name)
    config = json.loads((folder / "run.json").read_text())
    kind = config["kind"]
    (folder / "run.json").write_text(json.dumps({**poisoned(config), "kind": kind}))
    before = {path for path in stage.work.rglob("*") if folder not in path.parents}
    page = ran([sys.executable, "-m", "verus", "report", folder], seconds=60, cwd=stage.work)
    stage.expect(page.code is not None and "Traceback" not in page.err, f"exit {page.code}: {page.last_line[:100]}")
    report = folder / "report.html"
    if report.exists():
        text = report.read_text()
        raw = text.count("<script>PWN") + text.count("<img src=x onerror") + text.count("</script><script>")
        stage.expect(raw == 0, f"none of {text.count('PWN')} scripts is one in the page", f"{raw} scripts in the page")
    drawn = [path for path in folder.rglob("*.svg") if "<script>PWN" in path.read_text()]
    stage.expect(not drawn, "none in a figure", f"scripts in {drawn[:2]}")
    after = {path for path in stage.work.rglob("*") if folder not in path.parents}
    stage.expect(
        after == before, "nothing written elsewhere", f"written elsewhere: {sorted(map(str, after - before))[:3]}"
    )
