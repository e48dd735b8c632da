// Values against frequency or channel, as a line and as a waterfall.

import { h } from "../dom.js";
import { axisOf } from "./axis.js";
import { Chart } from "./chart.js";
import { ColourRange } from "./range.js";
import { RIGHT, Waterfall } from "./waterfall.js";
import { Zoom } from "./zoom.js";

/// Views with a waterfall, and the minimum range of its colours in dB, so that noise alone does not look like a signal: means over a frame of
/// beams scatter little.
const RANGES_DB = { spectrum: 6, band_pass: 6, beams: 1.5, visibility: 3 };
/// Drawings of such a view: a waterfall of its first series with or without the line, or of the series with this name.
const CHOICES = { visibility: ["line", "amplitude against time", "phase against time"] };
const USUAL = ["both", "line", "waterfall"];

export class Lines {
  #charts = [];
  #names = "";
  /// One waterfall for each series of a view with waterfalls, so that none begins when it is chosen.
  #waterfalls = [];
  #zoom = new Zoom();
  /// Horizontal axis of the newest message.
  axis = null;
  /// Called after each drawing, and when another part of the axis is shown.
  onShown = () => {};

  /// `spec` has `shows` and `colours` of the last visit, if any; `onChange()` is called when the user changes the colours.
  constructor(view, spec, onChange) {
    this.view = view;
    // Single beams must stay visible.
    this.points = view.name === "beams" ? 1024 : 512;
    this.element = h("div", { class: "canvas" });
    // The shown part, for scripts and tests.
    this.#zoom.onChange(() => {
      this.element.dataset.zoom = this.#zoom.range?.join(" ") ?? "";
      this.onShown();
    });
    this.shows = "line";
    if (!(view.name in RANGES_DB)) return;
    this.range = new ColourRange({ least: RANGES_DB[view.name], fixed: spec.colours, onChange: () => (this.#waterfall?.draw(), onChange()) });
    this.choices = CHOICES[view.name] ?? USUAL;
    this.shows = this.choices.includes(spec.shows) ? spec.shows : this.choices[0];
    this.range.element.hidden = this.shows === "line";
  }

  show(shows) {
    this.shows = shows;
    this.range.element.hidden = shows === "line";
    this.#names = "";
  }

  /// The drawn elements that are as wide as the horizontal axis.
  get areas() {
    const all = [...this.#charts, this.#waterfall].map((one) => one?.area);
    return all.filter((area) => area?.isConnected);
  }

  /// The shown part of the horizontal axis, `{ low, high }` in its unit.
  get shown() {
    const { places } = this.axis;
    const [low, high] = this.#zoom.of(places[0], places.at(-1));
    return { low, high: high > low ? high : low + 1 };
  }

  get isZoomed() {
    return this.#zoom.range !== null;
  }

  resetZoom() {
    this.#zoom.reset();
  }

  clear() {
    this.#waterfalls.forEach((waterfall) => waterfall.clear());
  }

  close() {
    this.#charts.forEach((chart) => chart.close());
    this.#waterfalls.forEach((waterfall) => waterfall.close());
  }

  draw(message) {
    const axis = axisOf(message.x);
    this.axis = axis;
    const all = message.series.map((one) => ({ ...one, values: axis.isReversed ? [...one.values].reverse() : one.values }));
    const series = Map.groupBy(all, (one) => one.unit);
    const names = all.map((one) => `${one.name} ${one.unit}`).join();
    if (names !== this.#names) this.#build(series);
    this.#names = names;
    this.#charts.forEach((chart) => chart.draw(axis.places, series.get(chart.unit).map((one) => one.values), axis));
    this.#waterfalls.forEach((waterfall, index) => waterfall.take(message.time_seconds, all[index].values, all[index].unit, axis));
    if (this.#waterfall?.element.isConnected) this.#waterfall.draw();
    this.onShown();
  }

  /// The shown waterfall.
  get #waterfall() {
    return this.#waterfalls[Math.max(0, (CHOICES[this.view.name] ?? []).indexOf(this.shows) - 1)];
  }

  /// One chart per unit, since decibels and degrees need different axes; the lowest drawing has the horizontal axis.
  #build(series) {
    if (this.range && this.#waterfalls.length === 0) {
      const count = CHOICES[this.view.name] ? CHOICES[this.view.name].length - 1 : 1;
      this.#waterfalls = Array.from({ length: count }, () => new Waterfall(this.#zoom, this.range));
    }
    this.#charts.forEach((chart) => chart.close());
    this.#charts = [];
    this.element.replaceChildren();
    const units = ["line", "both"].includes(this.shows) ? [...series] : [];
    const isBoth = this.shows === "both";
    units.forEach(([unit, ones], index) => {
      const hasAxis = !isBoth && index === units.length - 1;
      const height = (units.length > 1 || isBoth ? 100 : 200) + (hasAxis ? 30 : 0);
      const names = ones.map((one) => one.name);
      const chart = new Chart({ unit, names, height, hasAxis, zoom: this.#zoom, bars: this.view.name === "histogram", ...(isBoth && { right: RIGHT }) });
      this.#charts.push(chart);
      this.element.append(chart.element);
    });
    if (this.shows !== "line") this.element.append(this.#waterfall.element);
  }
}
