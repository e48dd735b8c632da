//! Responses of the REST API, limited to the fields that the terminal shows.

use serde::Deserialize;
use serde_json::Value;

/// `GET /api/v1/flowgraph`
#[derive(Clone, Debug, Deserialize)]
pub struct Flowgraph {
    pub name: String,
    pub state: String,
    pub elapsed_seconds: f64,
    pub config_id: String,
    /// `None` in the first second.
    #[serde(default)]
    pub limited_by: Option<Limit>,
    /// `None` before the first frame.
    #[serde(default)]
    pub lag_seconds: Option<f64>,
    /// Name of the block with the largest lag.
    #[serde(default)]
    pub lag_block: Option<String>,
    pub graph: Graph,
}

/// Bottleneck of a flowgraph.
#[derive(Clone, Debug, Deserialize)]
pub struct Limit {
    /// Description for people.
    pub text: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Graph {
    pub edges: Vec<Edge>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Edge {
    pub from: String,
    pub output: String,
    pub to: String,
    /// Type of the frames, in one line.
    pub carries: String,
    pub expected_frames_per_second: f64,
    /// `None` in the first second.
    pub frames_per_second: Option<f64>,
    pub queued_frames: usize,
    pub queue_frames: usize,
}

/// One element of `GET /api/v1/blocks`
#[derive(Clone, Debug, Deserialize)]
pub struct Block {
    pub name: String,
    pub kind: String,
    pub device: String,
    pub state: String,
    pub totals: Totals,
    /// `None` before the first frame.
    #[serde(default)]
    pub lag_seconds: Option<f64>,
    /// `None` in the first second.
    pub rates: Option<Rates>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Totals {
    pub losses: u64,
    pub faults: u64,
    /// `None` for a block on the CPU.
    pub device_busy_seconds: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Rates {
    pub frames_in_per_second: f64,
    pub frames_out_per_second: f64,
    pub bytes_in_per_second: f64,
    pub bytes_out_per_second: f64,
    pub busy_fraction: f64,
    pub device_busy_fraction: f64,
}

/// `GET /api/v1/health`, and the response to a stop or an abort
#[derive(Debug, Deserialize)]
pub struct Health {
    pub state: String,
}

/// `GET /api/v1/events`
#[derive(Clone, Debug, Deserialize)]
pub struct Events {
    #[serde(rename = "events")]
    pub list: Vec<Event>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Event {
    pub sequence: u64,
    pub unix_time_seconds: f64,
    pub block: Option<String>,
    pub kind: String,
    pub text: String,
}

/// `PATCH /api/v1/blocks`
#[derive(Debug, Deserialize)]
pub struct Retuned {
    pub effective_timestamp: u64,
    pub is_late: bool,
    pub config_id: String,
}

/// `PATCH /api/v1/blocks/{name}`
#[derive(Debug, Deserialize)]
pub struct Change {
    pub differences: Vec<Difference>,
    pub way: String,
    pub gap: String,
    pub restart_because: Option<String>,
    pub memory_bytes: std::collections::BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
pub struct Difference {
    pub key: String,
    pub from: Value,
    pub to: Value,
}

impl Event {
    /// Returns the UTC time of day as `HH:MM:SS.mmm`.
    pub fn time_of_day(&self) -> String {
        let milliseconds = (self.unix_time_seconds * 1e3) as u64;
        let seconds = milliseconds / 1000;
        format!(
            "{:02}:{:02}:{:02}.{:03}",
            seconds / 3600 % 24,
            seconds / 60 % 60,
            seconds % 60,
            milliseconds % 1000
        )
    }

    /// Whether the event reports a fault, missing or dropped data, or a failed change.
    pub fn is_bad(&self) -> bool {
        let bad = [
            "aborted",
            "fault",
            "skipped",
            "restarted",
            "rolled_back",
            "not_swapped",
            "not_started",
            "shadow_differs",
            "data_lost",
            "stalled",
            "fell_behind",
            "resynchronised",
            "time_jumped",
        ];
        bad.contains(&self.kind.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_day_has_milliseconds() {
        let event = |unix_time_seconds| Event {
            sequence: 1,
            unix_time_seconds,
            block: None,
            kind: "started".to_owned(),
            text: String::new(),
        };
        assert_eq!(event(0.0).time_of_day(), "00:00:00.000");
        assert_eq!(event(1_700_000_000.25).time_of_day(), "22:13:20.250");
    }
}
