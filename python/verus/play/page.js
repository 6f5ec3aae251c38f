// The page: settings, the clock, and messages between its parts.

import { Charts, color } from "./charts.js";
import { Scene } from "./scene.js";
import { DEFAULTS, LOSSES, PACKET, RATES, TOP, command, contestants, drawn, flowsOf, read, scenario, write } from "./scenario.js";

const $ = (id) => document.getElementById(id);
const NAMES = {
  verus: "Verus", forward: "forward", cubic: "Cubic", newreno: "NewReno", vegas: "Vegas", bbr: "BBRv3", bbr1: "BBRv1", copa: "Copa", ledbatpp: "LEDBAT++",
  c4: "C4", vivace: "Vivace", scream: "SCReAM", prague: "Prague", sprout: "Sprout", hand: "You",
};
const name = (scheme) => NAMES[scheme] ?? scheme;
/** Schemes that only measure and cannot be chosen. */
const TOOLS = ["saturate", "constant"];
const QUEUES = [
  ["droptail:bytes=1500000", "drop-tail, 1.5 MB (bufferbloat)"],
  ["droptail:bytes=120000", "drop-tail, 120 kB"],
  ["droptail:bytes=30000", "drop-tail, 30 kB"],
  ["red:min=375000,max=1125000,p=0.1", "RED as in the paper"],
  ["codel", "CoDel"],
  ["fq_codel", "FQ-CoDel"],
  ["pie", "PIE"],
  ["dualpi2", "DualPI2 (L4S)"],
  ["infinite", "without end"],
];
/** The time from which a run is shown, in s, so that the page opens with some data. */
const OPENS_AT = 8;
/** The interval at which results are requested during a run, ms. */
const RESULTS_EVERY = 400;

// The worker.
const worker = new Worker("worker.js");
const waiting = new Map();
let asked = 0;
worker.onmessage = ({ data: { id, told, problem } }) => {
  const { resolve, reject } = waiting.get(id);
  waiting.delete(id);
  if (problem === undefined) resolve(told); else reject(new Error(problem));
};
worker.onerror = (event) => complain(new Error(event.message || "the worker did not start"));
const ask = (what, more = {}) =>
  new Promise((resolve, reject) => {
    const id = asked++;
    waiting.set(id, { resolve, reject });
    worker.postMessage({ id, what, ...more });
  });

// The state of the page.
let { state, wrong } = read(location.hash);
let summaries = {};
const charts = new Charts();
let run = null; // { lanes, told, at, over, frames, results, scenes }
let playing = true;
let generation = 0;

function complain(error) {
  $("problem").hidden = !error;
  $("problem").textContent = error ? error.message : "";
}

/** Opens the runs of the state, and simulates until `at` at once. */
async function start(at) {
  const own = ++generation;
  const schemes = contestants(state);
  const chosen = { ...state };
  try {
    setWindow(10, false);
    const told = await ask("open", { scenarios: schemes.map((scheme) => scenario(chosen, scheme)) });
    const begun = Math.min(at, chosen.duration);
    const first = await ask("advance", { at: begun, results: true });
    if (own !== generation) return;
    complain(null);
    const lanes = schemes.map((scheme) => ({ scheme, name: name(scheme), flows: flowsOf(chosen) }));
    run = { lanes, told, at: begun, over: false, frames: first.frames, results: first.results, chosen, asking: false, asked: 0, generation: own };
    charts.open(lanes, { duration: chosen.duration, slice: told[0].slice_s, capacity: told[0].capacity_mbps });
    $("scenes").replaceChildren();
    run.scenes = lanes.map((lane) => new Scene($("scenes"), lane, chosen.queue));
    charts.add(first.frames);
    charts.draw();
    take(first);
  } catch (error) {
    if (own !== generation) return;
    run = null;
    complain(error);
  }
  show();
}

/** Stores the worker's report of the runs. */
function take({ frames, results }) {
  run.frames = frames;
  const over = frames.every((frame) => frame[1] === 1);
  if (results) {
    run.results = results;
    tellResults();
  }
  if (over && !run.over) {
    run.over = true;
    playing = false;
    show();
  }
}

async function advance(own, now) {
  const results = now - run.asked > RESULTS_EVERY || run.at >= run.chosen.duration;
  if (results) run.asked = now;
  run.asking = true;
  try {
    const told = await ask("advance", { at: run.at, results });
    if (own !== generation) return;
    if (charts.add(told.frames)) run.changed = true;
    take(told);
  } catch (error) {
    if (own !== generation) return;
    playing = false;
    complain(error);
    show();
  }
  run.asking = false;
}

