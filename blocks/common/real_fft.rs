//! The last step from a complex transform to the transform of twice as many reals.
#![allow(unsafe_code)] // AVX2 intrinsics.

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
    has_avx2: bool,
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
        #[cfg(target_arch = "x86_64")]
        let has_avx2 = is_x86_feature_detected!("avx2");
        #[cfg(not(target_arch = "x86_64"))]
        let has_avx2 = false;
        Self { twiddles: (1..channels / 2).map(twiddle).collect(), has_avx2 }
    }

    /// Does it in place on one spectrum of N channels.
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
            // SAFETY: the processor has AVX2.
            done = unsafe { avx2::pairs(low, high, &self.twiddles) };
        }
        let left = high.len() - done;
        pairs(&mut low[done..], &mut high[..left], &self.twiddles[done..]);
    }
}

/// All pairs of Z_k from the start of `low` and Z_{N-k} from the end of `high`.
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

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use num_complex::Complex32;
    use std::arch::x86_64::{
        __m256, _mm256_add_ps, _mm256_addsub_ps, _mm256_castpd_ps, _mm256_castps_pd,
        _mm256_loadu_ps, _mm256_movehdup_ps, _mm256_moveldup_ps, _mm256_mul_ps, _mm256_permute_ps,
        _mm256_permute4x64_pd, _mm256_set1_ps, _mm256_setr_ps, _mm256_storeu_ps, _mm256_sub_ps,
        _mm256_xor_ps,
    };

    /// Complex numbers of a vector.
    const LANES: usize = 4;

    #[inline]
    #[target_feature(enable = "avx2")]
    fn reverse(x: __m256) -> __m256 {
        _mm256_castpd_ps(_mm256_permute4x64_pd::<0b00_01_10_11>(_mm256_castps_pd(x)))
    }

    /// The pairs that fill whole vectors; returns how many they were. Every operation is that of
    /// the scalar form, so that the results are the same.
    #[target_feature(enable = "avx2")]
    pub(super) fn pairs(
        low: &mut [Complex32],
        high: &mut [Complex32],
        twiddles: &[Complex32],
    ) -> usize {
        let len = low.len().min(high.len()).min(twiddles.len());
        let (half, minus) = (_mm256_set1_ps(0.5), -0.0);
        let conjugate = _mm256_setr_ps(0.0, minus, 0.0, minus, 0.0, minus, 0.0, minus);
        let vectors = len / LANES;
        let (low, end) = (low.as_mut_ptr(), high.as_mut_ptr_range().end);
        for v in 0..vectors {
            // SAFETY: LANES (v + 1) <= len: within all three, counting `high` from its end.
            unsafe {
                let low = low.add(LANES * v).cast::<f32>();
                let high = end.sub(LANES * (v + 1)).cast::<f32>();
                let t = _mm256_loadu_ps(twiddles.as_ptr().add(LANES * v).cast());
                let a = _mm256_loadu_ps(low);
                let b = _mm256_xor_ps(reverse(_mm256_loadu_ps(high)), conjugate);
                let sum = _mm256_mul_ps(half, _mm256_add_ps(a, b));
                let dif = _mm256_sub_ps(a, b);
                let swapped = _mm256_permute_ps::<0b10_11_00_01>(dif);
                let turned = _mm256_addsub_ps(
                    _mm256_mul_ps(dif, _mm256_moveldup_ps(t)),
                    _mm256_mul_ps(swapped, _mm256_movehdup_ps(t)),
                );
                _mm256_storeu_ps(low, _mm256_add_ps(sum, turned));
                let b = _mm256_xor_ps(_mm256_sub_ps(sum, turned), conjugate);
                _mm256_storeu_ps(high, reverse(b));
            }
        }
        LANES * vectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::random::Random;

    #[test]
    fn the_vector_form_gives_the_same_as_the_scalar_form() {
        for channels in [2, 4, 8, 16, 32, 256, 4096] {
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
