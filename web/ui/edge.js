// Drawing of one edge of the graph, or of the edges between folded replicas.

import { s } from "./dom.js";
import * as format from "./format.js";
import { HEIGHT, WIDTH } from "./node.js";

/// Room for the label of an edge below its start.
const LABEL = 12;
/// Edges listed in the tooltip.
const TOLD = 8;

/// Path of an edge through `corners`, the upper left corners of its start, the rows that it passes, and its end:
/// `{ path, label, end, box }`, where `box` encloses it.
export function route(corners) {
  const middle = corners.map(({ x, y }) => ({ x: x + WIDTH / 2, y }));
  const [start, end] = [middle[0], middle.at(-1)];
  let last = { x: start.x, y: start.y + HEIGHT };
  let path = `M${last.x} ${last.y}`;
  for (const through of middle.slice(1, -1)) {
    path += `${curve(last, through)} V${through.y + HEIGHT}`;
    last = { x: through.x, y: through.y + HEIGHT };
  }
  path += curve(last, end);
  const [across, down] = [middle.map(({ x }) => x), [start.y, end.y]];
  return {
    path, end, label: { x: (start.x + middle[1].x) / 2, y: start.y + HEIGHT + LABEL + 3 },
    box: { left: Math.min(...across), right: Math.max(...across), top: Math.min(...down), bottom: Math.max(...down) },
  };
}

/// Everything that is drawn of `edge` from `fold`, as plain values that can be compared; `unit` is `bits` or `frames`.
export function faceOf(edge, unit, isFar) {
  const fillOf = (edges) => Math.max(0, ...edges.map((one) => one.queued_frames / Math.max(1, one.queue_frames)));
  const fill = fillOf(edge.members);
  // A full queue that drops frames delays no block.
  const isFull = fillOf(edge.members.filter((one) => !format.drops(one))) >= 0.99;
  const level = isFull ? "full" : fill >= 0.5 ? "filling" : "";
  if (isFar) return { isFar, level };
  const rates = edge.members.map((one) => (unit === "bits" ? one.bytes_per_second : one.frames_per_second));
  const rate = rates.includes(null) ? null : rates.reduce((sum, one) => sum + one, 0);
  const title = edge.members.slice(0, TOLD).map((one) =>
    `${one.from}.${one.output} → ${one.to}.${one.input}: ${one.carries}; ${format.frames(one.frames_per_second)} of ` +
    `${format.frames(one.expected_frames_per_second)}; queue ${format.queue(one)}`).join("\n");
  return { isFar, level, fill, rate, title, text: unit === "bits" ? format.bits(rate) : format.frames(rate) };
}

/// The element of an edge with this `face` along `route`.
export function drawEdge({ path, label, end }, { isFar, level, fill, rate, title, text }) {
  const wire = s("path", { class: "wire", d: path });
  if (isFar) return s("g", { class: `edge ${level}` }, wire);
  return s("g", { class: `edge ${level}`, "data-rate": rate ?? "" },
    s("title", {}, title), wire,
    s("rect", { class: "queue", x: end.x + 5, y: end.y - 15, width: 5, height: 12, rx: 1 }),
    s("rect", { class: "queued", x: end.x + 5, y: (end.y - 3 - 12 * fill).toFixed(1), width: 5, height: (12 * fill).toFixed(1), rx: 1 }),
    s("text", { class: "rate", x: label.x, y: label.y, "text-anchor": "middle" }, text));
}

function curve(from, to) {
  const half = (from.y + to.y) / 2;
  return from.x === to.x ? ` V${to.y}` : ` C${from.x} ${half} ${to.x} ${half} ${to.x} ${to.y}`;
}
