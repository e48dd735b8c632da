//! Topological order.

/// Topological order of nodes with dependencies, and the cycles among them.
pub(crate) struct Order {
    /// Nodes in order; each comes after all nodes that it needs.
    pub(crate) good: Vec<usize>,
    /// Cycles; each node needs the next one, the last one the first.
    pub(crate) circles: Vec<Vec<usize>>,
    /// Nodes in a cycle, and nodes that depend on one.
    pub(crate) stuck: Vec<usize>,
}

impl Order {
    /// Orders the nodes; node `n` needs the nodes `needs[n]`.
    pub(crate) fn of(needs: &[Vec<usize>]) -> Self {
        let mut waits: Vec<usize> = needs.iter().map(Vec::len).collect();
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); needs.len()];
        for (user, needs) in needs.iter().enumerate() {
            needs.iter().for_each(|need| users[*need].push(user));
        }
        let mut order: Vec<usize> = (0..needs.len()).filter(|at| waits[*at] == 0).collect();
        let mut next = 0;
        while next < order.len() {
            for user in &users[order[next]] {
                waits[*user] -= 1;
                if waits[*user] == 0 {
                    order.push(*user);
                }
            }
            next += 1;
        }
        let stuck: Vec<usize> = (0..needs.len()).filter(|at| waits[*at] > 0).collect();
        let circles = circles(needs, &stuck, &waits);
        Self { good: order, circles, stuck }
    }
}

fn circles(needs: &[Vec<usize>], stuck: &[usize], waits: &[usize]) -> Vec<Vec<usize>> {
    let mut circles = Vec::new();
    // For each node: the walk that met it, and its step in that walk.
    let mut met: Vec<Option<(usize, usize)>> = vec![None; needs.len()];
    for (walk, start) in stuck.iter().enumerate() {
        // A walk from a stuck node to a stuck node that it needs, and so on, ends in a cycle: a new
        // one, or one that an earlier walk met.
        let mut way = Vec::new();
        let mut at = *start;
        while met[at].is_none() {
            met[at] = Some((walk, way.len()));
            way.push(at);
            match needs[at].iter().find(|need| waits[**need] > 0) {
                Some(need) => at = *need,
                None => break,
            }
        }
        if let Some((_, first)) = met[at].filter(|(found, _)| *found == walk) {
            circles.push(way.split_off(first));
        }
    }
    circles
}

#[cfg(test)]
mod tests {
    use super::Order;
    use proptest::prelude::*;

    #[test]
    fn order_finds_each_cycle_once_and_dependents_as_stuck() {
        // 0 and 1 need each other, 2 needs both, 3 needs itself, 5 needs 4.
        let needs = [vec![1], vec![0], vec![0, 1], vec![3], vec![], vec![4, 4]];
        let Order { good: order, circles, stuck } = Order::of(&needs);
        assert_eq!(order, [4, 5]);
        assert_eq!(circles, [vec![0, 1], vec![3]]);
        assert_eq!(stuck, [0, 1, 2, 3]);
    }

    proptest! {
        #[test]
        fn order_puts_nodes_after_their_needs(
            edges in prop::collection::vec((0usize..12, 0usize..12), 0..30)
        ) {
            let mut needs = vec![Vec::new(); 12];
            edges.iter().for_each(|(user, need)| needs[*user].push(*need));
            let Order { good: order, circles, stuck } = Order::of(&needs);
            prop_assert_eq!(order.len() + stuck.len(), 12);
            prop_assert_eq!(stuck.is_empty(), circles.is_empty());
            for (at, thing) in order.iter().enumerate() {
                prop_assert!(needs[*thing].iter().all(|need| order[..at].contains(need)));
            }
            for circle in circles {
                let next = |at: usize| circle[(at + 1) % circle.len()];
                prop_assert!((0..circle.len()).all(|at| needs[circle[at]].contains(&next(at))));
            }
        }
    }
}
