//! Bands that live parameters move.

use crate::port::Band;

/// Part of the band of a block's first input, which its first output covers and a live parameter moves: the frequency in the
/// samples of the input that becomes the centre of the output's band.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TunedBand {
    /// Live parameter: a frequency of the input's samples in Hz.
    pub parameter: &'static str,
    /// Value of the parameter.
    pub value_hz: f64,
    /// Width of the part of the band.
    pub bandwidth_hz: f64,
    /// Least and largest frequency of the input's samples, counted like the parameter.
    pub edges_hz: [f64; 2],
}

impl TunedBand {
    /// Frequency, counted like that of the band `output` of the first output, of the frequency `hz` of the input's samples: in
    /// the lower sideband it falls as `hz` rises.
    #[must_use]
    pub fn in_band(&self, output: &Band, hz: f64) -> f64 {
        output.centre_hz + output.sideband.sign() * (hz - self.value_hz)
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "values are exact")]
mod tests {
    use super::*;

    #[test]
    fn frequencies_fall_in_the_lower_sideband() {
        let tuned = TunedBand {
            parameter: "centre_hz",
            value_hz: 300e3,
            bandwidth_hz: 100e3,
            edges_hz: [-1.2e6, 1.2e6],
        };
        // The input is centred at 100 MHz.
        let upper = Band::signed(1, 0, 100.3e6, 200e3);
        let lower = Band::signed(1, 0, 99.7e6, -200e3);
        let edges = |band| tuned.edges_hz.map(|hz| tuned.in_band(band, hz));
        assert_eq!(edges(&upper), [98.8e6, 101.2e6]);
        assert_eq!(edges(&lower), [101.2e6, 98.8e6]);
        assert_eq!(tuned.in_band(&lower, tuned.value_hz), 99.7e6);
    }
}
