// Form to swap a block, with a dry run.

import * as api from "./api.js";
import { h, morph } from "./dom.js";
import * as format from "./format.js";
import { variant } from "./variant.js";

/// Creates the form for `page`, a block from the REST API: `{ element, show(page) }`; `scope` tells which replicas are swapped.
export async function swap(page, scope) {
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
      const answers = await swapEach(scope.names(), body, { isDry, mayHoldUp: hold.checked });
      say(told(answers));
      if (!isDry) await form.take({ ...page, ...(await api.ask(api.block(page.name))) }, true);
    } catch (error) {
      outcome.replaceChildren();
      say(form.rejection(failure(error, isDry, scope.names()), error));
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
      scope.element, form.elements,
      h("label", { class: "check" }, hold, " let the flowgraph wait for the new block (for files, not for live data)"),
      h("div", { class: "actions" }, buttons), outcome),
    show(now) {
      page = now;
      return form.take(now);
    },
  };
}

/// Swaps the blocks called `names`, one after the other, after a dry run of all; returns the answers. An error has the name of its block in
/// `block`, and the number of swapped ones in `done`.
async function swapEach(names, body, { isDry, mayHoldUp }) {
  const runs = isDry || names.length === 1 ? [isDry] : [true, false];
  let answers = [];
  for (const dry_run of runs) {
    answers = [];
    for (const name of names) {
      const query = new URLSearchParams({ dry_run, may_hold_up: mayHoldUp });
      try {
        const answer = await api.patch(`${api.block(name)}?${query}`, body);
        const since = answer.goes_on_after_event;
        answers.push(since == null ? answer : { ...answer, is_made: await isMade(name, since) });
      } catch (error) {
        throw Object.assign(error, { block: name, done: dry_run ? 0 : answers.length });
      }
    }
  }
  return answers;
}

/// Waits for the end of a swap of the block `name` that goes on after the event number `since`.
async function isMade(name, since) {
  const ends = ["swapped", "not_swapped", "rolled_back"];
  for (;;) {
    const { events } = await api.ask(`/events?since=${since}`);
    const end = events.find((event) => event.block === name && ends.includes(event.kind));
    if (end && end.kind !== "swapped") throw new api.Problem(409, { detail: end.text });
    if (end) return true;
    await new Promise((done) => setTimeout(done, 1000));
  }
}

function failure({ block, done = 0 }, isDry, names) {
  const where = names.length > 1 && block ? ` at ${block}` : "";
  if (isDry) return `The swap is not possible${where}:`;
  return `The swap failed${where}${done > 0 ? `; ${done} of ${names.length} replicas are swapped` : ""}:`;
}

/// Shows the effect of the changes `answers`, one for each replica.
function told(answers) {
  const [change] = answers;
  const bytes = new Map();
  for (const [device, more] of answers.flatMap((one) => Object.entries(one.memory_bytes))) bytes.set(device, Math.max(bytes.get(device) ?? 0, more));
  const memory = [...bytes].map(([device, most]) => `${format.si(most, "B")} on ${device}`).join(", ");
  const cell = (value) => h("td", { class: "mono", title: JSON.stringify(value) }, format.short(value ?? "default", 30));
  const which = answers.length > 1 ? ` of ${answers.length} replicas` : "";
  const restart = answers.find((one) => one.restart_because);
  return [
    h("p", { class: change.is_made ? "good" : "" }, change.is_made ? (which ? `${answers.length} replicas swapped.` : "Swapped.") : `The swap${which} is possible.`),
    h("table", {},
      h("thead", {}, h("tr", {}, ["key", "current", "new"].map((head) => h("th", {}, head)))),
      h("tbody", {}, change.differences.map((one) => h("tr", {}, h("th", { scope: "row" }, one.key), cell(one.from), cell(one.to))))),
    h("dl", { class: "values" },
      h("div", {}, h("dt", {}, "way"), h("dd", {}, change.way)),
      h("div", {}, h("dt", {}, "interruption"), h("dd", {}, change.gap)),
      memory && h("div", {}, h("dt", {}, "memory during the swap"), h("dd", {}, memory))),
    restart && h("p", { class: "problem" }, restart.restart_because),
  ];
}
