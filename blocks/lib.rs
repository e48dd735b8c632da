//! The blocks of fxgraph, in families: one directory per kind. They use only the framework's public API, like
//! blocks of other crates.
//!
//! To add a block, create its directory and add `pub mod` to its family's `mod.rs`. The build script registers
//! the kind `BandLimiter` of every directory `band_limiter` that has an `example.yaml`.

pub mod common;
pub mod f_engine;
pub mod frb;
pub mod gnss;
pub mod io;
#[cfg(test)]
mod tests;
pub mod util;
pub mod x_engine;

use fxgraph::{KindEntry, Registry};

/// Returns all kinds in this crate.
#[must_use]
pub fn kinds() -> Registry {
    let kinds = include!(concat!(env!("OUT_DIR"), "/kinds.rs"));
    Registry::new(kinds).with_programs(fxgraph_kernels::PROGRAMS)
}
