//! Distribution of the statistic without a signal: its tail is measured in the cells of a search.
//!
//! In white noise the statistic of a cell has a gamma distribution with one degree of freedom per period. Interference
//! and the signals of other satellites widen it. The shape of the gamma distribution is therefore that of the measured
//! variance, and a power of its tail is fitted to the cells above a level (peaks over threshold).

/// Probability of the level above which cells are counted, in white noise.
const LEVEL_PROBABILITY: f64 = 3e-4;
/// Weight of white noise in the variance, in cells, and in the tail, in cells above the level.
const PRIOR_CELLS: f64 = 20_000.0;
const PRIOR_ABOVE: f64 = 100.0;
/// Largest number of cells above the level that are stored.
const MOST_ABOVE: usize = 1 << 17;

/// Statistics of cells without a signal.
#[derive(Clone, Debug, Default)]
pub struct Cells {
    count: u64,
    /// Sum of the squared deviations from the mean, 1.
    squares: f64,
    /// Statistics above the level.
    above: Vec<f32>,
}

impl Cells {
    /// Creates empty statistics with their memory.
    #[must_use]
    pub fn new() -> Self {
        Self { above: Vec::with_capacity(MOST_ABOVE), ..Self::default() }
    }

    /// Approximate memory in bytes.
    pub const BYTES: usize = MOST_ABOVE * size_of::<f32>();

    /// Removes all cells.
    pub fn clear(&mut self) {
        self.count = 0;
        self.squares = 0.0;
        self.above.clear();
    }

    /// Adds the `statistics` of cells; those above `level` are stored.
    pub fn add(&mut self, statistics: impl Iterator<Item = f32>, level: f32) {
        let mut squares = 0.0;
        for statistic in statistics {
            self.count += 1;
            squares += f64::from((statistic - 1.0).powi(2));
            if statistic > level && self.above.len() < MOST_ABOVE {
                self.above.push(statistic);
            }
        }
        self.squares += squares;
    }

    /// Adds all cells of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.squares += other.squares;
        let room = MOST_ABOVE - self.above.len();
        self.above.extend_from_slice(&other.above[..other.above.len().min(room)]);
    }

    /// Whether the variance is larger than that of the mean of `periods` exponential variables, beyond its
    /// uncertainty.
    #[must_use]
    pub fn is_wide(&self, periods: usize) -> bool {
        // Neighbouring cells are correlated: about a third of them is independent.
        let uncertainty = (3.0 / (self.count as f64 / 3.0 + 1.0)).sqrt();
        self.squares / self.count.max(1) as f64 * periods as f64 > 1.02 + 5.0 * uncertainty
    }
}

/// Returns the level above which cells are stored.
#[must_use]
pub fn level(periods: usize) -> f64 {
    quantile(periods as f64, -LEVEL_PROBABILITY.ln())
}

/// Tail of the statistic.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    shape: f64,
    /// Negative logarithm of the tail of the gamma distribution at the level.
    at_level: f64,
    /// Negative logarithm of the measured probability at the level.
    measured: f64,
    /// Mean excess of the negative logarithm above the level, 1 for a gamma distribution.
    excess: f64,
}

impl Tail {
    /// Fits the tail of sums of `periods` periods to `cells`.
    #[must_use]
    pub fn new(cells: &Cells, periods: usize) -> Self {
        let count = cells.count as f64;
        let white = 1.0 / periods as f64;
        let shape = (count + PRIOR_CELLS) / (cells.squares + PRIOR_CELLS * white);
        let depth = |statistic: f64| -ln_upper_gamma(shape, shape * statistic);
        let at_level = depth(level(periods));
        let above = cells.above.len() as f64;
        let ratio = (above + PRIOR_ABOVE) / (count * (-at_level).exp() + PRIOR_ABOVE);
        let excess: f64 = cells.above.iter().map(|t| depth(f64::from(*t)) - at_level).sum();
        let excess = (excess + PRIOR_ABOVE) / (above + PRIOR_ABOVE);
        Self { shape, at_level, measured: at_level - ratio.ln(), excess }
    }

    /// Returns the statistic that a cell exceeds with `probability`.
    fn exceeded_with(&self, probability: f64) -> f64 {
        let beyond = -probability.ln() - self.measured;
        let beyond = if beyond > 0.0 { beyond * self.excess } else { beyond };
        quantile(self.shape, (self.at_level + beyond).max(0.0))
    }

    /// Returns the statistic that the largest of `cells` cells exceeds with `probability`. `correlation` is that of
    /// the amplitudes of neighbouring cells: their exceedances come in clusters.
    #[must_use]
    pub fn threshold(&self, cells: f64, correlation: f64, probability: f64) -> f64 {
        let expected = -(-probability).ln_1p();
        let first = self.exceeded_with((expected / cells).min(1.0));
        let clusters = clusters_per_cell(self.shape, first, correlation);
        self.exceeded_with((expected / cells / clusters).min(1.0))
    }
}

/// Returns the number of clusters of cells above `statistic` per such cell (the extremal index), for sums of `shape`
/// powers. Near a high level the sums are a random walk that drifts down: Siegmund, Sequential Analysis (1985), ch. 10.
fn clusters_per_cell(shape: f64, statistic: f64, correlation: f64) -> f64 {
    let (sum, square) = (shape * statistic, correlation.powi(2).min(1.0));
    let rest = 1.0 - square;
    let drift = rest * (sum - shape);
    let deviation = (2.0 * square * rest * sum + rest.powi(2) * shape).sqrt();
    if drift <= 0.0 || deviation == 0.0 {
        return 1.0;
    }
    let x = 2.0 * drift / deviation;
    let term = |n: f64| {
        // The tail of the normal distribution from half the argument.
        0.5 * ln_upper_gamma(0.5, n * x.powi(2) / 8.0).exp() / n
    };
    let mut total = 0.0;
    for n in 1..10_000 {
        let next = term(f64::from(n));
        total += next;
        if next < 1e-6 {
            break;
        }
    }
    (-2.0 * total).exp()
}

