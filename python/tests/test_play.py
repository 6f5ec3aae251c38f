"""The playground: its numbers are the native simulator's, and the page's controls work."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from verus import _verus
from verus.commands import play
from verus.lab import metric_rows
from verus.report import style

if TYPE_CHECKING:
    from playwright.sync_api import Page

Chromium = Callable[..., "Page"]
Command = Callable[..., Any]

BIN = Path(sys.executable).parent

DEEP = "droptail:bytes=1500000"


def flows(*schemes: str) -> list[dict[str, Any]]:
    return [{"scheme": scheme} for scheme in schemes]


#: Every queue, random loss, acknowledgements that queue and get lost, channels that are drawn by chance, traffic, many
#: flows; and whatever takes an exponential, a logarithm or a power.
SCENARIOS: Mapping[str, dict[str, Any]] = {
    "cubic over a deep buffer": {"trace": "rate:12", "queue": DEEP, "flows": flows("cubic")},
    "verus on a channel": {"trace": "city-driving-3g-up", "flows": flows("verus", "verus:ratio=4")},
    "BBRs over CoDel": {"trace": "rate:8", "queue": "codel", "loss": 0.01, "flows": flows("bbr", "bbr1")},
    "sprout on a channel": {"trace": "city-waterfront-lte-down", "queue": DEEP, "flows": flows("sprout")},
    "vivace and copa over FQ-CoDel": {"trace": "rate:20", "queue": "fq_codel", "flows": flows("vivace", "copa")},
    "prague and cubic over DualPI2": {"trace": "rate:10", "queue": "dualpi2", "flows": flows("prague", "cubic")},
    "ten flows over RED": {"trace": "rate:20", "flows": flows(*["cubic", "verus"] * 5)},
    "acknowledgements over PIE": {
        "trace": "rate:16",
        "queue": "pie",
        "ack": "rate:0.5",
        "ack_loss": 0.02,
        "ack_every": 2,
        "flows": flows("newreno", "ledbatpp"),
    },
    "media on a channel": {
        "trace": "highway-driving-lte-down",
        "queue": DEEP,
        "jitter": "gauss:mean_ms=5",
        "flows": [{"scheme": "scream", "traffic": "video"}, *flows("c4", "forward")],
    },
    "files on a changing path": {
        "trace": "rate:6",
        "queue": "droptail:bytes=60000",
        "changes": [{"at_s": 4, "rate_mbps": 1.5}, {"at_s": 9, "rate_mbps": 12, "delay_ms": 60}],
        "reorder": "uniform:p=0.05,max_ms=30",
        "flows": [
            {"scheme": "vegas", "traffic": "files:bytes=300000,gap_s=0.2"},
            {"scheme": "cubic", "traffic": "c.r1002"},
        ],
    },
}


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of a playground that is being served."""
    try:
        content = play.files()
    except FileNotFoundError as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))
    with play.server(content, None) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}/"
        serving.shutdown()


def native(scenario: dict[str, Any]) -> dict[str, Any]:
    (outcome,) = _verus.simulate_many([json.dumps(scenario)], 1, None, False)
    return dict(outcome["metrics"])


#: Runs a scenario in a separate worker, in steps of a frame's length, and returns its metrics as
#: JSON.
IN_A_WORKER = """async (scenario) => {
  const worker = new Worker("worker.js");
  const ask = (question) => new Promise((resolve, reject) => {
    worker.onmessage = ({data}) => data.problem ? reject(new Error(data.problem)) : resolve(data.told);
    worker.postMessage({id: 0, ...question});
  });
  await ask({what: "open", scenarios: [scenario]});
  let told;
  for (let at = 0; !told?.results?.[0].over; at += 0.0731)
    told = await ask({what: "advance", at, results: at >= scenario.duration_s});
  worker.terminate();
  return JSON.stringify(told.results[0].metrics);
}"""


@pytest.mark.parametrize("name", SCENARIOS)
def test_numbers_are_the_native_ones_to_the_last_digit(name: str, site: str, chromium: Chromium) -> None:
    scenario = {"duration_s": 12.0, "seed": 3, **SCENARIOS[name]}
    page = chromium(f"{site}uplot.LICENSE")  # of the same origin, and nothing runs on it
    metrics = json.loads(page.evaluate(IN_A_WORKER, scenario))
    expected = native(scenario)
    assert expected["departures"] > 500
    assert metrics.keys() == expected.keys()
    assert metrics == expected


def until(page: Page, condition: str) -> None:
    """Waits until it holds. Playwright's own way evaluates text in the page, which the page forbids."""
    end = time.monotonic() + 60
    while not page.evaluate(f"Boolean({condition})"):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(30)


