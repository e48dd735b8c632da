// Colour maps: viridis (matplotlib, CC0), uniform in lightness and suitable for colour-blind eyes, and a circular one for angles.

const VIRIDIS = [
  [68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37],
];
const CIRCLE = [[226, 217, 226], [110, 143, 190], [94, 43, 127], [47, 20, 54], [117, 36, 68], [195, 112, 94], [226, 217, 226]];

function between(stops, share, place) {
  const at = Math.min(1, Math.max(0, share)) * (stops.length - 1);
  const index = Math.min(stops.length - 2, Math.floor(at));
  return stops[index][place] + (at - index) * (stops[index + 1][place] - stops[index][place]);
}

function set(data, offset, stops, share) {
  for (let place = 0; place < 3; place += 1) data[offset + place] = between(stops, share, place);
  data[offset + 3] = 255;
}

/// Sets the pixel at `offset` to the colour of `share`, from 0 to 1.
export const paint = (data, offset, share) => set(data, offset, VIRIDIS, share);

/// Sets the pixel at `offset` to the colour of an angle from -180 to 180 degrees.
export const paintAngle = (data, offset, degrees) => set(data, offset, CIRCLE, (degrees + 180) / 360);

/// The stops as CSS colours, for a scale.
export const stops = (isAngle) => (isAngle ? CIRCLE : VIRIDIS).map(([red, green, blue]) => `rgb(${red} ${green} ${blue})`);
