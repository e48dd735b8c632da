//! Transposition with AVX-512.
#![allow(unsafe_code, reason = "loads and stores of whole registers, within slices")]

use super::{Range, Transposition};
use crate::simd;
use std::arch::x86_64::{
    __m512i, _mm256_loadu_si256, _mm256_storeu_si256, _mm512_and_si512, _mm512_castsi256_si512,
    _mm512_cvtepi16_epi8, _mm512_loadu_si512, _mm512_or_si512, _mm512_permutex2var_epi16,
    _mm512_permutexvar_epi16, _mm512_set1_epi16, _mm512_shuffle_i32x4, _mm512_slli_epi16,
    _mm512_srli_epi16, _mm512_storeu_si512, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

/// Channels and spectra of a tile: with both polarisations, a cache line of output.
pub(super) const TILE: usize = 16;

/// Tiles from one that is written to the one whose output is fetched. The cache lines of a tile are a channel apart: the CPU
/// does not expect them, and stores would wait for one after the other.
const AHEAD: usize = 2;

/// Permutation that interleaves the lower parts of two vectors to pairs.
const PAIRS: [u16; 32] = {
    let (mut indices, mut i) = ([0; 32], 0);
    while i < 32 {
        indices[i as usize] = i / 2 + i % 2 * 32;
        i += 1;
    }
    indices
};
/// Permutation that collects the first elements of all pairs in the lower part, the second ones in the upper part.
const HALVES: [u16; 32] = {
    let (mut indices, mut i) = ([0; 32], 0);
    while i < 32 {
        indices[i as usize] = i % 16 * 2 + i / 16;
        i += 1;
    }
    indices
};

/// Transposes the whole tiles of channels in `out`; returns the number of channels in them.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn transpose(
    transposition: &Transposition,
    quantised: &[u16],
    spectra: &Range<usize>,
    out: &mut [u8],
) -> usize {
    let Transposition { pitch, rows, .. } = *transposition;
    let unit = transposition.channel_bytes();
    let channels = out.len() / unit / TILE * TILE;
    let needed = rows.saturating_add(TILE - 1).saturating_mul(pitch).saturating_add(channels);
    assert!(rows >= TILE && quantised.len() >= needed);
    assert!(spectra.start + TILE <= transposition.spectra_per_heap);
    // SAFETY: the table has 64 bytes.
    let pairs = unsafe { _mm512_loadu_si512(PAIRS.as_ptr().cast()) };
    for tile in 0..channels / TILE {
        let (now, later) = out[tile * TILE * unit..].split_at_mut(TILE * unit);
        let ahead = later.chunks_exact(unit).skip((AHEAD - 1) * TILE).take(TILE);
        ahead.for_each(|channel| fetch(transposition, spectra, channel));
        let lines = std::array::from_fn(|row| {
            // SAFETY: by the assertion above, there are TILE channels from here on.
            unsafe {
                let pol0 = quantised.as_ptr().add(row * pitch + tile * TILE);
                let pol1 = _mm256_loadu_si256(pol0.add(rows * pitch).cast());
                let pol0 = _mm256_loadu_si256(pol0.cast());
                let pol1 = _mm512_castsi256_si512(pol1);
                _mm512_permutex2var_epi16(_mm512_castsi256_si512(pol0), pairs, pol1)
            }
        });
        for (line, out) in square(&lines).into_iter().zip(now.chunks_exact_mut(unit)) {
            store(transposition, line, spectra, out);
        }
    }
    channels
}

/// Fetches the places of 16 spectra in a channel of the output.
#[inline]
fn fetch(transposition: &Transposition, spectra: &Range<usize>, channel: &[u8]) {
    let place = |channel: &[u8]| {
        let per_spectrum = channel.len() / transposition.spectra_per_heap;
        simd::fetch(&channel[spectra.start * per_spectrum..][..TILE * per_spectrum]);
    };
    if transposition.k_major {
        channel.chunks_exact(channel.len() / 2).for_each(place);
    } else {
        place(channel);
    }
}

