// One block: its figures, ports, parameters, swap and page.

import * as api from "./api.js";
import { at, h, morph, save } from "./dom.js";
import { figures } from "./figures.js";
import * as format from "./format.js";
import { markdown } from "./markdown.js";
import { parameters } from "./parameters.js";
import { swap } from "./swap.js";

const TABS = ["figures", "parameters", "swap", "about"];

export class Panel {
  #page = null;
  #tab = "figures";
  #replicas = [];
  #form = null;
  #opened = 0;

  /// `onPlot(block, port)` is asked for a plot; `onClose()` hears that nothing is open any more.
  constructor({ onPlot, onClose, onSelect }) {
    Object.assign(this, { onPlot, onClose, onSelect });
    this.element = at("panel");
    this.element.addEventListener("keydown", (event) => this.#key(event));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.#page && !document.querySelector("dialog[open]")) this.close();
    });
    this.element.addEventListener("click", (event) => this.#click(event));
  }

  get name() {
    return this.#page?.name ?? null;
  }

  /// Opens the block called `name`, one of `replicas`.
  async open(replicas, name = replicas[0]) {
    const opened = (this.#opened += 1);
    const page = await api.ask(api.block(name));
    if (opened !== this.#opened) return;
    this.#page = page;
    this.#replicas = replicas;
    this.#build();
    this.onSelect(name);
    this.element.querySelector('[role="tab"][aria-selected="true"]').focus();
  }

  close() {
    this.#opened += 1;
    this.#page = null;
    this.element.hidden = true;
    document.body.classList.remove("with-panel");
    this.onClose();
  }

  /// Brings what it shows up to date.
  async refresh() {
    if (!this.#page) return;
    const opened = this.#opened;
    const page = await api.ask(api.block(this.#page.name)).catch((error) => {
      if (error instanceof api.Problem) return null;
      throw error;
    });
    if (opened !== this.#opened) return;
    // It is not there any more.
    if (!page) return this.close();
    const isOther = page.kind !== this.#page.kind || page.implementation !== this.#page.implementation;
    this.#page = page;
    this.#head();
    morph(this.figures, figures(page));
    if (isOther && this.#tab !== "swap") return this.#show(this.#tab);
    this.#form?.show?.(page);
  }

  #build() {
    this.figures = h("div", {});
    this.title = h("h2", { id: "panel-title" });
    this.line = h("p", { class: "line" });
    this.fault = h("div", { class: "fault", role: "alert" });
    this.body = h("div", { role: "tabpanel", id: "tab-body", tabindex: 0 });
    const pick = this.#replicas.length > 1 && h("select", {
      "aria-label": "replica", onchange: (event) => this.open(this.#replicas, event.target.value),
    }, this.#replicas.map((name) => h("option", { value: name, selected: name === this.#page.name }, name)));
    this.element.replaceChildren(
      h("div", { class: "bar" }, this.title, pick || "", h("button", { type: "button", class: "quiet", "data-do": "close", "aria-label": "close the panel", title: "close (Escape)" }, "✕")),
      this.line, this.fault,
      h("div", { role: "tablist", "aria-label": "about this block" }, TABS.map((tab) =>
        h("button", { type: "button", role: "tab", id: `tab-${tab}`, "data-tab": tab, "aria-controls": "tab-body" }, tab))),
      this.body);
    this.element.hidden = false;
    document.body.classList.add("with-panel");
    this.#head();
    morph(this.figures, figures(this.#page));
    this.#show(this.#tab);
  }

  #head() {
    const page = this.#page;
    morph(this.title, [page.name]);
    morph(this.line, [
      h("span", { class: `state ${page.state}` }, page.state), " ", page.kind, " · ", page.implementation, " on ", page.device,
      ` · on fault: ${page.on_fault}`,
    ]);
    const fault = page.fault;
    this.fault.hidden = !fault;
    morph(this.fault, fault ? [
      h("strong", {}, fault.is_panic ? "It panicked, a fault of the program: " : "It failed: "), fault.cause,
      page.totals.restarts > 0 && ` (${format.count(page.totals.restarts)} restarts so far)`,
    ] : []);
  }

  async #show(tab) {
    this.#tab = tab;
    this.#form = null;
    for (const element of this.element.querySelectorAll('[role="tab"]')) {
      const isChosen = element.dataset.tab === tab;
      element.setAttribute("aria-selected", isChosen);
      element.tabIndex = isChosen ? 0 : -1;
      if (isChosen) this.body.setAttribute("aria-labelledby", element.id);
    }
    const page = this.#page;
    const fill = (element) => this.#tab === tab && this.#page?.name === page.name && this.body.replaceChildren(element);
    if (tab === "figures") return fill(this.figures);
    if (tab === "parameters") {
      this.#form = parameters(page, this.#replicas);
      return fill(this.#form.element);
    }
    fill(h("p", { class: "note" }, "…"));
    try {
      if (tab === "swap") return fill((await swap(page)).element);
      const kind = await api.ask(`/kinds/${encodeURIComponent(page.kind)}`);
      return fill(markdown(kind.doc));
    } catch (error) {
      return fill(h("p", { class: "problem" }, error.message));
    }
  }

  #click({ target }) {
    const button = target.closest("button");
    if (!button || !this.#page) return;
    const { tab, port } = button.dataset;
    const action = button.dataset.do;
    if (tab) this.#show(tab);
    else if (action === "close") this.close();
    else if (action === "plot") this.onPlot(this.#page.name, port);
    else if (action === "save") this.#save(button, port);
  }

  async #save(button, port) {
    button.disabled = true;
    try {
      const response = await api.request(`${api.output(this.#page.name, port)}/snapshot?format=npy&max_bytes=${1 << 28}`);
      save(await response.blob(), `${this.#page.name}.${port}.${response.headers.get("fxgraph-timestamp")}.npy`);
      button.title = "";
    } catch (error) {
      button.title = error.message;
      button.textContent = "not saved";
    } finally {
      button.disabled = false;
    }
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || event.target.getAttribute("role") !== "tab") return;
    const next = TABS[(TABS.indexOf(this.#tab) + step + TABS.length) % TABS.length];
    this.#show(next);
    at(`tab-${next}`).focus();
  }
}
