//! Equiripple filters with linear phase: the Parks-McClellan (Remez) algorithm.
//!
//! With f in cycles per sample, a symmetric filter of n taps has the amplitude
//! A(f) = Q(f) P(cos 2 pi f), where Q = 1 for odd n and cos(pi f) for even n, and P is a polynomial
//! with ceil(n/2) coefficients. The filter is optimal if its weighted error has one more extremum than
//! P has coefficients, all of equal magnitude and alternating sign.

use std::f64::consts::PI;

/// Points of the grid for each coefficient of P.
const DENSITY: usize = 32;
/// The iteration ends when the largest error exceeds that of the extrema by at most this fraction, or is
/// negligible.
const TOLERANCE: f64 = 1e-5;
const NEGLIGIBLE: f64 = 1e-9;
/// Largest accepted error of the computed coefficients: this factor times the error of the design, or this
/// amplitude (-100 dB).
const ROUNDING: f64 = 1.5;
const ROUNDING_AMPLITUDE: f64 = 1e-5;
/// Least number of grid steps in a band.
const BAND_STEPS: usize = 16;
/// Initial positions of each extremum within its share of the grid. Usually the first one converges; from some
/// initial positions the errors never alternate often enough.
const BEGINNINGS: [f64; 4] = [0.5, 0.0, 0.25, 0.75];
/// Largest number of iterations; some ten are usual.
const MOST_EXCHANGES: usize = 60;

/// Desired response of a filter in a band of frequencies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// Lower edge in cycles per sample.
    pub from: f64,
    /// Upper edge in cycles per sample, at most 1/2.
    pub to: f64,
    /// Desired amplitude.
    pub desired: f64,
    /// Weight of errors.
    pub weight: f64,
}

/// Grid point at which the error is evaluated.
#[derive(Clone, Copy)]
struct Point {
    /// cos 2 pi f.
    x: f64,
    /// Desired amplitude of P, and the weight of its error.
    desired: f64,
    weight: f64,
    /// Whether the point is the first or last of its band.
    is_first: bool,
    is_last: bool,
}

/// Q(f).
fn factor(taps: usize, f: f64) -> f64 {
    if taps.is_multiple_of(2) { (PI * f).cos() } else { 1.0 }
}

fn grid(taps: usize, bands: &[Band]) -> Vec<Point> {
    let spacing = 0.5 / (DENSITY * taps.div_ceil(2)) as f64;
    let mut grid = Vec::new();
    for band in bands {
        let spacing = spacing.min((band.to - band.from) / BAND_STEPS as f64);
        // At Q = 0 the amplitude is fixed.
        let to = if taps.is_multiple_of(2) { band.to.min(0.5 - spacing) } else { band.to };
        let steps = (((to - band.from) / spacing).ceil() as usize).max(1);
        grid.extend((0..=steps).map(|i| {
            let f = band.from + (to - band.from) * i as f64 / steps as f64;
            let factor = factor(taps, f);
            Point {
                x: (2.0 * PI * f).cos(),
                desired: band.desired / factor,
                weight: band.weight * factor,
                is_first: i == 0,
                is_last: i == steps,
            }
        }));
    }
    grid
}

/// Polynomial given by its values at some nodes, in barycentric form.
struct Polynomial {
    /// (position, value, 1 / product of the distances to the others, scaled).
    nodes: Vec<(f64, f64, f64)>,
}

impl Polynomial {
    /// Returns 1 / product of the distances of each position to the others, up to a common factor.
    fn barycentric(places: &[f64]) -> Vec<f64> {
        // With hundreds of nodes the products exceed the range of doubles, so logarithms are added.
        let mut log2 = vec![0.0; places.len()];
        let mut signs = vec![1.0; places.len()];
        for (i, a) in places.iter().enumerate() {
            for b in places.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, b)| b) {
                log2[i] -= (a - b).abs().log2();
                signs[i] *= (a - b).signum();
            }
        }
        let most = log2.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        log2.iter().zip(&signs).map(|(log2, sign)| sign * (log2 - most).exp2()).collect()
    }

    fn at(&self, x: f64) -> f64 {
        let (mut sum, mut of_weights) = (0.0, 0.0);
        for (place, value, weight) in &self.nodes {
            let distance = x - place;
            if distance == 0.0 {
                return *value;
            }
            let share = weight / distance;
            sum += share * value;
            of_weights += share;
        }
        sum / of_weights
    }
}

/// Returns the polynomial whose errors at the points alternate, and the magnitude of these errors.
fn alternating(points: &[Point]) -> (Polynomial, f64) {
    let places: Vec<f64> = points.iter().map(|point| point.x).collect();
    let weights = Polynomial::barycentric(&places);
    let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    let all = || points.iter().zip(&weights).enumerate();
    let above: f64 = all().map(|(_, (point, b))| b * point.desired).sum();
    let below: f64 = all().map(|(i, (point, b))| b * sign(i) / point.weight).sum();
    let error = above / below;
    let node = |(i, (point, b)): (usize, (&Point, &f64))| {
        (point.x, point.desired - sign(i) * error / point.weight, *b)
    };
    (Polynomial { nodes: all().map(node).collect() }, error.abs())
}

