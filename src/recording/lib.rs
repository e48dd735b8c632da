//! Recordings of frames in files, and a ring buffer of the newest frames.
//!
//! A recording stores frames bit for bit, as NumPy arrays with the frames along their first axis: payloads
//! (`data`), `sequence`, `timestamp`, `config_id`, `validity`, a `checksum` of each frame, and a table for
//! each annotation. A JSON side file describes the arrays and their origin. A recording grows frame by
//! frame and can be read at any time.
//!
//! The checksum of a frame is the CRC-32 of zlib over its rows of `sequence`, `timestamp`, `config_id`,
//! `validity`, of the annotations in the order of their names (those that are not all NaN), and of `data`.
//!
//! # Layout
//! - [`array`](mod@array): writer of a growing `.npy` array, and reader of its header
//! - [`side_file`]: description of the arrays
//! - `json`: reader of side files of unknown origin
//! - `files`: writer of a recording
//! - `options`: options of a recorder
//! - `budget`: limits on the disk space of recordings
//! - `ring`: ring buffer of the newest frames of a stream
//! - `recorder`: recorder of a stream around triggers
//! - `writing`: thread of a recorder, from memory to files

pub mod array;
mod budget;
mod files;
mod json;
mod options;
mod recorder;
mod ring;
pub mod side_file;
mod writing;

pub use budget::Budget;
pub use budget::used_bytes;
pub use files::{DESCRIPTION, RecordingWriter, try_directory, try_path};
pub use fxgraph_core::recorders::Recorders;
pub use options::{EventTrigger, Loud, PLACEHOLDER, RecorderOptions, Trigger};
pub use recorder::{Recorded, Recorder, RecorderState, RecorderStatus};
pub use side_file::{SideFile, StreamType};

// The derive macros refer to the crate `fxgraph`, which re-exports everything that they need.
extern crate fxgraph_core as fxgraph;

use fxgraph_core::lock::lock;

/// Incremental checksum of a frame: CRC-32 as in zlib.
#[derive(Default)]
pub struct Checksum(crc32fast::Hasher);

impl Checksum {
    /// Adds `bytes` to the checksum.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum of all bytes so far.
    #[must_use]
    pub fn value(self) -> u32 {
        self.0.finalize()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
