//! Texts of the configurations of a flowgraph, for files that state which configuration made their data.

use crate::lock::lock;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Limit of the texts that are kept, in bytes that one text has more than the text added before it.
const MAX_BYTES: usize = 64 << 20;
/// Limit of the number of texts.
const MAX_TEXTS: usize = 4096;

/// A part of a text, such as a block. Texts share the parts, and the pieces of a part, that are equal.
pub type TextPart = Arc<[Arc<str>]>;

/// Resolved text of a flowgraph with one set of values, and its hash. Cheap to clone.
#[derive(Clone)]
pub struct FlowgraphText {
    /// SHA-256 over the hashes of the flowgraph's parts, in hexadecimal.
    pub config_hash: String,
    parts: Arc<[TextPart]>,
    print: fn(&[TextPart]) -> String,
}

impl FlowgraphText {
    /// The text that `print` makes of `parts`.
    #[must_use]
    pub fn new(
        config_hash: impl Into<String>,
        parts: impl Into<Arc<[TextPart]>>,
        print: fn(&[TextPart]) -> String,
    ) -> Self {
        Self { config_hash: config_hash.into(), parts: parts.into(), print }
    }

    /// The text `yaml` in one part.
    #[must_use]
    pub fn plain(config_hash: impl Into<String>, yaml: &str) -> Self {
        let part: TextPart = Arc::from([Arc::from(yaml)]);
        Self::new(config_hash, [part], |parts| parts.concat().concat())
    }

    /// Its parts.
    #[must_use]
    pub fn parts(&self) -> &[TextPart] {
        &self.parts
    }

    /// The resolved flowgraph, as YAML; it is printed at each call.
    #[must_use]
    pub fn yaml(&self) -> String {
        (self.print)(&self.parts)
    }

    /// Bytes that this text has more than `before`: those of pieces that they do not share, and of the list of parts.
    fn bytes_beyond(&self, before: Option<&Self>) -> usize {
        let known = |index: usize| before.and_then(|before| before.parts.get(index));
        let of_part = |(index, part): (usize, &TextPart)| match known(index) {
            Some(known) if Arc::ptr_eq(known, part) => 0,
            known => {
                let known = known.map_or(&[][..], |known| &known[..]);
                let is_known = |piece: &&Arc<str>| known.iter().any(|one| Arc::ptr_eq(one, piece));
                let own = part.iter().filter(|piece| !is_known(piece));
                size_of_val(&**part) + own.map(|piece| piece.len()).sum::<usize>()
            }
        };
        size_of_val(&*self.parts) + self.parts.iter().enumerate().map(of_part).sum::<usize>()
    }
}

/// No text.
impl Default for FlowgraphText {
    fn default() -> Self {
        Self { config_hash: String::new(), parts: Arc::from([]), print: |_| String::new() }
    }
}

impl fmt::Debug for FlowgraphText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FlowgraphText").field(&self.config_hash).finish()
    }
}

/// Texts of a flowgraph by `config_id`: of past configurations, the one in force and scheduled ones. Cheap to clone;
/// clones share the texts. The oldest ones beyond 64 MiB are dropped, where equal parts of successive texts count once.
#[derive(Clone, Default)]
pub struct FlowgraphTexts(Arc<Mutex<Texts>>);

#[derive(Default)]
struct Texts {
    /// `config_id`, the text, and its bytes beyond those of the text added before it; the oldest first.
    kept: VecDeque<(u64, FlowgraphText, usize)>,
    bytes: usize,
}

impl Texts {
    /// Removes a text. The parts that the next one shared with it count for the next one from then on.
    fn remove(&mut self, at: usize) {
        self.bytes -= self.kept.remove(at).map_or(0, |(.., bytes)| bytes);
        let before = at.checked_sub(1).map(|before| &self.kept[before].1);
        let Some((_, text, counted)) = self.kept.get(at) else { return };
        let (more, counted) = (text.bytes_beyond(before), *counted);
        self.kept[at].2 = more;
        self.bytes = self.bytes + more - counted;
    }
}

impl FlowgraphTexts {
    /// Adds the text of `config_id` as the newest one.
    pub fn add(&self, config_id: u64, text: FlowgraphText) {
        let mut texts = lock(&self.0);
        if let Some(known) = texts.kept.iter().position(|(known, ..)| *known == config_id) {
            texts.remove(known);
        }
        let more = text.bytes_beyond(texts.kept.back().map(|(_, newest, _)| newest));
        texts.kept.push_back((config_id, text, more));
        texts.bytes += more;
        while (texts.bytes > MAX_BYTES && texts.kept.len() > 1) || texts.kept.len() > MAX_TEXTS {
            texts.remove(0);
        }
    }

    /// Text of `config_id`, the number in frame headers; `None` if unknown.
    #[must_use]
    pub fn get(&self, config_id: u64) -> Option<FlowgraphText> {
        let texts = lock(&self.0);
        let text = texts.kept.iter().rev().find(|(known, ..)| *known == config_id);
        text.map(|(_, text, _)| text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_beyond_the_limit_drop_the_oldest_ones() {
        let texts = FlowgraphTexts::default();
        let text = |letter: &str| FlowgraphText::plain(letter, &letter.repeat(MAX_BYTES / 4));
        for (id, letter) in [(1, "a"), (2, "b"), (3, "c"), (1, "a"), (4, "d")] {
            texts.add(id, text(letter));
        }
        let hash = |id| texts.get(id).map(|text| text.config_hash);
        assert_eq!(hash(2), None);
        let kept = [3, 1, 4].map(|id| hash(id).unwrap_or_default());
        assert_eq!(kept, ["c", "a", "d"]);
    }

    #[test]
    fn shared_parts_of_texts_count_once() {
        let texts = FlowgraphTexts::default();
        let large: Arc<str> = Arc::from("a".repeat(MAX_BYTES / 2));
        for id in 0..MAX_TEXTS as u64 + 10 {
            let part: TextPart = Arc::from([Arc::clone(&large), id.to_string().into()]);
            texts.add(id, FlowgraphText::new("", [part], |parts| parts[0][1].to_string()));
        }
        assert_eq!(texts.get(9).map(|text| text.yaml()), None);
        assert_eq!(texts.get(10).map(|text| text.yaml()), Some("10".to_owned()));
        assert!(texts.0.lock().unwrap().bytes < MAX_BYTES);
    }
}
