// Colour maps: viridis (matplotlib, CC0), uniform in lightness and suitable for colour-blind eyes, and a circular one for angles.

const VIRIDIS = [
  [68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37],
];
const CIRCLE = [[226, 217, 226], [110, 143, 190], [94, 43, 127], [47, 20, 54], [117, 36, 68], [195, 112, 94], [226, 217, 226]];
const SHADES = 256;

function table(stops) {
  const shades = new Uint8ClampedArray(4 * SHADES);
  for (let shade = 0; shade < SHADES; shade += 1) {
    const at = (shade / (SHADES - 1)) * (stops.length - 1);
    const index = Math.min(stops.length - 2, Math.floor(at));
    for (let part = 0; part < 3; part += 1) {
      shades[4 * shade + part] = stops[index][part] + (at - index) * (stops[index + 1][part] - stops[index][part]);
    }
    shades[4 * shade + 3] = 255;
  }
  return new Uint32Array(shades.buffer);
}

const TABLES = { false: table(VIRIDIS), true: table(CIRCLE) };

const indexOf = (value, low, scale) => Math.min(SHADES - 1, Math.max(0, Math.round((value - low) * scale)));

/// The CSS colour of `value` in the range from `low` to `high`.
export function shade(value, { low, high, isAngle = false }) {
  const one = TABLES[isAngle][indexOf(value, low, (SHADES - 1) / Math.max(1e-9, high - low))];
  return `rgb(${one & 255} ${(one >> 8) & 255} ${(one >> 16) & 255})`;
}

/// Sets each pixel of `image` to the colour of `value(x, y)` in the range from `low` to `high`; `null` stays transparent.
export function paint(image, { low, high, isAngle = false }, value) {
  const pixels = new Uint32Array(image.data.buffer);
  const shades = TABLES[isAngle];
  const scale = (SHADES - 1) / Math.max(1e-9, high - low);
  let pixel = 0;
  for (let y = 0; y < image.height; y += 1) {
    for (let x = 0; x < image.width; x += 1, pixel += 1) {
      const one = value(x, y);
      if (one !== null) pixels[pixel] = shades[indexOf(one, low, scale)];
    }
  }
}

/// The stops as CSS colours, for a colour bar.
export const stops = (isAngle) => (isAngle ? CIRCLE : VIRIDIS).map(([red, green, blue]) => `rgb(${red} ${green} ${blue})`);
