//! Views: reduction of a frame to a few thousand numbers for a plot.
//!
//! Pure functions of a port's type and the bytes of one frame: no blocks, no HTTP. Invalid elements are left
//! out of every mean; a mean without valid elements is `null`.
//!
//! # Layout
//! - [`look`]: a frame with the selected indices, and iteration over its elements
//! - [`message`]: message about a frame
//! - [`scale`]: full scale, decibels, frequencies
//! - one file per view

mod band_pass;
pub(crate) mod baselines;
mod beam_power;
mod beams;
mod fringe;
mod histogram;
mod look;
mod matrix;
mod message;
mod satellites;
mod scale;
mod spectrum;
mod taps;
mod values;
mod visibility;

#[cfg(test)]
mod made;

pub(crate) use look::Look;
pub(crate) use message::{DrawnAs, Message, Selected};

use fxgraph::control::TapFrame;
use fxgraph::{Axis, PortType};
use message::Drawing;
use serde::Serialize;
use utoipa::ToSchema;

/// Time axes, over which means are taken.
const TIME: [&str; 3] = ["heap", "spectrum", "epoch"];

/// Allowed number of points on the longest axis of a view.
pub(crate) const POINTS: std::ops::RangeInclusive<usize> = 16..=4096;

/// Labels selected by default.
const TELLING: [&str; 2] = ["cn0_db_hz", "statistic"];

/// Names of axes.
type Shown = &'static [&'static str];

/// A view of frames.
pub(crate) struct View {
    pub name: &'static str,
    pub title: &'static str,
    pub kind: DrawnAs,
    /// Axes that it shows or averages over, if it can show the port; one index is selected on each other axis.
    shows: fn(&PortType) -> Option<Shown>,
    draw: fn(&Look) -> Drawing,
}

/// All views.
static VIEWS: [View; 10] = [
    spectrum::VIEW,
    histogram::VIEW,
    band_pass::VIEW,
    visibility::VIEW,
    matrix::VIEW,
    fringe::VIEW,
    beam_power::VIEW,
    beams::VIEW,
    taps::VIEW,
    values::VIEW,
];

/// An axis with a selectable index.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Select {
    /// Name of the axis and of the query parameter.
    #[schema(value_type = String, example = "pol")]
    pub axis: &'static str,
    /// Number of elements.
    pub len: usize,
    /// Default index.
    pub default: usize,
    /// Labels of the indices, if any: antennas of a baseline (`0-2`), polarisations of a product (`01`),
    /// or labels of the port.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

impl Select {
    fn of(axis: &Axis) -> Self {
        let (names, default) = match axis.name {
            "baseline" => (baselines::names(axis.len), baselines::first_of_two(axis.len)),
            "product" if axis.labels.is_empty() => (baselines::product_names(axis.len), 0),
            _ => {
                let is_telling = |label: &String| TELLING.contains(&label.as_str());
                (axis.labels.clone(), axis.labels.iter().position(is_telling).unwrap_or(0))
            }
        };
        Self { axis: axis.name, len: axis.len, default, names }
    }

    fn name(&self, index: usize) -> String {
        self.names.get(index).cloned().unwrap_or_else(|| index.to_string())
    }

    /// Returns index `index` with its label.
    pub fn at(&self, index: usize) -> Selected {
        Selected { axis: self.axis, index, name: self.name(index) }
    }
}

impl View {
    /// Selectable axes of `port`, slowest first; `None` if the view cannot show the port.
    pub fn selects(&self, port: &PortType) -> Option<Vec<Select>> {
        let shown = (self.shows)(port)?;
        let others = port.axes.iter().filter(|axis| {
            !shown.contains(&axis.name) && !TIME.contains(&axis.name) && axis.len > 0
        });
        Some(others.map(Select::of).collect())
    }

    /// Computes the view of a frame of `port`, with up to `points` points.
    pub fn message(
        &self,
        port: &PortType,
        frame: &TapFrame,
        selected: &[Selected],
        points: usize,
    ) -> Message {
        let look = Look::new(port, frame, selected, points);
        Message::new(self, &look, (self.draw)(&look))
    }
}

/// Returns the views that can show `port`, with their selectable axes.
pub(crate) fn of(port: &PortType) -> Vec<(&'static View, Vec<Select>)> {
    VIEWS.iter().filter_map(|view| Some((view, view.selects(port)?))).collect()
}
