//! Statistics of the noise. Sums have fixed seeds, and limits in standard deviations of what independent uniform
//! values give.

use super::*;
use num_complex::Complex64;
use rustfft::FftPlanner;

/// Values of a row, and rows, of most tests.
const LEN: usize = 4096;
const ROWS: u64 = 512;
/// Variance of one part, that of 32768 equally spaced values.
const VARIANCE: f64 = (1.0 - 1.0 / (32768.0 * 32768.0)) / 12.0;
/// Limit of one sum, and of the largest of many thousand, in standard deviations.
const ONE: f64 = 4.0;
const MANY: f64 = 5.5;

/// Returns the row of `key`, in units of the standard deviation of a complex value.
fn row(key: u64) -> Vec<Complex64> {
    let unit = (2.0 * VARIANCE).sqrt().recip();
    (0..LEN as u32)
        .map(|index| {
            let [re, im] = uniform_pair(key, index).map(f64::from);
            unit * Complex64::new(re, im)
        })
        .collect()
}

/// Returns the transform of the row of `key`.
fn spectrum(key: u64, planner: &mut FftPlanner<f64>) -> Vec<Complex64> {
    let mut row = row(key);
    planner.plan_fft_forward(LEN).process(&mut row);
    row
}

/// Returns the sum of the products of two rows at each of their distances, in standard deviations, from the product
/// of their transforms.
fn correlation(mut product: Vec<Complex64>, planner: &mut FftPlanner<f64>) -> Vec<Complex64> {
    planner.plan_fft_inverse(LEN).process(&mut product);
    let unit = (LEN as f64 * (LEN as f64).sqrt()).recip();
    product.into_iter().map(|sum| unit * sum).collect()
}

fn largest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, |largest, value| largest.max(value.abs()))
}

