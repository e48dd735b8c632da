// Blocks that can be tuned in a plot with frequencies.

import { pattern } from "./fold.js";

/// Names of the blocks without inputs from which data reach `block`; `into` has the edges by the reading block.
function origins(into, block) {
  const above = new Set([block]);
  for (const name of above) into.get(name)?.forEach((edge) => above.add(edge.from));
  return new Set([...above].filter((name) => !into.has(name)));
}

/// Whether a plot with the frequencies `x` shows at least half of the input of `band`, or the input holds half of the plot: others that touch
/// count their frequencies differently.
function shares({ start, step, len }, { input_low_hz: low, input_high_hz: high }) {
  const [least, most] = [start, start + step * (len - 1)].sort((one, other) => one - other);
  const common = Math.min(most, high) - Math.max(least, low);
  return common > 0 && common >= 0.5 * Math.min(most - least, high - low);
}

/// Choices of what can be tuned in a plot of an output of `block` against `x`, the grid of the view: blocks that read samples of the same origin and
/// move a band in them, each `{ name, bands }`, where `bands` are those of the REST API with the `name` of their block. Replicas come first, as one choice.
export function choices({ blocks, edges }, block, x) {
  const tuned = blocks.filter((one) => one.tuned_band).map((one) => ({ name: one.name, ...one.tuned_band }));
  if (tuned.length === 0 || x?.unit !== "Hz") return [];
  const into = Map.groupBy(edges, (edge) => edge.to);
  const own = origins(into, block);
  const found = tuned.filter((band) => shares(x, band) && [...origins(into, band.name)].some((name) => own.has(name)));
  const groups = [...new Set(found.map((band) => pattern(band.name)))]
    .map((name) => ({ name, bands: tuned.filter((band) => pattern(band.name) === name) }))
    .filter(({ bands }) => bands.length > 1);
  return [...groups, ...found.map((band) => ({ name: band.name, bands: [band] }))];
}

/// Value of the parameter of `band` with which its centre is `hz`, rounded to `step`. In the lower sideband it falls as the frequency rises.
export function parameterAt(band, hz, step) {
  const value = band.value_hz + (band.is_inverted ? -1 : 1) * (hz - band.centre_hz);
  return Number((Math.round(value / step) * step).toPrecision(15));
}
