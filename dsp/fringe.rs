//! The fringe of one baseline: what is expected, and what the visibilities say.

use num_complex::Complex64;
use rustfft::FftPlanner;
use std::f64::consts::TAU;

/// The transform that looks for the delay is this much finer than the channels give.
const FINER: usize = 8;

/// What one baseline should show.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expected {
    /// Delay of the first antenna against the second on the sky, in seconds.
    pub delay_seconds: f64,
    /// The same of the delays that were applied, about the centre of the band.
    pub applied_seconds: f64,
    /// Phase difference that was applied, in radians.
    pub applied_radians: f64,
}

impl Expected {
    /// Phase in radians at `hz`, for a band around `centre_hz`.
    #[must_use]
    pub fn phase(&self, hz: f64, centre_hz: f64) -> f64 {
        let turns = hz * self.delay_seconds + (hz - centre_hz) * self.applied_seconds;
        self.applied_radians - TAU * turns.fract()
    }
}

/// What one baseline shows.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Slope of the phase across the band, as a delay in seconds.
    pub delay_seconds: f64,
    /// Phase against the expected one in the middle of the channels, in degrees.
    pub deviation_degrees: f64,
    /// 1 if all channels have the expected phase, 0 if they have nothing to do with it.
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
    // In the middle, with the delay that is there: with another one the phases of the band's two
    // halves would add up to anything.
    let middle_hz = hz.iter().sum::<f64>() / hz.len() as f64;
    let turn = |hz: f64| Complex64::cis(TAU * (hz - middle_hz) * remaining_seconds);
    let straight: Complex64 = turned.iter().zip(hz).map(|(v, hz)| v * turn(*hz)).sum();
    Some(Measured {
        delay_seconds: expected.delay_seconds + expected.applied_seconds + remaining_seconds,
        deviation_degrees: straight.arg().to_degrees(),
        coherence: sum.norm() / all,
    })
}

/// The `tau` for which `|sum v_k exp(2 pi j k step tau)|` is greatest.
fn remaining_delay(values: &[Complex64], step_hz: f64) -> f64 {
    if values.len() < 2 || step_hz == 0.0 {
        return 0.0;
    }
    let len = values.len().next_power_of_two() * FINER;
    let mut lags = values.to_vec();
    lags.resize(len, Complex64::ZERO);
    FftPlanner::new().plan_fft_inverse(len).process(&mut lags);
    let power = |n: usize| lags[n % len].norm_sqr();
    let peak = (0..len).max_by(|a, b| power(*a).total_cmp(&power(*b))).unwrap_or(0);
    // The top of the parabola through the peak and its neighbours.
    let (left, top, right) = (power(peak + len - 1), power(peak), power(peak + 1));
    let curvature = left - 2.0 * top + right;
    let offset = if curvature < 0.0 { 0.5 * (left - right) / curvature } else { 0.0 };
    let lag = if peak > len / 2 { peak as f64 - len as f64 } else { peak as f64 };
    (lag + offset) / (len as f64 * step_hz)
}
