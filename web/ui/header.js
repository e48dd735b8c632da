// Header: state, configuration, rate, lag, latency, missing data and bottleneck.

import * as api from "./api.js";
import { at, h, morph } from "./dom.js";
import { confirm } from "./dialog.js";
import * as format from "./format.js";

const STOP = "Sources stop, and queued frames are processed.";
const ABORT = "The flowgraph stops at once, and queued frames are dropped: files may lack their last frames.";
const AGAIN = { true: "It can be started again from here.", false: "The program ends with the flowgraph, which cannot be started again from here." };

let isHeld = false;

/// Connects the buttons that start and stop the flowgraph; `onProblem` is called if a request fails.
export function listen(onProblem) {
  const press = (id, title, text) => at(id).addEventListener("click", async () => {
    if (title && !(await confirm(title, `${text} ${AGAIN[isHeld]}`, at(id).textContent))) return;
    try {
      await api.post(`/flowgraph/${id}`);
    } catch (error) {
      onProblem(error);
    }
  });
  press("start");
  press("stop", "Stop the flowgraph?", STOP);
  press("abort", "Abort the flowgraph?", ABORT);
}

/// Shows `flowgraph` and `blocks` from the REST API.
export function show(flowgraph, blocks) {
  document.title = `${flowgraph.name} · fxgraph`;
  morph(at("name"), [flowgraph.name]);
  at("name").title = flowgraph.doc ?? "";
  isHeld = flowgraph.is_held;
  showState(flowgraph.state);
  const ends = ["running", "starting"].includes(flowgraph.state);
  const isStill = ["prepared", "ended", "failed"].includes(flowgraph.state);
  at("whole").disabled = false;
  at("start").hidden = !(isStill && isHeld);
  at("stop").hidden = at("abort").hidden = isStill && isHeld;
  at("stop").disabled = !ends;
  at("abort").disabled = !(ends || flowgraph.state === "draining");
  morph(at("summary"), [...progress(flowgraph), ...stalls(flowgraph), ...rates(flowgraph), ...margins(flowgraph, blocks), losses(blocks),
    item("for", flowgraph.elapsed_seconds > 0 ? format.seconds(flowgraph.elapsed_seconds) : "-", "time since the first frame"),
    item("config", flowgraph.config_id.slice(0, 8), `configuration id ${flowgraph.config_id}, as in frame headers`, "id"),
  ]);
  morph(at("version"), [`fxgraph ${flowgraph.version}`]);
}

export function showState(state) {
  const element = at("state");
  morph(element, [state]);
  element.className = `state ${state.split(" ")[0]}`;
}

function item(name, value, title, level = "") {
  return h("div", { title, class: level }, h("dt", {}, name), h("dd", { "data-figure": name }, value));
}

/// How far the start has come; nothing once all blocks have started.
const progress = ({ starting }) => (starting ? [item("start", format.short(starting, 90), starting)] : []);

/// Blocks that no frame passes, and why; nothing while frames pass.
function stalls({ stalls }) {
  if (!stalls.length) return [];
  const why = stalls.map(({ block, reason, silent_seconds: silent }) => `${block}: no frame for ${format.seconds(silent)}, ${reason}`);
  const more = stalls.length > 1 ? ` and ${stalls.length - 1} more` : "";
  return [item("no frames", `${format.short(stalls[0].block, 18)}${more}`, why.join("\n"), "bad")];
}

function rates(flowgraph) {
  const pace = share(flowgraph.graph);
  // Frames arrive unevenly, so a difference of one frame per second is tolerated.
  const isBehind = pace && pace.expected - pace.rate > Math.max(1.5, 0.03 * pace.expected) ? "warn" : "";
  return [
    item("rate", pace ? format.frames(pace.rate) : "-",
      pace ? `of ${format.frames(pace.expected)} of signal time: ${pace.from}, the slowest source` : "no rates in the first second", isBehind),
    item("real time", pace ? format.percent(pace.share) : "-", "signal time per second of real time", isBehind),
  ];
}

function margins({ deadline_margin_fraction: margin, limited_by: limit, lag_seconds: lag, lag_block: lagging }, blocks) {
  const sinks = blocks.filter((block) => block.latency?.frames > 0);
  // Without a bound, the latency exceeds the last bin.
  const within = (latency) => latency.within_seconds ?? Infinity;
  const slowest = sinks.reduce((most, { latency }) => Math.max(most, within(latency)), 0);
  const told = ({ name, latency }) => `${name}: mean ${format.seconds(latency.mean_seconds)}, 99th percentile ${bound(within(latency))}`;
  return [
    item("margin", format.margin(margin), "deadline margin: headroom of the slowest block, as a fraction of signal time", margin !== null && margin < 0 ? "warn" : ""),
    item("lag", [format.lag(lag), lagging && h("small", {}, ` ${format.short(lagging, 18)}`)],
      lag === null ? "no frame so far" : `behind real time, at ${lagging}`, lag > 2 ? "bad" : ""),
    item("latency", sinks.length > 0 ? `≤ ${bound(slowest)}` : "-", sinks.map(told).join("\n") || "no frame at a sink so far"),
    item("limited by", limit?.block ?? (limit ? "sources" : "-"), limit?.text ?? "no rates in the first second", limit?.block ? "warn" : ""),
  ];
}

const bound = (seconds) => (seconds === Infinity ? "above the largest bound" : format.seconds(seconds));

function losses(blocks) {
  const lossy = blocks.filter((block) => block.totals.losses);
  const sum = lossy.reduce((sum, block) => sum + block.totals.losses, 0);
  const told = lossy.map((block) => `${block.name}: ${block.totals.losses}`).join("\n");
  return item("drops", format.count(sum), told || "no missing or dropped data", sum ? "bad" : "");
}

/// The slowest source relative to signal time; `null` in the first second.
function share({ blocks, edges }) {
  const fed = new Set(edges.map((edge) => edge.to));
  const sources = new Set(blocks.map((block) => block.name).filter((name) => !fed.has(name)));
  const known = edges.filter((edge) => sources.has(edge.from) && edge.frames_per_second !== null && edge.expected_frames_per_second > 0);
  const shares = known.map((edge) => ({
    share: edge.frames_per_second / edge.expected_frames_per_second,
    rate: edge.frames_per_second, expected: edge.expected_frames_per_second, from: edge.from,
  }));
  return shares.length ? shares.reduce((least, one) => (one.share < least.share ? one : least)) : null;
}
