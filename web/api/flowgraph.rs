//! The flowgraph as a whole: state, graph, configuration.

use crate::blocks::Fault;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A parameter of the flowgraph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ParameterInfo {
    /// Name.
    pub name: String,
    /// Current value.
    pub value: Value,
    /// Description.
    pub doc: Option<String>,
    /// Whether the value was set with `--set`.
    pub is_set: bool,
}

/// An instance of a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupInfo {
    /// Name.
    #[schema(example = "f[0]")]
    pub name: String,
    /// Name of the template.
    #[schema(example = "f_engine")]
    pub template: String,
    /// Index of the enclosing group.
    pub parent: Option<usize>,
}

/// Part of the band of a block's input that a live parameter moves. Its frequencies are those of the band of the block's
/// output: on the sky if the input has a band, else those of the samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TunedBandInfo {
    /// Live parameter: the frequency of the input's samples that becomes the centre of the output, in Hz.
    #[schema(example = "centre_hz")]
    pub parameter: String,
    /// Its value in force.
    pub value_hz: f64,
    /// Centre of the band in Hz.
    pub centre_hz: f64,
    /// Width of the band in Hz.
    pub bandwidth_hz: f64,
    /// Whether the centre falls as the parameter rises (lower sideband).
    pub is_inverted: bool,
    /// Lowest frequency of the input in Hz.
    pub input_low_hz: f64,
    /// Highest frequency of the input in Hz.
    pub input_high_hz: f64,
    /// Block downstream that cannot follow another centre, so that a live update of the parameter is rejected.
    pub fixed_by: Option<String>,
}

/// A block in the graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeInfo {
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: String,
    /// Device.
    pub device: String,
    /// Index of the group that contains it.
    pub group: Option<usize>,
    /// State.
    #[schema(example = "running")]
    pub state: String,
    /// Fraction of the time spent working; `null` in the first second.
    pub busy_fraction: Option<f64>,
    /// Band that a live parameter moves, if the block has one.
    #[serde(default)]
    #[schema(required)]
    pub tuned_band: Option<TunedBandInfo>,
}

/// An edge of the graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EdgeInfo {
    /// Name of the writing block.
    pub from: String,
    /// Output of the writing block.
    pub output: String,
    /// Name of the reading block.
    pub to: String,
    /// Input of the reading block.
    pub input: String,
    /// Type of the frames, in one line.
    pub carries: String,
    /// Frames per second of signal time.
    pub expected_frames_per_second: f64,
    /// Payload bytes per second of signal time.
    pub expected_bytes_per_second: f64,
    /// Frames per second; `null` in the first second.
    pub frames_per_second: Option<f64>,
    /// Payload bytes per second; `null` in the first second.
    pub bytes_per_second: Option<f64>,
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
}

/// Blocks and edges, with data rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Graph {
    /// Instances of templates; outer ones precede inner ones.
    pub groups: Vec<GroupInfo>,
    /// Blocks.
    pub blocks: Vec<NodeInfo>,
    /// Edges.
    pub edges: Vec<EdgeInfo>,
}

/// Bottleneck of the flowgraph in the last second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Limit {
    /// Name of the block that is the bottleneck; `null` if the sources are.
    #[schema(example = "f[0].pfb")]
    pub block: Option<String>,
    /// Description.
    #[schema(example = "limited by f[0].pfb, which works 97 % of the time")]
    pub text: String,
}

/// A value of a live parameter that takes effect later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ScheduledValue {
    /// Name of the block.
    #[schema(example = "f[0].postproc")]
    pub block: String,
    /// Name of the parameter.
    #[schema(example = "gains")]
    pub parameter: String,
    /// The value; `null` restores the default.
    pub value: Value,
    /// Effective timestamp (ADC samples since the sync time).
    pub timestamp: u64,
}

