//! VDIF: the VLBI data interchange format, release 1.1.1.
//!
//! A file is a sequence of frames. A frame has a header of 16 bytes (legacy) or 32 bytes and a payload of samples in
//! offset binary, the first sample in the least significant bits of little-endian 32-bit words. Frames of several
//! threads, such as polarisations, may be in one file.

mod header;
mod reader;
mod samples;
mod time;

pub use header::{Header, HeaderError, MAX_FRAME_BYTES, SYNC, station};
pub use reader::{Reader, Step};
pub use samples::{
    BITS, HIGH_LEVEL, THRESHOLD, flip_encoding, is_width, middle_fraction, nominal_rms, pack,
    unpack,
};
pub use time::{
    EPOCHS, Grid, epoch_of, epoch_seconds, epoch_time, frames_per_second, payload_sizes, time_of,
};
