//! Phases in half precision, where the lanes of a warp want them; see `kernels/frb_fft.cuh`.

use half::f16;
use num_complex::Complex64;
use std::f64::consts::TAU;

/// Feeds of a cylinder and points of the transform that the kernel is made for.
pub const FEEDS: usize = 256;
pub const POINTS: usize = 512;
/// Lanes of a warp.
const LANES: usize = 32;

/// Two halves in a word, the first one lower.
pub fn halves(low: f64, high: f64) -> u32 {
    let bits = |part: f64| u32::from(f16::from_f64(part).to_bits());
    bits(low) | bits(high) << 16
}

/// Bit `index` of a number.
fn bit(number: usize, index: usize) -> usize {
    number >> index & 1
}

/// The phases of the transform of feeds, `[register 10][lane 32]`. Equations are those of the note.
pub fn of_feeds() -> Vec<u32> {
    // exp(2 pi i steps / 512)
    let phase = |steps: usize| Complex64::cis(TAU * (steps % POINTS) as f64 / POINTS as f64);
    let mut words = Vec::with_capacity(10 * LANES);
    // (29): b ReIm, t n7 n6 q0 q1 q2, r n0 n1.
    for register in 0..4 {
        for lane in 0..LANES {
            let n = register + 64 * bit(lane, 1) + 128 * bit(lane, 0);
            let value = phase((lane >> 2) * n);
            words.push(halves(value.re, value.im));
        }
    }
    // (25): b n5, t n4 n3 q0 q1 q2, r n2 ReIm; (26): b n5, t n4 n3 q3 q4 q5, r ReIm.
    let n345 = |half: usize, lane: usize| 8 * bit(lane, 1) + 16 * bit(lane, 0) + 32 * half;
    let mut pairs = |steps: &dyn Fn(usize, usize) -> usize| {
        for part in [|z: Complex64| z.re, |z: Complex64| z.im] {
            for lane in 0..LANES {
                let [low, high] = [0, 1].map(|half| part(phase(steps(half, lane))));
                words.push(halves(low, high));
            }
        }
    };
    for n2 in 0..2 {
        pairs(&|half, lane| (lane >> 2) * (4 * n2 + n345(half, lane)));
    }
    pairs(&|half, lane| 8 * (lane >> 2) * n345(half, lane));
    words
}

/// The phases of the transform of `fine` spectra, `[t_lo][lane 32]`, divided by their number.
pub fn of_spectra(fine: usize) -> Vec<u32> {
    let run = fine / 8;
    let word = |n: usize| {
        let (t_lo, lane) = (n / LANES, n % LANES);
        let steps = (t_lo + run * (lane % 4)) * (lane / 4) % fine;
        let phase = Complex64::cis(-TAU * steps as f64 / fine as f64) / fine as f64;
        halves(phase.re, phase.im)
    };
    (0..run * LANES).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The halves of a word.
    fn parts(word: u32) -> [f64; 2] {
        [word as u16, (word >> 16) as u16].map(|bits| f16::from_bits(bits).to_f64())
    }

    #[test]
    fn the_five_factors_of_the_phases_make_every_phase() {
        let words = of_feeds();
        let word = |register: usize, lane: usize| parts(words[register * LANES + lane]);
        // A complex phase from registers `re` and the next one, half `b` of each.
        let pair = |re: usize, lane: usize, b: usize| {
            Complex64::new(word(re, lane)[b], word(re + 1, lane)[b])
        };
        let lane = |t: [usize; 5]| t.iter().rev().fold(0, |lane, bit| 2 * lane + bit);
        let mut worst = 0.0_f64;
        for q in 0..POINTS {
            for n in 0..FEEDS {
                let (q, n) = (|i: usize| bit(q, i), |k: usize| bit(n, k));
                let [re, im] = word(n(0) + 2 * n(1), lane([n(7), n(6), q(0), q(1), q(2)]));
                let first = Complex64::new(re, im);
                let twiddle = pair(4 + 2 * n(2), lane([n(4), n(3), q(0), q(1), q(2)]), n(5));
                let second = pair(8, lane([n(4), n(3), q(3), q(4), q(5)]), n(5));
                // The same registers as before, with other bits in the places of theirs.
                let later = pair(4, lane([n(1), n(0), q(3), q(4), q(5)]), n(2));
                let third = pair(8, lane([n(1), n(0), q(6), q(7), q(8)]), n(2));
                let [q, n] =
                    [(0..9).map(|i| q(i) << i).sum::<usize>(), (0..8).map(|k| n(k) << k).sum()];
                let expected = Complex64::cis(TAU * (q * n) as f64 / POINTS as f64);
                let found = first * twiddle * second * later * third;
                worst = worst.max((found - expected).norm());
            }
        }
        // Five factors, rounded to 11 bits each.
        assert!(worst < 5.0 * 2.0_f64.powi(-11), "{worst}");
    }

    #[test]
    fn phases_of_time_and_the_sign_after_half_of_them_make_every_phase() {
        for fine in [32, 64, 128] {
            let (words, run) = (of_spectra(fine), fine / 8);
            for t in 0..fine {
                for k in 0..fine {
                    let (t_lo, t_hi, k_lo, k_hi) = (t % run, t / run, k % 8, k / 8);
                    let [re, im] = parts(words[t_lo * LANES + t_hi % 4 + 4 * k_lo]);
                    let sign = if t_hi >= 4 && k_lo % 2 == 1 { -1.0 } else { 1.0 };
                    let in_run = Complex64::cis(-TAU * (t_lo * k_hi) as f64 / run as f64);
                    let found = Complex64::new(re, im) * sign * in_run * fine as f64;
                    let expected = Complex64::cis(-TAU * (t * k) as f64 / fine as f64);
                    assert!((found - expected).norm() < 2.0_f64.powi(-10), "{fine} {t} {k}");
                }
            }
        }
    }
}
