//! Blocks: ports, parameters, statistics, faults.

use crate::ports::Carries;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A fault of a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Fault {
    /// Name of the block.
    pub block: String,
    /// Cause of the fault.
    pub cause: String,
    /// Whether the block panicked, which is a bug in the program.
    pub is_panic: bool,
}

/// Totals of a block since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Totals {
    /// Input frames, all inputs together.
    pub frames_in: u64,
    /// Output frames, all outputs together.
    pub frames_out: u64,
    /// Input payload bytes.
    pub bytes_in: u64,
    /// Output payload bytes.
    pub bytes_out: u64,
    /// Number of calls of `work`.
    pub works: u64,
    /// Time spent in calls of `work`.
    pub busy_seconds: f64,
    /// Time spent waiting for input frames; for a source, for external data.
    pub input_wait_seconds: f64,
    /// Time spent waiting for space in output queues.
    pub room_wait_seconds: f64,
    /// GPU time spent on frames of the block; `null` for a block on the CPU.
    pub device_busy_seconds: Option<f64>,
    /// Missing and dropped data, all causes together, each in its own unit.
    pub losses: u64,
    /// Number of faults, including those that the block survived.
    pub faults: u64,
    /// Number of restarts after a fault.
    pub restarts: u64,
}

/// Rates of a block, as means over the last second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rates {
    /// Input frames per second, all inputs together.
    pub frames_in_per_second: f64,
    /// Output frames per second, all outputs together.
    pub frames_out_per_second: f64,
    /// Input payload bytes per second.
    pub bytes_in_per_second: f64,
    /// Output payload bytes per second.
    pub bytes_out_per_second: f64,
    /// Fraction of the time spent working, in calls of `work` or in the busiest of the block's own threads; near 1 for
    /// the bottleneck.
    pub busy_fraction: f64,
    /// Fraction of the time that the GPU works on frames of the block.
    pub device_busy_fraction: f64,
    /// Fraction of the time spent waiting for input frames; for a source, for external data.
    pub input_wait_fraction: f64,
    /// Fraction of the time spent waiting for space in output queues; near 1 if later blocks are too slow.
    pub room_wait_fraction: f64,
}

/// Latency of frames from the source to a sink.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LatencyInfo {
    /// Number of frames measured.
    pub frames: u64,
    /// Mean latency; `null` before the first frame.
    pub mean_seconds: Option<f64>,
    /// Upper bound of the histogram bin with the 99th percentile; `null` if beyond the last bin.
    pub within_seconds: Option<f64>,
}

/// Summary of a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BlockSummary {
    /// Name in the flowgraph.
    #[schema(example = "f[0].pfb")]
    pub name: String,
    /// Kind.
    #[schema(example = "pfb")]
    pub kind: String,
    /// Device.
    #[schema(example = "cpu")]
    pub device: String,
    /// Implementation.
    #[schema(example = "cpu")]
    pub implementation: String,
    /// State: starting, running, stalled (no frame passes), finished or failed.
    #[schema(example = "running")]
    pub state: String,
    /// Policy after a fault: stop, skip or restart.
    #[schema(example = "stop")]
    pub on_fault: String,
    /// The last fault, if any.
    pub fault: Option<Fault>,
    /// Totals since the start.
    pub totals: Totals,
    /// Rates over the last second; `null` in the first second.
    pub rates: Option<Rates>,
    /// Delay of the newest sample relative to real time; `null` before the first sample and after the end.
    pub lag_seconds: Option<f64>,
    /// Latency from the sources, for a sink.
    pub latency: Option<LatencyInfo>,
}

/// Frame size of a source in real time, given or chosen from the latency target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SourceFrameInfo {
    /// Parameter that sets the size.
    #[schema(example = "samples_per_frame")]
    pub parameter: String,
    /// ADC samples of a frame.
    #[schema(example = 4_194_304)]
    pub samples: u64,
    /// Duration of a frame.
    #[schema(example = 0.00245)]
    pub seconds: f64,
    /// Latency target.
    #[schema(example = 0.01)]
    pub latency_seconds: f64,
    /// Reason for the size.
    #[schema(example = "the largest within a quarter of the latency of 10 ms")]
    pub why: String,
}

