// The body of a request as JSON, generated from a form or edited by the user.

import { h } from "./dom.js";
import { rejectionOf } from "./request.js";

/// Folded editor for the body of the request `line`, like `PATCH /api/v1/blocks/f`. `onEdit(isEdited)` is called when the user starts
/// to edit, and when the form is used again.
/// - `element`, `isEdited()`
/// - `show(text)`: updates the text from the form
/// - `text()`: the text to send; `null` after showing that it is not JSON
/// - `rejection(title, problem)`: elements with links to lines of the text
export function editor(id, line, onEdit) {
  const text = h("textarea", { id, class: "mono", rows: 2, spellcheck: "false", wrap: "off", "aria-describedby": `${id}-note ${id}-problem` });
  const note = h("p", { class: "note", id: `${id}-note` });
  const problem = h("p", { class: "problem", id: `${id}-problem`, role: "alert" });
  const back = h("button", { type: "button", hidden: true, onclick: () => (take(made), text.focus()) }, "Use the form");
  const details = h("details", { class: "request" },
    h("summary", {}, "Request (JSON)"),
    h("p", { class: "mono" }, line),
    h("label", { for: id }, "request body, JSON"), text, problem, h("div", { class: "actions" }, note, back));
  let made = "";
  let isEdited = false;

  function take(now) {
    text.value = now;
    edited(false);
  }
  function edited(now) {
    isEdited = now;
    back.hidden = !now;
    note.textContent = now ? "This text is sent in place of the form." : "Generated from the form; edit it to send another request.";
    text.rows = Math.min(12, Math.max(2, text.value.split("\n").length));
    say("");
    onEdit(now);
  }
  function say(words) {
    problem.textContent = words;
    if (words) text.setAttribute("aria-invalid", "true");
    else text.removeAttribute("aria-invalid");
  }
  text.addEventListener("input", () => edited(text.value !== made));
  return {
    element: details,
    isEdited: () => isEdited,
    show(now) {
      made = now;
      if (!isEdited && text.value !== now) take(now);
    },
    reset: () => take(made),
    text() {
      try {
        JSON.parse(text.value);
        return text.value;
      } catch (error) {
        details.open = true;
        say(`this is not JSON: ${error.message}`);
        text.focus();
        return null;
      }
    },
    rejection(title, error) {
      details.open = true;
      text.setAttribute("aria-invalid", "true");
      return rejectionOf(title, error, text);
    },
  };
}
