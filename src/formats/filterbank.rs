//! SIGPROC filterbank: detected spectra, of pulsar and FRB searches.
//!
//! A file is a header of keywords and values, then one spectrum after the other: `[spectrum][IF][channel]`, without
//! gaps. Everything is little-endian.

mod angle;
mod header;
mod samples;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)] // values are exact
mod tests;

pub use angle::{declination, right_ascension};
pub use header::{Header, HeaderError, MAX_SPECTRUM_BYTES};
pub use samples::{Quantiser, unpack};
