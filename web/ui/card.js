// One plot with its controls.

import * as api from "./api.js";
import { h, save } from "./dom.js";
import * as format from "./format.js";
import { Lines } from "./plots/lines.js";
import { Matrix } from "./plots/matrix.js";
import { Trend } from "./plots/trend.js";
import { colour } from "./themes.js";

const EVERY_SECONDS = 0.25;
const PLOTS = { lines: Lines, matrix: Matrix, points: Trend };

export class Card {
  #isPaused = false;

  /// `spec` describes the plot: `{ block, port, view, select: { axis: index }, shows, colours }`; `view` is the description of the
  /// view in the REST API.
  constructor(spec, view, { onChange, onClose }) {
    Object.assign(this, { block: spec.block, port: spec.port, view, onChange });
    this.select = { ...spec.select };
    this.plot = new PLOTS[view.kind](view, spec, onChange);
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
    this.element = h("figure", { class: `plot ${view.kind}`, "aria-label": `${view.title} of ${title}`, "data-view": view.name, "data-output": title },
      h("div", { class: "bar" }, h("h3", { title: view.title }, view.title), this.reset, this.pause,
        button("PNG", "save as PNG", () => this.#png()), button(".npy", "save the next frame as .npy", () => this.#npy()),
        button("✕", "remove this plot", () => (this.plot.close(), this.element.remove(), onClose()))),
      h("div", { class: "bar controls" }, h("span", { class: "output" }, title), axes, shows || "", this.plot.range?.element ?? ""),
      this.plot.element, this.caption);
  }

  #axis({ axis, len, default: usual, names = [] }) {
    const chosen = Math.min(this.select[axis] ?? usual, len - 1);
    const name = (index) => `${axis} ${names[index] ?? index}`;
    const change = (event) => {
      this.select[axis] = Number(event.target.value);
      this.plot.clear();
      this.onChange();
    };
    return h("select", { "aria-label": axis, onchange: change }, Array.from({ length: len }, (_, index) =>
      h("option", { value: index, selected: index === chosen }, name(index))));
  }

  get moves() {
    return !this.#isPaused;
  }

  /// Specification to store for the next visit.
  spec() {
    return { block: this.block, port: this.port, view: this.view.name, select: this.select, shows: this.plot.shows, colours: this.plot.range?.fixed ?? undefined };
  }

  /// Path of the view below `/blocks`, with its query.
  path() {
    const query = new URLSearchParams({ every_seconds: EVERY_SECONDS, points: this.plot.points, ...this.select });
    return `${this.block}/${this.port}/${this.view.name}?${query}`;
  }

  /// Handles an event of the stream of views.
  take(name, message) {
    if (name === "problem") {
      this.caption.textContent = message.detail ?? "no data to plot";
      this.element.classList.add("problem");
      return;
    }
    if (name !== "view") return;
    this.element.classList.remove("problem");
    // The plotted values, for scripts and tests.
    this.element.message = message;
    this.element.dataset.frame = message.frame;
    this.plot.draw(message);
    this.#showReset();
    const figures = Object.entries(message.figures ?? {}).map(([figure, { value, unit }]) =>
      `${figure} ${value === null ? "-" : unit ? `${value} ${unit}` : format.percent(value)}`);
    this.caption.textContent = [
      message.time_seconds > 1e8 ? `${format.clock(message.time_seconds)} UTC` : `at ${format.seconds(message.time_seconds)}`,
      `frame ${format.count(message.frame)}`, ...figures,
      message.valid !== null && message.valid < 1 && `${format.percent(message.valid)} valid`,
    ].filter(Boolean).join(" · ");
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
