//! The correlation as it is defined: plain loops that the fast form is held against.

use crate::stacked::Stacked;

/// Number of the product of antenna `a1`, polarisation `p1` with antenna `a2`, polarisation
/// `p2` (`a1 <= a2`) among the products of a channel.
#[must_use]
pub const fn product(a1: usize, p1: usize, a2: usize, p2: usize) -> usize {
    4 * (a2 * (a2 + 1) / 2 + a1) + p1 + 2 * p2
}

/// Adds `e(a1,p1) x conj(e(a2,p2))`, summed over the spectra of heap `heap` of `payload`, to
/// `sums` `[channel][product][re, im]`; `present` says which antennas have the heap.
pub fn correlate(
    shape: &Stacked,
    payload: &[u8],
    heap: usize,
    present: impl Fn(usize) -> bool,
    sums: &mut [[i64; 2]],
) {
    let products = 4 * shape.baselines();
    for (channel, sums) in sums.chunks_exact_mut(products).enumerate() {
        for a2 in (0..shape.antennas).filter(|&a| present(a)) {
            let row2 = shape.row(payload, heap, a2, channel);
            for a1 in (0..=a2).filter(|&a| present(a)) {
                let row1 = shape.row(payload, heap, a1, channel);
                for (p1, p2) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                    let [mut re, mut im] = [0i64; 2];
                    for spectrum in 0..shape.spectra {
                        let [xr, xi] = shape.value(row1, spectrum, p1).map(i64::from);
                        let [yr, yi] = shape.value(row2, spectrum, p2).map(i64::from);
                        re += xr * yr + xi * yi;
                        im += xi * yr - xr * yi;
                    }
                    let sum = &mut sums[product(a1, p1, a2, p2)];
                    sum[0] += re;
                    sum[1] += im;
                }
            }
        }
    }
}
