//! What a block says for itself when the flowgraph has ended.

use std::sync::{Arc, Mutex, PoisonError};

/// A short text of a block, printed under its name after a run; shared between the block and
/// whoever prints it.
#[derive(Clone, Debug, Default)]
pub struct Summary(Arc<Mutex<String>>);

impl Summary {
    /// Replaces the text. Lines end with `\n`; empty says nothing.
    pub fn set(&self, text: impl Into<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text.into();
    }

    /// The text so far.
    #[must_use]
    pub fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
