"""Numbers for readers, and the definitions of delay."""

from __future__ import annotations

import math

#: The definition of delay, once, under every table that states one.
DELAY_NOTE = (
    "Delay is time spent in the bottleneck queue, per packet; propagation is not in it. "
    "Signal delay is what a packet would meet at a random instant."
)

#: The definition of the columns of files, where there are any.
FILES_NOTE = (
    "A file takes from the beginning of its connection to the arrival of its last byte: the mean, and the 95th "
    "percentile. Those that the end of the run cut off are not among them."
)

#: The definition of the columns of frames, where there are any.
FRAMES_NOTE = (
    "A frame takes from when it is due to the arrival of all of it: the mean, and the 99th percentile. One that takes "
    "longer than its deadline, or never came, is late."
)

#: The definition of delay over a live path.
LIVE_DELAY_NOTE = (
    "Delay is the one-way delay of a packet above the least of its run. It is an estimate, since the bottleneck of a "
    "live path cannot be observed; nor can its capacity, and so neither utilization nor signal delay is known."
)


def number(value: float | None, digits: int = 1) -> str:
    """A number for a column: three or so significant digits, an en dash where nothing was observed.

    Example:
        >>> number(1234.56), number(12.34), number(None)
        ('1235', '12.3', '–')
    """
    if value is None:
        return "–"
    return f"{value:.0f}" if digits == 1 and abs(value) >= 100 else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """A share as a percentage.

    Example:
        >>> percent(0.914), percent(0.00042), percent(0.0)
        ('91.4', '0.04', '0.0')
    """
    if value is None:
        return "–"
    return f"{100 * value:.2f}" if 0 < value < 0.001 else f"{100 * value:.1f}"


def size(count: int) -> str:
    """A number of bytes for readers.

    Example:
        >>> size(620_000_000), size(512)
        ('620 MB', '512 B')
    """
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"


def value_text(value: float | None, unit: str = "") -> str:
    """A measured value for a table: four digits, or up to six where it would seem to be a whole number.

    Example:
        >>> value_text(25488.0), value_text(0.98765, "ms"), value_text(1.0001), value_text(None)
        ('25488', '0.9877 ms', '1.0001', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    if value == round(value) or abs(value) >= 1000:
        return f"{value:.0f} {unit}".rstrip()
    texts = [f"{value:.{digits}g}" for digits in (4, 5, 6)]
    return f"{next((text for text in texts if '.' in text), texts[0])} {unit}".rstrip()
