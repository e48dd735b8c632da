// Bodies of requests with one value per line, so that each error can be shown at its input, and formatting of errors.

import { h } from "./dom.js";

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/// JSON of `object` with one value per line, with nested objects down to `depth`; and the path of the value on each line
/// (from 1), `[]` for the whole.
export function oneValueALine(object, depth = 1) {
  const lines = [];
  const paths = [];
  const put = (text, path) => (lines.push(text), paths.push(path));
  const write = (value, depth, before, after, path) => {
    if (depth === 0 || !isObject(value)) return put(`${before}${JSON.stringify(value)}${after}`, path);
    const indent = " ".repeat(2 * path.length);
    const entries = Object.entries(value);
    if (entries.length === 0) return put(`${before}{}${after}`, path);
    put(`${before}{`, path);
    entries.forEach(([key, one], index) =>
      write(one, depth - 1, `${indent}  ${JSON.stringify(key)}: `, index < entries.length - 1 ? "," : "", [...path, key]));
    put(`${indent}}${after}`, path);
  };
  write(object, depth, "", "", []);
  return { text: lines.join("\n"), paths };
}

/// Diagnostics of a problem as `{ path, text, message }`: `path` is that of the value in the request, `[]` if none.
/// `paths` come from `oneValueALine`.
export const told = (problem, paths) =>
  reasons(problem).map(({ text, message, place }) => ({ path: (isOfRequest(place) && paths[place.line - 1]) || [], text, message }));

/// Whether `place` is in the sent text.
const isOfRequest = (place) => place !== null && (["request", "flowgraph"].includes(place.file) || place.file.startsWith("change of "));

/// Diagnostics of a problem as `{ text, message, place }`: `text` includes the help, `place` is in a file, or `null`.
export function reasons(problem) {
  const diagnostics = problem.diagnostics?.filter((one) => one.severity === "error") ?? [];
  const all = diagnostics.length > 0 ? diagnostics : [problem];
  return all.map(({ message, help, place }) => ({ text: [message, ...(help ?? [])].join("; "), message, place: place ?? null }));
}

/// The texts of `problems` as elements below `title`.
export const listed = (title, problems) => [
  h("p", { class: "problem" }, title),
  problems.length > 0 && h("ul", { class: "problem" }, problems.map(({ text }) => h("li", {}, text))),
];

/// A problem as elements below `title`.
export const rejection = (title, problem) => listed(title, reasons(problem));

/// A problem with the content of the text area `text`: each diagnostic links to its line.
export const rejectionOf = (title, problem, text) => [
  h("p", { class: "problem" }, title),
  h("ul", { class: "problem" }, reasons(problem).map(({ text: reason, place }) => h("li", {},
    isOfRequest(place) ? [h("button", { type: "button", class: "link", onclick: () => select(text, place) }, `line ${place.line}`), " "] : "", reason))),
];

function select(text, { line, column, end_line: endLine, end_column: endColumn }) {
  const lines = text.value.split("\n");
  const before = (number) => lines.slice(0, number - 1).reduce((sum, one) => sum + one.length + 1, 0);
  text.focus();
  text.setSelectionRange(before(line) + column - 1, before(endLine) + endColumn - 1);
  text.scrollTop = (line - text.rows / 2) * (text.scrollHeight / lines.length);
}

/// Note for requests that the server rejects when it runs with `--control live`.
export const LIVE_ONLY = "Clients may change live parameters only: the program runs with --control live.";
