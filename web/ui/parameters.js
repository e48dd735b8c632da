// Form for a block's live parameters; all changes are sent in one request, which is applied to all blocks or none.

import * as api from "./api.js";
import { h } from "./dom.js";
import { form as formOf } from "./form.js";
import * as format from "./format.js";
import { oneValueALine, told } from "./request.js";
import { plain, resolved } from "./schema.js";

/// Creates the form for `page`, a block from the REST API; `scope` tells which replicas are changed.
/// `{ element, show(page) }`: values changed by other clients are shown unless the user has typed one.
export function parameters(page, scope) {
  const schema = page.parameters_schema;
  const properties = Object.entries(schema?.properties ?? {});
  const live = formOf(schema ?? {}, page.parameters, { takes: (one) => one["x-live"] });
  const at = h("input", { id: "at", type: "text", inputmode: "numeric", autocomplete: "off", placeholder: "earliest possible" });
  const send = h("button", { type: "submit", class: "primary" }, "Apply");
  const said = h("p", { class: "said", role: "status" });

  const say = (text, isProblem) => {
    said.textContent = text;
    said.className = isProblem ? "said problem" : "said";
  };

  async function submit(event) {
    event.preventDefault();
    const values = live.check();
    if (values === null) return say("nothing was changed", true);
    if (Object.keys(values).length === 0) return say("no changes", false);
    const { text, paths } = oneValueALine(Object.fromEntries(scope.names().map((name) => [name, values])), 2);
    const when = at.value.trim() === "" ? "" : `?at=${encodeURIComponent(at.value.trim())}`;
    const focused = document.activeElement;
    send.disabled = true;
    say("…", false);
    try {
      const answer = await api.patch(`/blocks${when}`, text);
      const isAhead = when !== "" && answer.seconds_ahead > 0;
      if (!isAhead) live.take({ ...page.parameters, ...values });
      const ahead = isAhead ? `, in ${format.seconds(answer.seconds_ahead)}` : "";
      const late = answer.is_late ? "; the requested timestamp had passed" : "";
      const where = scope.isTogether() ? ` in ${scope.names().length} replicas` : "";
      say(`effective from timestamp ${format.count(answer.effective_timestamp)}${where}${ahead}${late}`, false);
    } catch (error) {
      const rest = live.say(told(error, paths).map(({ path, ...one }) => ({ ...one, name: path.at(-1) })));
      say(rest.map((one) => one.text).join("; ") || "nothing was changed", true);
    } finally {
      send.disabled = false;
      // Disabling the button has removed the focus.
      if (document.activeElement === document.body) focused.focus();
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
  const form = live.fields.length > 0 && h("form", { class: "live", onsubmit: submit, novalidate: true, "aria-label": "live parameters" },
    scope.element, live.elements,
    h("div", { class: "field" },
      h("div", { class: "head" }, h("label", { for: "at" }, "at timestamp"), h("span", { class: "unit" }, "ADC samples")), at,
      h("p", { class: "doc" }, "effective timestamp: the new values apply from this sample on, in all blocks")),
    h("div", { class: "actions" }, send, said));
  return {
    element: h("div", {},
      form || h("p", { class: "note" }, "This block has no live parameters."),
      fixed.length > 0 && h("h3", {}, "Changed by a swap only"), values),
    show(now) {
      page = now;
      live.take(now.parameters);
      showFixed(now.parameters);
    },
  };
}
