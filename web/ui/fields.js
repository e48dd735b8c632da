// A labelled input for one value, generated from its JSON Schema.

import { h } from "./dom.js";
import { short, unitOf } from "./format.js";
import { choices, inputOf, isInteger, ofValue, plain, range, violation, words } from "./schema.js";

const LONG = 60;
/// Whether a value may be incomplete while it is typed.
const isText = (sort) => sort === "scalar" || sort === "structure";

const given = (value) => (value === "" ? undefined : value ?? undefined);

/// Creates the input for the value `name` of `rawSchema`, which refers to `root`; `value` is the current value, `undefined` if not set.
/// Empty means not set.
/// - `element`, `input`
/// - `read()`: the value, `undefined` if not set; throws an `Error` that names the rule it breaks
/// - `isChanged()`: whether `read()` differs from the current value
/// - `write(value)`: sets the input as if the user had typed `value`
/// - `take(value)`: sets a new current value; shown unless the user has typed one
/// - `say(problem)`: shows an error, or removes it
export function field(name, rawSchema, root, { prefix = "field", isRequired = false, value } = {}) {
  const schema = ofValue(rawSchema, root);
  const sort = inputOf(schema, root);
  const id = `${prefix}-${name}`;
  const { input, read: readInput, write, extra } = CONTROLS[sort]({ id, schema, root, isRequired, value });
  const usual = sort === "boolean" ? Boolean(schema.default) : undefined;
  let inForce = given(value);
  write(inForce);

  const unit = schema["x-unit"] ?? unitOf(name);
  const problem = h("p", { class: "problem", id: `${id}-problem`, role: "alert" });
  const limits = [isRequired && sort !== "choice" && "required", sort === "boolean" && `default ${usual ? "on" : "off"}`, range(schema, root)];
  input.setAttribute("aria-describedby", `${id}-limits ${id}-problem ${id}-doc`);
  if (isRequired) input.required = true;
  const element = h("div", { class: "field", "data-parameter": name },
    h("div", { class: "head" },
      sort === "boolean" && input,
      h("label", { for: id }, name),
      unit && unit !== name && h("span", { class: "unit" }, unit),
      h("span", { class: "limits", id: `${id}-limits` }, limits.filter(Boolean).join(", "))),
    sort !== "boolean" && input, problem,
    h("div", { class: "doc", id: `${id}-doc` }, h("p", {}, plain(schema.description ?? "")), extra));

  const say = (text) => {
    problem.textContent = text;
    if (text) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  };
  const read = () => {
    const now = readInput();
    if (now === undefined && isRequired) throw new Error(`\`${name}\` is required`);
    const wrong = now === undefined ? null : violation(name, now, schema, root);
    if (wrong) throw new Error(wrong);
    return now;
  };
  const isChanged = () => {
    try {
      return JSON.stringify(readInput()) !== JSON.stringify(inForce ?? usual);
    } catch {
      return true;
    }
  };
  // Checked while the user types: an error shown on leaving the input would move the button under the pointer.
  input.addEventListener("input", () => {
    if (isText(sort) && !input.hasAttribute("aria-invalid")) return;
    try {
      read();
      say("");
    } catch (error) {
      say(error.message);
    }
  });
  return {
    name, element, input, read, isChanged, say,
    write: (now) => write(given(now)),
    take(now) {
      const isTyped = isChanged();
      if (!isTyped && document.activeElement === input) return;
      inForce = given(now);
      if (!isTyped) write(inForce);
    },
  };
}

/// Placeholder of an input without a value.
const unset = (schema, isRequired) => (schema.default ?? null) !== null && schema.default !== "" ? short(schema.default, LONG) : isRequired ? "" : "not set";

const CONTROLS = {
  choice({ id, schema, isRequired }) {
    const options = choices(schema);
    const usual = schema.default ?? null;
    const empty = isRequired ? [] : [h("option", { value: "" }, usual === null ? "not set" : `default: ${usual}`)];
    const input = h("select", { id }, empty, options.map(({ value }) => h("option", { value: JSON.stringify(value) }, String(value))));
    const extra = h("p", {});
    const tell = () => (extra.textContent = plain(options.find(({ value }) => JSON.stringify(value) === (input.value || JSON.stringify(usual)))?.text ?? ""));
    input.addEventListener("change", tell);
    const write = (now) => {
      input.value = now === undefined ? "" : JSON.stringify(now);
      tell();
    };
    return { input, extra, write, read: () => (input.value === "" ? undefined : JSON.parse(input.value)) };
  },

  boolean({ id, schema }) {
    const input = h("input", { id, type: "checkbox" });
    return { input, write: (now) => (input.checked = now ?? Boolean(schema.default)), read: () => input.checked };
  },

  number({ id, schema, isRequired }) {
    const { minimum: min, maximum: max } = schema;
    const input = h("input", { id, type: "number", min, max, step: isInteger(schema) ? 1 : "any", autocomplete: "off", placeholder: unset(schema, isRequired) });
    // Scrolling over the input must not change the value.
    input.addEventListener("wheel", () => input.blur(), { passive: true });
    const read = () => {
      if (input.validity.badInput) throw new Error("this is not a number");
      return input.value === "" ? undefined : Number(input.value);
    };
    return { input, write: (now) => (input.value = now ?? ""), read };
  },

  string({ id, schema, isRequired, value }) {
    const isLong = typeof value === "string" && (value.length > LONG || value.includes("\n"));
    const attributes = { id, spellcheck: "false", autocomplete: "off", class: "mono", placeholder: unset(schema, isRequired) };
    const input = isLong ? h("textarea", { ...attributes, rows: 2 }) : h("input", { ...attributes, type: "text" });
    return { input, write: (now) => (input.value = now ?? ""), read: () => (input.value === "" ? undefined : input.value) };
  },

  scalar({ id, schema, root, isRequired }) {
    const input = h("input", { id, type: "text", spellcheck: "false", autocomplete: "off", class: "mono", placeholder: unset(schema, isRequired) });
    return { input, ...json(input, schema, root) };
  },

  structure({ id, schema, root, isRequired }) {
    const known = words(schema, root);
    const hint = known.length > 0 ? `${known.join(", ")}, or JSON` : unset(schema, isRequired);
    const input = h("textarea", { id, rows: 1, spellcheck: "false", class: "mono", placeholder: hint });
    return { input, ...json(input, schema, root) };
  },
};

/// Parses JSON in `input`; words of the schema need no quotes.
function json(input, schema, root) {
  const known = words(schema, root);
  const write = (now) => {
    const text = now === undefined ? "" : known.includes(now) ? now : JSON.stringify(now);
    input.value = text.length > LONG ? JSON.stringify(now, null, 1) : text;
    if (input.rows) input.rows = Math.min(8, input.value.split("\n").length);
  };
  const read = () => {
    const text = input.value.trim();
    if (text === "") return undefined;
    if (known.includes(text)) return text;
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new Error(`this is not JSON: ${error.message}`);
    }
  };
  return { write, read };
}
