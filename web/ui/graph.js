// Live drawing of the graph: device, load and lag of blocks, rates and queues of edges.
//
// A refresh redraws only nodes and edges that have changed; of a large graph, only the visible part is in the document.

import { alike, at, s } from "./dom.js";
import { drawEdge, faceOf as edgeFace, route } from "./edge.js";
import { Find } from "./find.js";
import { fold, pattern } from "./fold.js";
import { layout } from "./layout.js";
import { drawNode, faceOf as nodeFace, HEIGHT, WIDTH } from "./node.js";
import { Viewport } from "./viewport.js";

const GAP = { x: 18, y: 34 };
const MARGIN = { x: 10, top: 18, bottom: 10 };
const SMALLEST_SCALE = 0.72;
/// Number of nodes that are drawn even if they are not visible.
const SMALL = 120;
/// Scale below which a name cannot be read.
const FAR = 0.45;
/// States of an active recorder.
const MARKED = new Set(["waiting", "recording"]);

export class Graph {
  #placed = { key: "", places: new Map(), routes: new Map(), width: 1, height: 1 };
  #graph = null;
  #figures = new Map();
  #limit = null;
  #marks = new Map();
  #selected = null;
  #focused = null;
  #found = new Set();
  #folded = { nodes: [], edges: [] };
  /// Key -> `{ element, text }` of what is in the document; `text` is the drawn face.
  #drawn = { nodes: new Map(), edges: new Map() };

