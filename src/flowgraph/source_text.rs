//! The original text of a flowgraph.

use super::Plan;
use std::sync::Arc;

/// The original text, and the configuration hash of its plan.
#[derive(Clone, Debug)]
pub(super) struct Written {
    text: Arc<str>,
    config_hash: String,
}

impl Plan {
    /// Stores `text` as the original text of this plan.
    pub(super) fn is_written(&mut self, text: &str) {
        let (text, config_hash) = (Arc::from(text), self.config_hash.clone());
        self.written = Some(Written { text, config_hash });
    }

    /// The original text with comments, if it still describes the plan: no parameter was set from outside, and no
    /// change since then is in effect.
    #[must_use]
    pub fn written_yaml(&self) -> Option<&str> {
        let written = self.written.as_ref()?;
        (written.config_hash == self.config_hash).then_some(&*written.text)
    }
}
