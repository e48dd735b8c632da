// Questions that have to be answered first.

import { h } from "./dom.js";

function show(dialog) {
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((answer) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      answer(dialog.returnValue);
    });
  });
}

/// Whether the user agrees to `action`, a word for the button; `text` says what it does.
export async function confirm(title, text, action) {
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      h("p", {}, text),
      h("div", { class: "actions" },
        h("button", { value: "", autofocus: true }, "Cancel"),
        h("button", { value: "yes", class: "danger" }, action))));
  return (await show(dialog)) === "yes";
}

/// Has the user take note of `text`.
export function tell(title, text) {
  return show(h("dialog", { "aria-labelledby": "dialog-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      h("p", {}, text),
      h("div", { class: "actions" }, h("button", { class: "primary", autofocus: true }, "Close")))));
}

/// The token that the server asks for.
export async function askToken() {
  const input = h("input", { type: "password", autocomplete: "off", required: true, pattern: "[!-~]+", autofocus: true, id: "token" });
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, "This flowgraph requires a token"),
      h("p", {}, "It stands in the file that was given with ", h("code", {}, "--token-file"), "; the page keeps it until this tab is closed."),
      h("label", { for: "token" }, "Token"), input,
      h("div", { class: "actions" }, h("button", { class: "primary" }, "Show"))));
  // Nothing can be shown without it.
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  await show(dialog);
  return input.value;
}
