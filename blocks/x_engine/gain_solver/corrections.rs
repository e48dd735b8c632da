//! Factors of an update, within limits.

use super::antenna_gains::{Evidence, Residual};
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
    /// Amplitudes of the antennas without limited corrections.
    free: Vec<Evidence>,
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
            free: Vec::with_capacity(antennas),
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

    /// Logarithm of the factor for an amplitude at this `level`, and whether it was limited.
    fn limit(&self, amplitude: Evidence, level: f64, applied: f64) -> (f64, bool) {
        if self.mode == Mode::Phase {
            return (0.0, false);
        }
        let wanted = -self.loop_gain * relative(amplitude, level).supported();
        let given = wanted.clamp(-self.max_step, self.max_step);
        let given = (applied + given).clamp(-self.max_change, self.max_change) - applied;
        (given, (given - wanted).abs() > 1e-12)
    }

    /// Sets the factors of a solution. The corrections of the amplitudes leave the geometric mean of the gains as it is.
    /// Antennas with limited corrections leave the mean: otherwise the others would follow them. Returns the logarithm of
    /// the level of the amplitudes, and the number of limited corrections.
    pub(super) fn set(
        &mut self,
        residuals: &[Option<Residual>],
        (group, pol): (usize, usize),
    ) -> (f64, usize) {
        let antennas = || {
            let residuals = residuals.iter().enumerate();
            residuals.filter_map(|(antenna, residual)| Some((antenna, (*residual)?)))
        };
        self.free.clear();
        self.free.extend(antennas().map(|(_, residual)| residual.amplitude));
        self.free.sort_unstable_by(|one, two| one.value.total_cmp(&two.value));
        let Some(median) = self.free.get(self.free.len() / 2) else { return (0.0, 0) };
        let mut level = median.value;
        // Each round starts from a better level; two rounds without a change end it.
        for _ in 0..residuals.len() {
            let mut free = std::mem::take(&mut self.free);
            free.clear();
            for (antenna, Residual { amplitude, .. }) in antennas() {
                let applied = self.applied[self.place(antenna, group, pol)];
                if !self.limit(amplitude, level, applied).1 {
                    free.push(amplitude);
                }
            }
            let next = balanced(&free).unwrap_or(level);
            self.free = free;
            if (next - level).abs() < 1e-12 {
                break;
            }
            level = next;
        }
        let mut limited = 0;
        for (antenna, Residual { amplitude, phase }) in antennas() {
            let place = self.place(antenna, group, pol);
            let (logarithm, is_limited) = self.limit(amplitude, level, self.applied[place]);
            limited += usize::from(is_limited);
            let phase = -self.loop_gain * phase.supported();
            self.factors[place] = Complex64::from_polar(logarithm.exp(), phase);
        }
        (level, limited)
    }
}

fn relative(amplitude: Evidence, level: f64) -> Evidence {
    Evidence { value: amplitude.value - level, ..amplitude }
}

/// Level at which the corrections of all amplitudes have the sum 0, so that antennas without a significant correction do
/// not contribute: their mean if no antenna has one.
fn balanced(amplitudes: &[Evidence]) -> Option<f64> {
    let mut level = amplitudes.iter().map(|amplitude| amplitude.value).sum::<f64>();
    level /= amplitudes.len() as f64;
    let (mut low, mut high) = amplitudes
        .iter()
        .map(|amplitude| (amplitude.value, amplitude.value))
        .reduce(|one, two| (one.0.min(two.0), one.1.max(two.1)))?;
    // The sum falls with the level. Each step bisects the interval, to the resolution of numbers.
    for _ in 0..f64::MANTISSA_DIGITS {
        let supported = amplitudes.iter().map(|amplitude| relative(*amplitude, level).supported());
        match supported.sum::<f64>() {
            sum if sum.abs() < 1e-13 => break,
            sum if sum > 0.0 => low = level,
            _ => high = level,
        }
        level = f64::midpoint(low, high);
    }
    Some(level)
}
