//! Counters, and the fraction of flagged data of each channel.

use super::Shape;
use fxgraph::{Counter, Env, Gauge, Header};
use fxgraph_dsp::kurtosis::Verdict;

/// State of one unit: a channel and polarisation of a heap.
///
/// The numbers are those of `spectral_kurtosis.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// Samples that are not flagged.
    Passed = 0,
    /// Missing in the input.
    Missing = 1,
    /// Flagged without a test.
    Always = 2,
    /// Flagged because the kurtosis is above the upper limit.
    High = 3,
    /// Flagged because the kurtosis is below the lower limit.
    Low = 4,
    /// Not tested yet.
    Untested = 5,
}

impl State {
    /// Returns the state before the test of a unit with the count `valid`.
    pub(super) const fn before(valid: u32, is_enabled: bool, is_always_flagged: bool) -> Self {
        match (valid, is_enabled, is_always_flagged) {
            (0, _, _) => Self::Missing,
            (_, false, _) => Self::Passed,
            (_, true, true) => Self::Always,
            (_, true, false) => Self::Untested,
        }
    }

    /// Returns the state with this number; numbers of no state are those of missing units.
    pub(super) const fn of_number(number: u8) -> Self {
        match number {
            0 => Self::Passed,
            2 => Self::Always,
            3 => Self::High,
            4 => Self::Low,
            5 => Self::Untested,
            _ => Self::Missing,
        }
    }

    /// Whether the samples of the unit become 0.
    pub(super) const fn is_cleared(self) -> bool {
        !matches!(self, Self::Passed)
    }
}

impl From<Verdict> for State {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Noise => Self::Passed,
            Verdict::High => Self::High,
            Verdict::Low => Self::Low,
        }
    }
}

/// Name of the annotation with the fraction of each channel that is flagged.
pub(super) const FLAGGED: &str = "flagged";

/// Counters of all implementations.
pub(super) struct Statistics {
    shape: Shape,
    samples_flagged: Counter,
    always: Counter,
    high: Counter,
    low: Counter,
    missing: Counter,
    fraction: Gauge,
    /// Flagged units of each channel, and all units that are not missing.
    of_channel: Vec<[u32; 2]>,
}

impl Statistics {
    pub(super) fn new(shape: Shape, env: &Env) -> Self {
        let count = |name, help| env.counters.count(name, help);
        Self {
            of_channel: vec![[0; 2]; shape.channels],
            shape,
            samples_flagged: count(
                "samples_flagged",
                "complex samples replaced by zeros, of all channels, antennas and polarisations",
            ),
            always: count(
                "units_flagged_always",
                "channels and polarisations of heaps flagged by `channels_always_flagged`",
            ),
            high: count(
                "units_flagged_high",
                "channels and polarisations of heaps flagged because the kurtosis is above the upper limit: pulses",
            ),
            low: count(
                "units_flagged_low",
                "channels and polarisations of heaps flagged because the kurtosis is below the lower limit: \
                 continuous carriers",
            ),
            missing: count(
                "units_missing",
                "channels and polarisations of heaps that were missing in the input; look for missing data upstream",
            ),
            fraction: env.counters.measurement(
                "flagged_fraction",
                "fraction of the input of the last frame that is flagged, 0 to 1",
            ),
        }
    }

    /// Counts the states `[heap][antenna][channel][pol]` of a frame, sets the validity of the units that are flagged to 0,
    /// and writes the annotation `flagged` `[channel]`: the fraction of the units of each channel that are flagged, of
    /// those that are not missing.
    pub(super) fn add(&mut self, states: &[u8], header: &mut Header) {
        let [mut always, mut high, mut low, mut missing] = [0_u64; 4];
        self.of_channel.fill([0; 2]);
        let Shape { channels, pols, .. } = self.shape;
        let units = states.chunks_exact(pols).zip(header.validity.chunks_exact_mut(pols));
        for (row, (states, counts)) in units.enumerate() {
            let [flagged, there] = &mut self.of_channel[row % channels];
            for (state, count) in states.iter().zip(counts) {
                match State::of_number(*state) {
                    State::Passed => {
                        *there += 1;
                        continue;
                    }
                    State::Missing | State::Untested => {
                        missing += 1;
                        *count = 0;
                        continue;
                    }
                    State::Always => always += 1,
                    State::High => high += 1,
                    State::Low => low += 1,
                }
                *flagged += 1;
                *there += 1;
                *count = 0;
            }
        }
        let fractions = header.annotations.reset(FLAGGED, channels);
        for (fraction, [flagged, there]) in fractions.iter_mut().zip(&self.of_channel) {
            *fraction = f64::from(*flagged) / f64::from((*there).max(1));
        }
        self.always.add(always);
        self.high.add(high);
        self.low.add(low);
        self.missing.add(missing);
        let flagged = always + high + low;
        self.samples_flagged.add(flagged * self.shape.spectra as u64);
        let there = states.len() as u64 - missing;
        self.fraction.set(flagged as f64 / there.max(1) as f64);
    }
}
