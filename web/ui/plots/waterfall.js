// Waterfall of spectra: the newest on top, power as colour.

import { h } from "../dom.js";
import { paint } from "./colourmap.js";

const ROWS = 100;

export class Waterfall {
  #rows = [];

  /// Colours span at least `leastRangeDb`, so that noise alone does not look like a signal.
  constructor(leastRangeDb) {
    this.leastRangeDb = leastRangeDb;
    this.element = h("div", { class: "waterfall" });
    this.canvas = h("canvas", { height: ROWS, role: "img", "aria-label": "waterfall: the newest spectrum on top" });
    this.scale = h("p", { class: "scale" });
    this.element.append(this.canvas, this.scale);
  }

  /// Adds one spectrum.
  take(values) {
    if (this.#rows.length && this.#rows[0].length !== values.length) this.clear();
    this.#rows.unshift(values);
    if (this.#rows.length > ROWS) this.#rows.pop();
  }

  clear() {
    this.#rows = [];
  }

  close() {
    this.clear();
  }

  draw() {
    const width = this.#rows[0].length;
    const known = this.#rows.flat().filter((value) => value !== null).sort((one, other) => one - other);
    if (known.length === 0) return;
    // Outliers must not determine the range of colours.
    const [low, most] = [0.02, 0.995].map((share) => known[Math.floor(share * (known.length - 1))]);
    const high = Math.max(most, low + this.leastRangeDb);
    const columns = Math.max(1, Math.min(width, Math.round(this.canvas.clientWidth * devicePixelRatio)));
    if (this.canvas.width !== columns) this.canvas.width = columns;
    const context = this.canvas.getContext("2d");
    const image = context.createImageData(columns, ROWS);
    this.#rows.forEach((row, index) => {
      for (let column = 0; column < columns; column += 1) {
        const value = largest(row, Math.floor(column * width / columns), Math.floor((column + 1) * width / columns));
        if (value !== null) paint(image.data, 4 * (index * columns + column), (value - low) / (high - low));
      }
    });
    context.putImageData(image, 0, 0);
    this.scale.textContent = `${low.toFixed(1)} … ${high.toFixed(1)} dB`;
  }
}

/// Largest value from `start` to `end`, so that a narrow line stays visible on few pixels; `null` without values.
function largest(values, start, end) {
  let most = null;
  for (let index = start; index < end; index += 1) {
    if (values[index] !== null && (most === null || values[index] > most)) most = values[index];
  }
  return most;
}
