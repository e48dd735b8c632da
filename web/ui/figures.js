// Statistics of a block.

import * as api from "./api.js";
import { h, morph } from "./dom.js";
import * as format from "./format.js";

/// Statistics of `page`, a block from the REST API: `{ element, show(page) }`; `onPlot(port)` adds a plot of an
/// output.
export function figures(page, onPlot) {
  const element = h("div", { onclick: (event) => click(event, page.name, onPlot) });
  const show = (now) => morph(element, told(now));
  show(page);
  return { element, show };
}

async function click({ target }, name, onPlot) {
  const button = target.closest("button");
  const { do: action, port } = button?.dataset ?? {};
  if (action === "plot") return onPlot(port);
  if (action !== "save") return;
  button.disabled = true;
  try {
    await api.downloadFrame(name, port);
    button.title = "";
  } catch (error) {
    button.title = error.message;
    button.textContent = "not saved";
  } finally {
    button.disabled = false;
  }
}

function told(page) {
  const { rates, totals } = page;
  const share = (name) => (rates ? format.percent(rates[name]) : "-");
  const flow = (name, total) => tile(name, rates && total ? format.frames(rates[`frames_${name.split(" ")[1]}_per_second`]) : "-", `${format.count(total)} so far`);
  return [
    h("dl", { class: "tiles" },
      page.inputs.length > 0 && flow("frames in", totals.frames_in),
      page.outputs.length > 0 && flow("frames out", totals.frames_out),
      page.inputs.length > 0 && tile("data in", rates ? format.bits(rates.bytes_in_per_second) : "-", format.si(totals.bytes_in, "B")),
      page.outputs.length > 0 && tile("data out", rates ? format.bits(rates.bytes_out_per_second) : "-", format.si(totals.bytes_out, "B")),
      tile("works", share("busy_fraction"), perFrame(page, "busy")),
      (page.threads ?? []).map((thread) => tile(`thread ${thread.name}`, thread.busy_fraction === null ? "-" : format.percent(thread.busy_fraction), `${format.seconds(thread.busy_seconds)} so far`)),
      totals.device_busy_seconds !== null && tile("kernels", share("device_busy_fraction"), perFrame(page, "device_busy")),
      tile(page.inputs.length > 0 ? "waits for input" : "waits for data", share("input_wait_fraction"), "of the time"),
      tile("waits for output", share("room_wait_fraction"), "output queues are full", rates?.room_wait_fraction > 0.1 ? "warn" : ""),
      page.latency && tile("latency", `≤ ${format.seconds(page.latency.within_seconds)}`, `99th percentile; mean ${format.seconds(page.latency.mean_seconds)}`),
      page.lag_seconds !== null && tile("lag", format.lag(page.lag_seconds), "behind real time", page.lag_seconds > 2 ? "bad" : ""),
      page.sample_age_seconds !== null && tile("sample age", format.seconds(page.sample_age_seconds), "newest sample"),
      tile("drops", format.count(totals.losses), `${format.count(totals.faults)} faults`, totals.losses ? "bad" : "")),
    page.text && h("pre", {}, page.text),
    page.outputs.length > 0 && h("h3", {}, "Outputs"),
    page.outputs.map((port) => h("div", { class: "port" },
      h("div", { class: "bar" }, h("strong", {}, port.name), h("span", { class: "to" }, port.to.length ? `→ ${format.short(port.to.join(", "), 48)}` : "not connected"),
        h("button", { type: "button", "data-do": "plot", "data-port": port.name }, "Plot"),
        h("button", { type: "button", "data-do": "save", "data-port": port.name, title: "saves the next frame as .npy" }, "Save .npy")),
      carries(port.carries))),
    page.inputs.length > 0 && h("h3", {}, "Inputs"),
    page.inputs.map((port) => h("div", { class: "port" },
      h("div", { class: "bar" }, h("strong", {}, port.name), h("span", { class: "to" }, `← ${port.from}`),
        h("span", { class: "queue" }, `queue ${format.queue(port)}`)),
      carries(port.carries))),
    page.gauges.some((gauge) => gauge.value !== null) && h("h3", {}, "Gauges"),
    page.gauges.some((gauge) => gauge.value !== null) && h("table", { class: "counters" }, h("tbody", {}, page.gauges.filter((gauge) => gauge.value !== null).map((gauge) =>
      h("tr", {},
        h("th", { scope: "row" }, gauge.label ? `${gauge.name} ${gauge.label} ${gauge.label_value}` : gauge.name, h("p", { class: "doc" }, gauge.help)),
        h("td", { class: "number" }, String(Number.isInteger(gauge.value) ? gauge.value : Number(gauge.value.toPrecision(6)))))))),
    page.counters.length > 0 && h("h3", {}, "Counters"),
    page.counters.length > 0 && h("table", { class: "counters" }, h("tbody", {}, page.counters.map((counter) =>
      h("tr", { class: counter.is_loss && counter.count > 0 ? "bad" : "" },
        h("th", { scope: "row" }, counter.name, h("p", { class: "doc" }, counter.help)), h("td", { class: "number" }, format.count(counter.count)))))),
  ];
}

/// Time per frame over the last second, for one frame of each input, or of each output of a source.
function perFrame({ rates, inputs, outputs }, what) {
  if (!rates) return "";
  const frames = inputs.length > 0 ? rates.frames_in_per_second / inputs.length : rates.frames_out_per_second / Math.max(1, outputs.length);
  return frames > 0 ? `${format.seconds(rates[`${what}_fraction`] / frames)} per frame` : "";
}

export function tile(name, value, more, level = "") {
  return h("div", { class: level }, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "more" }, more));
}

function carries(port) {
  const band = port.band && `${format.around(port.band.centre_hz, port.band.bandwidth_hz / 2, "Hz")} ± ${format.si(Math.abs(port.band.bandwidth_hz) / 2, "Hz")}, ` +
    `channels ${port.band.first_channel}… of ${port.band.channels}` +
    (port.band.bandwidth_hz < 0 ? ", inverted spectrum" : "");
  return h("p", { class: "carries" },
    h("code", {}, `${port.dtype} ${port.axes.map((axis) => `[${axis.name} ${axis.len}]`).join("")}`),
    ` ${format.si(port.frame_bytes, "B")} per frame, ${format.frames(port.frames_per_second)} of signal time`, band && `; ${band}`);
}
