// Behaviour of figures on a page beside Vega-Lite: they fit their place, show all values under the cursor, and play.
// `figures` comes from `page.py`: a Vega-Lite `spec` for each, and perhaps `frames`.
"use strict";

const {vega, vegaLite} = window;
const places = [...document.querySelectorAll(".plot")];
const told = document.body.appendChild(element("div", {className: "told"}));

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** A number for readers. */
function short(value) {
  if (typeof value !== "number") return value == null ? "–" : String(value);
  if (!isFinite(value)) return "–";
  const size = Math.abs(value);
  return size && (size < 0.001 || size >= 1e6) ? value.toExponential(2) : String(+value.toPrecision(size < 1 ? 3 : 4));
}

// ---- Parts of a specification

/** The panels of a figure; a single one is a list of one. */
const panelsOf = (spec) => spec.concat ?? spec.vconcat ?? spec.hconcat ?? [spec];
/** The view in a panel, or in each row of a panel with a row for each name. */
const viewOf = (panel) => panel.spec ?? panel;
const layersOf = (panel) => viewOf(panel).layer ?? [viewOf(panel)];
const markOf = (layer) => (typeof layer.mark === "string" ? layer.mark : layer.mark?.type);
const isNumber = (channel) => channel?.type === "quantitative" && channel.scale !== null;

/** A copy that may be changed, except its data, which may be large. */
function copy(value, key) {
  if (value === null || typeof value !== "object" || key === "data") return value;
  if (Array.isArray(value)) return value.map((each) => copy(each));
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, copy(each, name)]));
}

// ---- Drawing

const GAP = 66; // the approximate size of an axis

const NARROW = 600;

/** Moves what is beside a chart on wide pages below it, and cuts long names of categories. */
function narrow(spec, width) {
  const below = {orient: "bottom", direction: "horizontal", columns: Math.max(2, Math.floor(width / 110))};
  spec.config = {...spec.config, legend: {...spec.config?.legend, ...below}};
  for (const layer of panelsOf(spec).flatMap(layersOf)) {
    const up = layer.encoding?.y;
    if (up?.field && up.type !== "quantitative" && up.axis?.labels !== false) up.axis = {...up.axis, labelLimit: 96};
  }
}

/** The specification for a place of this width in pixels. */
function fitted(figure, width) {
  const spec = copy(figure.spec);
  const panels = panelsOf(spec);
  const own = viewOf(panels[0]).width;
  if (typeof own !== "number") return spec;
  let columns = spec.concat ? Math.min(spec.columns ?? panels.length, panels.length) : spec.hconcat ? panels.length : 1;
  const between = spec.concat ? Math.max(spec.spacing?.column ?? 62, 62) : 0;
  const room = (count) => (width - GAP - 24 - (count - 1) * between) / count;
  if (spec.concat) while (columns > 1 && room(columns) < Math.min(own, 250)) columns -= 1;
  const most = own >= 600 ? 1200 : own * (columns > 1 ? 1.6 : 1.9);
  const chosen = Math.max(120, Math.floor(Math.min(room(columns), most) - figure.excess / columns));
  if (spec.concat) spec.columns = columns;
  if (width < NARROW || figure.excess) narrow(spec, width);
  for (const layer of panels.flatMap(layersOf)) {
    // Names right of a line stay at its end, which moves left as the chart gets narrower.
    const beside = layer.mark?.dx?.expr;
    if (beside) layer.mark.dx = {expr: `${beside} > 9 ? max(9, ${beside} * ${chosen / own}) : ${beside}`};
  }
  for (const panel of panels.map(viewOf)) {
    if (panel.width === panel.height) panel.height = Math.min(chosen, panel.height);
    panel.width = panel.width === panel.height ? Math.min(chosen, panel.width) : chosen;
  }
  return spec;
}

/** Draws a figure, or draws it again, without a timer or a file, so that it is complete before printing. */
function draw(place, width = place.clientWidth) {
  const figure = figures[Number(place.dataset.figure)];
  figure.drawing = drawn(place, figure, width);
  return figure.drawing;
}