// The clock.
let before = 0;
function frame(now) {
  requestAnimationFrame(frame);
  const passed = Math.min(now - before, 100) / 1000;
  before = now;
  if (!run || run.generation !== generation) return;
  if (playing && !run.over) {
    run.at += passed * state.speed;
    if (run.at > run.chosen.duration - 1e-6) run.at = run.chosen.duration; // the simulator rounds to nanoseconds
    if (!run.asking) advance(generation, now);
  }
  const shownAt = run.frames[0][0];
  const capacity = run.told[0].capacity_mbps;
  const rate = capacity[Math.min(Math.floor(shownAt / run.told[0].slice_s), capacity.length - 1)];
  if (run.drawn !== run.frames || run.resized) {
    run.scenes.forEach((scene, lane) => scene.draw(run.frames[lane], rate));
    run.drawn = run.frames;
    run.resized = false;
    const clock = `${shownAt.toFixed(1)} s of ${run.chosen.duration} s`;
    if ($("clock").textContent !== clock) $("clock").textContent = clock;
  }
  if (run.changed) {
    charts.draw();
    run.changed = false;
  }
}

// Results.
const COLUMNS = [
  ["Throughput", "Mbit/s", (m) => m.throughput_mbps, 2],
  ["of the capacity", "%", (m) => m.utilization && 100 * m.utilization, 1],
  ["Delay, mean", "ms", (m) => m.qdelay_mean_ms, 1],
  ["median", "ms", (m) => m.qdelay_p50_ms, 1],
  ["95 %", "ms", (m) => m.qdelay_p95_ms, 1],
  ["signal, 95 %", "ms", (m) => m.signal_delay_p95_ms, 1],
  ["Lost", "%", (m) => m.loss_rate === null ? null : 100 * (1 - (1 - m.path_loss_rate) * (1 - m.loss_rate)), 2],
  ["Fairness", "Jain", (m) => m.jain, 3],
];
const rounded = (value, digits) => (value == null ? "–" : value.toFixed(digits));
function cell(tag, text, scope) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (scope) made.scope = scope;
  return made;
}
function tellResults() {
  if (!run?.results) return;
  const columns = COLUMNS.filter(([title]) => title !== "Fairness" || run.lanes[0].flows > 1);
  const upright = innerWidth < 900; // one column for each sender, where rows would be cut off
  const metric = ([title, unit], scope) => {
    const th = cell("th", title, scope);
    th.append(upright ? ", " : document.createElement("br"), unit);
    return th;
  };
  const sender = ({ scheme, name }, scope) => {
    const th = cell("th", name, scope);
    const dot = document.createElement("i");
    dot.style.background = color(scheme);
    th.prepend(dot);
    return th;
  };
  const told = ([, , value, digits], { metrics }) => cell("td", rounded(value(metrics), digits));
  const row = (...cells) => { const made = document.createElement("tr"); made.append(...cells); return made; };
  const thead = document.createElement("thead"), tbody = document.createElement("tbody");
  if (upright) {
    thead.append(row(cell("th", "", "col"), ...run.lanes.map((lane) => sender(lane, "col"))));
    tbody.append(...columns.map((column) => row(metric(column, "row"), ...run.results.map((result) => told(column, result)))));
  } else {
    thead.append(row(cell("th", "", "col"), ...columns.map((column) => metric(column, "col"))));
    tbody.append(...run.results.map((result, lane) => row(sender(run.lanes[lane], "row"), ...columns.map((column) => told(column, result)))));
  }
  $("results").replaceChildren(thead, tbody);
  $("results-state").textContent = run.results.every(({ over }) => over) ? "of the whole run" : "so far";
  if (run.chosen.mode === "you") tellScore();
}

