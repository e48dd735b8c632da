//! Phases of code and carrier as integers, so that sums over days stay exact.

use super::{Replica, Satellite};

/// Fractional bits of a code phase; the 21 integer bits count entries of the replica: 1 534 500 of L2 CL.
pub const CODE_FRACTION_BITS: u32 = 43;
/// One entry of the replica as a code phase.
pub const ENTRY: u64 = 1 << CODE_FRACTION_BITS;

/// Phases of one satellite at a sample, and their increments per sample.
///
/// The step of the code is rounded to 2^-43 entries, that of the carrier to 2^-64 turns; all further arithmetic is
/// exact. Over 100 000 samples the index of the code differs from that of exact arithmetic only within 6e-9
/// entries of a boundary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nco {
    /// Phase of the code in entries of the replica, 21.43 bits, less than `code_wrap`.
    pub code: u64,
    /// Increment of `code` per sample.
    pub code_step: u64,
    /// Length of the replica, as a phase.
    pub code_wrap: u64,
    /// Phase of the carrier in units of 2^-64 turns.
    pub carrier: u64,
    /// Increment of `carrier` per sample.
    pub carrier_step: u64,
}

/// Returns the fractional part of `turns` in units of 2^-64 turns.
#[inline]
#[must_use]
pub fn turns(turns: f64) -> u64 {
    let fraction = turns - turns.floor();
    // The largest fractions round to a whole turn, which is 0.
    (fraction * 2.0_f64.powi(64)) as u128 as u64
}

impl Nco {
    /// Returns the phases of `satellite` at `timestamp`, for samples at `rate_hz`, with the carrier at
    /// `intermediate_hz` plus its Doppler shift.
    #[must_use]
    pub fn new(
        satellite: &Satellite,
        replica: &Replica,
        intermediate_hz: f64,
        rate_hz: f64,
        timestamp: u64,
    ) -> Self {
        let per_chip = replica.per_chip() as f64;
        let length = replica.entries().len() as u64;
        let mut nco = Self {
            code: 0,
            code_step: 0,
            code_wrap: length << CODE_FRACTION_BITS,
            carrier: turns(satellite.carrier_turns),
            carrier_step: turns((intermediate_hz + satellite.doppler_hz) / rate_hz),
        };
        nco.set_code_rate(satellite.code_rate_hz() * per_chip / rate_hz);
        nco.set_code(satellite.code_phase_chips * per_chip);
        // The timestamp of the phases may be earlier or later than `timestamp`.
        if timestamp >= satellite.at_timestamp {
            nco.advance(timestamp - satellite.at_timestamp);
        } else {
            nco.go_back(satellite.at_timestamp - timestamp);
        }
        nco
    }

    /// Sets the phase of the code, in entries.
    #[inline]
    pub fn set_code(&mut self, entries: f64) {
        let length = (self.code_wrap >> CODE_FRACTION_BITS) as f64;
        let phase = (entries.rem_euclid(length) * ENTRY as f64) as u64;
        self.code = phase % self.code_wrap;
    }

    /// Sets the rate of the code, in entries per sample.
    #[inline]
    pub fn set_code_rate(&mut self, entries_per_sample: f64) {
        // A code with a step of 0 would never end.
        self.code_step = (entries_per_sample * ENTRY as f64).round().max(1.0) as u64;
    }

    /// Sets the frequency of the carrier, in turns per sample.
    #[inline]
    pub fn set_frequency(&mut self, turns_per_sample: f64) {
        self.carrier_step = turns(turns_per_sample);
    }

    /// Advances the phases by `samples`.
    #[inline]
    pub fn advance(&mut self, samples: u64) {
        let wrap = u128::from(self.code_wrap);
        let ahead = u128::from(self.code) + u128::from(samples) * u128::from(self.code_step);
        // Most steps are short, and divisions of 128-bit numbers are slow.
        let code = if ahead < 2 * wrap {
            ahead - if ahead < wrap { 0 } else { wrap }
        } else {
            ahead % wrap
        };
        self.code = code as u64;
        self.carrier = self.carrier.wrapping_add(samples.wrapping_mul(self.carrier_step));
    }

    /// Moves the phases back by `samples`.
    #[inline]
    pub fn go_back(&mut self, samples: u64) {
        let wrap = u128::from(self.code_wrap);
        let steps = u128::from(samples) * u128::from(self.code_step);
        let steps = if steps < wrap { steps } else { steps % wrap };
        let code = u128::from(self.code) + wrap - steps;
        self.code = (code - if code < wrap { 0 } else { wrap }) as u64;
        self.carrier = self.carrier.wrapping_sub(samples.wrapping_mul(self.carrier_step));
    }

    /// Advances the phases by `ticks` of a clock with `ratio.0` ticks for `ratio.1` samples. Whole samples are exact; the
    /// fraction of a sample is rounded down.
    pub fn advance_ticks(&mut self, ticks: u64, ratio: (u64, u64)) {
        let of = u128::from(ratio.0);
        let samples = u128::from(ticks) * u128::from(ratio.1);
        let (whole, rest) = (samples / of, samples % of);
        self.advance(u64::try_from(whole).unwrap_or(u64::MAX));
        // The rest is less than `ratio.0`, which has 64 bits, so products fit.
        let code = u128::from(self.code) + u128::from(self.code_step) * rest / of;
        self.code = (code % u128::from(self.code_wrap)) as u64;
        // The step has a sign: frequencies above half of the rate are negative ones.
        let turned = i128::from(self.carrier_step.cast_signed()) * rest.cast_signed();
        self.carrier = self.carrier.wrapping_add(turned.div_euclid(of.cast_signed()) as u64);
    }

