"""How a contestant looks, the same in every figure: a hue for the scheme, a shade for Verus's R, a dash for its mode.

The hues are Okabe and Ito's, which stay apart for colour-blind readers and on light and dark pages;
shapes repeat what hues say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from verus.summary import Cell

_VERUS_SHADES = ("#46aee6", "#1c7fc7", "#3558c0", "#5a3fb0", "#7a3a9a")
_HUES = {
    "cubic": ("#d55e00", "square"),
    "newreno": ("#e69f00", "diamond"),
    "vegas": ("#009e73", "triangle-up"),
    "sprout": ("#cc79a7", "triangle-down"),
    "model": ("#8c6d31", "cross"),
    "bbr1": ("#7f7f7f", "square"),
    "bbr": ("#404040", "square"),
    "copa": ("#117733", "diamond"),
    "ledbatpp": ("#999933", "triangle-down"),
    "c4": ("#882255", "triangle-up"),
    "vivace": ("#aa4499", "diamond"),
    "scream": ("#0b7285", "cross"),
    "prague": ("#6a51a3", "triangle-up"),
}
_OTHERS = ("#cc79a7", "#8c6d31", "#7f7f7f", "#a05a7a")


@dataclass(frozen=True)
class Look:
    """How one contestant is drawn.

    Attributes:
        color: Of its points and lines.
        shape: Of its points.
        dashed: Whether its lines are dashed and its points hollow (Verus in another mode than `robust`).
    """

    color: str
    shape: str
    dashed: bool = False


def looks(cells: Iterable[Cell]) -> dict[str, Look]:
    """A look for each label, in the order of first appearance."""
    entries = {cell.label: cell for cell in cells}
    ratios = sorted({_ratio(cell) for cell in entries.values() if cell.scheme == "verus"})
    others = iter(_OTHERS * (1 + len(entries)))
    chosen: dict[str, Look] = {}
    for label, cell in entries.items():
        if cell.scheme == "verus":
            shade = _VERUS_SHADES[ratios.index(_ratio(cell)) % len(_VERUS_SHADES)]
            chosen[label] = Look(shade, "circle", dashed=cell.params.get("mode", "robust") != "robust")
        elif cell.scheme in _HUES and not any(look.color == _HUES[cell.scheme][0] for look in chosen.values()):
            chosen[label] = Look(*_HUES[cell.scheme])
        else:
            chosen[label] = Look(next(others), "square")
    return chosen


def _ratio(cell: Cell) -> float:
    """R, the ratio of delay to its minimum that Verus tolerates; 2 if it was left alone."""
    return float(cell.params.get("ratio", 2))


#: Several of one scheme in a figure, such as flows, look alike.
_SHADES = {"verus": _VERUS_SHADES, "cubic": (_HUES["cubic"][0], "#93370d", "#f4a261")}

#: Colours of what has no scheme of its own.
_PLAIN = ("#1c7fc7", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#5a3fb0", "#7f7f7f", "#8c6d31")


def named(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name: a scheme's own where the name begins with it, others in order.

    Example:
        >>> colors = named(["Verus R=2", "Cubic", "user 1"])
        >>> colors["Cubic"]
        '#d55e00'
    """
    chosen: dict[str, str] = {}
    for name in dict.fromkeys(names):
        first = name.partition(" ")[0].partition(",")[0].lower()
        shades = [shade for shade in _SHADES.get(first, ()) if shade not in chosen.values()]
        hue = _HUES.get(first, ("", ""))[0]
        if shades:
            chosen[name] = shades[0]
        elif hue and hue not in chosen.values():
            chosen[name] = hue
        else:
            left = [color for color in _PLAIN if color not in chosen.values()]
            chosen[name] = left[0] if left else _PLAIN[len(chosen) % len(_PLAIN)]
    return chosen
