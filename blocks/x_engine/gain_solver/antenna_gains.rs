//! Gains of the antennas without those of their F-engines, from all solutions so far.

use super::GainSolver;
use super::settings::Settings;
use super::sums::Shape;
use fxgraph::TimeBase;
use fxgraph_dsp::stefcal::Estimate;
use num_complex::Complex64;
use std::f64::consts::TAU;

/// Variance of a value that is not known.
const UNKNOWN: f64 = 1e6;

/// Logarithm of an amplitude, or a phase in radians, from all measurements so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Evidence {
    pub(super) value: f64,
    pub(super) variance: f64,
}

impl Evidence {
    /// Allows for a change of the gain if a measurement with this variance differs from the value by an `innovation` of more
    /// than `limit` variances: the gain may have changed by as much as makes the innovation plausible.
    fn allow_change(&mut self, innovation: f64, variance: f64, limit: f64) {
        self.variance = self.variance.max(innovation * innovation / limit - variance);
    }

    /// Adds a measurement with this variance that differs by `innovation` from the value, as a Kalman filter does.
    fn add(&mut self, innovation: f64, variance: f64) {
        if variance.is_normal() && innovation.is_finite() {
            self.variance = (self.variance.recip() + variance.recip()).recip();
            self.value += innovation * self.variance / variance;
        }
    }

    /// Part of an error that the evidence supports: the error times the Wiener weight `s / (s + variance)`, with the
    /// estimate `s = value^2 - variance` of the square of the true error. 0 if the error is not larger than its
    /// uncertainty.
    pub(super) fn supported(self) -> f64 {
        let Self { value, variance } = self;
        if value * value > variance { value - variance / value } else { 0.0 }
    }
}

/// Errors of the gain of an antenna with the gains in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Residual {
    /// Logarithm of the amplitude, with a level that all antennas have in common.
    pub(super) amplitude: Evidence,
    /// Phase relative to the reference antenna.
    pub(super) phase: Evidence,
}

/// Gains of the antennas: what the F-engines cannot change.
pub(super) struct AntennaGains {
    shape: Shape,
    /// Square of an innovation, divided by its variance, that noise exceeds with at most the probability of a false
    /// detection: `erfc(sqrt(limit / 2)) < exp(-limit / 2)`.
    limit: f64,
    /// Variance that the drift adds in an ADC sample.
    drift: f64,
    /// Timestamp of the last solution, and its time base.
    last: (u64, TimeBase),
    /// Logarithms of the amplitudes, with a common level, and phases, with a common phase, `[group][pol][antenna]`.
    amplitudes: Vec<Evidence>,
    phases: Vec<Evidence>,
    /// Logarithms of the gains in force `[group][pol][antenna]`.
    in_force: Vec<Complex64>,
    /// Errors of the antennas in the solution at work, `None` without a gain.
    pub(super) residuals: Vec<Option<Residual>>,
    /// Amplitudes of the solution at work minus those of the evidence, the variances of the evidence, and those of the
    /// differences.
    differences: Vec<[f64; 3]>,
}

/// Bytes of the evidence.
pub(super) fn host_bytes(shape: &Shape) -> usize {
    let gains = shape.groups() * shape.pols * shape.antennas;
    gains * (2 * size_of::<Evidence>() + size_of::<Complex64>())
}

impl AntennaGains {
    pub(super) fn new(parameters: &GainSolver, shape: &Shape) -> Self {
        let antennas = shape.antennas;
        let gains = shape.groups() * shape.pols * antennas;
        let unknown = Evidence { value: 0.0, variance: UNKNOWN };
        Self {
            shape: *shape,
            limit: -2.0 * parameters.false_detection_probability.ln(),
            drift: parameters.drift_per_hour.powi(2) / shape.samples_per_hour,
            last: (0, TimeBase::default()),
            amplitudes: vec![unknown; gains],
            phases: vec![unknown; gains],
            in_force: vec![Complex64::ZERO; gains],
            residuals: vec![None; antennas],
            differences: Vec::with_capacity(antennas),
        }
    }

    /// Begins the solutions of dumps from this timestamp on, in which the antennas had these `settings`. In a new time base
    /// the drift is that since its begin: the time before is not known to the sender.
    pub(super) fn begin(
        &mut self,
        (timestamp, base): (u64, TimeBase),
        settings: &[Result<Settings, String>],
    ) {
        let (Shape { antennas, pols, .. }, groups) = (self.shape, self.shape.groups());
        let (last, last_base) = self.last;
        let since = if base.is(&last_base) { last } else { base.from };
        let drift = self.drift * timestamp.saturating_sub(since) as f64;
        self.last = (timestamp, base);
        let evidence = self.amplitudes.iter_mut().chain(&mut self.phases);
        evidence.for_each(|evidence| evidence.variance += drift);
        for (place, in_force) in self.in_force.iter_mut().enumerate() {
            let (group, pol) = (place / antennas / pols, place / antennas % pols);
            let settings = settings.get(place % antennas).and_then(|read| read.as_ref().ok());
            let logarithm = settings.and_then(|settings| settings.logarithm(pol, group, groups));
            *in_force = logarithm.unwrap_or_default();
        }
    }

