//! Changes while frames flow: live updates, swaps, updates of the flowgraph.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Result of a live update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LiveUpdate {
    /// Timestamp (ADC samples since the sync time) of the first sample with the new values.
    pub effective_timestamp: u64,
    /// Whether the requested timestamp had passed.
    pub is_late: bool,
    /// Timestamp from which data reflect all changes so far.
    pub steady_state_timestamp: u64,
    /// Configuration id in frame headers from the effective timestamp on, in hexadecimal.
    pub config_id: String,
    /// Time from the newest processed sample to the effective timestamp; `null` before the first sample.
    #[serde(default)]
    pub seconds_ahead: Option<f64>,
    /// How values are understood, by block and parameter, where the value itself does not say so: the pieces of delay
    /// models with their times.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub understood: BTreeMap<String, BTreeMap<String, Value>>,
}

/// A prepared live update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PreparedUpdate {
    /// Identifier, to commit or cancel it.
    pub id: String,
    /// Time after which it is cancelled by itself.
    pub lease_seconds: f64,
    /// Timestamp after the newest sample that one of the blocks has processed; `null` before the first one.
    pub newest_timestamp: Option<u64>,
    /// ADC sample rate of the blocks; `null` for blocks without ports.
    pub adc_sample_rate_hz: Option<f64>,
    /// Unix time of their timestamp 0; 0 if unknown.
    pub sync_time_seconds: Option<f64>,
    /// The same time, UTC, to the picosecond.
    #[serde(default)]
    #[schema(example = "2027-01-15T08:00:00Z")]
    pub sync_time: Option<String>,
}

/// Result of taking a committed update back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TakenBack {
    /// Timestamp (ADC samples since the sync time) from which the parameters have the values without the update.
    pub effective_timestamp: u64,
    /// Whether a block has passed the timestamp of the update, and so had its values.
    pub is_late: bool,
    /// Parameters that a later change has set. Its values stay.
    pub kept: Vec<ParameterName>,
}

/// A parameter of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ParameterName {
    /// Name of the block.
    pub block: String,
    /// Name of the parameter.
    pub parameter: String,
}

/// Change of a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DifferenceInfo {
    /// `kind`, `implementation`, `on_fault`, `parameters.taps`.
    pub key: String,
    /// Current value; `null` if not set.
    pub from: Value,
    /// New value; `null` if not set.
    pub to: Value,
}

/// A change of a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangeInfo {
    /// Name of the block.
    pub block: String,
    /// Differences.
    pub differences: Vec<DifferenceInfo>,
    /// Way of the change: `nothing`, `live_update` (live update of a source), `seamless` or `held` (swap), or `restart`.
    #[schema(example = "seamless")]
    pub way: String,
    /// Description of the expected interruption.
    #[schema(example = "none")]
    pub gap: String,
    /// Reason for a restart, if needed.
    pub restart_because: Option<String>,
    /// Additional memory during the swap, in bytes by device.
    pub memory_bytes: BTreeMap<String, usize>,
    /// Whether the change is done; false with `dry_run`.
    pub is_made: bool,
    /// For a change that goes on after the answer: sequence number of the last event before it. The result is the next
    /// event `swapped`, `not_swapped` or `rolled_back` of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goes_on_after_event: Option<u64>,
}

/// Effect of an update on a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BlockUpdateInfo {
    /// Name of the block.
    pub block: String,
    /// Way of the change: `nothing`, `queue` (`when_full`, at once), `live_update` (live update), `seamless` or `held` (swap),
    /// or `restart`.
    #[schema(example = "live_update")]
    pub way: String,
    /// Description of the expected interruption.
    #[schema(example = "none")]
    pub gap: String,
    /// Reason for a restart, if needed.
    pub restart_because: Option<String>,
    /// Differences.
    pub differences: Vec<DifferenceInfo>,
}

/// Effects of an update of the flowgraph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UpdateInfo {
    /// The running blocks in order, then the new blocks.
    pub blocks: Vec<BlockUpdateInfo>,
    /// Reasons for a restart.
    pub restart_because: Vec<String>,
    /// Configuration hash of the new flowgraph, in hexadecimal.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub config_hash: String,
    /// Whether the update is done; false with `dry_run`, and for a restart, which follows later.
    pub is_made: bool,
    /// Whether the flowgraph drains now and the new one follows.
    pub is_restarting: bool,
    /// Timestamp from which data are those of the new flowgraph: swapped blocks switch with their first frame
    /// that starts there or later. `null` if the update is not done, or nothing differs.
    pub effective_timestamp: Option<u64>,
    /// Parts of the update that do not take effect at that timestamp, with the reason.
    pub not_atomic: Vec<String>,
    /// Number of an event, if the update goes on: its result is the next event `updated` or `not_updated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goes_on_after_event: Option<u64>,
}
