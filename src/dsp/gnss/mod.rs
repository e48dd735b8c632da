//! Signals of navigation satellites: codes, phases as integers, and correlation of samples with carrier and
//! code.

pub mod acquisition;
pub mod codes;
pub mod correlate;
pub mod moments;
pub mod phase;
pub mod planes;
pub mod replica;
pub mod satellite;
pub mod signals;
pub mod subcarrier;
pub mod system;

pub use correlate::{BLOCK_SAMPLES, Correlator};
pub use phase::Nco;
pub use planes::Planes;
pub use replica::Replica;
pub use satellite::Satellite;
pub use subcarrier::Subcarrier;
pub use system::{Carriers, System};
