//! Decoding of packed two's-complement samples, most significant bit first.
//!
//! Eight samples of b bits take b bytes, and for every supported width each sample is within two
//! adjacent bytes. Therefore one shuffle fetches the two bytes of eight samples, one multiplication by
//! powers of two moves each sample to the high bits, and one arithmetic shift moves it down
//! again with its sign.

#[cfg(target_arch = "x86_64")]
mod x86;

/// Sample widths that can be decoded.
pub const WIDTHS: [u8; 11] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16];

/// Decodes samples of one width.
#[derive(Clone, Debug)]
pub struct Decoder {
    bits: u8,
    #[cfg(target_arch = "x86_64")]
    avx2: Option<x86::Tables>,
}

impl Decoder {
    /// Creates a decoder for samples of `bits` bits; `None` unless it is one of [`WIDTHS`].
    #[must_use]
    pub fn new(bits: u8) -> Option<Self> {
        WIDTHS.contains(&bits).then(|| Self {
            bits,
            #[cfg(target_arch = "x86_64")]
            avx2: x86::Tables::new(bits),
        })
    }

    /// Decodes samples from number `first` on, a multiple of 8, to all of `out`. Samples after
    /// the end of `packed` become 0.
    pub fn decode(&self, packed: &[u8], first: usize, out: &mut [i16]) {
        debug_assert!(first.is_multiple_of(8));
        let start = (first / 8).saturating_mul(usize::from(self.bits)).min(packed.len());
        let packed = &packed[start..];
        let mut done = 0;
        #[cfg(target_arch = "x86_64")]
        if let Some(tables) = &self.avx2 {
            done = tables.decode(packed, out);
        }
        for (i, sample) in out.iter_mut().enumerate().skip(done) {
            *sample = self.one(packed, i);
        }
    }

    /// Returns the number of saturated samples, which are at the largest value, its negative, or the most negative value.
    #[must_use]
    pub fn saturated(&self, packed: &[u8]) -> u64 {
        let (mut done, mut saturated) = (0, 0);
        #[cfg(target_arch = "x86_64")]
        if let Some(tables) = &self.avx2 {
            (done, saturated) = tables.saturated(packed);
        }
        let largest = (1 << (self.bits - 1)) - 1;
        let samples = 8 * packed.len() / usize::from(self.bits);
        let rest = (done..samples).filter(|i| self.one(packed, *i).unsigned_abs() >= largest);
        saturated + rest.count() as u64
    }

    fn one(&self, packed: &[u8], index: usize) -> i16 {
        let bits = usize::from(self.bits);
        let byte = |i: usize| packed.get(i).copied().unwrap_or(0);
        let (first, offset) = (index * bits / 8, index * bits % 8);
        let pair = u16::from_be_bytes([byte(first), byte(first + 1)]);
        (pair << offset).cast_signed() >> (16 - bits)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Packs bit by bit, independently of the decoder.
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

    /// Returns the configuration of property tests: under Miri without files and with few cases.
    fn config() -> ProptestConfig {
        if !cfg!(miri) {
            return ProptestConfig::default();
        }
        ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn packed_samples_are_decoded_exactly(
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

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn saturated_samples_are_counted(
            width in 0..WIDTHS.len(),
            near in any::<bool>(),
            raw in prop::collection::vec(any::<i16>(), 0..500),
        ) {
            let bits = WIDTHS[width];
            // Samples near the limits are rare otherwise.
            let near_limit = |x: i16| i16::MIN.wrapping_add((x % 8 - 4) << (16 - bits));
            let sample = |x: &i16| if near { near_limit(*x) } else { *x } >> (16 - bits);
            let mut samples: Vec<i16> = raw.iter().map(sample).collect();
            // Whole bytes, so that no sample is made of padding.
            samples.truncate(samples.len() / 8 * 8);
            let largest = (1_i32 << (bits - 1)) - 1;
            let expected = samples.iter().filter(|x| i32::from(**x).abs() >= largest).count();
            let decoder = Decoder::new(bits).unwrap();
            prop_assert_eq!(decoder.saturated(&pack(&samples, bits)), expected as u64);
        }
    }

    #[test]
    fn saturated_samples_of_a_long_stretch_are_counted() {
        // More vectors than an element of 16 bits can count.
        let samples = if cfg!(miri) { 8 * 512 } else { 8 * 300_000 };
        let packed = pack(&[-128, 127, -127, 126, 0, -126, 127, 1].repeat(samples / 8), 8);
        assert_eq!(Decoder::new(8).unwrap().saturated(&packed), samples as u64 / 2);
    }

    #[test]
    fn short_buffer_gives_zeros_without_panic() {
        let mut out = [7_i16; 64];
        Decoder::new(10).unwrap().decode(&[], 1 << 40, &mut out);
        assert_eq!(out, [0; 64]);
        assert!(Decoder::new(11).is_none());
    }
}
