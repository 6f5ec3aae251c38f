"""Turns figures into files: SVG by Vega, and PNG and PDF from that SVG.

Drawing takes longer than simulating, and holds the interpreter lock. So child processes draw a
folder of figures while the parent writes the page. They live as long as the parent, since each must
compile Vega before its first figure.
"""

from __future__ import annotations

import atexit
import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import IO

from verus.lab.atomic_write import replace_whole
from verus.lab.results_folder import refuse_link
from verus.report.figures import Figure, Spec

#: Pixels of a PNG for each pixel of its figure, for sharp text on dense screens.
PNG_SCALE = 2.0


def svg(spec: Spec) -> str:
    """The figure as an SVG on white, dark text."""
    config = {**spec.get("config", {}), "background": "white", "padding": 14}
    import vl_convert  # here: a page alone does not need it

    text: str = vl_convert.vegalite_to_svg({**spec, "config": config}, allowed_base_urls=[])
    # A separate file has no page to take a text colour from.
    return text.replace("currentColor", "#1b1f24")


def png(drawn: str) -> bytes:
    """An SVG as a PNG."""
    import vl_convert

    content: bytes = vl_convert.svg_to_png(drawn, scale=PNG_SCALE)
    return content


def pdf(drawn: str) -> bytes:
    """An SVG as a PDF of one page, with its text as text."""
    import vl_convert

    content: bytes = vl_convert.svg_to_pdf(drawn)
    return content


#: Endings of the files that a figure can be drawn as.
FORMATS = (".svg", ".png", ".pdf")


def picture(spec: Spec, ending: str) -> bytes:
    """The figure as a file of one of the `FORMATS`."""
    drawn = svg(spec)
    if ending == ".svg":
        return drawn.encode()
    return {".png": png, ".pdf": pdf}[ending](drawn)


def write(name: str, spec: Spec, folder: Path) -> None:
    """Writes ``NAME.svg``, ``NAME.png`` and ``NAME.pdf`` into `folder`."""
    drawn = svg(spec)
    replace_whole(folder / f"{name}.svg", drawn.encode())
    replace_whole(folder / f"{name}.png", png(drawn))
    replace_whole(folder / f"{name}.pdf", pdf(drawn))


@contextlib.contextmanager
def writing(figures: Sequence[Figure], folder: Path) -> Iterator[None]:
    """Writes every figure as SVG, PNG and PDF into `folder` while the block runs; done when it ends.

    Raises:
        FieldError: `folder` is a link.
        RuntimeError: A figure could not be drawn.
    """
    refuse_link(folder)
    folder.mkdir(parents=True, exist_ok=True)
    count = min(os.cpu_count() or 1, -(-len(figures) // _WORTH_A_CHILD))
    shares = [figures[start::count] for start in range(count)]
    with _ALONE, tempfile.TemporaryDirectory() as work:
        try:
            for number, share in enumerate(shares):
                path = Path(work, f"{number}.json")
                path.write_text(json.dumps([[figure.name, figure.spec] for figure in share]), encoding="utf-8")
                _send(number, [str(path), str(folder.absolute())])
            yield
            for child in _CHILDREN[:count]:
                answer = _pipe(child.stdout).readline()
                if complaint := json.loads(answer) if answer else f"`verus.report.render` ended with {child.wait()}":
                    raise RuntimeError(f"a figure could not be drawn: {complaint[-400:]}")
        except BaseException:
            _end()  # their figures are no longer needed
            raise


#: Drawing this many figures takes about as long as a child takes to start.
_WORTH_A_CHILD = 3

#: Child processes, at work or idle.
_CHILDREN: list[subprocess.Popen[str]] = []
_ALONE = threading.Lock()


def _send(number: int, words: list[str]) -> None:
    """Sends work to one of the children, which is started if needed."""
    if number == len(_CHILDREN):
        child = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "verus.report.render",
            ],  # -P: no untrusted module of the working directory
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        _CHILDREN.append(child)
    print(json.dumps(words), file=_pipe(_CHILDREN[number].stdin), flush=True)


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None  # as they were started
    return pipe


@atexit.register
def _end() -> None:
    for child in _CHILDREN:
        child.kill()
        child.communicate()
    _CHILDREN.clear()


def bundle() -> str:
    """Vega and Vega-Lite as one script, as `vega` and `vegaLite`, for pages that must work without a network."""
    return gzip.decompress((resources.files("verus.report") / "vega.js.gz").read_bytes()).decode()


def to_json(spec: Spec) -> str:
    """A specification for inlining in a page; `<` is escaped so that no text can become markup."""
    return json.dumps(spec, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _main() -> None:
    """Draws lists of figures from standard input, a list and a folder a line; answers each with a line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process itself
    for line in sys.stdin:
        path, folder = json.loads(line)
        complaint = ""
        try:
            for name, spec in json.loads(Path(path).read_text(encoding="utf-8")):
                write(name, spec, Path(folder))
        except (OSError, ValueError) as error:
            complaint = str(error) or repr(error)
        print(json.dumps(complaint), flush=True)


if __name__ == "__main__":
    _main()
