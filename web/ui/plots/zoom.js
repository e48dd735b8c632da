// The shown part of a plot's horizontal axis, shared by its charts and its waterfall.

export class Zoom {
  #listeners = [];
  /// `[low, high]` in the unit of the axis, or `null` for all of it.
  range = null;

  onChange(listener) {
    this.#listeners.push(listener);
  }

  set(low, high) {
    this.#change(high > low ? [low, high] : null);
  }

  reset() {
    this.#change(null);
  }

  /// The shown part of an axis from `low` to `high`; a range of another axis is dropped.
  of(low, high) {
    if (this.range && (this.range[0] >= high || this.range[1] <= low)) this.range = null;
    return this.range ?? [low, high];
  }

  #change(range) {
    this.range = range;
    this.#listeners.forEach((listener) => listener());
  }
}
