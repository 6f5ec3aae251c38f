"""Controllers written in Python: feedback and limits, names as schemes, and failures."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import verus as package
from verus import Controller, Feedback, Flow, Link, RunError, Timeout, _verus, compare, simulate
from verus.controller import text_of

from .conftest import Command

#: Additive increase and multiplicative decrease, with keys of each kind.
MINE = """
import dataclasses
import verus

@dataclasses.dataclass
class Kept:
    packets: int = 10

class Mine(verus.Controller):
    def __init__(self, *, gain: float = 1.0, least_packets: int = 2, halve: bool = True, name: str = "a", odd=None):
        if gain <= 0:
            raise ValueError(f"gain must be above 0, not {gain:g}")
        self.gain, self.least, self.halve, self.kept = gain, least_packets, halve, Kept()

    def on_start(self, now_s, packet_bytes):
        self.packet_bytes = packet_bytes
        self.window_bytes = 10 * packet_bytes

    def on_feedback(self, feedback):
        window = self.window_bytes / self.packet_bytes
        if feedback.lost:
            window = window / 2 if self.halve else window
        else:
            window += self.gain * len(feedback.acked) / window
        self.window_bytes = max(window, self.least) * self.packet_bytes

    def on_timeout(self, timeout):
        self.window_bytes = self.least * self.packet_bytes

    def probe(self):
        return {"kept_packets": self.kept.packets}
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


class Still(Controller):
    """Keeps one window."""

    def __init__(self, *, packets: int = 20) -> None:
        self.packets = packets

    def on_start(self, now_s: float, packet_bytes: int) -> None:
        self.window_bytes = self.packets * packet_bytes

    def on_feedback(self, feedback: Feedback) -> None: ...

    def on_timeout(self, timeout: Timeout) -> None: ...


def test_a_class_of_a_file_stands_in_a_table_beside_ours(verus: Command, mine: Path) -> None:
    ran = verus(
        *("compare", "--trace", "rate:8", "--duration", 5, "--json"),
        *("--scheme", "mine.py:Mine:gain=2,halve=yes", "--scheme", "newreno"),
    )
    assert ran.code == 0, ran.err
    own, newreno = map(json.loads, ran.out.splitlines())
    assert (own["scheme"], own["params"]) == ("Mine", {"gain": 2, "halve": "yes"})
    # The law is NewReno's except for its growth and its slow start, on a queue that both fill.
    assert own["utilization"] == pytest.approx(newreno["utilization"], abs=0.1)
    again = verus(
        *("compare", "--trace", "rate:8", "--duration", 5, "--json"),
        *("--scheme", "mine.py:Mine:gain=2,halve=yes", "--scheme", "newreno"),
    )
    assert again.out == ran.out


