//! Partial visibilities and beams: some heaps or antennas did not contribute.

use schemars::JsonSchema;
use serde::Deserialize;

/// Flag of a visibility on the wire, as the `MeerKAT` engines send it: -2^31 never occurs otherwise.
const FLAG: [i32; 2] = [i32::MIN, 1];
/// Largest magnitude of a visibility.
const LARGEST_VISIBILITY: f64 = i32::MAX as f64;
/// Largest magnitude of each part of a beam's values.
const LARGEST_VOLTAGE: f64 = 127.0;
/// Default of `minimum_fraction`.
const MINIMUM_FRACTION: f64 = 0.5;

/// Treatment of partial visibilities and beams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartialDumps {
    /// Incomplete baselines carry the flag value.
    #[default]
    Flag,
    /// Sums are not changed.
    Send,
    /// Sums are normalised to the full number of contributions.
    Scale,
}

/// [`PartialDumps`] for a stream.
#[derive(Clone, Copy, Debug)]
pub struct Partial {
    /// The rule.
    pub policy: PartialDumps,
    /// Full number of contributions: heaps of a dump, antennas of a beam.
    pub full: u32,
    /// Smallest number of contributions that is sent.
    pub least: u32,
}

impl Partial {
    /// Creates the rule for counts of contributions up to `full`; `can_flag`: the stream has a flag value.
    #[must_use]
    pub fn new(
        policy: PartialDumps,
        minimum_fraction: Option<f64>,
        can_flag: bool,
        full: u32,
    ) -> Self {
        let full = full.max(1);
        let least = match policy {
            PartialDumps::Flag if can_flag => full,
            PartialDumps::Flag | PartialDumps::Send => 1,
            PartialDumps::Scale => {
                let fraction = minimum_fraction.unwrap_or(MINIMUM_FRACTION);
                let is_enough = |count: u32| f64::from(count) / f64::from(full) >= fraction;
                // The product may be rounded up.
                let most = (fraction * f64::from(full)).ceil() as u32;
                if is_enough(most.saturating_sub(1)) { most - 1 } else { most }
            }
        };
        Self { policy, full, least: least.max(1) }
    }

    /// Returns the factor for a sum with `count` contributions, `None` if the sum is not changed.
    fn factor(&self, count: u32) -> Option<f64> {
        let is_scaled = self.policy == PartialDumps::Scale && (1..self.full).contains(&count);
        is_scaled.then(|| f64::from(self.full) / f64::from(count))
    }

    /// Writes the visibilities `from` to `to`, both ci32 `[channel][baseline][product]`; `counts` are the heaps that
    /// contributed, `[baseline]` for each of `channels`, or with `channels` = 1 of each visibility. Returns the number of
    /// counts flagged.
    pub fn visibilities(
        &self,
        counts: &[u32],
        channels: usize,
        from: &[u8],
        to: &mut [u8],
    ) -> usize {
        let is_flagged = |count: u32| self.policy != PartialDumps::Send && count < self.least;
        let bytes = from.len() / (channels * counts.len());
        let baselines = from.chunks_exact(bytes).zip(to.chunks_exact_mut(bytes));
        for ((from, to), &count) in baselines.zip(counts.iter().cycle()) {
            if is_flagged(count) {
                to.as_chunks_mut().0.fill(*bytemuck::cast_ref::<_, [u8; 8]>(&FLAG));
            } else if let Some(factor) = self.factor(count) {
                for (from, to) in from.as_chunks().0.iter().zip(to.as_chunks_mut().0) {
                    let scaled = (f64::from(i32::from_ne_bytes(*from)) * factor).round_ties_even();
                    let clamped = scaled.clamp(-LARGEST_VISIBILITY, LARGEST_VISIBILITY);
                    *to = (clamped as i32).to_ne_bytes();
                }
            } else {
                to.copy_from_slice(from);
            }
        }
        counts.iter().filter(|count| is_flagged(**count)).count()
    }

    /// Writes the voltages `from` of a beam to `to`, both ci8; `count` is the number of antennas that
    /// contributed. Voltages of too few antennas become 0.
    pub fn beam(&self, count: u32, from: &[u8], to: &mut [u8]) {
        if count < self.least {
            to.fill(0);
            return;
        }
        let factor = self.factor(count).unwrap_or(1.0);
        for (from, to) in from.iter().zip(to) {
            let scaled = (f64::from(from.cast_signed()) * factor).round_ties_even();
            *to = (scaled.clamp(-LARGEST_VOLTAGE, LARGEST_VOLTAGE) as i8).cast_unsigned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(partial: &Partial, counts: &[u32], values: &[i32]) -> (Vec<i32>, usize) {
        let from: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        let mut to = vec![0x5a; from.len()];
        let channels = values.len() / (2 * counts.len());
        let flagged = partial.visibilities(counts, channels, &from, &mut to);
        (to.as_chunks().0.iter().map(|bytes| i32::from_ne_bytes(*bytes)).collect(), flagged)
    }

    #[test]
    fn visibilities_of_an_incomplete_baseline_are_flagged_in_every_channel() {
        let partial = Partial::new(PartialDumps::Flag, None, true, 8);
        let (values, flagged) =
            sent(&partial, &[8, 7, 0], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let flag = i32::MIN;
        assert_eq!(values, [1, 2, flag, 1, flag, 1, 7, 8, flag, 1, flag, 1]);
        assert_eq!((flagged, partial.least), (2, 8));
    }

    #[test]
    fn visibilities_are_scaled_to_the_full_dump_and_flagged_below_the_minimum() {
        let partial = Partial::new(PartialDumps::Scale, Some(0.5), true, 8);
        let values = [8, -8, 7, -7, 4, 5, 3, 3, i32::MAX, -i32::MAX];
        let (values, flagged) = sent(&partial, &[8, 7, 4, 3, 6], &values);
        let most = i32::MAX;
        assert_eq!(values, [8, -8, 8, -8, 8, 10, i32::MIN, 1, most, -most]);
        assert_eq!(flagged, 1);
    }

    #[test]
    fn send_does_not_change_visibilities() {
        let partial = Partial::new(PartialDumps::Send, None, true, 8);
        assert_eq!(sent(&partial, &[7, 1], &[3, 4, 5, 6]), (vec![3, 4, 5, 6], 0));
    }

    #[test]
    fn beams_are_scaled_to_all_antennas_and_clamped() {
        let partial = Partial::new(PartialDumps::Scale, None, false, 4);
        let mut to = [0; 4];
        partial.beam(3, &[3, 253, 120, 136], &mut to);
        assert_eq!(to, [4, 252, 127, 129]);
        assert_eq!(partial.least, 2);
    }

    #[test]
    fn minimum_fraction_is_met_by_an_equal_fraction() {
        for full in [1, 3, 10, 49, 100, 4096] {
            for count in 1..=full {
                let fraction = f64::from(count) / f64::from(full);
                let least = Partial::new(PartialDumps::Scale, Some(fraction), true, full).least;
                assert_eq!(least, count, "{fraction} of {full}");
            }
        }
    }
}
