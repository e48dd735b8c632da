//! Decoding with AVX2.
#![allow(unsafe_code, reason = "loads and stores of whole registers, within slices")]

use std::arch::x86_64::{
    __m128i, __m256i, _mm_cvtsi32_si128, _mm_loadu_si128, _mm256_broadcastsi128_si256,
    _mm256_mullo_epi16, _mm256_set_m128i, _mm256_shuffle_epi8, _mm256_sra_epi16,
    _mm256_storeu_si256,
};

/// Constants for decoding one width.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    bits: usize,
    /// Indices of the low and the high byte of the little-endian pair of each of eight samples.
    shuffle: [u8; 16],
    /// Powers of two that move each sample to the high bits of its pair.
    multiply: [i16; 8],
}

impl Tables {
    /// Creates the tables for samples of `bits` bits; `None` if the CPU lacks AVX2.
    pub(super) fn new(bits: u8) -> Option<Self> {
        if !is_x86_feature_detected!("avx2") {
            return None;
        }
        let bits = usize::from(bits);
        let mut tables = Self { bits, shuffle: [0; 16], multiply: [0; 8] };
        for i in 0..8 {
            let first = i * bits / 8;
            // The last sample may end with its first byte; the second byte is then shifted out.
            tables.shuffle[2 * i] = (first + 1).min(15) as u8;
            tables.shuffle[2 * i + 1] = first as u8;
            tables.multiply[i] = 1 << (i * bits % 8);
        }
        Some(tables)
    }

    /// Decodes as many whole vectors as fit both slices; returns the number of samples.
    pub(super) fn decode(&self, packed: &[u8], out: &mut [i16]) -> usize {
        // SAFETY: the tables exist only if the CPU has AVX2.
        unsafe { decode(self, packed, out) }
    }
}

/// See [`Tables::decode`].
#[target_feature(enable = "avx2")]
fn decode(tables: &Tables, packed: &[u8], out: &mut [i16]) -> usize {
    let bits = tables.bits;
    // SAFETY: both tables are 16 bytes long.
    let (shuffle, multiply): (__m128i, __m128i) = unsafe {
        (
            _mm_loadu_si128(tables.shuffle.as_ptr().cast()),
            _mm_loadu_si128(tables.multiply.as_ptr().cast()),
        )
    };
    let shuffle = _mm256_broadcastsi128_si256(shuffle);
    let multiply = _mm256_broadcastsi128_si256(multiply);
    let shift = _mm_cvtsi32_si128(16 - bits as i32);
    // The second load of vector v covers bytes (2 v + 1) bits to that + 16.
    let vectors = match packed.len().checked_sub(16 + bits) {
        Some(room) => (room / (2 * bits) + 1).min(out.len() / 16),
        None => 0,
    };
    for v in 0..vectors {
        // SAFETY: `vectors` is limited so that both loads end within `packed` and the store
        // within `out`.
        unsafe {
            let from = packed.as_ptr().add(2 * v * bits);
            let low = _mm_loadu_si128(from.cast());
            let high = _mm_loadu_si128(from.add(bits).cast());
            let pairs = _mm256_shuffle_epi8(_mm256_set_m128i(high, low), shuffle);
            let top = _mm256_mullo_epi16(pairs, multiply);
            let samples: __m256i = _mm256_sra_epi16(top, shift);
            _mm256_storeu_si256(out.as_mut_ptr().add(16 * v).cast(), samples);
        }
    }
    16 * vectors
}
