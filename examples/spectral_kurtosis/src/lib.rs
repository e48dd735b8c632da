//! Kind of block in a separate crate: `kurtosis_flagger`.

pub mod kurtosis_flagger;

use fxgraph::{KindEntry, Registry};
use kurtosis_flagger::KurtosisFlagger;

/// Returns the kinds of this crate.
#[must_use]
pub fn kinds() -> Registry {
    Registry::new(vec![KindEntry::of::<KurtosisFlagger>()])
}
