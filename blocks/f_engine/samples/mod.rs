//! Input samples of one antenna, from frames to the windows of spectra or filters, for `pfb`, `ddc` and `f_engine`.
//!
//! - `input`: checks of the input streams
//! - `schedule`: selection of the samples of each spectrum
//! - `pol`, `history`: one polarisation: its delays, and the samples of its input that have arrived
//! - `host`: decoded samples in host memory
//! - `device`, `lending`: samples in device memory, and frames that kernels read directly instead of a copy
//! - `driver`: jobs on a GPU
//! - `power`: power and clipping of the digitiser's samples

pub(crate) mod device;
pub(crate) mod driver;
pub(crate) mod history;
pub(crate) mod host;
pub(crate) mod input;
pub(crate) mod packed_input;
pub(crate) mod pol;
pub(crate) mod power;
pub(crate) mod schedule;
