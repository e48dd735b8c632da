//! Reproducible dither: noise that depends only on a seed and the index of the value.

#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

/// Increment and mixing of `SplitMix64` (Steele, Lea and Flood 2014).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline]
const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the key of a row of values, from the seed and the indices `place` of the row.
#[must_use]
pub fn key(seed: u64, place: &[u64]) -> u64 {
    place.iter().fold(mix(seed.wrapping_add(GOLDEN)), |key, &part| {
        mix(key.wrapping_add(GOLDEN) ^ mix(part.wrapping_add(GOLDEN)))
    })
}

/// Multiplier of the hash of a place, 32 bits.
const SPREAD: u32 = 0x846c_a68b;

/// Returns two independent values, uniform in (-1/2, 1/2), for the complex value `index` of a row: odd multiples of
/// 2^-16, so that they are symmetric about 0 and exact in single precision.
#[inline]
#[must_use]
pub fn uniform_pair(key: u64, index: u32) -> [f32; 2] {
    let fold = |z: u64| z as u32 ^ (z >> 32) as u32;
    let place = key.wrapping_add(u64::from(index).wrapping_mul(GOLDEN));
    let bits = fold(u64::from(fold(place)) * u64::from(SPREAD));
    [bits & 0xffff, bits >> 16].map(|half| (half | 1) as f32 * (1.0 / 65536.0) - 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
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
