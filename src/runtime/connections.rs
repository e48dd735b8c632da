//! Connections between the parts of an assembly.

use crate::report::StartError;
use crate::slot_counts::SlotBlock;
use fxgraph_flowgraph::{Assembly, Part};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Options for a run of an [`Assembly`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Worker threads for the blocks without a thread of their own; 0 means the number of cores.
    pub workers: usize,
    /// `config_id` in frame headers.
    pub config_id: u64,
}

/// Ends of an edge, as numbers of parts and ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub from: usize,
    pub output: usize,
    pub to: usize,
    pub input: usize,
}

/// Returns all connections of `assembly`, after a check that each edge has one writer and one reader and was never
/// part of another run.
pub(crate) fn connections(assembly: &Assembly) -> Result<Vec<Connection>, StartError> {
    let mut names = HashSet::new();
    let mut readers = HashMap::new();
    for (to, part) in assembly.parts.iter().enumerate() {
        if !names.insert(part.name.as_str()) {
            return Err(reject(part, "another block has the same name"));
        }
        if part.wake.is_set() {
            return Err(reject(part, "the block was part of another run"));
        }
        if part.inputs.len() != part.ports.inputs.len()
            || part.outputs.len() != part.ports.outputs.len()
        {
            return Err(reject(part, "the edges do not match the ports"));
        }
        for (input, edge) in part.inputs.iter().enumerate() {
            if edge.reader.is_set() || edge.writer.is_set() {
                return Err(reject(part, format!("input {input} was part of another run")));
            }
            if readers.insert(Arc::as_ptr(edge), (to, input)).is_some() {
                let reason = format!("input {input} shares its edge with another input");
                return Err(reject(part, reason));
            }
        }
    }
    let mut connections = Vec::with_capacity(readers.len());
    for (from, part) in assembly.parts.iter().enumerate() {
        for (output, port) in part.outputs.iter().enumerate() {
            for edge in &port.edges {
                let Some((to, input)) = readers.remove(&Arc::as_ptr(edge)) else {
                    let reason = format!("output {output} writes an edge without another reader");
                    return Err(reject(part, reason));
                };
                if to == from {
                    let reason = format!("output {output} is connected to the block itself");
                    return Err(reject(part, reason));
                }
                connections.push(Connection { from, output, to, input });
            }
        }
    }
    match readers.values().min() {
        Some(&(to, input)) => {
            Err(reject(&assembly.parts[to], format!("no block writes input {input}")))
        }
        None => Ok(connections),
    }
}

/// State that moves with the block of `part` in a swap.
pub(crate) fn slot_block(part: &Part) -> SlotBlock {
    SlotBlock {
        kind: part.kind,
        counters: part.counters.clone(),
        summary: part.summary.clone(),
        events: part.events.clone(),
        on_fault: part.on_fault,
        rebuild: part.rebuild.clone(),
        pools: part.outputs.iter().map(|output| output.pool.as_ref().map(Arc::downgrade)).collect(),
    }
}

fn reject(part: &Part, reason: impl Into<String>) -> StartError {
    StartError::Wiring { block: part.name.clone(), reason: reason.into() }
}
