//! Views: frames reduced to a few thousand numbers for a plot.
// A doc comment is a description in REST, which fields like `unit` do not need.
#![allow(missing_docs)]

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// An axis with a selectable index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Select {
    /// Name of the axis and of the query parameter.
    #[schema(example = "pol")]
    pub axis: String,
    /// Number of elements.
    pub len: usize,
    /// Default index.
    pub default: usize,
    /// Labels of the indices, if any: antennas of a baseline (`0-2`), polarisations of a product (`01`),
    /// or labels of the port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

impl Select {
    /// Returns index `index` with its label.
    #[must_use]
    pub fn at(&self, index: usize) -> Selected {
        let name = self.names.get(index).cloned().unwrap_or_else(|| index.to_string());
        Selected { axis: self.axis.clone(), index, name }
    }
}

/// A view of an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ViewInfo {
    /// Name.
    #[schema(example = "spectrum")]
    pub name: String,
    /// Title.
    #[schema(example = "power spectrum")]
    pub title: String,
    /// Kind of drawing.
    pub kind: DrawnAs,
    /// Axes with a selectable index.
    pub selects: Vec<Select>,
}

/// Views of an output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ViewList {
    /// Views available for the type of the output.
    pub views: Vec<ViewInfo>,
}

/// Kind of drawing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DrawnAs {
    /// Values of each series against `x`.
    Lines,
    /// Values of each series, row by row.
    Matrix,
    /// One value of each series, drawn against time.
    Points,
    /// A satellite for each series, drawn where it is in the sky. Values: azimuth and elevation in degrees, C/N0 in dB Hz,
    /// residual of the range in metres, and 1 if the position uses the satellite.
    Sky,
}

/// Positions of the values of a line: `len` positions from `start` in steps of `step`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Grid {
    #[schema(example = "frequency")]
    pub name: String,
    #[schema(example = "Hz")]
    pub unit: String,
    pub start: f64,
    pub step: f64,
    pub len: usize,
}

/// Rows or columns of a matrix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Side {
    #[schema(example = "antenna")]
    pub name: String,
    pub len: usize,
}

/// A series of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Series {
    #[schema(example = "power")]
    pub name: String,
    #[schema(example = "dBFS")]
    pub unit: String,
    /// Values in order of `x`, or row by row of a matrix, or a single value; `null` if not finite. Each value has 4
    /// significant digits or more: the span of the values is resolved to 4 digits, and a single value has 7.
    pub values: Vec<Option<f64>>,
}

impl Series {
    /// Creates a series of `values`, rounded.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        unit: impl Into<String>,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        let values = together(&values.into_iter().collect::<Vec<f64>>());
        Self { name: name.into(), unit: unit.into(), values }
    }
}

/// A single number about a frame, with its unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Figure {
    /// Value with 4 significant digits; `null` if not finite.
    pub value: Option<f64>,
    /// Unit; empty for a fraction.
    #[schema(example = "dBFS")]
    pub unit: String,
}

impl Figure {
    /// Creates a figure of `value`, rounded.
    #[must_use]
    pub fn new(value: f64, unit: impl Into<String>) -> Self {
        Self { value: rounded(value), unit: unit.into() }
    }
}

/// A selected index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Selected {
    #[schema(example = "baseline")]
    pub axis: String,
    pub index: usize,
    /// Label of the index.
    #[schema(example = "0-1")]
    pub name: String,
}

/// Drawing of a view.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Drawing {
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
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = Option<HashMap<String, Figure>>)]
    pub figures: BTreeMap<String, Figure>,
}

/// A view of one frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Message {
    /// Timestamp of the first element, in ADC samples since the sync time.
    pub timestamp: u64,
    /// Time of the first element as Unix time in seconds.
    pub time_seconds: f64,
    /// Sequence number of the frame at the output.
    pub frame: u64,
    /// Valid fraction of the frame; partially valid units count in proportion.
    #[schema(minimum = 0, maximum = 1)]
    pub valid: Option<f64>,
    /// Name of the view.
    #[schema(example = "spectrum")]
    pub view: String,
    pub kind: DrawnAs,
    /// Selected indices.
    pub selected: Vec<Selected>,
    #[serde(flatten)]
    pub drawing: Drawing,
}

/// Rounds `values` to as many digits as their span needs.
fn together(values: &[f64]) -> Vec<Option<f64>> {
    /// Digits of the span, of a value without a span, and of a double.
    const DIGITS: [i32; 3] = [4, 7, 16];
    let known = || values.iter().copied().filter(|value| value.is_finite());
    let span = known().fold(f64::NEG_INFINITY, f64::max) - known().fold(f64::INFINITY, f64::min);
    let exponent = |value: f64| value.abs().log10().floor() as i32;
    let has_span = span > 0.0 && span.is_finite();
    let digits = |value: f64| match value {
        0.0 => 1,
        _ if !has_span => DIGITS[1],
        _ => (exponent(value) - exponent(span) + DIGITS[0]).clamp(DIGITS[0], DIGITS[2]),
    };
    let rounded = |value: f64| {
        let text = value.is_finite().then(|| format!("{value:.*e}", digits(value) as usize - 1))?;
        text.parse().ok()
    };
    values.iter().copied().map(rounded).collect()
}

/// Rounds `value` to 4 significant digits; returns `None` if not finite.
#[must_use]
pub fn rounded(value: f64) -> Option<f64> {
    let text = value.is_finite().then(|| format!("{value:.3e}"))?;
    text.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn series_keeps_the_digits_that_its_span_needs() {
        let values = |values: &[f64]| Series::new("a", "Hz", values.iter().copied()).values;
        let drift = [1_420_405_751.768, 1_420_405_751.868, 1_420_405_752.768];
        let kept = values(&drift);
        for (kept, value) in kept.iter().zip(drift) {
            assert!((kept.unwrap() - value).abs() < 1e-3, "{kept:?}");
        }
        assert_eq!(values(&[-2_345.678_91]), [Some(-2345.679)]);
        assert_eq!(values(&[f64::INFINITY, 5.0, 5.0]), [None, Some(5.0), Some(5.0)]);
    }

    #[test]
    fn series_rounds_to_four_digits() {
        assert_eq!(rounded(-123.456), Some(-123.5));
        assert_eq!(rounded(1.234_56e-9), Some(1.235e-9));
        assert_eq!(rounded(123_456.0), Some(123_500.0));
        assert_eq!(rounded(0.0), Some(0.0));
        assert_eq!(rounded(f64::NEG_INFINITY), None);
        assert_eq!(rounded(f64::NAN), None);
        let values = |values: &[f64]| Series::new("a", "Hz", values.iter().copied()).values;
        assert_eq!(values(&[1.0 / 3.0, 1000.0]), [Some(0.3333), Some(1000.0)]);
        let told = serde_json::to_string(&Series::new("a", "dB", [0.1 + 0.2, f64::NAN])).unwrap();
        assert_eq!(told, r#"{"name":"a","unit":"dB","values":[0.3,null]}"#);
    }
}
