// Range of the colours of a plot: it follows the data, or the user fixes it.

import { h } from "../dom.js";

/// Outliers do not determine the range.
const SHARES = [0.02, 0.995];
/// Number of values for which the percentiles are computed, and above which they replace the extremes.
const SAMPLES = 4096;
const FEW = 100;

export class ColourRange {
  #followed = null;

  /// The range spans at least `least`; `fixed` is that of the last visit, if any; `onChange()` is called when the user changes it.
  constructor({ least = 0, fixed = null, onChange }) {
    Object.assign(this, { least, fixed, onChange });
    const input = (label) => h("input", { type: "number", step: "any", "aria-label": label, title: label, onchange: () => this.#typed() });
    this.low = input("lowest value shown");
    this.high = input("highest value shown");
    this.button = h("button", { type: "button", title: "fixes the range of the colours, which otherwise follows the data", onclick: () => this.#toggle() }, "Fix colours");
    this.element = h("span", { class: "range" }, this.button, this.low, this.high);
    this.#show();
  }

  /// The range for `rows`, lists of values with `null` for missing ones; `null` without values.
  of(rows) {
    if (this.fixed) return this.fixed;
    const known = sample(rows);
    if (known.length === 0) return null;
    const at = (share) => known[Math.round(share * (known.length - 1))];
    const [low, high] = (known.length > FEW ? SHARES : [0, 1]).map(at);
    this.#followed = [low, Math.max(high, low + this.least)];
    return this.#followed;
  }

  #toggle() {
    this.fixed = this.fixed || !this.#followed ? null : this.#followed.map((value) => Number(value.toPrecision(3)));
    this.#show();
    this.onChange();
  }

  #typed() {
    const typed = [this.low, this.high].map((input) => input.valueAsNumber);
    const isRange = typed.every(Number.isFinite) && typed[0] < typed[1];
    this.high.setCustomValidity(isRange ? "" : "the highest value must be above the lowest one");
    if (!isRange) return this.high.reportValidity();
    this.fixed = typed;
    return this.onChange();
  }

  #show() {
    this.button.setAttribute("aria-pressed", Boolean(this.fixed));
    [this.low, this.high].forEach((input, index) => {
      input.hidden = !this.fixed;
      input.value = this.fixed?.[index] ?? "";
    });
  }
}

/// Some of the known values of `rows`, in ascending order.
function sample(rows) {
  const step = Math.max(1, Math.ceil(rows.reduce((sum, row) => sum + row.length, 0) / SAMPLES));
  const known = [];
  let place = 0;
  for (const row of rows) {
    for (; place < row.length; place += step) if (row[place] !== null) known.push(row[place]);
    place -= row.length;
  }
  return Float64Array.from(known).sort();
}
