//! The correlation as plain loops, for tests of the vectorised versions.

use crate::common::stacked::Stacked;
use std::ops::{AddAssign, Mul, SubAssign};

/// Adds `e(a1,p1) x conj(e(a2,p2))`, for each spectrum of heap `heap` of `payload` in order, to `sums`
/// `[channel][product][re, im]`. `value` reads the complex value of a row, spectrum and polarisation; `present`
/// returns whether an antenna has the heap.
pub fn correlate<T: Copy + Mul<Output = T> + AddAssign + SubAssign>(
    shape: &Stacked,
    payload: &[u8],
    heap: usize,
    value: impl Fn(&[u8], usize, usize) -> [T; 2],
    present: impl Fn(usize) -> bool,
    sums: &mut [[T; 2]],
) {
    let products = shape.products() * shape.baselines();
    for (channel, sums) in sums.chunks_exact_mut(products).enumerate() {
        for a2 in (0..shape.antennas).filter(|&a| present(a)) {
            let row2 = shape.row(payload, heap, a2, channel);
            for a1 in (0..=a2).filter(|&a| present(a)) {
                let row1 = shape.row(payload, heap, a1, channel);
                for (p1, p2) in (0..shape.products()).map(|n| (n % shape.pols, n / shape.pols)) {
                    let [re, im] = &mut sums[shape.product(a1, p1, a2, p2)];
                    for spectrum in 0..shape.spectra {
                        let [xr, xi] = value(row1, spectrum, p1);
                        let [yr, yi] = value(row2, spectrum, p2);
                        *re += xr * yr;
                        *re += xi * yi;
                        *im += xi * yr;
                        *im -= xr * yi;
                    }
                }
            }
        }
    }
}

/// [`correlate`] for integers; exact.
pub fn correlate_integers(
    shape: &Stacked,
    payload: &[u8],
    heap: usize,
    present: impl Fn(usize) -> bool,
    sums: &mut [[i64; 2]],
) {
    let value = |row: &[u8], spectrum, pol| shape.value(row, spectrum, pol).map(i64::from);
    correlate(shape, payload, heap, value, present, sums);
}

/// [`correlate`] for half precision. Products are exact in double precision, so only the additions round.
pub fn correlate_half_precision(
    shape: &Stacked,
    payload: &[u8],
    heap: usize,
    present: impl Fn(usize) -> bool,
    sums: &mut [[f64; 2]],
) {
    let value = |row: &[u8], spectrum, pol| shape.half_value(row, spectrum, pol).map(f64::from);
    correlate(shape, payload, heap, value, present, sums);
}
