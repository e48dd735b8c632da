//! Factors of an update, within limits.

use super::sums::Shape;
use super::{GainSolver, Mode};
use num_complex::Complex64;

/// Factors of the next update, and those of all updates so far.
pub(super) struct Corrections {
    mode: Mode,
    loop_gain: f64,
    /// Logarithms of the largest factors of an update, and of all updates together.
    max_step: f64,
    max_change: f64,
    /// `[antenna][group][pol]`.
    pub(super) factors: Vec<Complex64>,
    /// Logarithms of the amplitudes of all factors that took effect, `[antenna][group][pol]`.
    applied: Vec<f64>,
    groups: usize,
    pols: usize,
    /// Logarithms of the amplitudes of the solution at work.
    logarithms: Vec<f64>,
}

impl Corrections {
    pub(super) fn new(parameters: &GainSolver, shape: &Shape) -> Self {
        let Shape { antennas, pols, .. } = *shape;
        let groups = shape.groups();
        Self {
            mode: parameters.mode,
            loop_gain: parameters.loop_gain,
            max_step: parameters.max_amplitude_step.ln(),
            max_change: parameters.max_amplitude_change.ln(),
            factors: vec![Complex64::ONE; antennas * groups * pols],
            applied: vec![0.0; antennas * groups * pols],
            groups,
            pols,
            logarithms: Vec::with_capacity(antennas),
        }
    }

    /// Resets all factors to 1.
    pub(super) fn clear(&mut self) {
        self.factors.fill(Complex64::ONE);
    }

    /// Whether all factors are 1.
    pub(super) fn is_empty(&self) -> bool {
        self.factors.iter().all(|factor| *factor == Complex64::ONE)
    }

    /// Notes that the factors took effect.
    pub(super) fn apply(&mut self) {
        for (applied, factor) in self.applied.iter_mut().zip(&self.factors) {
            *applied += factor.norm().ln();
        }
    }

    fn place(&self, antenna: usize, group: usize, pol: usize) -> usize {
        (antenna * self.groups + group) * self.pols + pol
    }

    /// Logarithm of the factor for an amplitude with this logarithm relative to the mean, and whether it was limited.
    fn limit(&self, logarithm: f64, applied: f64) -> (f64, bool) {
        let wanted = -self.loop_gain * logarithm;
        let given = wanted.clamp(-self.max_step, self.max_step);
        let given = (applied + given).clamp(-self.max_change, self.max_change) - applied;
        (given, (given - wanted).abs() > 1e-12)
    }

    /// Divides `gains` by the geometric mean of their amplitudes, which is the level that stays, and sets the factors of
    /// a solution. Antennas with limited corrections leave the mean: otherwise the others would follow them. Returns the
    /// number of limited corrections.
    pub(super) fn set(
        &mut self,
        gains: &mut [Option<Complex64>],
        (group, pol): (usize, usize),
    ) -> usize {
        self.logarithms.clear();
        self.logarithms.extend(gains.iter().flatten().map(|gain| gain.norm().ln()));
        self.logarithms.sort_unstable_by(f64::total_cmp);
        let Some(median) = self.logarithms.get(self.logarithms.len() / 2) else { return 0 };
        let mut level = *median;
        let is_complex = self.mode == Mode::Complex;
        // Each round starts from a better level; two rounds without a change end it.
        for _ in 0..gains.len() {
            let (mut sum, mut number) = (0.0, 0);
            for (antenna, gain) in gains.iter().enumerate() {
                let Some(gain) = gain else { continue };
                let logarithm = gain.norm().ln();
                let applied = self.applied[self.place(antenna, group, pol)];
                let limited = is_complex && self.limit(logarithm - level, applied).1;
                if !limited {
                    (sum, number) = (sum + logarithm, number + 1);
                }
            }
            let mean = if number == 0 { level } else { sum / f64::from(number) };
            if (mean - level).abs() < 1e-12 {
                break;
            }
            level = mean;
        }
        let mut limited = 0;
        for (antenna, gain) in gains.iter_mut().enumerate() {
            let Some(gain) = gain else { continue };
            *gain /= level.exp();
            let place = self.place(antenna, group, pol);
            let (logarithm, is_limited) = match self.mode {
                Mode::Complex => self.limit(gain.norm().ln(), self.applied[place]),
                Mode::Phase => (0.0, false),
            };
            limited += usize::from(is_limited);
            let phase = -self.loop_gain * gain.arg();
            self.factors[place] = Complex64::from_polar(logarithm.exp(), phase);
        }
        limited
    }
}
