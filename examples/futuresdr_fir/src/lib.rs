//! A kind of block that hosts a filter of FutureSDR: `futuresdr_fir`.

pub mod futuresdr_fir;

use fxgraph::{KindEntry, Registry};

/// The kinds of this crate.
#[must_use]
pub fn kinds() -> Registry {
    Registry::new(vec![KindEntry::of::<futuresdr_fir::FuturesdrFir>()])
}
