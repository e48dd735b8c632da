//! Views: reduction of a frame to a few thousand numbers for a plot.
//!
//! Pure functions of a port's type and the bytes of one frame: no blocks, no HTTP. Invalid elements are left
//! out of every mean; a mean without valid elements is `null`.
//!
//! # Layout
//! - [`look`]: a frame with the selected indices, and iteration over its elements
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
mod samples;
mod satellites;
mod scale;
mod sky;
mod spectrum;
mod taps;
mod values;
mod visibility;

#[cfg(test)]
mod made;

pub(crate) use look::Look;

use fxgraph::control::TapFrame;
use fxgraph::{Axis, PortType};
use fxgraph_api::views::{Drawing, DrawnAs, Message, Select, Selected, rounded};

/// Time axes, over which means are taken.
const TIME: [&str; 3] = ["heap", "spectrum", "epoch"];

/// Allowed number of points on the longest axis of a view.
pub(crate) const POINTS: std::ops::RangeInclusive<usize> = 16..=4096;

/// Labels selected by default.
const TELLING: [&str; 3] = ["cn0_db_hz", "height_metres", "statistic"];

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
static VIEWS: [View; 12] = [
    spectrum::VIEW,
    histogram::VIEW,
    samples::VIEW,
    band_pass::VIEW,
    visibility::VIEW,
    matrix::VIEW,
    fringe::VIEW,
    beam_power::VIEW,
    beams::VIEW,
    taps::VIEW,
    sky::VIEW,
    values::VIEW,
];

/// The axis `axis` with a selectable index.
fn select(axis: &Axis) -> Select {
    let (names, default) = match axis.name {
        "baseline" => (baselines::names(axis.len), baselines::first_of_two(axis.len)),
        "product" if axis.labels.is_empty() => (baselines::product_names(axis.len), 0),
        _ => {
            let is_telling = |label: &String| TELLING.contains(&label.as_str());
            (axis.labels.clone(), axis.labels.iter().position(is_telling).unwrap_or(0))
        }
    };
    Select { axis: axis.name.to_owned(), len: axis.len, default, names }
}

impl View {
    /// Selectable axes of `port`, slowest first; `None` if the view cannot show the port.
    pub fn selects(&self, port: &PortType) -> Option<Vec<Select>> {
        let shown = (self.shows)(port)?;
        let others = port.axes.iter().filter(|axis| {
            !shown.contains(&axis.name) && !TIME.contains(&axis.name) && axis.len > 0
        });
        Some(others.map(select).collect())
    }

    /// Computes the view of a frame of `port`, with up to `points` points.
    pub fn message(
        &self,
        port: &PortType,
        frame: &TapFrame,
        selected: &[Selected],
        points: usize,
    ) -> Message {
        let (header, clock) = (&frame.header, port.clock.in_base(&frame.header.base));
        let full = port.validity.full.max(1);
        let parts = header.validity.iter().map(|count| u64::from((*count).min(full)));
        let most = u64::from(full) * header.validity.len().max(1) as u64;
        Message {
            timestamp: header.timestamp,
            time_seconds: clock.unix_seconds(header.timestamp),
            frame: header.sequence,
            valid: rounded(parts.sum::<u64>() as f64 / most as f64),
            view: self.name.to_owned(),
            kind: self.kind,
            selected: selected.to_vec(),
            drawing: (self.draw)(&Look::new(port, frame, selected, points)),
        }
    }
}

/// Returns the views that can show `port`, with their selectable axes.
pub(crate) fn of(port: &PortType) -> Vec<(&'static View, Vec<Select>)> {
    VIEWS.iter().filter_map(|view| Some((view, view.selects(port)?))).collect()
}
