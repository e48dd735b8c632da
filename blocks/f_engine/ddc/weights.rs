//! The low-pass filter that every mode needs.

use super::Mode;
use super::remez::{Band, equiripple};

/// What the low-pass filter of a block is made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowPass {
    /// Which bands it passes and stops.
    pub mode: Mode,
    /// Input samples for each output sample, S.
    pub subsampling: usize,
    /// Number of its weights.
    pub taps: usize,
    /// Part of the kept band that passes, for [`Mode::NoDiscard`].
    pub pass: f64,
    /// Factor by which errors in the pass band count, against 1 in the stop bands.
    pub pass_weight: f64,
}

impl LowPass {
    /// The bands, in cycles per input sample.
    ///
    /// In units of the output's rate, `discard` passes 0 to 1/4, the half that is kept, and stops what
    /// decimation would put there: a quarter to both sides of each whole number. What it puts into the
    /// other half is of no interest. `no_discard` passes 0 to p/2 and stops from 1 - p/2 on.
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

    /// The weights h, times the square root of S: white noise then keeps its level. `None`: there is
    /// no such filter within the precision of numbers.
    #[must_use]
    pub fn weights(&self) -> Option<Vec<f64>> {
        let mut weights = equiripple(self.taps, &self.bands())?;
        let scale = (self.subsampling as f64).sqrt();
        weights.iter_mut().for_each(|weight| *weight *= scale);
        Some(weights)
    }
}
