//! Blocks for fxgraph.

pub mod my_block;

use fxgraph::{KindEntry, Registry};

/// The kinds of this crate.
#[must_use]
pub fn kinds() -> Registry {
    Registry::new(vec![KindEntry::of::<my_block::MyBlock>()])
}
