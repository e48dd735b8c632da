// The inputs of a form, generated from the JSON Schema of a kind's parameters.

import { field } from "./fields.js";
import { resolved } from "./schema.js";

/// Creates one field for each property of `root`, the schema of an object, for which `takes(property)`; `values` are the current values.
/// - `fields`, `elements`
/// - `read()`: `{ values, problems }`: values that differ from the current ones (`null` restores the default), and errors
///   of the others, each `{ name, text }`
/// - `check()`: the values, or `null` after showing errors
/// - `say(problems)`: shows each, `{ name, text, message }`, at its field; returns the others
/// - `suggest(values)`: writes valid values as if the user had typed them
/// - `take(values)`: sets new current values
export function form(root, values, { prefix, takes = () => true, optional = [] } = {}) {
  const schema = resolved(root, root);
  const required = (schema.required ?? []).filter((name) => !optional.includes(name));
  const fields = Object.entries(schema.properties ?? {}).filter(([, one]) => takes(one)).map(([name, one]) =>
    field(name, one, root, { prefix, isRequired: required.includes(name), value: values[name] }));

  function read() {
    const read = { values: {}, problems: [] };
    for (const one of fields) {
      const isChanged = one.isChanged();
      if (!isChanged && !one.input.required) continue;
      try {
        const value = one.read();
        if (isChanged) read.values[one.name] = value ?? null;
      } catch (error) {
        read.problems.push({ name: one.name, text: error.message });
      }
    }
    return read;
  }

  const say = (problems) => place(fields, problems);

  return {
    fields, read, say,
    elements: fields.map((one) => one.element),
    check() {
      const { values, problems } = read();
      say(problems);
      return problems.length > 0 ? null : values;
    },
    suggest(others) {
      for (const one of fields.filter(({ name }) => others[name] !== undefined)) {
        one.write(others[one.name]);
        try {
          one.read();
        } catch {
          one.write(undefined);
        }
      }
    },
    take: (now) => fields.forEach((one) => one.take(now[one.name])),
  };
}

/// Shows each of `problems`, `{ name, text, message }`, at its field, clears the other fields, and moves the focus to
/// the first; returns the problems without a field. If `name` matches no field, a name in the message is used.
export function place(fields, problems) {
  const named = ({ name, message }) => {
    const quoted = [...(message ?? "").matchAll(/`([^`]*)`/g)].map(([, word]) => word);
    return [name, ...quoted].map((word) => fields.find((one) => one.name === word)).find(Boolean);
  };
  const texts = new Map(fields.map((one) => [one, new Set()]));
  const rest = problems.filter((one) => {
    const wrong = named(one);
    if (wrong) texts.get(wrong).add(one.text);
    return !wrong;
  });
  texts.forEach((said, one) => one.say([...said].join("; ")));
  fields.find((one) => texts.get(one).size > 0)?.input.focus();
  return rest;
}
