"""Looks of contestants: twelve differ in colour on light and dark pages, more also in dashes."""

from __future__ import annotations

import itertools

import pytest

from verus.report import style
from verus.report.figures.series import PHASES
from verus.report.summary import Cell

ALGORITHMS = ["cubic", "newreno", "vegas", "sprout", "bbr1", "bbr", "copa", "ledbatpp", "c4", "vivace", "scream"]


def cell(scheme: str, **params: object) -> Cell:
    label = scheme + "".join(f" {key}={value}" for key, value in params.items())
    return Cell(label=label, scheme=scheme, params=params, flows=1, runs=(0,), means={}, halves={})


def luminance(color: str) -> float:
    """As WCAG 2.2 defines it."""
    red, green, blue = (style._linear(int(color[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted(luminance(color) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("first", ["verus", "prague", "model", "forward"])
def test_twelve_contestants_have_colours_far_apart(first: str) -> None:
    looks = style.looks([cell(first), *map(cell, ALGORITHMS)])
    colors = [look.color for look in looks.values()]
    assert len(colors) == 12
    assert min(itertools.starmap(style.distance, itertools.combinations(colors, 2))) >= style.NEAR
    assert not any(look.dash for look in looks.values())


def test_colours_are_seen_on_light_and_dark_pages() -> None:
    colors = {*style._PLAIN, *style._VERUS_SHADES, *(color for color, _ in style._HUES.values())}
    for page in ("#ffffff", "#0f1419"):
        assert min(contrast(color, page) for color in colors) >= 2.2


def test_more_than_twelve_of_one_scheme_differ_by_colour_or_dash() -> None:
    cells = [cell("cubic", beta=index) for index in range(20)]
    looks = style.looks(cells)
    drawn = {(look.color, look.dash) for look in looks.values()}
    assert len(drawn) == 20
    assert len({look.color for look in looks.values()}) >= 10


@pytest.mark.parametrize(("ratios", "least"), [((2, 4, 6), 0.15), ((2, 3, 4, 5, 6), style.NEAR)])
def test_shades_of_verus_follow_its_ratio_and_are_told_apart(ratios: tuple[int, ...], least: float) -> None:
    colors = [look.color for look in style.looks([cell("verus", ratio=ratio) for ratio in ratios]).values()]
    assert (colors[0], colors[-1]) == (style._VERUS_SHADES[0], style._VERUS_SHADES[-1])
    assert min(itertools.starmap(style.distance, itertools.combinations(colors, 2))) >= least
    named = style.named(f"Verus R={ratio}" for ratio in ratios)
    assert min(itertools.starmap(style.distance, itertools.combinations(named.values(), 2))) >= least


def test_phases_have_the_colours_of_no_contestant() -> None:
    contestants = {*style._PLAIN, *style._VERUS_SHADES, *(color for color, _ in style._HUES.values())}
    phases = [color for name, (_, color) in PHASES.items() if name != "steady"]
    assert min(style.distance(phase, color) for phase in phases for color in contestants) >= 0.12
    assert min(itertools.starmap(style.distance, itertools.combinations(phases, 2))) >= 0.12


def test_names_beyond_twelve_get_dashes() -> None:
    colors = style.named(f"line {index}" for index in range(15))
    assert len(set(list(colors.values())[:12])) == 12
    assert len(set(zip(colors.values(), style.dashes(colors).values(), strict=True))) == 15