def test_a_table_and_a_page_are_made_of_it(verus: Command, mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = verus(
        "compare", "--trace", "rate:8", "--duration", 2, "--scheme", "mine.py:Mine:gain=2", "--out", out, "--report"
    )
    assert ran.code == 0, ran.err
    assert "Mine (gain=2)" in ran.out
    assert "Mine (gain=2)" in (out / "report.html").read_text()


def test_what_a_controller_shows_is_recorded(mine: Path) -> None:
    result = simulate(link=Link.constant(8), flows=[Flow(f"{mine}:Mine"), Flow("cubic")], duration_s=1)
    kept = result.series["kept_packets"]
    assert kept[0] == 10
    assert result.series["flow"][kept == 10].max() == 0


def test_a_file_may_have_an_equals_sign_in_its_name(mine: Path) -> None:
    path = mine.rename(mine.with_name("a=b.py"))
    assert Flow(f"{path}:Mine", gain=2).scheme == f"{path}:Mine:gain=2"


def test_classes_and_what_makes_them_are_given_as_they_are() -> None:
    partial = functools.partial(Still, packets=5)
    comparison = compare(traces=["rate:8"], schemes=[Still, partial, lambda: Still(packets=7)], duration_s=2)
    assert comparison.table.column("scheme").to_pylist() == ["Still", "Still", "<lambda>"]
    throughput = comparison.table.column("throughput_mbps").to_pylist()
    # Throughput of one packet of 1500 bytes per round trip: twice 20 ms, and 1.5 ms on the link.
    each = 1500 * 8 / 41_500
    assert throughput == pytest.approx([20 * each, 5 * each, 7 * each], rel=0.03)
    flow = simulate(link=Link.constant(8), flows=[Flow(Still, packets=10)], duration_s=2).flows[0]
    assert flow.metrics["throughput_mbps"] == pytest.approx(10 * each, rel=0.03)


def test_a_controller_may_simulate() -> None:
    """One that predicts tries its choices on a model of the path."""

    class Tried(Controller):
        def on_start(self, now_s: float, packet_bytes: int) -> None:
            self.window_bytes = 10 * packet_bytes

        def on_feedback(self, feedback: Feedback) -> None:
            pass

    class Predicting(Tried):
        def on_start(self, now_s: float, packet_bytes: int) -> None:
            tried = simulate(link=Link.constant(5), flows=[Flow(Tried)], duration_s=1)
            rate = tried.metrics["throughput_mbps"] * 1e6 / 8
            self.window_bytes = int(2 * rate * 0.04)

    result = simulate(link=Link.constant(5), flows=[Flow(Predicting)], duration_s=5)
    assert result.metrics["utilization"] > 0.9


def test_two_classes_of_one_name_are_two() -> None:
    def another() -> type[Controller]:
        class Still(Controller): ...

        return Still

    assert text_of(Still) == text_of(Still) != text_of(another())


def test_an_object_or_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match=r"scheme: an object of `Still` is one flow's: give the class"):
        Flow(Still())  # type: ignore[arg-type]
    for other in (dict, 3):
        with pytest.raises(ValueError, match=r"neither a text nor a verus\.Controller"):
            text_of(other)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="schemes: 3 is neither"):
        compare(schemes=[3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"makes a dict, not a verus\.Controller"):
        Flow(lambda: {})  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("hook", ["on_start", "on_sent", "on_feedback", "on_timeout", "on_tick", "probe"])
def test_a_method_that_would_not_run_is_refused(hook: str) -> None:
    async def waits(self: Controller, *_: object) -> None: ...

    def yields(self: Controller, *_: object) -> Iterator[None]:
        yield

    for method, message in ((waits, "must be a `def`, not an `async def`"), (yields, "must not `yield`")):
        with pytest.raises(ValueError, match=f"`{hook}` of `Mine` {message}"):
            Flow(type("Mine", (Still,), {hook: method}))


def test_a_pace_spreads_what_a_budget_allows_and_ticks_renew_it() -> None:
    ticks_s: list[float] = []
    budgets_left: list[float | None] = []

    class Paced(Controller):
        def on_start(self, now_s: float, packet_bytes: int) -> None:
            self.budget_bytes, self.pacing_mbps, self.next_tick_s = 30 * packet_bytes, 1.2, now_s + 0.5
            self.burst_bytes = packet_bytes

        def on_tick(self, now_s: float, in_flight_bytes: int) -> None:
            ticks_s.append(now_s)
            budgets_left.append(self.budget_bytes)
            self.budget_bytes, self.next_tick_s = 15_000, now_s + 0.5

        def on_sent(self, packet: package.Departure) -> None:
            assert packet.size_bytes == 1500

        def on_feedback(self, feedback: Feedback) -> None:
            assert feedback.acked[0].rtt_ms >= feedback.min_rtt_ms >= 40
            assert feedback.acked[0].packet.at_s < feedback.now_s

        def on_timeout(self, timeout: Timeout) -> None: ...

    flow = simulate(link=Link.constant(12), flows=[Flow(Paced)], duration_s=2).flows[0]
    assert ticks_s == [0.5, 1.0, 1.5, 2.0]
    sent = flow.sent_ms[flow.sent_ms < 500]
    assert len(sent) == 30  # no more than the budget
    assert budgets_left == [0, 0, 0, 0]
    assert np.diff(sent) == pytest.approx(10)  # 1500 bytes at 1.2 Mbit/s


def test_feedback_waits_for_more_where_the_class_says_that_it_may() -> None:
    feedbacks: list[tuple[float, float, int]] = []

    class Each(Still):
        def on_feedback(self, feedback: Feedback) -> None:
            first = feedback.acked[0]
            feedbacks.append((first.packet.at_s + first.rtt_ms / 1e3, feedback.now_s, len(feedback.acked)))
            assert feedback.newly_delivered_bytes == 1500 * len(feedback.acked)
            numbers = [acked.packet.number for acked in feedback.acked]
            assert numbers == sorted(numbers)

    class Together(Each):
        feedback_every_ms = 5

    # One window of 20 packets per 40 ms and more: the limit does not depend on the time of
    # feedback.
    link = Link.constant(12)
    each = simulate(link=link, flows=[Flow(Each)], duration_s=1)
    one_by_one, feedbacks = feedbacks, []
    together = simulate(link=link, flows=[Flow(Together)], duration_s=1)
    assert together.metrics == each.metrics
    assert {count for *_, count in one_by_one} == {1}
    assert sum(count for *_, count in feedbacks) >= 0.98 * len(one_by_one)
    assert len(feedbacks) < 0.3 * len(one_by_one)
    # The last acknowledgement of each group came no more than 5 ms after the first.
    assert all(now_s - first_s <= 0.005 + 1e-9 for first_s, now_s, _ in feedbacks)


@pytest.mark.parametrize("every", [0, -1, 1001, "5", True, float("nan")])
def test_what_is_no_time_for_feedback_to_wait_is_refused(every: object) -> None:
    class Odd(Still):
        feedback_every_ms = every  # type: ignore[assignment]

    with pytest.raises(ValueError, match="feedback_every_ms must be above 0 and at most 1000, or None, not "):
        simulate(link=Link.constant(12), flows=[Flow(Odd)], duration_s=0.1)


class Marked(Still):
    """Keeps a window that fills a queue, and records the marks in its feedback."""

    marked = 0

    def on_feedback(self, feedback: Feedback) -> None:
        self.marked += feedback.marked_packets

    def probe(self) -> dict[str, float]:
        return {"marked_packets": self.marked}


@pytest.mark.parametrize(("ecn", "hears"), [("classic", True), ("l4s", True), (None, False)])
def test_it_hears_of_marks_if_it_says_how_it_answers_them(ecn: Literal["classic", "l4s"] | None, hears: bool) -> None:
    class Mine(Marked):
        pass

    Mine.ecn = ecn
    link = Link.constant(8, queue="codel:ecn=yes")
    result = simulate(link=link, flows=[Flow(Mine, packets=100)], duration_s=2)
    marked = result.series["marked_packets"][-1]
    assert (marked > 10) == hears
    assert (result.metrics["drops"] == 0) == hears


def test_its_random_numbers_follow_the_seed() -> None:
    class Dice(Still):
        def on_feedback(self, feedback: Feedback) -> None:
            self.window_bytes = self.random.randint(2, 30) * 1500

    results = [
        simulate(link=Link.constant(8), flows=[Flow(Dice), Flow(Dice)], duration_s=2, seed=seed) for seed in (1, 1, 2)
    ]
    windows = [[flow.window_bytes.tolist() for flow in run.flows] for run in results]
    assert windows[0] == windows[1] != windows[2]
    assert windows[0][0] != windows[0][1]


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        (
            "mine.py:Mine:gian=2",
            "`Mine` has no key `gian`; its keys are gain, least_packets, halve, name, odd (did you",
        ),
        ("mine.py:Mine:gain=two", "gain must be a number, not `two`"),
        ("mine.py:Mine:gain=nan", "gain must be a number, not `nan`"),
        ("mine.py:Mine:gain", "each parameter must be key=value, not `gain`"),
        ("mine.py:Mine:gain=1,gain=2", "gain must be given once, not `2`"),
        ("mine.py:Mine:gain=-1", "gain must be above 0, not -1"),
        ("mine.py:Mine:least_packets=1.5", "least_packets must be a whole number, not `1.5`"),
        ("mine.py:Mine:halve=maybe", "halve must be one of yes, no, not `maybe`"),
        ("mine.py:Mien", "`mine.py` has no class `Mien`; it has Mine (did you mean `Mine`?)"),
        ("mine.py:Kept", "`Kept` of `mine.py` is not derived from verus.Controller"),
        ("mine.py", "needs the name of a class: `mine.py:Mine`"),
        ("none.py:Mine", "`none.py` cannot be read: No such file or directory"),
        ("broken.py:Mine", "`broken.py` cannot be loaded: line 2: "),
        (
            "raises.py:Mine",
            "`raises.py` cannot be loaded: line 1: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("ends.py:Mine", "`ends.py` cannot be loaded: line 1: SystemExit: 3"),
        ("empty.py:Mine", "`empty.py` has no class derived from verus.Controller"),
        ("needs.py:Needs", "gain must be given, as in `Needs:gain=1`"),
        ("python:Nobody", "no class `Nobody` was given in this process: name its file, as in `mine.py:Nobody`"),
    ],
)
def test_what_is_wrong_with_a_scheme_is_one_message(
    verus: Command, mine: Path, tmp_path: Path, scheme: str, message: str
) -> None:
    (tmp_path / "broken.py").write_text("class Mine:\n  def (\n")
    (tmp_path / "raises.py").write_text("import no_such_module\n")
    (tmp_path / "ends.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "empty.py").write_text("import verus\n")
    (tmp_path / "needs.py").write_text(
        "import verus\nclass Needs(verus.Controller):\n  def __init__(self, gain): pass\n"
    )
    ran = verus("compare", "--trace", "rate:8", "--scheme", scheme)
    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("first_line", ["", "from __future__ import annotations\n"])
def test_a_key_is_of_the_kind_that_its_annotation_or_its_default_says(first_line: str, tmp_path: Path) -> None:
    keys = 'a: int = 2, b: "int" = 2, c: "int | None" = None, d: "Missing" = 2, e=2, f: "float" = 2, g: "Own" = 2'
    (tmp_path / "mine.py").write_text(
        f"{first_line}import verus\nOwn = int\nclass Mine(verus.Controller):\n  def __init__(self, {keys}): pass\n"
    )
    for key in "abcdeg":
        with pytest.raises(ValueError, match=f"{key} must be a whole number, not `0x10`"):
            Flow(f"{tmp_path}/mine.py:Mine:{key}=0x10")
    with pytest.raises(ValueError, match="f must be a number, not `0x10`"):
        Flow(f"{tmp_path}/mine.py:Mine:f=0x10")


def test_what_a_controller_prints_is_no_result(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "import verus\nprint('loads')\n"
        "class Loud(verus.Controller):\n  def __init__(self): print('begins'); self.window_bytes = 15000\n"
        "  def on_feedback(self, feedback): print('hears')\n"
    )
    ran = verus("compare", "--trace", "rate:8", "--scheme", "loud.py:Loud", "--duration", "1", "--json")
    assert [json.loads(row)["scheme"] for row in ran.out.splitlines()] == ["Loud"]
    assert {"loads", "begins", "hears"} <= set(ran.err.splitlines())


def test_an_interrupt_while_a_file_is_loaded_ends_the_command(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("raise KeyboardInterrupt\n")
    ran = verus("compare", "--trace", "rate:8", "--scheme", "slow.py:Mine")
    assert (ran.code, ran.err) == (130, "verus: interrupted; nothing was written\n")


def test_a_class_runs_in_the_simulator_only(verus: Command, mine: Path) -> None:
    ran = verus("compare", "--trace", "rate:8", "--scheme", "mine.py:Mine", "--emulate")
    assert (ran.code, ran.err) == (2, "verus: --scheme: `mine.py:Mine` is Python's: it runs in the simulator only\n")


def test_the_playground_says_that_it_takes_none(verus: Command, mine: Path) -> None:
    ran = verus("play", "--scheme", "mine.py:Mine")
    assert ran.code == 2
    assert ran.err.startswith("verus: --scheme: is chosen in the page, among those of `verus list schemes`")


def failing(body: str, **more: str) -> str:
    methods = {"on_start": "self.window_bytes = 30000", "on_feedback": "pass", "on_timeout": "pass", **more}
    defined = "".join(
        f"    def {name}(self, *told):\n{textwrap.indent(text, ' ' * 8)}\n" for name, text in methods.items()
    )
    return f"import verus\nclass Bad(verus.Controller):\n    {body}\n{defined}"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            failing("", on_feedback="if told[0].now_s > 1: 1 / 0"),
            r"`bad.py`: Bad.on_feedback at 1\.0\d* s: ZeroDivisionError: division by zero \(line \d+\)",
        ),
        (
            failing("", on_feedback="self.window_bytes = float('nan')"),
            r"Bad.on_feedback at .* window_bytes must be a number of bytes, between 0 and 1073741824, or None, not nan",
        ),
        (failing("", on_feedback="self.window_bytes = -1"), r"window_bytes must be .* not -1"),
        (
            failing("", on_feedback="self.window_bytes = 0"),
            r"`bad.py:Bad` at 6\.0* s: it will never send again: .* its window is 0 bytes",
        ),
        (failing("", on_feedback="self.pacing_mbps = 'fast'"), r"pacing_mbps must be .* not 'fast'"),
        (failing("", on_feedback="self.window_bytes = True"), r"window_bytes must be .* not True"),
        (
            failing("", on_start="self.budget_bytes = 3"),
            r"it will never send again: .* its budget 3 bytes",
        ),
        (
            failing("", on_start="pass"),
            r"Bad.on_start at 0\.0* s: it set none of window_bytes, budget_bytes and pacing",
        ),
        (
            failing("", on_start="self.window_bytes = 3000; self.next_tick_s = 1", on_tick="pass"),
            r"Bad.on_tick at 1\.0* s: next_tick_s must be after now, or None, not 1",
        ),
        (failing("", on_feedback="raise SystemExit(3)"), r"Bad.on_feedback at .* SystemExit: 3"),
        (failing("", probe="return 3"), r"Bad.probe: TypeError: it must return a dict"),
        *(
            (
                failing("", probe=f"return {{'{name}': 1.0}}"),
                rf"Bad.probe: ValueError: `{name}` is a column of every ser",
            )
            for name in ("throughput_mbps", "window_bytes", "run", "phase")
        ),
        (
            failing("call_limit_s = 0.2", on_feedback="while told[0].now_s > 1: pass"),
            r"Bad.on_feedback at 1\.0\d* s: took longer than 0\.2 s \(`call_limit_s` of the class\)",
        ),
        (
            failing("run_limit_s = 0.2", on_start="self.window_bytes = 15000; self.next_tick_s = 0.0")
            + "    def on_tick(self, now_s, in_flight_bytes):\n        self.next_tick_s = now_s + 1e-6\n",
            r"Bad.on_\w+ at .* s: the run took longer than 0\.2 s \(`run_limit_s` of the class\)",
        ),
    ],
)
def test_a_controller_that_fails_harms_no_other_run(verus: Command, tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "bad.py").write_text(source)
    # Ten simulated minutes, so that the runs to be cancelled do not end by themselves.
    settings = ("--trace", "rate:2", "--duration", 600)
    ran = verus("compare", *settings, "--scheme", "bad.py:Bad", "--scheme", "cubic", "--out", "out", "--report")
    assert ran.code == 1
    assert "Cubic" in ran.out
    assert (tmp_path / "out" / "report.html").exists()
    last = ran.err.splitlines()[-1]
    assert last.startswith("verus: Bad over rate:2, seed 1: ")
    assert re.search(message, last), last


