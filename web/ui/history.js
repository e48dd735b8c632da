// A plot of a gauge of all blocks over minutes or hours, from the values that the process keeps.

import * as api from "./api.js";
import { h } from "./dom.js";
import { unitOf } from "./format.js";
import { Trend } from "./plots/trend.js";

/// Shown times: seconds, name, and time between two requests in ms.
const SPANS = [[600, "10 minutes", 2000], [21_600, "6 hours", 30_000], [86_400, "24 hours", 30_000]];

/// Has the interface of a `Card` for the board.
export class HistoryCard {
  #timer = 0;
  #isClosed = false;

  /// `spec` is `{ gauge, seconds, part }`: `part` is in the names of the shown blocks or labels.
  constructor(spec, { onChange, onClose }) {
    const { gauge, seconds = SPANS[0][0], part = "" } = spec;
    Object.assign(this, { gauge, seconds, part });
    this.plot = new Trend({ name: gauge });
    const changed = () => {
      onChange();
      this.#load();
    };
    const span = h("select", { "aria-label": "time shown", onchange: (event) => {
      this.seconds = Number(event.target.value);
      changed();
    } }, SPANS.map(([value, name]) => h("option", { value, selected: value === seconds }, name)));
    const filter = h("input", { type: "search", placeholder: "block or label", "aria-label": "block or label to show", value: part, oninput: (event) => {
      this.part = event.target.value;
      changed();
    } });
    const close = h("button", { type: "button", class: "quiet", title: "remove this plot", "aria-label": "remove this plot", onclick: () => {
      this.close();
      this.element.remove();
      onClose();
    } }, "✕");
    this.caption = h("figcaption", {}, "waiting for values");
    this.element = h("figure", { class: "plot history", "aria-label": `${gauge} against time`, "data-gauge": gauge },
      h("div", { class: "bar" }, h("h3", { title: gauge }, gauge), close),
      h("div", { class: "bar controls" }, span, filter), this.plot.element, this.caption);
    this.#load();
  }

  /// It is not part of the stream of views.
  get moves() {
    return false;
  }

  know() {}

  spec() {
    return { gauge: this.gauge, seconds: this.seconds, part: this.part };
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.plot.close();
  }

  async #load() {
    clearTimeout(this.#timer);
    const { seconds } = this;
    try {
      if (!document.hidden) this.#draw(await api.ask(`/history?${new URLSearchParams({ gauge: this.gauge, seconds })}`));
    } catch (error) {
      this.caption.textContent = error.message;
    }
    // Another time may have been chosen meanwhile.
    if (this.#isClosed || seconds !== this.seconds) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#load(), SPANS.find(([value]) => value === seconds)[2]);
  }

  #draw({ gauges, series, step_seconds: step, end_unix_seconds: end }) {
    const unit = /_db(fs)?$/.test(this.gauge) ? this.gauge.split("_").at(-1).replace("dbfs", "dBFS").replace("db", "dB") : unitOf(this.gauge);
    const named = series.map((one) => ({ name: [one.block, one.label_value].filter(Boolean).join(" "), unit, values: one.values }));
    const shown = named.filter(({ name }) => name.includes(this.part));
    const length = shown[0]?.values.length ?? 0;
    const known = shown.some(({ values }) => values.some((value) => value !== null));
    // The plotted values, for scripts and tests.
    this.element.message = { series: shown };
    this.caption.textContent = known ? gauges.find(({ name }) => name === this.gauge)?.help ?? "" : "no values in this time";
    if (!known) return;
    this.plot.drawAll(Array.from({ length }, (_, index) => end - step * (length - 1 - index)), shown);
  }
}
