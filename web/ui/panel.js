// Side panel with tabs about one subject, a block or the flowgraph.

import { at, h, morph } from "./dom.js";

/// Interface of a subject:
/// - `tabs`: names of its tabs, and `block`, its name if it is one
/// - `load(now)`: updates the subject from `now`, the latest data; returns `false` if the subject no longer exists, and
///   `"other"` if the tabs showed data of another subject
/// - `title()`, `line()`, `alert()`: elements of the head
/// - `closed(tab)`: reason why a tab cannot be opened, if any
/// - `tab(name)`: `{ element, show() }` or a promise of it; `show` is called after each `load`
export class Panel {
  #subject = null;
  #now = null;
  #tab = null;
  #shown = null;
  #opened = 0;

  /// `onSelect(block)` is called when a block is opened, `onClose()` when the panel closes.
  constructor({ onSelect, onClose }) {
    Object.assign(this, { onSelect, onClose });
    this.element = at("panel");
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.element.addEventListener("click", ({ target }) => {
      const button = target.closest("button");
      if (button?.dataset.tab) this.#show(button.dataset.tab);
      else if (button?.dataset.do === "close") this.close();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.#subject && !document.querySelector("dialog[open]")) this.close();
    });
  }

  /// Opens `subject`, at `tab` if given.
  async open(subject, tab) {
    const opened = (this.#opened += 1);
    if ((await subject.load(this.#now)) === false || opened !== this.#opened) return;
    this.#subject = subject;
    this.#build();
    this.onSelect(subject.block ?? null);
    // Another tab may have been chosen meanwhile.
    const wanted = tab ?? this.#tab;
    const open = this.#openTabs();
    await this.#show(open.includes(wanted) ? wanted : open[0]);
    if (opened === this.#opened) this.element.querySelector('[role="tab"][aria-selected="true"]').focus();
  }

  close() {
    this.#opened += 1;
    this.#subject = null;
    this.element.hidden = true;
    document.body.classList.remove("with-panel");
    this.onClose();
  }

  /// Updates the panel from `now`.
  async refresh(now) {
    this.#now = now;
    if (!this.#subject) return;
    const opened = this.#opened;
    const state = await this.#subject.load(now);
    if (opened !== this.#opened) return;
    if (state === false) return this.close();
    this.#head();
    // The swap tab shows its own result.
    if (state === "other" && this.#tab !== "swap") return this.#show(this.#tab);
    await this.#shown?.show?.();
  }

  #build() {
    this.title = h("h2", { id: "panel-title" });
    this.line = h("p", { class: "line" });
    this.alert = h("div", { class: "fault", role: "alert" });
    this.body = h("div", { role: "tabpanel", id: "tab-body", tabindex: 0 });
    this.element.replaceChildren(
      h("div", { class: "bar" }, this.title, this.#subject.pick ?? "", h("button", { type: "button", class: "quiet", "data-do": "close", "aria-label": "close the panel", title: "close (Escape)" }, "✕")),
      this.line, this.alert,
      h("div", { role: "tablist", "aria-labelledby": "panel-title" }, this.#subject.tabs.map((tab) =>
        h("button", { type: "button", role: "tab", id: `tab-${tab}`, "data-tab": tab, "aria-controls": "tab-body" }, tab))),
      this.body);
    this.element.hidden = false;
    document.body.classList.add("with-panel");
    this.#head();
  }

  #head() {
    morph(this.title, this.#subject.title());
    morph(this.line, this.#subject.line());
    const alert = this.#subject.alert();
    this.alert.hidden = alert.length === 0;
    morph(this.alert, alert);
    for (const element of this.element.querySelectorAll('[role="tab"]')) {
      const why = this.#subject.closed(element.dataset.tab);
      element.disabled = Boolean(why);
      element.title = why || "";
    }
  }

  #openTabs() {
    return this.#subject.tabs.filter((tab) => !this.#subject.closed(tab));
  }

  async #show(tab) {
    this.#tab = tab;
    this.#shown = null;
    for (const element of this.element.querySelectorAll('[role="tab"]')) {
      const isChosen = element.dataset.tab === tab;
      element.setAttribute("aria-selected", isChosen);
      element.tabIndex = isChosen ? 0 : -1;
      if (isChosen) this.body.setAttribute("aria-labelledby", element.id);
    }
    const subject = this.#subject;
    let shown;
    try {
      shown = await subject.tab(tab);
    } catch (error) {
      shown = { element: h("p", { class: "problem" }, error.message) };
    }
    if (this.#tab !== tab || this.#subject !== subject) return;
    this.#shown = shown;
    this.body.replaceChildren(shown.element);
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || event.target.getAttribute("role") !== "tab") return;
    const tabs = this.#openTabs();
    const next = tabs[(tabs.indexOf(this.#tab) + step + tabs.length) % tabs.length];
    this.#show(next);
    at(`tab-${next}`).focus();
  }
}
