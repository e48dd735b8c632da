// Bodies of requests, written so that what is wrong with them can be told at the field it came from, and what is told.

import { h } from "./dom.js";

/// JSON of `object` with one value a line, objects written out down to `depth`; and the name of the value on each line
/// (from 1), `null` where there is none.
export function oneValueALine(object, depth = 1) {
  const lines = [];
  const names = [];
  const put = (text, name = null) => (lines.push(text), names.push(name));
  const write = (value, depth, before, after, name) => {
    if (depth === 0) return put(`${before}${JSON.stringify(value)}${after}`, name);
    const entries = Object.entries(value);
    put(`${before}{`);
    entries.forEach(([key, one], index) => write(one, depth - 1, `${JSON.stringify(key)}: `, index < entries.length - 1 ? "," : "", key));
    put(`}${after}`);
  };
  write(object, depth, "", "", null);
  return { text: lines.join("\n"), names };
}

/// What a problem says, as `{ name, text }`: `name` of the value that it is about, if it points at one.
export function told(problem, names) {
  return reasons(problem).map(({ text, place }) => ({ name: (place?.file === "request" && names[place.line - 1]) || null, text }));
}

/// What a problem says, as `{ text, place }`: `place` in what was sent, or `null`.
export function reasons(problem) {
  const diagnostics = problem.diagnostics?.filter((one) => one.severity === "error") ?? [];
  if (diagnostics.length === 0) return [{ text: [problem.message, ...(problem.help ?? [])].join("; "), place: null }];
  return diagnostics.map((one) => ({ text: [one.message, ...one.help].join("; "), place: one.place ?? null }));
}

/// A problem as elements below `title`.
export const refusal = (title, problem) => [
  h("p", { class: "problem" }, title),
  h("ul", { class: "problem" }, reasons(problem).map(({ text }) => h("li", {}, text))),
];

/// Why some requests are refused where the program runs with `--control live`.
export const LIVE_ONLY = "Clients may change live parameters only: the program runs with --control live.";
