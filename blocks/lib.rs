//! The blocks of fxgraph, in families: one directory per kind. They use only the framework's public API, like
//! blocks of other crates.
//!
//! To add a block, create its directory and add `pub mod` to its family's `mod.rs`. The build script registers
//! the kind `BandLimiter` of every directory `band_limiter` that has an `example.yaml`, unless its module needs a Cargo
//! feature that is off. The tests need the default features.

// Without some families, not everything that families share is used.
#![cfg_attr(
    not(all(
        feature = "f_engine",
        feature = "files",
        feature = "frb",
        feature = "gnss",
        feature = "x_engine"
    )),
    allow(dead_code)
)]

pub use fxgraph_common as common;
#[cfg(feature = "f_engine")]
pub mod f_engine;
#[cfg(feature = "frb")]
pub mod frb;
#[cfg(feature = "gnss")]
pub mod gnss;
pub mod io;
#[cfg(feature = "radio")]
pub use fxgraph_radio as radio;
#[cfg(test)]
mod tests;
pub mod util;
#[cfg(feature = "x_engine")]
pub mod x_engine;

use fxgraph::{KindEntry, Registry};

/// Returns all kinds in this crate.
#[must_use]
pub fn kinds() -> Registry {
    let (kinds, absent) = include!(concat!(env!("OUT_DIR"), "/kinds.rs"));
    Registry::new(kinds).with_absent(absent).with_programs(fxgraph_kernels::PROGRAMS)
}
