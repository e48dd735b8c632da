// Waterfall of spectra: time downwards from the newest, power as colour, with time axis and colour bar.

import { h } from "../dom.js";
import { clock } from "../format.js";
import { colour, forgetTheme, onTheme } from "../themes.js";
import { marks } from "./axis.js";
import { colourBar } from "./colourbar.js";
import { paint } from "./colourmap.js";
import { followPointer } from "./pointer.js";

const ROWS = 100;
const HEIGHT = 110;
const FONT = "11px system-ui, sans-serif";
/// Room around the image for the time axis, the colour bar, its unit, and the horizontal axis. `LEFT` and `RIGHT` are also those of a chart above.
export const LEFT = 48;
export const RIGHT = 62;
const TOP = 18;
const BOTTOM = 34;
/// An interval of this many usual ones between two spectra is a gap.
const GAP = 3;
const ANGLES = [-180, 180];
/// Times above are Unix times.
const UNIX_SECONDS = 1e8;

export class Waterfall {
  /// `{ time, values }`, the newest first.
  #rows = [];
  #axis = null;
  #unit = "";
  #colours = null;
  #span = 1;
  #pointer = null;

  /// `zoom` is shared with the charts of the plot, `range` the `ColourRange`.
  constructor(zoom, range) {
    Object.assign(this, { zoom, range });
    this.canvas = h("canvas", { role: "img", "aria-label": "waterfall: spectra over time, the newest on top" });
    this.readout = h("p", { class: "readout" });
    // The place of the values, as wide as the horizontal axis.
    this.area = h("div", { class: "area" });
    Object.assign(this.area.style, { left: `${LEFT}px`, right: `${RIGHT}px`, top: `${TOP}px`, height: `${HEIGHT}px` });
    this.element = h("div", { class: "waterfall" }, this.canvas, this.area, this.readout);
    this.redraw = () => this.draw();
    onTheme(this.redraw);
    zoom.onChange(this.redraw);
    this.resize = new ResizeObserver(this.redraw);
    this.resize.observe(this.element);
    followPointer(this.canvas, this.element, {
      isTall: true,
      onPoint: (x, y) => {
        this.#pointer = { x, y };
        this.#read();
      },
      onLeave: () => {
        this.#pointer = null;
        this.#read();
      },
      onDrag: ({ left, right }) => zoom.set(this.#place(left), this.#place(right)),
      onReset: () => zoom.reset(),
    });
  }

  /// Adds the spectrum `values` in `unit`, taken at `time` in seconds, at the places of `axis`.
  take(time, values, unit, axis) {
    const newest = this.#rows[0];
    // After a reconnection, the stream may repeat a frame; after a restart, time begins again.
    if (newest && time === newest.time) return;
    if (newest && (newest.values.length !== values.length || time < newest.time || axis.label !== this.#axis.label)) this.clear();
    this.#rows.unshift({ time, values });
    if (this.#rows.length > ROWS) this.#rows.pop();
    this.#axis = axis;
    this.#unit = unit;
  }

  clear() {
    this.#rows = [];
  }

  /// Whether the values are phases, which have no largest one.
  get isAngle() {
    return this.#unit === "deg";
  }

  close() {
    forgetTheme(this.redraw);
    this.resize.disconnect();
    this.clear();
  }

  draw() {
    const width = this.element.clientWidth;
    if (this.#rows.length === 0 || width < LEFT + RIGHT + 20) return;
    const scale = devicePixelRatio;
    const height = TOP + HEIGHT + BOTTOM;
    const [across, down] = [width, height].map((length) => Math.round(length * scale));
    if (this.canvas.width !== across || this.canvas.height !== down) Object.assign(this.canvas, { width: across, height: down });
    const colours = this.isAngle ? ANGLES : this.range.of(this.#rows.map((row) => row.values));
    if (!colours) return;
    this.#colours = colours;
    this.#span = ROWS * this.#interval();
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = FONT;
    this.#image(context, Math.round((width - LEFT - RIGHT) * scale), Math.round(HEIGHT * scale), scale);
    this.#axes(context, width);
    const [low, high] = colours;
    colourBar(context, { left: width - RIGHT + 8, top: TOP, width: 10, height: HEIGHT, low, high, unit: this.#unit, isAngle: this.isAngle });
    this.#read();
  }

  /// Usual time between two spectra.
  #interval() {
    const times = this.#rows.map((row) => row.time);
    const steps = times.slice(1).map((time, index) => times[index] - time).sort((one, other) => one - other);
    return steps[Math.floor(steps.length / 2)] ?? 1;
  }

  #image(context, columns, lines, scale) {
    const [low, high] = this.#colours;
    const rows = Array.from({ length: lines }, (_, line) => this.#rowAt((line + 0.5) / lines));
    const edges = Array.from({ length: columns + 1 }, (_, column) => this.#index(column / columns));
    // Rows repeat, so each spectrum is reduced to the columns once.
    const reduced = new Map();
    const of = (row) => {
      const one = this.isAngle ? firstValue : largest;
      if (!reduced.has(row)) reduced.set(row, Array.from({ length: columns }, (_, column) => one(row.values, edges[column], edges[column + 1])));
      return reduced.get(row);
    };
    const shown = rows.map((row) => row && of(row));
    const image = context.createImageData(columns, lines);
    paint(image, { low, high, isAngle: this.isAngle }, (x, y) => shown[y]?.[x] ?? null);
    context.putImageData(image, Math.round(LEFT * scale), Math.round(TOP * scale));
  }

  #axes(context, width) {
    const inner = width - LEFT - RIGHT;
    const bottom = TOP + HEIGHT;
    context.fillStyle = colour("muted");
    context.strokeStyle = colour("muted");
    context.textAlign = "right";
    context.fillText("s ago", LEFT - 6, TOP - 8);
    for (const { value, text } of marks(0, this.#span, 4)) {
      const y = TOP + (value / this.#span) * HEIGHT;
      context.fillText(text, LEFT - 6, Math.min(bottom, y + 4));
      context.fillRect(LEFT - 4, y, 4, 1);
    }
    const [low, high] = this.#shown();
    context.textAlign = "center";
    for (const { value, text } of marks(low, high, Math.max(2, inner / 60))) {
      const x = LEFT + ((value - low) / (high - low)) * inner;
      context.fillText(text, x, bottom + 15);
      context.fillRect(x, bottom, 1, 4);
    }
    context.fillText(this.#axis.label, LEFT + inner / 2, bottom + 30);
  }

  #shown() {
    const { places } = this.#axis;
    return this.zoom.of(places[0], places.at(-1));
  }

  /// Index of the value at `share` of the shown width.
  #index(share) {
    const { places } = this.#axis;
    const [low, high] = this.#shown();
    const step = (places.at(-1) - places[0]) / Math.max(1, places.length - 1) || 1;
    return (low + share * (high - low) - places[0]) / step + 0.5;
  }

  /// The spectrum at `share` of the time axis, if there is one.
  #rowAt(share) {
    const time = this.#rows[0].time - share * this.#span;
    const interval = this.#span / ROWS;
    const index = this.#rows.findIndex((row) => row.time <= time);
    // Without a newer spectrum in time, a spectrum belongs to one interval only.
    const row = this.#rows.at(index);
    if (index < 0) return time > row.time - interval ? row : null;
    const isGap = index > 0 && this.#rows[index - 1].time - row.time > GAP * interval;
    return isGap && time - row.time > interval ? null : row;
  }

  /// Position on the horizontal axis at pixel `x`.
  #place(x) {
    const [low, high] = this.#shown();
    const share = (x - LEFT) / (this.element.clientWidth - LEFT - RIGHT);
    return low + Math.min(1, Math.max(0, share)) * (high - low);
  }

  /// Shows the value under the pointer.
  #read() {
    this.readout.textContent = this.#pointer && this.#rows.length > 0 ? this.#textAt(this.#pointer) : "";
  }

  #textAt({ x, y }) {
    const down = (y - TOP) / HEIGHT;
    const across = (x - LEFT) / (this.element.clientWidth - LEFT - RIGHT);
    const row = [down, across].every((share) => share >= 0 && share < 1) && this.#rowAt(down);
    if (!row) return "";
    const index = Math.min(row.values.length - 1, Math.max(0, Math.floor(this.#index(across))));
    const ago = `${(this.#rows[0].time - row.time).toFixed(1)} s ago`;
    const value = row.values[index];
    return [
      this.#axis.text(this.#axis.places[index]), row.time > UNIX_SECONDS ? `${clock(row.time)} UTC, ${ago}` : ago,
      value === null ? "no value" : `${value} ${this.#unit}`,
    ].join(" · ");
  }
}

/// The first value between the positions `start` and `end`.
const firstValue = (values, start) => values[Math.max(0, Math.floor(start))] ?? null;

/// Largest value between the positions `start` and `end`, so that a narrow line stays visible on few pixels; the value there if
/// the interval is shorter than one; `null` without values.
function largest(values, start, end) {
  const first = Math.floor(start);
  const last = Math.max(first + 1, Math.floor(end));
  let most = null;
  for (let index = Math.max(0, first); index < Math.min(values.length, last); index += 1) {
    if (values[index] !== null && (most === null || values[index] > most)) most = values[index];
  }
  return most;
}
