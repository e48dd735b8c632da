//! Uncertainties of gains, and tests for a signal, from the noise of the visibilities.
//!
//! The visibility `V[ab]` is the mean of K products `x_a conj(x_b)` of Gaussian signals with the covariance `R`, which
//! is the expectation of V with its autocorrelations. Errors of visibilities have the covariance
//! `<n[ac] conj(n[bd])> = R[ab] conj(R[cd]) / K`, for a source of any strength. To first order, errors of the logarithms
//! of the gains are linear functions of `y[a] = sum_b w[ab] conj(m[ab]) n[ab]`, m the model with its gains:
//!
//! ```text
//! sum_b W[ab] (e[a] + conj(e[b])) = y[a],   W[ab] = w[ab] |m[ab]|^2,   e[a] = d ln|g[a]| + j d arg g[a]
//! ```

use super::Data;
use num_complex::Complex64;

/// Uncertainty of the gain of an antenna.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Squared amplitude of the gain, divided by its variance for given gains of the others. For an antenna without a
    /// signal it is exponentially distributed with mean 1.
    pub significance: f64,
    /// Standard deviation of the logarithm of the amplitude, relative to the geometric mean of all antennas.
    pub ln_amplitude: f64,
    /// Standard deviation of the phase relative to the reference antenna, in radians.
    pub phase: f64,
}

/// Writes the inverse variance of each visibility, `K / (R[aa] R[bb])`, to `weights`; 0 for autocorrelations, and where
/// the autocorrelation of an antenna is missing or not positive. `products` are the K.
pub fn weigh(measured: &[Complex64], products: &[f64], weights: &mut Vec<f64>) {
    let auto = |a: usize| a * (a + 1) / 2 + a;
    let power = |a: usize| if products[auto(a)] > 0.0 { measured[auto(a)].re } else { 0.0 };
    weights.clear();
    for a2 in (0..).take_while(|a2| auto(*a2) < measured.len()) {
        for a1 in 0..=a2 {
            let powers = power(a1) * power(a2);
            let is_there = a1 != a2 && powers.is_normal() && power(a1) > 0.0;
            weights.push(if is_there { products[auto(a2) - a2 + a1] / powers } else { 0.0 });
        }
    }
}

/// Probability that the sum of `n` independent exponentially distributed numbers of mean 1 is at least `sum`: that the
/// sum of `n` visibilities `w |V|^2` is as large without any correlated signal.
#[must_use]
pub fn false_alarm(n: usize, sum: f64) -> f64 {
    if n == 0 || sum <= 0.0 {
        return 1.0;
    }
    let (mut logarithm, mut total) = (-sum, (-sum).exp());
    for k in 1..n {
        logarithm += (sum / k as f64).ln();
        total += logarithm.exp();
    }
    total.min(1.0)
}

/// Working memory for the errors of an array. It allocates when it is created only.
pub struct Errors {
    /// Antennas with a gain.
    used: Vec<usize>,
    /// Matrices `[used][used]`: U, `B = U conj(R)`, and covariances of the real and imaginary parts of y.
    u: Vec<Complex64>,
    b: Vec<Complex64>,
    amplitudes: Vec<f64>,
    phases: Vec<f64>,
    /// Matrix that is inverted, its inverse, and a row.
    system: Vec<f64>,
    inverse: Vec<f64>,
    row: Vec<f64>,
}

impl Errors {
    /// Memory for `antennas` antennas.
    #[must_use]
    pub fn new(antennas: usize) -> Self {
        let (complex, real) = (Complex64::ZERO, 0.0);
        let square = antennas * antennas;
        Self {
            used: Vec::with_capacity(antennas),
            u: vec![complex; square],
            b: vec![complex; square],
            amplitudes: vec![real; square],
            phases: vec![real; square],
            system: vec![real; square],
            inverse: vec![real; square],
            row: vec![real; antennas],
        }
    }

