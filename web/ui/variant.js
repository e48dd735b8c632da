// Form for the changed keys of a block: kind, implementation, device and parameters, for swap and shadow.

import * as api from "./api.js";
import { h } from "./dom.js";
import { editor } from "./editor.js";
import { field } from "./fields.js";
import { form, place } from "./form.js";
import { listed, oneValueALine, told } from "./request.js";

const POLICIES = [
  ["stop", "The flowgraph stops."], ["skip", "The block continues with the next frame."],
  ["restart", "The block is recreated and continues with the next frame."],
];

/// Whether ports described by `ports` (`pol0, [pol1]`, `input0, input1, ...`, `-`) can be `count` ports.
function fits(ports, count) {
  if (ports.endsWith("...")) return count > 0;
  const names = ports === "-" ? [] : ports.split(", ");
  return count <= names.length && count >= names.filter((name) => !name.startsWith("[")).length;
}

const familyOf = (device) => device.split(":")[0];

/// Creates the form for `page`, a block from the REST API with the `devices` of the flowgraph; `line` is its request, and
/// `hasPolicy` tells whether `on_fault` can be changed. `prefix` is the prefix of the ids of its inputs.
/// - `elements`
/// - `body()`: the JSON to send; `{}` without changes, `null` after showing errors
/// - `rejection(title, problem)`: elements for errors without an input; the others are shown at their inputs
/// - `take(page)`: updates the form from the running block
export async function variant(page, prefix, line, hasPolicy = false) {
  const hasPorts = ({ inputs, outputs }) => fits(inputs, page.inputs.length) && fits(outputs, page.outputs.length);
  const kinds = (await api.ask("/kinds")).filter((one) => one.kind === page.kind || hasPorts(one));
  const settings = h("div", { class: "columns" });
  const inputs = h("div", {});
  const all = h("fieldset", { class: "plain" }, settings, inputs);
  const request = editor(`${prefix}-request`, line, (isEdited) => (all.disabled = isEdited));
  let kind, implementation, device, policy, parameters;
  let waiting = Promise.resolve();
  let paths = [];

  const pick = (key, options, value, description) => field(key,
    { description, oneOf: options.map(([value, description]) => ({ const: value, description })) }, {}, { prefix, isRequired: true, value });
  const picked = () => [kind, implementation, device, policy].filter(Boolean);
  const implementations = () => kinds.find((one) => one.kind === kind.read()).implementations;

  function pickKind() {
    kind = pick("kind", kinds.map((one) => [one.kind, one.summary]), page.kind);
    policy = hasPolicy ? pick("on_fault", POLICIES, page.on_fault) : null;
    kind.input.addEventListener("change", () => (waiting = changeKind()));
  }
  function pickImplementation() {
    const known = implementations();
    const same = known.find((one) => kind.read() === page.kind && one.name === page.implementation);
    const usual = same ?? known.find((one) => one.device === familyOf(page.device)) ?? known[0];
    implementation = pick("implementation", known.map((one) => [one.name, `${one.summary} (${one.device})`]), usual.name);
    implementation.input.addEventListener("change", () => (pickDevice(), show()));
  }
  function pickDevice() {
    const family = implementations().find((one) => one.name === implementation.read()).device;
    const usual = family === "cpu" ? "cpu" : `${family}:0`;
    const names = [...new Set([usual, ...page.devices.filter((one) => familyOf(one) === family)])].sort();
    device = pick("device", names.map((one) => [one, ""]), names.includes(page.device) ? page.device : usual,
      family === "cpu" ? "" : "The request below can name other GPUs.");
    settings.replaceChildren(...picked().map((one) => one.element));
  }
  async function changeKind() {
    const name = kind.read();
    const isOther = name !== page.kind;
    const schema = isOther ? (await api.ask(`/kinds/${encodeURIComponent(name)}`)).parameters : page.parameters_schema;
    if (name !== kind.read()) return;
    const focused = document.activeElement;
    pickImplementation();
    pickDevice();
    parameters = form(schema, isOther ? {} : page.parameters, { prefix });
    // Values of parameters common to both kinds.
    if (isOther) parameters.suggest(page.parameters);
    inputs.replaceChildren(...parameters.elements);
    if (focused === kind.input) focused.focus();
    show();
  }

  /// Only values that differ from the running block.
  function difference() {
    const body = {};
    const isOther = kind.isChanged();
    const isElsewhere = device.read() !== page.device;
    if (isOther) body.kind = kind.read();
    if (isOther || isElsewhere || implementation.read() !== page.implementation) body.implementation = implementation.read();
    if (isElsewhere) body.device = device.read();
    if (policy && policy.read() !== page.on_fault) body.on_fault = policy.read();
    const { values } = parameters.read();
    if (Object.keys(values).length > 0) body.parameters = values;
    return body;
  }
  function show() {
    const { text, paths: now } = oneValueALine(difference(), 2);
    paths = now;
    request.show(text);
  }
  ["input", "change"].forEach((event) => all.addEventListener(event, show));

  async function start() {
    pickKind();
    await changeKind();
  }
  await start();

  return {
    elements: [all, request.element],
    async body() {
      await waiting;
      if (request.isEdited()) return request.text();
      if (!parameters.check()) return null;
      show();
      return request.text();
    },
    rejection(title, error) {
      if (request.isEdited()) return request.rejection(title, error);
      const problems = told(error, paths).map(({ path, ...one }) => ({ ...one, name: path.at(-1) }));
      const rest = place([...picked(), ...parameters.fields], problems);
      return listed(rest.length > 0 ? title : `${title} see the marked inputs.`, rest);
    },
    async take(now, isDone = false) {
      const isOther = now.kind !== page.kind || now.implementation !== page.implementation || now.device !== page.device;
      page = now;
      if (isDone) request.reset();
      if (isOther) return start();
      if (!kind.isChanged()) parameters.take(page.parameters);
      policy?.take(page.on_fault);
      show();
    },
  };
}
