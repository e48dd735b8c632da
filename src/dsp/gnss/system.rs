//! Access to the table of signals.

use super::signals::{SIGNALS, Signal};
use std::ops::RangeInclusive;

pub use super::signals::System;

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

    /// Returns the number of equal parts of a code period over which a receiver sums at a time: the shortest number of
    /// parts of at most 5 ms, because loops need sums more often than every 10 ms.
    #[must_use]
    pub fn parts(self) -> usize {
        (self.period_seconds() / 5e-3).ceil() as usize
    }

    /// Returns the secondary code of a satellite, each chip 1 or -1 for a period of the code; a single 1 without one.
    #[must_use]
    pub fn secondary(self, prn: usize) -> Option<Vec<i8>> {
        self.signal().secondary.map_or_else(|| Some(vec![1]), |(_, code)| code(prn))
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
    use serde::Deserialize;

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