async function drawn(place, figure, width) {
  figure.width = width;
  figure.excess = 0;
  const once = async () => {
    figure.view?.finalize();
    const canvas = place.querySelector(".canvas") ?? place.appendChild(element("div", {className: "canvas"}));
    const compiled = vegaLite.compile(fitted(figure, width), {logger: quiet}).spec;
    figure.view = new vega.View(vega.parse(compiled), {renderer: "svg", logger: quiet, hover: false});
    figure.view.tooltip(tooltip).initialize(canvas);
    if (figure.frames) show(figure, figure.at);
    const {view} = figure;
    await view.runAsync();
    if (view !== figure.view) return 0; // drawn again meanwhile
    const taken = canvas.querySelector("svg").getBoundingClientRect().width;
    return Math.max(taken, width === place.clientWidth ? place.scrollWidth : 0) - width;
  };
  for (let over = await once(), tries = 0; over > 0 && tries < 2; tries += 1) {
    figure.excess += over + 2;
    over = await once();
  }
  untangle(place);
  if (!place.dataset.drawn) {
    place.dataset.drawn = "yes";
    place.style.minHeight = 0;
    place.closest("figure").classList.add("drawn");
  }
}

const MOST_NAMES = 40; // a layer with more texts is no layer of names

/** Leaves out names that would overlap another in a narrow chart; its legend has them all. */
function untangle(place) {
  for (const layer of place.querySelectorAll("g.mark-text")) {
    const names = [...layer.querySelectorAll("text")];
    if (names.length < 2 || names.length > MOST_NAMES) continue;
    const taken = [];
    for (const name of names) {
      const {left, right, top, bottom} = name.getBoundingClientRect();
      const free = taken.every((box) => left >= box.right || right <= box.left || top >= box.bottom || bottom <= box.top);
      name.style.visibility = free ? "" : "hidden";
      if (free) taken.push({left, right, top, bottom});
    }
  }
}

const quiet = {level: () => quiet, error: (...told) => console.error(...told), warn: () => quiet, info: () => quiet, debug: () => quiet};

/** The places of a drawn figure's panels, in pixels from its upper left corner, and their scales. */
function geometry(figure) {
  const view = figure.view;
  const [left, top] = view.origin();
  const groups = view.scenegraph().root.items[0].items;
  const several = panelsOf(figure.spec)[0] !== figure.spec;
  const scale = (...names) => {
    for (const name of names) {
      try {
        return view.scale(name);
      } catch {} // not of this name
    }
    return null;
  };
  const rows = (group) => {
    const cells = group?.items.find((mark) => mark.name?.endsWith("cell"))?.items;
    if (!cells?.length) return cells ? null : group;
    const [first, last] = [cells[0], cells[cells.length - 1]];
    return {x: group.x + first.x, y: group.y + first.y, width: first.width, height: last.y + last.height - first.y};
  };
  return panelsOf(figure.spec).map((panel, index) => {
    const item = several
      ? rows(groups.find((mark) => mark.name === `concat_${index}_group`)?.items[0])
      : {x: 0, y: 0, width: view.width(), height: view.height()};
    if (!item) return null;
    return {
      x: left + item.x, y: top + item.y, width: item.width, height: item.height,
      across: scale(`concat_${index}_x`, "x"), up: scale(`concat_${index}_y`, "y"),
    };
  });
}

// ---- Values under the cursor

/** The lines of a figure: for each panel its title and, by name, the points of each line. */
function lines(figure) {
  if (figure.lines) return figure.lines;
  const whole = figure.spec.data?.values;
  figure.lines = panelsOf(figure.spec).map((panel) => {
    const found = {title: "", across: "", names: new Map(), colors: new Map(), spans: false};
    for (const layer of layersOf(panel)) {
      const {x, y, color, detail, x2} = layer.encoding ?? {};
      const spans = markOf(layer) === "rect" && x2 && layer.data?.name === "phases";
      if (!(["line", "area"].includes(markOf(layer)) || spans) || !x?.field || !y?.field) continue;
      const rows = layer.data?.values ?? panel.data?.values ?? whole ?? [];
      color?.scale?.domain?.forEach((name, at) => found.colors.set(name, color.scale.range[at]));
      found.title = y.axis?.title || y.title || found.title || y.field;
      found.across ||= x.axis?.title || "";
      found.spans ||= spans;
      for (const row of rows) {
        const group = (color?.field && row[color.field]) ?? (markOf(layer) === "area" ? "capacity" : "");
        const name = spans ? row.scheme : detail?.field ? `${group} · ${detail.field} ${row[detail.field]}` : group;
        if (!found.names.has(name)) found.names.set(name, {x: [], y: [], group: spans ? row.scheme : group});
        const {x: xs, y: ys} = found.names.get(name);
        if (Array.isArray(row[x.field])) {
          for (const value of row[x.field]) xs.push(value);
          for (const value of row[y.field] ?? []) ys.push(value);
        } else {
          xs.push(row[x.field]);
          ys.push(spans ? row.phase : row[y.field]);
        }
      }
    }
    return found;
  });
  return figure.lines;
}

