"""Typing mistakes: each gets one line that names the mistake and the nearest right word."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from cyclopts import App

from verus.commands.app import app
from verus.commands.verbs import VERBS
from verus.endpoints.program import ENDPOINT_VERBS

from .conftest import Command, Ran

COMPARE = "compare --trace rate:5 --duration 1 --json"

#: Words typed after `verus` → words of the answer.
MISTAKES = {
    # Verbs.
    "versu": "there is no verb `versu`; it is the command itself",
    "comapre": "there is no verb `comapre`; did you mean `compare`?",
    "prob client": "there is no verb `prob`; did you mean `probe`?",
    "run": "there is no verb `run`; there are compare,",
    "list scheme": "`verus list` has no `scheme`; did you mean `schemes`?",
    "list schemes cubc": "`verus list schemes` has no `cubc`; did you mean `cubic`?",
    "model two.model": "`verus model` has no `two.model`; did you mean `verus model info two.model`?",
    "trace show": "`verus trace` has no `show`; there are info, plot",
    # Options without a verb.
    "-v": "`-v` needs a verb, such as `verus compare -v` (`verus -V` states the version)",
    "--quiet": "`--quiet` needs a verb",
    "--csv": "`--csv` is no option of `verus` itself: options stand behind a verb",
    # Options of a verb.
    "compare --schem cubic": "`verus compare` has no `--schem`; did you mean `--scheme`?",
    "compare --csv": "`verus compare` has no `--csv`; did you mean `--format csv`?",
    "compare --rate 5": "did you mean `--trace rate:MBPS`?",
    "compare --rtt 40": "did you mean `--delay, which is one way: half the round trip`?",
    "compare -o here": "`verus compare` has no `-o`; did you mean `--out`?",
    "compare cubic": "`cubic` stands behind no option; did you mean `--scheme cubic`?",
    "compare rate:5": "`rate:5` stands behind no option; did you mean `--trace rate:5`?",
    "compare --out": "`verus compare`: `--out` needs a value (`verus compare --help`)",
    "play --export": "`--export` needs a value, as in `verus play --export site`",
    "compare --format pdf": "--format: must be one of terminal, csv, markdown, latex, not `pdf`",
    "compare --format json": "not `json`; JSON is `--json` (`verus compare --help`)",
    # Schemes, queues, channels.
    f"{COMPARE} --scheme verus,cubic": "names several schemes: they stand apart, as in `--scheme verus cubic`",
    f"{COMPARE} --scheme verus ratio=2": "is a key without its scheme: it stands behind a colon, as in `verus:ratio=2`",
    f"{COMPARE} --scheme verus,ratio=2": "keys stand behind a colon, as in `verus:ratio=2`",
    f"{COMPARE} --scheme versu": "unknown algorithm `versu`; the nearest is `verus`",
    f"{COMPARE} --scheme bbr3": "unknown algorithm `bbr3`; the nearest are `bbr`, `bbr1`",
    f"{COMPARE} --scheme verus:rato=2": "`verus` has no key `rato`; the nearest is `ratio`",
    f"{COMPARE} --scheme verus:ratio=fast": "ratio must be above 1 and at most 1000000, not `fast`",
    f"{COMPARE} --scheme verus:ratio=6..2": "ratio must be FROM..TO or FROM..TO..STEP that leads upwards, not `6..2`",
    f"{COMPARE} --scheme linux:cc=cubic": "it runs in real time only (--emulate)",
    f"{COMPARE} --queue drptail:bytes=9": "unknown kind `drptail`; the nearest is `droptail`",
    f"{COMPARE} --queue droptail:bytes=5": "--queue: must be one with room for a packet of 1500 bytes",
    f"{COMPARE} --queue droptail:bytes=120k": "`k` is none of its units (B, kB,",
    "compare --trace city-driving": "the nearest names are `city-driving-3g-down`",
    "compare --trace 12": "there is no such file; a constant rate is `rate:12`",
    "compare --trace rate:5MB": "`5MB` is not a rate in Mbit/s",
    "compare --trace rate:1e12": "units are k, M and G, with or without bps or bit/s, as in rate:500k or rate:12Mbps)",
    "compare --trace city-drivng-lte": "the nearest names are `city-driving-lte-down`, `city-driving-lte-up`",
    "compare --trace cs244-2017/city_drive_2min[100:300]": "it ends at 120 s, and the stretch goes to 300 s",
    # Numbers.
    f"{COMPARE} --loss half": "--loss: must be a share below 1, such as `0.005` or `0.5%`, not `half`",
    f"{COMPARE} --loss 50": "not `50`; did you mean `50%`?",
    "compare --duration 2x": "--duration: must be a number of seconds, not `2x`: `x` is none of its units",
    "compare --delay 5kB": "must be a number of milliseconds, not `5kB`",
    f"{COMPARE} --packet-bytes 20": "--packet-bytes: must be a whole number between 41 and 65535, not 20",
    f"{COMPARE} --mix verus*2 --flows 3": "--flows: is for --scheme: a mix has its own numbers",
    # Names.
    "reproduce fig99": "there is no experiment `fig99`; did you mean `sigcomm-fig09` or `model-fig09`?",
    "trace fetch cs24": "there is no recording or group `cs24`; did you mean `cs244`?",
    "analyze": "`verus analyze`: needs LOG, as in `verus analyze downlink.log`",
    "report": "`verus report`: needs DIR, as in `verus report verus-results/demo`",
    "report nowhere": "`nowhere`: there is no such folder",
    f"report {__file__}": "is neither a folder of results nor a qlog (.sqlog, .qlog)",
    # The verbs of the endpoint.
    "probe cleint localhost": "`verus probe` has no `cleint`; did you mean `client`? (`verus probe --help`)",
    "probe localhost": "`verus probe` has no `localhost`; did you mean `verus probe client localhost`?",
    "probe -c localhost": "`verus probe` has no `-c`; did you mean `verus probe client HOST`?",
    "probe client --port 3": "`verus probe client`: needs <HOST>, as in `verus probe client localhost`",
    "probe client localhost:port": "HOST: `port` is not a port (1 to 65535), not `localhost:port`",
    "probe client localhost:70 --port 71": "--port: 71 is not the port of `localhost:70`",
    "probe client localhost -P 0": "--flows: must be a whole number between 1 and 65535, not 0",
    "probe client localhost --durations 3": "`verus probe client` has no `--durations`; did you mean `--duration`?",
    "probe client localhost -t 2x": "must be seconds between 0.1 and 86400, not `2x`: `x` is none of its units",
    "probe client localhost cubic": "`cubic` stands behind no option; did you mean `--scheme cubic`?",
    "probe client localhost --scheme versu": "unknown algorithm `versu`; the nearest is `verus`",
    "probe client localhost --cc cubic": "`verus probe client` has no `--cc`; did you mean `--scheme`?",
    "probe client localhost --direction left": "--direction: must be one of up, down, both, not `left`",
    "probe client localhost -R --direction up": "`--reverse` cannot stand together with `--direction`",
    "probe client localhost -t 1 -t 2": "`--duration` can be given once",
    "probe client localhost --force": "needs --out <DIR> or --record <DIR>",
    "probe server --max-clients many": "--max-clients: must be a whole number, not `many`",
    "serve": "`verus serve`: needs <DIR>, as in `verus serve shared`",
    "serve -x": "`verus serve` has no `-x` (`verus serve --help`)",
    "serve token ad alice": "`verus serve token` has no `ad`; did you mean `add`?",
    "send": "`verus send`: needs <FILE>..., <HOST[/FOLDER]>, as in `verus send README.md localhost`",
    "send absent localhost": "cannot send `absent`: no such file or folder",
    "receive": "`verus receive`: needs <HOST/PATH>..., as in `verus receive localhost/docs",
    "receive a\x7fb/c": "verus: HOST/PATH: ",
    "receive localhost/x --out y": "`verus receive` has no `--out`; did you mean `--into`?",
    "shell -- cmd": "`verus shell`: needs --down <CHANNEL>, as in `sudo",
    "shell --down rate:5 ls": "`ls` stands behind no option; a program and its arguments stand behind `--`",
    "shell --rate 5 -- ls": "`verus shell` has no `--rate`; did you mean `--down rate:MBPS`?",
    "shell --down rate:5 --loss 50": "--loss: must be a probability below 1, such as 0.005 or 0.5%, not `50`",
    "shell --down rate:5 --queue droptial -- ls": "unknown kind `droptial`; the nearest is `droptail`",
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_gets_one_line_with_the_nearest_right_word(typed: str, verus: Command, tmp_path: Path) -> None:
    ran = verus(*typed.split()) if typed.split()[0] not in ENDPOINT_VERBS else other_process(typed, tmp_path)
    assert (ran.code, ran.out) == (2, ""), ran
    assert len(ran.err.splitlines()) == 1, ran.err
    assert ran.err.startswith("verus: ")
    assert MISTAKES[typed] in ran.err
    assert list(tmp_path.iterdir()) == []


def other_process(typed: str, folder: Path) -> Ran:
    """`verus TYPED` in a separate process, which becomes the endpoint's."""
    command = [sys.executable, "-m", "verus", *typed.split()]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


