//! Phases in half precision, in the register layout of a warp; see `kernels/frb/frb_fft.cuh`.

use half::f16;
use num_complex::Complex64;
use std::f64::consts::TAU;

/// Feeds per cylinder and points of the transform that the kernel supports.
pub const FEEDS: usize = 256;
pub const POINTS: usize = 512;
/// Threads of a warp.
const LANES: usize = 32;
/// Largest number of registers of the phases of feeds, and number of those of spectra.
pub const REGISTERS_MOST: usize = 20;
pub const TIME_REGISTERS: usize = 12;

/// Packs two `f16` in a word, the first one in the low bits.
pub fn packed_half2(low: f64, high: f64) -> u32 {
    let bits = |part: f64| u32::from(f16::from_f64(part).to_bits());
    bits(low) | bits(high) << 16
}

/// Bit `index` of a number.
fn bit(number: usize, index: usize) -> usize {
    number >> index & 1
}

/// Phases of the transform of feeds, `[register 10][lane 32]`. Equation numbers are those of the CHIME note.
pub fn of_feeds() -> Vec<u32> {
    // exp(2 pi i steps / 512)
    let phase = |steps: usize| Complex64::cis(TAU * (steps % POINTS) as f64 / POINTS as f64);
    let mut words = Vec::with_capacity(10 * LANES);
    // (29): b ReIm, t n7 n6 q0 q1 q2, r n0 n1.
    for register in 0..4 {
        for lane in 0..LANES {
            let n = register + 64 * bit(lane, 1) + 128 * bit(lane, 0);
            let value = phase((lane >> 2) * n);
            words.push(packed_half2(value.re, value.im));
        }
    }
    // (25): b n5, t n4 n3 q0 q1 q2, r n2 ReIm; (26): b n5, t n4 n3 q3 q4 q5, r ReIm.
    let n345 = |half: usize, lane: usize| 8 * bit(lane, 1) + 16 * bit(lane, 0) + 32 * half;
    let mut pairs = |steps: &dyn Fn(usize, usize) -> usize| {
        for part in [|z: Complex64| z.re, |z: Complex64| z.im] {
            for lane in 0..LANES {
                let [low, high] = [0, 1].map(|half| part(phase(steps(half, lane))));
                words.push(packed_half2(low, high));
            }
        }
    };
    for n2 in 0..2 {
        pairs(&|half, lane| (lane >> 2) * (4 * n2 + n345(half, lane)));
    }
    pairs(&|half, lane| 8 * (lane >> 2) * n345(half, lane));
    words
}

/// Packs two complex values per thread: words of both real parts, then of both imaginary parts, `[2][lane 32]`. The
/// arguments of `value` are the thread of the warp and the index, 0 or 1, within a word.
fn pair(value: &dyn Fn(usize, usize) -> Complex64) -> [Vec<u32>; 2] {
    [|z: Complex64| z.re, |z: Complex64| z.im].map(|part| {
        (0..LANES).map(|lane| packed_half2(part(value(lane, 0)), part(value(lane, 1)))).collect()
    })
}

/// Rows of a matrix in the operand layout of the instruction: re, im, -im, re.
fn rows(value: &dyn Fn(usize, usize) -> Complex64) -> Vec<u32> {
    let [re, im] = pair(value);
    let minus_im = im.iter().map(|word| word ^ 0x8000_8000).collect();
    [re.clone(), im, minus_im, re].concat()
}

/// Phases of the transform of feeds for `kernels/frb/frb_radix8.cuh`, `[register 20][lane 32]`.
pub fn of_radix8() -> Vec<u32> {
    let phase = |steps: usize| Complex64::cis(TAU * (steps % POINTS) as f64 / POINTS as f64);
    let of_row = |lane: usize, half: usize| (lane / 4) * (half + 2 * (lane % 4));
    let mut words = Vec::new();
    for q in 1..8 {
        let n = |lane: usize, half: usize| lane / 4 + 8 * (half + 2 * (lane % 4));
        words.extend(pair(&|lane, half| phase(q * n(lane, half))).concat());
    }
    words.extend(pair(&|lane, half| phase(8 * of_row(lane, half))).concat());
    words.extend(rows(&|lane, half| phase(64 * of_row(lane, half))));
    words
}

