//! StEFCal: complex gains of antennas from visibilities and a model, by alternating least squares.
//!
//! The gains minimise `sum w |V - g_1 M conj(g_2)|^2` over all baselines of two different antennas. Baseline
//! `a2 (a2 + 1) / 2 + a1` is that of antennas `a1 <= a2`. A baseline whose visibility is exactly 0 counts as one without
//! data: it is that of an antenna that delivers zeros.
//!
//! Source: Salvini and Wijnholds, Astronomy and Astrophysics 571, A97 (2014).

mod errors;

pub use errors::{Errors, Estimate, false_alarm, weigh};

use num_complex::Complex64;

/// Limits of a solution.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Antenna whose gain is real and positive.
    pub reference: usize,
    /// Smallest number of antennas that are connected to the reference antenna by baselines with data.
    pub min_antennas: usize,
    /// Largest number of iterations.
    pub iterations: usize,
    /// Relative change of the gains below which they have converged.
    pub tolerance: f64,
}

/// Quality of a solution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quality {
    /// Weighted rms of `V - g_1 M conj(g_2)` divided by that of V.
    pub residual: f64,
    /// Number of iterations.
    pub iterations: usize,
}

/// Reason why there is no solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Number of antennas that are connected to the reference antenna; too few.
    TooFewAntennas(usize),
    /// The baselines form no loop of an odd number of antennas, so that amplitudes are undetermined.
    Undetermined,
    /// The gains have not converged after the largest number of iterations, or the data are not finite.
    NotConverged,
}

/// Number of antennas with this number of baselines, autocorrelations included; `None` if there is none.
#[must_use]
pub fn antennas_of(baselines: usize) -> Option<usize> {
    let antennas = (baselines.checked_mul(8)? + 1).isqrt().saturating_sub(1) / 2;
    (antennas > 0 && antennas * (antennas + 1) / 2 == baselines).then_some(antennas)
}

/// Visibilities of all baselines.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// Measured visibilities.
    pub measured: &'a [Complex64],
    /// Visibilities of the model.
    pub model: &'a [Complex64],
    /// Weights, proportional to the inverse variance; 0 for missing visibilities.
    pub weights: &'a [f64],
}

/// Measured and model visibility of `a` with `b`, and their weight.
type Pair = (Complex64, Complex64, f64);

impl Data<'_> {
    fn pair(&self, a: usize, b: usize) -> Pair {
        let (a1, a2) = (a.min(b), a.max(b));
        let n = a2 * (a2 + 1) / 2 + a1;
        let (measured, model) = (self.measured[n], self.model[n]);
        if a < b {
            (measured, model, self.weights[n])
        } else {
            (measured.conj(), model.conj(), self.weights[n])
        }
    }

    fn has(&self, a: usize, b: usize) -> bool {
        let (measured, _, weight) = self.pair(a, b);
        a != b && weight > 0.0 && measured != Complex64::ZERO
    }
}

/// Solver for a number of antennas. It allocates when it is created only.
pub struct Solver {
    /// Antennas that are connected to the reference antenna.
    used: Vec<usize>,
    /// Side of each antenna while antennas with a baseline are put on different sides; `None` if not connected.
    sides: Vec<Option<bool>>,
    gains: Vec<Complex64>,
    newer: Vec<Complex64>,
}

impl Solver {
    /// A solver for `antennas` antennas.
    #[must_use]
    pub fn new(antennas: usize) -> Self {
        Self {
            used: Vec::with_capacity(antennas),
            sides: vec![None; antennas],
            gains: vec![Complex64::ONE; antennas],
            newer: vec![Complex64::ONE; antennas],
        }
    }

