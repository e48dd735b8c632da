// Recording an output of a block: what to record and when, and what was recorded.

import * as api from "./api.js";
import { h, morph } from "./dom.js";
import { field, resolved } from "./fields.js";
import { Recorders } from "./recorders.js";
import { oneValueALine, told } from "./request.js";
import { labelled } from "./variant.js";

/// Unless set, a recording goes on to the end of the stream.
const USUAL = { after_seconds: 1 };

/// The form for `page`, a block as REST tells it, with the `recorders` of its outputs: `{ element, show(page) }`.
export async function record(page) {
  const { parameters: root } = await api.ask("/kinds/recorder");
  const schema = resolved(root, root);
  const fields = Object.entries(schema.properties).map(([name, one]) => field(name, one, root, USUAL[name]));
  fields.find(({ name }) => name === "path").input.placeholder = "named after the output";
  const port = h("select", { id: "record-output" }, page.outputs.map(({ name }) => h("option", { value: name }, name)));
  const send = h("button", { type: "submit", class: "primary" }, "Record");
  const said = h("p", { class: "said", role: "status" });
  const list = new Recorders();

  async function submit(event) {
    event.preventDefault();
    fields.forEach((one) => one.say(""));
    morph(said, []);
    const values = {};
    for (const one of fields.filter((one) => one.input.value.trim() !== "")) {
      try {
        values[one.name] = one.read();
      } catch (error) {
        return one.say(error.message);
      }
    }
    const { text, names } = oneValueALine(values);
    send.disabled = true;
    try {
      list.add(await api.post(`${api.output(page.name, port.value)}/recordings`, text));
    } catch (error) {
      for (const problem of told(error, names)) {
        const wrong = fields.find((one) => one.name === problem.name);
        if (wrong) wrong.say(problem.text);
        else morph(said, [h("span", { class: "problem" }, problem.text)]);
      }
    } finally {
      send.disabled = false;
    }
  }

  const show = (now) => list.show(now.recorders);
  show(page);
  return {
    element: h("div", {}, list.element,
      h("form", { novalidate: true, "aria-label": "record", onsubmit: submit },
        h("h3", {}, "Record"),
        page.outputs.length > 1 && labelled("output", port),
        fields.map((one) => one.element), h("div", { class: "actions" }, send, said))),
    show,
  };
}