def settled(page: Page) -> None:
    """Waits until the page shows a run."""
    until(page, "globalThis.playground?.run()?.frames && document.querySelector('.scene canvas')")


def over(page: Page) -> None:
    """Waits until the run is over."""
    until(page, "globalThis.playground?.run()?.over && playground.run().results[0].over")


#: Number of colours on a canvas.
COLOURS = """(canvas) => {
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const seen = new Set();
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3]) seen.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]);
  return seen.size;
}"""


def test_it_opens_on_a_bufferbloated_link_with_everything_drawn(site: str, chromium: Chromium) -> None:
    page = chromium(site)
    settled(page)
    page.wait_for_timeout(500)
    canvases = page.query_selector_all("canvas")
    drawn = [canvas for canvas in canvases if canvas.is_visible()]
    assert len(drawn) == 5, "four charts and the packets"
    for canvas in drawn:
        assert canvas.evaluate(COLOURS) >= 3, "a ground, lines and a sender's colour at the least"
    metrics = page.evaluate("playground.run().results[0].metrics")
    assert metrics["qdelay_p95_ms"] > 200
    assert "1500" in page.inner_text(".scene") or page.evaluate("playground.state().queue") == DEEP


def test_one_click_changes_the_sender_and_what_becomes_of_the_queue(site: str, chromium: Chromium) -> None:
    page = chromium(site)
    settled(page)
    before = page.evaluate("playground.run().frames[0][2]")
    page.click("#schemes button[value=verus]")
    until(page, "playground.run().lanes[0].scheme === 'verus'")
    assert page.evaluate("playground.run().frames[0][2]") < before / 3
    assert page.evaluate("playground.run().at") >= 8, "at the same instant of the same link"
    assert "scheme=verus" in page.url
    assert "--scheme verus" in page.inner_text("#command")
    assert page.get_attribute("#schemes button[value=verus]", "aria-checked") == "true"


def test_a_sender_has_the_colour_that_it_has_in_figures(site: str) -> None:
    with urllib.request.urlopen(f"{site}charts.js", timeout=10) as answer:
        hues = dict(re.findall(r'(\w+): \["(#\w{6})"', answer.read().decode()))
    palette = {scheme: color for scheme, (color, _) in style._HUES.items() if scheme != "model"}
    assert {scheme: hues[scheme] for scheme in palette} == palette
    assert hues["verus"] in style._VERUS_SHADES


def test_time_goes_on_and_stops_when_it_is_told_to(site: str, chromium: Chromium) -> None:
    page = chromium(f"{site}#speed=4")
    settled(page)
    at = page.evaluate("playground.run().frames[0][0]")
    until(page, f"playground.run().frames[0][0] > {at + 1}")
    page.click("#play")
    page.wait_for_timeout(300)
    at = page.evaluate("playground.run().frames[0][0]")
    page.wait_for_timeout(300)
    assert page.evaluate("playground.run().frames[0][0]") == at
    page.click("#again")
    until(page, f"playground.run().frames[0][0] < {at}")