    /// Number of bytes of the memory for `antennas` antennas.
    #[must_use]
    pub const fn bytes(antennas: usize) -> usize {
        antennas * antennas * (2 * size_of::<Complex64>() + 4 * size_of::<f64>())
    }

    /// Writes the significance of each gain to `significances`, 0 without a gain. The weights of `data` are those of
    /// [`weigh`], and `products` the K.
    pub fn significances(
        &mut self,
        data: &Data<'_>,
        products: &[f64],
        gains: &[Option<Complex64>],
        significances: &mut [f64],
    ) {
        self.take(data, products, gains);
        self.multiply(data);
        let n = self.used.len();
        significances.fill(0.0);
        for (i, &a) in self.used.iter().enumerate() {
            let curvature = self.curvature(data, gains, i);
            let row = i * n..(i + 1) * n;
            let pairs = self.b[row.clone()].iter().zip(&self.u[row]);
            let others: f64 = pairs.map(|(b, u)| (b * u.conj()).re).sum();
            // Both are of the logarithm of the gain, so that its amplitude cancels.
            let variance = data.pair(a, a).0.re * others / curvature.powi(2);
            significances[a] = if variance > 0.0 { variance.recip() } else { 0.0 };
        }
    }

    /// Writes the uncertainties, which belong to gains that solve `data`, to `estimates`; `significance` stays. The
    /// variances of the visibilities are multiplied by `scale`. Phases are relative to `reference`, which has a gain.
    pub fn estimate(
        &mut self,
        data: &Data<'_>,
        products: &[f64],
        gains: &[Option<Complex64>],
        (reference, scale): (usize, f64),
        estimates: &mut [Estimate],
    ) {
        self.take(data, products, gains);
        self.multiply(data);
        self.covariances(data);
        let n = self.used.len();
        let Some(reference) = self.used.iter().position(|a| *a == reference) else { return };
        let mean_weight = self.assemble(data, gains, 1.0) / n as f64;
        self.invert();
        for i in 0..n {
            // A row of the inverse minus the mean of all rows.
            for k in 0..n {
                let mean = (0..n).map(|j| self.inverse[j * n + k]).sum::<f64>() / n as f64;
                self.row[k] = self.inverse[i * n + k] - mean;
            }
            let variance = quadratic(&self.amplitudes, &self.row[..n]);
            estimates[self.used[i]].ln_amplitude = (scale * variance).sqrt();
        }
        self.assemble(data, gains, -1.0);
        // The common phase is undetermined: it is set to 0 in the mean, and cancels in differences.
        self.system[..n * n].iter_mut().for_each(|value| *value += mean_weight / n as f64);
        self.invert();
        for i in 0..n {
            for k in 0..n {
                self.row[k] = self.inverse[i * n + k] - self.inverse[reference * n + k];
            }
            let variance = quadratic(&self.phases, &self.row[..n]);
            estimates[self.used[i]].phase = (scale * variance).sqrt();
        }
    }

    /// Sets `used` and U: `w conj(m) / sqrt(K)`.
    fn take(&mut self, data: &Data<'_>, products: &[f64], gains: &[Option<Complex64>]) {
        self.used.clear();
        self.used.extend((0..gains.len()).filter(|a| gains[*a].is_some()));
        let n = self.used.len();
        for (i, &a) in self.used.iter().enumerate() {
            for (j, &b) in self.used.iter().enumerate() {
                let (a1, a2) = (a.min(b), a.max(b));
                let products = products[a2 * (a2 + 1) / 2 + a1];
                let (model, weight) = modelled(data, gains, a, b);
                self.u[i * n + j] = match weight {
                    0.0 => Complex64::ZERO,
                    weight => weight * model.conj() / products.sqrt(),
                };
            }
        }
    }

