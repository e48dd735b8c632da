// Single values against time.

import { h } from "../dom.js";
import { clock } from "../format.js";
import { Chart } from "./chart.js";
import { Zoom } from "./zoom.js";

const KEPT = 600;
/// Times above are Unix times.
const UNIX_SECONDS = 1e8;
/// Unit of the horizontal axis by the shown time: seconds per unit, and name.
const SPANS = [[2 * 3600, 3600, "h"], [300, 60, "min"], [0, 1, "s"]];

export class Trend {
  #times = [];
  #values = [];
  #charts = [];
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
    this.#charts.forEach((chart) => chart.close());
  }

  /// Adds the values of `message`, one for each of its series.
  draw(message) {
    if (this.#build(message.series)) {
      this.#times = [];
      this.#values = [];
    }
    // After a reconnection, the stream may repeat a frame.
    if (message.time_seconds <= this.#times.at(-1)) return;
    this.#times.push(message.time_seconds);
    message.series.forEach((one, index) => (this.#values[index] ??= []).push(one.values[0]));
    if (this.#times.length > KEPT) {
      this.#times.shift();
      this.#values.forEach((values) => values.shift());
    }
    this.#show(message.series, this.#times, this.#values, "the newest frame");
  }

  /// Draws all values of `series`, taken at `times`.
  drawAll(times, series) {
    this.#build(series);
    this.#show(series, times, series.map((one) => one.values), "now");
  }

  #show(series, times, values, newest) {
    const now = times.at(-1);
    const [, per, unit] = SPANS.find(([least]) => now - times[0] >= least);
    const text = (place) => {
      const before = `${Math.abs(place).toFixed(1)} ${unit} before ${newest}`;
      return now > UNIX_SECONDS ? `${clock(now + place * per)} UTC, ${before}` : before;
    };
    const places = times.map((time) => (time - now) / per);
    for (const chart of this.#charts) {
      const own = values.filter((_, index) => series[index].unit === chart.unit);
      chart.draw(places, own, { label: `time relative to ${newest} (${unit})`, text });
    }
  }

  /// One chart per unit, since decibels and degrees need different axes; returns whether the series are others than before.
  #build(series) {
    const names = series.map((one) => `${one.name} ${one.unit}`).join();
    if (names === this.#names) return false;
    this.#names = names;
    this.#charts.forEach((chart) => chart.close());
    const units = [...Map.groupBy(series, (one) => one.unit)];
    this.#charts = units.map(([unit, ones], index) => {
      const hasAxis = index === units.length - 1;
      const height = units.length > 1 ? (hasAxis ? 130 : 100) : 230;
      return new Chart({ unit, names: ones.map((one) => one.name), height, hasAxis, zoom: this.#zoom });
    });
    this.element.replaceChildren(...this.#charts.map((chart) => chart.element));
    return true;
  }
}
