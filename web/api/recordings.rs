//! Recorders and their recordings.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecordingInfo {
    /// Path of the file, on the machine that runs the flowgraph.
    pub path: String,
    /// Number of frames.
    pub frames: u64,
    /// Number of payload bytes.
    pub payload_bytes: u64,
    /// Timestamp of the first frame, in ADC samples since the sync time.
    pub first_timestamp: u64,
    /// Timestamp of the last frame.
    pub last_timestamp: u64,
    /// Number of frames dropped because the disk was too slow.
    pub frames_lost: u64,
    /// Cause of the recording.
    pub cause: String,
}

/// A recorder, which keeps the newest frames of an output in memory, and its recordings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecorderInfo {
    /// Name: a number, or the name of its block.
    #[schema(example = "1")]
    pub name: String,
    /// Recorded output, `block.port`; `null` for a block of the flowgraph.
    #[schema(example = "f[0].pfb.output")]
    pub output: Option<String>,
    /// `waiting` for a trigger, `recording`, `failed` or `ended`.
    #[schema(example = "waiting")]
    pub state: String,
    /// Number of frames in memory.
    pub frames_kept: u64,
    /// Number of frames dropped from recordings because the disk is too slow.
    pub frames_lost: u64,
    /// Number of frames in files.
    pub frames_written: u64,
    /// Recordings, newest last.
    pub recordings: Vec<RecordingInfo>,
    /// Cause of its failure, if any.
    pub fault: Option<String>,
}
