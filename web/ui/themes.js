// Light, dark or automatic theme; and colours for canvases, which have no style sheets.

import { h } from "./dom.js";

const THEMES = ["auto", "light", "dark"];
const listeners = new Set();
const root = document.documentElement;
const probe = document.createElement("span");
/// Colours of the current theme: reading a style takes time on a large page.
const known = new Map();

/// Calls `listener` when colours change.
export const onTheme = (listener) => listeners.add(listener);
export const forgetTheme = (listener) => listeners.delete(listener);

/// Fills `select` with the themes.
export function offerThemes(select) {
  select.append(...THEMES.map((theme) => h("option", { value: theme }, theme)));
  select.value = root.dataset.theme;
  const tell = () => {
    known.clear();
    listeners.forEach((listener) => listener());
  };
  select.addEventListener("change", () => {
    root.dataset.theme = select.value;
    localStorage.setItem("fxgraph-theme", select.value);
    tell();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
}

/// The colour called `--name` in the style sheet, as canvases take it.
export function colour(name) {
  if (!known.has(name)) known.set(name, read(name));
  return known.get(name);
}

function read(name) {
  if (!probe.isConnected) {
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/// The colour of series `index`: safe for colour-blind eyes (Okabe and Ito).
export const series = (index) => colour(`series-${index % 7}`);
