"""The verbs of `verus`, a row each: its purpose, its module, examples, and the page that says more.

Help, completion, man pages and the correction of mistyped words all read this table. It imports
nothing, so that the first page of help is printed at once.
"""

from __future__ import annotations

from typing import NamedTuple

from verus.endpoints.program import ENDPOINT_VERBS

#: The address of the pages.
PAGES = "https://github.com/verus-cc/verus/blob/main/"

SUMMARY = "Low-delay congestion control for links of unpredictable capacity, and a lab that measures it."


class Verb(NamedTuple):
    """A verb of the lab, or a group of them.

    Attributes:
        about: Its purpose, in a sentence.
        module: The module in `verus.commands` with a function named after the verb's last word, or
            `MODULE:NAME`; empty for a group.
        examples: Commands as a user may type them.
        page: The page that says more, below `PAGES`.
    """

    about: str
    module: str
    examples: tuple[str, ...]
    page: str = "README.md#compare"


#: By the words after `verus`; those of a group have a space between them.
VERBS = {
    "compare": Verb(
        "Run congestion controllers over channels, and compare them in a table and a report.",
        "compare",
        (
            "verus compare --trace city-driving-3g-up --scheme verus cubic bbr",
            "verus compare --trace rate:12 --scheme verus:ratio=2..6 --queue droptail:bytes=120kB --loss 0.5%",
            "verus compare --trace rate:12 --mix 'verus*2+cubic*2' --queue fq_codel --duration 2m --report",
        ),
    ),
    "sweep": Verb(
        "Run a study: any parameters over channels, queues and seeds, from a file.",
        "sweep:app",
        ("verus sweep study.toml", "verus sweep status study.toml", "verus sweep merge part1 part2 --out whole"),
        "docs/studies.md",
    ),
    "tune": Verb(
        "Search over a controller's constants: from a file, on some rows, then judged once on others.",
        "tune",
        ("verus tune gains.toml --out tuned", "verus tune gains.toml --out tuned --judge", "verus report tuned"),
        "docs/tutorials/tuning.md",
    ),
    "play": Verb(
        "Open the playground in the browser: watch a controller on a link, or set its window yourself.",
        "play",
        ("verus play", "verus play --export site"),
        "docs/play.md",
    ),
    "reproduce": Verb(
        "Run published experiments again, and check each claim of their papers.",
        "reproduce",
        ("verus reproduce list", "verus reproduce sigcomm-fig10 --built-in"),
        "docs/claims.md",
    ),
    "check": Verb(
        "Run published test suites against any controller, and compare with their thresholds.",
        "check",
        ("verus check --list", "verus check verus cubic"),
        "docs/check.md",
    ),
    "list": Verb(
        "List schemes, queues, channels, traffic and other choices, with keys, units and defaults.",
        "",
        ("verus list schemes", "verus list channels --json"),
    ),
    "list schemes": Verb(
        "Congestion controllers.", "catalogue", ("verus list schemes", "verus list schemes cubic bbr"), "docs/verus.md"
    ),
    "list queues": Verb("Queue disciplines.", "catalogue", ("verus list queues", "verus list queues codel")),
    "list jitter": Verb("Models of delay jitter behind the bottleneck.", "catalogue", ("verus list jitter",)),
    "list reorder": Verb("Models of packet reordering.", "catalogue", ("verus list reorder",)),
    "list loss": Verb("Loss models, such as Gilbert and Elliott's.", "catalogue", ("verus list loss gemodel",)),
    "list medium": Verb("Media that data and acknowledgements share.", "catalogue", ("verus list medium wifi",)),
    "list traffic": Verb(
        "Traffic models: what flows have to send, and when.",
        "catalogue",
        ("verus list traffic",),
        "docs/traffic.md",
    ),
    "list measures": Verb(
        "Quantities on which a test of `verus check` can set a threshold.",
        "catalogue",
        ("verus list measures",),
        "docs/check.md",
    ),
    "list scenario": Verb(
        "Fields of a scenario, with their ranges and defaults.", "catalogue", ("verus list scenario --json",)
    ),
    "list channels": Verb("Built-in channels and public recordings.", "catalogue", ("verus list channels",)),
    "trace": Verb(
        "Show, generate, convert and fit traces; download public recordings.",
        "",
        ("verus trace info city-driving-3g-up city-driving-3g-down",),
    ),
    "trace info": Verb("Statistics of a trace.", "trace", ("verus trace info city-driving-3g-up",)),
    "trace plot": Verb(
        "Draw a trace's rate over time.",
        "trace",
        ("verus trace plot city-driving-3g-up --out town.png --duration 2m",),
    ),
    "trace convert": Verb(
        "Turn a log of arrival times into a trace.",
        "trace",
        ("verus trace convert arrivals.log town.down.xz",),
    ),
    "trace generate": Verb(
        "Write a synthetic channel as a trace file.",
        "trace",
        ("verus trace generate city-driving-3g-up town.down --seed 4",),
    ),
    "trace fit": Verb(
        "Fit models to a recording or to a log of packets, as options of `verus compare`.",
        "trace",
        ("verus trace fit city-driving-3g-up",),
        "docs/paths.md",
    ),
    "trace fetch": Verb(
        "Download public recordings by name.",
        "trace",
        ("verus trace fetch", "verus trace fetch cs244"),
    ),
    "virtual": Verb(
        "Run real programs and Linux's TCP on virtual time: build the guest kernel, and see what it can do.",
        "",
        ("verus virtual build", "verus virtual status"),
        "docs/virtual.md",
    ),
    "virtual build": Verb(
        "Build the guest kernel from a source of Linux.",
        "virtual",
        ("verus virtual build", "verus virtual build --source linux-7.0.tar.xz"),
        "docs/virtual.md",
    ),
    "virtual status": Verb(
        "Say which guest kernel there is and what it can do.",
        "virtual",
        ("verus virtual status",),
        "docs/virtual.md",
    ),
    "train": Verb(
        "Learn a transition matrix of delay and window from a controller's runs.",
        "train",
        ("verus train two.model --users 2", "verus compare --scheme model:file=two.model verus"),
        "docs/model.md",
    ),
    "model": Verb("Show what a model of `verus train` contains.", "", ("verus model info two.model",), "docs/model.md"),
    "model info": Verb(
        "States, density, sizes and the matrix of a model.",
        "model",
        ("verus model info two.model",),
        "docs/model.md",
    ),
    "analyze": Verb(
        "Compute all metrics of a Mahimahi link log, or say what limited the flows of a capture.",
        "analyze",
        ("verus analyze downlink.log", "verus analyze town.pcapng --trace-out town.trace"),
        "docs/captures.md",
    ),
    "report": Verb(
        "Draw the report (HTML) of saved runs.",
        "report",
        ("verus report verus-results/demo",),
    ),
    "completion": Verb(
        "Print a script that completes the command in bash, zsh or fish.",
        "completion",
        (
            "verus completion bash > ~/.local/share/bash-completion/completions/verus",
            'verus completion zsh > "${fpath[1]}/_verus"',
            "verus completion fish > ~/.config/fish/completions/verus.fish",
        ),
    ),
    "man": Verb(
        "Write manual pages, one for each verb.",
        "man",
        ("verus man ~/.local/share/man/man1", "man verus-compare"),
    ),
}

