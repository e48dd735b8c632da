// Scale and scroll position of the graph: zoom with buttons, keys and the wheel, pan by dragging.

import { at } from "./dom.js";

const SMALLEST_SCALE = 0.72;
const STEP = 1.25;
const LIMITS = [0.02, 2.5];
const DRAGGED = 4;

export class Viewport {
  /// Scale chosen by the user; `null` follows the width of `box`.
  #chosen = null;
  #size = { width: 1, height: 1 };
  /// Whether the pointer has panned since it was pressed; the click at its end opens nothing.
  hasPanned = false;

  /// `onChange()` is called when another part or scale is shown.
  constructor(box, onChange) {
    Object.assign(this, { box, onChange });
    at("zoom-out").addEventListener("click", () => this.zoom(1 / STEP));
    at("zoom-in").addEventListener("click", () => this.zoom(STEP));
    at("zoom-fit").addEventListener("click", () => this.fit());
    box.addEventListener("scroll", () => this.#soon(), { passive: true });
    box.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    box.addEventListener("keydown", (event) => this.#key(event));
    this.#pan();
  }

  get scale() {
    return this.#chosen ?? Math.max(SMALLEST_SCALE, Math.min(1, (this.box.clientWidth - 2) / this.#size.width));
  }

  /// Sets the size of the graph at scale 1.
  resize(size) {
    this.#size = size;
  }

  /// The visible part in pixels at scale 1, with a margin on each side.
  part() {
    const { scale, box } = this;
    const [width, height] = [box.clientWidth / scale, box.clientHeight / scale];
    // A narrow graph is centred.
    const left = Math.max(0, (box.clientWidth - this.#size.width * scale) / 2) / scale;
    const [x, y] = [box.scrollLeft / scale - left, box.scrollTop / scale];
    return { left: x - width / 2, right: x + 1.5 * width, top: y - height / 2, bottom: y + 1.5 * height };
  }

  /// Scrolls the rectangle at scale 1 to the middle unless it is visible.
  reveal({ x, y, width, height }) {
    const { scale, box } = this;
    const isOutside = (from, length, scroll, room) => from * scale < scroll || (from + length) * scale > scroll + room;
    if (isOutside(x, width, box.scrollLeft, box.clientWidth)) box.scrollLeft = (x + width / 2) * scale - box.clientWidth / 2;
    if (isOutside(y, height, box.scrollTop, box.clientHeight)) box.scrollTop = (y + height / 2) * scale - box.clientHeight / 2;
  }

  /// At a scale at which a name can be read.
  readable() {
    if (this.scale < SMALLEST_SCALE) this.zoom(SMALLEST_SCALE / this.scale);
  }

  /// Shows the whole graph, or the usual scale if it is shown already.
  fit() {
    const { width, height } = this.#size;
    const room = Math.max(this.box.clientHeight, innerHeight / 2);
    const whole = Math.max(LIMITS[0], Math.min(1, (this.box.clientWidth - 2) / width, room / height));
    this.#chosen = this.#chosen === whole ? null : whole;
    this.onChange();
  }

  /// Multiplies the scale by `factor`; the point (`x`, `y`) of the box stays where it is.
  zoom(factor, x = this.box.clientWidth / 2, y = this.box.clientHeight / 2) {
    const { box } = this;
    const before = this.scale;
    this.#chosen = Math.min(LIMITS[1], Math.max(LIMITS[0], before * factor));
    const places = [(box.scrollLeft + x) / before, (box.scrollTop + y) / before];
    this.onChange();
    box.scrollTo(places[0] * this.#chosen - x, places[1] * this.#chosen - y);
  }

  #soon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.onChange();
    });
  }

  /// Without Ctrl, the wheel scrolls; a pinch on a touchpad arrives as a wheel with Ctrl.
  #wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const box = this.box.getBoundingClientRect();
    this.zoom(2 ** (-event.deltaY / 300), event.clientX - box.x, event.clientY - box.y);
  }

  #key(event) {
    const factor = { "+": STEP, "=": STEP, "-": 1 / STEP }[event.key];
    if (event.ctrlKey || event.metaKey) return;
    if (factor) this.zoom(factor);
    else if (event.key === "0") this.fit();
  }

  /// A finger scrolls.
  #pan() {
    const { box } = this;
    let last = null;
    box.addEventListener("pointerdown", (event) => {
      this.hasPanned = false;
      if (event.pointerType === "touch" || event.button !== 0) return;
      last = { x: event.clientX, y: event.clientY };
    });
    addEventListener("pointermove", (event) => {
      if (!last) return;
      const [x, y] = [event.clientX - last.x, event.clientY - last.y];
      if (!this.hasPanned && Math.hypot(x, y) < DRAGGED) return;
      this.hasPanned = true;
      box.classList.add("panning");
      box.scrollBy(-x, -y);
      last = { x: event.clientX, y: event.clientY };
    });
    const end = () => {
      last = null;
      box.classList.remove("panning");
    };
    ["pointerup", "pointercancel"].forEach((name) => addEventListener(name, end));
  }
}