@pytest.mark.parametrize("words", [(), ("help",), ("--help",), ("-h",)])
def test_asking_for_help_in_any_way_is_no_mistake(words: tuple[str, ...], verus: Command) -> None:
    ran = verus(*words)
    assert ran.code == 0
    assert "Usage: verus" in ran.out
    assert "Examples:" in ran.out


def test_help_of_a_verb_may_come_first(verus: Command) -> None:
    assert verus("help", "trace", "plot").out == verus("trace", "plot", "--help").out != ""


@pytest.mark.parametrize("verb", [*VERBS, "sweep merge", "sweep status"])
def test_examples_stand_once_and_below_everything_else(verb: str, verus: Command) -> None:
    page = verus(*verb.split(), "--help").out
    _, *after = page.split("\nExamples:\n")
    assert len(after) == 1
    assert "Options:" not in after[0]
    assert page.rstrip().rpartition("\n")[2].startswith("More: https://")


def test_help_states_the_exit_code_of_a_missed_target(verus: Command) -> None:
    for verb in ("check", "reproduce"):
        assert "Exit code 3" in verus(verb, "--help").out


def test_version_may_be_asked_for_in_short(verus: Command) -> None:
    assert verus("-V").out == verus("--version").out != ""


def test_options_for_all_verbs_may_come_first(verus: Command) -> None:
    row = (*COMPARE.split(), "--scheme", "cubic")
    assert verus("-q", *row).out == verus(*row).out != ""