    /// Moves the phases back by `ticks`; as [`advance_ticks`](Self::advance_ticks).
    pub fn go_back_ticks(&mut self, ticks: u64, ratio: (u64, u64)) {
        // As many whole samples as take a multiple of the ratio, and forward by the difference.
        let periods = ticks.div_ceil(ratio.0);
        self.go_back(periods.saturating_mul(ratio.1));
        self.advance_ticks(periods.saturating_mul(ratio.0) - ticks, ratio);
    }

    /// Returns the phase of the code at a correlator tap; see [`tap`].
    #[inline]
    #[must_use]
    pub fn code_at(&self, tap: u64) -> u64 {
        let to_end = self.code_wrap - tap;
        if self.code < to_end { self.code + tap } else { self.code - to_end }
    }

    /// Returns the phase of the code in entries.
    #[inline]
    #[must_use]
    pub fn entries(&self) -> f64 {
        self.code as f64 / ENTRY as f64
    }

    /// Returns the phase of the carrier in turns.
    #[inline]
    #[must_use]
    pub fn carrier_turns(&self) -> f64 {
        self.carrier as f64 / 2.0_f64.powi(64)
    }
}

/// Returns a correlator tap that is `chips` ahead (early), as a phase of the code less than its length.
#[must_use]
pub fn tap(chips: f64, replica: &Replica) -> u64 {
    let ahead = (chips * replica.per_chip() as f64 * ENTRY as f64).round() as i128;
    let wrap = (replica.entries().len() as i128) << CODE_FRACTION_BITS;
    ahead.rem_euclid(wrap) as u64
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::gnss::System;

    fn satellite(at_timestamp: u64) -> Satellite {
        Satellite {
            system: System::GalileoE1b,
            prn: 4,
            doppler_hz: -3217.25,
            code_phase_chips: 4091.7,
            carrier_turns: 0.3,
            at_timestamp,
        }
    }

    #[test]
    fn phases_apply_at_their_timestamp() {
        let replica = Replica::new(System::GalileoE1b, 4).unwrap();
        let late = Nco::new(&satellite(1000), &replica, 0.0, 25e6, 1000);
        assert!((late.entries() - 4091.7 * 12.0).abs() < 1e-9);
        assert!((late.carrier_turns() - 0.3).abs() < 1e-15);
        let mut early = Nco::new(&satellite(1000), &replica, 0.0, 25e6, 0);
        early.advance(1000);
        assert_eq!(early, late);
    }

    #[test]
    fn advancing_in_one_step_equals_many_steps() {
        let replica = Replica::new(System::GalileoE1b, 4).unwrap();
        let mut stepped = Nco::new(&satellite(0), &replica, 1e5, 25e6, 0);
        let mut at_once = stepped;
        (0..3000).for_each(|_| stepped.advance(1));
        at_once.advance(3000);
        assert_eq!(stepped, at_once);
    }

    #[test]
    fn ticks_between_samples_are_fractions_of_a_sample() {
        let replica = Replica::new(System::GalileoE1b, 4).unwrap();
        for (carrier_hz, ratio) in [(1e5, (4, 1)), (-3e6, (7, 3)), (1e5, (2, 5)), (-3e6, (1, 1))] {
            let start = Nco::new(&satellite(0), &replica, carrier_hz, 25e6, 0);
            for ticks in [0, 1, 5, 28, 123_456_789_012] {
                let mut nco = start;
                nco.advance_ticks(ticks, ratio);
                let samples = ticks * ratio.1;
                let mut whole = start;
                whole.advance(samples / ratio.0);
                let rest = (samples % ratio.0) as f64 / ratio.0 as f64;
                let entries = whole.entries() + rest * start.code_step as f64 / ENTRY as f64;
                let length = replica.entries().len() as f64;
                assert!((nco.entries() - entries.rem_euclid(length)).abs() < 1e-9, "{ratio:?}");
                let step = (carrier_hz - 3217.25) / 25e6;
                let turns =
                    (whole.carrier_turns() + rest * step - nco.carrier_turns()).rem_euclid(1.0);
                assert!(turns.min(1.0 - turns) < 1e-9, "{ratio:?} {ticks}: {turns}");
                nco.go_back_ticks(ticks, ratio);
                assert!((nco.entries() - start.entries()).abs() < 1e-12, "{ratio:?} {ticks}");
                let apart = nco.carrier.wrapping_sub(start.carrier).cast_signed();
                assert!(apart.abs() <= 2, "{ratio:?} {ticks}: {apart}");
            }
        }
    }

    #[test]
    fn tap_offsets_wrap_at_both_ends() {
        let replica = Replica::new(System::GalileoE1b, 4).unwrap();
        let mut nco = Nco::new(&satellite(0), &replica, 0.0, 25e6, 0);
        nco.code = 0;
        assert_eq!(nco.code_at(tap(-0.25, &replica)), nco.code_wrap - 3 * ENTRY);
        nco.code = nco.code_wrap - 1;
        assert_eq!(nco.code_at(tap(0.5, &replica)), 6 * ENTRY - 1);
    }
}
