//! Decoding and counting with AVX2.
#![allow(unsafe_code, reason = "loads and stores of whole registers, within slices")]

use std::arch::x86_64::{
    __m128i, __m256i, _mm_cvtsi32_si128, _mm_loadu_si128, _mm256_abs_epi16,
    _mm256_broadcastsi128_si256, _mm256_cmpeq_epi16, _mm256_max_epu16, _mm256_mullo_epi16,
    _mm256_set_m128i, _mm256_set1_epi16, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_sra_epi16, _mm256_storeu_si256, _mm256_sub_epi16,
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

    /// Counts the saturated samples of as many whole vectors as there are; returns the number of samples and the count.
    pub(super) fn saturated(&self, packed: &[u8]) -> (usize, u64) {
        // SAFETY: the tables exist only if the CPU has AVX2.
        unsafe { saturated(self, packed) }
    }
}

/// Tables in the registers of the CPU.
struct Loaded {
    shuffle: __m256i,
    multiply: __m256i,
    shift: __m128i,
    bits: usize,
}

impl Loaded {
    #[target_feature(enable = "avx2")]
    fn new(tables: &Tables) -> Self {
        // SAFETY: both tables are 16 bytes long.
        let (shuffle, multiply): (__m128i, __m128i) = unsafe {
            (
                _mm_loadu_si128(tables.shuffle.as_ptr().cast()),
                _mm_loadu_si128(tables.multiply.as_ptr().cast()),
            )
        };
        Self {
            shuffle: _mm256_broadcastsi128_si256(shuffle),
            multiply: _mm256_broadcastsi128_si256(multiply),
            shift: _mm_cvtsi32_si128(16 - tables.bits as i32),
            bits: tables.bits,
        }
    }

    /// Number of whole vectors in `packed`.
    fn vectors(&self, packed: &[u8]) -> usize {
        // The second load of vector v covers bytes (2 v + 1) bits to that + 16.
        packed.len().checked_sub(16 + self.bits).map_or(0, |room| room / (2 * self.bits) + 1)
    }

    /// The samples of vector `v`.
    ///
    /// # Safety
    /// `v` must be less than [`Loaded::vectors`] of `packed`.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn samples(&self, packed: &[u8], v: usize) -> __m256i {
        // SAFETY: both loads end within `packed`.
        let (low, high) = unsafe {
            let from = packed.as_ptr().add(2 * v * self.bits);
            (_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(self.bits).cast()))
        };
        let pairs = _mm256_shuffle_epi8(_mm256_set_m128i(high, low), self.shuffle);
        _mm256_sra_epi16(_mm256_mullo_epi16(pairs, self.multiply), self.shift)
    }
}

/// See [`Tables::decode`].
#[target_feature(enable = "avx2")]
fn decode(tables: &Tables, packed: &[u8], out: &mut [i16]) -> usize {
    let loaded = Loaded::new(tables);
    let vectors = loaded.vectors(packed).min(out.len() / 16);
    for v in 0..vectors {
        // SAFETY: `vectors` is limited so that the vector is within `packed` and the store within `out`.
        unsafe {
            _mm256_storeu_si256(out.as_mut_ptr().add(16 * v).cast(), loaded.samples(packed, v));
        }
    }
    16 * vectors
}

/// See [`Tables::saturated`].
#[target_feature(enable = "avx2")]
fn saturated(tables: &Tables, packed: &[u8]) -> (usize, u64) {
    /// Vectors that 16 bits can count.
    const MOST: usize = 1 << 15;
    let loaded = Loaded::new(tables);
    let largest = _mm256_set1_epi16(i16::MAX >> (16 - tables.bits));
    let (vectors, mut total) = (loaded.vectors(packed), 0);
    for first in (0..vectors).step_by(MOST) {
        let mut counts = _mm256_setzero_si256();
        for v in first..vectors.min(first + MOST) {
            // SAFETY: `v` is less than `vectors`.
            let samples = unsafe { loaded.samples(packed, v) };
            // The magnitude of the most negative value is right as an unsigned number.
            let magnitude = _mm256_abs_epi16(samples);
            let is_saturated = _mm256_cmpeq_epi16(_mm256_max_epu16(magnitude, largest), magnitude);
            // True is -1.
            counts = _mm256_sub_epi16(counts, is_saturated);
        }
        let mut of_elements = [0_u16; 16];
        // SAFETY: the array is 32 bytes long.
        unsafe { _mm256_storeu_si256(of_elements.as_mut_ptr().cast(), counts) };
        total += of_elements.iter().copied().map(u64::from).sum::<u64>();
    }
    (16 * vectors, total)
}
