// A block as the subject of the panel.

import * as api from "./api.js";
import { h } from "./dom.js";
import { figures } from "./figures.js";
import * as format from "./format.js";
import { markdown } from "./markdown.js";
import { parameters } from "./parameters.js";
import { record } from "./record.js";
import { LIVE_ONLY } from "./request.js";
import { scope } from "./scope.js";
import { shadow } from "./shadow.js";
import { swap } from "./swap.js";

/// The block called `name`, one of `replicas`, which are changed together unless the user has picked one. `onPlot(block, port)` adds a plot,
/// `onPick(name)` opens another replica.
export class Block {
  #page = null;

  constructor(replicas, name, { onPlot, onPick, isTogether = true }) {
    Object.assign(this, { replicas, block: name, onPlot, isTogether });
    this.pick = replicas.length > 1 && h("select", { "aria-label": "replica", title: "the replica that is shown", onchange: (event) => onPick(event.target.value) },
      replicas.map((one) => h("option", { value: one, selected: one === name }, one)));
  }

  get tabs() {
    return ["statistics", "parameters", "swap", "shadow", this.#page.outputs.length > 0 && "record", "about"].filter(Boolean);
  }

  async load(now) {
    const page = await api.ask(api.block(this.block)).catch((error) => {
      if (error instanceof api.Problem && error.status === 404) return null;
      throw error;
    });
    if (!page) return false;
    const before = this.#page;
    page.control = now.flowgraph.control;
    page.devices = now.blocks.map((one) => one.device);
    page.shadow = now.shadows.find((one) => one.block === page.name) ?? null;
    page.recorders = now.recorders.filter((one) => page.outputs.some(({ name }) => one.output === `${page.name}.${name}`));
    this.#page = page;
    return before && (page.kind !== before.kind || page.implementation !== before.implementation) ? "other" : "same";
  }

  /// An existing shadow is visible to all clients.
  closed(tab) {
    const { control, shadow, parameters_schema: schema } = this.#page;
    if (control === "live" && (tab === "swap" || (tab === "shadow" && !shadow))) return LIVE_ONLY;
    return ["swap", "shadow"].includes(tab) && !schema && "A copy between devices depends on the devices of the blocks around it.";
  }

  title() {
    return [this.#page.name];
  }

  line() {
    const page = this.#page;
    return [h("span", { class: `state ${page.state}` }, page.state), " ", page.kind, " · ", page.implementation, " on ", page.device, ` · on fault: ${page.on_fault}`];
  }

  alert() {
    const { fault, totals } = this.#page;
    if (!fault) return [];
    return [
      h("strong", {}, fault.is_panic ? "The block panicked, which is a bug: " : "The block failed: "), fault.cause,
      totals.restarts > 0 && ` (${format.count(totals.restarts)} restarts so far)`,
    ];
  }

  #scope(prefix) {
    return scope(prefix, this.replicas, this.block, this.isTogether);
  }

  async tab(name) {
    const page = this.#page;
    const made = await {
      statistics: () => figures(page, (port) => this.onPlot(page.name, port)),
      parameters: () => parameters(page, this.#scope("parameters")),
      swap: () => swap(page, this.#scope("swap")),
      shadow: () => shadow(page),
      record: () => record(page),
      about: async () => ({ element: markdown((await api.ask(`/kinds/${encodeURIComponent(page.kind)}`)).doc) }),
    }[name]();
    return { element: made.element, show: () => made.show?.(this.#page) };
  }
}
