// The charts over time, and the colours of senders.

/** The hues of `verus/style.py`; where there are two, the second is for dark pages. */
const HUES = {
  verus: ["#1c7fc7", "#46aee6"], cubic: ["#d55e00"], newreno: ["#e69f00"], vegas: ["#009e73"], sprout: ["#cc79a7"], forward: ["#e7298a"],
  bbr1: ["#7f7f7f"], bbr: ["#b20047", "#f0608f"], copa: ["#5c9e12"], ledbatpp: ["#b2a700"], c4: ["#c22be0"], vivace: ["#ff4f8b"], scream: ["#0b7285", "#3fa9bd"],
  prague: ["#9a7fe8"], hand: ["#5a3fb0", "#a893e0"],
};
const OTHER = ["#8c6d31"];
const dark = matchMedia("(prefers-color-scheme: dark)");

/** A sender's colour; `share` from 0 to 1 varies it, so that flows of one sender differ. */
export function color(scheme, share = 0) {
  const hues = HUES[scheme.split(":")[0]] ?? OTHER;
  const [red, green, blue] = hues.at(dark.matches ? -1 : 0).match(/\w\w/g).map((part) => parseInt(part, 16));
  if (!share) return `rgb(${red},${green},${blue})`;
  // Half of the flows are darker, half lighter, by up to two fifths.
  const to = share < 0.5 ? (dark.matches ? 255 : 0) : (dark.matches ? 0 : 255);
  const by = 0.8 * (share < 0.5 ? share : share - 0.5) + 0.1;
  return `rgb(${[red, green, blue].map((part) => Math.round(part + (to - part) * by)).join()})`;
}

export const PHASES = ["", "slow start", "steady", "recovery", "draining", "silent"];
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const shown = (value) => (value == null || Number.isNaN(value) ? "–" : value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

/** Charts of a number of slices; each has a column for each line. */
export class Charts {
  constructor() {
    this.charts = {};
    this.sizes = new ResizeObserver((entries) => {
      for (const { target } of entries) {
        const chart = Object.values(this.charts).find(({ plot }) => plot?.root.parentNode === target);
        if (chart && target.clientWidth) chart.plot.setSize({ width: target.clientWidth, height: target.clientHeight });
      }
    });
    for (const plot of document.querySelectorAll(".charts .plot")) this.sizes.observe(plot);
  }

  /** Empty charts for these lanes: `{scheme, name, flows, capacity}` each. */
  open(lanes, { duration, slice, capacity }) {
    this.lanes = lanes;
    const slices = Math.floor(duration / slice + 1e-6);
    this.x = Array.from({ length: slices }, (_, index) => (index + 1) * slice);
    this.filled = 0;
    const column = () => new Array(slices).fill(null);
    const several = lanes[0].flows > 1;
    const total = lanes.map((lane, index) => ({ label: lane.name, lane: index, stroke: color(lane.scheme), width: 2, dash: index ? [6, 4] : undefined, values: column() }));
    const perFlow = (index) =>
      Array.from({ length: lanes[index].flows }, (_, flow) => ({
        label: `${lanes[index].name} ${flow + 1}`, lane: index, flow, values: column(), dash: index ? [6, 4] : undefined,
        stroke: color(lanes[index].scheme, lanes[index].flows > 1 ? (flow + 0.01) / lanes[index].flows : 0), width: several ? 1 : 2,
      }));
    const copy = () => total.map((line) => ({ ...line, values: column() }));
    const room = { label: "capacity", stroke: style("--edge"), fill: style("--area"), width: 1, values: this.x.map((_, index) => capacity[index] ?? null), capacity: true };
    this.define("throughput", [room, ...(several ? perFlow(0) : []), ...total]);
    this.define("delay", copy());
    this.define("queue", copy());
    this.define("cwnd", lanes.flatMap((_, index) => perFlow(index)));
  }

  define(name, lines) {
    const figure = document.getElementById(name);
    const place = figure.querySelector(".plot");
    this.charts[name]?.plot.destroy();
    const chart = { lines, now: figure.querySelector(".now") };
    const axis = { stroke: style("--soft"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    chart.plot = new uPlot({
      width: place.clientWidth || 300, height: place.clientHeight || 190, legend: { show: false }, padding: [10, 12, 0, 0],
      scales: { x: { time: false, range: [0, this.x.at(-1) ?? 1] }, y: { range: (_, __, most) => [0, (most > 0 ? most : 1) * 1.08] } },
      axes: [{ ...axis, size: 28, values: (_, ticks) => ticks.map((tick) => `${tick} s`) }, { ...axis, size: 46 }],
      cursor: { sync: { key: "verus" }, y: false, points: { show: false }, drag: { setScale: false, x: false, y: false } },
      series: [{}, ...lines.map(({ stroke, width, dash, fill, label }) => ({ stroke, width, dash, fill, label, points: { show: false }, spanGaps: false }))],
      hooks: { setCursor: [() => this.tell(name)] },
    }, [this.x, ...lines.map((line) => line.values)], place);
    this.charts[name] = chart;
    this.tell(name);
  }

  /** Adds the slices of a frame; both lanes get the same number. */
  add(frames) {
    let from = this.filled;
    frames.forEach((frame, index) => {
      const flows = frame[5], slices = frame[6], wide = 3 + 3 * flows;
      for (let slice = 0; slice < slices; slice++) {
        const at = 8 + 2 * flows + slice * wide, row = from + slice;
        let sum = 0, waited = 0;
        for (let flow = 0; flow < flows; flow++) {
          const mbps = frame[at + 3 + 3 * flow], delay = frame[at + 4 + 3 * flow];
          sum += mbps;
          if (mbps > 0) waited += mbps * delay;
          this.put("throughput", index, flow, row, mbps);
          this.put("cwnd", index, flow, row, frame[at + 5 + 3 * flow] / 1500);
        }
        this.put("throughput", index, undefined, row, sum);
        this.put("delay", index, undefined, row, sum > 0 ? waited / sum : null);
        this.put("queue", index, undefined, row, frame[at + 1] / 1000);
      }
      if (index === frames.length - 1) this.filled = from + slices;
    });
    return this.filled > from;
  }

  put(name, lane, flow, row, value) {
    const line = this.charts[name].lines.find((line) => !line.capacity && line.lane === lane && line.flow === flow);
    if (line && row < line.values.length) line.values[row] = value;
  }

  draw() {
    for (const [name, { plot, lines }] of Object.entries(this.charts)) {
      plot.setData([this.x, ...lines.map((line) => line.values)]);
      this.tell(name);
    }
  }

  /** The values under the cursor, or the newest, above the chart. */
  tell(name) {
    const chart = this.charts[name];
    if (!chart?.plot) return;
    const at = chart.plot.cursor.idx ?? this.filled - 1;
    // With many flows, the lane's mean.
    const words = this.lanes.map((lane, index) => {
      const own = chart.lines.filter((line) => !line.capacity && line.lane === index);
      const lines = own.some((line) => line.flow === undefined) ? own.filter((line) => line.flow === undefined) : own;
      const found = lines.map((line) => line.values[at]).filter((value) => value != null);
      return [color(lane.scheme), index ? "┅" : "━", shown(found.length ? found.reduce((sum, value) => sum + value, 0) / found.length : null)];
    });
    const text = JSON.stringify(words);
    if (chart.told === text) return;
    chart.told = text;
    chart.now.replaceChildren(...words.map(([hue, stroke, word]) => {
      const span = document.createElement("span"), line = document.createElement("i");
      line.style.color = hue;
      line.textContent = stroke;
      span.append(line, ` ${word}`);
      return span;
    }));
  }
}
