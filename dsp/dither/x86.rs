//! Dither with the registers of x86 CPUs (AVX-512).

use super::{GOLDEN, SPREAD};
use std::arch::x86_64::{
    __m512, __m512i, _mm_setr_epi8, _mm512_add_epi64, _mm512_broadcast_i32x4, _mm512_castsi512_ps,
    _mm512_mul_epu32, _mm512_or_si512, _mm512_set1_epi32, _mm512_set1_epi64, _mm512_set1_ps,
    _mm512_setr_epi64, _mm512_shuffle_epi8, _mm512_srli_epi64, _mm512_sub_ps, _mm512_xor_si512,
};

/// Returns the values of [`super::uniform_pair`] for `index` and the seven after it, pair by pair.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub fn uniform_pairs(key: u64, index: u32) -> __m512 {
    const STEPS: [i64; 8] = {
        let (mut steps, mut i) = ([0; 8], 0);
        while i < 8 {
            steps[i] = GOLDEN.wrapping_mul(i as u64).cast_signed();
            i += 1;
        }
        steps
    };
    let [a, b, c, d, e, f, g, h] = STEPS;
    let first = key.wrapping_add(u64::from(index).wrapping_mul(GOLDEN)).cast_signed();
    let z = _mm512_add_epi64(_mm512_set1_epi64(first), _mm512_setr_epi64(a, b, c, d, e, f, g, h));
    let fold = |z: __m512i| _mm512_xor_si512(z, _mm512_srli_epi64::<32>(z));
    // The product uses the low 32 bits of each lane.
    let bits = fold(_mm512_mul_epu32(fold(z), _mm512_set1_epi64(i64::from(SPREAD))));
    // Each half of the bits enters the fraction of 128, whose unit is 2^-16; the difference is exact.
    let halves = _mm512_shuffle_epi8(
        bits,
        _mm512_broadcast_i32x4(_mm_setr_epi8(
            0, 1, -1, -1, 2, 3, -1, -1, 8, 9, -1, -1, 10, 11, -1, -1,
        )),
    );
    let numbers = _mm512_or_si512(halves, _mm512_set1_epi32(0x4300_0001));
    _mm512_sub_ps(_mm512_castsi512_ps(numbers), _mm512_set1_ps(128.5))
}
