"""The look of a contestant, the same in every figure: a hue for its scheme, a shade for Verus's R, a dash for its mode.

The first hues are Okabe and Ito's, which differ for colour-blind readers and on light and dark
pages. Shapes repeat the information of hues; strokes distinguish lines once hues run out.
"""

from __future__ import annotations

import colorsys
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from verus.report.summary import Cell

#: Shades of Verus from the smallest R to the largest: from light blue to purple.
_VERUS_SHADES = ("#46aee6", "#1c7fc7", "#3558c0", "#5f35b8", "#8a2f9e")
_HUES = {
    "cubic": ("#d55e00", "square"),
    "newreno": ("#e69f00", "diamond"),
    "vegas": ("#009e73", "triangle-up"),
    "sprout": ("#cc79a7", "triangle-down"),
    "model": ("#8c6d31", "cross"),
    "forward": ("#e7298a", "circle"),
    "bbr1": ("#7f7f7f", "square"),
    "bbr": ("#b20047", "square"),
    "copa": ("#5c9e12", "diamond"),
    "ledbatpp": ("#b2a700", "triangle-down"),
    "c4": ("#c22be0", "triangle-up"),
    "vivace": ("#ff4f8b", "diamond"),
    "scream": ("#0b7285", "cross"),
    "prague": ("#9a7fe8", "triangle-up"),
}

#: The look of other schemes.
_OTHER = ("#cc79a7", "square")

#: Colours for contestants without a special one, or whose colour is taken: each far from the others
#: on both pages.
_PLAIN = (
    "#1c7fc7",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#5a3fb0",
    "#7f7f7f",
    "#8c6d31",
    "#b20047",
    "#c22be0",
    "#5c9e12",
    "#20b9df",
)

#: Strokes of lines that share a colour, in this order.
_DASHES = ((), (8, 3), (2, 2), (8, 3, 2, 3))

#: Two colours nearer than this in OKLab are confused in a chart of many lines. Shades of Verus,
#: which show R in order, may be nearer.
NEAR = 0.075


@dataclass(frozen=True)
class Look:
    """The look of one contestant.

    Attributes:
        color: The colour of its points and lines.
        shape: The shape of its points.
        dashed: Whether its points are hollow (Verus in another mode than `robust`, and contestants
            that share a colour).
        dash: Lengths of the strokes and gaps of its lines; empty if they are solid.
    """

    color: str
    shape: str
    dashed: bool = False
    dash: tuple[int, ...] = ()


def looks(cells: Iterable[Cell]) -> dict[str, Look]:
    """A look for each label, in the order of first appearance; no two look alike."""
    entries = {cell.label: cell for cell in cells}
    tried = sorted({_settings(cell) for cell in entries.values() if cell.scheme == "verus"})
    shades = dict(zip(tried, _between(_VERUS_SHADES, len(tried)), strict=True))
    chosen: dict[str, Look] = {}
    for label, cell in entries.items():
        look = Look(*_HUES.get(cell.scheme, _OTHER))
        if cell.scheme == "verus":
            dashed = cell.params.get("mode", "robust") != "robust"
            look = Look(shades[_settings(cell)], "circle", dashed=dashed, dash=(5, 3) if dashed else ())
        others = [look.color for look in chosen.values() if look.color not in _shades_of(cell, shades)]
        if look not in chosen.values() and apart(look.color, others):
            chosen[label] = look
        else:
            again = any(
                (other.scheme, other.params) == (cell.scheme, cell.params)
                for other in list(entries.values())[: len(chosen)]
            )
            chosen[label] = _another(look, chosen, again=again)
    return chosen


def _shades_of(cell: Cell, shades: Mapping[tuple[float, str], str]) -> Collection[str]:
    """Colours that a contestant's may be near: shades of Verus, for Verus."""
    return shades.values() if cell.scheme == "verus" else ()


def apart(color: str, others: Iterable[str]) -> bool:
    """Whether a colour is far enough from all others."""
    return all(distance(color, other) >= NEAR for other in others)


