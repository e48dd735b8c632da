//! Dither with the registers of x86 CPUs.
#![allow(unsafe_code, reason = "stores of whole registers, within slices")]

use super::{FACTOR, GOLDEN};
use std::arch::x86_64::{
    __m128i, __m256i, __m512, __m512i, _mm_setr_epi8, _mm256_add_epi64,
    _mm256_broadcastsi128_si256, _mm256_castsi256_ps, _mm256_mul_epu32, _mm256_or_si256,
    _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_set1_ps, _mm256_setr_epi64x, _mm256_shuffle_epi8,
    _mm256_srli_epi64, _mm256_storeu_ps, _mm256_sub_ps, _mm256_xor_si256, _mm512_add_epi64,
    _mm512_broadcast_i32x4, _mm512_castsi512_ps, _mm512_mul_epu32, _mm512_or_si512,
    _mm512_set1_epi32, _mm512_set1_epi64, _mm512_set1_ps, _mm512_setr_epi64, _mm512_shuffle_epi8,
    _mm512_srli_epi64, _mm512_sub_ps, _mm512_xor_si512,
};

/// Differences of eight places from the first.
const STEPS: [i64; 8] = {
    let (mut steps, mut i) = ([0; 8], 0);
    while i < 8 {
        steps[i] = GOLDEN.wrapping_mul(i as u64).cast_signed();
        i += 1;
    }
    steps
};

/// The number 128 with the lowest bit set. 16 bits enter its fraction, whose unit is 2^-16; the difference from 128.5 is
/// exact.
const BASE: i32 = 0x4300_0001;
const MIDDLE: f32 = 128.5;

/// Returns the order of bytes that moves the lowest two times 16 bits of each 64 bits to 32 bits each.
#[inline]
#[target_feature(enable = "sse2")]
fn byte_order() -> __m128i {
    _mm_setr_epi8(0, 1, -1, -1, 2, 3, -1, -1, 8, 9, -1, -1, 10, 11, -1, -1)
}

#[inline]
fn place(key: u64, index: u32) -> i64 {
    key.wrapping_add(u64::from(index).wrapping_mul(GOLDEN)).cast_signed()
}

/// [`fill`](super::fill) with AVX2.
#[inline]
#[target_feature(enable = "avx2")]
pub fn fill(key: u64, first: u32, values: &mut [[f32; 2]]) {
    let fold = |z: __m256i| _mm256_xor_si256(z, _mm256_srli_epi64::<32>(z));
    let [a, b, c, d, step, ..] = STEPS;
    let mut places =
        _mm256_add_epi64(_mm256_set1_epi64x(place(key, first)), _mm256_setr_epi64x(a, b, c, d));
    let byte_order = _mm256_broadcastsi128_si256(byte_order());
    let (fours, rest) = values.as_chunks_mut::<4>();
    let done = 4 * fours.len() as u32;
    for four in fours {
        // The product uses the low 32 bits of each element.
        let bits = fold(_mm256_mul_epu32(fold(places), _mm256_set1_epi64x(i64::from(FACTOR))));
        let numbers =
            _mm256_or_si256(_mm256_shuffle_epi8(bits, byte_order), _mm256_set1_epi32(BASE));
        let uniform = _mm256_sub_ps(_mm256_castsi256_ps(numbers), _mm256_set1_ps(MIDDLE));
        // SAFETY: four pairs are eight numbers.
        unsafe { _mm256_storeu_ps(four.as_mut_ptr().cast(), uniform) };
        places = _mm256_add_epi64(places, _mm256_set1_epi64x(step));
    }
    super::fill(key, first.wrapping_add(done), rest);
}

/// Returns the values of [`super::uniform_pair`] for `index` and the seven after it, pair by pair.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub fn uniform_pairs(key: u64, index: u32) -> __m512 {
    let fold = |z: __m512i| _mm512_xor_si512(z, _mm512_srli_epi64::<32>(z));
    let [a, b, c, d, e, f, g, h] = STEPS;
    let steps = _mm512_setr_epi64(a, b, c, d, e, f, g, h);
    let places = _mm512_add_epi64(_mm512_set1_epi64(place(key, index)), steps);
    let bits = fold(_mm512_mul_epu32(fold(places), _mm512_set1_epi64(i64::from(FACTOR))));
    let parts = _mm512_shuffle_epi8(bits, _mm512_broadcast_i32x4(byte_order()));
    let numbers = _mm512_or_si512(parts, _mm512_set1_epi32(BASE));
    _mm512_sub_ps(_mm512_castsi512_ps(numbers), _mm512_set1_ps(MIDDLE))
}
