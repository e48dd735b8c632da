// Blocks that can be tuned in a plot with frequencies.

import { pattern } from "./fold.js";

/// Names of `block` and of the blocks at the other `end` of the `edges` of a block, of their edges, and so on.
function reached(edges, end, block) {
  const names = new Set([block]);
  for (const name of names) edges.get(name)?.forEach((edge) => names.add(edge[end]));
  return names;
}

/// Names of the blocks without inputs from which data reach `block`; `into` has the edges by the reading block.
function origins(into, block) {
  return new Set([...reached(into, "from", block)].filter((name) => !into.has(name)));
}

/// Whether one change tunes both bands: they are at the same value, and either replicas, or side by side before a block that needs both, as polarisations
/// are.
function belong(one, other) {
  if (one.value_hz !== other.value_hz) return false;
  if (pattern(one.name) === pattern(other.name)) return true;
  const areChained = one.readers.has(other.name) || other.readers.has(one.name);
  return !areChained && [...one.readers].some((name) => other.readers.has(name));
}

/// Sets of bands that belong together.
function together(bands) {
  const sets = [];
  for (const band of bands) {
    const joined = sets.filter((set) => set.some((other) => belong(band, other)));
    joined.forEach((set) => sets.splice(sets.indexOf(set), 1));
    sets.push([...joined.flat(), band]);
  }
  return sets;
}

/// Whether a plot with the frequencies `x` shows at least half of the input of `band`, or the input holds half of the plot: others that touch
/// count their frequencies differently.
function shares({ start, step, len }, { input_low_hz: low, input_high_hz: high }) {
  const [least, most] = [start, start + step * (len - 1)].sort((one, other) => one - other);
  const common = Math.min(most, high) - Math.max(least, low);
  return common > 0 && common >= 0.5 * Math.min(most - least, high - low);
}

/// Choices of what can be tuned in a plot of an output of `block` against `x`, the grid of the view: blocks that read samples of the same origin and
/// move a band in them, each `{ name, bands }`, where `bands` are those of the REST API with the `name` of their block. Those that belong together come first,
/// as one choice.
export function choices({ blocks, edges }, block, x) {
  const tuned = blocks.filter((one) => one.tuned_band).map((one) => ({ name: one.name, ...one.tuned_band }));
  if (tuned.length === 0 || x?.unit !== "Hz") return [];
  const into = Map.groupBy(edges, (edge) => edge.to);
  const outOf = Map.groupBy(edges, (edge) => edge.from);
  const own = origins(into, block);
  const found = tuned
    .filter((band) => shares(x, band) && [...origins(into, band.name)].some((name) => own.has(name)))
    .map((band) => ({ ...band, readers: reached(outOf, "to", band.name) }));
  const joint = (bands, named) => [...new Set(bands.map((band) => named(band.name)))].join(" + ");
  const sets = together(found).filter((bands) => bands.length > 1);
  const patterns = sets.map((bands) => joint(bands, pattern));
  const isOnly = (name) => patterns.indexOf(name) === patterns.lastIndexOf(name);
  const groups = sets.map((bands, n) => ({ name: isOnly(patterns[n]) ? patterns[n] : joint(bands, (name) => name), bands }));
  return [...groups, ...found.map((band) => ({ name: band.name, bands: [band] }))];
}

/// Value of the parameter of `band` with which its centre is `hz`, rounded to `step`. In the lower sideband it falls as the frequency rises.
export function parameterAt(band, hz, step) {
  const value = band.value_hz + (band.is_inverted ? -1 : 1) * (hz - band.centre_hz);
  return Number((Math.round(value / step) * step).toPrecision(15));
}
