// Horizontal axes: unit, label and tick positions.

/// Frequencies are shown in MHz, those of slow streams in kHz or Hz.
const FREQUENCIES = [[1e5, 1e6, "MHz"], [1e2, 1e3, "kHz"], [0, 1, "Hz"]];
const TIMES = [[0.1, 1, "s"], [1e-4, 1e-3, "ms"], [0, 1e-6, "µs"]];

/// Axis of the grid `x` of a view, `{ name, unit, start, step, len }`:
/// - `unit`, its size `per`, and `label` with name and unit
/// - `places`: the positions in that unit, in ascending order; `isReversed` tells whether the values must be reversed
/// - `text(place)`: a position with its unit, with the digits that distinguish neighbours
export function axisOf(x) {
  const { name, unit, start, step, len } = x;
  const end = start + step * (len - 1);
  const sizes = { Hz: FREQUENCIES, s: TIMES }[unit] ?? [[0, 1, unit]];
  const [, per, shown] = sizes.find(([least]) => Math.max(Math.abs(start), Math.abs(end)) >= least);
  const isReversed = step < 0;
  const places = Array.from({ length: len }, (_, index) => (start + step * index) / per);
  const digits = digitsOf(step / per);
  return {
    unit: shown, per, label: shown ? `${name} (${shown})` : name, isReversed, places: isReversed ? places.reverse() : places,
    text: (place) => `${place.toFixed(digits)} ${shown}`.trim(),
  };
}

/// Number of decimals that distinguish values `step` apart.
export const digitsOf = (step) => Math.min(9, Math.max(0, Math.ceil(-Math.log10(Math.abs(step) || 1))));

/// About `count` round positions from `low` to `high`, each `{ value, text }`.
export function marks(low, high, count) {
  if (!(high > low)) return [];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const digits = digitsOf(step);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step)
    .map((value) => ({ value, text: Number(value.toFixed(digits)).toFixed(digits).replace("-", "\u2212") }));
}
