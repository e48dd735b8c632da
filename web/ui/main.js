// Puts the page together: looks at the flowgraph once a second, and tells its parts.

import * as api from "./api.js";
import { Board } from "./board.js";
import { askToken } from "./dialog.js";
import { at, h } from "./dom.js";
import { Graph } from "./graph.js";
import * as header from "./header.js";
import { limit } from "./limit.js";
import { Log } from "./log.js";
import { Panel } from "./panel.js";
import { offerThemes } from "./themes.js";

const INTERVAL_MS = 1000;
const forever = new AbortController().signal;

api.onToken(askToken);
offerThemes(at("theme"));
header.listen((error) => alarm(error.message));

const board = new Board();
const panel = new Panel({
  onPlot: (block, port) => board.offer(block, port),
  onSelect: (name) => graph.select(name),
  onClose() {
    graph.select(null);
    graph.focus();
  },
});
const graph = new Graph((names) => panel.open(names).catch((error) => alarm(error.message)));
let hasEnded = false;
let elapsed = 0;

const log = new Log((event) => {
  if (event.kind === "ended") hasEnded = true;
});
log.follow(forever);

function alarm(text) {
  at("lost").textContent = text;
  at("lost").hidden = !text;
}

function showFaults(faults) {
  at("faults").hidden = faults.length === 0;
  at("faults").replaceChildren(...faults.slice(-5).map((fault) =>
    h("p", {}, h("button", { type: "button", onclick: () => panel.open([fault.block]) }, fault.block), ` ${fault.is_panic ? "panicked" : "failed"}: ${fault.cause}`)));
}

let shownFaults = "";

async function look() {
  const [flowgraph, blocks] = await Promise.all([api.ask("/flowgraph"), api.ask("/blocks")]);
  // Another run answers at this address: nothing that the page knows is of it.
  if (flowgraph.elapsed_seconds < elapsed || hasEnded) return location.reload();
  elapsed = flowgraph.elapsed_seconds;
  const limiting = limit(flowgraph);
  header.show(flowgraph, blocks, limiting);
  graph.show(flowgraph, blocks, limiting?.name);
  board.show(flowgraph);
  const faults = JSON.stringify(flowgraph.faults);
  if (faults !== shownFaults) showFaults(flowgraph.faults);
  shownFaults = faults;
  await panel.refresh();
}

async function watch() {
  for (;;) {
    try {
      await look();
      document.body.classList.remove("stale");
      alarm("");
    } catch (error) {
      document.body.classList.add("stale");
      header.showState(hasEnded ? "ended" : "lost");
      if (hasEnded) alarm("The flowgraph has ended. The page goes on when another one answers here.");
      else if (error instanceof api.Problem) alarm(error.message);
      else if (error instanceof TypeError) alarm("The connection is lost: nothing answers. Trying again; what is shown is old.");
      else throw error;
    }
    await new Promise((done) => setTimeout(done, INTERVAL_MS));
  }
}
watch();