ADDRESSES = [
    "#scheme=bbr&beside=verus&trace=city-driving-3g-up@4&queue=codel&delay=35&loss=0.01&flows=3&duration=20&seed=7&speed=16",
    "#scheme=verus:ratio=4&draw=12,4,0,20.5,20.5&duration=20&speed=16",
    "#duration=20&speed=16",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_a_run_and_its_command_the_same(
    address: str, site: str, chromium: Chromium, tmp_path: Path
) -> None:
    page = chromium(site + address)
    settled(page)
    state = page.evaluate("playground.state()")
    parameters = dict(part.split("=", 1) for part in address[1:].split("&"))
    assert {key: str(state[key]) for key in parameters} == parameters
    again = page.evaluate(
        "async () => { const m = await import('./scenario.js'); return m.write(playground.state()); }"
    )
    assert again == address
    over(page)
    shown = page.evaluate("playground.run().results.map(({metrics}) => metrics)")
    command = page.inner_text("#command")
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    shell = ["bash", "-c", f"{command} --json"]
    ran = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    printed = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(printed) == len(shown) == (2 if "beside" in parameters else 1)
    for row, metrics in zip(printed, shown, strict=True):
        assert all(row[name] == metrics[name] for name in metric_rows.NUMBERS)


def test_what_an_address_has_wrong_is_told_and_the_rest_is_as_by_default(site: str, chromium: Chromium) -> None:
    page = chromium(f"{site}#scheme=cubik&flows=0&delay=x&draw=a,b&nonsense=1&seed=1.5&constructor=2")
    page.wait_for_selector("#problem:not([hidden])")
    assert "the nearest is `cubic`" in page.inner_text("#problem")
    state = page.evaluate("playground.state()")
    assert (state["flows"], state["delay"], state["draw"], state["seed"]) == (1, 20, "", 1)
    warnings = page.inner_text("#wrong")
    for words in (
        "flows=0 is no whole number from 1 to 10: 1 is taken",
        "delay=x is no number from 0 to 1000: 20 is taken",
        "draw=a,b is no list",
        "nonsense=1 is unknown (known: scheme, beside, trace, draw, queue, delay,",
        "seed=1.5 is no whole number",
        "constructor=2 is unknown",
    ):
        assert words in warnings
    page.click("#schemes button[value=copa]")
    settled(page)
    assert page.is_hidden("#problem")
    assert page.is_hidden("#wrong")


def test_an_address_without_a_fault_is_not_complained_of(site: str, chromium: Chromium) -> None:
    page = chromium(site + ADDRESSES[0])
    settled(page)
    assert page.is_hidden("#wrong")


#: Draws a queue of `packets` packets; counts pixels of the sender's colour left of the buffer and
#: elsewhere.
SPILT = """([queue, packets]) => import("./scene.js").then(({Scene}) => {
  const place = document.querySelector("#scenes");
  const scene = new Scene(place, {scheme: "cubic", name: "Cubic", flows: 1}, queue);
  const frame = [0, 0, packets * 1500, packets, 0, 1, 0, packets, 15000, 2];
  scene.draw([...frame, ...Array.from({length: packets}, () => [0, 0, 0]).flat()], 12);
  const scale = devicePixelRatio, edge = scene.width < 560 ? 16 : 70;
  const seen = (from, to) => {
    const {data} = scene.context.getImageData(from * scale, 0, (to - from) * scale, 80 * scale);
    let count = 0;
    for (let at = 0; at < data.length; at += 4) count += data[at] > 150 && data[at + 2] < 60 && data[at + 3] > 100;
    return count;
  };
  return [seen(0, edge), seen(edge, scene.width)];
})"""


@pytest.mark.parametrize("width", [390, 820, 1440])
@pytest.mark.parametrize(("queue", "packets"), [(DEEP, 1000), ("infinite", 30_000), ("droptail:bytes=30000", 20)])
def test_a_full_queue_stays_inside_its_buffer(
    queue: str, packets: int, width: int, site: str, chromium: Chromium
) -> None:
    page = chromium(site, width=width)
    settled(page)
    spilt, inside = page.evaluate(SPILT, [queue, packets])
    assert spilt == 0
    assert inside > 1000


def test_a_person_drives_beside_verus_and_is_scored(site: str, chromium: Chromium) -> None:
    page = chromium(f"{site}#duration=20&speed=0.25")  # slow, until the window is set
    settled(page)
    page.click("#you")
    until(page, "playground.run().lanes.length === 2 && playground.run().lanes[0].scheme === 'hand'")
    assert page.inner_text("#window-shown") == "10 packets"
    for _ in range(20):
        page.keyboard.press("ArrowUp")
    assert page.inner_text("#window-shown") == "67 packets"
    until(page, "playground.run().frames[0][8] === 67 * 1500")
    page.select_option("#speed", "16")
    over(page)
    own, verus = page.evaluate("playground.run().results.map(({metrics}) => metrics)")
    # 67 packets fill the path of 40 and keep 27 waiting, all the time.
    assert own["utilization"] > 0.9
    assert 20 < own["qdelay_p95_ms"] < 60

    def power(metrics: dict[str, float]) -> float:
        return metrics["throughput_mbps"] / (metrics["qdelay_p95_ms"] + 40)

    score = round(100 * power(own) / power(verus))
    until(page, "document.querySelector('#score .verdict')?.textContent.startsWith('Your score')")
    verdict = page.inner_text("#score .verdict")
    assert int(re.findall(r"\d+", verdict)[0]) == score
    assert "mode=you" in page.url
    assert page.inner_text("#command").startswith("verus compare --trace rate:12 --scheme verus ")


def test_a_channel_is_drawn_with_the_pointer_and_with_keys(site: str, chromium: Chromium) -> None:
    page = chromium(f"{site}#duration=20")
    settled(page)
    page.select_option("#channel", "draw")
    until(page, "playground.state().draw")
    page.click("[data-draw=outage]")
    before = [float(mbps) for mbps in page.evaluate("playground.state().draw").split(",")]
    assert before[7] == 0
    box = page.query_selector("#pad").bounding_box()  # type: ignore[union-attr]
    assert box
    page.mouse.move(box["x"] + 0.26 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.49 * box["width"], box["y"] + 0.5 * box["height"], steps=5)
    page.mouse.up()
    until(page, f"playground.run().chosen.draw !== '{','.join(f'{mbps:g}' for mbps in before)}'")
    after = [float(mbps) for mbps in page.evaluate("playground.state().draw").split(",")]
    assert all(15 < mbps < 25 for mbps in after[5:10])
    assert after[:5] == before[:5]
    capacity = page.evaluate("playground.run().told[0].capacity_mbps")
    assert capacity[55] == after[5]
    page.focus("#pad")
    page.keyboard.press("ArrowUp")
    assert float(page.evaluate("playground.state().draw").split(",")[0]) == after[0] + 1
    assert "--changes <(echo '[{" in page.inner_text("#command")


@pytest.mark.parametrize("width", [390, 768, 1440])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_is_readable_at_every_width_without_a_sideways_pan(
    width: int, dark: bool, site: str, chromium: Chromium
) -> None:
    page = chromium(f"{site}#mode=you&draw=12,4,20&flows=4", width=width, dark=dark)
    settled(page)
    page.wait_for_timeout(300)
    wide = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] <= wide[1] == width
    cut = page.evaluate("""() => [...document.querySelectorAll("button, select, label, h1, h2, p, canvas, td, th")]
      .filter((one) => one.offsetParent && one.getBoundingClientRect().right > innerWidth + 0.5)
      .map((one) => one.outerHTML)""")
    assert not cut
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", ground))) < 150 if dark else ground == "rgb(255, 255, 255)"


