// Live drawing of the graph: device and load of blocks, rates and queues of edges.

import { at, morph, s } from "./dom.js";
import { fold, pattern } from "./fold.js";
import * as format from "./format.js";
import { layout } from "./layout.js";

const WIDTH = 172;
const HEIGHT = 46;
const GAP = { x: 18, y: 34 };
const MARGIN = { x: 10, top: 18, bottom: 10 };
/// Number of characters of a name that fit into a node.
const CHARACTERS = 19;
const SMALLEST_SCALE = 0.72;
/// States of an active recorder.
const MARKED = new Set(["waiting", "recording"]);
const MARKS = { running: "●", stalled: "◌", starting: "○", finished: "✓", failed: "✕" };

export class Graph {
  #drawn = { key: "", places: null };
  #graph = null;
  #figures = new Map();
  #limit = null;
  #marks = new Map();
  #selected = null;
  #focused = null;
  #folded = { nodes: [], edges: [] };

  /// `onOpen(names)` is called when the user opens a block or replicas.
  constructor(onOpen) {
    this.box = at("graph");
    this.onOpen = onOpen;
    this.foldBox = at("fold");
    this.unit = at("unit");
    this.unit.value = localStorage.getItem("fxgraph-unit") ?? "bits";
    this.foldBox.addEventListener("change", () => {
      this.chosen = this.foldBox.checked;
      this.draw();
    });
    this.unit.addEventListener("change", () => {
      localStorage.setItem("fxgraph-unit", this.unit.value);
      this.draw();
    });
    this.box.addEventListener("click", ({ target }) => this.#open(target.closest(".node")));
    this.box.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#graph && this.draw()).observe(this.box.parentElement);
  }

  /// Shows the graph of a flowgraph with the statistics, shadows and recorders of its blocks.
  show({ flowgraph, blocks, shadows, recorders }) {
    this.#graph = flowgraph.graph;
    this.#figures = new Map(blocks.map((block) => [block.name, block]));
    this.#limit = flowgraph.limited_by?.block;
    this.#marks = new Map(blocks.map(({ name }) => [name, [
      recorders.some((one) => one.output?.startsWith(`${name}.`) && MARKED.has(one.state)) && "rec",
      shadows.some((one) => one.block === name && !one.ended) && "shadow",
    ].filter(Boolean)]));
    this.draw();
  }

  /// Marks the block called `name`, whose panel is open.
  select(name) {
    this.#selected = name;
    if (this.#graph) this.draw();
  }

  focus() {
    (this.box.querySelector('.node[tabindex="0"]') ?? this.box).focus();
  }

  draw() {
    const folded = fold(this.#graph, this.#isFolded());
    this.#folded = folded;
    const key = JSON.stringify([folded.nodes.map((node) => node.key), folded.edges.map((edge) => edge.key)]);
    if (key !== this.#drawn.key) this.#drawn = { key, ...layout(folded.nodes, folded.edges) };
    const { columns, rows } = this.#drawn;
    const width = columns * (WIDTH + GAP.x) - GAP.x + 2 * MARGIN.x;
    const height = rows * (HEIGHT + GAP.y) - GAP.y + MARGIN.top + MARGIN.bottom;
    const scale = Math.max(SMALLEST_SCALE, Math.min(1, (this.box.clientWidth - 2) / width));
    document.documentElement.style.setProperty("--graph-width", `${Math.ceil(width * SMALLEST_SCALE)}px`);
    if (!folded.nodes.some((node) => node.key === this.#focused)) this.#focused = folded.nodes[0]?.key;
    morph(this.box, [
      s("svg", { viewBox: `0 0 ${width} ${height}`, width: width * scale, height: height * scale, role: "group", "aria-label": "blocks and edges" },
        folded.edges.map((edge) => this.#edge(edge, this.#drawn.bends.get(edge.key))),
        folded.nodes.map((node) => this.#node(node))),
    ]);
  }

  #isFolded() {
    const { blocks } = this.#graph;
    const patterns = new Set(blocks.map((block) => pattern(block.name)));
    this.foldBox.disabled = patterns.size === blocks.length;
    if (this.chosen === undefined) this.foldBox.checked = !this.foldBox.disabled && blocks.length > 8;
    return this.foldBox.checked;
  }

  #corner({ column, row }) {
    return { x: MARGIN.x + column * (WIDTH + GAP.x), y: MARGIN.top + row * (HEIGHT + GAP.y) };
  }

  #node(node) {
    const { x, y } = this.#corner(this.#drawn.places.get(node.key));
    const names = node.members.map((block) => block.name);
    const limits = names.includes(this.#limit);
    const figures = names.map((name) => this.#figures.get(name)).filter(Boolean);
    const sum = (name) => figures.reduce((all, block) => all + block.totals[name], 0);
    const [losses, faults] = [sum("losses"), sum("faults")];
    const held = Math.max(0, ...figures.map((block) => block.rates?.room_wait_fraction ?? 0));
    const marks = [...new Set(names.flatMap((name) => this.#marks.get(name) ?? []))];
    const trouble = losses ? `${format.si(losses, "")} drops` : faults ? `${format.si(faults, "")} faults` : "";
    const times = node.members.length > 1 ? ` ×${node.members.length}` : "";
    const prefix = node.name.slice(0, node.name.lastIndexOf(".") + 1);
    const name = clip(node.name.slice(prefix.length), prefix ? 13 : CHARACTERS - times.length);
    const room = Math.max(4, CHARACTERS - times.length - name.length);
    const classes = ["node", node.state, node.device.startsWith("cuda") ? "gpu" : "cpu",
      limits && "limits", names.includes(this.#selected) && "selected"];
    const said = [node.name, node.members.length > 1 && `${node.members.length} replicas`, node.kind, `on ${node.device}`,
      node.state, `busy ${format.percent(node.busy)}`, `waits for output ${format.percent(held)}`, limits && "bottleneck of the flowgraph", trouble, ...marks];
    const length = (share) => ((WIDTH - 23) * Math.max(0, Math.min(1, share))).toFixed(1);
    return s("g", {
      class: classes.filter(Boolean).join(" "), transform: `translate(${x} ${y})`, role: "button", "data-key": node.key, "data-names": JSON.stringify(names),
      tabindex: node.key === this.#focused ? 0 : -1, "aria-label": said.filter(Boolean).join(", "),
    },
      node.members.length > 1 && s("rect", { class: "behind", x: 4, y: 4, width: WIDTH, height: HEIGHT, rx: 6 }),
      s("rect", { class: "box", width: WIDTH, height: HEIGHT, rx: 6 }),
      s("path", { class: "stripe", d: `M6 0 h-1 a5 5 0 0 0 -5 5 v${HEIGHT - 10} a5 5 0 0 0 5 5 h1 z` }),
      s("text", { class: "name", x: 14, y: 18 }, s("tspan", { class: "prefix" }, clipStart(prefix, room)), s("tspan", {}, name), s("tspan", { class: "times" }, times)),
      s("text", { class: "mark", x: WIDTH - 9, y: 18, "text-anchor": "end" }, MARKS[node.state] ?? ""),
      s("text", { class: trouble ? "kind trouble" : "kind", x: 14, y: 33 }, trouble || clip(node.kind, 19)),
      s("text", { class: "busy", x: WIDTH - 9, y: 33, "text-anchor": "end" }, format.percent(node.busy)),
      s("rect", { class: "load", x: 14, y: HEIGHT - 7, width: WIDTH - 23, height: 3, rx: 1.5 }),
      s("rect", { class: "loaded", x: 14, y: HEIGHT - 7, width: length(node.busy), height: 3, rx: 1.5 }),
      s("rect", { class: "held", x: 14 + Number(length(node.busy)), y: HEIGHT - 7, width: length(Math.min(held, 1 - node.busy)), height: 3, rx: 1.5 }),
      marks.length > 0 && s("text", { class: "marks", x: 8, y: -4 }, marks.map((mark) => s("tspan", { class: mark }, `● ${mark} `))),
      limits && s("text", { class: "limit", x: WIDTH - 8, y: -4, "text-anchor": "end" }, "limit"));
  }

  #edge(edge, bends) {
    const [from, to] = [edge.from, edge.to].map((key) => this.#corner(this.#drawn.places.get(key)));
    const middle = (corner) => ({ x: corner.x + WIDTH / 2, y: corner.y });
    const start = middle(from);
    start.y += HEIGHT;
    const end = middle(to);
    let path = `M${start.x} ${start.y}`;
    let last = start;
    for (const bend of bends) {
      const through = middle(this.#corner(bend));
      path += `${curve(last, through)} V${through.y + HEIGHT}`;
      last = { x: through.x, y: through.y + HEIGHT };
    }
    path += curve(last, end);
    const fill = Math.max(...edge.members.map((one) => one.queued_frames / Math.max(1, one.queue_frames)));
    const rates = edge.members.map((one) => this.unit.value === "bits" ? one.bytes_per_second : one.frames_per_second);
    const rate = rates.includes(null) ? null : rates.reduce((sum, one) => sum + one, 0);
    const text = this.unit.value === "bits" ? format.bits(rate) : format.frames(rate);
    const label = { x: (start.x + (bends.length ? middle(this.#corner(bends[0])).x : end.x)) / 2, y: start.y + GAP.y / 2 - 5 };
    const title = edge.members.slice(0, 8).map((one) =>
      `${one.from}.${one.output} → ${one.to}.${one.input}: ${one.carries}; ${format.frames(one.frames_per_second)} of ` +
      `${format.frames(one.expected_frames_per_second)}; queue ${one.queued_frames}/${one.queue_frames}`).join("\n");
    const level = fill >= 0.99 ? "full" : fill >= 0.5 ? "filling" : "";
    return s("g", { class: `edge ${level}`, "data-rate": rate ?? "" },
      s("title", {}, title),
      s("path", { class: "wire", d: path }),
      s("rect", { class: "queue", x: end.x + 5, y: end.y - 15, width: 5, height: 12, rx: 1 }),
      s("rect", { class: "queued", x: end.x + 5, y: (end.y - 3 - 12 * fill).toFixed(1), width: 5, height: (12 * fill).toFixed(1), rx: 1 }),
      s("text", { class: "rate", x: label.x, y: label.y + 3, "text-anchor": "middle" }, text));
  }

  #open(node) {
    if (!node) return;
    this.#focused = node.dataset.key;
    this.onOpen(JSON.parse(node.dataset.names));
  }

  #key(event) {
    const node = event.target.closest(".node");
    if (!node) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return this.#open(node);
    }
    const next = this.#neighbour(node.dataset.key, event.key);
    if (!next) return;
    event.preventDefault();
    this.#focused = next;
    this.draw();
    const element = this.box.querySelector(`.node[data-key="${CSS.escape(next)}"]`);
    element.focus();
    element.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /// The node for an arrow key: along an edge for up and down, within the row for left and right.
  #neighbour(key, arrow) {
    const { places } = this.#drawn;
    const here = places.get(key);
    const nearest = (keys) => keys.sort((one, other) =>
      Math.abs(places.get(one).column - here.column) - Math.abs(places.get(other).column - here.column))[0];
    const { edges } = this.#folded;
    if (arrow === "ArrowDown") return nearest(edges.filter((edge) => edge.from === key).map((edge) => edge.to));
    if (arrow === "ArrowUp") return nearest(edges.filter((edge) => edge.to === key).map((edge) => edge.from));
    const side = { ArrowLeft: -1, ArrowRight: 1 }[arrow];
    if (!side) return undefined;
    return nearest([...places.keys()].filter((other) =>
      places.get(other).row === here.row && side * (places.get(other).column - here.column) > 0));
  }
}

const clipStart = (text, length) => (text.length > length ? `…${text.slice(1 - length)}` : text);
const clip = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

function curve(from, to) {
  const half = (from.y + to.y) / 2;
  return from.x === to.x ? ` V${to.y}` : ` C${from.x} ${half} ${to.x} ${half} ${to.x} ${to.y}`;
}
