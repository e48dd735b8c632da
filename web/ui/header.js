// What an operator needs first: state, configuration, rate against the expected one, losses, what limits.

import * as api from "./api.js";
import { at, h, morph } from "./dom.js";
import { confirm } from "./dialog.js";
import * as format from "./format.js";

const STOP = "Sources finish, and what is queued flows to its end.";
const ABORT = "It ends at once, and what is queued is dropped: files may lack their last frames.";
const AGAIN = { true: "It can be started again from here.", false: "The program ends with it: it cannot be started again from here." };

let isHeld = false;

/// Lets the buttons start and end the flowgraph; `onProblem` hears why it could not be.
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

/// Shows `flowgraph` and `blocks`, as REST tells them.
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
  morph(at("summary"), [...rates(flowgraph), ...margins(flowgraph, blocks), losses(blocks),
    item("for", flowgraph.elapsed_seconds > 0 ? format.seconds(flowgraph.elapsed_seconds) : "-", "time since frames began to move"),
    item("config", flowgraph.config_id.slice(0, 8), `configuration ${flowgraph.config_id}, as headers of frames carry it`, "id"),
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

function rates(flowgraph) {
  const pace = share(flowgraph.graph);
  // Frames do not come evenly: one more or less in a second says nothing.
  const isBehind = pace && pace.expected - pace.rate > Math.max(1.5, 0.03 * pace.expected) ? "warn" : "";
  return [
    item("rate", pace ? format.frames(pace.rate) : "-",
      pace ? `of ${format.frames(pace.expected)} of signal time: ${pace.from}, the slowest source` : "the first rates come after a second", isBehind),
    item("real time", pace ? format.percent(pace.share) : "-", "signal time that passes in a second", isBehind),
  ];
}

function margins({ deadline_margin_fraction: margin, limited_by: limit, lag_seconds: lag, lag_block: lagging }, blocks) {
  const sinks = blocks.filter((block) => block.latency?.frames > 0);
  // None is within the last class: it takes longer than any bound.
  const within = (latency) => latency.within_seconds ?? Infinity;
  const slowest = sinks.reduce((most, { latency }) => Math.max(most, within(latency)), 0);
  const told = ({ name, latency }) => `${name}: ${format.seconds(latency.mean_seconds)} in the mean, 99 % within ${bound(within(latency))}`;
  return [
    item("margin", format.margin(margin), "deadline margin: share of signal time that the slowest block has to spare", margin !== null && margin < 0 ? "warn" : ""),
    item("lag", format.lag(lag), lag === null ? "no frame has come so far" : `behind real time, at ${lagging}`, lag > 2 ? "bad" : ""),
    item("latency", sinks.length > 0 ? `≤ ${bound(slowest)}` : "-", sinks.map(told).join("\n") || "no frame came to a sink so far"),
    item("limited by", limit?.block ?? (limit ? "sources" : "-"), limit?.text ?? "the first rates come after a second", limit?.block ? "warn" : ""),
  ];
}

const bound = (seconds) => (seconds === Infinity ? "more than can be told" : format.seconds(seconds));

function losses(blocks) {
  const lossy = blocks.filter((block) => block.totals.losses);
  const sum = lossy.reduce((sum, block) => sum + block.totals.losses, 0);
  const told = lossy.map((block) => `${block.name}: ${block.totals.losses}`).join("\n");
  return item("lost", format.count(sum), told || "nothing was lost", sum ? "bad" : "");
}

/// The source that is furthest behind signal time; `null` in the first second.
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