    /// Sets B: U times the conjugate of R.
    fn multiply(&mut self, data: &Data<'_>) {
        let n = self.used.len();
        self.b[..n * n].fill(Complex64::ZERO);
        for (k, &c) in self.used.iter().enumerate() {
            for (j, &b) in self.used.iter().enumerate() {
                let covariance = data.pair(c, b).0.conj();
                for i in 0..n {
                    self.b[i * n + j] += self.u[i * n + k] * covariance;
                }
            }
        }
    }

    /// Sets the covariances of y: `<y conj(y)>` is R times `B U^H`, `<y y>` is B times its transpose, element by
    /// element.
    fn covariances(&mut self, data: &Data<'_>) {
        let n = self.used.len();
        for (i, &a) in self.used.iter().enumerate() {
            for (j, &b) in self.used.iter().enumerate() {
                let (rows, columns) = (&self.b[i * n..][..n], &self.u[j * n..][..n]);
                let product: Complex64 = rows.iter().zip(columns).map(|(b, u)| b * u.conj()).sum();
                let usual = (data.pair(a, b).0 * product).re;
                let pseudo = (self.b[i * n + j] * self.b[j * n + i]).re;
                self.amplitudes[i * n + j] = f64::midpoint(usual, pseudo);
                self.phases[i * n + j] = f64::midpoint(usual, -pseudo);
            }
        }
    }

    /// Sum of W of the antenna in row `i`.
    fn curvature(&self, data: &Data<'_>, gains: &[Option<Complex64>], i: usize) -> f64 {
        let weight = |b: &usize| {
            let (model, weight) = modelled(data, gains, self.used[i], *b);
            weight * model.norm_sqr()
        };
        self.used.iter().map(weight).sum()
    }

    /// Sets the matrix of the normal equations, with `sign` before W. Returns the mean of its diagonal.
    fn assemble(&mut self, data: &Data<'_>, gains: &[Option<Complex64>], sign: f64) -> f64 {
        let n = self.used.len();
        let mut diagonal = 0.0;
        for i in 0..n {
            for j in 0..n {
                let (model, weight) = modelled(data, gains, self.used[i], self.used[j]);
                self.system[i * n + j] = sign * weight * model.norm_sqr();
            }
            let curvature = self.curvature(data, gains, i);
            self.system[i * n + i] = curvature;
            diagonal += curvature;
        }
        diagonal / n as f64
    }

    /// Inverts the matrix, which is symmetric and positive definite, by Gauss-Jordan elimination.
    fn invert(&mut self) {
        let n = self.used.len();
        let Self { system, inverse, .. } = self;
        for (place, value) in inverse[..n * n].iter_mut().enumerate() {
            *value = f64::from(u8::from(place % (n + 1) == 0));
        }
        for pivot in 0..n {
            let factor = system[pivot * n + pivot].recip();
            for k in 0..n {
                system[pivot * n + k] *= factor;
                inverse[pivot * n + k] *= factor;
            }
            for i in (0..n).filter(|i| *i != pivot) {
                let factor = system[i * n + pivot];
                for k in 0..n {
                    system[i * n + k] -= factor * system[pivot * n + k];
                    inverse[i * n + k] -= factor * inverse[pivot * n + k];
                }
            }
        }
    }
}

/// Model visibility of `a` and `b` with their gains, and its weight: 0 without data.
fn modelled(data: &Data<'_>, gains: &[Option<Complex64>], a: usize, b: usize) -> (Complex64, f64) {
    match (gains[a], gains[b]) {
        (Some(first), Some(second)) if data.has(a, b) => {
            let (_, model, weight) = data.pair(a, b);
            (first * model * second.conj(), weight)
        }
        _ => (Complex64::ZERO, 0.0),
    }
}

/// Quadratic form of a row with a square matrix.
fn quadratic(matrix: &[f64], row: &[f64]) -> f64 {
    let product = |line: &[f64]| line.iter().zip(row).map(|(a, b)| a * b).sum::<f64>();
    row.iter().zip(matrix.chunks_exact(row.len())).map(|(x, line)| x * product(line)).sum()
}
