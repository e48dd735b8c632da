//! What is told of a frame.

use super::{Look, View};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// How a view is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DrawnAs {
    /// Values of each series against `x`.
    Lines,
    /// Values of each series in `rows` of `columns`.
    Matrix,
    /// One value of each series, to be drawn against time.
    Points,
}

/// Where the values of a line stand: `len` places from `start` on, each `step` further.
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

/// Values that belong together.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Series {
    #[schema(example = "power")]
    pub name: String,
    #[schema(value_type = String, example = "dBFS")]
    pub unit: &'static str,
    /// In order of `x`, row by row of a matrix, or one. 4 significant digits; `null` where there is
    /// no number.
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

/// A single number about a frame.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Figure {
    /// 4 significant digits; `null` if it is no number.
    pub value: Option<f64>,
    /// Empty for a share.
    #[schema(value_type = String, example = "dBFS")]
    pub unit: &'static str,
}

impl Figure {
    pub fn new(value: f64, unit: &'static str) -> Self {
        Self { value: rounded(value), unit }
    }
}

/// An index that is looked at.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Selected {
    #[schema(value_type = String, example = "baseline")]
    pub axis: &'static str,
    pub index: usize,
    /// What it stands for.
    #[schema(example = "0-1")]
    pub name: String,
}

/// The part of a message that its view makes.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Drawing {
    /// Of `lines`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x: Option<Grid>,
    /// Of a `matrix`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<Side>,
    /// Of a `matrix`.
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
    /// Time of the frame's first element, in ADC samples since sync time.
    timestamp: u64,
    /// The same in seconds of Unix time.
    time_seconds: f64,
    /// Number of the frame among those of the output.
    frame: u64,
    /// Share of the frame that something contributed to; a unit to which half contributed counts half.
    #[schema(minimum = 0, maximum = 1)]
    valid: Option<f64>,
    /// Name of the view.
    #[schema(value_type = String, example = "spectrum")]
    view: &'static str,
    kind: DrawnAs,
    /// What is looked at.
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

/// `value` with 4 significant digits, if it is a number.
fn rounded(value: f64) -> Option<f64> {
    let text = value.is_finite().then(|| format!("{value:.3e}"))?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_with_four_digits() {
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