def distance(one: str, other: str) -> float:
    """The difference between two colours: Euclidean in OKLab (Ottosson 2020), where black and white are 1 apart.

    Example:
        >>> round(distance("#000000", "#ffffff"), 3), distance("#1c7fc7", "#1c7fc7")
        (1.0, 0.0)
    """
    return math.dist(_oklab(one), _oklab(other))


def _oklab(color: str) -> tuple[float, float, float]:
    red, green, blue = (_linear(int(color[at : at + 2], 16) / 255) for at in (1, 3, 5))
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def _linear(value: float) -> float:
    """A component of an sRGB colour, linearised."""
    return float(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4)


def _settings(cell: Cell) -> tuple[float, str]:
    """The settings that decide the shade of Verus: R (by default 2), and all others except the mode."""
    others = {key: value for key, value in cell.params.items() if key not in ("ratio", "mode")}
    return float(cell.params.get("ratio", 2)), json.dumps(others, sort_keys=True)


def _between(colors: Sequence[str], count: int) -> list[str]:
    """`count` colours at even steps from the first of these to the last: few are far apart.

    Example:
        >>> _between(("#000000", "#0000ff"), 3)
        ['#000000', '#000080', '#0000ff']
    """
    steps = [index * (len(colors) - 1) / max(count - 1, 1) for index in range(count)]
    return [_mixed(colors[int(step)], colors[min(int(step) + 1, len(colors) - 1)], step % 1) for step in steps]


def _mixed(one: str, other: str, share: float) -> str:
    parts = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(left + (right - left) * share):02x}" for left, right in parts)


def _another(look_of_scheme: Look, chosen: Mapping[str, Look], *, again: bool) -> Look:
    """A look for a contestant that would look like another: a free colour, its own with other strokes, or any hue.

    A contestant that occurs `again`, from another folder, keeps its colour if it can.
    """
    taken = [look.color for look in chosen.values()]
    free = [replace(look_of_scheme, color=color) for color in _PLAIN if apart(color, taken)]
    dashed = [replace(look_of_scheme, dash=dash, dashed=True) for dash in _DASHES[1:]]
    hues = (colorsys.hls_to_rgb(0.12 + index * 0.618034, 0.45, 0.5) for index in range(len(chosen) + 1))
    made = [replace(look_of_scheme, color="#" + "".join(f"{round(255 * part):02x}" for part in hue)) for hue in hues]
    candidates = (*dashed, *free, *made) if again else (*free, *dashed, *made)
    return next(look for look in candidates if look not in chosen.values())


#: Similar colours for several of one scheme in a figure, such as flows.
_SHADES = {"verus": (*_VERUS_SHADES[::2], *_VERUS_SHADES[1::2]), "cubic": (_HUES["cubic"][0], "#93370d", "#f4a261")}


def named(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name: a scheme's own where the name begins with it, others in order.

    Example:
        >>> colors = named(["Verus R=2", "Cubic", "user 1"])
        >>> colors["Cubic"]
        '#d55e00'
    """
    chosen: dict[str, str] = {}
    for name in dict.fromkeys(names):
        first = re.split("[ ,:]", name, maxsplit=1)[0].lower().replace("++", "pp")
        shades = [shade for shade in _SHADES.get(first, ()) if shade not in chosen.values()]
        hue = _HUES.get(first, ("", ""))[0]
        if shades:
            chosen[name] = shades[0]
        elif hue and hue not in chosen.values():
            chosen[name] = hue
        else:
            free = [color for color in _PLAIN if apart(color, chosen.values())]
            chosen[name] = free[0] if free else _PLAIN[len(chosen) % len(_PLAIN)]
    return chosen


def dashes(colors: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """The strokes of each line of `named`: different ones for lines that share a colour.

    Example:
        >>> dashes({"one": "#1c7fc7", "two": "#d55e00", "three": "#1c7fc7"})
        {'one': (), 'two': (), 'three': (8, 3)}
    """
    uses: dict[str, int] = {}
    strokes: dict[str, tuple[int, ...]] = {}
    for name, color in colors.items():
        strokes[name] = _DASHES[uses.get(color, 0) % len(_DASHES)]
        uses[color] = uses.get(color, 0) + 1
    return strokes
