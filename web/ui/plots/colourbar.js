// Colour bar of a plot, with its range and unit.

import { colour } from "../themes.js";
import { stops } from "./colourmap.js";
import { marks } from "./axis.js";

/// Draws a vertical bar into `context` at `left`; low values are at the bottom.
export function colourBar(context, { left, top, width, height, low, high, unit, isAngle = false }) {
  const gradient = context.createLinearGradient(0, top + height, 0, top);
  const colours = stops(isAngle);
  colours.forEach((one, index) => gradient.addColorStop(index / (colours.length - 1), one));
  context.fillStyle = gradient;
  context.fillRect(left, top, width, height);
  context.fillStyle = colour("muted");
  context.textAlign = "left";
  context.fillText(unit, left - 4, top - 4);
  const shown = isAngle ? [-180, -90, 0, 90, 180].map((value) => ({ value, text: `${value}`.replace("-", "\u2212") })) : marks(low, high, Math.max(2, height / 28));
  for (const { value, text } of shown) {
    const y = top + height * (1 - (value - low) / Math.max(1e-9, high - low));
    context.fillText(text, left + width + 4, Math.min(top + height, Math.max(top + 7, y + 3.5)));
  }
}
