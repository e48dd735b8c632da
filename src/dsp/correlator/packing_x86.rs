//! Implementation of [`super::spread`] with the vector instructions of x86-64, four antennas at a time.
#![allow(unsafe_code, reason = "calls an implementation that the CPU supports")]

use super::kernel::Kernel;
use super::packing::{Words, portable};
use bytemuck::cast;
use std::arch::x86_64::{
    __m256i, _mm256_castsi256_si128, _mm256_cvtepi8_epi16, _mm256_dpbusd_epi32,
    _mm256_extracti128_si256, _mm256_permute2x128_si256, _mm256_permute4x64_epi64,
    _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_sign_epi16, _mm256_unpackhi_epi64, _mm256_unpacklo_epi64,
    _mm256_xor_si256,
};

/// Inputs of four antennas.
const GROUP: usize = 8;

// Permutations of the bytes of 128 bits.
/// Swaps the bytes of every 16-bit number.
const SWAP_BYTES: [u64; 2] = [0x0607_0405_0203_0001, 0x0e0f_0c0d_0a0b_0809];
/// Swaps the two 16-bit numbers of every 32-bit word.
const SWAP_HALVES: [u64; 2] = [0x0504_0706_0100_0302, 0x0d0c_0f0e_0908_0b0a];
/// The first spectra of two antennas, then the second ones.
const BY_SPECTRUM: [u64; 2] = [0x0d0c_0908_0504_0100, 0x0f0e_0b0a_0706_0302];

/// Implementation of [`super::packing::spread`].
pub(super) fn spread(
    kernel: Kernel,
    stage: &[u64],
    pairs: usize,
    words: Words,
    offsets: &mut [[i32; 2]],
) {
    // SAFETY: `Kernel::available` lists an implementation only if the CPU supports it.
    unsafe {
        match kernel {
            Kernel::Portable => portable(kernel, stage, pairs, words, offsets),
            Kernel::Avx2 => spread_words(stage, pairs, words),
            Kernel::Vnni256 | Kernel::Vnni512 => spread_bytes(stage, pairs, words, offsets),
        }
    }
}

/// Calls `step` with the number of each pair, and the pair of four antennas.
#[inline]
#[target_feature(enable = "avx2")]
fn for_each_pair(stage: &[u64], pairs: usize, group: usize, mut step: impl FnMut(usize, __m256i)) {
    let antenna = |a: usize| &stage[(GROUP / 2 * group + a) * pairs..][..pairs];
    let streams = [antenna(0), antenna(1), antenna(2), antenna(3)];
    let [(a, rest), (b, _), (c, _), (d, _)] = streams.map(<[u64]>::as_chunks::<4>);
    for (quad, (((a, b), c), d)) in a.iter().zip(b).zip(c).zip(d).enumerate() {
        let [a, b, c, d]: [__m256i; 4] = [cast(*a), cast(*b), cast(*c), cast(*d)];
        // Pairs 0 and 2, 1 and 3, each of two antennas.
        let [ab_even, ab_odd] = [_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)];
        let [cd_even, cd_odd] = [_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d)];
        step(4 * quad, _mm256_permute2x128_si256::<0x20>(ab_even, cd_even));
        step(4 * quad + 1, _mm256_permute2x128_si256::<0x20>(ab_odd, cd_odd));
        step(4 * quad + 2, _mm256_permute2x128_si256::<0x31>(ab_even, cd_even));
        step(4 * quad + 3, _mm256_permute2x128_si256::<0x31>(ab_odd, cd_odd));
    }
    for pair in pairs - rest.len()..pairs {
        step(pair, cast(streams.map(|stream| stream[pair])));
    }
}

/// Writes the words of the inputs of group `group` in step `step`.
#[inline]
fn put(words: &mut [u32], lanes: usize, step: usize, group: usize, value: __m256i) {
    words[step * lanes + GROUP * group..][..GROUP].copy_from_slice(&cast::<_, [u32; GROUP]>(value));
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn spread_bytes(stage: &[u64], pairs: usize, words: Words, offsets: &mut [[i32; 2]]) {
    let [row, column_re, column_im] = words;
    let lanes = offsets.len();
    let swap: __m256i = cast([SWAP_BYTES; 2]);
    let all = _mm256_set1_epi8(-128);
    let alternating = _mm256_set1_epi16(0x807f_u16.cast_signed());
    for (group, offsets) in offsets.chunks_exact_mut(GROUP).enumerate() {
        let mut sums = [_mm256_setzero_si256(); 2];
        for_each_pair(stage, pairs, group, |step, pair| {
            put(row, lanes, step, group, pair);
            put(column_re, lanes, step, group, _mm256_xor_si256(pair, all));
            // For the byte y, 127 - y is y ^ 0x7f.
            let swapped = _mm256_shuffle_epi8(pair, swap);
            put(column_im, lanes, step, group, _mm256_xor_si256(swapped, alternating));
            // The unsigned bytes are all 128, and alternately 127 and 128.
            sums[0] = _mm256_dpbusd_epi32(sums[0], all, pair);
            sums[1] = _mm256_dpbusd_epi32(sums[1], alternating, pair);
        });
        let [re, im] = sums.map(cast::<_, [i32; GROUP]>);
        for (offset, add) in offsets.iter_mut().zip(re.into_iter().zip(im)) {
            *offset = [offset[0].wrapping_add(add.0), offset[1].wrapping_add(add.1)];
        }
    }
}

#[target_feature(enable = "avx2")]
fn spread_words(stage: &[u64], pairs: usize, words: Words) {
    let [row, column_re, column_im] = words;
    let lanes = 2 * stage.len() / pairs;
    let by_spectrum: __m256i = cast([BY_SPECTRUM; 2]);
    let swap: __m256i = cast([SWAP_HALVES; 2]);
    let negative_re = _mm256_set1_epi32(0x0001_ffff);
    for group in 0..lanes / GROUP {
        for_each_pair(stage, pairs, group, |pair, both| {
            let sorted = _mm256_shuffle_epi8(both, by_spectrum);
            let sorted = _mm256_permute4x64_epi64::<0b11_01_10_00>(sorted);
            let spectra = [_mm256_castsi256_si128(sorted), _mm256_extracti128_si256::<1>(sorted)];
            for (spectrum, bytes) in spectra.into_iter().enumerate() {
                let step = 2 * pair + spectrum;
                let word = _mm256_cvtepi8_epi16(bytes);
                put(row, lanes, step, group, word);
                put(column_re, lanes, step, group, word);
                let swapped = _mm256_shuffle_epi8(word, swap);
                put(column_im, lanes, step, group, _mm256_sign_epi16(swapped, negative_re));
            }
        });
    }
}
