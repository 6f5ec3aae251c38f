"""How fast virtual time passes: processor time of one flow of Linux's Cubic at several rates, beyond the guest's start.

    python scripts/virtual_speed.py    # the table of docs/virtual.md: minutes

Each rate runs for a short and a longer time; the difference leaves out the start. Processor time hardly depends on how
busy the machine is.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

#: The two lengths in the guest's time, s, by the rate in Mbit/s.
SECONDS = {1: (5, 35), 12: (2, 12), 50: (2, 5), 200: (2, 4)}


def cost(rate: int, seconds: int, guests: int) -> float:
    """Processor time of that many runs side by side, s."""
    words = ["--scheme", "linux:cc=cubic", "--trace", f"rate:{rate}", "--queue", f"droptail:bytes={rate * 12500}"]
    repeated = ["--duration", str(seconds), "--repeat", str(guests), "--jobs", str(guests)]
    command = [sys.executable, "-m", "verus", "compare", "--virtual", *words, *repeated, "--json"]
    before = os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def table(rates: Sequence[int]) -> Iterator[str]:
    """A line for each rate and number of guests."""
    yield "| link, Mbit/s | guests | processor time of a start, s | of 10 s, s | guest's s a processor s |"
    yield "|---|---|---|---|---|"
    for rate in rates:
        first, last = SECONDS[rate]
        for guests in (1, 2):
            used = [cost(rate, seconds, guests) / guests for seconds in (first, last)]
            each = (used[1] - used[0]) / (last - first)
            yield f"| {rate} | {guests} | {max(used[0] - first * each, 0):.1f} | {10 * each:.1f} | {1 / each:.2f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=int, nargs="+", choices=SECONDS, default=list(SECONDS), metavar="MBPS")
    for line in table(parser.parse_args().rates):
        print(line, flush=True)
