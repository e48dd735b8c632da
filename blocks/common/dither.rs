//! Reproducible dither: noise that depends on nothing but a seed and the place of the value.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Noise added before rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dither {
    /// Uniform in (-1/2, 1/2), real and imaginary part on their own.
    #[default]
    Uniform,
    /// None.
    None,
}

/// Increment and mixing of `SplitMix64` (Steele, Lea and Flood 2014).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline]
const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The key of a row of values, from the seed and whatever numbers say which row it is.
#[must_use]
pub fn key(seed: u64, place: &[u64]) -> u64 {
    place.iter().fold(mix(seed.wrapping_add(GOLDEN)), |key, &part| {
        mix(key.wrapping_add(GOLDEN) ^ mix(part.wrapping_add(GOLDEN)))
    })
}

/// Two independent values, uniform in (-1/2, 1/2), for the complex value `index` of a row.
#[inline]
#[must_use]
pub fn uniform_pair(key: u64, index: u64) -> [f32; 2] {
    let bits = mix(key.wrapping_add(index.wrapping_mul(GOLDEN)));
    // 23 bits and a half are exact in single precision, so neither end is ever reached.
    [bits as u32, (bits >> 32) as u32]
        .map(|bits| ((bits >> 9) as f32 + 0.5) * (1.0 / 8_388_608.0) - 0.5)
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512 {
    use super::GOLDEN;
    use std::arch::x86_64::{
        __m512, _mm512_add_epi64, _mm512_add_ps, _mm512_castsi512_ps, _mm512_mullo_epi64,
        _mm512_or_si512, _mm512_set1_epi32, _mm512_set1_epi64, _mm512_set1_ps, _mm512_setr_epi64,
        _mm512_srli_epi32, _mm512_srli_epi64, _mm512_sub_ps, _mm512_xor_si512,
    };

    /// The values of [`super::uniform_pair`] for `index` and the seven after it, pair by pair.
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
        let z =
            _mm512_add_epi64(_mm512_set1_epi64(first), _mm512_setr_epi64(a, b, c, d, e, f, g, h));
        let by = |x: u64| _mm512_set1_epi64(x.cast_signed());
        let z = _mm512_xor_si512(z, _mm512_srli_epi64::<30>(z));
        let z = _mm512_mullo_epi64(z, by(0xbf58_476d_1ce4_e5b9));
        let z = _mm512_xor_si512(z, _mm512_srli_epi64::<27>(z));
        let z = _mm512_mullo_epi64(z, by(0x94d0_49bb_1331_11eb));
        let bits = _mm512_xor_si512(z, _mm512_srli_epi64::<31>(z));
        // The bits as the fraction of a number from 1 to 2; all steps down from there are exact.
        let one = _mm512_set1_epi32(0x3f80_0000);
        let uniform = _mm512_castsi512_ps(_mm512_or_si512(_mm512_srli_epi32::<9>(bits), one));
        let half_a_step = _mm512_set1_ps(0.5 / 8_388_608.0);
        _mm512_add_ps(_mm512_sub_ps(uniform, _mm512_set1_ps(1.5)), half_a_step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_uniform_reproducible_and_unrelated_between_rows_and_parts() {
        let n = 100_000;
        let moments = |row: u64, other: u64| {
            let [a, b] = [row, other].map(|row| key(1, &[row, 5]));
            let mut sums = [0.0; 4];
            for index in 0..n {
                let [x, y] = uniform_pair(a, index).map(f64::from);
                let z = f64::from(uniform_pair(b, index)[0]);
                assert!(x.abs() < 0.5 && y.abs() < 0.5);
                for (sum, value) in sums.iter_mut().zip([x, x * x, x * y, x * z]) {
                    *sum += value;
                }
            }
            sums.map(|sum| sum / n as f64)
        };
        let [mean, square, parts, rows] = moments(0, 1);
        assert!(mean.abs() < 4e-3 && (square - 1.0 / 12.0).abs() < 1e-3);
        assert!(parts.abs() < 1e-3 && rows.abs() < 1e-3);
        assert_eq!(uniform_pair(3, 4).map(f32::to_bits), uniform_pair(3, 4).map(f32::to_bits));
        assert_ne!(key(1, &[0, 1]), key(1, &[1, 0]));
    }
}
