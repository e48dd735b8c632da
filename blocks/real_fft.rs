//! The last step from a complex transform to the transform of twice as many reals.

use num_complex::Complex32;
use std::f64::consts::PI;

/// Turns Z, the transform of z_i = x_{2i} + j x_{2i+1}, into X_k, k = 0 .. N-1.
///
/// With U = (Z_k + conj Z_{N-k}) / 2 and jV = (Z_k - conj Z_{N-k}) / 2:
/// X_k = U + e^{-j pi k/N} V and X_{N-k} = conj(U - e^{-j pi k/N} V).
#[derive(Clone, Debug)]
pub struct RealFixup {
    /// -j e^{-j pi k/N} / 2 for k = 1 .. N/2 - 1.
    twiddles: Vec<Complex32>,
}

impl RealFixup {
    /// The step for `channels` = N channels, an even number.
    #[must_use]
    pub fn new(channels: usize) -> Self {
        let twiddle = |k: usize| {
            let (sin, cos) = (PI * k as f64 / channels as f64).sin_cos();
            // -j (cos - j sin) / 2
            Complex32::new((-sin / 2.0) as f32, (-cos / 2.0) as f32)
        };
        Self { twiddles: (1..channels / 2).map(twiddle).collect() }
    }

    /// Does it in place on one spectrum of N channels.
    pub fn apply(&self, spectrum: &mut [Complex32]) {
        let half = spectrum.len() / 2;
        debug_assert_eq!(half, self.twiddles.len() + 1);
        spectrum[0] = Complex32::new(spectrum[0].re + spectrum[0].im, 0.0);
        spectrum[half] = spectrum[half].conj();
        let (low, high) = spectrum.split_at_mut(half);
        let pairs = low[1..].iter_mut().zip(high[1..].iter_mut().rev());
        for ((a, b), t) in pairs.zip(&self.twiddles) {
            let (sum_re, sum_im) = (0.5 * (a.re + b.re), 0.5 * (a.im - b.im));
            let (dif_re, dif_im) = (a.re - b.re, a.im + b.im);
            let turned_re = dif_re * t.re - dif_im * t.im;
            let turned_im = dif_re * t.im + dif_im * t.re;
            *a = Complex32::new(sum_re + turned_re, sum_im + turned_im);
            *b = Complex32::new(sum_re - turned_re, turned_im - sum_im);
        }
    }
}