def test_a_run_of_more_events_than_it_may_take_fails_alone(verus: Command) -> None:
    settings = ("--trace", "rate:8", "--duration", 5, "--max-events", 2000, "--json")
    ran = verus("compare", *settings, "--scheme", "constant:rate_mbps=0.1", "cubic")
    assert ran.code == 1
    assert [json.loads(line)["scheme"] for line in ran.out.splitlines()] == ["constant"]
    assert re.fullmatch(
        r"verus: Cubic over rate:8, seed 1: the run took more than 2000 events \(max_events\) up to [1-4]\.\d{6} s\n",
        ran.err,
    )


def test_where_all_fail_nothing_is_written(verus: Command, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(failing("", on_feedback="1 / 0"))
    ran = verus(
        "compare", "--trace", "rate:2", "--duration", 2, "--scheme", "bad.py:Bad", "--repeat", 2, "--out", "out"
    )
    assert ran.code == 1
    assert ran.err.startswith("verus: Bad over rate:2, seed 1: `bad.py`: Bad.on_feedback at")
    assert ran.err.endswith("(and 1 more)\n")
    assert not (tmp_path / "out").exists()


def test_python_is_told_of_failures_with_what_the_others_came_to() -> None:
    class Bad(Still):
        def on_feedback(self, feedback: Feedback) -> None:
            raise KeyError("no such thing")

    with pytest.raises(RunError, match=r"Bad\.on_feedback at .* KeyError: 'no such thing'") as caught:
        compare(traces=["rate:8"], schemes=[Bad, "cubic"], duration_s=1)
    assert caught.value.finished.table.column("scheme").to_pylist() == ["cubic"]
    with pytest.raises(RunError, match=r"KeyError"):
        simulate(link=Link.constant(8), flows=[Flow(Bad)], duration_s=1)


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    assert _verus.check_scheme(f"{path}:Mine")["label"] == "Mine"
    path.write_text(MINE.replace("class Mine", "class Changed"))
    with pytest.raises(ValueError, match="it has Changed"):
        _verus.check_scheme(f"{path}:Mine")


def test_runs_on_many_threads_are_what_they_are_on_one(mine: Path) -> None:
    def scenario(seed: int) -> str:
        flows = [{"scheme": f"{mine}:Mine"}, {"scheme": "verus:ratio=2"}]
        return json.dumps({"trace": "rate:8", "flows": flows, "duration_s": 2, "seed": seed, "loss": 0.001})

    def metrics(threads: int | None) -> list[object]:
        ended = _verus.simulate_many([scenario(seed) for seed in range(6)], threads)
        return [end["metrics"] for end in ended if not isinstance(end, RuntimeError)]

    assert metrics(1) == metrics(2) == metrics(None)
    assert len(metrics(1)) == 6


def test_ctrl_c_ends_runs_of_python(mine: Path) -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        simulate(link=Link.constant(8), flows=[Flow(f"{mine}:Mine")], duration_s=1e5)
    timer.join()


def test_ctrl_c_ends_a_call_that_does_not_end_by_itself(tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    endless = (
        "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass\n" + f"open({str(ended)!r}, 'x')"
    )
    (tmp_path / "bad.py").write_text(failing("call_limit_s = 1e9", on_feedback=endless))
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        simulate(link=Link.constant(8), flows=[Flow(f"{tmp_path}/bad.py:Bad")], duration_s=1)
    timer.join()
    assert not ended.exists()


@pytest.mark.parametrize("value", ["-1", "0", "float('nan')", "'x'", "None", "True"])
def test_limits_of_a_class_are_times_above_0(value: str, tmp_path: Path) -> None:
    for name in ("call_limit_s", "run_limit_s"):
        (tmp_path / "bad.py").write_text(failing(f"{name} = {value}"))
        with pytest.raises(ValueError, match=f"{name} must be a number of seconds above 0, not "):
            Flow(f"{tmp_path}/bad.py:Bad")
