//! Supported signals: one table with the constants of their interface specifications.

use super::Subcarrier;
use super::codes;
use schemars::JsonSchema;
use serde::Deserialize;
use std::ops::RangeInclusive;

/// Constants of a signal.
#[derive(Debug)]
pub struct Signal {
    /// Name in flowgraphs.
    pub name: &'static str,
    /// Letter of the system in names of satellites.
    pub letter: char,
    /// Name of the component in names of satellites; empty for the one that gives a satellite its plain name.
    pub component: &'static str,
    /// Frequency of the carrier.
    pub carrier_hz: f64,
    /// Chips per second.
    pub chip_rate_hz: f64,
    /// Number of chips of the code.
    pub chips: usize,
    /// Shape of a chip.
    pub subcarrier: Subcarrier,
    /// Numbers of the satellites.
    pub prns: RangeInclusive<usize>,
    /// Chips of a satellite, each 1 (logic 0) or -1 (logic 1); `None` if the satellite does not exist.
    pub code: fn(usize) -> Option<Vec<i8>>,
    /// Number of code periods per data symbol; `None` for a pilot.
    pub periods_per_symbol: Option<u64>,
}

/// Defines the signals, each with its entry of the table.
macro_rules! signals {
    ($($(#[doc = $about:literal])* $variant:ident: $entry:expr,)*) => {
        /// Signal of a satellite navigation system, by its name in flowgraphs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum System { $($(#[doc = $about])* $variant,)* }

        const COUNT: usize = [$(stringify!($variant)),*].len();

        static SIGNALS: [Signal; COUNT] = [$($entry),*];

        impl System {
            /// All signals; the index of each is its number in streams.
            pub const ALL: [Self; COUNT] = [$(Self::$variant),*];
        }
    };
}

const L1_HZ: f64 = 1575.42e6;

signals! {
    /// GPS L1 C/A: 1023 chips in 1 ms, BPSK (IS-GPS-200).
    GpsL1Ca: Signal {
        name: "gps_l1_ca",
        letter: 'G',
        component: "",
        carrier_hz: L1_HZ,
        chip_rate_hz: 1.023e6,
        chips: 1023,
        subcarrier: Subcarrier::None,
        prns: 1..=37,
        code: codes::gps_l1_ca,
        periods_per_symbol: Some(20),
    },
    /// Galileo E1-B: 4092 chips in 4 ms, CBOC(6,1,1/11) (Galileo open service signal-in-space interface control
    /// document).
    GalileoE1b: Signal {
        name: "galileo_e1b",
        letter: 'E',
        component: "",
        carrier_hz: L1_HZ,
        chip_rate_hz: 1.023e6,
        chips: 4092,
        subcarrier: Subcarrier::Sum,
        prns: 1..=50,
        code: codes::galileo_e1b,
        periods_per_symbol: Some(1),
    },
}

/// Whether `float` equals the integer `number`.
fn is_number(float: f64, number: usize) -> bool {
    (float - number as f64).abs() < 1e-6
}

impl System {
    /// Returns its entry of the table.
    #[must_use]
    pub fn signal(self) -> &'static Signal {
        &SIGNALS[self as usize]
    }

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
        self.prns().find(|prn| is_number(number, *prn))
    }

    /// Returns its name in flowgraphs.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.signal().name
    }

    /// Returns the numbers of its satellites.
    #[must_use]
    pub fn prns(self) -> RangeInclusive<usize> {
        self.signal().prns.clone()
    }

    /// Returns the frequency of the carrier.
    #[must_use]
    pub fn carrier_hz(self) -> f64 {
        self.signal().carrier_hz
    }

    /// Returns the number of chips of the code.
    #[must_use]
    pub fn chips(self) -> usize {
        self.signal().chips
    }

    /// Returns the number of entries of a chip: equal parts within which the signal is constant.
    #[must_use]
    pub fn entries_per_chip(self) -> usize {
        self.signal().subcarrier.entries_per_chip()
    }

    /// Returns the number of entries of the code.
    #[must_use]
    pub fn entries(self) -> usize {
        self.chips() * self.entries_per_chip()
    }

    /// Returns the period of the code in seconds.
    #[must_use]
    pub fn period_seconds(self) -> f64 {
        self.chips() as f64 / self.signal().chip_rate_hz
    }

    /// Returns the chip rate of a signal whose carrier is shifted by `doppler_hz`, in chips per second: code and carrier
    /// are shifted by the same fraction.
    #[must_use]
    pub fn code_rate_hz(self, doppler_hz: f64) -> f64 {
        self.signal().chip_rate_hz * (1.0 + doppler_hz / self.carrier_hz())
    }

    /// Returns half the width of the main lobes, in Hz: the band that the signal needs on either side.
    #[must_use]
    pub fn main_lobe_hz(self) -> f64 {
        self.signal().subcarrier.main_lobe() * self.signal().chip_rate_hz
    }

    /// Returns the part of the signal's power within `half_hz` of the carrier on either side.
    #[must_use]
    pub fn power_within(self, half_hz: f64) -> f64 {
        self.signal().subcarrier.power_within(half_hz / self.signal().chip_rate_hz)
    }

    /// Returns the satellite's number among those of the system, from 1.
    #[must_use]
    pub fn place(self, prn: usize) -> usize {
        (prn + 1).saturating_sub(*self.signal().prns.start())
    }

    /// Returns the satellite's name as in receivers: `G07`, `E11`.
    #[must_use]
    pub fn label(self, prn: usize) -> String {
        let Signal { letter, component, .. } = self.signal();
        let space = if component.is_empty() { "" } else { " " };
        format!("{letter}{:02}{space}{component}", self.place(prn))
    }
}

/// Frequencies of carriers in samples, without Doppler shift.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Carriers {
    /// All carriers are at this frequency.
    At(f64),
    /// The samples have this frequency of the sky at 0 Hz.
    Around(f64),
}

impl Carriers {
    /// Returns the frequency of the carrier of `system`.
    #[must_use]
    pub fn hz(self, system: System) -> f64 {
        match self {
            Self::At(hz) => hz,
            Self::Around(centre_hz) => system.carrier_hz() - centre_hz,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_flowgraphs_and_labels_differ() {
        let mut labels = Vec::new();
        for system in System::ALL {
            let named =
                serde::de::value::StrDeserializer::<serde::de::value::Error>::new(system.name());
            assert_eq!(System::deserialize(named).unwrap(), system);
            assert_eq!(System::numbered(system.number() as f64), Some(system));
            labels.extend(system.prns().map(|prn| system.label(prn)));
        }
        let count = labels.len();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), count);
    }
}
