// Formatting of numbers, times and rates.

const PREFIXES = ["", "k", "M", "G", "T", "P"];

/// `value` with three significant digits, and the prefix of its power of 1000: `27.4 M`.
export function si(value, unit) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "-";
  let power = 0;
  let left = Math.abs(value);
  while (left >= 999.5 && power < PREFIXES.length - 1) {
    left /= 1000;
    power += 1;
  }
  const digits = left >= 99.95 || left === 0 ? 0 : left >= 9.995 ? 1 : 2;
  return `${value < 0 ? "-" : ""}${left.toFixed(digits)} ${PREFIXES[power]}${unit}`.trim();
}

/// `value` with the digits that an interval of `span` about it needs, so that its edges differ: `1.420406 G`.
export function around(value, span, unit) {
  if (!Number.isFinite(value) || !Number.isFinite(span)) return "-";
  return ticks([value], 10 ** Math.floor(Math.log10(Math.abs(span) || 1) - 1), unit)[0];
}

/// Formats `values`, spaced by `step`, with the prefix of the largest and enough digits to distinguish them.
export function ticks(values, step, unit) {
  const largest = Math.max(...values.map(Math.abs));
  const power = unit === "" && largest < 10_000 ? 0 : Math.min(PREFIXES.length - 1, Math.max(0, Math.floor(Math.log10(largest || 1) / 3)));
  const scale = 1000 ** power;
  const isWhole = (number) => Math.abs(number - Math.round(number)) < 1e-6 * number;
  let digits = 0;
  while (digits < 9 && !isWhole((step / scale) * 10 ** digits)) digits += 1;
  return values.map((value) => `${(value / scale).toFixed(digits)} ${PREFIXES[power]}${unit}`.trim());
}

export const bits = (bytesPerSecond) => si(bytesPerSecond === null ? null : 8 * bytesPerSecond, "b/s");
export const frames = (perSecond) => si(perSecond, "fr/s");
export const count = (number) => number.toLocaleString("en").replaceAll(",", "\u202f");

/// Whether the queue of an edge or input drops frames when it is full.
export const drops = ({ when_full: action = "wait" }) => action.startsWith("drop");

/// Fill of the queue of an edge or input, and what it drops: `4/4, drop_oldest: 12 dropped`.
export function queue(edge) {
  const { queued_frames: queued, queue_frames: length, when_full: action, frames_dropped: dropped = 0 } = edge;
  return `${queued}/${length}${drops(edge) || dropped > 0 ? `, ${action}: ${count(dropped)} dropped` : ""}`;
}

export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return "-";
  return `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

/// Formats a deadline margin as a fraction of signal time, or as a factor for a block that is much too slow.
export const margin = (share) => (share !== null && share < -1 ? `${si(1 - share, "")}× too slow` : percent(share));

export function seconds(time) {
  if (time === null || time === undefined) return "-";
  if (time < 1e-6) return `${(1e9 * time).toFixed(0)} ns`;
  if (time < 1e-3) return `${(1e6 * time).toPrecision(3)} µs`;
  if (time < 1) return `${(1e3 * time).toPrecision(3)} ms`;
  if (time < 60) return `${time.toFixed(1)} s`;
  const whole = Math.floor(time);
  const two = (number) => String(number).padStart(2, "0");
  const clock = `${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  const hours = Math.floor(whole / 3600);
  return hours < 24 ? `${two(hours)}:${clock}` : `${Math.floor(hours / 24)} d ${two(hours % 24)}:${clock}`;
}

/// Formats the lag behind real time; below 1 ms it is shown as 0.
export const lag = (time) => (time !== null && time < 1e-3 ? "0 ms" : seconds(time));

/// Unit from the suffix of a name: `adc_sample_rate_hz` is in Hz.
export function unitOf(name) {
  const units = {
    hz: "Hz", seconds: "s", samples: "samples", bytes: "bytes", degrees: "°", radians: "rad", metres: "m", db: "dB",
    fraction: "fraction", frames: "frames", kelvin: "K",
  };
  return units[name.split("_").at(-1)] ?? "";
}

/// Formats Unix time as time of day in UTC.
export const clock = (unixSeconds) => new Date(1000 * unixSeconds).toISOString().slice(11, 23);

/// Formats a value in at most `length` characters.
export function short(value, length = 60) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text === undefined ? "" : text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
