// Another form of a block: kind, implementation, parameters; what a swap and a shadow ask for.

import * as api from "./api.js";
import { h } from "./dom.js";

const option = (value) => h("option", { value }, value);

/// A line of a form.
export const labelled = (name, input, ...more) =>
  h("div", { class: "field" }, h("label", { for: input.id }, h("span", { class: "name" }, name)), input, ...more);

/// Fields for another form of `page`, a block as REST tells it: `{ elements, change(page) }`, where `change` gives the
/// keys that differ from `page`, and throws an `Error` if the parameters cannot be read. `extra` stands beside kind and
/// implementation. `prefix` goes before the fields' ids.
export async function variant(page, prefix, ...extra) {
  const kinds = await api.ask("/kinds");
  const kind = h("select", { id: `${prefix}-kind` }, kinds.map((one) => option(one.kind)));
  kind.value = page.kind;
  const implementation = h("select", { id: `${prefix}-implementation` });
  const about = h("p", { class: "doc" });
  const text = JSON.stringify(page.parameters, null, 2);
  const parameters = h("textarea", { id: `${prefix}-parameters`, class: "mono", spellcheck: "false", rows: Math.min(14, text.split("\n").length + 1) });
  parameters.value = text;
  const forms = () => kinds.find((one) => one.kind === kind.value)?.implementations ?? [];
  const showAbout = () => {
    const form = forms().find((one) => one.name === implementation.value);
    about.textContent = form ? `${form.summary} (${form.device})` : "";
  };
  const showForms = () => {
    implementation.replaceChildren(...forms().map((form) => option(form.name)));
    implementation.value = forms().some((form) => form.name === page.implementation) ? page.implementation : forms()[0]?.name ?? "";
    showAbout();
  };
  kind.addEventListener("change", () => {
    showForms();
    parameters.value = kind.value === page.kind ? text : "{}";
  });
  implementation.addEventListener("change", showAbout);
  showForms();
  return {
    elements: [
      h("div", { class: "columns" }, labelled("kind", kind), labelled("implementation", implementation, about), extra),
      labelled("parameters, JSON", parameters),
    ],
    change: (now) => difference(now, kind.value, implementation.value, read(parameters.value)),
  };
}

function read(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`the parameters are no JSON: ${error.message}`);
  }
}

/// Only what differs from what runs.
function difference(page, kind, implementation, wanted) {
  const isOther = kind !== page.kind;
  const body = {};
  if (isOther) body.kind = kind;
  if (isOther || implementation !== page.implementation) body.implementation = implementation;
  const names = new Set([...Object.keys(wanted), ...(isOther ? [] : Object.keys(page.parameters))]);
  const changed = [...names].filter((name) => isOther || JSON.stringify(wanted[name]) !== JSON.stringify(page.parameters[name]));
  // A parameter that was taken out goes back to its default.
  if (changed.length || isOther) body.parameters = Object.fromEntries(changed.map((name) => [name, wanted[name] ?? null]));
  return body;
}
