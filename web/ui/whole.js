// The flowgraph as the subject of the panel.

import { h, morph } from "./dom.js";
import { tile } from "./figures.js";
import * as format from "./format.js";
import { Recorders } from "./recorders.js";
import { LIVE_ONLY } from "./request.js";
import { plain } from "./schema.js";
import { number, verdict } from "./shadow.js";
import { update } from "./update.js";

/// The whole flowgraph; `onOpen(block, tab)` opens a block.
export class Whole {
  tabs = ["state", "change", "recorders", "shadows"];
  pick = null;
  #now = null;

  constructor(onOpen) {
    this.onOpen = onOpen;
  }

  load(now) {
    this.#now = now;
    return "same";
  }

  closed(tab) {
    return tab === "change" && this.#now.flowgraph.control === "live" && LIVE_ONLY;
  }

  title() {
    return [this.#now.flowgraph.name];
  }

  line() {
    const { state, graph } = this.#now.flowgraph;
    return [h("span", { class: `state ${state}` }, state), ` the whole flowgraph, ${graph.blocks.length} blocks`];
  }

  alert() {
    return [];
  }

  tab(name) {
    if (name === "change") return update(this.#now.flowgraph);
    const { element, show } = { state: () => state(this.onOpen), recorders, shadows: () => shadows(this.onOpen) }[name]();
    show(this.#now);
    return { element, show: () => show(this.#now) };
  }
}

/// Button that opens a block at a tab; handled by `opens`.
const lead = (block, tab) => h("button", { type: "button", class: "link", "data-block": block, "data-at": tab }, block);

const opens = (onOpen) => ({ target }) => {
  const { block, at } = target.closest("button")?.dataset ?? {};
  if (block) onOpen(block, at);
};

function state(onOpen) {
  const element = h("div", { onclick: opens(onOpen) });
  const show = ({ flowgraph, blocks }) => {
    const margin = flowgraph.deadline_margin_fraction;
    const sinks = blocks.filter((block) => block.latency);
    const value = (name, text, title) => h("div", { title }, h("dt", {}, name), h("dd", {}, text));
    morph(element, [
      flowgraph.doc && h("p", { class: "note" }, plain(flowgraph.doc)),
      h("dl", { class: "tiles" },
        tile("state", flowgraph.state, flowgraph.is_held ? "can be started again" : "the program ends with the flowgraph"),
        tile("runs for", format.seconds(flowgraph.elapsed_seconds), "since the first frame"),
        tile("lag", format.lag(flowgraph.lag_seconds),
          flowgraph.lag_block ? `behind real time, at ${flowgraph.lag_block}` : "no frame so far", flowgraph.lag_seconds > 2 ? "bad" : ""),
        tile("deadline margin", format.margin(margin), "headroom of the slowest block", margin !== null && margin < 0 ? "bad" : "")),
      flowgraph.stalls.map(({ block, reason, silent_seconds: silent }) =>
        h("p", { class: "verdict" }, "No frame for ", format.seconds(silent), ": ", lead(block, "statistics"), ` (${reason}).`)),
      flowgraph.limited_by && h("p", { class: "verdict" }, `The flowgraph is ${flowgraph.limited_by.text}.`),
      sinks.length > 0 && h("h3", {}, "From source to sink"),
      sinks.length > 0 && h("table", {},
        h("thead", {}, h("tr", {}, h("th", {}, "sink"), h("th", { class: "number" }, "mean"), h("th", { class: "number" }, "99th percentile"))),
        h("tbody", {}, sinks.map(({ name, latency }) => h("tr", {}, h("th", { scope: "row" }, lead(name, "statistics")),
          h("td", { class: "number" }, format.seconds(latency.mean_seconds)), h("td", { class: "number" }, format.seconds(latency.within_seconds)))))),
      flowgraph.parameters.length > 0 && h("h3", {}, "Parameters"),
      h("dl", { class: "values" }, flowgraph.parameters.map((one) => value(one.name, format.short(one.value, 40), one.doc))),
      h("h3", {}, "Configuration"),
      h("dl", { class: "values" },
        value("id in frame headers", flowgraph.config_id), value("SHA-256", `${flowgraph.config_hash.slice(0, 20)}…`, flowgraph.config_hash),
        value("all changes apply from timestamp", format.count(flowgraph.steady_state_timestamp))),
      flowgraph.scheduled.length > 0 && h("h3", {}, "Scheduled values"),
      h("dl", { class: "values" }, flowgraph.scheduled.map((one) =>
        value(`${one.block}.${one.parameter} from ${format.count(one.timestamp)}`, format.short(one.value, 40)))),
    ]);
  };
  return { element, show };
}

function recorders() {
  const list = new Recorders();
  const none = h("p", { class: "note" }, "No recorders. To record an output, open the tab “record” of its block.");
  return {
    element: h("div", {}, none, list.element),
    show(now) {
      none.hidden = now.recorders.length > 0;
      list.show(now.recorders);
    },
  };
}

function shadows(onOpen) {
  const element = h("div", { onclick: opens(onOpen) });
  const show = ({ shadows }) => morph(element, shadows.length > 0
    ? shadows.map((one) => h("article", { class: "recorder" },
      h("div", { class: "bar" }, lead(one.block, "shadow"), h("span", {}, `${one.kind}, ${one.implementation}`)), verdict(one),
      h("p", { class: "note" }, `rms ${number(one.rms_difference)}, largest ${number(one.max_difference)}`),
      one.ended && h("p", { class: "warn" }, `The shadow has ended: ${one.ended}`)))
    : [h("p", { class: "note" }, "No shadows. To start one, open the tab “shadow” of a block.")]);
  return { element, show };
}
