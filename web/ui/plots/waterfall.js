// Spectra as they pass: the newest on top, power as colour.

import { h } from "../dom.js";
import { paint } from "./colourmap.js";

const ROWS = 100;
const LEAST_RANGE_DB = 6;

export class Waterfall {
  #rows = [];

  constructor() {
    this.element = h("div", { class: "waterfall" });
    this.canvas = h("canvas", { role: "img", "aria-label": "waterfall: the newest spectrum on top" });
    this.scale = h("p", { class: "scale" });
    this.element.append(this.canvas, this.scale);
  }

  /// Takes one spectrum.
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
    // The few outermost values would take the colours of all others.
    const [low, most] = [0.02, 0.995].map((share) => known[Math.floor(share * (known.length - 1))]);
    // Noise alone is not to look like a signal.
    const high = Math.max(most, low + LEAST_RANGE_DB);
    if (this.canvas.width !== width) Object.assign(this.canvas, { width, height: ROWS });
    const context = this.canvas.getContext("2d");
    const image = context.createImageData(width, ROWS);
    this.#rows.forEach((row, index) => row.forEach((value, column) => {
      if (value !== null) paint(image.data, 4 * (index * width + column), (value - low) / (high - low));
    }));
    context.putImageData(image, 0, 0);
    this.scale.textContent = `${low.toFixed(1)} … ${high.toFixed(1)} dB`;
  }
}