    /// Antenna relative to which the phases of a solution are measured: the reference antenna, or without it the one
    /// whose phase is known best.
    pub(super) fn anchor(
        &self,
        solution: usize,
        reference: usize,
        gains: &[Option<Complex64>],
        estimates: &[Estimate],
    ) -> Option<usize> {
        let phases = &self.phases[solution * gains.len()..][..gains.len()];
        let is_known = |a: usize| gains[a].is_some() && phases[a].variance < UNKNOWN;
        // A reference antenna that appears after others is first measured against them.
        if gains[reference].is_some() && (is_known(reference) || !(0..gains.len()).any(is_known)) {
            return Some(reference);
        }
        (0..gains.len()).filter(|a| gains[*a].is_some()).min_by(|a, b| {
            let [one, two] = [a, b].map(|a| (phases[*a].variance, estimates[*a].significance));
            one.0.total_cmp(&two.0).then(two.1.total_cmp(&one.1))
        })
    }

    /// Adds a solution, whose phases have uncertainties relative to `anchor`, and sets `residuals`. Returns the factor
    /// that the gains have in common, by which they differ from the residuals.
    pub(super) fn add(
        &mut self,
        solution: usize,
        (reference, anchor): (usize, usize),
        gains: &[Option<Complex64>],
        estimates: &[Estimate],
    ) -> Option<Complex64> {
        let of_antennas = solution * gains.len()..(solution + 1) * gains.len();
        let Self { limit, amplitudes, phases, in_force, residuals, differences, .. } = self;
        let amplitudes = &mut amplitudes[of_antennas.clone()];
        let phases = &mut phases[of_antennas.clone()];
        let in_force = &in_force[of_antennas];
        let solved = || {
            let gains = gains.iter().zip(in_force).enumerate();
            gains.filter_map(|(a, (gain, in_force))| Some((a, (*gain)?.ln() - in_force)))
        };

        // The phase of the reference antenna is that of the array: its uncertainty is that of all others.
        let is_known = phases[reference].variance < UNKNOWN;
        let reference = if is_known { reference } else { anchor };
        let common = phases[reference].variance;
        phases.iter_mut().for_each(|phase| phase.variance += common);
        phases[reference].variance = 0.0;
        let known = phases[anchor];
        let turn = gains[anchor]?.arg() - in_force[anchor].im - known.value;
        for (a, measured) in solved().filter(|(a, _)| *a != anchor) {
            let innovation = wrapped(measured.im - turn - phases[a].value);
            let variance = estimates[a].phase.powi(2) + known.variance;
            phases[a].allow_change(innovation, variance, *limit);
            phases[a].add(innovation, variance);
        }

        differences.clear();
        differences.extend(solved().map(|(a, measured)| {
            let Evidence { value, variance } = amplitudes[a];
            [measured.re - value, variance, variance + estimates[a].ln_amplitude.powi(2)]
        }));
        let level = common_difference(differences, *limit)?;
        for (a, measured) in solved() {
            let innovation = measured.re - level - amplitudes[a].value;
            let variance = estimates[a].ln_amplitude.powi(2);
            amplitudes[a].allow_change(innovation, variance, *limit);
            // The uncertainty is that of the measured amplitude. Where noise raises the amplitude, it lowers the
            // uncertainty by the same factor: without this correction high amplitudes would have more weight.
            let noise = innovation * variance / (amplitudes[a].variance + variance);
            amplitudes[a].add(innovation, variance * (2.0 * noise).exp());
        }

        let of_reference = phases[reference].value + in_force[reference].im;
        residuals.fill(None);
        for (a, _) in solved() {
            let (amplitude, phase) = (amplitudes[a], phases[a]);
            residuals[a] = Some(Residual {
                amplitude: Evidence { value: amplitude.value + in_force[a].re, ..amplitude },
                phase: Evidence {
                    value: wrapped(phase.value + in_force[a].im - of_reference),
                    ..phase
                },
            });
        }
        Some(Complex64::new(level, turn + of_reference).exp())
    }
}

/// Mean of the differences of all antennas that have not changed, with the inverse variances of the evidence as weights.
/// The weights do not depend on the noise of the solution, so that the mean has no bias. An antenna has changed if its
/// difference deviates from the weighted median by more than `limit` variances.
fn common_difference(differences: &mut [[f64; 3]], limit: f64) -> Option<f64> {
    differences.sort_unstable_by(|one, two| one[0].total_cmp(&two[0]));
    let total: f64 = differences.iter().map(|[_, variance, _]| variance.recip()).sum();
    let mut below = 0.0;
    let [median, ..] = *differences.iter().find(|[_, variance, _]| {
        below += variance.recip();
        below >= total / 2.0
    })?;
    let (mut sum, mut weights) = (0.0, 0.0);
    for [difference, variance, of_difference] in differences {
        if (*difference - median).powi(2) <= limit * *of_difference {
            (sum, weights) = (sum + *difference / *variance, weights + variance.recip());
        }
    }
    (weights > 0.0).then(|| sum / weights)
}

/// An angle in radians, from -pi to pi.
fn wrapped(angle: f64) -> f64 {
    angle - TAU * (angle / TAU).round()
}
