//! What reaches the feeds: where the source is, how strong it is, and how late each feed hears it.

use super::{FrbSimulator, Pulse, Source};
use fxgraph_dsp::geometry::SPEED_OF_LIGHT;
use num_complex::Complex64;
use std::f64::consts::{LN_2, TAU};

/// Delay of a pulse in seconds, times GHz^2, for each parsec per cubic centimetre.
const DISPERSION: f64 = 4.148_808e-3;

impl Source {
    /// Phase by which a feed turns from one cylinder to the next, and from one feed to the next, at this
    /// time and frequency: a wave that comes later by tau has turned by `-2 pi f tau`.
    pub(super) fn turns(&self, parameters: &FrbSimulator, seconds: f64, hz: f64) -> [Complex64; 2] {
        let east = (self.east_degrees + self.east_degrees_per_second * seconds).to_radians().sin();
        let north = self.north_degrees.to_radians().sin();
        let cylinder_seconds = -parameters.cylinder_spacing_metres * east / SPEED_OF_LIGHT;
        let feed_seconds = parameters.feed_spacing_metres * north / SPEED_OF_LIGHT;
        [cylinder_seconds, feed_seconds].map(|delay| Complex64::cis(-TAU * (hz * delay).fract()))
    }
}

impl Pulse {
    /// Standard deviation at this time and frequency, if it comes at `highest_hz` when it is said to come.
    pub(super) fn amplitude(&self, seconds: f64, hz: f64, highest_hz: f64) -> f64 {
        let delay = |hz: f64| DISPERSION * self.dispersion_measure / (hz / 1e9).powi(2);
        let late = seconds - self.at_seconds - (delay(hz) - delay(highest_hz));
        // A power of exp(-4 ln 2 (t / width)^2) is half of the peak at half the width on either side.
        self.amplitude * (-2.0 * LN_2 * (late / self.width_seconds).powi(2)).exp()
    }
}