/// Phases of the transform of `fine` spectra, `[register 12][lane 32]`; see `TimePhases` in
/// `kernels/frb/frb_times.cuh`.
pub fn of_spectra(fine: usize) -> Vec<u32> {
    let turned = |numerator: usize, denominator: usize| {
        Complex64::cis(-TAU * (numerator % denominator) as f64 / denominator as f64)
    };
    let low = if fine == 32 { 4 } else { 8 };
    let mid = |lane: usize, half: usize| lane % 4 + 4 * half;
    // Columns: index `low`, and for 32 spectra the group.
    let column = |lane: usize, half: usize| half + 2 * (lane % 4);
    let half_turn = pair(&|lane, half| turned(lane / 4 + 8 * mid(lane, half), 128));
    let twiddle = pair(&|lane, half| turned(lane / 4 * (column(lane, half) % low), 8 * low));
    let first = rows(&|lane, half| turned(lane / 4 * mid(lane, half), 8));
    let second = rows(&|lane, half| {
        let (row, column) = (lane / 4, column(lane, half));
        if row / low == column / low { turned(row * column, low) } else { Complex64::ZERO }
    });
    [half_turn.concat(), twiddle.concat(), first, second].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both `f16` of a word.
    fn parts(word: u32) -> [f64; 2] {
        [word as u16, (word >> 16) as u16].map(|bits| f16::from_bits(bits).to_f64())
    }

    #[test]
    fn five_factors_give_every_phase() {
        let words = of_feeds();
        let word = |register: usize, lane: usize| parts(words[register * LANES + lane]);
        // A complex phase from registers `re` and `re + 1`, from `f16` number `b` of each.
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
                // The same registers as before, with other bits in their places.
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

    /// A complex phase from registers `re` and `re + 1`, from `f16` number `b` of each.
    fn phase_in(words: &[u32], re: usize, lane: usize, b: usize) -> Complex64 {
        let part = |register: usize| parts(words[register * LANES + lane])[b];
        Complex64::new(part(re), part(re + 1))
    }

    #[test]
    fn radix_8_factors_give_every_phase() {
        let words = of_radix8();
        assert_eq!(words.len(), REGISTERS_MOST * LANES);
        let mut worst = 0.0_f64;
        for q in 0..POINTS {
            let [q_low, q_mid, q_high] = [q % 8, q / 8 % 8, q / 64];
            for n in 0..FEEDS {
                let [n_low, n_mid, n_high] = [n % 8, n / 8 % 8, n / 64];
                // One index is in `b` and bits 0 and 1 of the thread, the other in bits 2 to 4 of the thread.
                let lane = |in_row: usize, row: usize| in_row / 2 + 4 * row;
                let butterfly = Complex64::cis(TAU * (q_low * n_high) as f64 / 8.0);
                let twiddle = match q_low {
                    0 => Complex64::ONE,
                    q => phase_in(&words, 2 * (q - 1), lane(n_mid, n_low), n_mid % 2),
                };
                let first = phase_in(&words, 16, lane(n_mid, q_mid), n_mid % 2);
                let later = phase_in(&words, 14, lane(n_low, q_mid), n_low % 2);
                let second = phase_in(&words, 16, lane(n_low, q_high), n_low % 2);
                let expected = Complex64::cis(TAU * (q * n) as f64 / POINTS as f64);
                let found = butterfly * twiddle * first * later * second;
                worst = worst.max((found - expected).norm());
            }
        }
        assert!(worst < 4.0 * 2.0_f64.powi(-11), "{worst}");
    }

    #[test]
    fn time_factors_give_every_phase() {
        for fine in [32, 64, 128] {
            let words = of_spectra(fine);
            assert_eq!(words.len(), TIME_REGISTERS * LANES);
            let lows = if fine == 32 { 4 } else { 8 };
            for t in 0..fine {
                let (low, mid, h) = (t % lows, t / lows % 8, t / (lows * 8));
                for k in 0..fine {
                    let (k0, rest) = if fine == 128 { (k % 2, k / 2) } else { (0, k) };
                    let (i, j) = (rest % 8, rest / 8);
                    let sign = if k0 * h == 1 { -1.0 } else { 1.0 };
                    let turn = match k0 {
                        0 => Complex64::ONE,
                        _ => phase_in(&words, 0, 4 * low + mid % 4, mid / 4),
                    };
                    let first = phase_in(&words, 4, 4 * i + mid % 4, mid / 4);
                    // Both groups of beams, for 32 spectra.
                    for group in 0..8 / lows {
                        let (column, row) = (low + lows * group, j + lows * group);
                        let twiddle = phase_in(&words, 2, 4 * i + column / 2, column % 2);
                        let second = phase_in(&words, 8, 4 * row + column / 2, column % 2);
                        let found = turn * first * twiddle * second * sign;
                        let expected = Complex64::cis(-TAU * (t * k) as f64 / fine as f64);
                        assert!(
                            (found - expected).norm() < 4.0 * 2.0_f64.powi(-11),
                            "{fine} {t} {k}"
                        );
                        if lows == 4 {
                            let other = phase_in(&words, 8, 4 * row + (column ^ 4) / 2, column % 2);
                            assert_eq!(other, Complex64::ZERO);
                        }
                    }
                }
            }
        }
    }
}
