//! The text that a flowgraph was read from.

use super::Plan;
use std::sync::Arc;

/// A text, and what it says.
#[derive(Clone, Debug)]
pub(super) struct Written {
    text: Arc<str>,
    config_hash: String,
}

impl Plan {
    /// Notes that `text` says all of this plan.
    pub(super) fn is_written(&mut self, text: &str) {
        let (text, config_hash) = (Arc::from(text), self.config_hash.clone());
        self.written = Some(Written { text, config_hash });
    }

    /// The text that it was read from, comments and all, if that says what it is: none of its parameters was set
    /// from outside, and nothing has been changed since, or all of it back.
    #[must_use]
    pub fn written_yaml(&self) -> Option<&str> {
        let written = self.written.as_ref()?;
        (written.config_hash == self.config_hash).then_some(&*written.text)
    }
}
