//! Replica of a satellite's code at the receiver: chips with their subcarrier.

use super::codes::chips;
use super::{BLOCK_SAMPLES, Satellite, System};
use std::sync::Arc;

/// Entries after a period: more than a block of samples can advance. If the band contains the main lobes, there are at
/// most three entries per sample, and 1 % more with the largest accepted Doppler shift.
const EXTENSION: usize = 4 * BLOCK_SAMPLES;

fn extend(entries: &[i8]) -> Arc<[i8]> {
    entries.iter().cycle().take(entries.len() + EXTENSION).copied().collect()
}

/// One period of a code, divided into equal entries within which the code is constant.
#[derive(Clone, Debug)]
pub struct Replica {
    /// A period, and the part of the next one that a block of samples may reach.
    extended: Arc<[i8]>,
    period: usize,
    per_chip: usize,
    scale: f64,
}

impl Replica {
    /// Returns the memory of a replica of `system` in bytes.
    #[must_use]
    pub fn bytes(system: System) -> usize {
        system.entries() + EXTENSION
    }

    /// Creates the replica of satellite `prn`; `None` if the satellite does not exist.
    #[must_use]
    pub fn new(system: System, prn: usize) -> Option<Self> {
        Some(Self::of_chips(system, &chips(system, prn)?))
    }

    /// Creates the replica of chips with the subcarrier of `system`.
    pub(super) fn of_chips(system: System, chips: &[i8]) -> Self {
        let subcarrier = system.signal().subcarrier;
        let per_chip = subcarrier.entries_per_chip();
        let of_chip = |(n, chip): (usize, &i8)| {
            let chip = *chip;
            (0..per_chip).map(move |entry| chip * subcarrier.whole_level(n, entry))
        };
        let entries: Vec<i8> = chips.iter().enumerate().flat_map(of_chip).collect();
        let power: i64 = entries.iter().map(|entry| i64::from(*entry).pow(2)).sum();
        Self {
            extended: extend(&entries),
            period: entries.len(),
            per_chip,
            scale: 1.0 / (power as f64 / entries.len() as f64).sqrt(),
        }
    }

    /// Returns the entries of one period.
    #[inline]
    #[must_use]
    pub fn entries(&self) -> &[i8] {
        &self.extended[..self.period]
    }

    /// Returns the entries of a period and of the beginning of the next one.
    #[inline]
    #[must_use]
    pub fn extended(&self) -> &[i8] {
        &self.extended
    }

    /// Returns the number of entries per chip.
    #[inline]
    #[must_use]
    pub fn per_chip(&self) -> usize {
        self.per_chip
    }

    /// Returns the factor that gives the entries a mean power of 1.
    #[inline]
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Creates the replica of a satellite.
    #[must_use]
    pub fn of(satellite: &Satellite) -> Option<Self> {
        Self::new(satellite.system, satellite.prn)
    }

    /// Returns the circular autocorrelation at a lag of `chips` chips, normalised to 1 at lag 0.
    #[must_use]
    pub fn autocorrelation(&self, chips: f64) -> f64 {
        let entries = self.entries();
        let shift = chips * self.per_chip as f64;
        let whole = (shift.floor() as i64).rem_euclid(entries.len() as i64) as usize;
        let at = |lag: usize| {
            let shifted = entries[lag % entries.len()..].iter().chain(entries.iter());
            entries.iter().zip(shifted).map(|(a, b)| i64::from(*a) * i64::from(*b)).sum::<i64>()
                as f64
        };
        // Between two entries the correlation of rectangles is linear.
        let part = shift - shift.floor();
        (at(whole) * (1.0 - part) + at(whole + 1) * part) / at(0)
    }
}

#[cfg(test)]
impl Replica {
    /// Creates the replica of the C/A code whose second sequence is delayed by `delay_chips`, such as those of
    /// [`AUGMENTATION_DELAY_CHIPS`](super::codes::AUGMENTATION_DELAY_CHIPS).
    #[must_use]
    pub fn gold(delay_chips: usize) -> Self {
        Self::of_chips(System::GpsL1Ca, &crate::gnss::codes::gps::gold(delay_chips))
    }

    /// Creates a replica with the length of `like` and other values.
    pub fn marked(like: &Self, value: impl Fn(usize) -> i8) -> Self {
        let entries: Vec<i8> = (0..like.period).map(value).collect();
        Self { extended: extend(&entries), ..like.clone() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn replica_length_is_that_of_its_system() {
        for system in System::ALL {
            let replica = Replica::new(system, *system.prns().start()).unwrap();
            assert_eq!(replica.per_chip(), system.entries_per_chip());
            assert_eq!(replica.entries().len(), system.entries());
            assert_eq!(replica.extended().len(), Replica::bytes(system));
            // A code phase has 21 integer bits, and a receiver sums over parts of whole entries.
            assert!(replica.entries().len() < 1 << 21);
            assert_eq!(replica.entries().len() % system.parts(), 0, "{system:?}");
        }
    }

    #[test]
    fn subcarriers_have_power_ratio_ten_to_one() {
        let replica = Replica::new(System::GalileoE1b, 1).unwrap();
        assert_eq!((replica.entries().len(), replica.per_chip()), (49104, 12));
        let power: f64 = replica.entries().iter().map(|v| f64::from(*v).powi(2)).sum();
        assert!((power / 49104.0 * replica.scale().powi(2) - 1.0).abs() < 1e-12);
        assert!(((79.0_f64 / 25.0).powi(2) - 10.0).abs() < 0.02);
        // The first chip of satellite 1 is -1, and begins with both square waves high.
        assert_eq!(replica.entries()[..4], [-104, -54, -104, -54]);
        assert_eq!(replica.entries()[6..8], [54, 104]);
    }

    #[test]
    fn autocorrelation_is_that_of_the_modulation() {
        let gps = Replica::new(System::GpsL1Ca, 3).unwrap();
        assert!((gps.autocorrelation(0.5) - 0.5).abs() < 1e-3);
        assert!((gps.autocorrelation(-0.25) - 0.75).abs() < 1e-3);
        let galileo = Replica::new(System::GalileoE1b, 3).unwrap();
        assert!((galileo.autocorrelation(0.0) - 1.0).abs() < 1e-12);
        // BOC(1,1) alone is -1/2 here, BOC(6,1) is 1/2, weighted by their fractions of the power.
        let shares = [10.0 / 11.0, 1.0 / 11.0];
        assert!((galileo.autocorrelation(0.5) - (-0.5 * shares[0] + 0.5 * shares[1])).abs() < 0.1);
    }
}
