// Search for blocks of the graph by name or kind.

import { at } from "./dom.js";

export class Find {
  #names = [];
  #index = 0;

  /// - `search(text)` returns the names of the matching blocks
  /// - `onFind(names, name)` is called with the matches and the current one
  /// - `onOpen(name)` is called when the user chooses the current one
  constructor({ search, onFind, onOpen }) {
    Object.assign(this, { search, onFind, onOpen });
    this.input = at("find");
    this.said = at("found");
    this.input.addEventListener("input", () => this.#find());
    this.input.addEventListener("keydown", (event) => this.#key(event));
    document.addEventListener("keydown", (event) => {
      const isTyping = event.target.closest("input, textarea, select, dialog");
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isTyping || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      this.input.focus();
      this.input.select();
    });
  }

  #find() {
    const text = this.input.value.trim();
    this.#names = text ? this.search(text) : [];
    this.#index = 0;
    this.#show();
  }

  #show() {
    const { length } = this.#names;
    const name = this.#names[this.#index];
    const isEmpty = this.input.value.trim() === "";
    this.said.textContent = isEmpty ? "" : length === 0 ? "no block" : `${this.#index + 1} of ${length}: ${name}`;
    this.onFind(this.#names, name);
  }

  #key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const { length } = this.#names;
    if (step && length > 0) {
      event.preventDefault();
      this.#index = (this.#index + step + length) % length;
      this.#show();
    } else if (event.key === "Enter" && length > 0) {
      event.preventDefault();
      this.onOpen(this.#names[this.#index]);
    } else if (event.key === "Escape" && this.input.value !== "") {
      // The panel stays open.
      event.stopPropagation();
      event.preventDefault();
      this.input.value = "";
      this.#find();
    }
  }
}
