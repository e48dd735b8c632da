//! Kind of block in a separate crate: `spectral_kurtosis`.

pub mod spectral_kurtosis;

use fxgraph::{KindEntry, Registry};
use spectral_kurtosis::SpectralKurtosis;

/// Returns the kinds of this crate.
#[must_use]
pub fn kinds() -> Registry {
    Registry::new(vec![KindEntry::of::<SpectralKurtosis>()])
}
