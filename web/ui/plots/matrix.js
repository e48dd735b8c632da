// A value for every pair of antennas, as a matrix of colours.

import { h } from "../dom.js";
import { colour, forgetTheme, onTheme } from "../themes.js";
import { colourBar } from "./colourbar.js";
import { paint } from "./colourmap.js";
import { followPointer } from "./pointer.js";
import { ColourRange } from "./range.js";

const LEFT = 30;
const TOP = 34;
const RIGHT = 58;
const BOTTOM = 32;
const FONT = "11px system-ui, sans-serif";
const ANGLES = [-180, 180];

export class Matrix {
  #message = null;
  /// The shown part, `{ left, top, right, bottom }` in antennas.
  #window = null;
  #pointer = null;
  points = 16;

  constructor(view, spec, onChange) {
    this.view = view;
    this.range = new ColourRange({ fixed: spec.colours, onChange: () => (this.redraw(), onChange()) });
    this.matrices = h("div", { class: "matrices" });
    this.readout = h("p", { class: "readout" });
    this.element = h("div", { class: "canvas" }, this.matrices, this.readout);
    this.canvases = [];
    this.redraw = () => this.#message && this.draw(this.#message);
    onTheme(this.redraw);
    this.resize = new ResizeObserver(this.redraw);
    this.resize.observe(this.element);
  }

  get isZoomed() {
    return this.#window !== null;
  }

  resetZoom() {
    this.#window = null;
    this.redraw();
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
      this.matrices.replaceChildren(...this.canvases.map((canvas) => this.#frame(canvas)));
    }
    message.series.forEach((one, index) => this.#one(this.canvases[index], message, one));
    this.#read();
  }

  #frame(canvas) {
    const frame = h("div", { class: "frame" }, canvas);
    followPointer(canvas, frame, {
      onPoint: (x, y) => {
        this.#pointer = { x, y };
        this.#read();
      },
      onLeave: () => {
        this.#pointer = null;
        this.#read();
      },
      onDrag: ({ left, top, right, bottom }) => {
        const [from, to] = [this.#cell(left, top), this.#cell(right, bottom)];
        this.#window = { left: from.column, top: from.row, right: to.column + 1, bottom: to.row + 1 };
        this.redraw();
      },
      onReset: () => this.resetZoom(),
    });
    return frame;
  }

  get #side() {
    const across = this.element.clientWidth;
    const isNarrow = across / this.canvases.length < LEFT + RIGHT + 100;
    return Math.min(230, Math.max(90, (isNarrow ? across : across / this.canvases.length - 4) - LEFT - RIGHT));
  }

  #shown() {
    const { rows, columns } = this.#message;
    const all = { left: 0, top: 0, right: columns.len, bottom: rows.len };
    if (this.#window && (this.#window.right > columns.len || this.#window.bottom > rows.len)) this.#window = null;
    return this.#window ?? all;
  }

  #one(canvas, { columns, rows }, { name, unit, values }) {
    const side = this.#side;
    const scale = devicePixelRatio;
    const [width, height] = [LEFT + side + RIGHT, TOP + side + BOTTOM];
    const [across, down] = [width, height].map((length) => Math.round(length * scale));
    if (canvas.width !== across || canvas.height !== down) Object.assign(canvas, { width: across, height: down });
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const isAngle = unit === "deg";
    const [low, high] = isAngle ? ANGLES : this.range.of([values]) ?? [0, 1];
    const { left, top, right, bottom } = this.#shown();
    const small = h("canvas", { width: right - left, height: bottom - top });
    const image = new ImageData(right - left, bottom - top);
    paint(image, { low, high, isAngle }, (x, y) => values[(top + y) * columns.len + left + x]);
    small.getContext("2d").putImageData(image, 0, 0);
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, LEFT, TOP, side, side);
    context.fillStyle = colour("muted");
    context.font = FONT;
    context.textAlign = "left";
    context.fillText(name, LEFT, 12);
    this.#labels(context, side);
    context.textAlign = "center";
    context.fillText(columns.name, LEFT + side / 2, TOP + side + 28);
    context.textAlign = "left";
    context.fillText(rows.name, 0, TOP - 6);
    colourBar(context, { left: LEFT + side + 10, top: TOP, width: 10, height: side, low, high, unit, isAngle });
  }

  #labels(context, side) {
    const { left, top, right, bottom } = this.#shown();
    const label = (from, to, text) => {
      for (let index = from; index < to; index += Math.ceil((to - from) / 8)) text(index, ((index - from + 0.5) / (to - from)) * side);
    };
    context.textAlign = "right";
    label(top, bottom, (index, middle) => context.fillText(index, LEFT - 5, TOP + middle + 4));
    context.textAlign = "center";
    label(left, right, (index, middle) => context.fillText(index, LEFT + middle, TOP + side + 13));
  }

  /// The pair at a pixel, the nearest one outside of the matrix.
  #cell(x, y) {
    const { left, top, right, bottom } = this.#shown();
    const at = (share, from, to) => Math.min(to - 1, Math.max(from, from + Math.floor(share * (to - from))));
    return { column: at((x - LEFT) / this.#side, left, right), row: at((y - TOP) / this.#side, top, bottom) };
  }

  /// Shows the pair under the pointer.
  #read() {
    this.readout.textContent = this.#pointer && this.#message ? this.#textAt(this.#pointer) : "";
  }

  #textAt({ x, y }) {
    if ([x - LEFT, y - TOP].some((place) => place < 0 || place >= this.#side)) return "";
    const { columns, rows, series } = this.#message;
    const { row, column } = this.#cell(x, y);
    const values = series.map((one) => `${one.name} ${one.values[row * columns.len + column] ?? "-"} ${one.unit}`);
    return `${rows.name}s ${row}-${column} · ${values.join(" · ")}`;
  }
}