/// Returns `count` points at which the errors are extreme and alternate; `None` if there are fewer.
fn extrema(grid: &[Point], errors: &[f64], count: usize) -> Option<Vec<usize>> {
    let is_extreme = |i: &usize| {
        let (point, error) = (&grid[*i], errors[*i]);
        let beyond = |other: f64| error.abs() >= other * error.signum();
        error != 0.0
            && (point.is_first || beyond(errors[i - 1]))
            && (point.is_last || beyond(errors[i + 1]))
    };
    let mut found: Vec<usize> = Vec::with_capacity(2 * count);
    for i in (0..grid.len()).filter(is_extreme) {
        match found.last_mut() {
            // Of several successive extrema with the same sign, the largest is kept.
            Some(last) if errors[*last] * errors[i] > 0.0 => {
                if errors[i].abs() > errors[*last].abs() {
                    *last = i;
                }
            }
            _ => found.push(i),
        }
    }
    let size = |found: &[usize], n: usize| errors[found[n]].abs();
    while found.len() > count {
        let last = found.len() - 1;
        let smallest = (0..=last).min_by(|a, b| size(&found, *a).total_cmp(&size(&found, *b)))?;
        if found.len() == count + 1 || smallest == 0 || smallest == last {
            // A single extremum can be removed only at an end, otherwise two neighbours have the same sign.
            found.remove(if size(&found, 0) < size(&found, last) { 0 } else { last });
        } else {
            let after = size(&found, smallest + 1) < size(&found, smallest - 1);
            let first = if after { smallest } else { smallest - 1 };
            found.drain(first..first + 2);
        }
    }
    (found.len() == count).then_some(found)
}

/// Returns the coefficients of the optimal filter for these bands, which must be disjoint and in ascending order.
/// `None` if rounding errors prevent the design.
#[must_use]
pub fn equiripple(taps: usize, bands: &[Band]) -> Option<Vec<f64>> {
    let grid = grid(taps, bands);
    let count = taps.div_ceil(2) + 1;
    if grid.len() < count {
        return None;
    }
    let (polynomial, error) = BEGINNINGS.iter().find_map(|share| {
        let first = |i: usize| ((i as f64 + share) * grid.len() as f64 / count as f64) as usize;
        exchange(&grid, (0..count).map(first).collect())
    })?;
    let filter = coefficients(taps, &polynomial);
    // If the polynomial is very large between the bands, rounding errors of the coefficients extend into the bands.
    let is_met = |band: &Band| {
        largest_error(&filter, band) <= (ROUNDING * error / band.weight).max(ROUNDING_AMPLITUDE)
    };
    bands.iter().all(is_met).then_some(filter)
}

/// Returns the largest error of a filter in `band`; NaN or infinite if a coefficient is.
fn largest_error(filter: &[f64], band: &Band) -> f64 {
    let spacing = 0.5 / (4 * filter.len()) as f64;
    let steps = (((band.to - band.from) / spacing).ceil() as usize).max(BAND_STEPS);
    let error = |i: usize| {
        let f = band.from + (band.to - band.from) * i as f64 / steps as f64;
        (band.desired - amplitude(filter, f)).abs()
    };
    (0..=steps)
        .map(error)
        .fold(0.0, |largest: f64, error| if error <= largest { largest } else { error })
}

/// Returns the amplitude at f of a symmetric filter.
fn amplitude(filter: &[f64], f: f64) -> f64 {
    let half = filter.len() / 2;
    let is_even = filter.len().is_multiple_of(2);
    let step = 2.0 * PI * f;
    // Cosines of k or k + 1/2 steps, by their recurrence.
    let first = if is_even { 0.5 } else { 1.0 };
    let (mut before, mut cos) = ((step * (first - 1.0)).cos(), (step * first).cos());
    let twice = 2.0 * step.cos();
    let mut sum = if is_even { 0.0 } else { filter[half] };
    for tap in filter[..half].iter().rev() {
        sum += 2.0 * tap * cos;
        (before, cos) = (cos, twice * cos - before);
    }
    sum
}

/// Returns the optimal polynomial on this grid and its largest weighted error; `at` are the initial positions of
/// the extrema.
fn exchange(grid: &[Point], mut at: Vec<usize>) -> Option<(Polynomial, f64)> {
    for _ in 0..MOST_EXCHANGES {
        let points: Vec<Point> = at.iter().map(|i| grid[*i]).collect();
        let (polynomial, level) = alternating(&points);
        let error = |point: &Point| point.weight * (point.desired - polynomial.at(point.x));
        let errors: Vec<f64> = grid.iter().map(error).collect();
        let largest = errors.iter().fold(0.0_f64, |largest, error| largest.max(error.abs()));
        if !largest.is_finite() {
            return None;
        }
        if largest <= (level * (1.0 + TOLERANCE)).max(NEGLIGIBLE) {
            return Some((polynomial, largest));
        }
        at = extrema(grid, &errors, at.len())?;
    }
    None
}