/// Returns the transpose of 16 x 16 pairs.
#[inline]
#[target_feature(enable = "avx512f")]
fn square(rows: &[__m512i; TILE]) -> [__m512i; TILE] {
    let mut a = *rows;
    for i in (0..TILE).step_by(4) {
        let [lo0, hi0] = [
            _mm512_unpacklo_epi32(rows[i], rows[i + 1]),
            _mm512_unpackhi_epi32(rows[i], rows[i + 1]),
        ];
        let [lo1, hi1] = [
            _mm512_unpacklo_epi32(rows[i + 2], rows[i + 3]),
            _mm512_unpackhi_epi32(rows[i + 2], rows[i + 3]),
        ];
        a[i] = _mm512_unpacklo_epi64(lo0, lo1);
        a[i + 1] = _mm512_unpackhi_epi64(lo0, lo1);
        a[i + 2] = _mm512_unpacklo_epi64(hi0, hi1);
        a[i + 3] = _mm512_unpackhi_epi64(hi0, hi1);
    }
    // Quarter q of a[4 b + c] is now column 4 q + c of rows 4 b to 4 b + 3.
    let mut columns = a;
    for c in 0..4 {
        let even0 = _mm512_shuffle_i32x4::<0b10_00_10_00>(a[c], a[4 + c]);
        let odd0 = _mm512_shuffle_i32x4::<0b11_01_11_01>(a[c], a[4 + c]);
        let even1 = _mm512_shuffle_i32x4::<0b10_00_10_00>(a[8 + c], a[12 + c]);
        let odd1 = _mm512_shuffle_i32x4::<0b11_01_11_01>(a[8 + c], a[12 + c]);
        columns[c] = _mm512_shuffle_i32x4::<0b10_00_10_00>(even0, even1);
        columns[4 + c] = _mm512_shuffle_i32x4::<0b10_00_10_00>(odd0, odd1);
        columns[8 + c] = _mm512_shuffle_i32x4::<0b11_01_11_01>(even0, even1);
        columns[12 + c] = _mm512_shuffle_i32x4::<0b11_01_11_01>(odd0, odd1);
    }
    columns
}

/// Writes the values of 16 spectra, pairs of polarisations, to a channel of the output.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store(transposition: &Transposition, line: __m512i, spectra: &Range<usize>, out: &mut [u8]) {
    let per_pol = transposition.channel_bytes() / 2;
    let line = if transposition.k_major {
        // SAFETY: the table has 64 bytes.
        _mm512_permutexvar_epi16(unsafe { _mm512_loadu_si512(HALVES.as_ptr().cast()) }, line)
    } else {
        line
    };
    // Arrays, so that the compiler keeps them in registers.
    if transposition.is_4_bit {
        // Real part in the high nibble, imaginary part in the low one.
        let low = _mm512_set1_epi16(0x0f);
        let re = _mm512_slli_epi16::<4>(_mm512_and_si512(line, low));
        let im = _mm512_and_si512(_mm512_srli_epi16::<8>(line), low);
        let packed = _mm512_cvtepi16_epi8(_mm512_or_si512(re, im));
        let mut bytes = [0_u8; 32];
        // SAFETY: 32 bytes.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), packed) };
        if transposition.k_major {
            out[spectra.start..][..16].copy_from_slice(&bytes[..16]);
            out[per_pol + spectra.start..][..16].copy_from_slice(&bytes[16..]);
        } else {
            out[2 * spectra.start..][..32].copy_from_slice(&bytes);
        }
    } else {
        let mut bytes = [0_u8; 64];
        // SAFETY: 64 bytes.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), line) };
        if transposition.k_major {
            out[2 * spectra.start..][..32].copy_from_slice(&bytes[..32]);
            out[per_pol + 2 * spectra.start..][..32].copy_from_slice(&bytes[32..]);
        } else {
            out[4 * spectra.start..][..64].copy_from_slice(&bytes);
        }
    }
}
