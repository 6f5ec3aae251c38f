"""Views in a notebook: figures that are drawn when they are shown, and results as HTML tables."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from markupsafe import Markup

from verus.errors import FieldError
from verus.lab.atomic_write import write_whole
from verus.lab.results import Results
from verus.report import figures, grid, render
from verus.report.comparison import results_table
from verus.report.figures import Figure, Spec
from verus.report.grid import Grid, paragraphs
from verus.report.numbers import DELAY_NOTE, LIVE_DELAY_NOTE, number, percent
from verus.report.summary import Block, blocks
from verus.report.table import run_columns

#: The notebook gives a table its look; the colour of a scheme is ours.
_STYLE = Markup(
    "<style>.verus-table caption{text-align:left;caption-side:top}"
    ".verus-table td{text-align:right;padding:0 .5em}.verus-table tbody th{text-align:left}"
    ".verus-table th i{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.55em}</style>"
)


@dataclass(frozen=True)
class Plot:
    """A figure. A notebook shows it as a picture, which is drawn only when it is shown.

    Attributes:
        title: One line.
        caption: The runs, and the quantities on the axes.
        spec: Vega-Lite, with its data: ``altair.Chart.from_dict(plot.spec)`` makes an interactive chart of it.
    """

    title: str
    caption: str
    spec: Spec = field(repr=False)

    @classmethod
    def of(cls, figure: Figure) -> Plot:
        """A figure of a page."""
        return cls(title=figure.title, caption=figure.caption, spec=figure.spec)

    def to_svg(self) -> str:
        """The picture as SVG."""
        return render.svg(self.spec)

    def to_png(self) -> bytes:
        """The picture as PNG, two pixels for each of the SVG."""
        return render.png(self.to_svg())

    def to_pdf(self) -> bytes:
        """The picture as a PDF of one page."""
        return render.pdf(self.to_svg())

    def save(self, path: str | PathLike[str]) -> Path:
        """Writes the picture, whole or not at all, in place of any earlier file.

        Args:
            path: A name that ends in ``.svg``, ``.png`` or ``.pdf``.

        Raises:
            ValueError: It ends in something else.
            OSError: It cannot be written.
        """
        target = Path(path)
        if target.suffix not in render.FORMATS:
            raise FieldError("path", f"`{target}` must end in .svg, .png or .pdf")
        write_whole(target, render.picture(self.spec, target.suffix), field="path")
        return target

    def _repr_html_(self) -> str:
        # An image rather than inline SVG: two inline pictures would have the same names inside.
        drawn = base64.b64encode(self.to_svg().encode()).decode()
        shown = '<figure><img alt="{}" src="data:image/svg+xml;base64,{}"><figcaption>{}</figcaption></figure>'
        return Markup(shown).format(self.title, drawn, self.caption)


def comparison_html(results: Results) -> str:
    """The tables of a comparison, one for each channel and queue, as on its page."""
    note = LIVE_DELAY_NOTE if results.live else DELAY_NOTE
    return _framed(Markup("").join(results_table(block) for block in blocks(results)) + paragraphs([note]))


def run_html(results: Results) -> str:
    """One run: a row for each flow, and one for all of them."""
    (row,) = results.rows.to_pylist()
    heads, found = run_columns(row)
    caption = Markup("<b>{}</b> · {}").format(row["trace"], row["queue"]) + (
        f" · {row['duration_s']:g} s · seed {row['seed']} · "
        f"{percent(row['utilization'])} % of {number(row['capacity_mbps'], 2)} Mbit/s used"
    )
    return _framed(Grid(heads=heads, rows=found, title=caption).html() + paragraphs([DELAY_NOTE]))


def facts_html(title: str, facts: Sequence[tuple[str, str]]) -> str:
    """A short table: names and values."""
    return _framed(grid.facts(facts, title=Markup("<b>{}</b>").format(title)))


def _framed(body: Markup) -> str:
    return Markup('{}<div class="verus-table">{}</div>').format(_STYLE, body)


def scatter(results: Results) -> Plot:
    """Delay against throughput: a panel for each channel and queue."""
    return Plot.of(figures.scatter(results, blocks(results)))


def series(results: Results, *, trace: str | None = None, queue: str | None = None) -> Plot:
    """Capacity, throughput, delay and window over time, on one channel and queue.

    Raises:
        FieldError: No block matches, or several do.
    """
    return Plot.of(figures.series(results, _block(results, trace, queue)))


def flows(results: Results, *, trace: str | None = None, queue: str | None = None) -> Plot:
    """The throughput of each flow over time, on one channel and queue.

    Raises:
        FieldError: No block matches, or several do; or every run there has one flow.
    """
    block = _block(results, trace, queue)
    figure = figures.flows(results, block, name=f"flows-{figures.slug(block.short)}")
    if figure is None:
        raise FieldError("flows", f"every run over `{block.trace}` has one flow: `plot_series` shows it")
    return Plot.of(figure)


def profiles(results: Results) -> Plot:
    """Delay profiles: delay by window, as Verus learned it.

    Raises:
        FieldError: No sender of these runs showed one.
    """
    figure = figures.profiles(results, blocks(results))
    if figure is None:
        raise FieldError(
            "schemes", "no sender of these runs showed a delay profile (Verus does, some seconds after its start)"
        )
    return Plot.of(figure)


def _block(results: Results, trace: str | None, queue: str | None) -> Block:
    """The block of this channel and queue; the only one if both are None."""
    matches = blocks(results)
    for name, value in (("trace", trace), ("queue", queue)):
        names = list(dict.fromkeys(str(getattr(block, name)) for block in matches))
        if value is None and len(names) > 1:
            raise FieldError(name, f"must say which of these to draw: {', '.join(names)}")
        if value is not None and value not in names:
            raise FieldError(name, f"`{value}` is not one of {', '.join(names)}")
        matches = [block for block in matches if value in (None, getattr(block, name))]
    return matches[0]
