// Form to replace the running flowgraph, with a dry run.

import * as api from "./api.js";
import { h, morph } from "./dom.js";
import * as format from "./format.js";
import { rejectionOf } from "./request.js";

const ROWS = 14;

/// Creates the form with the text of `flowgraph` from the REST API: `{ element }`.
export function update(flowgraph) {
  const text = h("textarea", { id: "update-text", class: "mono yaml", rows: ROWS, spellcheck: "false", wrap: "off" });
  text.value = written(flowgraph);
  const file = h("input", { type: "file", id: "update-file", accept: ".yaml,.yml,.json", "aria-label": "flowgraph file" });
  const hold = h("input", { type: "checkbox" });
  const check = h("button", { type: "button", onclick: () => ask(true) }, "Check");
  const apply = h("button", { type: "submit", disabled: true }, "Apply");
  const outcome = h("div", { class: "outcome", role: "status" });
  let needsRestart = false;

  /// Only the checked text can be applied.
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
    morph(outcome, [h("p", {}, isDry ? "checking …" : "updating …")]);
    try {
      const query = new URLSearchParams({ dry_run: isDry, restart: !isDry && needsRestart, may_hold_up: hold.checked });
      const answer = await api.put(`/flowgraph?${query}`, sent);
      text.removeAttribute("aria-invalid");
      morph(outcome, told(answer, isDry));
      if (isDry && text.value === sent) offer(answer);
    } catch (error) {
      text.setAttribute("aria-invalid", "");
      outcome.replaceChildren(...rejectionOf(isDry ? "The update is not possible:" : "The update failed:", error, text));
    } finally {
      outcome.scrollIntoView({ block: "nearest" });
      check.disabled = false;
    }
  }

  function offer(answer) {
    needsRestart = answer.restart_because.length > 0;
    apply.disabled = !needsRestart && answer.blocks.every((one) => one.way === "nothing");
    apply.textContent = needsRestart ? "Drain and restart" : "Apply";
    apply.className = needsRestart ? "danger" : "primary";
  }

  return {
    element: h("form", { novalidate: true, "aria-label": "new flowgraph", onsubmit: (event) => (event.preventDefault(), ask(false)) },
      h("p", { class: "note" }, "The update is atomic. Changes without a restart take effect between two frames. “Check” shows the effect first."),
      h("div", { class: "field" }, h("div", { class: "head" }, h("label", { for: "update-file" }, "from a file")), file),
      h("div", { class: "field" }, h("div", { class: "head" }, h("label", { for: "update-text" }, "flowgraph, YAML"), h("span", { class: "limits" }, flowgraph.written_yaml ? "original text" : "resolved")), text),
      h("label", { class: "check" }, hold, " let the flowgraph wait for new blocks (for files, not for live data)"),
      h("div", { class: "actions" }, check, apply), outcome),
  };
}

/// Text of the running flowgraph: the user's own text if still valid, or the resolved one, which lacks the
/// description.
function written({ doc, written_yaml: own, resolved_yaml: text }) {
  if (own) return own;
  const [first, ...rest] = text.split("\n");
  return [first, ...(doc ? [`doc: ${JSON.stringify(doc.trim())}`] : []), ...rest].join("\n");
}

/// Shows the effect of an update.
function told(answer, isDry) {
  const touched = answer.blocks.filter((one) => one.way !== "nothing");
  const rest = answer.blocks.length - touched.length;
  const done = answer.is_restarting ? "The flowgraph drains, then the new one starts." : answer.is_made ? "The flowgraph is updated." : "";
  return [
    isDry && h("p", { class: "verdict" }, touched.length + answer.restart_because.length === 0 ? "No changes." : "Effect of the update:"),
    done && h("p", { class: "good" }, done, answer.effective_timestamp !== null && ` Data are those of the new flowgraph from timestamp ${format.count(answer.effective_timestamp)} on.`),
    answer.not_atomic.map((text) => h("p", { class: "warn" }, text)),
    touched.length > 0 && h("table", { class: "plan" },
      h("thead", {}, h("tr", {}, ["block", "way", "interruption"].map((head) => h("th", {}, head)))),
      touched.map((one) => h("tbody", {},
        h("tr", {}, h("th", { scope: "row" }, one.block), h("td", {}, one.way), h("td", {}, one.gap)),
        [...one.differences.map(difference), one.restart_because && h("span", { class: "warn" }, one.restart_because)].filter(Boolean).map((line) => h("tr", { class: "detail" }, h("td", { colspan: 3 }, line)))))),
    rest > 0 && touched.length > 0 && h("p", { class: "note" }, `${rest} other blocks do not change.`),
    isDry && answer.restart_because.length > 0 && h("p", { class: "warn" }, "The update needs a restart: the flowgraph drains, then the new one starts. If that fails, the current one is restored."),
  ];
}

const difference = ({ key, from, to }) => h("code", { title: `${JSON.stringify(from)} → ${JSON.stringify(to)}` },
  `${key}: ${format.short(from ?? "default", 24)} → ${format.short(to ?? "default", 24)}`);
