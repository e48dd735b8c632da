// Tuning from a plot with frequencies: marks of the bands of blocks, and a live update by a click or a typed frequency.

import * as api from "./api.js";
import { h } from "./dom.js";
import * as format from "./format.js";
import { reasons } from "./request.js";
import { choices, parameterAt } from "./tuning.js";

/// A second click in this time resets the zoom, and tunes nothing.
const DOUBLE_CLICK_MS = 500;
/// A click that moves further is a drag.
const DRAG_PIXELS = 5;
/// Typed frequencies are rounded to this step.
const FINEST_HZ = 1e-6;

export class Tuner {
  #choices = [];
  #chosen = null;
  /// Frequency in Hz that the user has typed and not sent.
  #draft = null;
  #pressed = null;
  #timer = 0;
  #layers = new WeakMap();

  /// `plot` has the interface of `Lines`; `isOn` tells whether clicks tune; `onChange()` is called when the user changes that.
  constructor(plot, { isOn = false, onChange }) {
    Object.assign(this, { plot, isOn, onChange });
    this.button = h("button", { type: "button", title: "tunes a block to the frequency of a click on the plot, or to a typed one", onclick: () => this.#toggle() }, "Tune");
    this.select = h("select", { "aria-label": "block to tune", onchange: () => this.#choose(this.select.value) });
    this.input = h("input", { type: "number", oninput: () => this.#typed(), onblur: () => this.#forget() });
    this.unit = h("span", { class: "unit" });
    const send = (event) => {
      event.preventDefault();
      if (this.#draft !== null) this.#tune(this.#draft, FINEST_HZ);
    };
    this.element = h("form", { class: "range tuner", novalidate: true, hidden: true, onsubmit: send }, this.button, this.select, this.input, this.unit);
    this.said = h("p", { class: "said", role: "status", hidden: true });
    plot.onShown = () => this.#paint();
    plot.element.addEventListener("pointerdown", (event) => (this.#pressed = event), true);
    plot.element.addEventListener("click", (event) => this.#clicked(event), true);
  }

  /// Shows what can be tuned in the plot of an output of `block` against `x`.
  show(graph, block, x) {
    this.#choices = choices(graph, block, x);
    this.element.hidden = this.#choices.length === 0;
    const names = this.#choices.map(({ name }) => name);
    if (names.join("\n") !== [...this.select.options].map(({ value }) => value).join("\n")) {
      this.select.replaceChildren(...this.#choices.map(({ name, bands }) => h("option", { value: name }, bands.length > 1 ? `all ${bands.length} ${name}` : name)));
    }
    this.#choose(names.includes(this.#chosen?.name) ? this.#chosen.name : names[0]);
  }

  #choose(name) {
    if (name !== this.#chosen?.name) {
      this.#draft = null;
      this.#say("");
    }
    this.#chosen = this.#choices.find((choice) => choice.name === name) ?? null;
    this.#fill();
    this.#paint();
  }

  #toggle() {
    this.isOn = !this.isOn;
    this.#say("");
    this.#fill();
    this.#paint();
    this.onChange();
  }

  /// Brings the inputs up to date.
  #fill() {
    this.button.setAttribute("aria-pressed", this.isOn);
    this.plot.element.classList.toggle("tunes", this.isOn && this.#chosen !== null);
    [this.input, this.unit].forEach((element) => (element.hidden = !this.isOn));
    this.select.hidden = !this.isOn || this.#choices.length < 2;
    if (!this.#chosen) return;
    const { per, unit } = this.plot.axis;
    this.select.value = this.#chosen.name;
    this.unit.textContent = unit;
    this.input.setAttribute("aria-label", `frequency of ${this.#chosen.name} in ${unit}`);
    this.input.step = Number((this.#step() / per).toPrecision(6));
    this.input.disabled = this.#fixedBy() !== null;
    // While the user types, a text such as "-" is no number yet.
    const isTyping = document.activeElement === this.input && !Number.isFinite(this.input.valueAsNumber);
    if (this.#draft === null && !isTyping) this.input.value = Number((this.#chosen.bands[0].centre_hz / per).toPrecision(12));
    if (this.isOn && this.input.disabled) this.#say(this.#fixedBy(), true);
  }

  /// Reason why the chosen block cannot be tuned, or `null`.
  #fixedBy() {
    const band = this.#chosen.bands.find((one) => one.fixed_by);
    return band ? `${band.name} cannot be tuned: ${band.fixed_by} cannot follow another centre frequency while it runs` : null;
  }

  /// A round step of about one pixel, in Hz.
  #step() {
    const { low, high } = this.plot.shown;
    const width = this.plot.areas[0]?.clientWidth || 1;
    return 10 ** Math.floor(Math.log10(((high - low) * this.plot.axis.per) / width));
  }

  #typed() {
    this.#draft = Number.isFinite(this.input.valueAsNumber) ? this.input.valueAsNumber * this.plot.axis.per : null;
    this.#paint();
  }

  /// Shows the frequency in force in place of one that was typed and not sent.
  #forget() {
    this.#draft = null;
    this.#fill();
    this.#paint();
  }

  #clicked(event) {
    clearTimeout(this.#timer);
    const { clientX: x, clientY: y, detail } = event;
    const isDrag = this.#pressed && Math.hypot(x - this.#pressed.clientX, y - this.#pressed.clientY) >= DRAG_PIXELS;
    if (!this.isOn || !this.#chosen || isDrag || detail > 1) return;
    const boxes = this.plot.areas.map((area) => area.getBoundingClientRect());
    const box = boxes.find(({ left, right, top, bottom }) => x >= left && x <= right && y >= top && y <= bottom);
    if (!box) return;
    const { low, high } = this.plot.shown;
    const hz = (low + ((x - box.left) / box.width) * (high - low)) * this.plot.axis.per;
    const step = this.#step();
    this.#timer = setTimeout(() => this.#tune(hz, step), DOUBLE_CLICK_MS);
  }

  async #tune(hz, step) {
    const { name, bands } = this.#chosen;
    const fixed = this.#fixedBy();
    if (fixed) return this.#say(fixed, true);
    const values = bands.map((band) => [band.name, { [band.parameter]: parameterAt(band, hz, step) }]);
    this.#say("…");
    try {
      const answer = await api.patch("/blocks", JSON.stringify(Object.fromEntries(values)));
      this.#draft = null;
      const { per, unit } = this.plot.axis;
      return this.#say(`${name}: ${Number((hz / per).toPrecision(9))} ${unit} from timestamp ${format.count(answer.effective_timestamp)} on`);
    } catch (error) {
      return this.#say(`${name}: ${reasons(error).map(({ text }) => text).join("; ")}`, true);
    }
  }

  #say(text, isProblem = false) {
    if (this.said.textContent !== text) this.said.textContent = text;
    this.said.hidden = text === "";
    this.said.classList.toggle("problem", isProblem);
  }

  /// Marks the bands on all parts of the plot.
  #paint() {
    const marks = this.#marks();
    for (const area of this.plot.areas) {
      if (!this.#layers.has(area)) this.#layers.set(area, h("div", { class: "bands", "aria-hidden": "true" }));
      const layer = this.#layers.get(area);
      if (!layer.isConnected) area.append(layer);
      while (layer.childElementCount < marks.length) layer.append(h("div"));
      while (layer.childElementCount > marks.length) layer.lastChild.remove();
      marks.forEach((mark, index) => this.#place(layer.children[index], mark));
    }
  }

  #marks() {
    if (!this.#chosen) return [];
    const isChosen = (band) => this.#chosen.bands.some((one) => one.centre_hz === band.centre_hz && one.bandwidth_hz === band.bandwidth_hz);
    const mark = (band) => ({ look: isChosen(band) ? "band chosen" : "band", block: band.name, hz: band.centre_hz, width: band.bandwidth_hz });
    // Replicas are at the same place, unless one of them was tuned alone.
    const all = new Map(this.#choices.flatMap(({ bands }) => bands).map((band) => [`${band.centre_hz} ${band.bandwidth_hz}`, band]));
    const marks = [...all.values()].map(mark);
    const [{ name: block, bandwidth_hz: width }] = this.#chosen.bands;
    return this.#draft === null ? marks : [...marks, { look: "band draft", block, hz: this.#draft, width }];
  }

  #place(element, { look, block, hz, width }) {
    const { low, high } = this.plot.shown;
    const { per } = this.plot.axis;
    element.className = look;
    // For scripts and tests.
    Object.assign(element.dataset, { block, hz });
    element.style.left = `${(100 * (hz / per - low)) / (high - low)}%`;
    element.style.width = `${(100 * width) / per / (high - low)}%`;
  }
}
