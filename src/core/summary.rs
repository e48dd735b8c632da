//! Text that a block reports when the flowgraph has ended.

use crate::lock::lock;
use std::sync::{Arc, Mutex};

/// A short text of a block, printed under its name after a run. It is shared between the block and
/// the program that prints it.
#[derive(Clone, Debug, Default)]
pub struct Summary(Arc<Mutex<String>>);

impl Summary {
    /// Replaces the text. Lines end with `\n`; an empty text prints nothing.
    pub fn set(&self, text: impl Into<String>) {
        *lock(&self.0) = text.into();
    }

    /// The text so far.
    #[must_use]
    pub fn get(&self) -> String {
        lock(&self.0).clone()
    }
}
