"""Numbers in sentences, and the source of each: a command, or a table of another page.

    scripts/quoted.py lists the sentences whose numbers differ from their source scripts/quoted.py
    --write writes the source's numbers into the sentences

Run `make build` first. Numbers from another page follow that page, so make that one before (`make
figures`).
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

#: A number in a sentence: a single one, or the least and the most of several.
NUMBER = r"(\d+(?:\.\d+)?(?:–\d+(?:\.\d+)?)?)"

Row = dict[str, Any]


@dataclass(frozen=True)
class Quote:
    """A sentence with numbers.

    Attributes:
        page: Its page.
        text: Its words, with `{}` for each number; a line may end at any space.
        numbers: Computes the numbers, in order.
        command: The command that yields them; empty if there is none. A page that shows the command
            shows it in this form.
    """

    page: str
    text: str
    numbers: Callable[[], Sequence[str]]
    command: str = ""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the sentence, its numbers as groups."""
        words = [re.escape(part) for part in self.text.split("{}")]
        return re.compile(NUMBER.join(re.sub(r"(?:\\ )+", r"\\s+", part) for part in words))

    def find(self) -> re.Match[str]:
        """The current sentence.

        Raises:
            ValueError: The page does not have it exactly once.
        """
        matches = list(self.pattern.finditer((ROOT / self.page).read_text(encoding="utf-8")))
        if len(matches) != 1:
            raise ValueError(f"{self.page} has {len(matches)} times `{self.text}`")
        return matches[0]


@cache
def rows(command: str) -> tuple[Row, ...]:
    """The rows of a `verus compare`, one for each run."""
    words = [sys.executable, "-m", *shlex.split(command), "--json"]
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return tuple(json.loads(line) for line in ran.stdout.splitlines())


def rates(command: str, mix: str, sender: str, queue: str = "") -> list[float]:
    """The throughput of each flow of a sender in a mix, Mbit/s, the mean over the seeds."""
    matching = [row for row in rows(command) if row["scheme"] == mix and queue in row["queue"]]
    each = [[flow["throughput_mbps"] for flow in row["per_flow"] if flow["scheme"] == sender] for row in matching]
    return [sum(of_flow) / len(of_flow) for of_flow in zip(*each, strict=True)]


def span(values: Sequence[float]) -> str:
    """The least and the most, in the form of `verus compare`'s table."""
    from verus.report.table import span as written

    return written(min(values), max(values))


def of_page(page: str, text: str) -> Sequence[str]:
    """The numbers in a sentence, or a row of a table, of another page."""
    return Quote(page, text, tuple).find().groups()


