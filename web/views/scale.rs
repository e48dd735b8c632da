//! Full scale, decibels, frequencies.

use super::TIME;
use fxgraph::{Dtype, PortType};
use fxgraph_api::views::Grid;
use num_complex::Complex;

/// Name of the axis of frequencies of a port with a band; without one, frequencies are those of the samples.
pub(super) const SKY_FREQUENCY: &str = "sky frequency";

/// Bits of an integer, or of each part of a complex one, from a digitiser or a quantiser. `None` for floats
/// and for integers of 32 bits and more, which are sums.
pub(super) fn bits(dtype: Dtype) -> Option<u32> {
    match dtype {
        Dtype::Packed(bits) => Some(bits.into()),
        Dtype::I8 | Dtype::Ci8 => Some(8),
        Dtype::I16 | Dtype::Ci16 => Some(16),
        Dtype::Ci4 => Some(4),
        _ => None,
    }
}

/// Largest value of integers with a symmetric range.
pub(super) fn largest(dtype: Dtype) -> Option<f64> {
    bits(dtype).map(|bits| f64::from((1_u32 << (bits - 1)) - 1))
}

/// Reference power of 0 dB and the unit: the power of a full-scale tone, or 1.
pub(super) fn reference(dtype: Dtype) -> (f64, &'static str) {
    match largest(dtype) {
        Some(largest) if dtype.is_complex() => (largest * largest, "dBFS"),
        Some(largest) => (largest * largest / 2.0, "dBFS"),
        None => (1.0, "dB"),
    }
}

/// Conversion of the elements of a port to power.
pub(super) struct Power {
    /// Power of an element.
    pub of: fn(Complex<f64>) -> f64,
    /// Reference power of 0 dB.
    pub full: f64,
    pub unit: &'static str,
}

impl Power {
    /// Elements are voltages, except real elements of channels, which are intensities.
    pub fn of(port: &PortType) -> Self {
        if !port.dtype.is_complex() && port.axis_len("channel").is_some() {
            return Self { of: |intensity| intensity.re, full: 1.0, unit: "dB" };
        }
        let (full, unit) = reference(port.dtype);
        Self { of: |voltage| voltage.norm_sqr(), full, unit }
    }
}

/// Converts a power to decibels.
pub(super) fn decibels(power: f64) -> f64 {
    10.0 * power.log10()
}

/// Samples per second along the `sample` axis.
pub(super) fn sample_rate_hz(port: &PortType) -> f64 {
    let along = port.axes.iter().filter(|axis| axis.name == "sample" || TIME.contains(&axis.name));
    let samples: usize = along.map(|axis| axis.len).product();
    samples as f64 * port.clock.frames_per_second()
}

/// Positions of the points of a `channel` axis with `channels` channels in groups of `group`: frequencies if the
/// port has a band, otherwise channel numbers.
pub(super) fn channel_grid(port: &PortType, channels: usize, group: usize) -> Grid {
    let centre = (group - 1) as f64 / 2.0;
    let len = channels.div_ceil(group);
    let Some(band) = port.band.filter(|band| band.channels > 0) else {
        return Grid {
            name: "channel".to_owned(),
            unit: String::new(),
            start: centre,
            step: group as f64,
            len,
        };
    };
    let width_hz = band.step_hz();
    let first = band.first_channel as f64 - (band.channels / 2) as f64;
    let start = band.centre_hz + (first + centre) * width_hz;
    Grid {
        name: SKY_FREQUENCY.to_owned(),
        unit: "Hz".to_owned(),
        start,
        step: group as f64 * width_hz,
        len,
    }
}