def test_a_run_in_which_nothing_can_arrive_is_warned_of(verus: Command, tmp_path: Path) -> None:
    path = ("--trace", "rate:5", "--scheme", "cubic", "--delay", "20s")
    warning = "Warning: nothing arrives: the delay, 20 s each way, is longer than the run, 3 s\n"
    ran = verus("compare", *path, "--duration", "3", "--json")
    assert (ran.code, ran.err) == (0, warning)
    assert verus("compare", *path, "--duration", "21", "--json").err == ""
    (tmp_path / "s.toml").write_text('trace = "rate:5"\nscheme = "cubic"\ndelay_ms = 20000\nduration_s = 3\n')
    ran = verus("sweep", "s.toml")
    assert (ran.code, ran.err.startswith(warning)) == (0, True)


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("trace", "info", "tr\udcff"), "verus: "),
        (("compare", "--trace", "tr\udcff"), "verus: --trace: "),
        (("compare", "--scheme", "tr\udcff"), "verus: --scheme: "),
    ],
)
def test_a_name_that_is_not_utf8_is_named(verus: Command, words: tuple[str, ...], place: str) -> None:
    ran = verus(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"{place}`tr")
    assert ran.err.endswith("is not UTF-8: use another name\n")


def test_a_log_of_another_kind_is_met_with_what_a_log_is(verus: Command, tmp_path: Path) -> None:
    for text, seems in [("1\n2\n", ", and this looks like a trace"), ('{"a": 1}\n', ", and this looks like JSON")]:
        (tmp_path / "log").write_text(text)
        ran = verus("analyze", "log")
        assert (ran.code, ran.out) == (2, "")
        assert f"a link log of Mahimahi has lines such as `74 + 1482`{seems}" in ran.err


def test_a_list_is_a_line_each_and_keys_are_on_request(verus: Command) -> None:
    for what, one in [("schemes", "verus"), ("queues", "codel"), ("traffic", "video"), ("jitter", "wifi")]:
        names = [json.loads(line)["name"] for line in verus("list", what, "--json").out.splitlines()]
        *lines, _, last = verus("list", what).out.splitlines()
        assert [line.split()[0] for line in lines] == names
        assert last == f"`verus list {what} NAME` lists its keys."
        assert "default" in verus("list", what, one).out


def test_a_list_tells_the_capacity_that_a_run_has(verus: Command) -> None:
    listed = {one["name"]: one for one in map(json.loads, verus("list", "channels", "--json").out.splitlines())}
    for channel in ("city-driving-3g-up", "shopping-mall-3g-up"):
        row = json.loads(verus("compare", "--trace", channel, "--scheme", "constant", "--json").out)
        # A run measures from the first packet on, which reaches the link later than its first opportunity.
        assert listed[channel]["seed_1_mbps"] == pytest.approx(row["capacity_mbps"], rel=2e-3)
        assert f" {listed[channel]['seed_1_mbps']:.2f} " in verus("list", "channels").out


def whole_numbers(app: App, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each option that takes only whole numbers, after its verb."""
    for name in app:
        if name.startswith("-"):
            continue
        verb = app[name]
        if verb.default_command is not None:
            for argument in verb.assemble_argument_collection():
                kinds = {argument.hint, *get_args(argument.hint)}
                flag = next((flag for flag in argument.names if flag.startswith("--")), None)
                if flag and kinds & {int, list[int]} and float not in kinds:
                    yield (*words, name), flag
        yield from whole_numbers(verb, (*words, name))


def app_of(words: tuple[str, ...]) -> App:
    verbs = app
    for word in words:
        verbs = verbs[word]
    return verbs


def test_no_whole_number_is_rounded(verus: Command) -> None:
    options = list(whole_numbers(app))
    assert {(("compare",), "--flows"), (("train",), "--users"), (("play",), "--port")} <= set(options), options
    for words, flag in options:
        needed = [
            argument.name.lower() for argument in app_of(words).assemble_argument_collection() if argument.required
        ]
        arguments = ["x" for name in needed if not name.startswith("-")]
        arguments += [word for name in needed if name.startswith("-") for word in (name, "x")]
        for text in ("2.5", "-0.5"):
            ran = verus(*words, *arguments, flag, text)
            assert (ran.code, ran.out) == (2, ""), (words, flag)
            assert f"{flag}: must be a whole number" in ran.err, (words, flag, ran.err)
            assert f"not `{text}`" in ran.err, (words, flag, ran.err)
