// What an operator needs first: state, configuration, rate against the expected one, losses, what limits.

import * as api from "./api.js";
import { at, h, morph } from "./dom.js";
import { confirm } from "./dialog.js";
import * as format from "./format.js";

const STOP = "Sources finish, and what is queued flows to its end. It cannot be begun again from here.";
const ABORT = "It ends at once, and what is queued is dropped: files may lack their last frames.";

/// Lets the buttons stop the flowgraph; `onProblem` hears why it could not be.
export function listen(onProblem) {
  const end = (id, verb, title, text) => at(id).addEventListener("click", async () => {
    if (!(await confirm(title, text, verb))) return;
    try {
      await api.post(`/flowgraph/${id}`);
    } catch (error) {
      onProblem(error);
    }
  });
  end("stop", "Stop", "Stop the flowgraph?", STOP);
  end("abort", "Abort", "Abort the flowgraph?", ABORT);
}

/// Shows it; `limit` is `{ name, text }` or `null`.
export function show(flowgraph, blocks, limit) {
  document.title = `${flowgraph.name} · fxgraph`;
  morph(at("name"), [flowgraph.name]);
  at("name").title = flowgraph.doc ?? "";
  showState(flowgraph.state);
  const ends = ["running", "starting"].includes(flowgraph.state);
  at("stop").disabled = !ends;
  at("abort").disabled = !(ends || flowgraph.state === "draining");
  const pace = share(flowgraph.graph);
  // Frames do not come evenly: one more or less in a second says nothing.
  const isBehind = pace && pace.expected - pace.rate > Math.max(1.5, 0.03 * pace.expected) ? "warn" : "";
  const losses = blocks.reduce((sum, block) => sum + block.totals.losses, 0);
  const lossy = blocks.filter((block) => block.totals.losses).map((block) => `${block.name}: ${block.totals.losses}`);
  morph(at("summary"), [
    item("rate", pace ? `${format.si(pace.rate, "")} of ${format.si(pace.expected, "fr/s")}` : "-",
      pace ? `frames of ${pace.from}, the slowest source against signal time` : "the first rates come after a second", isBehind),
    item("real time", pace ? format.percent(pace.share) : "-", "signal time that passes in a second", isBehind),
    item("limited by", limit?.name ?? "-", limit?.text ?? "nothing is at its limit", limit ? "warn" : ""),
    item("lost", format.count(losses), lossy.join("\n") || "nothing was lost", losses ? "bad" : ""),
    item("for", format.seconds(flowgraph.elapsed_seconds), "time since frames began to move"),
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
