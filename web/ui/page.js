"use strict";
// Shows the flowgraph and its blocks, once a second; all it knows comes from the REST API.
const at = (id) => document.getElementById(id);
let token = "";

async function ask(path) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { headers });
  at("token").hidden = response.status !== 401;
  if (!response.ok) throw new Error((await response.json()).detail);
  return response.json();
}

function cell(row, text, name = "") {
  const cell = row.insertCell();
  cell.textContent = text;
  cell.className = name;
}

const number = (value, digits) => (value === undefined ? "-" : value.toFixed(digits));

function show(flowgraph, blocks) {
  document.title = at("name").textContent = flowgraph.name;
  at("state").textContent = at("state").className = flowgraph.state;
  at("elapsed").textContent = `for ${flowgraph.elapsed_seconds.toFixed(0)} s, configuration ${flowgraph.config_id}`;
  at("doc").textContent = flowgraph.doc ?? "";
  const waiting = new Map();
  for (const edge of flowgraph.graph.edges) {
    waiting.set(edge.to, [...(waiting.get(edge.to) ?? []), `${edge.queued_frames}/${edge.queue_frames}`]);
  }
  const body = document.createElement("tbody");
  body.id = "blocks";
  for (const block of blocks) {
    const row = body.insertRow();
    const rates = block.rates ?? {};
    const link = document.createElement("a");
    link.href = `/api/v1/blocks/${encodeURIComponent(block.name)}`;
    link.textContent = block.name;
    row.insertCell().append(link);
    cell(row, block.kind);
    cell(row, block.device);
    cell(row, block.state, block.state);
    const isSource = !waiting.has(block.name);
    cell(row, number(isSource ? rates.frames_out_per_second : rates.frames_in_per_second, 1), "number");
    const bytes = Math.max(rates.bytes_in_per_second, rates.bytes_out_per_second) / 1e6;
    cell(row, number(block.rates ? bytes : undefined, 1), "number");
    cell(row, block.rates ? `${(100 * rates.busy_fraction).toFixed(0)} %` : "-", "number");
    cell(row, (waiting.get(block.name) ?? ["-"]).join(" "), "number");
    cell(row, block.totals.losses, block.totals.losses ? "number lost" : "number");
  }
  at("blocks").replaceWith(body);
  at("faults").replaceChildren(...flowgraph.faults.map((fault) => {
    const item = document.createElement("li");
    item.textContent = `${fault.block}: ${fault.cause}`;
    return item;
  }));
}

async function look() {
  try {
    show(...await Promise.all([ask("/api/v1/flowgraph"), ask("/api/v1/blocks")]));
  } catch (error) {
    at("state").className = "gone";
    at("state").textContent = error instanceof TypeError ? "gone: nothing answers" : error.message;
  }
  setTimeout(look, 1000);
}

at("token").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").querySelector("input").value;
});
look();