/// Returns the filter of a polynomial: the transform of its amplitudes at as many frequencies as taps.
fn coefficients(taps: usize, polynomial: &Polynomial) -> Vec<f64> {
    let amplitude = |k: usize| {
        let f = k as f64 / taps as f64;
        factor(taps, f) * polynomial.at((2.0 * PI * f).cos())
    };
    let amplitudes: Vec<f64> = (0..taps.div_ceil(2)).map(amplitude).collect();
    let tap = |n: usize| {
        let middle = n as f64 - (taps - 1) as f64 / 2.0;
        let term = |(k, a): (usize, &f64)| {
            let twice = if k == 0 { 1.0 } else { 2.0 };
            twice * a * (2.0 * PI * k as f64 * middle / taps as f64).cos()
        };
        amplitudes.iter().enumerate().map(term).sum::<f64>() / taps as f64
    };
    // Exactly symmetric.
    let half: Vec<f64> = (0..taps.div_ceil(2)).map(tap).collect();
    (0..taps).map(|n| half[n.min(taps - 1 - n)]).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn amplitude_by_definition(filter: &[f64], f: f64) -> f64 {
        let middle = (filter.len() - 1) as f64 / 2.0;
        let term = |(n, h): (usize, &f64)| h * (2.0 * PI * f * (n as f64 - middle)).cos();
        filter.iter().enumerate().map(term).sum()
    }

    /// Returns the number of alternations of the weighted error, and the largest and smallest magnitude of its extrema.
    fn alternations(filter: &[f64], bands: &[Band]) -> (usize, f64, f64) {
        let mut extremes: Vec<f64> = Vec::new();
        for band in bands {
            let errors: Vec<f64> = (0..=20_000)
                .map(|i| {
                    let f = band.from + (band.to - band.from) * f64::from(i) / 20_000.0;
                    band.weight * (band.desired - amplitude_by_definition(filter, f))
                })
                .collect();
            for i in 0..errors.len() {
                let beyond = |other: Option<&f64>| {
                    other.is_none_or(|other| errors[i].abs() >= other * errors[i].signum())
                };
                if beyond(i.checked_sub(1).map(|i| &errors[i])) && beyond(errors.get(i + 1)) {
                    match extremes.last_mut() {
                        Some(last) if *last * errors[i] > 0.0 => {
                            if errors[i].abs() > last.abs() {
                                *last = errors[i];
                            }
                        }
                        _ => extremes.push(errors[i]),
                    }
                }
            }
        }
        let largest = extremes.iter().fold(0.0_f64, |a, b| a.max(b.abs()));
        // Between the points of the filter's grid the errors may be slightly larger.
        extremes.retain(|error| error.abs() > 0.98 * largest);
        let smallest = extremes.iter().fold(largest, |a, b| a.min(b.abs()));
        (extremes.len(), largest, smallest)
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn errors_alternate_as_required_by_the_theorem() {
        let band = |from, to, desired, weight| Band { from, to, desired, weight };
        for taps in [16, 21, 64, 65, 128] {
            for bands in [
                vec![band(0.0, 0.1, 1.0, 1.0), band(0.15, 0.5, 0.0, 10.0)],
                vec![
                    band(0.0, 0.05, 1.0, 0.01),
                    band(0.2, 0.3, 0.0, 1.0),
                    band(0.4, 0.5, 0.0, 1.0),
                ],
            ] {
                let Some(filter) = equiripple(taps, &bands) else {
                    // The errors of the optimal filter are smaller than the rounding errors.
                    assert_eq!((taps, bands.len()), (128, 3));
                    continue;
                };
                let (count, largest, smallest) = alternations(&filter, &bands);
                // Otherwise the filter need not be optimal.
                if largest > 2.0 * NEGLIGIBLE {
                    assert!(count > taps.div_ceil(2), "{taps} taps: {count} {largest} {smallest}");
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn equiripple_rejects_designs_dominated_by_rounding() {
        // With the second weight, rounding errors of the coefficients reach 3.2 in the stop bands.
        let s = 12.0;
        let stop = |n: u8| Band {
            from: (f64::from(n) - 0.25) / s,
            to: (f64::from(n) + 0.25).min(6.0) / s,
            desired: 0.0,
            weight: 1.0,
        };
        let pass = |weight| Band { from: 0.0, to: 0.25 / s, desired: 1.0, weight };
        let bands =
            |weight| std::iter::once(pass(weight)).chain((1..=6).map(stop)).collect::<Vec<_>>();
        assert!(equiripple(192, &bands(0.005)).is_some());
        assert!(equiripple(192, &bands(1e6)).is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn bands_narrower_than_the_grid_have_points() {
        let pass = Band { from: 0.0, to: 0.0025, desired: 1.0, weight: 1.0 };
        let stop = Band { from: 0.4975, to: 0.5, desired: 0.0, weight: 1.0 };
        let filter = equiripple(6, &[pass, stop]).unwrap();
        assert!([pass, stop].iter().all(|band| largest_error(&filter, band) < 4e-7));
    }
}
