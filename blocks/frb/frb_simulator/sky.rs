//! Signal of the source at the feeds: direction, amplitude, and delay of each feed.

use super::{FrbSimulator, Pulse, Source};
use fxgraph_dsp::geometry::SPEED_OF_LIGHT;
use num_complex::Complex64;
use std::f64::consts::{LN_2, TAU};

/// Dispersion constant: delay of a pulse in s GHz^2 per pc/cm^3.
const DISPERSION: f64 = 4.148_808e-3;

impl Source {
    /// Phase factors from one cylinder to the next and from one feed to the next, at this time and frequency. A wave
    /// that arrives later by tau has a phase of `-2 pi f tau` on the sky.
    pub(super) fn turns(&self, parameters: &FrbSimulator, seconds: f64, hz: f64) -> [Complex64; 2] {
        let east = (self.east_degrees + self.east_degrees_per_second * seconds).to_radians().sin();
        let north = self.north_degrees.to_radians().sin();
        let cylinder_seconds = -parameters.cylinder_spacing_metres * east / SPEED_OF_LIGHT;
        let feed_seconds = parameters.feed_spacing_metres * north / SPEED_OF_LIGHT;
        let sign = parameters.whole_band().sideband.sign();
        [cylinder_seconds, feed_seconds]
            .map(|delay| Complex64::cis(-TAU * sign * (hz * delay).fract()))
    }
}

impl Pulse {
    /// Standard deviation at this time and frequency; the pulse arrives at `at_seconds` for `highest_hz`.
    pub(super) fn amplitude(&self, seconds: f64, hz: f64, highest_hz: f64) -> f64 {
        let delay = |hz: f64| DISPERSION * self.dispersion_measure / (hz / 1e9).powi(2);
        let late = seconds - self.at_seconds - (delay(hz) - delay(highest_hz));
        // The power exp(-4 ln 2 (t / width)^2) is half of the peak at half the width on either side.
        self.amplitude * (-2.0 * LN_2 * (late / self.width_seconds).powi(2)).exp()
    }
}
