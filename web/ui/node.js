// Drawing of one node of the graph: a block, or folded replicas.

import { s } from "./dom.js";
import * as format from "./format.js";

export const WIDTH = 172;
export const HEIGHT = 46;
/// Number of characters of a name that fit into a node.
const CHARACTERS = 19;
const MARKS = { running: "●", stalled: "◌", starting: "○", finished: "✓", failed: "✕" };

/// Everything that is drawn of `node` from `fold`, as plain values that can be compared.
/// - `figures`: statistics of its blocks from the REST API
/// - `marks`: `rec`, `shadow`
/// - `limits`, `isSelected`, `isFound`, `isFocused`
/// - `isFar`: only the box is visible at the scale of the graph
export function faceOf(node, { figures, ...rest }) {
  const sum = (name) => figures.reduce((all, block) => all + block.totals[name], 0);
  const [losses, faults] = [sum("losses"), sum("faults")];
  const lags = figures.map((block) => block.lag_seconds).filter((lag) => lag !== null && lag !== undefined);
  return {
    ...rest, name: node.name, kind: node.kind, device: node.device, state: node.state, replicas: node.members.length,
    // Half a percent is not visible.
    busy: Math.round(1000 * node.busy) / 1000,
    held: Math.round(100 * Math.max(0, ...figures.map((block) => block.rates?.room_wait_fraction ?? 0))) / 100,
    trouble: losses ? `${format.si(losses, "")} drops` : faults ? `${format.si(faults, "")} faults` : "",
    lag: lags.length > 0 ? format.lag(Math.max(...lags)) : "",
    isLate: lags.some((lag) => lag > 2),
  };
}

/// The element of a node with this `face` at the pixel (`x`, `y`).
export function drawNode(key, names, { x, y }, face) {
  const { isFar, limits, marks, lag } = face;
  const classes = ["node", face.state, face.device.startsWith("cuda") ? "gpu" : "cpu",
    isFar && "far", limits && "limits", face.isSelected && "selected", face.isFound && "found"];
  const said = [face.name, face.replicas > 1 && `${face.replicas} replicas`, face.kind, `on ${face.device}`, face.state,
    `busy ${format.percent(face.busy)}`, `waits for output ${format.percent(face.held)}`, lag && `lag ${lag}`,
    limits && "bottleneck of the flowgraph", face.trouble, ...marks];
  return s("g", {
    class: classes.filter(Boolean).join(" "), transform: `translate(${x} ${y})`, role: "button", "data-key": key, "data-names": JSON.stringify(names),
    // Its texts name it, so that users who speak what they see reach it.
    tabindex: face.isFocused ? 0 : -1, [isFar ? "aria-label" : "aria-description"]: said.filter(Boolean).join(", "),
  },
    face.replicas > 1 && s("rect", { class: "behind", x: 4, y: 4, width: WIDTH, height: HEIGHT, rx: 6 }),
    s("rect", { class: "box", width: WIDTH, height: HEIGHT, rx: 6 }),
    s("path", { class: "stripe", d: `M6 0 h-1 a5 5 0 0 0 -5 5 v${HEIGHT - 10} a5 5 0 0 0 5 5 h1 z` }),
    !isFar && details(face));
}

function details({ name: full, kind, state, replicas, busy, held, trouble, limits, marks, lag, isLate }) {
  const times = replicas > 1 ? ` ×${replicas}` : "";
  const prefix = full.slice(0, full.lastIndexOf(".") + 1);
  const name = clip(full.slice(prefix.length), prefix ? 13 : CHARACTERS - times.length);
  const room = Math.max(4, CHARACTERS - times.length - name.length);
  const length = (share) => ((WIDTH - 23) * Math.max(0, Math.min(1, share))).toFixed(1);
  return [
    s("text", { class: "name", x: 14, y: 18 }, s("tspan", { class: "prefix" }, clipStart(prefix, room)), s("tspan", {}, name), s("tspan", { class: "times" }, times)),
    s("text", { class: "mark", x: WIDTH - 9, y: 18, "text-anchor": "end" }, MARKS[state] ?? ""),
    s("text", { class: trouble ? "kind trouble" : "kind", x: 14, y: 33 }, trouble || clip(kind, 19)),
    s("text", { class: "busy", x: WIDTH - 9, y: 33, "text-anchor": "end" }, format.percent(busy)),
    s("rect", { class: "load", x: 14, y: HEIGHT - 7, width: WIDTH - 23, height: 3, rx: 1.5 }),
    s("rect", { class: "loaded", x: 14, y: HEIGHT - 7, width: length(busy), height: 3, rx: 1.5 }),
    s("rect", { class: "held", x: 14 + Number(length(busy)), y: HEIGHT - 7, width: length(Math.min(held, 1 - busy)), height: 3, rx: 1.5 }),
    (marks.length > 0 || limits) && s("text", { class: "marks", x: 8, y: -4 }, marks.map((mark) => s("tspan", { class: mark }, `● ${mark} `)), limits && s("tspan", { class: "limit" }, "limit")),
    lag && s("text", { class: isLate ? "lag late" : "lag", x: WIDTH - 8, y: -4, "text-anchor": "end" }, `lag ${lag}`),
  ];
}

const clipStart = (text, length) => (text.length > length ? `…${text.slice(1 - length)}` : text);
const clip = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
