//! Dither with the registers of x86 CPUs (AVX-512).

use super::GOLDEN;
use std::arch::x86_64::{
    __m512, _mm512_add_epi64, _mm512_add_ps, _mm512_castsi512_ps, _mm512_mullo_epi64,
    _mm512_or_si512, _mm512_set1_epi32, _mm512_set1_epi64, _mm512_set1_ps, _mm512_setr_epi64,
    _mm512_srli_epi32, _mm512_srli_epi64, _mm512_sub_ps, _mm512_xor_si512,
};

/// Returns the values of [`super::uniform_pair`] for `index` and the seven after it, pair by pair.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub fn uniform_pairs(key: u64, index: u64) -> __m512 {
    const STEPS: [i64; 8] = {
        let (mut steps, mut i) = ([0; 8], 0);
        while i < 8 {
            steps[i] = GOLDEN.wrapping_mul(i as u64).cast_signed();
            i += 1;
        }
        steps
    };
    let [a, b, c, d, e, f, g, h] = STEPS;
    let first = key.wrapping_add(index.wrapping_mul(GOLDEN)).cast_signed();
    let z = _mm512_add_epi64(_mm512_set1_epi64(first), _mm512_setr_epi64(a, b, c, d, e, f, g, h));
    let by = |x: u64| _mm512_set1_epi64(x.cast_signed());
    let z = _mm512_xor_si512(z, _mm512_srli_epi64::<30>(z));
    let z = _mm512_mullo_epi64(z, by(0xbf58_476d_1ce4_e5b9));
    let z = _mm512_xor_si512(z, _mm512_srli_epi64::<27>(z));
    let z = _mm512_mullo_epi64(z, by(0x94d0_49bb_1331_11eb));
    let bits = _mm512_xor_si512(z, _mm512_srli_epi64::<31>(z));
    // The bits become the fraction of a number from 1 to 2; all subtractions from there are exact.
    let one = _mm512_set1_epi32(0x3f80_0000);
    let uniform = _mm512_castsi512_ps(_mm512_or_si512(_mm512_srli_epi32::<9>(bits), one));
    let half_a_step = _mm512_set1_ps(0.5 / 8_388_608.0);
    _mm512_add_ps(_mm512_sub_ps(uniform, _mm512_set1_ps(1.5)), half_a_step)
}