/** The last value at or before a place, in the ordered points of a line. */
function at(line, x, holds) {
  let low = 0, high = line.x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (line.x[middle] <= x) low = middle + 1;
    else high = middle;
  }
  const before = low - 1;
  if (before < 0 && line.x[0] - x > (line.x[1] - line.x[0] || 0)) return undefined;
  if (holds || low >= line.x.length) return line.y[Math.max(before, 0)];
  return line.y[before < 0 || line.x[low] - x < x - line.x[before] ? low : before];
}

/** The value of every line at `x`: a row for each name, a column for each panel with the same horizontal axis. */
function readout(figure, index, x) {
  const all = lines(figure);
  const columns = (figure.spec.vconcat ? all : [all[index]]).filter((panel) => panel.names.size);
  if (!columns.length) return null;
  const colors = new Map(all.flatMap((panel) => [...panel.colors]));
  const chosen = Object.values(figure.view.getState().signals.named ?? {}).find(Array.isArray);
  const names = [...new Set(columns.flatMap((panel) => [...panel.names.keys()]))];
  const rows = names.flatMap((name) => {
    const group = columns.map((panel) => panel.names.get(name)?.group).find((found) => found !== undefined);
    if (chosen && colors.has(group) && !chosen.includes(group)) return [];
    const values = columns.map((panel) => {
      const line = panel.names.get(name);
      return line ? at(line, x, panel.spans) : undefined;
    });
    if (values.every((value) => value === undefined)) return [];
    const swatch = element("i");
    swatch.style.background = colors.get(group) ?? "#80808080";
    return [element("tr", {}, element("th", {scope: "row"}, swatch, name || "value"),
      ...values.map((value) => element("td", {}, value === undefined ? "" : short(value))))];
  });
  const across = columns.map((panel) => panel.across).find(Boolean) ?? "";
  const [word, unit] = across.split(", ");
  const caption = element("caption", {}, `${word} ${short(x)}${unit ? ` ${unit}` : ""}`);
  const head = element("tr", {}, element("th"), ...columns.map((panel) => element("th", {scope: "col"}, panel.title)));
  return element("table", {}, caption, element("thead", {}, head), element("tbody", {}, ...rows));
}

/** Shows something beside the pointer, where it covers least. */
function tell(content, event) {
  told.replaceChildren(content);
  told.style.display = "block";
  const {width, height} = told.getBoundingClientRect();
  const left = event.clientX + 18 + width < innerWidth ? event.clientX + 18 : event.clientX - 18 - width;
  told.style.left = `${Math.max(4, Math.min(left, innerWidth - width - 4))}px`;
  told.style.top = `${Math.max(4, Math.min(event.clientY - height / 2, innerHeight - height - 4))}px`;
}

/** The values of the single mark under the pointer, from Vega. */
function tooltip(handler, event, item, value) {
  if (value == null || value === "") {
    if (!told.dataset.lines) told.style.display = "none";
    return;
  }
  const rows = Object.entries(typeof value === "object" ? value : {"": value}).map(([name, each]) =>
    element("tr", {}, element("th", {scope: "row"}, name), element("td", {}, short(each))));
  tell(element("table", {}, element("tbody", {}, ...rows)), event);
}

// ---- Pointer and buttons

function attend(place, figure) {
  const rule = place.appendChild(element("div", {className: "rule"}));
  const leave = () => {
    rule.style.display = told.style.display = "none";
    delete told.dataset.lines;
  };
  place.addEventListener("pointermove", (event) => {
    if (!figure.view || figure.frames || event.buttons) return leave();
    const frame = place.getBoundingClientRect();
    const [x, y] = [event.clientX - frame.left + place.scrollLeft, event.clientY - frame.top];
    const panels = geometry(figure);
    const index = panels.findIndex((panel) =>
      panel && x >= panel.x - 2 && x <= panel.x + panel.width + 2 && y >= panel.y - 2 && y <= panel.y + panel.height + 2);
    if (!panels[index]?.across?.invert) return leave();
    const table = readout(figure, index, panels[index].across.invert(x - panels[index].x));
    if (!table) return undefined;
    const all = figure.spec.vconcat ? panels.filter(Boolean) : [panels[index]];
    const last = all[all.length - 1];
    Object.assign(rule.style, {
      display: "block", left: `${x}px`, top: `${all[0].y}px`, height: `${last.y + last.height - all[0].y}px`,
    });
    told.dataset.lines = "yes";
    return tell(table, event);
  });
  place.addEventListener("pointerleave", leave);
  place.addEventListener("dblclick", () => draw(place, figure.width)); // all names and all values again

  const holder = place.closest("figure");
  for (const kind of ["svg", "png"]) {
    const act = () => save(figure, `${holder.dataset.name}.${kind}`, kind);
    const title = "Save the chart as it is shown";
    holder.querySelector(".tools").append(element("button", {type: "button", textContent: kind.toUpperCase(), title, onclick: act}));
  }
}

