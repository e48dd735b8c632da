//! Fringe of one baseline: expected and measured.

use crate::fourier::inverse_f64;
use num_complex::Complex64;
use std::f64::consts::TAU;

/// Oversampling of the transform that searches for the delay.
const FINER: usize = 8;

/// Expected fringe of one baseline.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expected {
    /// Geometric delay of the first antenna relative to the second, in seconds.
    pub delay_seconds: f64,
    /// Difference of the applied delays, relative to the centre of the band, in seconds.
    pub applied_seconds: f64,
    /// Applied phase difference, in radians.
    pub applied_radians: f64,
}

impl Expected {
    /// Returns the phase in radians at `hz`, for a band around `centre_hz`.
    #[must_use]
    pub fn phase(&self, hz: f64, centre_hz: f64) -> f64 {
        let turns = hz * self.delay_seconds + (hz - centre_hz) * self.applied_seconds;
        self.applied_radians - TAU * turns.fract()
    }
}

/// Measured fringe of one baseline.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Slope of the phase across the band, as a delay in seconds.
    pub delay_seconds: f64,
    /// Deviation from the expected phase in the middle of the channels, in degrees.
    pub deviation_degrees: f64,
    /// Coherence with the expected phase: 1 if all channels have it, 0 for random phases.
    pub coherence: f64,
}

/// Measures the fringe in `visibilities` (one per channel at `hz`); `None` without any signal.
#[must_use]
pub fn measure(
    visibilities: &[Complex64],
    hz: &[f64],
    centre_hz: f64,
    expected: &Expected,
) -> Option<Measured> {
    let turned: Vec<Complex64> = visibilities
        .iter()
        .zip(hz)
        .map(|(v, hz)| v * Complex64::cis(-expected.phase(*hz, centre_hz)))
        .collect();
    let sum: Complex64 = turned.iter().sum();
    let all: f64 = turned.iter().map(|v| v.norm()).sum();
    if all == 0.0 {
        return None;
    }
    let step_hz = if hz.len() > 1 { hz[1] - hz[0] } else { 0.0 };
    let remaining_seconds = remaining_delay(&turned, step_hz);
    // In the middle of the band, with the measured delay: with a wrong delay the phases across the band would
    // not add coherently.
    let middle_hz = hz.iter().sum::<f64>() / hz.len() as f64;
    let turn = |hz: f64| Complex64::cis(TAU * (hz - middle_hz) * remaining_seconds);
    let straight: Complex64 = turned.iter().zip(hz).map(|(v, hz)| v * turn(*hz)).sum();
    Some(Measured {
        delay_seconds: expected.delay_seconds + expected.applied_seconds + remaining_seconds,
        deviation_degrees: straight.arg().to_degrees(),
        coherence: sum.norm() / all,
    })
}

/// Returns the `tau` that maximises `|sum v_k exp(2 pi j k step tau)|`, in seconds.
fn remaining_delay(values: &[Complex64], step_hz: f64) -> f64 {
    if values.len() < 2 || step_hz == 0.0 {
        return 0.0;
    }
    let len = values.len().next_power_of_two() * FINER;
    let mut lags = values.to_vec();
    lags.resize(len, Complex64::ZERO);
    inverse_f64(len).process(&mut lags);
    let power = |n: usize| lags[n % len].norm_sqr();
    let peak = (0..len).max_by(|a, b| power(*a).total_cmp(&power(*b))).unwrap_or(0);
    // Maximum of the parabola through the peak and its neighbours.
    let (left, top, right) = (power(peak + len - 1), power(peak), power(peak + 1));
    let curvature = left - 2.0 * top + right;
    let offset = if curvature < 0.0 { 0.5 * (left - right) / curvature } else { 0.0 };
    let lag = if peak > len / 2 { peak as f64 - len as f64 } else { peak as f64 };
    (lag + offset) / (len as f64 * step_hz)
}
