//! The blocks of fxgraph, in families: one directory per kind. They use the framework's public API
//! only, as blocks of other crates would.
//!
//! A block is added by its directory and `pub mod` in its family's `mod.rs`. The build script registers the kind
//! `BandLimiter` of every directory `band_limiter` that has an `example.yaml`.

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

/// All kinds in this crate.
#[must_use]
pub fn kinds() -> Registry {
    let kinds = include!(concat!(env!("OUT_DIR"), "/kinds.rs"));
    Registry::new(kinds).with_programs(fxgraph_kernels::PROGRAMS)
}
