// Folding of replicas: `f[0].pfb`, `f[1].pfb`, ... become `f[*].pfb`.

export const pattern = (name) => name.replace(/\[\d+\]/g, "[*]");

const WORST = ["failed", "stalled", "starting", "running", "finished"];

/// Returns nodes `{ key, name, members, ... }` and edges `{ from, to, members }` to draw; `isFolded` merges replicas
/// of the same kind on the same device into one node. Edges between the same two nodes are always merged.
export function fold({ blocks, edges }, isFolded) {
  const nodes = new Map();
  const keys = new Map();
  for (const block of blocks) {
    const key = isFolded ? `${pattern(block.name)} ${block.kind} ${block.device}` : block.name;
    keys.set(block.name, key);
    if (!nodes.has(key)) nodes.set(key, { key, kind: block.kind, device: block.device, members: [] });
    nodes.get(key).members.push(block);
  }
  for (const node of nodes.values()) {
    node.name = node.members.length > 1 ? pattern(node.members[0].name) : node.members[0].name;
    node.state = WORST.find((state) => node.members.some((block) => block.state === state)) ?? node.members[0].state;
    node.busy = Math.max(...node.members.map((block) => block.busy_fraction ?? 0));
  }
  const between = new Map();
  for (const edge of edges) {
    const [from, to] = [keys.get(edge.from), keys.get(edge.to)];
    const key = `${from}\n${to}`;
    if (!between.has(key)) between.set(key, { key, from, to, members: [] });
    between.get(key).members.push(edge);
  }
  return { nodes: [...nodes.values()], edges: [...between.values()] };
}
