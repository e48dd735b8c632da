// Form to start and end a shadow of a block, and its results.

import * as api from "./api.js";
import { h, morph } from "./dom.js";
import * as format from "./format.js";
import { rejection } from "./request.js";
import { variant } from "./variant.js";

/// Creates the form for `page`, a block from the REST API, with its `shadow` or `null`: `{ element, show(page) }`.
export async function shadow(page) {
  const form = await variant(page, "shadow", `POST /api/v1${api.block(page.name)}/shadow`);
  const ends = h("input", { type: "checkbox", id: "shadow-ends" });
  const start = h("button", { type: "submit", class: "primary" }, "Start shadow");
  const stop = h("button", { type: "button", onclick: () => end() }, "Stop shadow");
  const outcome = h("div", { class: "outcome", role: "status" });
  const report = h("div", { onclick: (event) => saveClicked(page.name, event, outcome) });
  const begin = h("form", { novalidate: true, "aria-label": "shadow", onsubmit: (event) => (event.preventDefault(), send()) },
    h("p", { class: "note" }, "A shadow processes the same frames as the block. Its output is compared and then discarded. A shadow that falls behind drops frames; it never delays the flowgraph."),
    form.elements,
    h("label", { class: "check" }, ends, " stop at the first frame that differs"),
    h("div", { class: "actions" }, start));
  const running = h("div", {}, report, h("div", { class: "actions" }, stop));

  function show(now) {
    page = now;
    const isLive = now.control === "live";
    begin.hidden = isLive || Boolean(now.shadow);
    running.hidden = !now.shadow;
    stop.hidden = isLive;
    if (now.shadow) morph(report, told(now.shadow, now));
    return form.take(now);
  }

  async function asked(button, refused, ask) {
    button.disabled = true;
    morph(outcome, []);
    try {
      await ask();
    } catch (error) {
      outcome.replaceChildren();
      morph(outcome, refused(error));
      outcome.scrollIntoView({ block: "nearest" });
      document.activeElement.scrollIntoView({ block: "nearest" });
    } finally {
      button.disabled = false;
    }
  }

  const send = () => asked(start, (error) => form.rejection("The shadow was not started:", error), async () => {
    const body = await form.body();
    if (body === null) return;
    const query = new URLSearchParams({ stop_at_first_difference: ends.checked });
    show({ ...page, shadow: await api.post(`${api.block(page.name)}/shadow?${query}`, body) });
    stop.focus();
  });

  const end = () => asked(stop, (error) => rejection("The shadow was not stopped:", error), async () => {
    const last = await api.remove(`${api.block(page.name)}/shadow`);
    show({ ...page, shadow: null });
    morph(outcome, [h("h3", {}, "The last shadow"), verdict(last)]);
  });

  show(page);
  return { element: h("div", {}, begin, running, outcome), show };
}

/// One-line verdict on the compared frames.
export function verdict(shadow) {
  const { frames_compared: frames, frames_different: different } = shadow;
  if (frames === 0) return h("p", { class: "verdict" }, "No frames compared so far.");
  const text = different === 0 ? `${format.count(frames)} frames, all bit-identical.` : `${format.count(different)} of ${format.count(frames)} frames differ.`;
  return h("p", { class: different ? "verdict warn" : "verdict good" }, text);
}

function told(shadow, page) {
  const other = Object.keys(shadow.parameters).filter((name) => JSON.stringify(shadow.parameters[name]) !== JSON.stringify(page.parameters[name]));
  const [mine, its] = [shadow.seconds_per_frame, shadow.shadow_seconds_per_frame];
  const row = (name, ...cells) => h("tr", {}, h("th", { scope: "row" }, name), cells.map((cell) => h("td", { class: "number" }, cell)));
  const output = page.outputs[shadow.first_difference_output]?.name;
  return [
    verdict(shadow),
    shadow.ended && h("p", { class: "warn" }, `The shadow has ended: ${shadow.ended}`),
    h("dl", { class: "values" }, [
      ["largest difference", number(shadow.max_difference)], ["rms difference", number(shadow.rms_difference)],
      ["values that differ", `${format.percent(shadow.different_fraction)} of ${format.si(shadow.values_compared, "")}`],
      ["frames without counterpart", format.count(shadow.frames_alone)], ["dropped frames", format.count(shadow.frames_dropped)],
      ["memory of the comparison", format.si(shadow.comparison_memory_bytes, "B")],
    ].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    h("table", { class: "sides" },
      h("thead", {}, h("tr", {}, ["", "block", "shadow"].map((head) => h(head ? "th" : "td", { class: head && "number" }, head)))),
      h("tbody", {},
        row("implementation", page.implementation, shadow.kind === page.kind ? shadow.implementation : `${shadow.kind}, ${shadow.implementation}`),
        other.map((name) => row(name, format.short(page.parameters[name] ?? "-", 24), format.short(shadow.parameters[name] ?? "-", 24))),
        row("time per frame", format.seconds(mine), its === null ? "-" : `${format.seconds(its)}${mine ? ` (× ${(its / mine).toPrecision(2)})` : ""}`),
        row("memory", format.si(shadow.memory_bytes, "B"), format.si(shadow.shadow_memory_bytes, "B")))),
    output && h("div", { class: "first" },
      h("span", {}, `first difference: ${output} at timestamp ${format.count(shadow.first_difference_timestamp)}`),
      ["block", "shadow"].map((side) => h("button", { type: "button", "data-side": side, title: `saves this frame of the ${side} as .npy` }, `${side} .npy`))),
  ];
}

/// Formats a difference with four digits.
export const number = (value) => (value === null ? "not finite" : Number(value.toPrecision(4)).toString());

async function saveClicked(name, { target }, outcome) {
  const { side } = target.closest("button")?.dataset ?? {};
  if (!side) return;
  try {
    await api.download(`${api.block(name)}/shadow/first_difference/${side}`, `${name}.${side}`);
  } catch (error) {
    morph(outcome, rejection("The frame was not saved:", error));
  }
}
