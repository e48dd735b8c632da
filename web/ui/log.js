// Log of events.

import * as api from "./api.js";
import { at, h } from "./dom.js";
import * as format from "./format.js";

const KEPT = 2000;
const FAULTS = new Set([
  "fault", "skipped", "restarted", "rolled_back", "not_swapped", "not_started", "shadow_differs", "data_lost", "aborted", "stalled", "fell_behind",
  "resynchronised", "time_jumped", "not_saved", "rejected", "not_updated", "kernels_rejected",
]);

/// Follows the events of the run, and calls `onEvent` for each.
export class Log {
  #events = [];
  #fresh = [];
  #frame = 0;

  constructor(onEvent) {
    this.onEvent = onEvent;
    this.list = at("log");
    this.kind = at("log-kind");
    this.text = at("log-text");
    this.kind.append(h("option", { value: "" }, "all kinds"), h("option", { value: "faults" }, "faults and missing data"));
    this.kind.addEventListener("change", () => this.#draw());
    this.text.addEventListener("input", () => this.#draw());
  }

  follow(signal) {
    return api.follow("/events/stream", { signal, onEvent: (_, event) => this.#take(event) });
  }

  #take(event) {
    this.#events.push(event);
    if (this.#events.length > KEPT) this.#events.shift();
    if (![...this.kind.options].some((option) => option.value === event.kind)) {
      this.kind.append(h("option", { value: event.kind }, event.kind.replaceAll("_", " ")));
    }
    this.#fresh.push(event);
    this.#frame ||= requestAnimationFrame(() => this.#addFresh());
    this.onEvent(event);
  }

  /// Adds the events since the last frame of the page: a page that opens gets all events of the run at once.
  #addFresh() {
    const rows = this.#fresh.filter((event) => this.#isShown(event)).slice(-KEPT).reverse().map(row);
    this.#fresh = [];
    this.#frame = 0;
    if (rows.length === 0) return;
    // The newest event is on top; the scroll position of the reader is kept.
    const isRead = this.list.scrollTop > 0;
    const before = isRead && this.list.scrollHeight;
    this.list.prepend(...rows);
    while (this.list.childElementCount > KEPT) this.list.lastElementChild.remove();
    if (isRead) this.list.scrollTop += this.list.scrollHeight - before;
  }

  #isShown(event) {
    const kind = this.kind.value;
    if (kind === "faults" ? !isFault(event) : kind && event.kind !== kind) return false;
    const wanted = this.text.value.trim().toLowerCase();
    return `${event.block ?? ""} ${event.kind} ${event.text}`.toLowerCase().includes(wanted);
  }

  #draw() {
    this.#fresh = [];
    this.list.replaceChildren(...this.#events.filter((event) => this.#isShown(event)).reverse().map(row));
  }
}

const isFault = ({ kind }) => FAULTS.has(kind);

function row(event) {
  return h("li", { class: isFault(event) ? "fault" : "", "data-kind": event.kind },
    h("time", { datetime: new Date(1000 * event.unix_time_seconds).toISOString(), title: "UTC" }, format.clock(event.unix_time_seconds)),
    h("span", { class: "kind" }, event.kind.replaceAll("_", " ")),
    h("span", { class: "block" }, event.block ?? ""),
    h("span", { class: "text" }, event.text));
}
