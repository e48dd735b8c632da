// Entry point of the page: requests the flowgraph once a second, and updates all parts.

import * as api from "./api.js";
import { Block } from "./block.js";
import { Board } from "./board.js";
import { askToken, tell } from "./dialog.js";
import { at, h } from "./dom.js";
import { Graph } from "./graph.js";
import * as header from "./header.js";
import { Log } from "./log.js";
import { Panel } from "./panel.js";
import { offerThemes } from "./themes.js";
import { Whole } from "./whole.js";

const INTERVAL_MS = 1000;
const forever = new AbortController().signal;

api.onToken(askToken);
offerThemes(at("theme"));
const refuse = (error) => tell("The request failed", [error.message, ...(error.help ?? [])].join("; "));
header.listen(refuse);

const board = new Board();
const panel = new Panel({
  onSelect: (name) => graph.select(name),
  onClose() {
    graph.select(null);
    graph.focus();
  },
});
const graph = new Graph((replicas, name) => openBlock(replicas, name));
at("whole").addEventListener("click", () => open(new Whole((block, tab) => openBlock([block], block, { tab }))));

function open(subject, tab) {
  panel.open(subject, tab).catch(refuse);
}

function openBlock(replicas, name = replicas[0], { tab, isTogether } = {}) {
  const onPick = (other) => openBlock(replicas, other, { isTogether: false });
  open(new Block(replicas, name, { onPlot: (block, port) => board.offer(block, port), onPick, isTogether }), tab);
}

let hasEnded = false;
let isLost = false;
let elapsed = 0;

const log = new Log((event) => {
  if (event.kind === "ended") hasEnded = true;
});
log.follow(forever);

function alarm(text) {
  at("alarm").textContent = text;
  at("alarm").hidden = !text;
}

function showFaults(faults) {
  at("faults").hidden = faults.length === 0;
  at("faults").replaceChildren(...faults.slice(-5).map((fault) =>
    h("p", {}, h("button", { type: "button", onclick: () => openBlock([fault.block]) }, fault.block), ` ${fault.is_panic ? "panicked" : "failed"}: ${fault.cause}`)));
}

let shownFaults = "";

async function look() {
  const [flowgraph, blocks, shadows, recorders] = await Promise.all(["/flowgraph", "/blocks", "/shadows", "/recorders"].map((path) => api.ask(path)));
  // Another run responds at this address, so all data of the page are invalid.
  if (flowgraph.elapsed_seconds < elapsed || (hasEnded && isLost)) return location.reload();
  isLost = false;
  hasEnded &&= !["starting", "running"].includes(flowgraph.state);
  elapsed = flowgraph.elapsed_seconds;
  header.show(flowgraph, blocks);
  graph.show({ flowgraph, blocks, shadows, recorders });
  board.show(flowgraph);
  const faults = JSON.stringify(flowgraph.faults);
  if (faults !== shownFaults) showFaults(flowgraph.faults);
  shownFaults = faults;
  await panel.refresh({ flowgraph, blocks, shadows, recorders });
}

async function watch() {
  for (;;) {
    try {
      await look();
      document.body.classList.remove("stale");
      alarm("");
    } catch (error) {
      isLost = true;
      document.body.classList.add("stale");
      header.showState(hasEnded ? "ended" : "disconnected");
      if (hasEnded) alarm("The flowgraph has ended. The page continues when another flowgraph responds at this address.");
      else if (error instanceof api.Problem) alarm(error.message);
      else if (error instanceof TypeError) alarm("No response from the server; retrying. The data shown are out of date.");
      else throw error;
    }
    await new Promise((done) => setTimeout(done, INTERVAL_MS));
  }
}
watch();
