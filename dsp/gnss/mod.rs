//! Signals of navigation satellites: their codes, their phases as integers, and the arithmetic that
//! takes carrier and code off the samples.

pub mod codes;
pub mod correlate;
pub mod moments;
pub mod phase;
pub mod planes;
pub mod replica;
pub mod satellite;
pub mod system;

pub use correlate::{BLOCK_SAMPLES, Correlator};
pub use phase::Nco;
pub use planes::Planes;
pub use replica::Replica;
pub use satellite::Satellite;
pub use system::System;
