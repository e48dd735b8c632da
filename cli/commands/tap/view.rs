//! Views of a frame in the REST API.

use serde::Deserialize;
use std::collections::BTreeMap;

/// `GET .../views`
#[derive(Debug, Deserialize)]
pub struct Views {
    pub views: Vec<Offered>,
}

/// A view of an output.
#[derive(Debug, Deserialize)]
pub struct Offered {
    pub name: String,
}

/// One message of `GET .../views/{view}`
#[derive(Clone, Debug, Deserialize)]
pub struct View {
    pub timestamp: u64,
    pub frame: u64,
    /// Valid fraction of the frame.
    pub valid: Option<f64>,
    #[serde(rename = "view")]
    pub name: String,
    pub kind: Kind,
    #[serde(default)]
    pub selected: Vec<Selected>,
    /// Axis of `Lines`.
    pub x: Option<Grid>,
    /// Rows of `Matrix`.
    pub rows: Option<Side>,
    pub columns: Option<Side>,
    pub series: Vec<Series>,
    #[serde(default)]
    pub figures: BTreeMap<String, Figure>,
}

/// Kind of drawing.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Values of each series against `x`.
    Lines,
    /// Values of each series, row by row.
    Matrix,
    /// One value of each series, drawn against time.
    Points,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Grid {
    pub name: String,
    pub unit: String,
    pub start: f64,
    pub step: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Side {
    pub name: String,
    pub len: usize,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Series {
    pub name: String,
    pub unit: String,
    /// `None` for a value that is not finite.
    pub values: Vec<Option<f64>>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Figure {
    pub value: Option<f64>,
    pub unit: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Selected {
    pub axis: String,
    pub name: String,
}
