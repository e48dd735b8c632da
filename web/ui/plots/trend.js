// Single values against time.

import { h } from "../dom.js";
import { clock } from "../format.js";
import { Chart } from "./chart.js";
import { Zoom } from "./zoom.js";

const KEPT = 600;
/// Times above are Unix times.
const UNIX_SECONDS = 1e8;

export class Trend {
  #times = [];
  #values = [];
  #chart = null;
  #names = "";
  #zoom = new Zoom();
  points = 16;

  constructor(view) {
    this.view = view;
    this.element = h("div", { class: "canvas" });
  }

  get isZoomed() {
    return this.#zoom.range !== null;
  }

  resetZoom() {
    this.#zoom.reset();
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
      this.#chart = new Chart({ unit: message.series[0].unit, names: message.series.map((one) => one.name), height: 230, zoom: this.#zoom });
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
    const now = message.time_seconds;
    const text = (place) => {
      const before = `${Math.abs(place).toFixed(1)} s before the newest frame`;
      return now > UNIX_SECONDS ? `${clock(now + place)} UTC, ${before}` : before;
    };
    this.#chart.draw(this.#times.map((time) => time - now), this.#values, { label: "time relative to the newest frame (s)", text });
  }
}