/// The running flowgraph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlowgraphPage {
    /// Name.
    #[schema(example = "first_light")]
    pub name: String,
    /// Description.
    pub doc: Option<String>,
    /// State: prepared, starting, running, draining, ended or failed.
    #[schema(example = "running")]
    pub state: String,
    /// Whether it can be started again after its end (`fxgraph run --hold`).
    pub is_held: bool,
    /// Permission of clients: `live` (live parameters only) or `full` (also blocks and the flowgraph).
    #[schema(example = "full")]
    pub control: String,
    /// Progress of the start: the blocks that have started, and what one of the others does; `null` unless the flowgraph
    /// starts.
    #[serde(default)]
    #[schema(
        required,
        example = "3 of 6 blocks have started; `d[1]` computes its signals, polarisation 1 of 2"
    )]
    pub starting: Option<String>,
    /// Time since the first frame.
    pub elapsed_seconds: f64,
    /// Configuration id in the headers of the newest frames, in hexadecimal.
    #[schema(example = "9f2c0d4be1a7583d", pattern = "^[0-9a-f]{16}$")]
    pub config_id: String,
    /// SHA-256 over the hashes of the blocks of `resolved_yaml`, in hexadecimal.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub config_hash: String,
    /// Timestamp (ADC samples since the sync time) from which data reflect all changes so far.
    pub steady_state_timestamp: u64,
    /// Values of live parameters that take effect later, by timestamp. The other fields state the values in force.
    #[serde(default)]
    pub scheduled: Vec<ScheduledValue>,
    /// Version of fxgraph.
    pub version: String,
    /// Parameters.
    pub parameters: Vec<ParameterInfo>,
    /// Bottleneck; `null` in the first second.
    pub limited_by: Option<Limit>,
    /// Headroom of the slowest block, as a fraction of signal time; negative if it cannot keep up with the telescope.
    pub deadline_margin_fraction: Option<f64>,
    /// Largest lag of a block behind real time, without side branches that drop frames; `null` before the first frame and
    /// after the end.
    pub lag_seconds: Option<f64>,
    /// Name of the block with the largest lag.
    pub lag_block: Option<String>,
    /// Faults that ended the flowgraph, in order.
    pub faults: Vec<Fault>,
    /// Blocks that no frame passes, and that are the cause themselves; only while the flowgraph runs.
    #[serde(default)]
    #[schema(required)]
    pub stalls: Vec<StallInfo>,
    /// Blocks and edges, with data rates.
    pub graph: Graph,
    /// The flowgraph with all parameters and templates resolved and the values in force, as YAML.
    pub resolved_yaml: String,
    /// Original text with its comments; `null` if parameters were set at the start or the flowgraph was changed since.
    pub written_yaml: Option<String>,
}

/// Block that no frame passes for ten frame intervals and more, and that is the cause itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StallInfo {
    /// Name of the block.
    #[schema(example = "disk")]
    pub block: String,
    /// Time since the last frame.
    pub silent_seconds: f64,
    /// Reason.
    #[schema(example = "input frames are waiting")]
    pub reason: String,
    /// Whether the block has frames that it does not process: a restart may help. It does not help if data do not come.
    pub holds_frames: bool,
    /// Whether the block is in a side branch that drops frames, for which no other block waits.
    #[serde(default)]
    #[schema(required)]
    pub is_aside: bool,
    /// Names of the upstream blocks from which it has no frame.
    pub lacks: Vec<String>,
}

/// Health of the flowgraph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// State: prepared, starting, running, draining, ended or failed.
    #[schema(example = "running")]
    pub state: String,
    /// Number of faults so far, including those that the flowgraph survived.
    pub faults: u64,
    /// Number of faults that the flowgraph survived.
    pub survived_faults: u64,
    /// Time since the first frame.
    pub elapsed_seconds: f64,
    /// Blocks that no frame passes, and that are the cause themselves; only while the flowgraph runs.
    #[serde(default)]
    #[schema(required)]
    pub stalls: Vec<StallInfo>,
}

impl StallInfo {
    /// Description of `stalls` in one line: "no frame for 12 s: disk (input frames are waiting), waits for data: pol0,
    /// pol1"; `None` without one.
    #[must_use]
    pub fn describe(stalls: &[Self]) -> Option<String> {
        let longest = stalls.iter().map(|stall| stall.silent_seconds).reduce(f64::max)?;
        let (held, silent): (Vec<_>, Vec<_>) = stalls.iter().partition(|stall| stall.holds_frames);
        let mut said: Vec<String> =
            held.iter().map(|stall| format!("{} ({})", stall.block, stall.reason)).collect();
        if !silent.is_empty() {
            let names: Vec<&str> = silent.iter().map(|stall| stall.block.as_str()).collect();
            said.push(format!("waits for data: {}", names.join(", ")));
        }
        Some(format!("no frame for {longest:.0} s: {}", said.join(", ")))
    }
}
