//! Number of samples that a digitiser clipped.

/// Returns the number of saturated samples of `bits` bits: at the largest value, its negative, or the most negative
/// value.
pub fn saturated_samples(packed: &[u8], bits: u8) -> u64 {
    // With the number of bits known to the compiler, all shifts and masks are constants.
    match bits {
        2 => count::<2>(packed),
        3 => count::<3>(packed),
        4 => count::<4>(packed),
        5 => count::<5>(packed),
        6 => count::<6>(packed),
        7 => count::<7>(packed),
        8 => count::<8>(packed),
        9 => count::<9>(packed),
        10 => count::<10>(packed),
        12 => count::<12>(packed),
        _ => count::<16>(packed),
    }
}

/// Words that are tested together: their first one and the one after them begin at a byte.
const WORDS: usize = 8;

/// Counts saturated samples by testing words of several samples: a digitiser's stream leaves a core 0.5 ns per sample.
fn count<const BITS: usize>(packed: &[u8]) -> u64 {
    let per_word = per_word(BITS);
    let bytes = WORDS * per_word * BITS / 8;
    let (mut saturated, mut rest) = (0, packed);
    // The last word may end in the bytes after those of its samples.
    while let Some(words) = rest.get(..bytes + 8) {
        for word in 0..WORDS {
            let bit = word * per_word * BITS;
            let bytes: [u8; 8] = std::array::from_fn(|n| words[bit / 8 + n]);
            let found = is_saturated::<BITS>(u64::from_be_bytes(bytes) << (bit % 8));
            // Rarely true, and counting bits takes longer than the test.
            if found != 0 {
                saturated += u64::from(found.count_ones());
            }
        }
        rest = &rest[bytes..];
    }
    let samples = 8 * rest.len() / BITS;
    for first in (0..samples).step_by(per_word) {
        let bit = first * BITS;
        let mut bytes = [0; 8];
        let left = rest[bit / 8..].iter();
        bytes.iter_mut().zip(left).for_each(|(to, from)| *to = *from);
        let found = is_saturated::<BITS>(u64::from_be_bytes(bytes) << (bit % 8));
        let here = per_word.min(samples - first) * BITS;
        saturated += u64::from((found & !(u64::MAX >> here)).count_ones());
    }
    saturated
}

/// Number of samples in a word, which begins up to seven bits before the first one.
const fn per_word(bits: usize) -> usize {
    57 / bits
}

/// Returns a word with the lowest bit of each saturated sample of `word`, whose first sample is at its top.
fn is_saturated<const BITS: usize>(word: u64) -> u64 {
    let lowest = const {
        let (mut word, mut n) = (0, 0);
        while n < per_word(BITS) {
            n += 1;
            word |= 1_u64 << (64 - BITS * n);
        }
        word
    };
    if BITS == 2 {
        // 1, -1 and -2.
        return (word | word >> 1) & lowest;
    }
    // In 011..11, 100..01 and 100..00 the highest bit differs from the next one, which equals those after it but the
    // lowest. 011..10 does, too.
    let all = lowest * ((1 << (BITS - 2)) - 1);
    let differs = word ^ word << 1;
    let unlike = (differs ^ lowest << (BITS - 1)) >> 2 & all;
    let is_unlike = (unlike + all) >> (BITS - 2);
    !is_unlike & (word | word >> (BITS - 1)) & lowest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Counts one sample after the other.
    fn saturated_one_by_one(packed: &[u8], bits: u8) -> u64 {
        let largest = (1_i32 << (bits - 1)) - 1;
        let (mut word, mut available, mut saturated) = (0_u32, 0, 0);
        for byte in packed {
            word = (word << 8) | u32::from(*byte);
            available += 8;
            while available >= bits {
                available -= bits;
                let sample = (((word >> available) << (32 - bits)).cast_signed()) >> (32 - bits);
                saturated += u64::from(sample.abs() >= largest);
            }
        }
        saturated
    }

    proptest! {
        #[test]
        fn saturated_samples_counted_in_words_are_those_counted_one_by_one(
            bits in prop::sample::select(vec![2_u8, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16]),
            near in any::<bool>(),
            samples in proptest::collection::vec(any::<u16>(), 0..500),
        ) {
            // Samples near the limits are rare otherwise.
            let near_limit = |sample: u16| (1_u32 << (bits - 1)).wrapping_add_signed(i32::from(sample % 8) - 4);
            let all = samples.iter().map(|s| if near { near_limit(*s) } else { u32::from(*s) });
            let mut text: Vec<bool> = all
                .flat_map(|sample| (0..bits).rev().map(move |bit| sample >> bit & 1 == 1))
                .collect();
            text.truncate(text.len() / 8 * 8);
            let bytes = text.chunks(8).map(|byte| byte.iter().fold(0_u8, |all, bit| all << 1 | u8::from(*bit)));
            let packed: Vec<u8> = bytes.collect();
            prop_assert_eq!(saturated_samples(&packed, bits), saturated_one_by_one(&packed, bits));
        }
    }

    #[test]
    fn saturated_samples_of_any_width_are_counted() {
        // 511, -511, -512, 510 and 0 with 10 bits.
        let samples = [511_i32, -511, -512, 510, 0, 0, 0, 0];
        let mut bits = 0_u128;
        for sample in samples {
            bits = (bits << 10) | (sample & 1023) as u128;
        }
        assert_eq!(saturated_samples(&bits.to_be_bytes()[6..], 10), 3);
        assert_eq!(saturated_samples(&[0x7f, 0x80, 0x81, 0x7e], 8), 3);
        assert_eq!(saturated_samples(&[0x7f, 0xff, 0x80, 0x02], 16), 1);
    }
}
