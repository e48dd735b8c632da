// Satellites in the sky: north up, east to the right, the zenith in the middle; and a table of them.

import * as api from "../api.js";
import { h, morph } from "../dom.js";
import { colour, forgetTheme, onTheme } from "../themes.js";
import { colourBar } from "./colourbar.js";
import { shade } from "./colourmap.js";
import { ColourRange } from "./range.js";

const MARGIN = 18;
/// Room for the colour bar.
const RIGHT = 52;
const LARGEST = 260;
const FONT = "11px system-ui, sans-serif";
/// Usual range of C/N0, which the colours have at least.
const USUAL_DB_HZ = [25, 50];
const CIRCLES_DEGREES = [0, 30, 60];
const DIRECTIONS = [["N", 0], ["E", 90], ["S", 180], ["W", 270]];
/// Parameter of a block: satellites below are not used.
const MASK = "elevation_mask_degrees";
const HEADS = ["satellite", "azimuth °", "elevation °", "C/N₀ dB Hz", "residual m", "used"];

export class Sky {
  #satellites = null;
  #mask = null;
  /// Block that was shown last.
  #shown = null;
  points = 16;
  isZoomed = false;

  constructor(view, spec, onChange) {
    this.range = new ColourRange({ fixed: spec.colours, onChange: () => (this.redraw(), onChange()) });
    this.canvas = h("canvas", { role: "img", "aria-label": "satellites in the sky: north up, east right, the zenith in the middle" });
    this.body = h("tbody");
    this.none = h("p", { class: "note" }, "no satellite is tracked");
    this.table = h("table", { class: "satellites" }, h("thead", {}, h("tr", {}, HEADS.map((head, index) => h("th", { scope: "col", class: index > 0 && "number" }, head)))), this.body);
    this.element = h("div", { class: "canvas sky" }, this.canvas, h("div", { class: "wide" }, this.table, this.none));
    this.redraw = () => this.#satellites && this.#draw();
    onTheme(this.redraw);
    this.resize = new ResizeObserver(this.redraw);
    this.resize.observe(this.element);
  }

  resetZoom() {}

  clear() {
    this.#satellites = null;
  }

  close() {
    forgetTheme(this.redraw);
    this.resize.disconnect();
  }

  /// Marks the elevation mask of `block`, if it has one.
  async showBlock(block) {
    this.#shown = block;
    const page = await api.ask(api.block(block)).catch(() => null);
    // The answer about a block before may come last.
    if (this.#shown !== block) return;
    this.#mask = page?.parameters[MASK] ?? page?.parameters_schema?.properties?.[MASK]?.default ?? null;
    this.redraw();
  }

  draw({ series }) {
    this.#satellites = series.map(({ name, values: [azimuth, elevation, cn0, residual, isUsed] }) => ({ name, azimuth, elevation, cn0, residual, isUsed: isUsed === 1 }));
    this.#draw();
  }

  #draw() {
    this.#picture();
    const digits = (value, count) => (value === null ? "-" : value.toFixed(count).replace("-", "\u2212"));
    morph(this.body, this.#satellites.map(({ name, azimuth, elevation, cn0, residual, isUsed }) => h("tr", {},
      h("th", { scope: "row" }, name),
      [digits(azimuth, 1), digits(elevation, 1), digits(cn0, 1), digits(residual, 2), isUsed ? "yes" : "no"].map((text) => h("td", { class: "number" }, text)))));
    this.table.hidden = this.#satellites.length === 0;
    this.none.hidden = !this.table.hidden;
  }

  #picture() {
    const width = Math.min(LARGEST + RIGHT, this.element.clientWidth);
    const side = width - RIGHT;
    if (side < 80) return;
    const scale = devicePixelRatio;
    const [across, down] = [width, side].map((length) => Math.round(length * scale));
    if (this.canvas.width !== across || this.canvas.height !== down) Object.assign(this.canvas, { width: across, height: down });
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${side}px`;
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, side);
    context.font = FONT;
    const radius = side / 2 - MARGIN;
    const at = (azimuth, elevation) => {
      const [angle, share] = [(azimuth * Math.PI) / 180, (90 - Math.max(0, elevation)) / 90];
      return { x: side / 2 + radius * share * Math.sin(angle), y: side / 2 - radius * share * Math.cos(angle) };
    };
    this.#grid(context, { at, radius, side });
    const [low, high] = this.range.of([USUAL_DB_HZ, this.#satellites.map(({ cn0 }) => cn0)]);
    for (const one of this.#satellites) if (one.azimuth !== null && one.elevation !== null) this.#satellite(context, one, at(one.azimuth, one.elevation), { low, high });
    colourBar(context, { left: side + 8, top: MARGIN, width: 10, height: side - 2 * MARGIN, low, high, unit: "dB Hz" });
  }

  #grid(context, { at, radius, side }) {
    const circle = (elevation, style, dashes = []) => {
      context.beginPath();
      context.arc(side / 2, side / 2, (radius * (90 - elevation)) / 90, 0, 2 * Math.PI);
      context.strokeStyle = colour(style);
      context.setLineDash(dashes);
      context.stroke();
      context.setLineDash([]);
    };
    context.lineWidth = 1;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillStyle = colour("muted");
    for (const [name, azimuth] of DIRECTIONS) {
      const [edge, middle] = [at(azimuth, 0), at(azimuth, 90)];
      context.strokeStyle = colour("grid");
      context.beginPath();
      context.moveTo(middle.x, middle.y);
      context.lineTo(edge.x, edge.y);
      context.stroke();
      const angle = (azimuth * Math.PI) / 180;
      context.fillText(name, edge.x + 9 * Math.sin(angle), edge.y - 9 * Math.cos(angle));
    }
    CIRCLES_DEGREES.forEach((elevation) => circle(elevation, elevation === 0 ? "muted" : "line"));
    for (const elevation of CIRCLES_DEGREES.slice(1)) context.fillText(`${elevation}°`, at(0, elevation).x + 11, at(0, elevation).y + 7);
    if (this.#mask > 0 && this.#mask < 90) circle(this.#mask, "accent", [4, 3]);
    context.textBaseline = "alphabetic";
  }

  /// Draws a satellite: hollow if the position does not use it.
  #satellite(context, { name, cn0, isUsed }, { x, y }, range) {
    context.beginPath();
    context.arc(x, y, 5, 0, 2 * Math.PI);
    [context.fillStyle, context.strokeStyle] = [isUsed ? shade(cn0, range) : colour("surface"), shade(cn0, range)];
    context.lineWidth = 2;
    context.fill();
    context.stroke();
    // A thin line around the colour, which may be that of the background.
    context.beginPath();
    context.arc(x, y, 6.5, 0, 2 * Math.PI);
    context.lineWidth = 1;
    context.strokeStyle = colour("muted");
    context.stroke();
    context.fillStyle = colour("text");
    context.textAlign = "center";
    context.fillText(name, x, y - 10 < 10 ? y + 18 : y - 10);
  }
}
