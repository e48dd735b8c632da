// A chart with axes, drawn by uPlot.

import uPlot from "../vendor/uPlot-1.6.32/uPlot.esm.js";
import { h, morph } from "../dom.js";
import { si, ticks } from "../format.js";
import { colour, forgetTheme, onTheme, series as seriesColour } from "../themes.js";

const FONT = "11px system-ui, sans-serif";
const SCALED = new Set(["Hz", "s"]);

export class Chart {
  #plot = null;
  #x = { name: "", unit: "" };

  /// Creates a chart of series called `names`, all in `unit`.
  constructor({ unit, names, height, bars = false, scale = (low, high) => padded(low, high) }) {
    Object.assign(this, { unit, names, height, bars, scale });
    this.legend = h("p", { class: "key" });
    this.element = h("div", { class: "chart" }, this.legend);
    this.redraw = () => this.#plot?.redraw();
    onTheme(this.redraw);
    this.resize = new ResizeObserver(() => this.#fit());
    this.resize.observe(this.element);
  }

  close() {
    forgetTheme(this.redraw);
    this.resize.disconnect();
    this.#plot?.destroy();
  }

  /// Draws `values`, one list per series, against `places`; `x` has name and unit of the horizontal axis.
  draw(places, values, x) {
    this.#x = x;
    if (!this.#plot) this.#make();
    this.#plot.setData([places, ...values]);
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
    this.#plot = new uPlot({
      width: Math.max(100, this.element.clientWidth), height: this.height, padding: [8, 18, 0, 0],
      cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false } },
      legend: { show: false }, hooks: { setCursor: [() => this.#key()] },
      scales: { x: { time: false }, y: { range: isAngle ? [-180, 180] : (_, low, high) => this.scale(low, high) } },
      axes: [
        { ...axis, size: 26, space: 72, values: (_, places, index, space, step) => ticks(places, step, this.#x.unit) },
        { ...axis, size: 48, space: 24, ...(isAngle && { splits: () => [-180, -90, 0, 90, 180] }), values: (_, values, index, space, step) => ticks(values, step, "") },
      ],
      series: [
        {},
        ...this.names.map(drawn),
      ],
    }, [[], ...this.names.map(() => [])], this.element);
  }

  /// Shows the legend, with the values under the cursor.
  #key() {
    const { data, cursor: { idx: index } } = this.#plot;
    const at = (values) => (index === null || index === undefined || values[index] === undefined ? null : values[index]);
    const place = at(data[0]);
    morph(this.legend, [
      ...this.names.map((name, number) => {
        const value = at(data[number + 1]);
        return h("span", { class: `series-${number % 7}` }, name, value === null ? this.unit && this.unit !== name && ` (${this.unit})` : ` ${value} ${this.unit}`);
      }),
      place !== null && h("span", { class: "at" }, `at ${this.#place(place)}`),
    ]);
  }

  #place(value) {
    if (!SCALED.has(this.#x.unit)) return `${Number(value.toPrecision(5))}${this.#x.unit && ` ${this.#x.unit}`}`;
    return si(value, this.#x.unit);
  }
}

/// Range slightly wider than the values, and never empty.
function padded(low, high) {
  if (low === null || high === null) return [0, 1];
  const margin = Math.max(0.05 * (high - low), 0.5);
  return [low - margin, high + margin];
}
