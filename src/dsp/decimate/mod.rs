//! Decimating FIR filter with complex weights, of real numbers: real samples, or a part of complex ones.

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::mixer::LANES;
use crate::simd::InstructionSet;
use num_complex::Complex32;

/// Output samples that share each load of a weight.
const ROWS: usize = 4;

/// Computes out_j = sum over k of x_{Sj+k} g_k, for real and imaginary parts of g, x being the `part` of each sample. The
/// number of taps is a multiple of [`LANES`]; the last taps may extend into the zeros after the samples in `x`.
///
/// # Panics
/// If `x` is shorter than the samples needed for `out` and the taps.
#[allow(unsafe_code, reason = "calls an implementation that the CPU supports")]
pub fn filter<X: Copy>(
    samples: &[X],
    part: impl Fn(X) -> f32,
    x: &mut [f32],
    g: (&[f32], &[f32]),
    subsampling: usize,
    out: &mut [Complex32],
    instructions: InstructionSet,
) {
    match instructions {
        InstructionSet::Portable => filter_portable(samples, part, x, g, subsampling, out),
        // SAFETY: an implementation is chosen only if the CPU supports it.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => unsafe { x86::avx2(samples, part, x, g, subsampling, out) },
        // SAFETY: an implementation is chosen only if the CPU supports it.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => unsafe { x86::avx512(samples, part, x, g, subsampling, out) },
    }
}

/// Writes the `part` of each sample.
#[inline(always)]
fn widen<X: Copy>(samples: &[X], part: impl Fn(X) -> f32, to: &mut [f32]) {
    to.iter_mut().zip(samples).for_each(|(to, from)| *to = part(*from));
}

fn filter_portable<X: Copy>(
    samples: &[X],
    part: impl Fn(X) -> f32,
    x: &mut [f32],
    (re, im): (&[f32], &[f32]),
    subsampling: usize,
    out: &mut [Complex32],
) {
    widen(samples, part, x);
    for (n, out) in out.chunks_exact_mut(ROWS).enumerate() {
        let mut sums = [[[0.0_f32; LANES]; 2]; ROWS];
        for (k, (re, im)) in re.chunks_exact(LANES).zip(im.chunks_exact(LANES)).enumerate() {
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = &x[(n * ROWS + row) * subsampling + k * LANES..][..LANES];
                for l in 0..LANES {
                    sums[0][l] += x[l] * re[l];
                    sums[1][l] += x[l] * im[l];
                }
            }
        }
        for (out, [re, im]) in out.iter_mut().zip(&sums) {
            *out = Complex32::new(total(re), total(im));
        }
    }
}

/// Returns the sum of all elements, in pairs.
fn total(lanes: &[f32; LANES]) -> f32 {
    let mut lanes = *lanes;
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] += lanes[l + half];
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn every_implementation_filters_like_the_portable_one() {
        let mut random = Random::new(4);
        let mut values =
            |len: usize| -> Vec<f32> { (0..len).map(|_| random.normal_pair()[0] as f32).collect() };
        let (most, outputs) = if cfg!(miri) { (32, 8) } else { (1024, 64) };
        let sizes = [(2, 32), (8, 128), (10, 160), (64, 1024)];
        for (subsampling, taps) in sizes.into_iter().filter(|(_, taps)| *taps <= most) {
            let samples: Vec<i16> = values((outputs - 1) * subsampling + taps)
                .iter()
                .map(|x| (100.0 * x) as i16)
                .collect();
            let (re, im) = (values(taps), values(taps));
            let run = |instructions| {
                let mut out = vec![Complex32::default(); outputs];
                let mut x = vec![0.0; samples.len() + LANES];
                filter(
                    &samples,
                    f32::from,
                    &mut x,
                    (&re, &im),
                    subsampling,
                    &mut out,
                    instructions,
                );
                out
            };
            let expected = run(InstructionSet::Portable);
            for instructions in InstructionSet::available() {
                let close = |(a, b): (&Complex32, &Complex32)| (a - b).norm() < 1e-3 * taps as f32;
                assert!(
                    run(instructions).iter().zip(&expected).all(close),
                    "{instructions:?} {subsampling} {taps}"
                );
            }
        }
    }
}
