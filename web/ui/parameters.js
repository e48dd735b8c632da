// The form of a block's live parameters: what is changed is sent as one change, which all blocks take or none.

import * as api from "./api.js";
import { h } from "./dom.js";
import { field, plain, resolved } from "./fields.js";
import * as format from "./format.js";
import { oneValueALine, told } from "./request.js";

/// The form for `page`, a block as REST tells it; `replicas` are the names of blocks like it, itself included.
/// `{ element, show(page) }`: values that others change are taken over where the user has not typed.
export function parameters(page, replicas) {
  const schema = page.parameters_schema;
  const properties = Object.entries(schema?.properties ?? {});
  const live = properties.filter(([, one]) => one["x-live"]);
  const fields = live.map(([name, one]) => field(name, one, schema, page.parameters[name]));
  const at = h("input", { id: "at", type: "text", inputmode: "numeric", autocomplete: "off", placeholder: "as soon as it can be" });
  const all = h("input", { type: "checkbox", id: "all-replicas" });
  const send = h("button", { type: "submit", class: "primary" }, "Apply");
  const said = h("p", { class: "said", role: "status" });

  const showProblems = (problems) => {
    const general = [];
    for (const { name, text } of problems) {
      const wrong = fields.find((one) => one.name === name);
      if (wrong) wrong.say(text);
      else general.push(text);
    }
    say(general.join("; ") || "nothing was changed", true);
  };
  const say = (text, isProblem) => {
    said.textContent = text;
    said.className = isProblem ? "said problem" : "said";
  };

  async function submit(event) {
    event.preventDefault();
    fields.forEach((one) => one.say(""));
    const values = {};
    const unread = [];
    for (const one of fields.filter((one) => one.isChanged())) {
      try {
        values[one.name] = one.read();
      } catch (error) {
        unread.push({ name: one.name, text: error.message });
      }
    }
    if (unread.length) return showProblems(unread);
    if (Object.keys(values).length === 0) return say("nothing is different from what is in force", false);
    const blocks = all.checked ? replicas : [page.name];
    const { text, names } = oneValueALine(Object.fromEntries(blocks.map((name) => [name, values])), 2);
    const when = at.value.trim() === "" ? "" : `?at=${encodeURIComponent(at.value.trim())}`;
    send.disabled = true;
    say("…", false);
    try {
      const answer = await api.patch(`/blocks${when}`, text);
      fields.filter((one) => one.name in values).forEach((one) => one.reset(values[one.name]));
      const late = answer.is_late ? "; that time had passed, so as soon as it could be" : "";
      say(`in force from timestamp ${format.count(answer.effective_timestamp)}${late}`, false);
    } catch (error) {
      showProblems(told(error, names));
    } finally {
      send.disabled = false;
      // A button that was disabled has lost it.
      if (document.activeElement === document.body) send.focus();
    }
  }

  const fixed = properties.filter(([, one]) => !one["x-live"]);
  const values = h("dl", { class: "values" });
  const showFixed = (parameters) => values.replaceChildren(...fixed.map(([name, one]) => {
    const { description = "", default: usual } = resolved(one, schema);
    const value = parameters[name] === undefined ? usual : parameters[name];
    return h("div", { title: plain(description) }, h("dt", {}, name), h("dd", { title: JSON.stringify(value) }, format.short(value ?? "-", 40)));
  }));
  showFixed(page.parameters);
  const form = fields.length > 0 && h("form", { class: "live", onsubmit: submit, novalidate: true, "aria-label": "live parameters" },
    fields.map((one) => one.element),
    h("div", { class: "field" },
      h("label", { for: "at" }, h("span", { class: "name" }, "at timestamp"), " ", h("span", { class: "unit" }, "ADC samples")), at,
      h("p", { class: "doc" }, "from this sample on the new values hold, in all blocks at once")),
    replicas.length > 1 && h("label", { class: "check" }, all, ` all ${replicas.length} replicas, in one change`),
    h("div", { class: "actions" }, send, said));
  return {
    element: h("div", {},
      form || h("p", { class: "note" }, "This block has no parameters that change while it runs."),
      fixed.length > 0 && h("h3", {}, "Take a swap"), values),
    show(now) {
      fields.filter((one) => !one.isChanged() && document.activeElement !== one.input)
        .forEach((one) => one.reset(now.parameters[one.name]));
      showFixed(now.parameters);
    },
  };
}
