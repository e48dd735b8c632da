//! A drawing with the replicas of a block as one node, and their edges as one.

use crate::replicas::{Group as Replicas, groups, is_folded, together};
use fxgraph::flowgraph::draw::{Drawing, Edge, Group, Node};
use std::collections::HashMap;

/// Returns `drawing` with its replicas folded, unless `all` is set or it has few blocks.
pub fn folded(drawing: &Drawing, all: bool) -> Drawing {
    if !is_folded(drawing.nodes.len(), all) {
        return drawing.clone();
    }
    let (templates, group_of) = templates(drawing);
    let alike = |node: &Node| format!("{} {}", node.kind, node.device);
    let folded = groups(&drawing.nodes, true, |node| (&node.name, alike(node)));
    let node_of: HashMap<&str, usize> = folded
        .iter()
        .enumerate()
        .flat_map(|(at, group)| group.members.iter().map(move |node| (node.name.as_str(), at)))
        .collect();
    let node_of = |index: usize| node_of[drawing.nodes[index].name.as_str()];
    let edges = edges(drawing, node_of);
    let nodes = folded.iter().map(|group| node(group, &group_of)).collect();
    Drawing { name: drawing.name.clone(), nodes, groups: templates, edges }
}

/// The node of replicas.
fn node(Replicas { name, members }: &Replicas<'_, Node>, group_of: &[usize]) -> Node {
    let hosts: Vec<&str> = members.iter().filter_map(|node| node.host.as_deref()).collect();
    Node {
        name: name.clone(),
        group: members[0].group.map(|group| group_of[group]),
        host: (!hosts.is_empty()).then(|| together(&hosts)),
        ..members[0].clone()
    }
}

/// Uses of templates with replicas folded, and the new index of each.
fn templates(drawing: &Drawing) -> (Vec<Group>, Vec<usize>) {
    let folded = groups(&drawing.groups, true, |group| (&group.name, group.template.clone()));
    let index_of: HashMap<&str, usize> = folded
        .iter()
        .enumerate()
        .flat_map(|(at, group)| group.members.iter().map(move |one| (one.name.as_str(), at)))
        .collect();
    let index_of: Vec<usize> =
        drawing.groups.iter().map(|group| index_of[group.name.as_str()]).collect();
    let named = folded.into_iter().map(|Replicas { name, members }| Group {
        name,
        parent: members[0].parent.map(|parent| index_of[parent]),
        template: members[0].template.clone(),
    });
    (named.collect(), index_of)
}

/// Edges between folded nodes; those between the same two nodes are one.
fn edges(drawing: &Drawing, node_of: impl Fn(usize) -> usize) -> Vec<Edge> {
    let mut merged: Vec<(Edge, usize, Vec<&str>)> = Vec::new();
    let mut known = HashMap::new();
    for edge in &drawing.edges {
        let (from, to) = (node_of(edge.from), node_of(edge.to));
        let key = (from, to, &edge.output, &edge.carries, edge.when_full);
        let at = *known.entry(key).or_insert(merged.len());
        if at == merged.len() {
            let first = Edge { from, to, bytes_per_second: 0.0, ..edge.clone() };
            merged.push((first, 0, Vec::new()));
        }
        let (one, count, inputs) = &mut merged[at];
        one.bytes_per_second += edge.bytes_per_second;
        *count += 1;
        inputs.push(&edge.input);
    }
    let finish = |(edge, count, inputs): (Edge, usize, Vec<&str>)| Edge {
        input: together(&inputs),
        carries: if count > 1 { format!("{count} x {}", edge.carries) } else { edge.carries },
        ..edge
    };
    merged.into_iter().map(finish).collect()
}
