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
const FACTOR: u32 = 0x846c_a68b;

/// Returns two independent values, uniform in (-1/2, 1/2), for the complex value `index` of a row: odd multiples of
/// 2^-16, so that they are symmetric about 0 and exact in single precision.
#[inline]
#[must_use]
pub fn uniform_pair(key: u64, index: u32) -> [f32; 2] {
    let fold = |z: u64| z as u32 ^ (z >> 32) as u32;
    let place = key.wrapping_add(u64::from(index).wrapping_mul(GOLDEN));
    let bits = fold(u64::from(fold(place)) * u64::from(FACTOR));
    [bits & 0xffff, bits >> 16].map(|half| (half | 1) as f32 * (1.0 / 65536.0) - 0.5)
}

/// Sets `values` to those of [`uniform_pair`] for `first` and the indices after it.
#[inline(always)]
#[allow(clippy::inline_always)] // The body is compiled again in functions with other instruction sets.
pub(crate) fn fill(key: u64, first: u32, values: &mut [[f32; 2]]) {
    for (value, index) in values.iter_mut().zip(first..) {
        *value = uniform_pair(key, index);
    }
}

#[cfg(test)]
mod tests;
