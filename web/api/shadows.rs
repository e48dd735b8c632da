//! Shadows of blocks.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A shadow, with the results so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShadowInfo {
    /// Name of the block.
    #[schema(example = "f[0].pfb")]
    pub block: String,
    /// Kind of the shadow.
    #[schema(example = "pfb")]
    pub kind: String,
    /// Implementation of the shadow.
    #[schema(example = "cpu")]
    pub implementation: String,
    /// Parameters.
    #[schema(value_type = Object)]
    pub parameters: Value,
    /// Reason for its end, if ended: a fault, or a frame that differs.
    pub ended: Option<String>,
    /// Number of compared pairs of frames, which have the same timestamp and validity.
    pub frames_compared: u64,
    /// Number of differing pairs of frames.
    pub frames_different: u64,
    /// Number of frames without a counterpart of the same timestamp and validity, which may have been dropped.
    pub frames_alone: u64,
    /// Number of frames dropped because the shadow or the comparison was too slow.
    pub frames_dropped: u64,
    /// Number of valid values in the pairs.
    pub values_compared: u64,
    /// Number of differing values.
    pub values_different: u64,
    /// Fraction of differing values.
    pub different_fraction: f64,
    /// Largest magnitude of a difference; `null` if not finite.
    #[schema(value_type = f64)]
    pub max_difference: Option<f64>,
    /// Root mean square of the magnitudes of all differences; `null` if not finite.
    #[schema(value_type = f64)]
    pub rms_difference: Option<f64>,
    /// Index of the output with the first differing pair of frames; see `first_difference` for the arrays.
    pub first_difference_output: Option<usize>,
    /// Timestamp of the first differing pair, in ADC samples since the sync time.
    pub first_difference_timestamp: Option<u64>,
    /// Processing time of the block per frame, while the shadow runs.
    pub seconds_per_frame: Option<f64>,
    /// Processing time of the shadow per frame.
    pub shadow_seconds_per_frame: Option<f64>,
    /// Memory of the block and of its output frames.
    pub memory_bytes: usize,
    /// Memory of the shadow and of its output frames.
    pub shadow_memory_bytes: usize,
    /// Memory of the comparison.
    pub comparison_memory_bytes: usize,
}
