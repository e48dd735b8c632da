//! Values of gauges over minutes and hours.
// A doc comment is a description in REST, which fields like `help` do not need.
#![allow(missing_docs)]

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A gauge that blocks have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GaugeName {
    /// Name, with the unit.
    #[schema(example = "digitiser_level_dbfs")]
    pub name: String,
    /// Description.
    pub help: String,
    /// Number of series: one for each block and label.
    pub series: usize,
}

/// Values of the gauge of one block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GaugeSeries {
    /// Name of the block.
    #[schema(example = "f[0]")]
    pub block: String,
    /// Name of the label, if the block has several gauges with this name.
    #[schema(example = "input")]
    pub label: Option<String>,
    #[schema(example = "pol0")]
    pub label_value: Option<String>,
    /// Values, the newest last; `null` where the gauge was unknown.
    pub values: Vec<Option<f64>>,
}

/// Values of gauges that the process keeps: each second of the last 10 minutes, and the means of the minutes of the last
/// 24 hours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// Gauges of all blocks.
    pub gauges: Vec<GaugeName>,
    /// Time between two values: 1 or 60.
    pub step_seconds: f64,
    /// Unix time of the newest values.
    pub end_unix_seconds: f64,
    /// Values of the requested gauge; empty if none was requested.
    pub series: Vec<GaugeSeries>,
    /// Number of gauges that are not kept, since there are too many.
    pub left_out: usize,
}
