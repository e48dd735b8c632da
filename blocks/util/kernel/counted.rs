//! Counters that a kernel file declares.

use super::layout::Layout;
use fxgraph::lock::lock;
use fxgraph::{BlockError, Counter, Env};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Largest number of different texts of counters in the life of the program, and their largest size in bytes.
const MOST_TEXTS: usize = 4096;
const MAX_TEXT_BYTES: usize = 200;

/// Names and descriptions of counters so far.
static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// The same text for the life of the program, as counters want it: a few for each kernel, which are kept.
fn kept(text: &str) -> Option<&'static str> {
    let mut texts = lock(&TEXTS);
    if let Some(known) = texts.get(text) {
        return Some(known);
    }
    if texts.len() == MOST_TEXTS || text.len() > MAX_TEXT_BYTES {
        return None;
    }
    let text: &'static str = text.to_owned().leak();
    texts.insert(text);
    Some(text)
}

/// Creates the counters of the block, in the order of their names.
pub fn counters(layout: &Layout, env: &Env) -> Result<Vec<Counter>, BlockError> {
    let declared = layout.declaration().counters.iter();
    let counter = |(name, help): (&String, &String)| {
        let (Some(name), Some(help)) = (kept(name), kept(help)) else {
            return Err(BlockError::new(format!(
                "the description of the counter `{name}` must have at most {MAX_TEXT_BYTES} bytes, and the program at most \
                 {MOST_TEXTS} different ones"
            )));
        };
        Ok(env.counters.count(name, help))
    };
    declared.map(counter).collect()
}
