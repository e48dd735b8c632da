//! Last radix-n step of a transform that was computed as n interleaved ones.

use num_complex::Complex32;
use std::f64::consts::TAU;

/// Combines the transforms Z^r of the series z_{qn+r} to Z, m = N/n:
/// Z_{pm+s} = sum over r of e^{-2 pi j rp/n} (e^{-2 pi j rs/N} Z^r_s).
pub struct Unzip {
    n: usize,
    /// e^{-2 pi j rs/N}, \[r\]\[s\].
    twiddles: Vec<Complex32>,
    /// e^{-2 pi j i/n}.
    roots: Vec<Complex32>,
}

fn root(i: usize, of: usize) -> Complex32 {
    let (sin, cos) = (TAU * (i % of) as f64 / of as f64).sin_cos();
    Complex32::new(cos as f32, -sin as f32)
}

impl Unzip {
    /// Creates the step for `channels` = N and `n` series; N must be a multiple of `n`.
    ///
    /// # Panics
    /// If `n` is 0.
    #[must_use]
    pub fn new(channels: usize, n: usize) -> Self {
        let m = channels / n;
        let twiddles = (0..n).flat_map(|r| (0..m).map(move |s| root(r * s, channels)));
        Self { n, twiddles: twiddles.collect(), roots: (0..n).map(|i| root(i, n)).collect() }
    }

    /// Combines `parts` \[part n\]\[N/n\] to `out` \[channel N\].
    ///
    /// # Panics
    /// If either has fewer numbers than N.
    pub fn combine(&self, parts: &[Complex32], out: &mut [Complex32]) {
        let m = out.len() / self.n;
        let first = &parts[..m];
        for (p, out) in out.chunks_exact_mut(m).enumerate() {
            out.copy_from_slice(first);
            for r in 1..self.n {
                let root = self.roots[r * p % self.n];
                let part = &parts[r * m..(r + 1) * m];
                let twiddles = &self.twiddles[r * m..(r + 1) * m];
                for ((out, z), twiddle) in out.iter_mut().zip(part).zip(twiddles) {
                    let w = Complex32::new(
                        twiddle.re * root.re - twiddle.im * root.im,
                        twiddle.re * root.im + twiddle.im * root.re,
                    );
                    out.re += z.re * w.re - z.im * w.im;
                    out.im += z.re * w.im + z.im * w.re;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use num_complex::Complex64;

    #[test]
    fn combined_parts_equal_the_whole_transform() {
        let mut random = Random::new(3);
        let mut value = || random.normal_pair().map(|x| (100.0 * x) as f32);
        let z: Vec<Complex32> = (0..if cfg!(miri) { 16 } else { 64 })
            .map(|_| value())
            .map(|[re, im]| Complex32::new(re, im))
            .collect();
        let transform = |z: &[Complex32]| -> Vec<Complex64> {
            let len = z.len();
            let term = |i: usize, k: usize| {
                let root = Complex64::from_polar(1.0, -TAU * (i * k % len) as f64 / len as f64);
                Complex64::new(f64::from(z[i].re), f64::from(z[i].im)) * root
            };
            (0..len).map(|k| (0..len).map(|i| term(i, k)).sum()).collect()
        };
        let whole = transform(&z);
        for n in [2, 4, 8, 16] {
            let part = |r: usize| z.iter().skip(r).step_by(n).copied().collect::<Vec<_>>();
            let parts: Vec<Complex32> = (0..n)
                .flat_map(|r| transform(&part(r)))
                .map(|z| Complex32::new(z.re as f32, z.im as f32))
                .collect();
            let mut got = vec![Complex32::default(); z.len()];
            Unzip::new(z.len(), n).combine(&parts, &mut got);
            for (got, want) in got.iter().zip(&whole) {
                let off = (f64::from(got.re) - want.re).hypot(f64::from(got.im) - want.im);
                assert!(off < 1e-2, "unzip {n}: {got} {want}");
            }
        }
    }
}
