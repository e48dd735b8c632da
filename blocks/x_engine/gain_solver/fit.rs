//! Solution of one polarisation and group of channels: antennas without a signal are left out.

use super::sums::Sums;
use fxgraph_dsp::stefcal::{self, Data, Errors, Estimate, Limits, false_alarm};
use num_complex::Complex64;

/// Estimate of an antenna without a gain.
pub(super) const UNKNOWN: Estimate =
    Estimate { significance: 0.0, ln_amplitude: f64::NAN, phase: f64::NAN };

/// Smallest median significance of the antennas of a solution that shows which other antennas have no signal, relative to
/// the limit `L = -ln(p)` of an antenna's significance, p the probability of a false detection.
///
/// The significance is proportional to the signal-to-noise ratio of the antenna. An antenna with a quarter of the median
/// is expected at 4 L or more, an amplitude of `2 sqrt(L)` in units of its error. The real part of the error has the
/// variance 1/2, so that noise moves the amplitude below `sqrt(L)` with a probability of at most
/// `erfc(sqrt(L)) / 2 < exp(-L) / 2 = p / 2`.
const SHOWN: f64 = 16.0;

/// Reason why there is no solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The visibilities are as small as those of independent noise, or too few antennas have a signal.
    NoSignal,
    /// Too few antennas have data, their baselines do not determine amplitudes, or the gains do not converge.
    Unsolved,
}

/// Visibilities of one polarisation and group, with working memory.
pub(super) struct Fit {
    limits: Limits,
    /// Probability that an antenna, or an array, without a signal counts as one with a signal.
    false_detection: f64,
    stefcal: stefcal::Solver,
    errors: Errors,
    model: Vec<Complex64>,
    pub(super) means: Vec<Complex64>,
    /// Products of samples in each visibility.
    pub(super) products: Vec<f64>,
    weights: Vec<f64>,
    significances: Vec<f64>,
    /// Significances of the antennas of the solution, in ascending order.
    sorted: Vec<f64>,
    /// Antennas that have data, but no signal.
    pub(super) silent: Vec<bool>,
    /// Whether the source is so strong that antennas with a signal would not be among `silent`, see [`SHOWN`].
    pub(super) is_shown: bool,
}

/// Bytes of the working memory.
pub(super) fn host_bytes(antennas: usize) -> usize {
    let baselines = antennas * (antennas + 1) / 2;
    Errors::bytes(antennas) + baselines * (2 * size_of::<Complex64>() + 2 * size_of::<f64>())
}

impl Fit {
    pub(super) fn new(antennas: usize, limits: Limits, false_detection: f64) -> Self {
        let baselines = antennas * (antennas + 1) / 2;
        Self {
            limits,
            false_detection,
            stefcal: stefcal::Solver::new(antennas),
            errors: Errors::new(antennas),
            model: vec![Complex64::ONE; baselines],
            means: Vec::with_capacity(baselines),
            products: Vec::with_capacity(baselines),
            weights: Vec::with_capacity(baselines),
            significances: vec![0.0; antennas],
            sorted: Vec::with_capacity(antennas),
            silent: vec![false; antennas],
            is_shown: false,
        }
    }

    /// Reads the visibilities of a group and a polarisation.
    pub(super) fn load(&mut self, sums: &Sums, group: usize, pol: usize) {
        sums.means(group, pol, &mut self.means, &mut self.products);
    }

    /// Writes the gains and their significance; `None` for antennas without data or without a signal. One of the
    /// antennas has phase 0.
    pub(super) fn solve(
        &mut self,
        gains: &mut [Option<Complex64>],
        estimates: &mut [Estimate],
    ) -> Result<f64, Failure> {
        gains.fill(None);
        estimates.fill(UNKNOWN);
        self.is_shown = false;
        stefcal::weigh(&self.means, &self.products, &mut self.weights);
        for a in 0..self.silent.len() {
            let auto = a * (a + 1) / 2 + a;
            let is_zero = self.means[auto].re <= 0.0 || self.power(a) == Some(0.0);
            self.silent[a] = self.products[auto] > 0.0 && is_zero;
        }
        let powers = self.means.iter().zip(&self.weights).map(|(v, weight)| weight * v.norm_sqr());
        let (n, power) = powers.filter(|p| *p != 0.0).fold((0, 0.0), |(n, s), p| (n + 1, s + p));
        // Antennas that deliver zeros have no signal, antennas without data may have one.
        let is_missing = n == 0 && !self.silent.contains(&true);
        if is_missing || !power.is_finite() {
            return Err(Failure::Unsolved);
        }
        if false_alarm(n, power) > self.false_detection {
            return Err(Failure::NoSignal);
        }
        loop {
            if self.silent.contains(&true) && self.with_power() < self.limits.min_antennas {
                return Err(Failure::NoSignal);
            }
            let limits = Limits { reference: self.strongest(), ..self.limits };
            let Self { means, model, weights, stefcal, .. } = self;
            let data = Data { measured: means, model, weights };
            let quality = stefcal.solve(&data, &limits, gains).map_err(|_| Failure::Unsolved)?;
            self.errors.significances(&data, &self.products, gains, &mut self.significances);
            if !self.leave_out_silent(gains) {
                for (estimate, significance) in estimates.iter_mut().zip(&self.significances) {
                    estimate.significance = *significance;
                }
                self.is_shown = self.median() >= SHOWN * -self.false_detection.ln();
                return Ok(quality.residual);
            }
            gains.fill(None);
        }
    }