    /// Computes the gains and writes them to `gains`, `None` for antennas without data.
    ///
    /// # Errors
    /// See [`Failure`]. Then all of `gains` are `None`.
    ///
    /// # Panics
    /// If `data` has fewer baselines, or `gains` fewer antennas.
    pub fn solve(
        &mut self,
        data: &Data<'_>,
        limits: &Limits,
        gains: &mut [Option<Complex64>],
    ) -> Result<Quality, Failure> {
        gains.fill(None);
        let has_odd_loop = self.connect(data, limits.reference);
        if self.used.len() < limits.min_antennas.max(2) {
            return Err(Failure::TooFewAntennas(self.used.len()));
        }
        if !has_odd_loop {
            return Err(Failure::Undetermined);
        }
        self.start(data, limits.reference);
        for iteration in 1..=limits.iterations {
            let change = self.iterate(data, iteration % 2 == 0);
            if iteration % 2 == 0 && change <= limits.tolerance {
                let residual = self.residual(data);
                let reference = self.gains[limits.reference];
                let turn = reference.conj() / reference.norm();
                let is_fine = |gain: &Complex64| gain.norm().is_normal();
                if !self.used.iter().all(|a| is_fine(&self.gains[*a])) {
                    return Err(Failure::NotConverged);
                }
                for &a in &self.used {
                    gains[a] = Some(self.gains[a] * turn);
                }
                return Ok(Quality { residual, iterations: iteration });
            }
        }
        Err(Failure::NotConverged)
    }

    /// Finds the antennas that are connected to `reference`. Returns whether the baselines form a loop of an odd number
    /// of antennas.
    fn connect(&mut self, data: &Data<'_>, reference: usize) -> bool {
        let Self { used, sides, .. } = self;
        sides.fill(None);
        sides[reference] = Some(false);
        used.clear();
        used.push(reference);
        let (mut next, mut has_odd_loop) = (0, false);
        while let Some(&antenna) = used.get(next) {
            next += 1;
            for other in (0..sides.len()).filter(|other| data.has(antenna, *other)) {
                if sides[other].is_none() {
                    sides[other] = sides[antenna].map(|side| !side);
                    used.push(other);
                } else if sides[other] == sides[antenna] {
                    has_odd_loop = true;
                }
            }
        }
        used.sort_unstable();
        has_odd_loop
    }

    /// Sets the first approximation: the phases of the baselines with the reference antenna, and a common amplitude.
    fn start(&mut self, data: &Data<'_>, reference: usize) {
        let (mut measured_sum, mut model_sum) = (0.0, 0.0);
        for (a, b) in pairs(&self.used, data) {
            let (measured, model, weight) = data.pair(a, b);
            measured_sum += weight * measured.norm();
            model_sum += weight * model.norm();
        }
        let amplitude = (measured_sum / model_sum).sqrt();
        for &a in &self.used {
            let phase = if data.has(a, reference) {
                let (measured, model, _) = data.pair(a, reference);
                (measured * model.conj()).arg()
            } else {
                0.0
            };
            self.gains[a] = Complex64::from_polar(amplitude, phase);
        }
    }

    /// Replaces each gain by the best one for the present gains of the others; if `is_even`, by the mean of both.
    /// Returns the relative change.
    fn iterate(&mut self, data: &Data<'_>, is_even: bool) -> f64 {
        let Self { used, gains, newer, .. } = self;
        let (mut change, mut size) = (0.0, 0.0);
        for &a in used.iter() {
            let (mut above, mut below) = (Complex64::ZERO, 0.0);
            for &b in used.iter().filter(|b| data.has(a, **b)) {
                let (measured, model, weight) = data.pair(a, b);
                above += weight * measured * model.conj() * gains[b];
                below += weight * model.norm_sqr() * gains[b].norm_sqr();
            }
            newer[a] = above / below;
            if is_even {
                newer[a] = (newer[a] + gains[a]) / 2.0;
            }
            change += (newer[a] - gains[a]).norm_sqr();
            size += newer[a].norm_sqr();
        }
        std::mem::swap(gains, newer);
        (change / size).sqrt()
    }

    fn residual(&self, data: &Data<'_>) -> f64 {
        let (mut off, mut all) = (0.0, 0.0);
        for (a, b) in pairs(&self.used, data) {
            let (measured, model, weight) = data.pair(a, b);
            off += weight * (measured - self.gains[a] * model * self.gains[b].conj()).norm_sqr();
            all += weight * measured.norm_sqr();
        }
        (off / all).sqrt()
    }
}

/// Pairs of different antennas of `used` with data.
fn pairs(used: &[usize], data: &Data<'_>) -> impl Iterator<Item = (usize, usize)> {
    let pairs = used.iter().flat_map(|a| used.iter().map(|b| (*a, *b)));
    pairs.filter(|(a, b)| b < a && data.has(*a, *b))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