/** Power with the tail of the delay: throughput over a slow packet's round trip, Mbit/s for each second of it. */
const power = (metrics, base) => metrics.throughput_mbps / ((metrics.qdelay_p95_ms + base) / 1000);
function tellScore() {
  const [own, verus] = run.results.map(({ metrics }) => metrics);
  const over = run.results.every((result) => result.over);
  const tile = (small, strong, more = "") => {
    const made = document.createElement("div");
    made.append(cell("small", small), cell("strong", strong), cell("span", more));
    return made;
  };
  if (own.qdelay_p95_ms === null || verus.qdelay_p95_ms === null) return;
  const base = run.told[0].base_rtt_ms;
  const score = Math.round((100 * power(own, base)) / power(verus, base));
  const [more, less] = [own.throughput_mbps - verus.throughput_mbps, own.qdelay_p95_ms - verus.qdelay_p95_ms];
  const verdict =
    more >= 0 && less <= 0 ? "You dominate Verus: no less throughput, no more delay."
    : more <= 0 && less >= 0 ? "Verus dominates you: no less throughput, no more delay."
    : more > 0 ? "You carry more, and wait longer." : "You wait less, and carry less.";
  const total = tile(over ? "Your score" : "Your score so far", String(score), `Verus has 100. ${verdict}`);
  total.className = "verdict";
  $("score").replaceChildren(
    tile("Your throughput", `${rounded(own.throughput_mbps, 2)}`, `Verus ${rounded(verus.throughput_mbps, 2)} Mbit/s`),
    tile("Your delay, 95 %", `${rounded(own.qdelay_p95_ms, 0)}`, `Verus ${rounded(verus.qdelay_p95_ms, 0)} ms`),
    tile("Your power", rounded(power(own, base), 1), `Verus ${rounded(power(verus, base), 1)} Mbit/s per second of delay`),
    total,
  );
}

// Controls.
function change(change, { at, restart = true } = {}) {
  state = { ...state, ...change };
  wrong = []; // the address is rewritten
  history.replaceState(null, "", write(state) === "#" ? location.pathname + location.search : write(state));
  if (restart) {
    if (run?.over) playing = true;
    start(at ?? (state.mode === "you" ? 0 : run ? (run.over ? OPENS_AT : run.at) : OPENS_AT));
  }
  show();
}

function options(select, list) {
  select.replaceChildren(...list.map(([value, text]) => new Option(text, value)));
}
/** Chooses a value, and adds it to a list that lacks it: an address may have any value. */
function choose(select, value, text = value) {
  if (![...select.options].some((option) => option.value === String(value))) select.add(new Option(text, value));
  select.value = value;
}
const nearest = (list, value) => list.reduce((best, one, index) => (Math.abs(one - value) < Math.abs(list[best] - value) ? index : best), 0);
const rateOf = (trace) => (/^rate:(\d+(?:\.\d+)?)$/.exec(trace) ?? [])[1];

/** Sets every control to the state. */
function show() {
  $("wrong").hidden = !wrong.length;
  $("wrong").textContent = wrong.length ? `The address: ${wrong.join("; ")}.` : "";
  const game = state.mode === "you";
  for (const chip of $("schemes").children) {
    const chosen = !game && chip.value === state.scheme;
    chip.setAttribute("aria-checked", chosen);
    chip.tabIndex = chosen || (game && chip === $("schemes").firstChild) ? 0 : -1;
  }
  $("summary").textContent = game ? "You are the sender: set the window below." : summaries[state.scheme] ?? "";
  $("play").textContent = run?.over ? "Run again" : playing ? "Pause" : "Go on";
  choose($("speed"), state.speed, `${state.speed}×`);
  choose($("beside"), state.beside, name(state.beside));
  $("beside").parentNode.hidden = game;
  $("you").setAttribute("aria-pressed", game);
  for (const id of ["wheel", "rule", "but-you"]) $(id).hidden = !game;
  const rate = rateOf(state.trace);
  const kind = state.draw ? "draw" : rate ? "rate" : state.trace;
  choose($("channel"), kind);
  $("rate-field").hidden = kind !== "rate";
  $("rate").value = nearest(RATES, Number(rate ?? 12));
  $("rate-shown").textContent = `${rate ?? 12} Mbit/s`;
  choose($("queue-kind"), state.queue);
  $("delay-ms").value = state.delay;
  $("delay-shown").textContent = `${state.delay} ms`;
  $("loss").value = nearest(LOSSES, state.loss);
  $("loss-shown").textContent = `${+(100 * state.loss).toPrecision(4)} %`;
  $("flows").value = flowsOf(state);
  $("flows").disabled = game;
  $("flows-shown").textContent = flowsOf(state);
  choose($("duration"), state.duration, `${state.duration} s`);
  $("seed").value = state.seed;
  $("command").textContent = command(state);
  $("drawing").hidden = !state.draw;
  if (state.draw) drawPad();
  tellResults();
}

