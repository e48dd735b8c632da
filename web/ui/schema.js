// Evaluation of the JSON Schema of parameters.

/// Resolves the `$ref`s of `root`; keys next to a `$ref` take precedence.
export function resolved(schema, root) {
  if (!schema?.$ref) return schema ?? {};
  const target = schema.$ref.split("/").slice(1).reduce((node, key) => node?.[key], root);
  return { ...resolved(target, root), ...schema, $ref: undefined };
}

/// Schema of a value that is set: `resolved`, without `null` as an alternative.
export function ofValue(schema, root) {
  const own = resolved(schema, root);
  const others = (own.anyOf ?? []).map((one) => resolved(one, root)).filter((one) => one.type !== "null");
  return others.length === 1 ? { ...others[0], ...own, anyOf: undefined } : own;
}

const types = (schema) => [schema.type].flat().filter((type) => type && type !== "null");
const isNumeric = (schema) => types(schema).length > 0 && types(schema).every((type) => type === "integer" || type === "number");
const alternatives = (schema, root) => (schema.anyOf ?? schema.oneOf ?? []).map((one) => resolved(one, root));
const SCALARS = ["integer", "number", "string", "boolean", "null"];
const constants = (schema) => schema.enum ?? (schema.const === undefined ? [] : [schema.const]);

function isScalar(schema, root) {
  const options = alternatives(schema, root);
  if (options.length > 0) return options.every((one) => isScalar(one, root));
  return constants(schema).length > 0 || (types(schema).length > 0 && types(schema).every((type) => SCALARS.includes(type)));
}

/// Values that a schema lists, each `{ value, text }`; `null` if other values are possible.
export function choices(schema) {
  const options = schema.enum ? [schema] : schema.oneOf;
  if (!options?.every((option) => constants(option).length > 0)) return null;
  return options.flatMap((option) => constants(option).map((value) => ({ value, text: (schema.enum ? "" : option.description) ?? "" })));
}

/// Words allowed for a value, in addition to values of other types.
export const words = (schema, root) =>
  alternatives(schema, root).flatMap((one) => [...constants(one).filter((value) => typeof value === "string"), ...words(one, root)]);

/// Kind of input for a value: `choice`, `boolean`, `number`, `string`, `scalar` (several types) or `structure`.
export function inputOf(schema, root) {
  if (choices(schema)) return "choice";
  if (types(schema).includes("boolean")) return "boolean";
  if (isNumeric(schema) && !schema.anyOf) return "number";
  if (types(schema).length === 1 && types(schema)[0] === "string") return "string";
  return isScalar(schema, root) ? "scalar" : "structure";
}

export const isInteger = (schema) => isNumeric(schema) && !types(schema).includes("number");

/// The range of a number, or of each number of a list, in words.
export function range(schema, root) {
  const { minimum, maximum } = schema;
  if (minimum !== undefined && maximum !== undefined) return `${minimum} to ${maximum}`;
  if (minimum !== undefined) return `at least ${minimum}`;
  if (maximum !== undefined) return `at most ${maximum}`;
  const items = schema.items ? range(ofValue(schema.items, root), root) : "";
  return items && `each ${items}`;
}

/// Error message for `value` of `name`; `null` if valid. The server checks more.
export function violation(name, value, rawSchema, root) {
  const schema = ofValue(rawSchema, root);
  const { minimum, maximum } = schema;
  const must = (rule) => `\`${name}\` must be ${rule}, got ${JSON.stringify(value).slice(0, 40)}`;
  if (value === null) return null;
  if (isNumeric(schema) && typeof value !== "number") return must("a number");
  if (isInteger(schema) && !Number.isInteger(value)) return must("an integer");
  if (typeof value === "number") {
    const isLow = value < minimum;
    const isHigh = value > maximum;
    if ((isLow || isHigh) && minimum !== undefined && maximum !== undefined) return must(`between ${minimum} and ${maximum}`);
    if (isLow) return must(`at least ${minimum}`);
    if (isHigh) return must(`at most ${maximum}`);
    // JavaScript would round larger integers.
    if (isInteger(schema) && !Number.isSafeInteger(value)) return must("at most 2^53 - 1 on this page");
  }
  const parts = Array.isArray(value) && schema.items
    ? value.map((one, index) => [`${name}[${index}]`, one, schema.items])
    : Object.entries(schema.properties ?? {}).filter(([key]) => value?.[key] !== undefined).map(([key, one]) => [`${name}.${key}`, value[key], one]);
  return parts.map(([path, one, part]) => violation(path, one, part, root)).find(Boolean) ?? null;
}

/// Text of a doc comment without markup.
export const plain = (text) => text.replace(/\\([[\]])/g, "$1").replace(/`/g, "").replace(/\s*\n\s*/g, " ").trim();
