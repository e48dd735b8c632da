//! The signals that are known, with the numbers of their interface specifications.

use schemars::JsonSchema;
use serde::Deserialize;

/// A signal of a satellite navigation system.
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

/// Whether a float stands for a whole number.
fn is_number(float: f64, number: usize) -> bool {
    (float - number as f64).abs() < 1e-6
}

/// Chips per second of both.
pub const CHIP_RATE_HZ: f64 = 1.023e6;
/// Frequency of both carriers.
pub const CARRIER_HZ: f64 = 1575.42e6;

impl System {
    /// All of them; the place of each is its number in streams.
    pub const ALL: [Self; 2] = [Self::GpsL1Ca, Self::GalileoE1b];

    /// Its number in streams.
    #[must_use]
    pub fn number(self) -> usize {
        self as usize
    }

    /// The one that has this number in a stream.
    #[must_use]
    pub fn numbered(number: f64) -> Option<Self> {
        Self::ALL.into_iter().find(|system| is_number(number, system.number()))
    }

    /// The satellite that has this number in a stream, if there is one.
    #[must_use]
    pub fn satellite(self, number: f64) -> Option<usize> {
        (1..=self.last_prn()).find(|prn| is_number(number, *prn))
    }

    /// The word for it in flowgraphs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GpsL1Ca => "gps_l1_ca",
            Self::GalileoE1b => "galileo_e1b",
        }
    }

    /// Largest number of a satellite; the smallest is 1.
    #[must_use]
    pub fn last_prn(self) -> usize {
        match self {
            Self::GpsL1Ca => 37,
            Self::GalileoE1b => 50,
        }
    }

    /// Chips of the code.
    #[must_use]
    pub fn chips(self) -> usize {
        match self {
            Self::GpsL1Ca => 1023,
            Self::GalileoE1b => 4092,
        }
    }

    /// Equal parts of a chip within which the signal is constant.
    #[must_use]
    pub fn entries_per_chip(self) -> usize {
        match self {
            Self::GpsL1Ca => 1,
            // Both half periods of the subcarrier of 6.138 MHz.
            Self::GalileoE1b => 12,
        }
    }

    /// The same of the code.
    #[must_use]
    pub fn entries(self) -> usize {
        self.chips() * self.entries_per_chip()
    }

    /// Length of the code in seconds.
    #[must_use]
    pub fn period_seconds(self) -> f64 {
        self.chips() as f64 / CHIP_RATE_HZ
    }

    /// Periods of the code that one symbol of the data takes.
    #[must_use]
    pub fn periods_per_symbol(self) -> u64 {
        match self {
            Self::GpsL1Ca => 20,
            Self::GalileoE1b => 1,
        }
    }

    /// Half the width of the main lobes, in Hz: what of the band the signal needs on either side.
    #[must_use]
    pub fn main_lobe_hz(self) -> f64 {
        match self {
            Self::GpsL1Ca => CHIP_RATE_HZ,
            // The square subcarrier puts a lobe on either side.
            Self::GalileoE1b => 2.0 * CHIP_RATE_HZ,
        }
    }

    /// The satellite's name as receivers write it: `G07`, `E11`.
    #[must_use]
    pub fn label(self, prn: usize) -> String {
        let letter = match self {
            Self::GpsL1Ca => 'G',
            Self::GalileoE1b => 'E',
        };
        format!("{letter}{prn:02}")
    }
}
