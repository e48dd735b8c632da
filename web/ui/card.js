// One plot with its controls.

import * as api from "./api.js";
import { h, save } from "./dom.js";
import * as format from "./format.js";
import { Lines } from "./plots/lines.js";
import { Matrix } from "./plots/matrix.js";
import { Sky } from "./plots/sky.js";
import { Trend } from "./plots/trend.js";
import { colour } from "./themes.js";
import { Tuner } from "./tuner.js";

const EVERY_SECONDS = 0.25;
/// Most traces of a plot.
const TRACES = 6;
const PLOTS = { lines: Lines, matrix: Matrix, points: Trend, sky: Sky };

export class Card {
  #isPaused = false;

  /// The newest message of each trace.
  #messages = [];

  /// `spec` describes the plot: `{ block, port, view, select: { axis: index }, traces, shows, colours, tunes }`, where `traces` are further
  /// `{ block, port, select }` drawn with it; `view` is the description of the view in the REST API, `alike` the outputs with frames of the same
  /// type, `[block, port]` each.
  constructor(spec, view, { alike, onChange, onClose }) {
    Object.assign(this, { block: spec.block, port: spec.port, view, onChange });
    this.select = { ...spec.select };
    this.traces = [...(spec.traces ?? [])];
    this.plot = new PLOTS[view.kind](view, spec, onChange);
    this.plot.showBlock?.(this.block);
    this.tuner = view.kind === "lines" ? new Tuner(this.plot, { isOn: spec.tunes, onChange }) : null;
    const axes = view.selects.map((axis) => this.#axis(axis));
    const shows = this.plot.choices && h("select", { "aria-label": "kind of drawing", onchange: (event) => {
      this.plot.show(event.target.value);
      onChange();
    } }, this.plot.choices.map((word) => h("option", { selected: word === this.plot.shows }, word)));
    const button = (text, title, action) => h("button", { type: "button", class: "quiet", title, "aria-label": title, onclick: action }, text);
    this.pause = h("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => this.#toggle() }, "Pause");
    this.reset = h("button", { type: "button", class: "quiet", hidden: true, title: "shows all of the plot, like a double click", onclick: () => this.plot.resetZoom() }, "Reset zoom");
    // The plot handles the same events, before or after.
    ["mouseup", "dblclick", "click"].forEach((name) => this.plot.element.addEventListener(name, () => setTimeout(() => this.#showReset())));
    this.reset.addEventListener("click", () => this.#showReset());
    this.caption = h("figcaption", {}, "waiting for a frame");
    const title = `${spec.block}.${spec.port}`;
    const outputs = alike.length > 1 ? this.#outputs(alike) : h("span", { class: "output" }, title);
    const hasTraces = ["lines", "points"].includes(view.kind) && (alike.length > 1 || view.selects.length > 0);
    this.others = h("span", { class: "traces" });
    this.add = hasTraces && button("+ trace", "add a trace: keeps what is shown, and draws another selection with it", () => this.#addTrace());
    this.element = h("figure", { class: `plot ${view.kind}`, "aria-label": `${view.title} of ${title}`, "data-view": view.name, "data-output": title },
      h("div", { class: "bar" }, h("h3", { title: view.title }, view.title), this.reset, this.pause,
        button("PNG", "save as PNG", () => this.#png()), button(".npy", "save the next frame as .npy", () => this.#npy()),
        button("✕", "remove this plot", () => (this.plot.close(), this.element.remove(), onClose()))),
      h("div", { class: "bar controls" }, outputs, axes, this.add || "", shows || "", this.plot.range?.element ?? "", this.tuner?.element ?? "", this.others),
      this.plot.element, this.tuner?.said ?? "", this.caption);
    this.#showTraces();
  }

  /// Choice of the output that is drawn.
  #outputs(alike) {
    const change = (event) => {
      [this.block, this.port] = JSON.parse(event.target.value);
      this.#changed();
    };
    return h("select", { class: "output", "aria-label": "output", onchange: change }, alike.map((output) =>
      h("option", { value: JSON.stringify(output), selected: output[0] === this.block && output[1] === this.port }, output.join("."))));
  }

  #changed() {
    this.#messages = [];
    this.plot.clear();
    this.plot.showBlock?.(this.block);
    this.element.dataset.output = `${this.block}.${this.port}`;
    this.onChange();
  }

  #addTrace() {
    if (this.traces.length + 1 >= TRACES) return (this.caption.textContent = `the limit is ${TRACES} traces: remove one first`);
    this.traces.push({ block: this.block, port: this.port, select: { ...this.select } });
    this.#showTraces();
    return this.#changed();
  }

  #showTraces() {
    this.others.replaceChildren(...this.traces.map((trace, index) =>
      h("button", { type: "button", class: "quiet", title: "removes this trace", onclick: () => {
        this.traces.splice(index, 1);
        this.#showTraces();
        this.#changed();
      } }, `${this.#nameOf(trace)} ✕`)));
  }

  /// Name of a trace: its output if there are several, and its indices.
  #nameOf({ block, port, select }) {
    const all = [this, ...this.traces];
    const output = all.some((one) => one.block !== block || one.port !== port) ? [`${block}.${port}`] : [];
    const indices = this.view.selects.map(({ axis, default: usual, names = [] }) => {
      const index = select[axis] ?? usual;
      return `${axis} ${names[index] ?? index}`;
    });
    return [...output, ...indices].join(", ");
  }

  #axis({ axis, len, default: usual, names = [] }) {
    const chosen = Math.min(this.select[axis] ?? usual, len - 1);
    const name = (index) => `${axis} ${names[index] ?? index}`;
    const change = (event) => {
      this.select[axis] = Number(event.target.value);
      this.#changed();
    };
    return h("select", { "aria-label": axis, onchange: change }, Array.from({ length: len }, (_, index) =>
      h("option", { value: index, selected: index === chosen }, name(index))));
  }

  /// Takes the newest state of the flowgraph, from which follows what can be tuned in the plot.
  know({ graph }) {
    if (this.#messages[0]) this.tuner?.show(graph, this.block, this.#messages[0].x);
  }

  get moves() {
    return !this.#isPaused;
  }

  /// Specification to store for the next visit.
  spec() {
    return { block: this.block, port: this.port, view: this.view.name, select: this.select, traces: this.traces, shows: this.plot.shows, colours: this.plot.range?.fixed ?? undefined, tunes: this.tuner?.isOn || undefined };
  }

  /// Paths of the view of each trace below `/blocks`, with their queries.
  paths() {
    return [this, ...this.traces].map(({ block, port, select }) => {
      const query = new URLSearchParams({ every_seconds: EVERY_SECONDS, points: this.plot.points, ...select });
      return `${block}/${port}/${this.view.name}?${query}`;
    });
  }

  /// Handles an event of the stream of views about the trace number `trace`.
  take(trace, name, message) {
    if (name === "problem") {
      this.caption.textContent = message.detail ?? "no data to plot";
      this.element.classList.add("problem");
      return;
    }
    if (name !== "view") return;
    this.element.classList.remove("problem");
    this.#messages[trace] = message;
    // Others are drawn with the next message of the first.
    if (trace > 0) return;
    // The plotted values, for scripts and tests.
    this.element.message = message;
    this.element.dataset.frame = message.frame;
    this.plot.draw(this.traces.length > 0 ? this.#together() : message);
    this.#showReset();
    const figures = Object.entries(message.figures ?? {}).map(([figure, { value, unit }]) =>
      `${figure} ${value === null ? "-" : unit ? `${value} ${unit}` : format.percent(value)}`);
    this.caption.textContent = [
      message.time_seconds > 1e8 ? `${format.clock(message.time_seconds)} UTC` : `at ${format.seconds(message.time_seconds)}`,
      `frame ${format.count(message.frame)}`, ...figures,
      message.valid !== null && message.valid < 1 && `${format.percent(message.valid)} valid`,
    ].filter(Boolean).join(" · ");
  }

  /// The newest messages of all traces as one, whose series are named after their traces.
  #together() {
    const [first, ...others] = this.#messages;
    const isAlike = ({ x }) => JSON.stringify(x) === JSON.stringify(first.x);
    const series = ({ series: own }, trace) => own.map((one) => ({ ...one, name: `${one.name}, ${this.#nameOf([this, ...this.traces][trace])}` }));
    const silent = series(first, 0).map((one) => ({ ...one, values: one.values.map(() => null) }));
    const all = this.traces.flatMap((trace, index) => {
      const other = others[index];
      return other && isAlike(other) ? series(other, index + 1) : silent.map((one) => ({ ...one, name: `${one.name.split(",")[0]}, ${this.#nameOf(trace)}` }));
    });
    return { ...first, series: [...series(first, 0), ...all] };
  }

  #showReset() {
    this.reset.hidden = !this.plot.isZoomed;
  }

  #toggle() {
    this.#isPaused = !this.#isPaused;
    this.pause.setAttribute("aria-pressed", this.#isPaused);
    this.onChange();
  }

  get #fileName() {
    return `${this.block}.${this.port}.${this.view.name}`;
  }

  #png() {
    const frame = this.plot.element.getBoundingClientRect();
    const scale = devicePixelRatio;
    const picture = h("canvas", { width: frame.width * scale, height: (frame.height + 28) * scale });
    const context = picture.getContext("2d");
    context.scale(scale, scale);
    context.fillStyle = colour("surface");
    context.fillRect(0, 0, picture.width, picture.height);
    context.fillStyle = colour("text");
    context.font = "13px system-ui, sans-serif";
    context.fillText(`${this.view.title}, ${this.block}.${this.port}, ${this.caption.textContent}`, 8, 18);
    for (const canvas of this.plot.element.querySelectorAll("canvas")) {
      const box = canvas.getBoundingClientRect();
      context.drawImage(canvas, box.x - frame.x, box.y - frame.y + 28, box.width, box.height);
    }
    picture.toBlob((blob) => save(blob, `${this.#fileName}.png`));
  }

  async #npy() {
    try {
      await api.downloadFrame(this.block, this.port);
    } catch (error) {
      this.caption.textContent = error.message;
    }
  }
}
