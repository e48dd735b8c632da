//! Key `thread` of a block.

use crate::language::scope::Substitution;
use crate::text::document::{Entry, wrong_type};
use fxgraph_core::tree::Value;

/// Thread that a block runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thread {
    /// The worker threads, shared with other blocks.
    #[default]
    Shared,
    /// A thread of its own, optionally pinned to one core.
    Own {
        /// Number of the core.
        core: Option<usize>,
    },
}

impl Thread {
    /// Value of `thread`, if it has no error.
    pub(crate) fn read(entry: &Entry, values: &mut Substitution<'_>) -> Option<Self> {
        let Some(node) = &entry.thread else { return Some(Self::Shared) };
        let value = values.node(node)?;
        match &value.value {
            Value::Text(word) if word == "shared" => return Some(Self::Shared),
            Value::Text(word) if word == "own" => return Some(Self::Own { core: None }),
            Value::Map(entries) if entries.len() == 1 && entries[0].0.text == "core" => {
                if let Some(core @ 0..=4095) = entries[0].1.value.whole() {
                    return Some(Self::Own { core: Some(core as usize) });
                }
            }
            _ => {}
        }
        values.problems.push(wrong_type(node, "`shared`, `own` or `{core: N}`"));
        None
    }
}