#: Other programs' names for our options.
OTHERS_WORDS = {
    "--algorithm": "--scheme",
    "--cc": "--scheme",
    "--congestion": "--scheme",
    "--bandwidth": "--trace rate:MBPS",
    "--rate": "--trace rate:MBPS",
    "--bw": "--trace rate:MBPS",
    "--link": "--trace",
    "--channel": "--trace",
    "--channels": "--trace",
    "--buffer": "--queue droptail:bytes=N",
    "--rtt": "--delay, which is one way: half the round trip",
    "--latency": "--delay",
    "--time": "--duration",
    "--runs": "--repeat",
    "--csv": "--format csv",
    "--markdown": "--format markdown",
    "--latex": "--format latex",
    "--plot": "--report",
    "--html": "--report",
    "--output": "--out",
    "-o": "--out",
    "-t": "--duration",
    "-P": "--flows",
}


def first_words() -> list[str]:
    """All words that may directly follow `verus`."""
    return [name for name in VERBS if " " not in name] + list(ENDPOINT_VERBS)


def overview() -> str:
    """The first page of help, in the form of the endpoint's."""
    lab = {name: verb.about for name, verb in VERBS.items() if " " not in name}
    options = {
        "-h, --help": "Print help; for a verb: verus compare --help, or verus help compare",
        "-V, --version": "Print version",
        "-v, --verbose": "With a verb: report progress in detail",
        "-q, --quiet": "With a verb: print errors only",
    }
    width = max(map(len, (*lab, *ENDPOINT_VERBS, *options)))

    def rows(title: str, verbs: dict[str, str]) -> list[str]:
        return [f"{title}:", *(f"  {name:{width}}  {about.removesuffix('.')}" for name, about in verbs.items()), ""]

    return "\n".join(
        [
            SUMMARY,
            "",
            "Usage: verus [OPTIONS] <VERB>",
            "",
            *rows("The lab", lab),
            *rows("Live paths", ENDPOINT_VERBS),
            *rows("Options", options),
            after((VERBS["compare"].examples[0], "verus list schemes", "verus probe server"), "README.md"),
        ]
    )


def after(examples: tuple[str, ...], page: str) -> str:
    """The end of a page of help."""
    return "\n".join(["Examples:", *(f"  {example}" for example in examples), "", f"More: {PAGES}{page}"])
