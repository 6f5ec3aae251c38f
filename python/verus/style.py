"""How a contestant looks, the same in every figure: a hue for the scheme, a shade for Verus's R, a dash for its mode.

The hues are Okabe and Ito's, which stay apart for colour-blind readers and on light and dark pages;
shapes repeat what hues say.
"""

from __future__ import annotations

import colorsys
import itertools
import json
from collections.abc import Collection, Iterable, Sequence
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
    """A look for each label, in the order of first appearance; no two look alike."""
    entries = {cell.label: cell for cell in cells}
    tried = sorted({_settings(cell) for cell in entries.values() if cell.scheme == "verus"})
    shades = dict(zip(tried, _between(_VERUS_SHADES, len(tried)), strict=True))
    chosen: dict[str, Look] = {}
    for label, cell in entries.items():
        own = Look(*_HUES.get(cell.scheme, (_OTHERS[0], "square")))
        if cell.scheme == "verus":
            dashed = cell.params.get("mode", "robust") != "robust"
            own = Look(shades[_settings(cell)], "circle", dashed=dashed)
        chosen[label] = own if own not in chosen.values() else _another({look.color for look in chosen.values()})
    return chosen


def _settings(cell: Cell) -> tuple[float, str]:
    """What decides the shade of Verus: R, which is 2 if it was left alone, and what else was set but for the mode."""
    others = {key: value for key, value in cell.params.items() if key not in ("ratio", "mode")}
    return float(cell.params.get("ratio", 2)), json.dumps(others, sort_keys=True)


def _between(colors: Sequence[str], count: int) -> list[str]:
    """The first `count` of these; if more are needed, as many at even steps from the first to the last.

    Example:
        >>> _between(("#000000", "#0000ff"), 3)
        ['#000000', '#000080', '#0000ff']
    """
    if count <= len(colors):
        return list(colors[:count])
    steps = [index * (len(colors) - 1) / (count - 1) for index in range(count)]
    return [_mixed(colors[int(step)], colors[min(int(step) + 1, len(colors) - 1)], step % 1) for step in steps]


def _mixed(one: str, other: str, share: float) -> str:
    parts = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(left + (right - left) * share):02x}" for left, right in parts)


def _another(taken: Collection[str]) -> Look:
    """A look of its own for what shares its scheme with something, or has no hue: hues a golden angle apart."""
    hues = (colorsys.hls_to_rgb(0.12 + index * 0.618034, 0.45, 0.5) for index in itertools.count())
    made = ("#" + "".join(f"{round(255 * part):02x}" for part in hue) for hue in hues)
    return Look(
        next(color for color in (*_OTHERS, *itertools.islice(made, len(taken) + 1)) if color not in taken), "square"
    )


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
