//! The last radix-n step of a transform that was done as n interleaved ones.

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
    /// The step for `channels` = N and `n` series.
    pub fn new(channels: usize, n: usize) -> Self {
        let m = channels / n;
        let twiddles = (0..n).flat_map(|r| (0..m).map(move |s| root(r * s, channels)));
        Self { n, twiddles: twiddles.collect(), roots: (0..n).map(|i| root(i, n)).collect() }
    }

    /// From \[part n\]\[N/n\] to \[channel N\].
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
