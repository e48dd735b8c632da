//! Kind of block that runs a filter of FutureSDR: `futuresdr_fir`.

pub mod futuresdr_fir;

use fxgraph::{KindEntry, Registry};

/// Returns the kinds of this crate.
#[must_use]
pub fn kinds() -> Registry {
    Registry::new(vec![KindEntry::of::<futuresdr_fir::FuturesdrFir>()])
}