/// An input with its queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct InputInfo {
    /// Name.
    pub name: String,
    /// The connected output.
    #[schema(example = "source.output")]
    pub from: String,
    /// Type of the frames.
    pub carries: Carries,
    /// Number of queued frames.
    pub queued_frames: usize,
    /// Maximum number of queued frames in the last second; `null` in the first second.
    pub queue_peak_frames: Option<usize>,
    /// Capacity of the queue in frames.
    pub queue_frames: usize,
    /// Action when the queue is full: wait, drop_oldest or drop_newest.
    #[schema(example = "wait")]
    #[serde(default)]
    #[schema(required)]
    pub when_full: String,
    /// Frames dropped by that action, or missed in a swap that was rolled back, since the start.
    #[serde(default)]
    #[schema(required)]
    pub frames_dropped: u64,
    /// Input frames per second; `null` in the first second.
    pub frames_per_second: Option<f64>,
}

/// An output with its readers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OutputInfo {
    /// Name.
    pub name: String,
    /// The inputs that read it.
    pub to: Vec<String>,
    /// Type of the frames.
    pub carries: Carries,
}

/// A counter of a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CounterInfo {
    /// Name of the counter.
    #[schema(example = "heaps_missing")]
    pub name: String,
    /// Value.
    pub count: u64,
    /// Whether it counts missing or dropped data.
    pub is_loss: bool,
    /// Meaning, and advice for a growing value.
    pub help: String,
}

/// A gauge of a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GaugeInfo {
    /// Name, with the unit as suffix.
    #[schema(example = "digitiser_level_dbfs")]
    pub name: String,
    /// Name of the label that distinguishes gauges of the same name; `null` for a single gauge.
    #[schema(example = "input")]
    pub label: Option<String>,
    /// Value of the label.
    #[schema(example = "0")]
    pub label_value: Option<String>,
    /// Value; `null` while unknown: before the first value, and of a measurement of the data without new data.
    pub value: Option<f64>,
    /// Meaning, and advice.
    pub help: String,
}

/// A thread that a block started itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ThreadInfo {
    /// Name.
    #[schema(example = "receive")]
    pub name: String,
    /// Time that the thread ran, or was ready to run and waited for a core.
    pub busy_seconds: f64,
    /// Fraction of the last second that the thread was busy; `null` in the first second.
    pub busy_fraction: Option<f64>,
}

/// GPU times of the jobs of a block; a job is a frame or a part of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeviceJobsInfo {
    /// Number of jobs since the block was created.
    pub jobs: u64,
    /// Median.
    pub p50_seconds: f64,
    /// 99th percentile.
    pub p99_seconds: f64,
}

/// A block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BlockPage {
    #[serde(flatten)]
    #[allow(missing_docs)]
    pub summary: BlockSummary,
    /// Inputs.
    pub inputs: Vec<InputInfo>,
    /// Outputs.
    pub outputs: Vec<OutputInfo>,
    /// Current parameters.
    #[schema(value_type = Object)]
    pub parameters: Value,
    /// Absolute paths of the files that the block runs, also those that do not exist, on the machine of the block: a swap
    /// takes their edits over.
    #[serde(default)]
    #[schema(required)]
    pub content_files: Vec<String>,
    /// JSON Schema of the parameters; `null` for a copy between devices.
    #[schema(value_type = Option<Object>)]
    pub parameters_schema: Option<Value>,
    /// Frame size of a source in real time; `null` for other blocks.
    #[serde(default)]
    #[schema(required)]
    pub frame: Option<SourceFrameInfo>,
    /// Timestamp after the newest output sample; for a sink, after the newest input sample.
    pub newest_timestamp: Option<u64>,
    /// Age of the newest sample, relative to the stream's sync time, or without one to the source's first sample.
    pub sample_age_seconds: Option<f64>,
    /// Threads that the block started itself.
    #[serde(default)]
    #[schema(required)]
    pub threads: Vec<ThreadInfo>,
    /// Kernel times, for a block on a GPU.
    pub device_jobs: Option<DeviceJobsInfo>,
    /// Counters.
    pub counters: Vec<CounterInfo>,
    /// Gauges.
    pub gauges: Vec<GaugeInfo>,
    /// Summary text of the block.
    pub text: String,
}
