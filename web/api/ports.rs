//! Ports, and types of their frames.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One axis of a frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AxisInfo {
    /// Name: `antenna`, `channel`, `pol`, `sample`, ...
    #[schema(example = "channel")]
    pub name: String,
    /// Number of elements.
    pub len: usize,
    /// Labels of the elements, if any. A baseline `0-2` is antenna 0 times the conjugate of antenna 2 (labels for up
    /// to 16384 baselines; index a2 (a2 + 1) / 2 + a1 is `a1-a2`). A product `10` is polarisation 1 of the first
    /// antenna and polarisation 0 of the second one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// Frequencies of the `channel` axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BandInfo {
    /// Channels of the whole band.
    pub channels: usize,
    /// Index, in the whole band, of the first channel of the axis.
    pub first_channel: usize,
    /// Frequency at the centre of the whole band, in Hz.
    pub centre_hz: f64,
    /// Width of the whole band in Hz; negative if the spectrum is inverted (lower sideband).
    pub bandwidth_hz: f64,
}

/// Type of the frames at a port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Carries {
    /// Summary in one line.
    #[schema(example = "ci8 [channel 64][pol 2][spectrum 256] @ 1.712 GS/s / 131072")]
    pub text: String,
    /// Type of one element.
    #[schema(example = "ci8")]
    pub dtype: String,
    /// Axes of the payload, slowest first.
    pub axes: Vec<AxisInfo>,
    /// Payload bytes of one frame.
    pub frame_bytes: usize,
    /// Frames per second of signal time: the rate that keeps up with a telescope.
    pub frames_per_second: f64,
    /// Payload bytes per second of signal time.
    pub bytes_per_second: f64,
    /// Sample rate of the ADC in Hz.
    pub adc_sample_rate_hz: f64,
    /// Unix time of timestamp 0, in seconds.
    pub sync_time_seconds: f64,
    /// The same time, UTC, to the picosecond.
    #[schema(example = "2027-01-15T08:00:00Z")]
    pub sync_time: String,
    /// ADC samples from one frame to the next.
    pub samples_per_frame: u64,
    /// ADC samples by which the signal is later than the timestamps, because of filters.
    pub filter_delay_samples: f64,
    /// Frequencies of the `channel` axis, if present.
    pub band: Option<BandInfo>,
    /// Axes of the validity units.
    pub validity_axes: Vec<AxisInfo>,
    /// Validity count of a complete unit.
    pub validity_full: u32,
}
