// What a block does and carries, in figures.

import { h } from "./dom.js";
import * as format from "./format.js";

/// The figures of `page`, a block as REST tells it, as elements.
export function figures(page) {
  const { rates, totals } = page;
  const perFrame = (busy) => format.seconds(totals.works > 0 && busy !== null ? busy / totals.works : null);
  return [
    h("dl", { class: "tiles" },
      tile("frames in", rates && totals.frames_in ? format.frames(rates.frames_in_per_second) : "-", `${format.count(totals.frames_in)} so far`),
      tile("frames out", rates && totals.frames_out ? format.frames(rates.frames_out_per_second) : "-", `${format.count(totals.frames_out)} so far`),
      tile("busy", rates ? format.percent(rates.busy_fraction) : "-", `${perFrame(totals.busy_seconds)} a call`),
      totals.device_busy_seconds !== null &&
        tile("kernels", rates ? format.percent(rates.device_busy_fraction) : "-", `${perFrame(totals.device_busy_seconds)} a call`),
      tile("data in", rates ? format.bits(rates.bytes_in_per_second) : "-", format.si(totals.bytes_in, "B")),
      tile("data out", rates ? format.bits(rates.bytes_out_per_second) : "-", format.si(totals.bytes_out, "B")),
      tile("lost", format.count(totals.losses), `${format.count(totals.faults)} faults`, totals.losses ? "bad" : "")),
    page.text && h("pre", {}, page.text),
    page.outputs.length > 0 && h("h3", {}, "Outputs"),
    page.outputs.map((port) => h("div", { class: "port" },
      h("div", { class: "bar" }, h("strong", {}, port.name), h("span", { class: "to" }, port.to.length ? `→ ${format.short(port.to.join(", "), 48)}` : "not read"),
        h("button", { type: "button", "data-do": "plot", "data-port": port.name }, "Plot"),
        h("button", { type: "button", "data-do": "save", "data-port": port.name, title: "the next frame, for NumPy" }, "Save .npy")),
      carries(port.carries))),
    page.inputs.length > 0 && h("h3", {}, "Inputs"),
    page.inputs.map((port) => h("div", { class: "port" },
      h("div", { class: "bar" }, h("strong", {}, port.name), h("span", { class: "to" }, `← ${port.from}`),
        h("span", { class: "queue" }, `queue ${port.queued_frames}/${port.queue_frames}`)),
      carries(port.carries))),
    page.counters.length > 0 && h("h3", {}, "Counters"),
    page.counters.length > 0 && h("table", { class: "counters" }, h("tbody", {}, page.counters.map((counter) =>
      h("tr", { class: counter.is_loss && counter.count > 0 ? "bad" : "" },
        h("th", { scope: "row" }, counter.name, h("p", { class: "doc" }, counter.help)), h("td", { class: "number" }, format.count(counter.count)))))),
  ];
}

function tile(name, value, more, level = "") {
  return h("div", { class: level }, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "more" }, more));
}

function carries(port) {
  const band = port.band && `${format.si(port.band.centre_hz, "Hz")} ± ${format.si(port.band.bandwidth_hz / 2, "Hz")}, ` +
    `channels ${port.band.first_channel}… of ${port.band.channels}`;
  return h("p", { class: "carries" },
    h("code", {}, `${port.dtype} ${port.axes.map((axis) => `[${axis.name} ${axis.len}]`).join("")}`),
    ` ${format.si(port.frame_bytes, "B")} a frame, ${format.frames(port.frames_per_second)} of signal time`, band && `; ${band}`);
}
