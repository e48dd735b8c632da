// A chart with axes, drawn by uPlot.

import uPlot from "../vendor/uPlot-1.6.32/uPlot.esm.js";
import { h, morph } from "../dom.js";
import { ticks } from "../format.js";
import { colour, forgetTheme, onTheme, series as seriesColour } from "../themes.js";
import { digitsOf } from "./axis.js";

const FONT = "11px system-ui, sans-serif";
/// Number of series from which the legend names the lowest and the highest one only.
const MANY = 12;

export class Chart {
  #plot = null;
  #axis = { label: "", text: String };

  /// Creates a chart of series called `names`, all in `unit`. `zoom` is shared with the other drawings of the plot. `hasAxis` tells whether
  /// positions are labelled, and `right` is the room on the right.
  constructor({ unit, names, height, zoom, bars = false, hasAxis = true, right = 18 }) {
    Object.assign(this, { unit, names, height, zoom, bars, hasAxis, right });
    this.legend = h("p", { class: "key" });
    this.element = h("div", { class: "chart" }, this.legend);
    this.redraw = () => this.#plot?.redraw(true, true);
    onTheme(this.redraw);
    zoom.onChange(this.redraw);
    this.resize = new ResizeObserver(() => this.#fit());
    this.resize.observe(this.element);
  }

  /// Element with the place of the values, as wide as the horizontal axis.
  get area() {
    return this.#plot?.over ?? null;
  }

  close() {
    forgetTheme(this.redraw);
    this.resize.disconnect();
    this.#plot?.destroy();
    this.#plot = null;
  }

  /// Draws `values`, one list per series, against `places` in ascending order; `axis` has the `label` of the horizontal axis, and the `text` of a
  /// position.
  draw(places, values, axis) {
    const isOther = axis.label !== this.#axis.label;
    this.#axis = axis;
    if (!this.#plot) this.#make();
    this.#plot.axes[0].label = this.hasAxis ? axis.label : null;
    this.#plot.setData([places, ...values]);
    if (isOther) this.#plot.redraw(false, true);
    this.#key();
  }

  #fit() {
    const width = this.element.clientWidth;
    if (this.#plot && width > 0 && width !== this.#plot.width) this.#plot.setSize({ width, height: this.height });
  }

  #make() {
    const axis = { stroke: () => colour("muted"), font: FONT, grid: { stroke: () => colour("grid"), width: 1 }, ticks: { show: false } };
    // Phases wrap, so a line would jump.
    const isAngle = this.unit === "deg";
    const drawn = (name, index) => ({
      label: name, width: 1.25, stroke: () => seriesColour(index), spanGaps: false,
      points: isAngle ? { show: true, size: 3, fill: () => seriesColour(index) } : { show: false },
      ...(isAngle && { paths: () => null }),
      ...(this.bars && { paths: uPlot.paths.bars({ size: [1, 100], gap: 0 }), fill: () => seriesColour(index) }),
    });
    const label = this.hasAxis ? { label: this.#axis.label, labelSize: 15, labelFont: FONT, labelGap: 0, size: 22 } : { size: 6 };
    this.#plot = new uPlot({
      width: Math.max(100, this.element.clientWidth), height: this.height, padding: [8, this.right, 0, 0],
      cursor: {
        y: false, points: { size: 6 }, drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => this.zoom.reset() },
      },
      legend: { show: false }, hooks: { setCursor: [() => this.#key()], setSelect: [(plot) => this.#zoomed(plot)] },
      scales: {
        x: { time: false, range: (_, low, high) => (low === null ? [0, 1] : this.zoom.of(low, high > low ? high : low + 1)) },
        y: { range: isAngle ? [-180, 180] : (_, low, high) => padded(low, high, this.unit) },
      },
      axes: [
        { ...axis, ...label, space: 64, values: (_, places, index, space, step) => places.map((place) => (this.hasAxis ? place.toFixed(digitsOf(step)) : "")) },
        { ...axis, size: 48, space: 24, ...(isAngle && { splits: () => [-180, -90, 0, 90, 180] }), values: (_, values, index, space, step) => ticks(values, step, "") },
      ],
      series: [
        {},
        ...this.names.map(drawn),
      ],
    }, [[], ...this.names.map(() => [])], this.element);
  }

  #zoomed(plot) {
    const { left, width } = plot.select;
    if (width === 0) return;
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.zoom.set(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  }

  /// Shows the legend, with the values under the cursor. Of many series, the lowest and the highest one are named.
  #key() {
    const { data, cursor: { idx: index } } = this.#plot;
    const at = (values) => (index === null || index === undefined || values[index] === undefined ? null : values[index]);
    const place = at(data[0]);
    const all = this.names.map((name, number) => ({ name, number, value: at(data[number + 1]) }));
    const shown = all.length > MANY ? this.#extremes(all, index ?? data[0].length - 1) : all;
    morph(this.legend, [
      all.length > MANY && h("span", { class: "at" }, `${all.length} traces`),
      ...shown.map(({ name, number, value }) =>
        h("span", { class: `series-${number % 7}` }, name, value === null ? this.unit && this.unit !== name && ` (${this.unit})` : ` ${value} ${this.unit}`)),
      place !== null && h("span", { class: "at" }, `at ${this.#axis.text(place)}`),
    ]);
  }

  /// The series with the lowest and the highest value at `index`.
  #extremes(all, index) {
    const known = all.map((one) => ({ ...one, value: this.#plot.data[one.number + 1][index] ?? null })).filter((one) => one.value !== null);
    known.sort((one, other) => one.value - other.value);
    return known.length > 1 ? [known[0], known.at(-1)] : known;
  }
}

/// Range slightly wider than the values, and never empty; of decibels at least one, so that noise does not look like a signal.
function padded(low, high, unit) {
  if (low === null || high === null) return [0, 1];
  const least = unit.startsWith("dB") ? 0.5 : high > low ? 0 : 0.05 * Math.abs(high) || 0.5;
  const margin = Math.max(0.05 * (high - low), least);
  return [low - margin, high + margin];
}
