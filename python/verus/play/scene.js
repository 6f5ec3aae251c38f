// The packets: one queue before one link, from left to right, and the acknowledgements below on their way back.

import { PHASES, color } from "./charts.js";
import { PACKET } from "./scenario.js";

const HEIGHT = 112;

const LARGEST = 11; // the side of a packet, px

/** The size of packets, and the number in a stack, so that this many fit. */
function packed(most, wide, tall) {
  let best = { size: 0, rows: 1 };
  for (let rows = 1; rows <= most && best.size < LARGEST; rows++) {
    if (tall / rows <= best.size) break;
    const size = Math.min(LARGEST, tall / rows, wide / Math.ceil(most / rows));
    if (size > best.size) best = { size, rows };
  }
  return { ...best, rows: Math.max(best.rows, Math.floor(tall / best.size)) };
}

export class Scene {
  constructor(place, { scheme, name, flows }, queue) {
    this.root = document.createElement("div");
    this.root.className = "scene";
    this.key = document.createElement("div");
    this.key.className = "key";
    const title = document.createElement("b");
    const dot = document.createElement("i");
    dot.style.color = color(scheme);
    title.append(dot, name);
    this.told = document.createElement("span");
    this.phase = document.createElement("span");
    this.phase.className = "phase";
    this.key.append(title, this.told, this.phase);
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `Packets of ${name}: in the bottleneck's queue, on the link, and acknowledged`);
    this.root.append(this.key, this.canvas);
    place.append(this.root);
    this.colors = Array.from({ length: flows }, (_, flow) => color(scheme, flows > 1 ? (flow + 0.01) / flows : 0));
    const bytes = /(?:bytes|limit_bytes)=(\d+)/.exec(queue);
    this.limit = bytes ? Number(bytes[1]) / PACKET : 0;
    this.most = this.limit || 60;
    this.resize();
  }

  resize() {
    const scale = devicePixelRatio || 1;
    this.width = this.canvas.clientWidth || 600;
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = HEIGHT * scale;
    this.context = this.canvas.getContext("2d");
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    const style = getComputedStyle(document.documentElement);
    this.style = Object.fromEntries(["fg", "soft", "line", "edge", "area", "bad"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  draw(frame, rate) {
    const { context: c, width, style } = this;
    const flows = frame[5], slices = frame[6], packets = frame[7], waiting = frame[3];
    if (this.canvas.clientWidth && this.canvas.clientWidth !== this.width) this.resize();
    c.clearRect(0, 0, width, HEIGHT);
    const narrow = width < 560;
    const edge = narrow ? 8 : 62; // the place of the endpoints
    const left = edge + 8, right = width - edge - 8;
    const head = left + (right - left) * (narrow ? 0.5 : 0.46); // the head of the queue, where the link begins
    const top = 20, bottom = 74, lane = (top + bottom) / 2, back = 96;

    // The buffer: its size, or its largest occupancy if it has no limit.
    this.most = Math.max(this.most, this.limit ? waiting : waiting * 1.15);
    const { size, rows } = packed(this.most, head - left - 4, bottom - top - 4);
    c.fillStyle = style.area;
    c.fillRect(left, top, head - left, bottom - top);
    c.strokeStyle = style.edge;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(left, top + 0.5); c.lineTo(head, top + 0.5); c.lineTo(head, lane - 7);
    c.moveTo(head, lane + 7); c.lineTo(head, bottom - 0.5); c.lineTo(left, bottom - 0.5);
    c.moveTo(head, lane - 7); c.lineTo(right, lane - 7);
    c.moveTo(head, lane + 7); c.lineTo(right, lane + 7);
    c.stroke();
    c.setLineDash([2, 4]);
    c.beginPath(); c.moveTo(left, back + 0.5); c.lineTo(right, back + 0.5); c.stroke();
    c.setLineDash([]);
    c.fillStyle = style.soft;
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "middle";
    if (!narrow) {
      c.textAlign = "right"; c.fillText("sender", left - 8, lane);
      c.textAlign = "left"; c.fillText("receiver", right + 8, lane);
      c.fillText("acks", right + 8, back);
    }
    c.textAlign = "left";
    c.fillText(`queue ${Math.round(frame[2] / 1000)} kB${this.limit ? ` of ${Math.round((this.limit * PACKET) / 1000)}` : ""}`, left, 9);
    c.textAlign = "right";
    c.fillText(rate === undefined ? "link" : `link, ${rate.toFixed(1)} Mbit/s now`, right, 9);

    // Packets, flow by flow, so that the colour changes rarely.
    const from = 8 + 2 * flows + slices * (3 + 3 * flows);
    const gap = size > 3 ? 1 : 0;
    for (let flow = 0; flow < flows; flow++) {
      c.fillStyle = this.colors[flow];
      let place = 0;
      for (let packet = 0; packet < packets; packet++) {
        const at = from + 3 * packet, stage = frame[at + 1], share = frame[at + 2];
        const own = frame[at] === flow;
        if (stage === 0) {
          if (own) {
            const column = Math.floor(place / rows), row = place % rows;
            c.fillRect(head - 2 - (column + 1) * size, bottom - 2 - (row + 1) * size, size - gap, size - gap);
          }
          place++;
        } else if (!own) continue;
        else if (stage === 1) c.fillRect(head + share * (right - head - 6), lane - 4, 5, 8);
        else if (stage === 2) c.fillRect(right - share * (right - left), back - 1.5, 3, 3);
      }
    }
    c.fillStyle = style.bad;
    for (let packet = 0; packet < packets; packet++) {
      const at = from + 3 * packet;
      if (frame[at + 1] !== 3) continue;
      c.globalAlpha = 1 - frame[at + 2];
      c.fillRect(left - 3 - (packet % 5) * 2, bottom + frame[at + 2] * 18, 5, 5);
    }
    c.globalAlpha = 1;

    const phases = [...new Set(Array.from({ length: flows }, (_, flow) => PHASES[frame[9 + 2 * flow]]))].filter(Boolean);
    let window = 0;
    for (let flow = 0; flow < flows; flow++) window += frame[8 + 2 * flow];
    const words = `${waiting} packet${waiting === 1 ? " waits" : "s wait"} · ${frame[4]} dropped · window ${flows > 1 ? "on average " : ""}${Math.round(window / flows / PACKET)} packets`;
    if (this.words !== words) this.told.textContent = this.words = words;
    const phase = phases.join(", ");
    if (this.phased !== phase) this.phase.textContent = this.phased = phase;
  }
}
