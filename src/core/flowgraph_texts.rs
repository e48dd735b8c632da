//! Texts of the configurations of a flowgraph, for files that state which configuration made their data.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Limit of the texts that are kept, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// Resolved text of a flowgraph with one set of values, and its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowgraphText {
    /// SHA-256 over `yaml`, in hexadecimal.
    pub config_hash: String,
    /// The resolved flowgraph, as YAML.
    pub yaml: Arc<str>,
}

/// Texts of a flowgraph by `config_id`: of past configurations, the one in force and scheduled ones. Cheap to clone;
/// clones share the texts. The oldest ones beyond 64 MiB are dropped.
#[derive(Clone, Default)]
pub struct FlowgraphTexts(Arc<Mutex<VecDeque<(u64, FlowgraphText)>>>);

impl FlowgraphTexts {
    /// Adds the text of `config_id` as the newest one.
    pub fn add(&self, config_id: u64, text: FlowgraphText) {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        texts.retain(|(known, _)| *known != config_id);
        texts.push_back((config_id, text));
        let mut bytes: usize = texts.iter().map(|(_, text)| text.yaml.len()).sum();
        while bytes > MAX_BYTES && texts.len() > 1 {
            bytes -= texts.pop_front().map_or(0, |(_, text)| text.yaml.len());
        }
    }

    /// Text of `config_id`, the number in frame headers; `None` if unknown.
    #[must_use]
    pub fn get(&self, config_id: u64) -> Option<FlowgraphText> {
        let texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        texts.iter().find(|(known, _)| *known == config_id).map(|(_, text)| text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_beyond_the_limit_drop_the_oldest_ones() {
        let texts = FlowgraphTexts::default();
        let text = |letter: &str| FlowgraphText {
            config_hash: letter.to_owned(),
            yaml: Arc::from(letter.repeat(MAX_BYTES / 3)),
        };
        for (id, letter) in [(1, "a"), (2, "b"), (3, "c"), (1, "a"), (4, "d")] {
            texts.add(id, text(letter));
        }
        let hash = |id| texts.get(id).map(|text| text.config_hash);
        assert_eq!(hash(2), None);
        let kept = [3, 1, 4].map(|id| hash(id).unwrap_or_default());
        assert_eq!(kept, ["c", "a", "d"]);
    }
}
