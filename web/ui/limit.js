// Which block limits the flowgraph.

const BUSY = 0.9;
const FULL = 0.75;

/// `{ name, text }` of the block that the others wait for: one that works nearly all the time, or whose inputs are
/// full while none of its readers' are; `null` if frames flow as fast as they come.
export function limit({ graph }) {
  const fills = (edges) => edges.map((edge) => edge.queued_frames / Math.max(1, edge.queue_frames));
  const told = graph.blocks.map((block) => ({
    name: block.name,
    busy: block.busy_fraction ?? 0,
    // Who has an empty input waits for that one, however full the others are.
    waiting: Math.min(1, ...fills(graph.edges.filter((edge) => edge.to === block.name))),
    ahead: Math.max(0, ...fills(graph.edges.filter((edge) => edge.from === block.name))),
    isSource: !graph.edges.some((edge) => edge.to === block.name),
  }));
  const percent = (share) => `${(100 * share).toFixed(0)} %`;
  const held = told.filter((block) => block.ahead < FULL && (block.busy >= BUSY || (!block.isSource && block.waiting >= FULL)));
  const worst = held.sort((one, other) => other.busy + other.waiting - one.busy - one.waiting)[0];
  if (!worst) return null;
  return { name: worst.name, text: `works ${percent(worst.busy)} of the time, its inputs are ${percent(worst.waiting)} full` };
}
