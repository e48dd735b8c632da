//! Decoding of packed two's-complement samples, most significant bit first.
//!
//! Eight samples of b bits take b bytes, and for every width here each sample lies within two
//! adjacent bytes. So one shuffle fetches the two bytes of eight samples, one multiplication by
//! powers of two puts each sample into the high bits, and one arithmetic shift brings it down
//! again with its sign.
#![allow(unsafe_code)] // AVX2 intrinsics.

/// Sample widths that can be decoded.
pub const WIDTHS: [u8; 11] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16];

/// Decodes samples of one width.
#[derive(Clone, Debug)]
pub struct Decoder {
    bits: u8,
    #[cfg(target_arch = "x86_64")]
    avx2: Option<avx2::Tables>,
}

impl Decoder {
    /// A decoder for samples of `bits` bits, one of [`WIDTHS`].
    #[must_use]
    pub fn new(bits: u8) -> Option<Self> {
        WIDTHS.contains(&bits).then(|| Self {
            bits,
            #[cfg(target_arch = "x86_64")]
            avx2: is_x86_feature_detected!("avx2").then(|| avx2::Tables::new(bits)),
        })
    }

    /// Decodes the samples from number `first`, a multiple of 8, into all of `out`. Samples past
    /// the end of `packed` become 0.
    pub fn decode(&self, packed: &[u8], first: usize, out: &mut [i16]) {
        debug_assert!(first.is_multiple_of(8));
        let start = (first / 8).saturating_mul(usize::from(self.bits)).min(packed.len());
        let packed = &packed[start..];
        let mut done = 0;
        #[cfg(target_arch = "x86_64")]
        if let Some(tables) = &self.avx2 {
            // SAFETY: the tables exist only if the processor has AVX2.
            done = unsafe { avx2::decode(tables, packed, out) };
        }
        for (i, sample) in out.iter_mut().enumerate().skip(done) {
            *sample = self.one(packed, i);
        }
    }

    fn one(&self, packed: &[u8], index: usize) -> i16 {
        let bits = usize::from(self.bits);
        let byte = |i: usize| packed.get(i).copied().unwrap_or(0);
        let (first, offset) = (index * bits / 8, index * bits % 8);
        let pair = u16::from_be_bytes([byte(first), byte(first + 1)]);
        (pair << offset).cast_signed() >> (16 - bits)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_cvtsi32_si128, _mm_loadu_si128, _mm256_broadcastsi128_si256,
        _mm256_mullo_epi16, _mm256_set_m128i, _mm256_shuffle_epi8, _mm256_sra_epi16,
        _mm256_storeu_si256,
    };

    /// Constants of the decoding of one width.
    #[derive(Clone, Debug)]
    pub(super) struct Tables {
        bits: usize,
        /// For each of eight samples the low and the high byte of its little-endian pair.
        shuffle: [u8; 16],
        /// Powers of two that move each sample to the top of its pair.
        multiply: [i16; 8],
    }

    impl Tables {
        pub(super) fn new(bits: u8) -> Self {
            let bits = usize::from(bits);
            let mut tables = Self { bits, shuffle: [0; 16], multiply: [0; 8] };
            for i in 0..8 {
                let first = i * bits / 8;
                // The last sample may end with its first byte; then the second is shifted out.
                tables.shuffle[2 * i] = (first + 1).min(15) as u8;
                tables.shuffle[2 * i + 1] = first as u8;
                tables.multiply[i] = 1 << (i * bits % 8);
            }
            tables
        }
    }

    /// Decodes as many whole vectors as both slices have room for; returns how many samples.
    #[target_feature(enable = "avx2")]
    pub(super) fn decode(tables: &Tables, packed: &[u8], out: &mut [i16]) -> usize {
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
            // SAFETY: `vectors` is such that both loads end within `packed` and the store
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
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Packs bit by bit: nothing in common with the decoder.
    fn pack(samples: &[i16], bits: u8) -> Vec<u8> {
        let mut packed = vec![0_u8; (samples.len() * usize::from(bits)).div_ceil(8)];
        let mut position = 0;
        for sample in samples {
            for bit in (0..bits).rev() {
                packed[position / 8] |= u8::from(sample >> bit & 1 == 1) << (7 - position % 8);
                position += 1;
            }
        }
        packed
    }

    proptest! {
        #[test]
        fn what_was_packed_comes_back(
            width in 0..WIDTHS.len(),
            raw in prop::collection::vec(any::<i16>(), 1..300),
            first in 0_usize..20,
        ) {
            let bits = WIDTHS[width];
            let samples: Vec<i16> = raw.iter().map(|x| x >> (16 - bits)).collect();
            let packed = pack(&samples, bits);
            let first = (8 * first).min(samples.len() / 8 * 8);
            let mut out = vec![0; samples.len() - first];
            Decoder::new(bits).unwrap().decode(&packed, first, &mut out);
            prop_assert_eq!(&out, &samples[first..]);
        }
    }

    #[test]
    fn a_short_buffer_gives_zeros_and_no_panic() {
        let mut out = [7_i16; 64];
        Decoder::new(10).unwrap().decode(&[], 1 << 40, &mut out);
        assert_eq!(out, [0; 64]);
        assert!(Decoder::new(11).is_none());
    }
}
