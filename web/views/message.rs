//! Message of a view about one frame.

use super::{Look, View};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Kind of drawing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DrawnAs {
    /// Values of each series against `x`.
    Lines,
    /// Values of each series, row by row.
    Matrix,
    /// One value of each series, drawn against time.
    Points,
}

/// Positions of the values of a line: `len` positions from `start` in steps of `step`.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Grid {
    #[schema(value_type = String, example = "frequency")]
    pub name: &'static str,
    #[schema(value_type = String, example = "Hz")]
    pub unit: &'static str,
    pub start: f64,
    pub step: f64,
    pub len: usize,
}

/// Rows or columns of a matrix.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Side {
    #[schema(value_type = String, example = "antenna")]
    pub name: &'static str,
    pub len: usize,
}

/// A series of values.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Series {
    #[schema(example = "power")]
    pub name: String,
    #[schema(value_type = String, example = "dBFS")]
    pub unit: &'static str,
    /// Values in order of `x`, or row by row of a matrix, or a single value. 4 significant digits; `null`
    /// if not finite.
    pub values: Vec<Option<f64>>,
}

impl Series {
    pub fn new(
        name: impl Into<String>,
        unit: &'static str,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        Self { name: name.into(), unit, values: values.into_iter().map(rounded).collect() }
    }
}

/// A single number about a frame, with its unit.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Figure {
    /// Value with 4 significant digits; `null` if not finite.
    pub value: Option<f64>,
    /// Unit; empty for a fraction.
    #[schema(value_type = String, example = "dBFS")]
    pub unit: &'static str,
}

impl Figure {
    pub fn new(value: f64, unit: &'static str) -> Self {
        Self { value: rounded(value), unit }
    }
}

/// A selected index.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Selected {
    #[schema(value_type = String, example = "baseline")]
    pub axis: &'static str,
    pub index: usize,
    /// Label of the index.
    #[schema(example = "0-1")]
    pub name: String,
}

/// Drawing of a view.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Drawing {
    /// Axis of `lines`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x: Option<Grid>,
    /// Rows or columns of a `matrix`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<Side>,
    /// Rows or columns of a `matrix`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<Side>,
    pub series: Vec<Series>,
    /// Single numbers: `rms` and `clipped` of a `histogram`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = Option<std::collections::HashMap<String, Figure>>)]
    pub figures: BTreeMap<&'static str, Figure>,
}

/// A view of one frame.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Message {
    /// Timestamp of the first element, in ADC samples since the sync time.
    timestamp: u64,
    /// Time of the first element as Unix time in seconds.
    time_seconds: f64,
    /// Sequence number of the frame at the output.
    frame: u64,
    /// Valid fraction of the frame; partially valid units count in proportion.
    #[schema(minimum = 0, maximum = 1)]
    valid: Option<f64>,
    /// Name of the view.
    #[schema(value_type = String, example = "spectrum")]
    view: &'static str,
    kind: DrawnAs,
    /// Selected indices.
    selected: Vec<Selected>,
    #[serde(flatten)]
    pub drawing: Drawing,
}

impl Message {
    pub fn new(view: &View, look: &Look, drawing: Drawing) -> Self {
        let (header, clock) = (&look.frame.header, &look.port.clock);
        let full = look.port.validity.full.max(1);
        let parts = header.validity.iter().map(|count| u64::from((*count).min(full)));
        let most = u64::from(full) * header.validity.len().max(1) as u64;
        Self {
            timestamp: header.timestamp,
            time_seconds: clock.sync_time_seconds
                + header.timestamp as f64 / clock.adc_sample_rate_hz,
            frame: header.sequence,
            valid: rounded(parts.sum::<u64>() as f64 / most as f64),
            view: view.name,
            kind: view.kind,
            selected: look.selected.to_vec(),
            drawing,
        }
    }
}

/// Rounds `value` to 4 significant digits; returns `None` if not finite.
fn rounded(value: f64) -> Option<f64> {
    let text = value.is_finite().then(|| format!("{value:.3e}"))?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_rounds_to_four_digits() {
        assert_eq!(rounded(-123.456), Some(-123.5));
        assert_eq!(rounded(1.234_56e-9), Some(1.235e-9));
        assert_eq!(rounded(123_456.0), Some(123_500.0));
        assert_eq!(rounded(0.0), Some(0.0));
        assert_eq!(rounded(f64::NEG_INFINITY), None);
        assert_eq!(rounded(f64::NAN), None);
        let told = serde_json::to_string(&Series::new("a", "dB", [0.1 + 0.2, f64::NAN])).unwrap();
        assert_eq!(told, r#"{"name":"a","unit":"dB","values":[0.3,null]}"#);
    }
}
