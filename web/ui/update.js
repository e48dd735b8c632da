// Another flowgraph in place of the one that runs: what would be done, then doing it.

import * as api from "./api.js";
import { h, morph } from "./dom.js";
import * as format from "./format.js";
import { refusalOf } from "./request.js";

const ROWS = 14;

/// The form, with the text of `flowgraph`, as REST tells it: `{ element }`.
export function update(flowgraph) {
  const text = h("textarea", { id: "update-text", class: "mono yaml", rows: ROWS, spellcheck: "false", wrap: "off" });
  text.value = written(flowgraph);
  const file = h("input", { type: "file", id: "update-file", accept: ".yaml,.yml,.json", "aria-label": "a flowgraph's file" });
  const hold = h("input", { type: "checkbox" });
  const check = h("button", { type: "button", onclick: () => ask(true) }, "Check");
  const apply = h("button", { type: "submit", disabled: true }, "Apply");
  const outcome = h("div", { class: "outcome", role: "status" });
  let needsRestart = false;

  /// Only what was checked as it stands can be applied.
  function changed() {
    apply.disabled = true;
    apply.textContent = "Apply";
    apply.className = "";
    text.removeAttribute("aria-invalid");
  }
  text.addEventListener("input", changed);
  hold.addEventListener("change", changed);
  file.addEventListener("change", async () => {
    if (!file.files[0]) return;
    text.value = await file.files[0].text();
    changed();
    await ask(true);
  });

  async function ask(isDry) {
    const sent = text.value;
    [check, apply].forEach((button) => (button.disabled = true));
    morph(outcome, [h("p", {}, isDry ? "checking …" : "changing it …")]);
    try {
      const query = new URLSearchParams({ dry_run: isDry, restart: !isDry && needsRestart, may_hold_up: hold.checked });
      const answer = await api.put(`/flowgraph?${query}`, sent);
      text.removeAttribute("aria-invalid");
      morph(outcome, told(answer, isDry));
      if (isDry && text.value === sent) offer(answer);
    } catch (error) {
      text.setAttribute("aria-invalid", "");
      outcome.replaceChildren(...refusalOf(isDry ? "It would be refused:" : "It was not changed:", error, text));
    } finally {
      outcome.scrollIntoView({ block: "nearest" });
      check.disabled = false;
    }
  }

  function offer(answer) {
    needsRestart = answer.restart_because.length > 0;
    apply.disabled = !needsRestart && answer.blocks.every((one) => one.way === "nothing");
    apply.textContent = needsRestart ? "Drain and start anew" : "Apply";
    apply.className = needsRestart ? "danger" : "primary";
  }

  return {
    element: h("form", { novalidate: true, "aria-label": "another flowgraph", onsubmit: (event) => (event.preventDefault(), ask(false)) },
      h("p", { class: "note" }, "All of it is changed, or nothing. What can change while frames flow does so between two frames; what would be done is said first."),
      h("div", { class: "field" }, h("div", { class: "head" }, h("label", { for: "update-file" }, "from a file")), file),
      h("div", { class: "field" }, h("div", { class: "head" }, h("label", { for: "update-text" }, "flowgraph, YAML"), h("span", { class: "limits" }, flowgraph.written_yaml ? "as it was written" : "as it runs, written out")), text),
      h("label", { class: "check" }, hold, " the flowgraph may wait for new blocks (right for files, wrong for a telescope)"),
      h("div", { class: "actions" }, check, apply), outcome),
  };
}

/// What runs as a file: the user's own text while it says that, or what is resolved, of which the description is
/// no part.
function written({ doc, written_yaml: own, resolved_yaml: text }) {
  if (own) return own;
  const [first, ...rest] = text.split("\n");
  return [first, ...(doc ? [`doc: ${JSON.stringify(doc.trim())}`] : []), ...rest].join("\n");
}

/// What an update comes to.
function told(answer, isDry) {
  const touched = answer.blocks.filter((one) => one.way !== "nothing");
  const rest = answer.blocks.length - touched.length;
  const done = answer.is_restarting ? "It drains now, and the other one follows." : answer.is_made ? "It is changed." : "";
  return [
    isDry && h("p", { class: "verdict" }, touched.length + answer.restart_because.length === 0 ? "Nothing is different from what runs." : "This would be done:"),
    done && h("p", { class: "good" }, done, answer.effective_timestamp !== null && ` Data are those of the other flowgraph from timestamp ${format.count(answer.effective_timestamp)} on.`),
    answer.not_atomic.map((text) => h("p", { class: "warn" }, text)),
    touched.length > 0 && h("table", { class: "plan" },
      h("thead", {}, h("tr", {}, ["block", "way", "gap"].map((head) => h("th", {}, head)))),
      touched.map((one) => h("tbody", {},
        h("tr", {}, h("th", { scope: "row" }, one.block), h("td", {}, one.way), h("td", {}, one.gap)),
        [...one.differences.map(difference), one.restart_because && h("span", { class: "warn" }, one.restart_because)].filter(Boolean).map((line) => h("tr", { class: "detail" }, h("td", { colspan: 3 }, line)))))),
    rest > 0 && touched.length > 0 && h("p", { class: "note" }, `${rest} other blocks stay as they are.`),
    isDry && answer.restart_because.length > 0 && h("p", { class: "warn" }, "It takes a new start: what is queued flows to its end, then the other flowgraph starts. If it cannot, this one is back."),
  ];
}

const difference = ({ key, from, to }) => h("code", { title: `${JSON.stringify(from)} → ${JSON.stringify(to)}` },
  `${key}: ${format.short(from ?? "default", 24)} → ${format.short(to ?? "default", 24)}`);
