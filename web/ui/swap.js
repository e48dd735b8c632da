// Form to swap a block, with a dry run.

import * as api from "./api.js";
import { h, morph } from "./dom.js";
import * as format from "./format.js";
import { variant } from "./variant.js";

/// Creates the form for `page`, a block from the REST API: `{ element, show(page) }`.
export async function swap(page) {
  const form = await variant(page, "swap", `PATCH /api/v1${api.block(page.name)}`, true);
  const hold = h("input", { type: "checkbox", id: "swap-hold" });
  const outcome = h("div", { class: "outcome", role: "status" });

  async function send(isDry) {
    const focused = document.activeElement;
    morph(outcome, []);
    try {
      const body = await form.body();
      if (body === null) return;
      if (body === "{}") return say([h("p", {}, "No changes.")]);
      buttons.forEach((button) => (button.disabled = true));
      say([h("p", {}, isDry ? "checking …" : "building the new block while the old one runs …")]);
      const query = new URLSearchParams({ dry_run: isDry, may_hold_up: hold.checked });
      const answer = await api.patch(`${api.block(page.name)}?${query}`, body);
      say(told(answer));
      if (answer.is_made) await form.take({ ...page, ...(await api.ask(api.block(page.name))) }, true);
    } catch (error) {
      outcome.replaceChildren();
      say(form.refusal(isDry ? "The swap is not possible:" : "The swap failed:", error));
      // The marked input has the focus.
      document.activeElement.scrollIntoView({ block: "nearest" });
    } finally {
      buttons.forEach((button) => (button.disabled = false));
      // Disabling the button has removed the focus.
      if (document.activeElement === document.body) focused.focus();
    }
  }

  function say(elements) {
    morph(outcome, elements);
    outcome.scrollIntoView({ block: "nearest" });
  }

  const buttons = [
    h("button", { type: "button", id: "try", onclick: () => send(true) }, "Try"),
    h("button", { type: "submit", id: "swap", class: "primary" }, "Swap"),
  ];
  return {
    element: h("form", { novalidate: true, "aria-label": "swap", onsubmit: (event) => (event.preventDefault(), send(false)) },
      h("p", { class: "note" }, "The new block is built and checked while the old one runs, and replaces it between two frames. If the first frames of the new block fail, the old one is restored."),
      form.elements,
      h("label", { class: "check" }, hold, " let the flowgraph wait for the new block (for files, not for live data)"),
      h("div", { class: "actions" }, buttons), outcome),
    show(now) {
      page = now;
      return form.take(now);
    },
  };
}

/// Shows the effect of a change.
function told(change) {
  const memory = Object.entries(change.memory_bytes).map(([device, bytes]) => `${format.si(bytes, "B")} on ${device}`).join(", ");
  const cell = (value) => h("td", { class: "mono", title: JSON.stringify(value) }, format.short(value ?? "default", 30));
  return [
    h("p", { class: change.is_made ? "good" : "" }, change.is_made ? "Swapped." : "The swap is possible."),
    h("table", {},
      h("thead", {}, h("tr", {}, ["", "current", "new"].map((head) => h("th", {}, head)))),
      h("tbody", {}, change.differences.map((one) => h("tr", {}, h("th", { scope: "row" }, one.key), cell(one.from), cell(one.to))))),
    h("dl", { class: "values" },
      h("div", {}, h("dt", {}, "way"), h("dd", {}, change.way)),
      h("div", {}, h("dt", {}, "interruption"), h("dd", {}, change.gap)),
      memory && h("div", {}, h("dt", {}, "memory during the swap"), h("dd", {}, memory))),
    change.restart_because && h("p", { class: "problem" }, change.restart_because),
  ];
}
