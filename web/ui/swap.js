// Swapping a block for another form of itself: what would be done, then doing it.

import * as api from "./api.js";
import { h, morph } from "./dom.js";
import * as format from "./format.js";

const POLICIES = ["stop", "skip", "restart"];

/// The form for `page`, a block as REST tells it: `{ element }`.
export async function swap(page) {
  const kinds = await api.ask("/kinds");
  const option = (value, text = value) => h("option", { value }, text);
  const kind = h("select", { id: "swap-kind" }, kinds.map((one) => option(one.kind)));
  kind.value = page.kind;
  const implementation = h("select", { id: "swap-implementation" });
  const about = h("p", { class: "doc" });
  const policy = h("select", { id: "swap-on-fault" }, POLICIES.map((word) => option(word)));
  policy.value = page.on_fault;
  const text = JSON.stringify(page.parameters, null, 2);
  const parameters = h("textarea", { id: "swap-parameters", class: "mono", spellcheck: "false", rows: Math.min(14, text.split("\n").length + 1) });
  parameters.value = text;
  const hold = h("input", { type: "checkbox", id: "swap-hold" });
  const outcome = h("div", { class: "outcome", role: "status" });
  const forms = () => kinds.find((one) => one.kind === kind.value).implementations;
  const showForms = () => {
    implementation.replaceChildren(...forms().map((form) => option(form.name)));
    implementation.value = forms().some((form) => form.name === page.implementation) ? page.implementation : forms()[0].name;
    showAbout();
  };
  const showAbout = () => {
    const form = forms().find((one) => one.name === implementation.value);
    about.textContent = form ? `${form.summary} (${form.device})` : "";
  };
  kind.addEventListener("change", () => {
    showForms();
    parameters.value = kind.value === page.kind ? text : "{}";
  });
  implementation.addEventListener("change", showAbout);
  showForms();

  /// Only what differs from what runs.
  function change() {
    const wanted = JSON.parse(parameters.value);
    const isOther = kind.value !== page.kind;
    const body = {};
    if (isOther) body.kind = kind.value;
    if (isOther || implementation.value !== page.implementation) body.implementation = implementation.value;
    if (policy.value !== page.on_fault) body.on_fault = policy.value;
    const names = new Set([...Object.keys(wanted), ...(isOther ? [] : Object.keys(page.parameters))]);
    const changed = [...names].filter((name) => isOther || JSON.stringify(wanted[name]) !== JSON.stringify(page.parameters[name]));
    // A parameter that was taken out goes back to its default.
    if (changed.length || isOther) body.parameters = Object.fromEntries(changed.map((name) => [name, wanted[name] ?? null]));
    return body;
  }

  async function send(isDry) {
    let body;
    try {
      body = change();
    } catch (error) {
      return morph(outcome, [h("p", { class: "problem" }, `the parameters are no JSON: ${error.message}`)]);
    }
    if (Object.keys(body).length === 0) return morph(outcome, [h("p", {}, "Nothing is different from what runs.")]);
    buttons.forEach((button) => (button.disabled = true));
    morph(outcome, [h("p", {}, isDry ? "checking …" : "building it beside the block that runs …")]);
    try {
      const query = new URLSearchParams({ dry_run: isDry, may_hold_up: hold.checked });
      const answer = await api.patch(`${api.block(page.name)}?${query}`, JSON.stringify(body));
      morph(outcome, told(answer));
      if (answer.is_made) page = await api.ask(api.block(page.name));
    } catch (error) {
      const lines = error.diagnostics?.length ? error.diagnostics.map((one) => [one.message, ...one.help].join("; ")) : [error.message, ...(error.help ?? [])];
      morph(outcome, [h("p", { class: "problem" }, isDry ? "It would be refused:" : "It was not made:"), h("ul", { class: "problem" }, lines.map((line) => h("li", {}, line)))]);
    } finally {
      buttons.forEach((button) => (button.disabled = false));
    }
  }

  const tryIt = h("button", { type: "button", id: "try", onclick: () => send(true) }, "Try");
  const doIt = h("button", { type: "submit", id: "swap", class: "primary" }, "Swap");
  const buttons = [tryIt, doIt];
  const labelled = (name, input, ...more) => h("div", { class: "field" }, h("label", { for: input.id }, h("span", { class: "name" }, name)), input, ...more);
  return {
    element: h("form", { novalidate: true, "aria-label": "swap", onsubmit: (event) => (event.preventDefault(), send(false)) },
      h("p", { class: "note" }, "The new block is built and checked while the old one runs, and takes its place between two frames. If its first frames fail, the old one is back."),
      h("div", { class: "columns" }, labelled("kind", kind), labelled("implementation", implementation, about), labelled("on fault", policy)),
      labelled("parameters, JSON", parameters),
      h("label", { class: "check" }, hold, " the flowgraph may wait for it (right for files, wrong for a telescope)"),
      h("div", { class: "actions" }, buttons), outcome),
  };
}

/// What a change comes to.
function told(change) {
  const memory = Object.entries(change.memory_bytes).map(([device, bytes]) => `${format.si(bytes, "B")} on ${device}`).join(", ");
  const cell = (value) => h("td", { class: "mono", title: JSON.stringify(value) }, format.short(value ?? "default", 30));
  return [
    h("p", { class: change.is_made ? "good" : "" }, change.is_made ? "Swapped." : "It can be made."),
    h("table", {},
      h("thead", {}, h("tr", {}, ["", "runs", "will run"].map((head) => h("th", {}, head)))),
      h("tbody", {}, change.differences.map((one) => h("tr", {}, h("th", { scope: "row" }, one.key), cell(one.from), cell(one.to))))),
    h("dl", { class: "values" },
      h("div", {}, h("dt", {}, "way"), h("dd", {}, change.way)),
      h("div", {}, h("dt", {}, "gap"), h("dd", {}, change.gap)),
      memory && h("div", {}, h("dt", {}, "memory for a while"), h("dd", {}, memory))),
    change.restart_because && h("p", { class: "problem" }, change.restart_because),
  ];
}
