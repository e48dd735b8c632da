//! Last step from a complex transform to the transform of twice as many real samples.

#[cfg(target_arch = "x86_64")]
mod x86;

use num_complex::Complex32;
use std::f64::consts::PI;

/// Converts Z, the transform of z_i = x_{2i} + j x_{2i+1}, to X_k, k = 0 .. N-1.
///
/// With U = (Z_k + conj Z_{N-k}) / 2 and jV = (Z_k - conj Z_{N-k}) / 2:
/// X_k = U + e^{-j pi k/N} V and X_{N-k} = conj(U - e^{-j pi k/N} V).
#[derive(Clone, Debug)]
pub struct RealFixup {
    /// -j e^{-j pi k/N} / 2 for k = 1 .. N/2 - 1.
    twiddles: Vec<Complex32>,
    has_avx2: bool,
}

impl RealFixup {
    /// Creates the step for `channels` = N channels, an even number.
    #[must_use]
    pub fn new(channels: usize) -> Self {
        let twiddle = |k: usize| {
            let (sin, cos) = (PI * k as f64 / channels as f64).sin_cos();
            // -j (cos - j sin) / 2
            Complex32::new((-sin / 2.0) as f32, (-cos / 2.0) as f32)
        };
        #[cfg(target_arch = "x86_64")]
        let has_avx2 = is_x86_feature_detected!("avx2");
        #[cfg(not(target_arch = "x86_64"))]
        let has_avx2 = false;
        Self { twiddles: (1..channels / 2).map(twiddle).collect(), has_avx2 }
    }

    /// Converts one spectrum of N channels to that of the real samples, in place.
    ///
    /// # Panics
    /// If `spectrum` has fewer than two channels.
    #[allow(unsafe_code, reason = "calls an implementation that the CPU supports")]
    pub fn apply(&self, spectrum: &mut [Complex32]) {
        let half = spectrum.len() / 2;
        debug_assert_eq!(half, self.twiddles.len() + 1);
        spectrum[0] = Complex32::new(spectrum[0].re + spectrum[0].im, 0.0);
        spectrum[half] = spectrum[half].conj();
        let (low, high) = spectrum.split_at_mut(half);
        let (low, high) = (&mut low[1..], &mut high[1..]);
        let mut done = 0;
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2 {
            // SAFETY: the CPU has AVX2.
            done = unsafe { x86::pairs(low, high, &self.twiddles) };
        }
        let left = high.len() - done;
        pairs(&mut low[done..], &mut high[..left], &self.twiddles[done..]);
    }
}

/// Processes all pairs of Z_k from the start of `low` and Z_{N-k} from the end of `high`.
fn pairs(low: &mut [Complex32], high: &mut [Complex32], twiddles: &[Complex32]) {
    let pairs = low.iter_mut().zip(high.iter_mut().rev());
    for ((a, b), t) in pairs.zip(twiddles) {
        let (sum_re, sum_im) = (0.5 * (a.re + b.re), 0.5 * (a.im - b.im));
        let (dif_re, dif_im) = (a.re - b.re, a.im + b.im);
        let turned_re = dif_re * t.re - dif_im * t.im;
        let turned_im = dif_im * t.re + dif_re * t.im;
        *a = Complex32::new(sum_re + turned_re, sum_im + turned_im);
        *b = Complex32::new(sum_re - turned_re, turned_im - sum_im);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn vector_implementation_equals_the_scalar_one() {
        let most = if cfg!(miri) { 32 } else { 4096 };
        for channels in [2, 4, 8, 16, 32, 256, 4096].into_iter().filter(|n| *n <= most) {
            let mut random = Random::new(channels as u64);
            let mut value = || random.normal_pair().map(|x| x as f32);
            let spectrum: Vec<Complex32> =
                (0..channels).map(|_| value()).map(|[re, im]| Complex32::new(re, im)).collect();
            let dispatched = RealFixup::new(channels);
            let scalar = RealFixup { has_avx2: false, ..dispatched.clone() };
            let (mut got, mut expected) = (spectrum.clone(), spectrum);
            dispatched.apply(&mut got);
            scalar.apply(&mut expected);
            assert_eq!(got, expected, "{channels} channels");
        }
    }
}
