//! Frames of an output.

use crate::ports::Carries;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Validity of a frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ValidityInfo {
    /// Number of validity units.
    pub units: usize,
    /// Number of complete units.
    pub whole: usize,
    /// Number of partially valid units.
    pub partial: usize,
    /// Number of missing units.
    pub missing: usize,
    /// Count of each unit in the order of `validity_axes`, 0 for a missing one; `null` if all units are complete, or all
    /// are missing.
    #[serde(default)]
    #[schema(required)]
    pub counts: Option<Vec<u32>>,
}

/// Header of a frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// The output: `block.port`.
    #[schema(example = "f[0].pfb.output")]
    pub output: String,
    /// Sequence number at the output, from 0.
    pub sequence: u64,
    /// Timestamp of the first element, in ADC samples since the sync time.
    pub timestamp: u64,
    /// Time of the first element as Unix time in seconds.
    pub unix_time_seconds: f64,
    /// Configuration id, in hexadecimal.
    #[schema(example = "9f2c0d4be1a7583d", pattern = "^[0-9a-f]{16}$")]
    pub config_id: String,
    /// Validity of the payload.
    pub validity: ValidityInfo,
    /// Type of the payload.
    pub carries: Carries,
}

/// A frame with its payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StreamedFrame {
    #[serde(flatten)]
    #[allow(missing_docs)]
    pub header: Snapshot,
    /// The payload as .npy, in Base64.
    #[schema(content_encoding = "base64", content_media_type = "application/octet-stream")]
    pub npy: String,
}