@cache
def arena(sender: str, heading: str) -> tuple[str, ...]:
    """The numbers in a cell of `docs/arena.md`, without intervals, in the first table that has this heading."""
    heads: list[str] = []
    for line in (ROOT / "docs/arena.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            heads = []
        elif not heads:
            heads = cells
        elif cells[0] == sender and heading in heads:
            return tuple(re.findall(r"\d+(?:\.\d+)?", re.sub(r"± \S+", "", cells[heads.index(heading)])))
    raise ValueError(f"docs/arena.md has no `{heading}` of `{sender}`")


def arenas(heading: str, *senders: str) -> Callable[[], Sequence[str]]:
    """The first number of each sender's cell."""
    return lambda: [arena(sender, heading)[0] for sender in senders]


def _beside_cubic() -> Sequence[str]:
    one, other = BESIDE_CUBIC, f"{BESIDE_CUBIC} --queue fq_codel"
    return [
        f"{rates(command, f'{sender}+cubic', sender)[0]:.2f}"
        for command in (one, other)
        for sender in ("verus", "forward")
    ]


def _together() -> Sequence[str]:
    def of(sender: str, queue: str) -> list[float]:
        return rates(MIXES, f"{sender}*2+cubic*2", sender, queue)

    return [
        span([flow["throughput_mbps"] for flow in rows(FIVE)[0]["per_flow"]]),
        span(of("verus", "fq_codel")),
        span(of("forward", "fq_codel")),
        *(f"{rate:.2f}" for rate in sorted(of("verus", "red"))),
        span(of("forward", "red")),
    ]


def _python() -> Sequence[str]:
    from verus import Flow, Link, simulate

    link = Link.from_trace("city-driving-3g-up", delay_ms=20)
    result = simulate(link=link, flows=[Flow("verus"), Flow("verus", start_s=10)], duration_s=60, seed=7)
    first, second = (flow.metrics["throughput_mbps"] for flow in result.flows)
    return [f"{result.metrics['qdelay_p95_ms']:.1f}", f"{first:.2f}", f"{second:.2f}"]


def _judged() -> Sequence[str]:
    return of_page(
        "docs/forward.md",
        "| one flow, 15 judged recordings | {} % of the link, 95th percentile of queueing delay {} ms |",
    )


def _bad_wifi() -> Sequence[str]:
    fast, slow = of_page("docs/forward.md", "| bad Wi-Fi, 10 and 50 Mbit/s | {} and {} % used |")
    return sorted((fast, slow), key=float)


def _shares() -> Sequence[str]:
    text = (
        "Beside one Cubic in 1, 2 and 4 bandwidth-delay products it gets {}, {} and {} of a fair share at 10 Mbit/s, "
    )
    shares = of_page("docs/forward.md", text + "and {}, {} and {} at 50.")
    return [shares[at] for at in (1, 2, 4, 5)]


def _module() -> Sequence[str]:
    return [f"{(ROOT / 'python/verus/play/play.wasm').stat().st_size / 1e6:.1f}"]


def _minutes() -> Sequence[str]:
    tier = "| `make test` | the first tier: "
    (line,) = (
        text for text in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines() if text.startswith(tier)
    )
    return [f"{int(seconds) / 60:.0f}" for seconds in re.findall(r"(\d+) s ", line)]


BESIDE_CUBIC = "verus compare --trace rate:12 --mix verus+cubic forward+cubic --repeat 5"
FIVE = "verus compare --trace rate:20 --scheme verus --flows 5 --duration 60"
MIXES = "verus compare --trace rate:20 --mix 'verus*2+cubic*2' 'forward*2+cubic*2' --queue fq_codel red --duration 60"
TUTORIAL, ARENA = "docs/tutorials/compare.md", "docs/arena.md"
DOMINATED, DOMINATES = "dominated on, of 72", "dominates, pairs"

QUOTES = [
    Quote("README.md", "(about {} minutes once built, {} on a bare machine of two cores)", _minutes),
    Quote("README.md", "{} % of the link with a 95th percentile of {} ms", _judged),
    Quote("README.md", "on bad Wi-Fi ({} to {} % of the link,", _bad_wifi),
    Quote("README.md", "gets {} and {} of a fair share at 10 Mbit/s, {} and {} at 50.", _shares),
    Quote(
        "README.md",
        "Verus gets {} Mbit/s and `forward` {} (`" + BESIDE_CUBIC + "`), with `--queue fq_codel` {} and {}.",
        _beside_cubic,
        BESIDE_CUBIC,
    ),
    Quote(
        "README.md",
        '# a number: {} ms [flow.metrics["throughput_mbps"] for flow in result.flows] # {} for the first, {} for the '
        "one that joins 10 s later",
        _python,
    ),
    Quote(
        TUTORIAL,
        "Five flows of Verus get {} Mbit/s each. Beside Cubic it depends on the queue. With one for each flow"
        " (`fq_codel`), the flows of Verus get {} and those of `forward` {} of 20 Mbit/s. In one deep buffer "
        "(`red`), which Cubic fills, a sender that keeps the delay low gives way: one flow of Verus starves "
        "with {} and the other one takes the queue for its path and gets {}; `forward` gets {}.",
        _together,
        MIXES,
    ),
    Quote(ARENA, "**`forward`** is dominated on {} of 72 paths, Copa on {},", arenas(DOMINATED, "Forward", "Copa")),
    Quote(
        ARENA,
        "({} pairs of a path and a sender), then Copa with it ({}) and `forward` ({})",
        arenas(DOMINATES, "Copa, not competitive", "Copa", "Forward"),
    ),
    Quote(
        ARENA,
        "`forward` uses {} % at {} ms, Copa {} % at {} ms",
        lambda: [*arena("Forward", "bloated"), *arena("Copa", "bloated")],
    ),
    Quote(
        ARENA,
        "R = 2 is dominated on {} of 72 paths, most often by Copa, R = 6 on {},",
        arenas(DOMINATED, "Verus R=2", "Verus R=6"),
    ),
    Quote(ARENA, "R = 2 has {} % at {} ms", lambda: arena("Verus R=2", "bloated")),
    Quote(
        ARENA,
        "Jain's index is {} for Verus at R = 2, {} at R = 6, {} for `forward`, {} for Copa and {} for SCReAM.",
        arenas("10 flows, deep: Jain, ms", "Verus R=2", "Verus R=6", "Forward", "Copa", "SCReAM"),
    ),
    Quote(
        ARENA,
        "`forward` ({}) and Copa ({}) are less fair than Verus ({})",
        arenas("10 flows, shallow: Jain, ms", "Forward", "Copa", "Verus R=2"),
    ),
    Quote(
        ARENA,
        "Copa {} of a fair share, Verus at R = 2 {}, `forward` {}; Verus at R = 6 has {}.",
        arenas("beside Cubic, deep", "Copa", "Verus R=2", "Forward", "Verus R=6"),
    ),
    Quote(ARENA, "Verus keeps {} %, Cubic {} %", arenas("1 % lost", "Verus R=2", "Cubic")),
    Quote("docs/play.md", "The module has {} MB,", _module),
]


def other_numbers() -> list[tuple[Quote, Sequence[str]]]:
    """The sentences whose numbers differ from their source, with the source's numbers."""
    with ThreadPoolExecutor() as pool:
        return [
            (quote, numbers)
            for quote, numbers in zip(QUOTES, pool.map(lambda quote: quote.numbers(), QUOTES), strict=True)
            if quote.find().groups() != tuple(numbers)
        ]


def write(quote: Quote, numbers: Sequence[str]) -> None:
    """Puts these numbers into the sentence, without changing its line breaks."""
    path = ROOT / quote.page
    text, found = path.read_text(encoding="utf-8"), quote.find()
    for at, number in reversed(list(enumerate(numbers, 1))):
        text = text[: found.start(at)] + number + text[found.end(at) :]
    path.write_text(text, encoding="utf-8")


def main() -> int:
    """Lists outdated sentences, and with `--write` corrects them."""
    others = other_numbers()
    for quote, numbers in others:
        print(f"{quote.page}: `{quote.text}`: {', '.join(quote.find().groups())}, now {', '.join(numbers)}")
        if "--write" in sys.argv[1:]:
            write(quote, numbers)
    return 0 if "--write" in sys.argv[1:] else bool(others)


if __name__ == "__main__":
    sys.exit(main())
