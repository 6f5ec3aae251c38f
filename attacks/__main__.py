"""`python -m attacks`: run the attacks, and say what held."""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attacks import sandbox
from attacks.attack import Attack
from attacks.catalogue import ATTACKS, BASELINES
from attacks.endpoint import find_endpoint
from attacks.verdict import Verdict

#: An honest client's figures beside an attack: within 5 % of those without. Delays over the loopback are
#: tens of microseconds; 1 ms, which is 5 % of a path of 20 ms, comes on top.
SHARE, ALLOWED_MS = 0.05, 1.0

#: Where the table of all attacks is kept.
RESULT = sandbox.ROOT / "docs/results/attacks.txt"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m attacks", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="only this attack, or those against NAME")
    parser.add_argument("--list", action="store_true", help="list the attacks and what must happen")
    parser.add_argument("--quick", action="store_true", help="only those that take a few seconds")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each attack")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    parser.add_argument("--annex", action="store_true", help="keep that table in docs/results, if none fell")
    parser.add_argument("--no-honest", action="store_true", help="no honest client beside the attacks")
    parser.add_argument("--unprivileged", action="store_true", help="skip what this user may not do")
    parser.add_argument("--endpoint", type=Path, metavar="FILE", help="the binary to attack")
    return parser.parse_args()


def chosen(only: list[str] | None, quick: bool) -> list[Attack]:
    """The attacks to run.

    Raises:
        KeyError: If a name is none.
    """
    for name in only or ():
        if name not in ATTACKS and not any(attack.against == name for attack in ATTACKS.values()):
            raise KeyError(name)
    return [
        attack
        for attack in ATTACKS.values()
        if (not only or attack.name in only or attack.against in only) and (attack.quick or not quick)
    ]


def compare(attack: Attack, verdict: Verdict, alone: dict[str, float]) -> None:
    """Set the honest client's figures against those without the attack."""
    if not verdict.honest or not alone:
        return
    worst = []
    for name, without in alone.items():
        beside = verdict.honest.get(name)
        if beside is None:
            continue
        if name.endswith("_ms"):
            if beside > without * (1 + SHARE) + ALLOWED_MS:
                worst.append(f"{name} {beside:.1f} instead of {without:.1f}")
        elif abs(beside / without - 1) > SHARE:
            worst.append(f"{name} {beside:.2f} instead of {without:.2f}")
    verdict.figures["honest_ratio"] = round(verdict.honest["goodput_mbps"] / alone["goodput_mbps"], 3)
    if worst and attack.flood:
        verdict.seen.append(f"an honest client beside it: {', '.join(worst)} ({attack.flood})")
    elif worst:
        verdict.held = False
        verdict.wrong.append("an honest client beside it: " + ", ".join(worst))


def ratio(verdict: Verdict) -> str:
    """The honest client's goodput over that without the attack."""
    found = verdict.figures.get("honest_ratio")
    return "–" if found is None else f"{found:.2f}"


def table(verdicts: list[Verdict]) -> str:
    """The verdicts, as text."""
    from rich.console import Console
    from rich.table import Table

    drawn = Table(show_lines=True)
    for title in ("attack", "tried", "happened", "honest", "verdict"):
        drawn.add_column(title, overflow="fold")
    for verdict in verdicts:
        from rich.text import Text

        cells = (verdict.name, ATTACKS[verdict.name].tried, verdict.happened, ratio(verdict), verdict.word)
        drawn.add_row(*(Text(cell) for cell in cells))
    console = Console(width=None if sys.stdout.isatty() else 160)
    with console.capture() as capture:
        console.print(drawn)
    return capture.get()


def markdown(verdicts: list[Verdict]) -> str:
    """The verdicts, in Markdown."""

    def cell(text: str) -> str:
        return text.replace("|", "\\|").replace("<", "&lt;")

    lines = ["| attack | tried | happened | honest client | verdict |", "|---|---|---|---:|---|"]
    for verdict in verdicts:
        tried = ATTACKS[verdict.name].tried
        row = (f"`{verdict.name}`", cell(tried), cell(verdict.happened), ratio(verdict), verdict.word)
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def tell(attack: Attack, verdict: Verdict, as_json: bool) -> None:
    """Say what has just happened."""
    if as_json:
        print(json.dumps({**dataclasses.asdict(verdict), "tried": attack.tried}), flush=True)
    else:
        took = f"{verdict.seconds} s, honest {ratio(verdict)}"
        print(f"{verdict.word:7} {verdict.name} ({took}): {verdict.happened}", file=sys.stderr, flush=True)


def perform_all(attacks: list[Attack], binary: Path, *, honest: bool, as_json: bool) -> list[Verdict]:
    """Run attacks: one at a time where rates are measured, the others a few at a time."""
    measured = [attack for attack in attacks if attack.against in BASELINES]
    loads = [attack for attack in attacks if attack.against == "load"]
    others = [attack for attack in attacks if attack not in measured and attack not in loads]
    done: dict[str, Verdict] = {}
    alone: dict[str, dict[str, float]] = {}

    def perform(attack: Attack) -> None:
        done[attack.name] = sandbox.perform(attack, binary)
        tell(attack, done[attack.name], as_json)

    for attack in measured:
        if honest and attack.against not in alone:
            baseline = sandbox.perform(BASELINES[attack.against], binary, honest=True)
            alone[attack.against] = baseline.honest
            if not baseline.honest:
                print(f"an honest client without attacks fails: {baseline.happened}", file=sys.stderr)
        verdict = done[attack.name] = sandbox.perform(attack, binary, honest=honest)
        compare(attack, verdict, alone.get(attack.against, {}))
        tell(attack, verdict, as_json)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(perform, others))
    for attack in loads:
        perform(attack)
    return [done[attack.name] for attack in attacks]


def main() -> int:
    """Run what was asked for; the exit code."""
    args = arguments()
    try:
        attacks = chosen(args.only, args.quick)
    except KeyError as error:
        print(f"no attack {error}; --list names them", file=sys.stderr)
        return 2
    if args.list:
        for attack in attacks:
            print(f"{attack.name}: {attack.tried}\n    {attack.must}")
        return 0
    binary = args.endpoint or find_endpoint()
    if binary is None or not binary.is_file():
        print("no verus-endpoint: `make build` makes it; or set VERUS_ENDPOINT or --endpoint", file=sys.stderr)
        return 2
    lacking = {why for attack in attacks if (why := sandbox.missing(attack))}
    if lacking and not args.unprivileged:
        print(f"{'; '.join(sorted(lacking))} (--unprivileged skips what cannot be tried)", file=sys.stderr)
        return 2
    verdicts = perform_all(attacks, binary.resolve(), honest=not args.no_honest, as_json=args.json)
    fell = [verdict.name for verdict in verdicts if not verdict.held]
    skipped = sum(bool(verdict.skipped) for verdict in verdicts)
    if args.markdown:
        print(markdown(verdicts))
    elif args.annex and not fell and not skipped and len(attacks) == len(ATTACKS):
        RESULT.write_text(f"{markdown(verdicts)}\n")
    elif not args.json:
        print(table(verdicts))
    held = len(verdicts) - len(fell) - skipped
    print(f"{held} of {len(verdicts)} held, {len(fell)} fell, {skipped} skipped", file=sys.stderr)
    return 1 if fell else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was begun is ended first
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
