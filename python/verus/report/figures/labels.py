"""Puts names beside points without one covering another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Width of a letter and height of a line, in pixels, at the labels' font size.
_LETTER, _LINE = 6.6, 13.0


@dataclass(frozen=True)
class Box:
    """A rectangle on the panel: left and top edge, width and height, in pixels."""

    x: float
    y: float
    width: float
    height: float

    def overlap(self, other: Box) -> float:
        """The shared area, in square pixels."""
        across = min(self.x + self.width, other.x + other.width) - max(self.x, other.x)
        down = min(self.y + self.height, other.y + other.height) - max(self.y, other.y)
        return max(across, 0.0) * max(down, 0.0)


@dataclass(frozen=True)
class Label:
    """The place of a text (left edge, middle of the line), in pixels."""

    x: float
    y: float


def place(
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    panel: tuple[float, float],
    taken: Sequence[Box] = (),
    ends: Sequence[float] | None = None,
) -> list[Label]:
    """Chooses for each text the spot near its point that covers least.

    Args:
        points: Pixels of each point.
        texts: The names.
        panel: Width and height of the panel.
        taken: Other areas that must not be covered.
        ends: The end of a line that leaves each point to the right; the points themselves if None.

    Example:
        >>> near, far = place([(50.0, 50.0), (52.0, 52.0)], ["one", "two"], (300.0, 200.0))
        >>> abs(near.y - far.y) >= 13
        True
    """
    dots = [Box(x - 6, y - 6, 12, 12) for x, y in points]
    covered: list[Box] = [*taken, *dots]
    chosen: list[Label] = []
    ends = [x for x, _ in points] if ends is None else ends
    for (x, y), text, end in zip(points, texts, ends, strict=True):
        width = _LETTER * len(text)
        best: tuple[float, Box] | None = None
        for reach in (0, 1, 2, 3, 4):
            for left, top in _spots(x, y, width, reach, end):
                box = Box(left, top, width, _LINE)
                outside = box.width * box.height - box.overlap(Box(0, -8, panel[0] + 60, panel[1] + 8))
                cost = sum(box.overlap(other) for other in covered) + 3 * outside + 25 * reach
                if best is None or cost < best[0]:
                    best = (cost, box)
        assert best is not None  # there is at least one spot
        covered.append(best[1])
        chosen.append(Label(best[1].x, best[1].y + _LINE / 2))
    return chosen


def _spots(x: float, y: float, width: float, reach: int, end: float) -> list[tuple[float, float]]:
    """Corners of boxes around a point: above, below, right and left, `reach` lines further out."""
    out = 7 + reach * _LINE * 0.75
    return [
        (x - 4, y - out - _LINE),
        (x - 4, y + out),
        (x + 9, y - out - _LINE + 6),
        (max(x + 9, end + 5), y - _LINE / 2),
        (x - width + 4, y - out - _LINE),
        (x - width + 4, y + out),
        (x - width - 9, y - _LINE / 2),
    ]
