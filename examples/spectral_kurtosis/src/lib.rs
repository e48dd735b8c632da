//! A kind of block outside fxgraph's repository: `spectral_kurtosis`.

pub mod spectral_kurtosis;

use fxgraph::{KindEntry, Registry};
use spectral_kurtosis::SpectralKurtosis;

/// The kinds of this crate.
#[must_use]
pub fn kinds() -> Registry {
    Registry::new(vec![KindEntry::of::<SpectralKurtosis>()])
}
