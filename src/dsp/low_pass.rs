//! The low-pass filter of a decimating filter.

use crate::remez::{Band, equiripple};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// Treatment of the channels at the band edges, which contain aliases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The output covers twice the band: the outer channels are discarded after the channelisation
    /// (`channels` of `postproc`), and the whole band is free of aliases.
    #[default]
    Discard,
    /// The output covers only the band, and its edges roll off.
    NoDiscard,
}

/// Specification of the low-pass filter of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowPass {
    /// Treatment of the band edges.
    pub mode: Mode,
    /// Input samples per output sample, S.
    pub subsampling: usize,
    /// Number of taps.
    pub taps: usize,
    /// Fraction of the output band that is the pass band, for [`Mode::NoDiscard`].
    pub pass: f64,
    /// Weight of errors in the pass band, relative to 1 in the stop bands.
    pub pass_weight: f64,
}

impl LowPass {
    /// Returns pass and stop bands, in cycles per input sample.
    ///
    /// In units of the output rate, `discard` passes 0 to 1/4, the part of the output band that is kept, and stops
    /// the frequencies that alias into it: 1/4 to both sides of each whole number. Aliases in the discarded part are
    /// irrelevant. `no_discard` passes 0 to p/2 and stops from 1 - p/2 on.
    #[must_use]
    pub fn bands(&self) -> Vec<Band> {
        let s = self.subsampling as f64;
        let band = |from: f64, to: f64, desired, weight| Band {
            from: from / s,
            to: to.min(s / 2.0) / s,
            desired,
            weight,
        };
        match self.mode {
            Mode::Discard => {
                let stop = |n: usize| band(n as f64 - 0.25, n as f64 + 0.25, 0.0, 1.0);
                let pass = band(0.0, 0.25, 1.0, self.pass_weight);
                std::iter::once(pass).chain((1..=self.subsampling / 2).map(stop)).collect()
            }
            Mode::NoDiscard => {
                let edge = self.pass / 2.0;
                vec![band(0.0, edge, 1.0, self.pass_weight), band(1.0 - edge, s / 2.0, 0.0, 1.0)]
            }
        }
    }

    /// Returns the weights h, times the square root of S, so that white noise keeps its level. `None` if rounding
    /// errors prevent the design.
    #[must_use]
    pub fn weights(&self) -> Option<Vec<f64>> {
        let mut weights = equiripple(self.taps, &self.bands())?;
        let scale = (self.subsampling as f64).sqrt();
        weights.iter_mut().for_each(|weight| *weight *= scale);
        Some(weights)
    }

    /// Returns the largest errors of the amplitude in the pass band and in the stop bands, relative to the desired
    /// amplitude. `None` as for [`weights`](Self::weights).
    #[must_use]
    pub fn largest_errors(&self) -> Option<[f64; 2]> {
        let scale = (self.subsampling as f64).sqrt();
        let weights = self.weights()?;
        let middle = (weights.len() - 1) as f64 / 2.0;
        let amplitude = |f: f64| -> f64 {
            let term = |(n, h): (usize, &f64)| h / scale * (TAU * f * (n as f64 - middle)).cos();
            weights.iter().enumerate().map(term).sum()
        };
        let mut errors = [0.0_f64; 2];
        for (n, band) in self.bands().iter().enumerate() {
            let steps = 4 * self.taps;
            for i in 0..=steps {
                let f = band.from + (band.to - band.from) * i as f64 / steps as f64;
                let error = (amplitude(f) - band.desired).abs();
                errors[n.min(1)] = errors[n.min(1)].max(error);
            }
        }
        Some(errors)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn low_pass(mode: Mode, subsampling: usize, taps: usize) -> LowPass {
        LowPass { mode, subsampling, taps, pass: 0.75, pass_weight: 0.005 }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn largest_errors_equal_those_of_scipy() {
        // scipy.signal.remez of SciPy 1.17.1 for the same bands and weights: largest error in the pass band
        // and in the stop bands.
        for (mode, subsampling, taps, of_scipy) in [
            (Mode::Discard, 2, 32, [2.9884e-6, 1.5822e-8]),
            (Mode::Discard, 8, 128, [2.8664e-6, 1.5118e-8]),
            (Mode::Discard, 16, 256, [2.8066e-6, 1.4756e-8]),
            (Mode::Discard, 8, 64, [4.4635e-3, 2.2727e-5]),
            (Mode::Discard, 6, 75, [7.7344e-5, 4.1668e-7]),
            (Mode::Discard, 32, 512, [2.7594e-6, 1.4473e-8]),
            (Mode::NoDiscard, 8, 128, [4.4214e-3, 2.2226e-5]),
            (Mode::NoDiscard, 16, 256, [4.3021e-3, 2.1588e-5]),
            (Mode::NoDiscard, 32, 512, [4.2343e-3, 2.1211e-5]),
        ] {
            let found = low_pass(mode, subsampling, taps).largest_errors().unwrap();
            for (found, of_scipy) in found.iter().zip(of_scipy) {
                // Both are the optimum within their precision.
                let ratio = found / of_scipy;
                assert!(
                    (0.9..1.03).contains(&ratio),
                    "{mode:?} {subsampling} {taps}: {found} {of_scipy}"
                );
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn filters_of_all_sizes_can_be_designed() {
        for mode in [Mode::Discard, Mode::NoDiscard] {
            for subsampling in [2, 4, 6, 10, 12, 16] {
                for per_sample in [1, 3, 8, 12, 16] {
                    for pass in [0.5, 0.75, 0.9] {
                        let taps = subsampling * per_sample;
                        let low_pass = LowPass { pass, ..low_pass(mode, subsampling, taps) };
                        assert!(low_pass.weights().is_some(), "{low_pass:?}");
                    }
                }
            }
            let [pass, stop] = low_pass(mode, 64, 1024).largest_errors().unwrap();
            assert!(pass < 5e-3 && stop < 3e-5, "{mode:?}: {pass} {stop}");
        }
    }
}