/// Returns by how many standard deviations the chi-square of these counts is from that of equal probabilities.
fn chi_square_excess(counts: &[u32]) -> f64 {
    let expected = counts.iter().map(|count| f64::from(*count)).sum::<f64>() / counts.len() as f64;
    let chi_square: f64 =
        counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
    let freedom = (counts.len() - 1) as f64;
    (chi_square - freedom) / (2.0 * freedom).sqrt()
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn noise_has_the_moments_and_the_distribution_of_uniform_parts() {
    let mut sums = [0.0; 5];
    let mut each = [vec![0; 1 << 15], vec![0; 1 << 15]];
    let mut both = vec![0; 1 << 12];
    for number in 0..4 * ROWS {
        for index in 0..LEN as u32 {
            let pair = uniform_pair(key(1, &[number, 0]), index);
            let [re, im] = pair.map(f64::from);
            assert!(re.abs() < 0.5 && im.abs() < 0.5);
            let squares = [re * re, im * im].map(|square| square - VARIANCE);
            let values = [re, im, squares[0], squares[1], re * im];
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            let [x, y] = pair.map(|part| ((part + 0.5) * 32768.0) as usize);
            each[0][x] += 1;
            each[1][y] += 1;
            both[x >> 9 << 6 | y >> 9] += 1;
        }
    }
    let count = (4 * ROWS * LEN as u64) as f64;
    // The variance of a square is 1/80 - 1/144 = 1/180.
    let variances = [VARIANCE, VARIANCE, 1.0 / 180.0, 1.0 / 180.0, VARIANCE * VARIANCE];
    let deviations = sums.iter().zip(variances).map(|(sum, v)| sum / (v * count).sqrt());
    assert!(largest(deviations) < ONE, "{sums:?}");
    for counts in [&each[0], &each[1], &both] {
        let excess = chi_square_excess(counts);
        assert!(excess.abs() < ONE, "{} bins: {excess}", counts.len());
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn noise_is_white() {
    let mut planner = FftPlanner::new();
    let mut powers = vec![0.0; LEN];
    let (mut products, mut squares) = (vec![Complex64::default(); LEN], vec![0.0; LEN]);
    let mut line: f64 = 0.0;
    for number in 0..4 * ROWS {
        let spectrum = spectrum(key(2, &[number, 1]), &mut planner);
        let power: Vec<f64> = spectrum.iter().map(|x| x.norm_sqr() / LEN as f64).collect();
        line = line.max(largest(power.iter().copied()));
        powers.iter_mut().zip(&power).for_each(|(sum, power)| *sum += power);
        let product = power.iter().map(|power| (LEN as f64 * power).into()).collect();
        let lags = correlation(product, &mut planner);
        for ((sum, square), lag) in products.iter_mut().zip(&mut squares).zip(lags) {
            *sum += lag;
            *square += lag.norm_sqr();
        }
    }
    let rows = (4 * ROWS) as f64;
    // Powers of bins are exponentially distributed; 8 x 10^6 of them reach 16, and 23 with a probability of 0.1 %.
    assert!(line < 23.0, "a line of {line} times the mean power");
    let excess = largest(powers.iter().map(|sum| (sum - rows) / rows.sqrt()));
    assert!(excess < MANY, "mean power of a bin: {excess} standard deviations");
    // Distances from 1 to LEN/2 - 1: the others are the same, or real.
    let distances = 1..LEN / 2;
    let parts = products[distances.clone()].iter().flat_map(|sum| [sum.re, sum.im]);
    let excess = largest(parts.map(|part| part / (rows / 2.0).sqrt()));
    assert!(excess < MANY, "mean correlation at a distance: {excess} standard deviations");
    let excess = largest(squares[distances].iter().map(|sum| (sum - rows) / rows.sqrt()));
    assert!(excess < MANY, "correlations at a distance: {excess} standard deviations");
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn rows_of_neighbouring_places_and_seeds_are_unrelated_at_all_distances() {
    let mut planner = FftPlanner::new();
    // Seed, spectrum, polarisation; or seed, heap, channel, beam.
    let neighbours: [fn(u64) -> [u64; 2]; 6] = [
        |n| [key(3, &[n, 0]), key(3, &[n + 1, 0])],
        |n| [key(3, &[n, 0]), key(3, &[n, 1])],
        |n| [key(n, &[7, 0]), key(n + 1, &[7, 0])],
        |n| [key(3, &[n, 5, 0]), key(3, &[n + 256, 5, 0])],
        |n| [key(3, &[0, n, 0]), key(3, &[0, n + 1, 0])],
        |n| [key(3, &[0, 5, n]), key(3, &[0, 5, n + 1])],
    ];
    for (kind, keys) in neighbours.into_iter().enumerate() {
        let mut products = vec![Complex64::default(); LEN];
        let mut most: f64 = 0.0;
        for number in 0..ROWS / 4 {
            let [a, b] = keys(number).map(|key| spectrum(key, &mut planner));
            let product = a.iter().zip(&b).map(|(a, b)| a * b.conj()).collect();
            let lags = correlation(product, &mut planner);
            most = most.max(largest(lags.iter().map(|lag| lag.norm())));
            products.iter_mut().zip(lags).for_each(|(sum, lag)| *sum += lag);
        }
        // Half a million exponentially distributed squares: one reaches 28 with a probability of 10^-6. A row that
        // equals half of the other at any distance reaches 32 standard deviations.
        assert!(most * most < 28.0, "kind {kind}: {most}");
        let variance = (ROWS / 4) as f64 / 2.0;
        let parts = products.iter().flat_map(|sum| [sum.re, sum.im]);
        let excess = largest(parts.map(|part| part / variance.sqrt()));
        assert!(excess < MANY, "kind {kind}: {excess} standard deviations");
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn mean_and_variance_of_rounded_values_follow_theory_below_one_step() {
    let count = (ROWS * LEN as u64) as f64;
    for twentieth in -10_i32..=10 {
        for offset in [0.0, 3.0] {
            let x = 0.05 * f64::from(twentieth) + offset;
            let mut sums = [0.0; 2];
            for number in 0..ROWS {
                let key = key(twentieth.unsigned_abs().into(), &[number, 2]);
                for index in 0..LEN as u32 {
                    for (sum, part) in sums.iter_mut().zip(uniform_pair(key, index)) {
                        *sum += (x + f64::from(part)).round_ties_even() - x;
                    }
                }
            }
            // A value is rounded to one of its two neighbours, to the upper one with a probability equal to the
            // distance from the lower one. That fixes the variance of the error, and the noise has a step of 2^-15.
            let above = x - x.floor();
            let error = (above * (1.0 - above) / count).sqrt() + 0.5 / 32768.0 / ONE;
            for sum in sums {
                assert!((sum / count).abs() < ONE * error, "{x}: {}", sum / count);
            }
        }
    }
    // Over all values, the variance is 1/12 of the rounding and 1/12 of the dither.
    let mut squares = 0.0;
    for number in 0..ROWS {
        let key = key(9, &[number, 0]);
        for index in 0..LEN as u32 {
            let x = (f64::from(index) + 0.5) / LEN as f64;
            let [re, im] = uniform_pair(key, index).map(|part| (x + f64::from(part)).round());
            squares += (re - x).powi(2) + (im - x).powi(2);
        }
    }
    // Given x, the square of the error varies by x (1 - x) (1 - 2 x)^2; the mean of that is 1/30.
    let excess = (squares - 2.0 * count / 6.0) / (2.0 * count / 30.0).sqrt();
    assert!(excess.abs() < ONE, "{excess} standard deviations");
}

#[test]
fn noise_equals_that_of_an_independent_implementation() {
    /// Seed, place and key of a row; indices and numerators over 65536, from 64-bit integers of NumPy.
    type Row = (u64, &'static [u64], u64, &'static [(u32, [i32; 2])]);
    let rows: [Row; 3] = [
        (
            0,
            &[0, 0],
            0x649c_7c93_6dd6_29eb,
            &[
                (0, [-687, -22105]),
                (1, [11619, -7389]),
                (2, [-18751, -29003]),
                (3, [-2179, -28947]),
            ],
        ),
        (
            1,
            &[123_456_789_012, 1],
            0x0441_428d_c224_f0a5,
            &[(0, [-30611, -27331]), (4095, [29907, -12761]), (1_048_575, [17815, 1467])],
        ),
        (
            u64::MAX,
            &[(1 << 40) + 7, 511, 63],
            0x8dcf_6e79_3aec_2982,
            &[
                (0, [-17299, -15357]),
                (255, [4625, 27531]),
                (65535, [-30901, 857]),
                (u32::MAX, [22721, 22011]),
            ],
        ),
    ];
    for (seed, place, expected_key, values) in rows {
        let key = key(seed, place);
        assert_eq!(key, expected_key);
        for &(index, numerators) in values {
            let pair = uniform_pair(key, index).map(|part| (65536.0 * part) as i32);
            assert_eq!(pair, numerators, "{seed} {place:?} {index}");
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
#[allow(unsafe_code, reason = "calls implementations that the CPU supports")]
fn noise_with_x86_registers_equals_the_portable_one() {
    use crate::simd::InstructionSet;
    let sets = InstructionSet::available();
    for (number, index) in (0..1000).zip((0..=u32::MAX - 22).step_by(4_294_967)) {
        let key = key(4, &[number]);
        let expected: [_; 22] = std::array::from_fn(|i| uniform_pair(key, index + i as u32));
        if sets.contains(&InstructionSet::Avx2) {
            let mut values = [[f32::NAN; 2]; 22];
            // SAFETY: the CPU has AVX2.
            unsafe { x86::fill(key, index, &mut values) };
            assert_eq!(values, expected, "AVX2, {number} {index}");
        }
        if sets.contains(&InstructionSet::Avx512) {
            // SAFETY: the CPU has AVX-512, and the vector has the size of the array.
            let values: [[f32; 2]; 8] =
                unsafe { std::mem::transmute(x86::uniform_pairs(key, index)) };
            assert_eq!(values, expected[..8], "AVX-512, {number} {index}");
        }
    }
}
