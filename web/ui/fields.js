// Fields of a form from a JSON Schema of parameters.

import { h } from "./dom.js";
import { unitOf } from "./format.js";

/// The schema behind `$ref`s of `root`; what stands beside a `$ref` goes over it.
export function resolved(schema, root) {
  if (!schema?.$ref) return schema ?? {};
  const target = schema.$ref.split("/").slice(1).reduce((node, key) => node?.[key], root);
  return { ...resolved(target, root), ...schema, $ref: undefined };
}

const types = (schema) => [schema.type].flat().filter(Boolean);
const isNumber = (schema) => types(schema).some((type) => type === "integer" || type === "number");

/// The values that a schema lists, each `{ value, text }`; `null` if it lists none.
function choices(schema) {
  if (schema.enum) return schema.enum.map((value) => ({ value, text: "" }));
  const options = schema.oneOf;
  if (!options?.every((option) => option.const !== undefined || option.enum)) return null;
  return options.flatMap((option) => (option.enum ?? [option.const]).map((value) => ({ value, text: option.description ?? "" })));
}

/// A field for the parameter `name` of `schema`, with the value in force:
/// `{ name, element, input, read() -> value (throws an Error), isChanged(), reset(value), say(problem) }`.
export function field(name, rawSchema, root, value) {
  const schema = resolved(rawSchema, root);
  const id = `field-${name}`;
  const control = kind(schema)(id, schema, value);
  const problem = h("p", { class: "problem", id: `${id}-problem`, role: "alert" });
  const limits = [
    schema.minimum !== undefined && `from ${schema.minimum}`,
    schema.maximum !== undefined && `to ${schema.maximum}`,
    schema.default !== undefined && `default ${JSON.stringify(schema.default)}`,
  ].filter(Boolean).join(", ");
  control.input.setAttribute("aria-describedby", `${id}-doc ${id}-problem`);
  const element = h("div", { class: "field", "data-parameter": name },
    h("label", { for: id }, h("span", { class: "name" }, name), " ", h("span", { class: "unit" }, unitOf(name)),
      h("span", { class: "limits" }, limits)),
    control.input, problem,
    h("p", { class: "doc", id: `${id}-doc` }, plain(schema.description ?? "")));
  const shown = () => {
    try {
      return JSON.stringify(control.read());
    } catch {
      return undefined;
    }
  };
  let before = shown();
  return {
    name, element, input: control.input,
    read: () => control.read(),
    isChanged: () => shown() !== before,
    reset(now) {
      control.write(now);
      before = shown();
    },
    say(words) {
      problem.textContent = words;
      control.input.toggleAttribute("aria-invalid", Boolean(words));
    },
  };
}

/// Text of a doc comment without its marks.
export const plain = (text) => text.replace(/\\([[\]])/g, "$1").replace(/`/g, "").replace(/\s*\n\s*/g, " ").trim();

function kind(schema) {
  if (choices(schema)) return chosen;
  if (types(schema).includes("boolean")) return checked;
  if (isNumber(schema) && !schema.anyOf) return numeric;
  if (types(schema).includes("string") && types(schema).length === 1) return textual;
  return structured;
}

function chosen(id, schema, value) {
  const options = choices(schema);
  const input = h("select", { id }, options.map((option) => h("option", { value: JSON.stringify(option.value), title: plain(option.text) }, String(option.value))));
  const write = (now) => (input.value = JSON.stringify(now ?? schema.default ?? options[0].value));
  write(value);
  return { input, write, read: () => JSON.parse(input.value) };
}

function checked(id, schema, value) {
  const input = h("input", { id, type: "checkbox" });
  const write = (now) => (input.checked = Boolean(now ?? schema.default));
  write(value);
  return { input, write, read: () => input.checked };
}

function numeric(id, schema, value) {
  const isWhole = types(schema).includes("integer");
  const input = h("input", { id, type: "text", inputmode: isWhole ? "numeric" : "decimal", autocomplete: "off" });
  const write = (now) => (input.value = now ?? schema.default ?? "");
  write(value);
  const read = () => {
    const text = input.value.trim();
    if (text === "" && types(schema).includes("null")) return null;
    const number = Number(text);
    if (text === "" || !Number.isFinite(number)) throw new Error(`\`${text}\` is no number`);
    return number;
  };
  return { input, write, read };
}

function textual(id, schema, value) {
  const input = h("textarea", { id, rows: 1, spellcheck: "false", class: "mono" });
  const write = (now) => (input.value = now ?? schema.default ?? "");
  write(value);
  return { input, write, read: () => input.value };
}

/// Whatever else there is, as JSON; a word that the schema knows may stand without quotes.
function structured(id, schema, value) {
  const words = (schema.oneOf ?? []).map((option) => option.const).filter(Boolean);
  const input = h("textarea", { id, spellcheck: "false", class: "mono", placeholder: words.length > 0 && `${words.join(", ")}, or JSON` });
  const write = (now) => {
    const shown = now === undefined ? schema.default : now;
    const short = shown === undefined ? "" : words.includes(shown) ? shown : JSON.stringify(shown);
    input.value = short.length > 60 ? JSON.stringify(shown, null, 1) : short;
    input.rows = Math.min(8, input.value.split("\n").length);
  };
  write(value);
  const read = () => {
    const text = input.value.trim();
    if (words.includes(text)) return text;
    try {
      return JSON.parse(text);
    } catch {
      throw new Error(`this is no JSON: ${text.slice(0, 40)}`);
    }
  };
  return { input, write, read };
}
