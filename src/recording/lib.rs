//! Frames in files, and a memory of the frames that came before.
//!
//! A recording holds frames bit for bit, as NumPy arrays with the frames along their first axis: payloads
//! (`data`), `sequence`, `timestamp`, `config_id`, `validity`, a `checksum` of each frame, and a table for
//! each annotation. A JSON side file says what they are and where they came from. A recording grows frame by
//! frame and can be read at any time.
//!
//! The checksum of a frame is the CRC-32 (that of zlib) over its rows of `sequence`, `timestamp`, `config_id`,
//! `validity`, of the annotations by name (those that are not all NaN), and of `data`.
//!
//! # Layout
//! - [`array`](mod@array): one array that grows, and the header of one that is read
//! - [`side_file`]: what the arrays are
//! - `json`: a side file of unknown origin
//! - `files`: a recording that grows
//! - `options`: what is asked of a recorder
//! - `budget`: what recordings may take of a disk
//! - `ring`: the newest frames of a stream in memory
//! - `recorder`: what of a stream is recorded, and when
//! - `writing`: its thread, from memory to files

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
pub use files::{DESCRIPTION, RecordingWriter, try_folder, try_path};
pub use fxgraph_core::recorders::Recorders;
pub use options::{EventTrigger, Loud, PLACEHOLDER, RecorderOptions, Trigger};
pub use recorder::{Recorded, Recorder, RecorderState, RecorderStatus};
pub use side_file::SideFile;

// The derive macros name the crate `fxgraph`, which re-exports all that they need of this one.
extern crate fxgraph_core as fxgraph;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The checksum of a frame while it is made: CRC-32 as in zlib.
#[derive(Default)]
pub struct Checksum(crc32fast::Hasher);

impl Checksum {
    /// Goes on with `bytes`.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    #[must_use]
    pub fn value(self) -> u32 {
        self.0.finalize()
    }
}

/// A panic elsewhere leaves plain data behind, which is still worth reading.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