  /// `onOpen(names, name)` is called when the user opens a block, or the first or the given one of replicas.
  constructor(onOpen) {
    this.box = at("graph");
    this.onOpen = onOpen;
    this.foldBox = at("fold");
    this.unit = at("unit");
    this.unit.value = localStorage.getItem("fxgraph-unit") ?? "bits";
    this.edges = s("g", {});
    this.nodes = s("g", {});
    this.svg = s("svg", { role: "group", "aria-label": "blocks and edges" }, this.edges, this.nodes);
    this.box.append(this.svg);
    this.viewport = new Viewport(this.box, () => this.#graph && this.#paint());
    this.find = new Find({
      search: (text) => this.#search(text),
      onFind: (names, name) => this.#show(names, name),
      onOpen: (name) => this.#open(this.#nodeOf(name), name),
    });
    this.foldBox.addEventListener("change", () => {
      this.chosen = this.foldBox.checked;
      this.draw();
    });
    this.unit.addEventListener("change", () => {
      localStorage.setItem("fxgraph-unit", this.unit.value);
      this.draw();
    });
    this.box.addEventListener("click", ({ target }) => {
      const key = target.closest(".node")?.dataset.key;
      if (key && !this.viewport.hasPanned) this.#open(this.#folded.nodes.find((node) => node.key === key));
    });
    this.box.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#graph && this.#paint()).observe(this.box.parentElement);
  }

  /// Shows the graph of a flowgraph with the statistics, shadows and recorders of its blocks.
  show({ flowgraph, blocks, shadows, recorders }) {
    this.#graph = flowgraph.graph;
    this.#figures = new Map(blocks.map((block) => [block.name, block]));
    this.#limit = flowgraph.limited_by?.block;
    this.#marks = new Map();
    const mark = (name, word) => this.#marks.set(name, [...(this.#marks.get(name) ?? []), word]);
    recorders.filter((one) => one.output && MARKED.has(one.state)).forEach((one) => mark(one.output.slice(0, one.output.lastIndexOf(".")), "rec"));
    shadows.filter((one) => !one.ended).forEach((one) => mark(one.block, "shadow"));
    this.draw();
  }

  /// Marks the block called `name`, whose panel is open.
  select(name) {
    this.#selected = name;
    if (this.#graph) this.#paint();
  }

  focus() {
    (this.box.querySelector('.node[tabindex="0"]') ?? this.box).focus();
  }

  draw() {
    this.#folded = fold(this.#graph, this.#isFolded());
    const { nodes, edges } = this.#folded;
    const key = JSON.stringify([nodes.map((node) => node.key), edges.map((edge) => edge.key)]);
    if (key !== this.#placed.key) this.#place(key);
    if (!nodes.some((node) => node.key === this.#focused)) this.#focused = nodes[0]?.key;
    this.#paint();
  }

  /// Positions of nodes, and paths of edges, which change only with the flowgraph.
  #place(key) {
    const { nodes, edges } = this.#folded;
    const { places, bends, columns, rows } = layout(nodes, edges);
    const corner = ({ column, row }) => ({ x: MARGIN.x + column * (WIDTH + GAP.x), y: MARGIN.top + row * (HEIGHT + GAP.y) });
    const corners = new Map([...places].map(([key, place]) => [key, { ...corner(place), ...place }]));
    const routes = new Map(edges.map((edge) => [edge.key, route([corners.get(edge.from), ...bends.get(edge.key).map(corner), corners.get(edge.to)])]));
    const width = columns * (WIDTH + GAP.x) - GAP.x + 2 * MARGIN.x;
    const height = rows * (HEIGHT + GAP.y) - GAP.y + MARGIN.top + MARGIN.bottom;
    this.#placed = { key, places: corners, routes, width, height };
    for (const drawn of Object.values(this.#drawn)) {
      drawn.forEach(({ element }) => element.remove());
      drawn.clear();
    }
    document.documentElement.style.setProperty("--graph-width", `${Math.ceil(width * SMALLEST_SCALE)}px`);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  }

  /// Brings the document up to date.
  #paint() {
    const { places, routes, width, height } = this.#placed;
    const { nodes, edges } = this.#folded;
    this.viewport.resize({ width, height });
    const { scale } = this.viewport;
    const isFar = scale < FAR;
    const part = this.viewport.part();
    const isSmall = nodes.length <= SMALL;
    const isVisible = ({ left, top, right, bottom }) => isSmall || (left < part.right && right > part.left && top < part.bottom && bottom > part.top);
    const boxOf = ({ x, y }) => ({ left: x, top: y, right: x + WIDTH, bottom: y + HEIGHT });
    for (const [name, length] of [["width", width], ["height", height]]) {
      const text = (length * scale).toFixed(1);
      if (this.svg.getAttribute(name) !== text) this.svg.setAttribute(name, text);
    }
    const shownEdges = edges.filter((edge) => isVisible(routes.get(edge.key).box));
    keep(this.#drawn.edges, this.edges, shownEdges.map((edge) =>
      [edge.key, edgeFace(edge, this.unit.value, isFar), (face) => drawEdge(routes.get(edge.key), face)]));
    const isKept = (node) => node.key === this.#focused || node.members.some((block) => block.name === this.#selected);
    const shownNodes = nodes.filter((node) => isVisible(boxOf(places.get(node.key))) || isKept(node));
    keep(this.#drawn.nodes, this.nodes, shownNodes.map((node) => {
      const names = node.members.map((block) => block.name);
      return [node.key, this.#face(node, names, isFar), (face) => drawNode(node.key, names, places.get(node.key), face)];
    }));
  }

  #face(node, names, isFar) {
    return nodeFace(node, {
      isFar, figures: names.map((name) => this.#figures.get(name)).filter(Boolean),
      marks: [...new Set(names.flatMap((name) => this.#marks.get(name) ?? []))],
      limits: names.includes(this.#limit), isSelected: names.includes(this.#selected),
      isFound: names.some((name) => this.#found.has(name)), isFocused: node.key === this.#focused,
    });
  }

  #isFolded() {
    const { blocks } = this.#graph;
    const patterns = new Set(blocks.map((block) => pattern(block.name)));
    this.foldBox.disabled = patterns.size === blocks.length;
    if (this.chosen === undefined) this.foldBox.checked = !this.foldBox.disabled && blocks.length > 8;
    return this.foldBox.checked;
  }

  #open(node, name) {
    if (!node) return;
    this.#focused = node.key;
    this.onOpen(node.members.map((block) => block.name), name);
  }

  #nodeOf(name) {
    return this.#folded.nodes.find((node) => node.members.some((block) => block.name === name));
  }

  /// Names of the blocks whose name or kind contains `text`; those whose name begins with it are first.
  #search(text) {
    const wanted = text.toLowerCase();
    const rank = ({ name, kind }) => (name.toLowerCase().startsWith(wanted) ? 0 : name.toLowerCase().includes(wanted) ? 1 : kind.toLowerCase().includes(wanted) ? 2 : 3);
    const ranked = (this.#graph?.blocks ?? []).map((block) => [rank(block), block.name]).filter(([rank]) => rank < 3);
    return ranked.sort(([one], [other]) => one - other).map(([, name]) => name);
  }

  /// Marks the found blocks, and scrolls to the one called `name`.
  #show(names, name) {
    this.#found = new Set(names);
    const node = name === undefined ? undefined : this.#nodeOf(name);
    if (node) {
      this.#focused = node.key;
      this.viewport.readable();
      this.#reveal(node.key);
    }
    if (this.#graph) this.#paint();
  }

  #reveal(key) {
    this.viewport.reveal({ ...this.#placed.places.get(key), width: WIDTH, height: HEIGHT });
  }

  #key(event) {
    const key = event.target.closest(".node")?.dataset.key;
    if (!key) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return this.#open(this.#folded.nodes.find((node) => node.key === key));
    }
    const next = this.#neighbour(key, event.key);
    if (!next) return;
    event.preventDefault();
    this.#focused = next;
    this.#paint();
    this.#drawn.nodes.get(next).element.focus({ preventScroll: true });
    this.#reveal(next);
  }

  /// The node for an arrow key: along an edge for up and down, within the row for left and right.
  #neighbour(key, arrow) {
    const { places } = this.#placed;
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

/// Makes `drawn`, the elements in `parent`, those of `wanted`, each `[key, face, draw]`; one with the same face stays untouched.
function keep(drawn, parent, wanted) {
  const keys = new Set(wanted.map(([key]) => key));
  for (const [key, { element }] of drawn) {
    if (keys.has(key)) continue;
    element.remove();
    drawn.delete(key);
  }
  for (const [key, face, draw] of wanted) {
    const text = JSON.stringify(face);
    const there = drawn.get(key);
    if (there?.text === text) continue;
    const next = draw(face);
    if (there) alike(there.element, next);
    else parent.append(next);
    drawn.set(key, { element: there?.element ?? next, text });
  }
}
