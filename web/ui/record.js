// Form to record an output of a block, and its recordings.

import * as api from "./api.js";
import { h, morph } from "./dom.js";
import { field } from "./fields.js";
import { form } from "./form.js";
import { Recorders } from "./recorders.js";
import { oneValueALine, told } from "./request.js";

/// Without a value, a recording continues until the stream ends.
const USUAL = { after_seconds: 1 };

/// Creates the form for `page`, a block from the REST API, with the `recorders` of its outputs: `{ element, show(page) }`.
export async function record(page) {
  const { parameters: root } = await api.ask("/kinds/recorder");
  const parameters = form(root, {}, { prefix: "record", optional: ["path"] });
  parameters.suggest(USUAL);
  parameters.fields.find(({ name }) => name === "path").input.placeholder = "named after the output";
  const port = field("output", { enum: page.outputs.map(({ name }) => name) }, {}, { prefix: "record", isRequired: true, value: page.outputs[0].name });
  const send = h("button", { type: "submit", class: "primary" }, "Record");
  const said = h("p", { class: "said", role: "status" });
  const list = new Recorders();

  async function submit(event) {
    event.preventDefault();
    morph(said, []);
    const values = parameters.check();
    if (values === null) return;
    const { text, paths } = oneValueALine(values);
    send.disabled = true;
    try {
      list.add(await api.post(`${api.output(page.name, port.read())}/recordings`, text));
    } catch (error) {
      const rest = parameters.say(told(error, paths).map(({ path, ...one }) => ({ ...one, name: path[0] })));
      morph(said, rest.map((one) => h("span", { class: "problem" }, one.text)));
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
        page.outputs.length > 1 && port.element,
        parameters.elements, h("div", { class: "actions" }, send, said))),
    show,
  };
}
