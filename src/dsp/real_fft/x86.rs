//! The step with AVX2.
#![allow(unsafe_code, reason = "loads and stores of whole registers, within slices")]

use num_complex::Complex32;
use std::arch::x86_64::{
    __m256, _mm256_add_ps, _mm256_addsub_ps, _mm256_castpd_ps, _mm256_castps_pd, _mm256_loadu_ps,
    _mm256_movehdup_ps, _mm256_moveldup_ps, _mm256_mul_ps, _mm256_permute_ps,
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

/// Processes the pairs that fill whole vectors; returns their number. Every operation equals that of
/// the scalar implementation, so the results are identical.
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
        // SAFETY: `LANES (v + 1) <= len`: within all three, counting `high` from its end.
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
