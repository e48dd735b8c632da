//! Products of all pairs of inputs, summed over time. An input is one polarisation of one
//! antenna: number polarisations x antenna + polarisation.

pub mod floats;
pub mod kernel;
mod packing;
#[cfg(target_arch = "x86_64")]
mod packing_x86;
mod tiles;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use kernel::{Geometry, Kernel};
pub use packing::{Words, spread};
pub use tiles::Tiles;