$("play").onclick = () => {
  if (run?.over) {
    playing = true;
    start(0);
  } else playing = !playing;
  show();
};
$("again").onclick = () => { playing = true; start(0); };
$("speed").onchange = ({ target }) => change({ speed: Number(target.value) }, { restart: false });
$("beside").onchange = ({ target }) => change({ beside: target.value });
$("you").onclick = () => {
  playing = true;
  if (state.mode === "you") change({ mode: "" });
  else change({ mode: "you" }, { at: 0 });
  if (state.mode === "you") $("window").focus();
};
$("channel").onchange = ({ target: { value } }) => {
  if (value === "draw") change({ draw: shapes.steps().join() });
  else change({ draw: "", trace: value === "rate" ? `rate:${RATES[$("rate").value]}` : value });
};
$("rate").oninput = ({ target }) => { $("rate-shown").textContent = `${RATES[target.value]} Mbit/s`; };
$("rate").onchange = ({ target }) => change({ trace: `rate:${RATES[target.value]}` });
$("queue-kind").onchange = ({ target }) => change({ queue: target.value });
$("delay-ms").oninput = ({ target }) => { $("delay-shown").textContent = `${target.value} ms`; };
$("delay-ms").onchange = ({ target }) => change({ delay: Number(target.value) });
$("loss").oninput = ({ target }) => { $("loss-shown").textContent = `${+(100 * LOSSES[target.value]).toPrecision(4)} %`; };
$("loss").onchange = ({ target }) => change({ loss: LOSSES[target.value] });
$("flows").oninput = ({ target }) => { $("flows-shown").textContent = target.value; };
$("flows").onchange = ({ target }) => change({ flows: Number(target.value) });
$("duration").onchange = ({ target }) => change({ duration: Number(target.value), draw: state.draw && fitted(drawn(state), Number(target.value)).join() });
$("seed").onchange = ({ target }) => change({ seed: target.checkValidity() && target.value !== "" ? Number(target.value) : DEFAULTS.seed });
$("controls").onsubmit = (event) => event.preventDefault();

// The user's window: from 1 to 2000 packets, with the same factor for each step of the slider.
const MOST_PACKETS = 2000;
let packets = 10;
function setWindow(wanted, tell = true) {
  packets = Math.max(1, Math.min(MOST_PACKETS, Math.round(wanted)));
  $("window").value = (1000 * Math.log(packets)) / Math.log(MOST_PACKETS);
  $("window-shown").textContent = `${packets} packets`;
  $("window").setAttribute("aria-valuetext", `${packets} packets`);
  ask("window", { bytes: packets * PACKET }).catch(tell ? complain : () => {});
}
$("window").oninput = ({ target }) => setWindow(MOST_PACKETS ** (target.value / 1000));
addEventListener("keydown", (event) => {
  if (state.mode !== "you" || event.ctrlKey || event.metaKey || event.altKey || /^(SELECT|CANVAS)$/.test(event.target.tagName) || event.target.type === "number") return;
  const factor = { ArrowUp: 1.1, ArrowRight: 1.1, ArrowDown: 1 / 1.1, ArrowLeft: 1 / 1.1, PageUp: 1.5, PageDown: 1 / 1.5 }[event.key];
  if (!factor || (event.target.type === "range" && event.target !== $("window"))) return;
  event.preventDefault();
  const wanted = packets * factor;
  setWindow(factor > 1 ? Math.max(packets + 1, wanted) : Math.min(packets - 1, wanted));
});

// The channel that the user draws: a rate for each second.
const fitted = (rates, seconds) => Array.from({ length: seconds }, (_, at) => rates[at % rates.length]);
const shapes = {
  steps: () => fitted([12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24], state.duration),
  outage: () => fitted([], state.duration).map((_, at) => (at >= state.duration / 3 && at < state.duration / 3 + 3 ? 0 : 12)),
  waves: () => fitted([], state.duration).map((_, at) => Math.round(10 * (14 + 10 * Math.sin((2 * Math.PI * at) / 20))) / 10),
};
for (const button of document.querySelectorAll("[data-draw]")) button.onclick = () => change({ draw: shapes[button.dataset.draw]().join() });

