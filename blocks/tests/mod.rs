//! Tests over all kinds, and shared code of tests of blocks.
#![allow(clippy::unwrap_used)]

mod calibration;
pub mod chain;
mod complex_samples;
mod disturbed;
mod examples;
mod false_products;
mod file_parameters;
mod flagged_antennas;
mod gauges;
mod hostile_ports;
mod live_updates;
mod missing_counts;
mod one_polarisation;
mod other_sideband;
mod ranges;
mod recordings;
mod sidebands;
mod signal_times;
mod stream_types;
mod time_bases;