    /// Removes the antennas whose gain is not larger than its error. Returns whether there are any.
    fn leave_out_silent(&mut self, gains: &[Option<Complex64>]) -> bool {
        let Self { significances, silent, weights, false_detection, .. } = self;
        let mut is_any = false;
        for (a, significance) in significances.iter().enumerate() {
            if gains[a].is_some() && (-significance).exp() > *false_detection {
                (is_any, silent[a]) = (true, true);
                for b in 0..gains.len() {
                    let (a1, a2) = (a.min(b), a.max(b));
                    weights[a2 * (a2 + 1) / 2 + a1] = 0.0;
                }
            }
        }
        is_any
    }

    /// Power of the visibilities of an antenna, relative to their noise; `None` without data.
    fn power(&self, a: usize) -> Option<f64> {
        let baseline = |b: usize| a.max(b) * (a.max(b) + 1) / 2 + a.min(b);
        let weighed = (0..self.silent.len()).map(baseline).filter(|n| self.weights[*n] > 0.0);
        let powers = weighed.map(|n| self.weights[n] * self.means[n].norm_sqr());
        powers.fold(None, |sum, power| Some(sum.unwrap_or(0.0) + power))
    }

    /// Number of antennas with visibilities that are not 0.
    fn with_power(&self) -> usize {
        let has_power = |a: &usize| self.power(*a).is_some_and(|power| power > 0.0);
        (0..self.silent.len()).filter(has_power).count()
    }

    /// Median significance of the antennas of the solution, the smaller one of two.
    fn median(&mut self) -> f64 {
        let Self { sorted, significances, .. } = self;
        sorted.clear();
        sorted.extend(significances.iter().filter(|significance| **significance > 0.0));
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
    }

    /// Antenna whose visibilities have the largest power, relative to their noise.
    fn strongest(&self) -> usize {
        let powers = (0..self.silent.len()).filter_map(|a| Some((a, self.power(a)?)));
        powers.max_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(0, |(a, _)| a)
    }

    /// Writes the uncertainties of `gains`, which solve the visibilities that were read with [`load`](Self::load), with
    /// phases relative to `reference`.
    pub(super) fn estimate(
        &mut self,
        gains: &[Option<Complex64>],
        reference: usize,
        estimates: &mut [Estimate],
    ) {
        stefcal::weigh(&self.means, &self.products, &mut self.weights);
        let Self { means, model, weights, products, errors, .. } = self;
        let data = Data { measured: means, model, weights };
        let (mut baselines, mut excess) = (0, 0.0);
        for a2 in 0..gains.len() {
            for a1 in 0..a2 {
                let n = a2 * (a2 + 1) / 2 + a1;
                if let (Some(first), Some(second)) = (gains[a1], gains[a2])
                    && weights[n] > 0.0
                {
                    baselines += 1;
                    excess += weights[n] * (means[n] - first * second.conj()).norm_sqr();
                }
            }
        }
        // A complex visibility determines a real and an imaginary part, an antenna has an amplitude and a phase, and one
        // phase is free.
        let antennas = gains.iter().flatten().count();
        let freedoms = (f64::from(baselines) - antennas as f64 + 0.5).max(0.5);
        // Residuals beyond the noise are errors of the model: other sources, or interference.
        let is_noise = false_alarm(freedoms.ceil() as usize, excess) >= self.false_detection;
        let scale = if is_noise { 1.0 } else { (excess / freedoms).max(1.0) };
        errors.estimate(&data, products, gains, (reference, scale), estimates);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "fit_tests.rs"]
mod tests;