/// Returns the value that the mean of `shape` exponential variables of mean 1 exceeds with a probability of which
/// `depth` is the negative logarithm.
#[must_use]
pub fn quantile(shape: f64, depth: f64) -> f64 {
    let depth_at = |mean: f64| -ln_upper_gamma(shape, shape * mean);
    let (mut low, mut high) = (0.0, 1.0);
    while depth_at(high) < depth && high < 1e9 {
        high *= 2.0;
    }
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if depth_at(middle) < depth { low = middle } else { high = middle }
    }
    high
}

/// Returns the logarithm of the regularised upper incomplete gamma function (Numerical Recipes, section 6.2).
fn ln_upper_gamma(shape: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let factor = shape * x.ln() - x - ln_gamma(shape);
    if x < shape + 1.0 {
        let mut term = 1.0 / shape;
        let mut sum = term;
        let mut n = shape;
        while term > sum * 1e-15 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return (-(factor.exp() * sum)).max(-1.0 + 1e-16).ln_1p();
    }
    // Continued fraction by Lentz's method.
    let mut b = x + 1.0 - shape;
    let mut c = 1e300;
    let mut d = 1.0 / b;
    let mut fraction = d;
    for i in 1..100_000 {
        let i = f64::from(i);
        let a = i * (shape - i);
        b += 2.0;
        d = 1.0 / (a * d + b);
        c = b + a / c;
        fraction *= d * c;
        if (d * c - 1.0).abs() < 1e-14 {
            break;
        }
    }
    factor + fraction.ln()
}

/// Returns the logarithm of the gamma function (Stirling's series after a shift of the argument to at least 10).
fn ln_gamma(x: f64) -> f64 {
    let (mut shifted, mut product) = (x, 1.0);
    while shifted < 10.0 {
        product *= shifted;
        shifted += 1.0;
    }
    let square = shifted.powi(-2);
    let series =
        (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0))) / shifted;
    (shifted - 0.5) * shifted.ln() - shifted + 0.5 * std::f64::consts::TAU.ln() + series
        - product.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn upper_gamma_agrees_with_tables() {
        // SciPy's `gammaincc`.
        for (shape, x, expected) in [
            (1.0, 3.0, -3.0),
            (19.0, 56.0, -19.562_895_202_511_96),
            (14.7, 20.0, -2.386_785_962_041_037_7),
            (4.0, 0.5, -0.001_753_158_440_869_410_5),
            (0.5, 2.0, -3.090_037_153_122_083),
        ] {
            let got = ln_upper_gamma(shape, x);
            assert!((got - expected).abs() < 1e-9 * expected.abs(), "{shape} {x}: {got}");
        }
    }

    #[test]
    fn thresholds_are_exceeded_with_the_given_probability() {
        let mut random = Random::new(3);
        for periods in [1, 2, 5, 19] {
            let mut draw = || {
                let sum: f64 = (0..periods).map(|_| -random.uniform().ln()).sum();
                sum / periods as f64
            };
            let mut cells = Cells::new();
            cells.add((0..200_000).map(|_| draw() as f32), level(periods) as f32);
            assert!(!cells.is_wide(periods));
            let most = Tail::new(&cells, periods).threshold(1.0, 0.0, 0.01);
            let passes = (0..40_000).filter(|_| draw() > most).count();
            assert!((340..460).contains(&passes), "{periods}: {passes}");
        }
    }

    #[test]
    fn tail_of_cells_with_a_wider_distribution_is_measured() {
        // A quarter of the cells has more power, as beside a strong satellite.
        let mut random = Random::new(5);
        let mut draw = || {
            let sum: f64 = (0..19).map(|_| -random.uniform().ln()).sum();
            (if random.uniform() < 0.25 { 1.3 } else { 1.0 }) * sum / 19.0 / 1.075
        };
        let mut cells = Cells::new();
        cells.add((0..400_000).map(|_| draw() as f32), level(19) as f32);
        assert!(cells.is_wide(19));
        let most = Tail::new(&cells, 19).threshold(1000.0, 0.0, 0.05);
        let passes = (0..4_000_000).filter(|_| draw() > most).count();
        assert!((120..340).contains(&passes), "expected 205, got {passes}");
    }

    #[test]
    fn exceedances_of_correlated_cells_are_clustered() {
        assert!(clusters_per_cell(19.0, 2.9, 0.0) > 0.999);
        // One power along an autoregressive sequence, counted.
        let mut random = Random::new(8);
        let (correlation, level) = (0.97_f64, 8.0);
        let mut normal = || {
            let (radius, turn) = ((-2.0 * random.uniform().ln()).sqrt(), random.uniform());
            radius * (std::f64::consts::TAU * turn).cos()
        };
        let rest = (1.0 - correlation.powi(2)).sqrt();
        let mut parts = [0.0; 2];
        let (mut above, mut clusters, mut since) = (0, 0, 1000);
        for _ in 0..2_000_000 {
            parts = parts.map(|part| correlation * part + rest * normal());
            since += 1;
            if 0.5 * (parts[0].powi(2) + parts[1].powi(2)) > level {
                above += 1;
                clusters += i32::from(since > 60);
                since = 0;
            }
        }
        let counted = f64::from(clusters) / f64::from(above);
        let expected = clusters_per_cell(1.0, level, correlation);
        assert!((counted / expected - 1.0).abs() < 0.25, "{counted} {expected}");
    }
}
