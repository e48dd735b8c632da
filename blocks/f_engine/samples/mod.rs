//! Samples of one antenna on their way from frames to the spectra, or filtered samples, that are made of them: what
//! `pfb`, `ddc` and `f_engine` share.
//!
//! - `input`: which streams can be read
//! - `schedule`: which samples each spectrum needs, and when they are there
//! - `pol`, `history`: one polarisation: its delays, and which samples of its input are there
//! - `host`: samples in host memory, decoded
//! - `device`, `lending`: samples in device memory, and frames that are lent to kernels instead of copied
//! - `driver`: the order of a GPU's jobs
//! - `power`: what is measured on the digitiser's samples

pub(crate) mod device;
pub(crate) mod driver;
pub(crate) mod history;
pub(crate) mod host;
pub(crate) mod input;
pub(crate) mod lending;
pub(crate) mod pol;
pub(crate) mod power;
pub(crate) mod schedule;
