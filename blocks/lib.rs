//! The blocks of fxgraph, in families: one directory per kind. They use the framework's public API
//! only, as blocks of other crates would.
//!
//! Adding a block: its directory in a family, and in the family's `mod.rs` a `pub mod` and an entry.

pub mod common;
pub mod f_engine;
pub mod frb;
pub mod gnss;
pub mod io;
#[cfg(test)]
mod tests;
pub mod util;
pub mod x_engine;

use fxgraph::Registry;

/// All kinds in this crate.
#[must_use]
pub fn kinds() -> Registry {
    let families = [
        f_engine::kinds(),
        frb::kinds(),
        gnss::kinds(),
        io::kinds(),
        util::kinds(),
        x_engine::kinds(),
    ];
    let kinds = families.into_iter().flatten().collect();
    Registry::new(kinds).with_programs(fxgraph_kernels::PROGRAMS)
}
