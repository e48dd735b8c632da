// Values against frequency or channel, as a line and as a waterfall.

import { h } from "../dom.js";
import { Chart } from "./chart.js";
import { Waterfall } from "./waterfall.js";

/// Views with a waterfall, and the minimum range of its colours in dB: means over a frame of beams scatter little.
const RANGES_DB = { spectrum: 6, band_pass: 6, beams: 1.5 };

export class Lines {
  #charts = [];
  #units = "";
  #waterfall;

  constructor(view, shows) {
    this.view = view;
    // Single beams must stay visible.
    this.points = view.name === "beams" ? 1024 : 512;
    this.element = h("div", { class: "canvas" });
    this.#waterfall = new Waterfall(RANGES_DB[view.name]);
    if (!(view.name in RANGES_DB)) {
      this.shows = "line";
      return;
    }
    this.choices = ["both", "line", "waterfall"];
    this.shows = this.choices.includes(shows) ? shows : "both";
  }

  show(shows) {
    this.shows = shows;
    this.#units = "";
  }

  clear() {
    this.#waterfall.clear();
  }

  close() {
    this.#charts.forEach((chart) => chart.close());
    this.#waterfall.close();
  }

  draw(message) {
    const series = Map.groupBy(message.series, (one) => one.unit);
    const units = [...series.keys()].join();
    if (units !== this.#units) this.#build(series);
    this.#units = units;
    const { x } = message;
    const places = Array.from({ length: x.len }, (_, index) => x.start + x.step * index);
    this.#charts.forEach((chart) => chart.draw(places, series.get(chart.unit).map((one) => one.values), x));
    this.#waterfall.take(message.series[0].values);
    if (this.#waterfall.element.isConnected) this.#waterfall.draw();
  }

  /// One chart per unit, since decibels and degrees need different axes.
  #build(series) {
    this.#charts.forEach((chart) => chart.close());
    this.#charts = [];
    this.element.replaceChildren();
    if (this.shows !== "waterfall") {
      for (const [unit, ones] of series) {
        const height = series.size > 1 || this.shows === "both" ? 118 : 200;
        const chart = new Chart({ unit, names: ones.map((one) => one.name), height, bars: this.view.name === "histogram" });
        this.#charts.push(chart);
        this.element.append(chart.element);
      }
    }
    if (this.shows !== "line") this.element.append(this.#waterfall.element);
  }
}
