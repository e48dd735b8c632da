// The user's plots, fed by one stream for all of them.

import * as api from "./api.js";
import { Card } from "./card.js";
import { at, h } from "./dom.js";
import { short } from "./format.js";
import { HistoryCard } from "./history.js";

const SETTLE_MS = 150;
const MOST = 16;
const FLOWS = new Set(["starting", "running", "draining"]);

/// Views of the initial plots, if an output offers them.
const FIRST = ["spectrum", "band_pass", "visibility", "matrix", "beams", "sky", "taps", "values"];
/// Views for which the last output in the graph is the most informative.
const LAST = new Set(["band_pass", "values"]);

/// Name of the gauge that is chosen for the next plot, if one is.
const gaugeOf = (chosen) => chosen.match(/^gauge (.+)$/)?.[1] ?? null;

export class Board {
  #cards = [];
  #views = new Map();
  #name = null;
  #outputs = [];
  /// Type of the frames of each output.
  #carries = new Map();
  #stream = null;
  #flows = true;
  #timer = 0;

  constructor() {
    this.box = at("board");
    this.output = at("add-output");
    this.view = at("add-view");
    this.gauges = h("optgroup", { label: "gauges against time" });
    this.addButton = at("add");
    this.pauseButton = at("pause");
    this.output.addEventListener("change", () => this.#offerViews());
    this.addButton.addEventListener("click", () => this.#addChosen());
    this.pauseButton.addEventListener("click", () => {
      const isPaused = this.pauseButton.getAttribute("aria-pressed") !== "true";
      this.pauseButton.setAttribute("aria-pressed", isPaused);
      this.#changed();
    });
    // No requests while the page is hidden.
    document.addEventListener("visibilitychange", () => this.#changed());
  }

  /// Updates the list of outputs of `flowgraph`, and whether frames flow.
  async show(flowgraph) {
    this.#cards.forEach((card) => card.know(flowgraph));
    const flows = FLOWS.has(flowgraph.state);
    if (flows !== this.#flows) {
      this.#flows = flows;
      this.#changed();
    }
    const outputs = [...new Set(flowgraph.graph.edges.map((edge) => JSON.stringify([edge.from, edge.output])))];
    if (outputs.join() === this.#outputs.join()) {
      // Gauges are known a second after the start.
      if (this.gauges.childElementCount === 0) await this.#listGauges();
      return;
    }
    this.#outputs = outputs;
    this.#carries = new Map(flowgraph.graph.edges.map((edge) => [JSON.stringify([edge.from, edge.output]), edge.carries]));
    const chosen = this.output.value;
    this.output.replaceChildren(
      h("optgroup", { label: "outputs" }, outputs.map((one) => h("option", { value: one }, JSON.parse(one).join(".")))),
      this.gauges);
    if (outputs.includes(chosen)) this.output.value = chosen;
    this.#views.clear();
    await this.#offerViews();
    if (this.#name !== null) return;
    this.#name = flowgraph.name;
    await this.#begin();
  }

  /// Offers the gauges of the blocks, which can be plotted over minutes and hours.
  async #listGauges() {
    const { gauges } = await api.ask("/history").catch(() => ({ gauges: [] }));
    this.gauges.replaceChildren(...gauges.map(({ name, help }) => h("option", { value: `gauge ${name}`, title: help }, name)));
  }

  /// Selects an output and a view for the next plot.
  async offer(block, port) {
    this.output.value = JSON.stringify([block, port]);
    await this.#offerViews();
    this.view.focus();
    this.view.scrollIntoView({ block: "nearest" });
  }

  async #viewsOf(block, port) {
    const key = `${block}.${port}`;
    if (!this.#views.has(key)) {
      const views = api.ask(`${api.output(block, port)}/views`).then((answer) => answer.views);
      this.#views.set(key, views.catch((error) => {
        this.#views.delete(key);
        throw error;
      }));
    }
    return this.#views.get(key);
  }

  async #offerViews() {
    if (!this.output.value) return;
    const chosen = this.output.value;
    const gauge = gaugeOf(chosen);
    if (gauge) return this.#offer([h("option", {}, "against time")]);
    const views = await this.#viewsOf(...JSON.parse(chosen)).catch(() => []);
    if (this.output.value !== chosen) return;
    return this.#offer(views.map((view) => h("option", { value: view.name }, view.title)));
  }

  /// Shows `options` of the next plot, if there are any.
  #offer(options) {
    this.view.replaceChildren(...(options.length > 0 ? options : [h("option", {}, "nothing to plot")]));
    this.view.disabled = options.length === 0;
    this.addButton.disabled = options.length === 0;
  }

  async #addChosen() {
    const gauge = gaugeOf(this.output.value);
    const [block, port] = gauge ? [] : JSON.parse(this.output.value);
    await this.#add(gauge ? { gauge } : { block, port, view: this.view.value });
    this.#cards.at(-1)?.element.scrollIntoView({ block: "nearest" });
    this.#keep();
  }

  async #add(spec) {
    if (this.#cards.length >= MOST) return this.#note(`the limit is ${MOST} plots: remove one first`);
    const view = spec.gauge ? null : (await this.#viewsOf(spec.block, spec.port)).find((one) => one.name === spec.view);
    if (view === undefined) return;
    const events = {
      onChange: () => (this.#keep(), this.#changed()),
      onClose: () => {
        this.#cards.splice(this.#cards.indexOf(card), 1);
        this.#keep();
        this.#changed();
      },
    };
    const card = view ? new Card(spec, view, { alike: this.#alike(spec.block, spec.port), ...events }) : new HistoryCard(spec, events);
    this.#cards.push(card);
    this.box.append(card.element);
    this.#changed();
  }

  /// Restores the plots of the last visit, or adds initial ones.
  async #begin() {
    const kept = localStorage.getItem(`fxgraph-board-${this.#name}`);
    for (const spec of kept ? JSON.parse(kept) : await this.#usual()) await this.#add(spec).catch(() => {});
  }

  async #usual() {
    const found = new Map();
    // Outputs with the same type have the same views: a large flowgraph needs few requests.
    const known = new Map();
    for (const output of this.#outputs) {
      const [block, port] = JSON.parse(output);
      // Replicas show similar data.
      if (/\[[1-9]\d*\]/.test(block)) continue;
      const type = this.#carries.get(output);
      if (!known.has(type)) known.set(type, await this.#viewsOf(block, port).catch(() => []));
      for (const view of known.get(type)) {
        // The band-pass after gains and quantisation is the most informative, but of an input, not of a beam.
        const isBetter = LAST.has(view.name) && view.selects.every(({ axis }) => axis !== "beam");
        if (!found.has(view.name) || isBetter) found.set(view.name, { block, port, view: view.name });
      }
    }
    return FIRST.map((name) => found.get(name)).filter(Boolean);
  }

  /// Outputs with frames of the same type as this one, `[block, port]` each.
  #alike(block, port) {
    const own = JSON.stringify([block, port]);
    const type = this.#carries.get(own);
    return this.#outputs.filter((output) => output === own || this.#carries.get(output) === type).map((output) => JSON.parse(output));
  }

  #keep() {
    localStorage.setItem(`fxgraph-board-${this.#name}`, JSON.stringify(this.#cards.map((card) => card.spec())));
    this.#note("");
  }

  /// Reopens the stream for the cards that are not paused, after a short delay.
  #changed() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#open(), SETTLE_MS);
  }

  #open() {
    this.#stream?.abort();
    this.#stream = null;
    this.#note("");
    const isPaused = document.hidden || !this.#flows || this.pauseButton.getAttribute("aria-pressed") === "true";
    const moving = isPaused ? [] : this.#cards.filter((card) => card.moves);
    if (moving.length === 0) return;
    this.#stream = new AbortController();
    const traces = moving.flatMap((card) => card.paths().map((path, trace) => ({ card, path, trace })));
    const query = traces.map(({ path }) => `view=${encodeURIComponent(path)}`).join("&");
    api.follow(`/views?${query}`, {
      signal: this.#stream.signal,
      onEvent: (name, data) => traces[data.index].card.take(traces[data.index].trace, name, data),
      onProblem: (problem) => this.#note([problem.message, ...problem.help].join("; ")),
    });
  }

  #note(text) {
    at("board-note").hidden = !text;
    at("board-note").textContent = short(text, 300);
  }
}
