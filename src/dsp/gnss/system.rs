//! Supported signals, with the constants of their interface specifications.

use num_complex::Complex64;
use schemars::JsonSchema;
use serde::Deserialize;
use std::f64::consts::{PI, TAU};

/// Signal of a satellite navigation system.
///
/// Sources: IS-GPS-200 for GPS L1 C/A; the Galileo open service signal-in-space interface control document for E1-B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// GPS L1 C/A: 1023 chips in 1 ms, BPSK.
    GpsL1Ca,
    /// Galileo E1-B: 4092 chips in 4 ms, CBOC(6,1,1/11).
    GalileoE1b,
}

/// Whether `float` equals the integer `number`.
fn is_number(float: f64, number: usize) -> bool {
    (float - number as f64).abs() < 1e-6
}

/// Chip rate of both signals, in chips per second.
pub const CHIP_RATE_HZ: f64 = 1.023e6;
/// Carrier frequency of both signals.
pub const CARRIER_HZ: f64 = 1575.42e6;

impl System {
    /// All signals; the index of each is its number in streams.
    pub const ALL: [Self; 2] = [Self::GpsL1Ca, Self::GalileoE1b];

    /// Returns its number in streams.
    #[must_use]
    pub fn number(self) -> usize {
        self as usize
    }

    /// Returns the signal with this number in a stream.
    #[must_use]
    pub fn numbered(number: f64) -> Option<Self> {
        Self::ALL.into_iter().find(|system| is_number(number, system.number()))
    }

    /// Returns the satellite with this number in a stream, if it exists.
    #[must_use]
    pub fn satellite(self, number: f64) -> Option<usize> {
        (1..=self.last_prn()).find(|prn| is_number(number, *prn))
    }

    /// Returns its name in flowgraphs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GpsL1Ca => "gps_l1_ca",
            Self::GalileoE1b => "galileo_e1b",
        }
    }

    /// Returns the largest number of a satellite; the smallest is 1.
    #[must_use]
    pub fn last_prn(self) -> usize {
        match self {
            Self::GpsL1Ca => 37,
            Self::GalileoE1b => 50,
        }
    }

    /// Returns the number of chips of the code.
    #[must_use]
    pub fn chips(self) -> usize {
        match self {
            Self::GpsL1Ca => 1023,
            Self::GalileoE1b => 4092,
        }
    }

    /// Returns the number of entries of a chip: equal parts within which the signal is constant.
    #[must_use]
    pub fn entries_per_chip(self) -> usize {
        match self {
            Self::GpsL1Ca => 1,
            // Half periods of the subcarrier of 6.138 MHz.
            Self::GalileoE1b => 12,
        }
    }

    /// Returns the number of entries of the code.
    #[must_use]
    pub fn entries(self) -> usize {
        self.chips() * self.entries_per_chip()
    }

    /// Returns the period of the code in seconds.
    #[must_use]
    pub fn period_seconds(self) -> f64 {
        self.chips() as f64 / CHIP_RATE_HZ
    }

    /// Returns the number of code periods per data symbol.
    #[must_use]
    pub fn periods_per_symbol(self) -> u64 {
        match self {
            Self::GpsL1Ca => 20,
            Self::GalileoE1b => 1,
        }
    }

    /// Returns half the width of the main lobes, in Hz: the band that the signal needs on either side.
    #[must_use]
    pub fn main_lobe_hz(self) -> f64 {
        match self {
            Self::GpsL1Ca => CHIP_RATE_HZ,
            // The square subcarrier has a lobe on either side.
            Self::GalileoE1b => 2.0 * CHIP_RATE_HZ,
        }
    }

    /// Returns the part of the signal's power within `half_hz` of the carrier on either side.
    #[must_use]
    pub fn power_within(self, half_hz: f64) -> f64 {
        const STEPS: u32 = 2000;
        // Chips are made of rectangles of equal length: one, or twelve of CBOC(6,1,1/11).
        let [slow, fast] = [10.0_f64, 1.0].map(|parts| (parts / 11.0).sqrt());
        let sign = |is_first: bool| if is_first { 1.0 } else { -1.0 };
        let cboc = |n: u32| slow * sign(n < 6) + fast * sign(n.is_multiple_of(2));
        let chip: Vec<f64> = match self {
            Self::GpsL1Ca => vec![1.0],
            Self::GalileoE1b => (0..12).map(cboc).collect(),
        };
        let len = chip.len() as f64;
        let density = |x: f64| {
            let turned =
                |(n, level): (usize, &f64)| *level * Complex64::cis(-TAU * x * n as f64 / len);
            let sum: Complex64 = chip.iter().enumerate().map(turned).sum();
            let angle = PI * x / len;
            (sum / len).norm_sqr() * (angle.sin() / angle).powi(2)
        };
        let most = half_hz / CHIP_RATE_HZ;
        let middle = |step: u32| most * (f64::from(step) + 0.5) / f64::from(STEPS);
        2.0 * most / f64::from(STEPS) * (0..STEPS).map(|step| density(middle(step))).sum::<f64>()
    }

    /// Returns the satellite's name as in receivers: `G07`, `E11`.
    #[must_use]
    pub fn label(self, prn: usize) -> String {
        let letter = match self {
            Self::GpsL1Ca => 'G',
            Self::GalileoE1b => 'E',
        };
        format!("{letter}{prn:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn main_lobes_contain_most_of_the_power() {
        // SciPy's integral of sinc^2, and Simpson's rule over the transforms of BOC(1,1) and BOC(6,1) in closed form.
        for (system, expected) in [(System::GpsL1Ca, 0.902_823), (System::GalileoE1b, 0.799_395)] {
            let part = system.power_within(system.main_lobe_hz());
            assert!((part - expected).abs() < 1e-5, "{part}");
        }
        let part = System::GalileoE1b.power_within(7.161e6);
        assert!((part - 0.943_944).abs() < 1e-5, "{part}");
    }
}
