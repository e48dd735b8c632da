// A value for every pair of antennas, as a matrix of colours.

import { h } from "../dom.js";
import { colour, forgetTheme, onTheme } from "../themes.js";
import { paint, paintAngle, stops } from "./colourmap.js";

const MARGIN = 26;
const TOP = 20;

export class Matrix {
  #message = null;
  points = 16;

  constructor(view) {
    this.view = view;
    this.element = h("div", { class: "canvas matrices" });
    this.canvases = [];
    this.redraw = () => this.#message && this.draw(this.#message);
    onTheme(this.redraw);
    this.resize = new ResizeObserver(this.redraw);
    this.resize.observe(this.element);
    this.element.addEventListener("pointermove", (event) => this.#point(event));
    this.element.addEventListener("pointerleave", () => (this.said = ""));
  }

  clear() {
    this.#message = null;
  }

  close() {
    forgetTheme(this.redraw);
    this.resize.disconnect();
  }

  draw(message) {
    this.#message = message;
    if (this.canvases.length !== message.series.length) {
      this.canvases = message.series.map((one) => h("canvas", { role: "img", "aria-label": `${one.name} of all pairs` }));
      this.element.replaceChildren(...this.canvases);
    }
    message.series.forEach((one, index) => this.#one(this.canvases[index], message, one));
  }

  #one(canvas, { rows, columns }, { name, unit, values }) {
    const side = Math.min(300, Math.max(120, this.element.clientWidth / this.canvases.length - 8));
    const scale = devicePixelRatio;
    const height = side + TOP + 18;
    const [across, down] = [side, height].map((length) => Math.round(length * scale));
    if (canvas.width !== across || canvas.height !== down) Object.assign(canvas, { width: across, height: down });
    canvas.style.width = `${side}px`;
    canvas.style.height = `${height}px`;
    const known = values.filter((value) => value !== null);
    const isAngle = unit === "deg";
    const [low, high] = isAngle ? [-180, 180] : [Math.min(...known), Math.max(...known)];
    const image = new ImageData(columns.len, rows.len);
    values.forEach((value, index) => {
      if (value === null) return;
      if (isAngle) paintAngle(image.data, 4 * index, value);
      else paint(image.data, 4 * index, (value - low) / Math.max(1e-9, high - low));
    });
    const small = h("canvas", { width: columns.len, height: rows.len });
    small.getContext("2d").putImageData(image, 0, 0);
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, side, height);
    context.imageSmoothingEnabled = false;
    const inner = side - MARGIN;
    context.drawImage(small, MARGIN, TOP, inner, inner);
    context.fillStyle = colour("muted");
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "left";
    context.fillText(`${name} (${unit})`, MARGIN, 12);
    const every = Math.ceil(rows.len / 8);
    for (let index = 0; index < rows.len; index += every) {
      const middle = (index + 0.5) * (inner / rows.len);
      context.textAlign = "right";
      context.fillText(index, MARGIN - 5, TOP + middle + 4);
      context.textAlign = "center";
      context.fillText(index, MARGIN + middle, TOP + inner + 13);
    }
    this.#scale(context, { left: MARGIN, top: TOP + inner + 20, width: inner, low, high, colours: stops(isAngle) });
  }

  #scale(context, { left, top, width, low, high, colours }) {
    const gradient = context.createLinearGradient(left, 0, left + width, 0);
    colours.forEach((one, index) => gradient.addColorStop(index / (colours.length - 1), one));
    context.fillStyle = gradient;
    context.fillRect(left, top, width, 5);
    context.fillStyle = colour("muted");
    context.textAlign = "left";
    context.fillText(`${Number(low.toPrecision(4))}`, left, top + 17);
    context.textAlign = "right";
    context.fillText(`${Number(high.toPrecision(4))}`, left + width, top + 17);
  }

  #point(event) {
    const index = this.canvases.indexOf(event.target);
    if (index < 0 || !this.#message) return;
    const { rows, columns, series } = this.#message;
    const box = event.target.getBoundingClientRect();
    const inner = box.width - MARGIN;
    const column = Math.floor(((event.clientX - box.x - MARGIN) / inner) * columns.len);
    const row = Math.floor(((event.clientY - box.y - TOP) / inner) * rows.len);
    if (column < 0 || row < 0 || column >= columns.len || row >= rows.len) return;
    const told = series.map((one) => `${one.values[row * columns.len + column] ?? "-"} ${one.unit}`);
    this.said = `${row}-${column}: ${told.join(", ")}`;
    event.target.title = this.said;
  }
}
