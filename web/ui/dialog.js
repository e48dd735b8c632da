// Modal dialogs.

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

/// Asks the user to confirm `action`, the label of the button; `text` describes the effect.
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

/// Shows `text` to the user.
export function tell(title, text) {
  return show(h("dialog", { "aria-labelledby": "dialog-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      h("p", {}, text),
      h("div", { class: "actions" }, h("button", { class: "primary", autofocus: true }, "Close")))));
}

/// Asks for the token of the server.
export async function askToken() {
  const input = h("input", { type: "password", autocomplete: "off", required: true, pattern: "[!-~]+", autofocus: true, id: "token" });
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, "This flowgraph requires a token"),
      h("p", {}, "The token is in the file given with ", h("code", {}, "--token-file"), "; the page keeps it until this tab is closed."),
      h("label", { for: "token" }, "Token"), input,
      h("div", { class: "actions" }, h("button", { class: "primary" }, "Show"))));
  // The page can show nothing without the token.
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  await show(dialog);
  return input.value;
}