/** The chart as a file, dark on white. */
async function save(figure, download, kind) {
  const href = await figure.view.background("white").toImageURL(kind, 2);
  figure.view.background("transparent");
  element("a", {download, href}).click();
}

// ---- Animation

/** Shows the frame of a moment: the last snapshot, and every value of `now` at that time. */
function show(figure, time) {
  const {snapshots, now} = figure.frames;
  figure.at = time;
  let last = null;
  for (const snapshot of snapshots) if (snapshot.t <= time + 1e-9) last = snapshot;
  const flat = (rows) => (rows ?? []).flatMap((row) => row.w.map((w, index) => ({scheme: row.scheme, w, d: row.d[index]})));
  const state = now.map((row) => {
    let index = 0;
    while (index + 1 < row.t.length && row.t[index + 1] <= time + 1e-9) index += 1;
    return {scheme: row.scheme, w: row.w[index], d: row.d[index]};
  }).filter((row) => row.w != null && row.d != null);
  figure.view.data("points", flat(last?.points)).data("curves", flat(last?.curves)).data("now", state).run();
  return last;
}

function player(place) {
  const figure = figures[Number(place.dataset.figure)];
  const {start, end, step} = figure.frames;
  const play = element("button", {type: "button", textContent: "Play"});
  const slider = element("input", {type: "range", min: start, max: end, step, value: start});
  slider.setAttribute("aria-label", "time, s");
  const output = element("output");
  const move = (time) => {
    slider.value = time;
    if (!figure.view) draw(place);
    const last = show(figure, Number(slider.value));
    output.textContent = `${Number(slider.value).toFixed(1)} s${last ? `, profile of ${short(last.t)} s` : ", no profile yet"}`;
  };
  let begun = null;
  const SPEED = Math.max(1, (end - start) / 15); // all of it within 15 s
  const tick = (clock) => {
    if (begun === null) return;
    const time = begun.time + ((clock - begun.clock) / 1000) * SPEED;
    if (time >= end) {
      move(end);
      return stop();
    }
    move(time);
    return requestAnimationFrame(tick);
  };
  const stop = () => { begun = null; play.textContent = "Play"; };
  play.onclick = () => {
    if (begun) return stop();
    const time = Number(slider.value) >= end ? start : Number(slider.value);
    begun = {time, clock: performance.now()};
    play.textContent = "Pause";
    return requestAnimationFrame(tick);
  };
  slider.oninput = () => { stop(); move(Number(slider.value)); };
  figure.at = end;
  slider.value = end;
  place.closest("figure").querySelector(".player").append(play, slider, output);
  const last = figure.frames.snapshots.at(-1);
  output.textContent = `${Number(end).toFixed(1)} s${last ? `, profile of ${short(last.t)} s` : ""}`;
}

// ---- Order of drawing: visible figures first, then the others while the page is idle

for (const place of places) {
  const figure = figures[Number(place.dataset.figure)];
  attend(place, figure);
  if (figure.frames) player(place);
}

const left = new Set(places);
const drawOnce = (place) => { if (left.delete(place)) draw(place); };
const seen = new IntersectionObserver((entries) => {
  for (const {isIntersecting, target} of entries) {
    if (isIntersecting) {
      seen.unobserve(target);
      drawOnce(target);
    }
  }
}, {rootMargin: "300px"});
for (const place of places) seen.observe(place);

const later = window.requestIdleCallback ?? ((act) => setTimeout(act, 50));
const rest = () => {
  const [next] = left;
  if (!next) return;
  drawOnce(next);
  later(rest);
};
addEventListener("load", () => setTimeout(() => later(rest), 600));

let waiting = 0;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    for (const place of places) if (!left.has(place) && figures[Number(place.dataset.figure)].width !== place.clientWidth) draw(place);
  }, 150);
});

const PAPER = 680; // the width of a page of A4 or letter, in CSS pixels
addEventListener("beforeprint", () => {
  for (const place of places) {
    left.delete(place);
    draw(place, Math.min(PAPER, place.clientWidth || PAPER));
  }
});
addEventListener("afterprint", () => { for (const place of places) draw(place); });
