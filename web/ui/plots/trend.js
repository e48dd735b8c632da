// Single values against time.

import { h } from "../dom.js";
import { Chart } from "./chart.js";

const KEPT = 600;

export class Trend {
  #times = [];
  #values = [];
  #chart = null;
  #names = "";
  points = 16;

  constructor(view) {
    this.view = view;
    this.element = h("div", { class: "canvas" });
  }

  clear() {
    this.#times = [];
    this.#values = [];
    this.#names = "";
  }

  close() {
    this.#chart?.close();
  }

  draw(message) {
    const names = message.series.map((one) => one.name).join();
    if (names !== this.#names) {
      this.clear();
      this.#names = names;
      this.#chart?.close();
      this.#chart = new Chart({ unit: message.series[0].unit, names: message.series.map((one) => one.name), height: 200 });
      this.element.replaceChildren(this.#chart.element);
    }
    // After a reconnection, the stream may repeat a frame.
    if (message.time_seconds <= this.#times.at(-1)) return;
    this.#times.push(message.time_seconds);
    message.series.forEach((one, index) => (this.#values[index] ??= []).push(one.values[0]));
    if (this.#times.length > KEPT) {
      this.#times.shift();
      this.#values.forEach((values) => values.shift());
    }
    // The axis shows seconds before now; the caption shows the time of day.
    const now = message.time_seconds;
    this.#chart.draw(this.#times.map((time) => time - now), this.#values, { name: "", unit: "s" });
  }
}
