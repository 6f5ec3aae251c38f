"""Turns figures into files: SVG by Vega, and PNG from that SVG.

Drawing takes longer than simulating, and holds the interpreter lock; so a folder of figures is drawn
by child processes (`python -m verus.render FOLDER`, figures as JSON on standard input) while the
parent writes the page.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import vl_convert

if TYPE_CHECKING:
    from verus.figures import Figure, Spec

#: Pixels of a PNG for each pixel of its figure, for sharp text on dense screens.
PNG_SCALE = 2.0


def svg(spec: Spec) -> str:
    """The figure as an SVG on white, dark text."""
    config = {**spec.get("config", {}), "background": "white", "padding": 14}
    text: str = vl_convert.vegalite_to_svg({**spec, "config": config}, allowed_base_urls=[])
    # Standing alone it has no page to take a text colour from.
    return text.replace("currentColor", "#1b1f24")


def png(drawn: str) -> bytes:
    """An SVG as a PNG."""
    content: bytes = vl_convert.svg_to_png(drawn, scale=PNG_SCALE)
    return content


def write(name: str, spec: Spec, folder: Path) -> None:
    """Writes ``NAME.svg`` and ``NAME.png`` into `folder`."""
    drawn = svg(spec)
    (folder / f"{name}.svg").write_text(drawn, encoding="utf-8")
    (folder / f"{name}.png").write_bytes(png(drawn))


@contextlib.contextmanager
def writing(figures: Sequence[Figure], folder: Path) -> Iterator[None]:
    """Writes every figure as SVG and PNG into `folder` while the block runs; done when it ends.

    Raises:
        RuntimeError: A figure could not be drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shares = [figures[start :: os.cpu_count() or 1] for start in range(os.cpu_count() or 1)]
    children = [_child(share, folder) for share in shares if share]
    try:
        yield
        for child in children:
            _, complaint = child.communicate()
            if child.returncode != 0:
                raise RuntimeError(f"a figure could not be drawn: {complaint.decode(errors='replace').strip()[-400:]}")
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.communicate()


def _child(share: Sequence[Figure], folder: Path) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as work:
        work.write(json.dumps([[figure.name, figure.spec] for figure in share]).encode())
        work.seek(0)
        return subprocess.Popen(
            [sys.executable, "-m", "verus.render", str(folder)],
            stdin=work,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )


@functools.cache
def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, for pages that must work without a network."""
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script


def to_json(spec: Spec) -> str:
    """A specification for inlining in a page; `<` is escaped so that no text can become markup."""
    return json.dumps(spec, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and ends this process itself
    for name, spec in json.load(sys.stdin):
        write(name, spec, Path(sys.argv[1]))


if __name__ == "__main__":
    _main()
