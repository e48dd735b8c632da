//! Events of the run.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventInfo {
    /// Number of the event within the run, or since the start of the fleet that reports it: from 1, without gaps.
    #[schema(example = 1)]
    pub sequence: u64,
    /// Number of the event within the run of its part, if a fleet reports the event; otherwise `null`.
    #[serde(default)]
    pub part_sequence: Option<u64>,
    /// Unix time in seconds.
    pub unix_time_seconds: f64,
    /// Name of the block, if the event concerns one.
    pub block: Option<String>,
    /// Kind of event.
    #[schema(example = "started")]
    pub kind: String,
    /// Description with cause and values.
    pub text: String,
}

/// Events in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// Number of the last event, for the next request.
    pub last: u64,
    /// Number of events after `since` that are no longer stored; a few thousand are.
    pub forgotten: u64,
    /// The events.
    pub events: Vec<EventInfo>,
}
