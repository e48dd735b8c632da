//! Upper bound of the 32-bit sums on a GPU, which the host keeps without reading them.

/// Largest contribution of a sample to a sum: re x re + im x im of -128.
const OF_A_SAMPLE: u64 = 2 * 128 * 128;
/// Largest 32-bit sum.
const IN_32_BITS: u64 = i32::MAX as u64;

/// Largest number of arbitrary samples whose sums fit 32 bits.
pub(super) const SAMPLES_IN_32_BITS: usize = (IN_32_BITS / OF_A_SAMPLE) as usize;

/// Upper bound of all sums.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bound(u64);

impl Bound {
    /// Adds `samples` samples, at most [`SAMPLES_IN_32_BITS`], to the bound. If the bound would overflow, returns the
    /// largest sum that is allowed before. The GPU must then compare, and move all sums elsewhere if one is larger.
    pub(super) fn add(&mut self, samples: usize) -> Option<u32> {
        let more = OF_A_SAMPLE * samples as u64;
        let most = if self.0 + more > IN_32_BITS {
            // Leave space for more samples than these, so that the GPU need not compare each time.
            let most = IN_32_BITS.saturating_sub(more).min(IN_32_BITS / 2);
            self.0 = most;
            Some(most as u32)
        } else {
            None
        };
        self.0 += more;
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn samples_in_32_bits_is_the_largest_safe_number() {
        assert_eq!(SAMPLES_IN_32_BITS, 65_535);
    }

    proptest! {
        #[test]
        fn sums_never_exceed_32_bits(
            pieces in prop::collection::vec((1..=SAMPLES_IN_32_BITS, 0..=OF_A_SAMPLE), 1..200),
        ) {
            let (mut bound, mut sum) = (Bound::default(), 0);
            for (samples, of_a_sample) in pieces {
                if let Some(most) = bound.add(samples)
                    && sum > u64::from(most)
                {
                    sum = 0;
                }
                sum += of_a_sample * samples as u64;
                prop_assert!(sum <= bound.0 && bound.0 <= IN_32_BITS);
            }
        }
    }

    #[test]
    fn sums_of_noise_are_rarely_moved() {
        // Noise of 20 rms in real and imaginary part.
        let (mut bound, mut sum, mut looked, mut moved) = (Bound::default(), 0, 0, 0);
        for _ in 0..1000 {
            if let Some(most) = bound.add(8192) {
                looked += 1;
                if sum > most {
                    (sum, moved) = (0, moved + 1);
                }
            }
            sum += 2 * 20 * 20 * 8192;
        }
        assert!(looked < 350 && moved < 10, "{looked}, {moved}");
    }
}