const pad = $("pad");
let pen = null; // its last place, and the stroke
let chosenSecond = 0;
function drawPad(rates = drawn(state)) {
  const scale = devicePixelRatio || 1, width = pad.clientWidth || 300, height = pad.clientHeight || 170;
  pad.width = Math.round(width * scale);
  pad.height = Math.round(height * scale);
  const c = pad.getContext("2d");
  c.setTransform(scale, 0, 0, scale, 0, 0);
  const style = getComputedStyle(document.documentElement), ink = (name) => style.getPropertyValue(name).trim();
  c.font = "12px system-ui, sans-serif";
  c.textBaseline = "middle";
  for (let mbps = 0; mbps <= TOP; mbps += 10) {
    const y = height - 4 - ((height - 12) * mbps) / TOP;
    c.fillStyle = ink("--line");
    c.fillRect(0, Math.round(y), width, 1);
    c.fillStyle = ink("--soft");
    if (mbps) c.fillText(`${mbps} Mbit/s`, 6, y + 9);
  }
  const wide = width / rates.length;
  rates.forEach((mbps, at) => {
    const tall = ((height - 12) * Math.min(mbps, TOP)) / TOP;
    c.fillStyle = ink("--area");
    c.fillRect(at * wide, height - 4 - tall, wide, tall);
    c.fillStyle = document.activeElement === pad && at === chosenSecond ? ink("--bad") : ink("--accent");
    c.fillRect(at * wide, height - 5 - tall, wide, 2);
  });
}
function penTo(event) {
  const box = pad.getBoundingClientRect();
  const second = Math.max(0, Math.min(pen.rates.length - 1, Math.floor(((event.clientX - box.left) / box.width) * pen.rates.length)));
  const mbps = Math.max(0, Math.min(TOP, Math.round(2 * TOP * ((box.bottom - 4 - event.clientY) / (box.height - 12))) / 2));
  const from = pen.second ?? second;
  for (let at = Math.min(from, second); at <= Math.max(from, second); at++) pen.rates[at] = mbps;
  pen.second = second;
  drawPad(pen.rates);
}
pad.onpointerdown = (event) => { pen = { rates: [...drawn(state)] }; pad.setPointerCapture(event.pointerId); penTo(event); };
pad.onpointermove = (event) => { if (pen) penTo(event); };
pad.onpointerup = pad.onpointercancel = () => {
  if (!pen) return;
  const { rates } = pen;
  pen = null;
  change({ draw: rates.join() });
};
pad.onfocus = pad.onblur = () => state.draw && drawPad();
pad.onkeydown = (event) => {
  const rates = drawn(state);
  const step = { ArrowUp: 1, ArrowDown: -1 }[event.key], along = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!rates || (!step && !along)) return;
  event.preventDefault();
  chosenSecond = Math.max(0, Math.min(rates.length - 1, chosenSecond + (along ?? 0)));
  if (step) {
    rates[chosenSecond] = Math.max(0, Math.min(TOP, rates[chosenSecond] + step));
    change({ draw: rates.join() });
  } else drawPad();
};

// Copying.
async function copy(button, text) {
  const said = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren($("command"));
    button.textContent = "Press Ctrl+C";
  }
  setTimeout(() => { button.textContent = said; }, 1500);
}
$("copy-command").onclick = () => copy($("copy-command"), command(state));
$("copy-link").onclick = () => copy($("copy-link"), location.href);

addEventListener("hashchange", () => { ({ state, wrong } = read(location.hash)); playing = true; start(state.mode === "you" ? 0 : OPENS_AT); show(); });
addEventListener("resize", () => { if (run) run.resized = true; if (state.draw) drawPad(); tellResults(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { chips(); start(run?.at ?? OPENS_AT); });

let schemes = [];
function chips() {
  $("schemes").replaceChildren(...schemes.map((scheme) => {
    const chip = document.createElement("button");
    chip.type = "button";
    chip.value = scheme;
    chip.setAttribute("role", "radio");
    const dot = document.createElement("i");
    dot.style.color = color(scheme);
    chip.append(dot, name(scheme));
    chip.onclick = () => change({ scheme, mode: "" });
    return chip;
  }));
  show();
}
$("schemes").onkeydown = (event) => {
  const along = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!along) return;
  event.preventDefault();
  event.stopPropagation();
  const all = [...$("schemes").children];
  const next = all[(all.indexOf(document.activeElement) + along + all.length) % all.length];
  next.focus();
  next.click();
};

try {
  const lists = await ask("list");
  const first = ["cubic", "verus", "forward", "bbr", "copa"];
  const known = lists.schemes.filter(({ name }) => !TOOLS.includes(name));
  summaries = Object.fromEntries(known.map(({ name, summary }) => [name, `${name}: ${summary}`]));
  schemes = [...first, ...known.map(({ name }) => name).filter((name) => !first.includes(name))];
  options($("beside"), [["", "nothing"], ...schemes.map((scheme) => [scheme, name(scheme)])]);
  options($("queue-kind"), QUEUES);
  options($("channel"), [["rate", "constant rate"], ["draw", "draw your own"]]);
  const group = document.createElement("optgroup");
  group.label = "cellular, built in";
  group.append(...lists.channels.map((channel) => new Option(channel, channel)));
  $("channel").append(group);
  chips();
  await start(state.mode === "you" ? 0 : OPENS_AT);
} catch (error) {
  complain(error);
}
requestAnimationFrame((now) => { before = now; frame(now); });

/** For tests: the state of the page. */
globalThis.playground = { ask, scenario, state: () => state, run: () => run };