@pytest.mark.real_time
def test_ten_flows_at_20_mbit_s_move_smoothly(site: str, chromium: Chromium) -> None:
    page = chromium(f"{site}#flows=10&trace=rate:20&scheme=cubic")
    settled(page)
    rate = page.evaluate("""() => new Promise((resolve) => {
      const begun = performance.now(), shown = new Set();
      let frames = 0;
      requestAnimationFrame(function next(now) {
        frames++;
        shown.add(playground.run().frames[0][0]);
        if (now < begun + 3000) requestAnimationFrame(next);
        else resolve([frames / 3, shown.size / 3]);
      });
    })""")
    # 60 where nothing else runs (docs/play.md); tests share their machine.
    assert min(rate) > 20, f"{rate[0]:.0f} frames a second, {rate[1]:.0f} of them new"


def test_the_folder_runs_on_any_server_of_files(verus: Command, tmp_path: Path, site: str, chromium: Chromium) -> None:
    out = tmp_path / "site" / "below"
    ran = verus("play", "--export", out)
    assert ran.code == 0, ran.err
    assert sorted(path.name for path in out.iterdir()) == sorted(play.FILES)
    assert verus("play", "--export", out).code == 2, "it is not empty"
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "site"))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        page = chromium(f"http://127.0.0.1:{serving.server_port}/below/")
        settled(page)
        serving.shutdown()


def test_nothing_but_its_own_files_is_served(site: str) -> None:
    for path in ("../commands/play.py", "%2e%2e/verbs.py", "/etc/passwd", "index.html/", "favicon.ico"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(site + path, timeout=10)
        refused.value.close()
        assert refused.value.code == 404
    with urllib.request.urlopen(f"{site}play.wasm", timeout=10) as answer:
        assert answer.headers["Content-Type"] == "application/wasm"
        assert answer.read(4) == b"\0asm"


def test_the_command_serves_until_it_is_interrupted(site: str) -> None:
    command = [BIN / "verus", "play", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stdout
            address = serving.stdout.readline().split()[0]
            assert address != site, "two at once have ports of their own"
            with urllib.request.urlopen(address, timeout=10) as answer:
                assert b"Verus playground" in answer.read()
            serving.send_signal(2)
            out, err = serving.communicate(timeout=20)
        finally:
            serving.kill()  # if it has not ended
    assert (serving.returncode, out, err) == (0, "", "")


def test_what_cannot_be_is_refused(verus: Command, site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = site.rstrip("/").rpartition(":")[2]
    ran = verus("play", "--port", taken)
    assert (ran.code, ran.err.startswith(f"verus: --port: {taken} cannot be had")) == (2, True)
    assert verus("play", "--port", 0).code == 2
    assert verus("play", "--export", "x", "--port", 8000).code == 2
    monkeypatch.setitem(play.FILES, "missing.wasm", "application/wasm")
    ran = verus("play")
    assert ran.code == 2
    assert "`make play`" in ran.err
