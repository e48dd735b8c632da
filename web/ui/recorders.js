// List of recorders with their recordings and buttons.

import * as api from "./api.js";
import { confirm } from "./dialog.js";
import { h, morph } from "./dom.js";
import * as format from "./format.js";
import { rejection } from "./request.js";

export class Recorders {
  #recorders = [];

  constructor() {
    this.list = h("div", { class: "recorders", "aria-label": "recorders", role: "list", onclick: (event) => this.#click(event) });
    this.said = h("div", { role: "status" });
    this.element = h("div", {}, this.list, this.said);
  }

  show(recorders) {
    this.#recorders = recorders;
    morph(this.list, recorders.map(item));
  }

  /// Shows `recorder` before the next update of the list.
  add(recorder) {
    this.show([...this.#recorders.filter((one) => one.name !== recorder.name), recorder]);
  }

  async #click({ target }) {
    const button = target.closest("button[data-do]");
    if (!button) return;
    const { do: action, name } = button.dataset;
    const path = `/recorders/${encodeURIComponent(name)}`;
    if (action === "remove" && !(await confirm("Remove the recording?", "The recorder and its files are deleted.", "Remove"))) return;
    button.disabled = true;
    morph(this.said, []);
    try {
      if (action === "remove") {
        await api.remove(path);
        this.show(this.#recorders.filter((one) => one.name !== name));
      } else this.add(await api.post(`${path}/${action}`));
    } catch (error) {
      morph(this.said, rejection("The request failed:", error));
    } finally {
      button.disabled = false;
    }
  }
}

function item(recorder) {
  const { name, output, state } = recorder;
  const button = (action, text, title, isDanger) =>
    h("button", { type: "button", "data-do": action, "data-name": name, title, class: isDanger ? "danger" : "" }, text);
  const isOver = state === "ended" || state === "failed";
  return h("article", { class: "recorder", role: "listitem", "data-state": state },
    h("div", { class: "bar" },
      h("strong", {}, output ?? name), h("span", { class: `state ${state}` }, state), h("span", { class: "space" }),
      !isOver && button("trigger", "Trigger", "records the frames before and after now"),
      // A recorder that is a block of the flowgraph cannot be removed.
      output && !isOver && button("stop", "Stop", "stops the recorder and closes its files"),
      output && isOver && button("remove", "Remove", "deletes the recorder and its files", true)),
    h("p", { class: "note" }, `${format.count(recorder.frames_written)} frames written, ${format.count(recorder.frames_kept)} kept in memory`,
      recorder.frames_lost > 0 && h("strong", { class: "problem" }, `, ${format.count(recorder.frames_lost)} dropped: the disk is too slow`)),
    recorder.fault && h("p", { class: "problem" }, recorder.fault),
    recorder.recordings.length > 0 && h("ul", {}, recorder.recordings.map((one) => h("li", {},
      h("code", {}, one.path), h("br"),
      `${format.count(one.frames)} frames, ${format.si(one.payload_bytes, "B")}, from timestamp ${format.count(one.first_timestamp)}: ${one.cause}`))));
}
