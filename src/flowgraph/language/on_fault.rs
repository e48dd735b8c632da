//! Key `on_fault` of a block: action when the block fails.

use crate::language::scope::Substitution;
use crate::text::document::{Entry, wrong_type};
use fxgraph_core::diagnostic::Span;
use fxgraph_core::tree::Node;

/// Action when a block fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFault {
    /// The flowgraph drains and stops, and reports the cause.
    #[default]
    Stop,
    /// The block is created again and continues with its next input frame.
    Restart,
    /// The frame at work is dropped and the block continues; after a panic it is created again.
    Skip,
}

impl OnFault {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Stop, Self::Restart, Self::Skip];

    /// Name in flowgraph files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Restart => "restart",
            Self::Skip => "skip",
        }
    }
    /// Value of `on_fault`, with its place in the file, if it has no error.
    pub(crate) fn read(entry: &Entry, values: &mut Substitution<'_>) -> Option<(Self, Span)> {
        let Some(node) = &entry.on_fault else { return Some((Self::Stop, entry.key.span)) };
        let value = values.node(node)?;
        let found = Self::ALL.into_iter().find(|policy| value.text() == Some(policy.name()));
        if found.is_none() {
            let wrong = Node::new(value.value, node.span);
            values.problems.push(wrong_type(&wrong, "`stop`, `restart` or `skip`"));
        }
        Some((found?, node.span))
    }
}
