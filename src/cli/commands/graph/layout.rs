//! Layout of a graph in layers from top to bottom (Sugiyama's method): each node below its inputs, near its neighbours,
//! with few crossings. The rules are those of the page (`web/ui/layout.js`), which has the same picture.

const SWEEPS: usize = 12;

/// Columns (centres, in units of a node's width with its gap) and rows.
pub struct Placed {
    /// Place of each node.
    pub nodes: Vec<Place>,
    /// Places where each edge passes a row, from top to bottom.
    pub bends: Vec<Vec<Place>>,
    pub columns: f64,
    pub rows: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Place {
    pub column: f64,
    pub row: usize,
}

/// A node, or an edge that passes a row.
#[derive(Clone, Default)]
struct Item {
    place: Place,
    /// Position in its row, as a fraction: rows differ in length.
    share: f64,
    up: Vec<usize>,
    down: Vec<usize>,
}

/// Places nodes `0..nodes` joined by `edges`, pairs of them.
pub fn layout(nodes: usize, edges: &[(usize, usize)]) -> Placed {
    let rows = layers(nodes, edges);
    let count = rows.iter().max().map_or(0, |last| last + 1);
    let mut lines: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut items = Vec::new();
    for &row in &rows {
        add(&mut items, &mut lines, row);
    }
    let mut chains = Vec::new();
    for &(from, to) in edges {
        let mut above = from;
        let mut chain = Vec::new();
        for row in rows[from] + 1..rows[to] {
            let bend = add(&mut items, &mut lines, row);
            join(&mut items, above, bend);
            chain.push(bend);
            above = bend;
        }
        if rows[to] > rows[from] {
            join(&mut items, above, to);
        }
        chains.push(chain);
    }
    order(&mut items, &mut lines);
    spread(&mut items, &lines);
    let left = items.iter().map(|item| item.place.column).fold(0.0, f64::min);
    items.iter_mut().for_each(|item| item.place.column -= left);
    Placed {
        columns: items.iter().map(|item| item.place.column).fold(0.0, f64::max) + 1.0,
        nodes: items[..nodes].iter().map(|item| item.place).collect(),
        bends: chains
            .iter()
            .map(|chain| chain.iter().map(|at| items[*at].place).collect())
            .collect(),
        rows: count,
    }
}

fn add(items: &mut Vec<Item>, lines: &mut [Vec<usize>], row: usize) -> usize {
    items.push(Item { place: Place { column: 0.0, row }, ..Item::default() });
    lines[row].push(items.len() - 1);
    items.len() - 1
}

fn join(items: &mut [Item], above: usize, below: usize) {
    items[above].down.push(below);
    items[below].up.push(above);
}

/// Row of each node: one below its lowest input; a source is directly above its reader.
fn layers(nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let (mut into, mut out_of) = (vec![Vec::new(); nodes], vec![Vec::new(); nodes]);
    for &(from, to) in edges.iter().filter(|(from, to)| from != to) {
        into[to].push(from);
        out_of[from].push(to);
    }
    let (mut rows, mut above) = (vec![None; nodes], vec![false; nodes]);
    let mut found: Vec<usize> =
        (0..nodes).map(|node| row(node, &into, &mut rows, &mut above)).collect();
    for node in 0..nodes {
        if into[node].is_empty()
            && let Some(reader) = out_of[node].iter().map(|to| found[*to]).min()
        {
            found[node] = reader.saturating_sub(1);
        }
    }
    found
}

/// Row of `node`. A cycle, which folding may create, is cut where it closes: at a node of `above`.
fn row(node: usize, into: &[Vec<usize>], rows: &mut [Option<usize>], above: &mut [bool]) -> usize {
    if let Some(known) = rows[node] {
        return known;
    }
    above[node] = true;
    let feeding: Vec<usize> = into[node].iter().copied().filter(|from| !above[*from]).collect();
    let lowest = feeding.into_iter().map(|from| row(from, into, rows, above) + 1).max();
    above[node] = false;
    rows[node] = Some(lowest.unwrap_or(0));
    lowest.unwrap_or(0)
}

/// Neighbours of an item in the row above (even sweeps) or below.
fn side(item: &Item, sweep: usize) -> &[usize] {
    if sweep.is_multiple_of(2) { &item.up } else { &item.down }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let count = values.len();
    (count > 0).then(|| values.sum::<f64>() / count as f64)
}

/// Rows in the order of a sweep: from top to bottom, or back.
fn sweep_of(rows: usize, sweep: usize) -> Box<dyn Iterator<Item = usize>> {
    if sweep.is_multiple_of(2) { Box::new(0..rows) } else { Box::new((0..rows).rev()) }
}

/// Orders each row by the mean positions of its neighbours in the row above and below, alternately.
fn order(items: &mut [Item], lines: &mut [Vec<usize>]) {
    let number = |items: &mut [Item], line: &[usize]| {
        for (at, item) in line.iter().enumerate() {
            items[*item].share = (at as f64 + 0.5) / line.len() as f64;
        }
    };
    lines.iter().for_each(|line| number(items, line));
    for sweep in 0..SWEEPS {
        for at in sweep_of(lines.len(), sweep) {
            let wish = |item: &usize| {
                let item = &items[*item];
                mean(side(item, sweep).iter().map(|other| items[*other].share))
                    .unwrap_or(item.share)
            };
            let mut wishes: Vec<(f64, usize)> =
                lines[at].iter().map(|item| (wish(item), *item)).collect();
            wishes.sort_by(|one, other| one.0.total_cmp(&other.0));
            lines[at] = wishes.into_iter().map(|(_, item)| item).collect();
            number(items, &lines[at]);
        }
    }
}

/// Columns near the mean of the neighbours in the row above and below, alternately; at least one apart, in the order of
/// each row.
fn spread(items: &mut [Item], lines: &[Vec<usize>]) {
    for line in lines {
        for (at, item) in line.iter().enumerate() {
            items[*item].place.column = at as f64 - (line.len() - 1) as f64 / 2.0;
        }
    }
    for sweep in 0..=SWEEPS {
        for at in sweep_of(lines.len(), sweep) {
            let wish = |item: &usize| {
                let item = &items[*item];
                let others = side(item, sweep).iter().map(|other| items[*other].place.column);
                mean(others).unwrap_or(item.place.column)
            };
            let wishes: Vec<f64> = lines[at].iter().map(wish).collect();
            for (item, column) in lines[at].iter().zip(apart(&wishes)) {
                items[*item].place.column = column;
            }
        }
    }
}

/// The numbers nearest to `wishes` (least squares) such that successive numbers differ by at least one: pools colliding
/// ones (isotonic regression).
fn apart(wishes: &[f64]) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for (index, wish) in wishes.iter().enumerate() {
        let mut pool = (wish - index as f64, 1);
        while let Some(&(sum, size)) = pools.last()
            && sum / size as f64 > pool.0 / pool.1 as f64
        {
            pools.pop();
            pool = (sum + pool.0, size + pool.1);
        }
        pools.push(pool);
    }
    let bases = pools.into_iter().flat_map(|(sum, size)| vec![sum / size as f64; size]);
    bases.enumerate().map(|(index, base)| base + index as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_below_their_inputs_and_at_least_one_apart() {
        // Two chains that meet, a long edge, and a source of the last node.
        let edges = [(0, 2), (1, 3), (2, 4), (3, 4), (4, 5), (0, 5), (6, 5)];
        let placed = layout(7, &edges);
        let rows: Vec<usize> = placed.nodes.iter().map(|place| place.row).collect();
        assert_eq!(rows, [0, 0, 1, 1, 2, 3, 2]);
        assert_eq!(placed.bends[5].iter().map(|bend| bend.row).collect::<Vec<_>>(), [1, 2]);
        let all = placed.nodes.iter().chain(placed.bends.iter().flatten());
        let places: Vec<&Place> = all.collect();
        for (at, one) in places.iter().enumerate() {
            for other in places[at + 1..].iter().filter(|other| other.row == one.row) {
                assert!((one.column - other.column).abs() > 1.0 - 1e-9, "{one:?} {other:?}");
            }
        }
        assert!(places.iter().all(|place| place.column >= 0.0 && place.column < placed.columns));
    }

    #[test]
    fn cycle_is_cut_and_no_nodes_have_no_rows() {
        assert_eq!(layout(0, &[]).rows, 0);
        let placed = layout(3, &[(0, 1), (1, 2), (2, 1), (1, 1)]);
        assert!(placed.nodes[1].row > placed.nodes[0].row);
    }

    #[test]
    fn chain_is_a_straight_line() {
        let placed = layout(3, &[(0, 1), (1, 2)]);
        assert!(placed.nodes.iter().all(|place| place.column == 0.0));
    }
}
