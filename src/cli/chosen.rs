//! Parameters that the blocks of a flowgraph have chosen themselves, for users.

use crate::units;
use fxgraph::flowgraph::Plan;
use fxgraph::kind::Chosen;
use serde_json::Value;

/// Chosen parameters, with the blocks that have chosen them: equal ones of replicated blocks are one entry.
pub fn all(plan: &Plan) -> Vec<(String, Chosen)> {
    let mut all: Vec<(Vec<&str>, Chosen)> = Vec::new();
    for block in &plan.blocks {
        for each in block.configured.chosen() {
            match all.iter_mut().find(|(_, known)| *known == each) {
                Some((blocks, _)) => blocks.push(&block.name),
                None => all.push((vec![&block.name], each)),
            }
        }
    }
    let named = |blocks: Vec<&str>| match blocks[..] {
        [first, .., last] => format!("{first} to {last}"),
        _ => blocks.concat(),
    };
    all.into_iter().map(|(blocks, each)| (named(blocks), each)).collect()
}

/// The value, bytes with a unit.
pub fn value(chosen: &Chosen) -> String {
    match &chosen.value {
        Value::Number(bytes) if chosen.parameter.ends_with("_bytes") => {
            units::bytes(bytes.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    }
}

/// A line for the start of a run for each parameter.
pub fn lines(plan: &Plan) -> impl Iterator<Item = String> {
    all(plan).into_iter().map(|(blocks, each)| {
        format!("{blocks}: {} {}: {}", each.parameter, value(&each), each.why)
    })
}
