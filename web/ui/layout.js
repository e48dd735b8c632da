// Layout of a graph in layers from top to bottom (Sugiyama's method): each node below its inputs, near
// its neighbours, with few crossings.

const SWEEPS = 12;

/// Returns columns (centres, in units of a node's width with its gap) and rows of `nodes` (`key`) joined by `edges` (`key`, `from`, `to`):
/// `{ places: Map key of a node -> { column, row }, bends: Map key of an edge -> [{ column, row }], columns, rows }`. A long
/// edge bends where it passes a layer.
export function layout(nodes, edges) {
  const rows = layers(nodes, edges);
  const { lines, chains } = withBends(nodes, edges, rows);
  order(lines);
  const columns = spread(lines);
  const places = new Map(nodes.map(({ key }) => [key, { column: columns.get(key), row: rows.get(key) }]));
  const bends = new Map();
  for (const [key, chain] of chains) {
    bends.set(key, chain.map(({ key, row }) => ({ column: columns.get(key), row })));
  }
  const widest = Math.max(0, ...[...columns.values()]);
  return { places, bends, columns: widest + 1, rows: lines.length };
}

/// Row of each node: one below its lowest input; a source is directly above its reader.
function layers(nodes, edges) {
  const into = new Map(nodes.map(({ key }) => [key, []]));
  const outOf = new Map(nodes.map(({ key }) => [key, []]));
  for (const { from, to } of edges) {
    if (from === to) continue;
    into.get(to).push(from);
    outOf.get(from).push(to);
  }
  const rows = new Map();
  const row = (key, above) => {
    if (!rows.has(key)) {
      // A cycle, which folding may create, is cut where it closes.
      const feeding = into.get(key).filter((from) => !above.has(from));
      above.add(key);
      rows.set(key, Math.max(-1, ...feeding.map((from) => row(from, above))) + 1);
      above.delete(key);
    }
    return rows.get(key);
  };
  for (const { key } of nodes) row(key, new Set());
  for (const { key } of nodes) {
    if (into.get(key).length === 0 && outOf.get(key).length > 0) {
      rows.set(key, Math.max(0, Math.min(...outOf.get(key).map((to) => rows.get(to))) - 1));
    }
  }
  return rows;
}

/// Rows as lists of items `{ key, row, up, down }`, with an item for every row that an edge passes.
function withBends(nodes, edges, rows) {
  const lines = Array.from({ length: Math.max(0, ...rows.values()) + 1 }, () => []);
  const items = new Map();
  const add = (key, row) => {
    const item = { key, row, up: [], down: [] };
    lines[row].push(item);
    items.set(key, item);
    return item;
  };
  for (const { key } of nodes) add(key, rows.get(key));
  const chains = new Map();
  for (const edge of edges) {
    const [first, last] = [rows.get(edge.from), rows.get(edge.to)];
    const chain = [];
    let above = items.get(edge.from);
    for (let row = first + 1; row < last; row += 1) {
      const bend = add(`${edge.key}\n${row}`, row);
      join(above, bend);
      chain.push(bend);
      above = bend;
    }
    if (last > first) join(above, items.get(edge.to));
    chains.set(edge.key, chain);
  }
  return { lines, chains };
}

function join(above, below) {
  above.down.push(below);
  below.up.push(above);
}

const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;

/// Orders each row by the mean positions of its neighbours in the row above and below, alternately. A position is a share of the row, since
/// rows differ in length.
function order(lines) {
  const number = (line) => line.forEach((item, place) => (item.place = (place + 0.5) / line.length));
  lines.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const side = sweep % 2 === 0 ? "up" : "down";
    for (const line of sweep % 2 === 0 ? lines : [...lines].reverse()) {
      for (const item of line) {
        item.wish = item[side].length ? mean(item[side].map((other) => other.place)) : item.place;
      }
      line.sort((one, other) => one.wish - other.wish);
      number(line);
    }
  }
}

/// Columns near the mean of the neighbours in the row above and below, alternately; at least one apart, in the order of each row.
function spread(lines) {
  for (const line of lines) line.forEach((item, place) => (item.column = place - (line.length - 1) / 2));
  for (let sweep = 0; sweep <= SWEEPS; sweep += 1) {
    const side = sweep % 2 === 0 ? "up" : "down";
    for (const line of side === "up" ? lines : [...lines].reverse()) {
      const wishes = line.map((item) => (item[side].length ? mean(item[side].map((other) => other.column)) : item.column));
      apart(wishes).forEach((column, index) => (line[index].column = column));
    }
  }
  const left = Math.min(0, ...lines.flat().map((item) => item.column));
  return new Map(lines.flat().map((item) => [item.key, item.column - left]));
}

/// The numbers nearest to `wishes` (least squares) such that successive numbers differ by at least one:
/// pools colliding ones (isotonic regression).
function apart(wishes) {
  const pools = [];
  wishes.forEach((wish, index) => {
    let pool = { sum: wish - index, size: 1 };
    while (pools.length && pools.at(-1).sum / pools.at(-1).size > pool.sum / pool.size) {
      const before = pools.pop();
      pool = { sum: before.sum + pool.sum, size: before.size + pool.size };
    }
    pools.push(pool);
  });
  return pools.flatMap(({ sum, size }) => Array(size).fill(sum / size)).map((base, index) => base + index);
}
