//! From rows of quantised channels to the order of the output.
#![allow(unsafe_code)] // AVX-512 intrinsics.

use crate::common::simd::Form;
use std::ops::Range;

/// How the output is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Transposition {
    pub pols: usize,
    /// Rows of the quantised spectra are this far apart. Not a power of two, or all rows would
    /// share a few sets of the cache.
    pub pitch: usize,
    /// Rows of a polarisation in the quantised spectra.
    pub rows: usize,
    pub spectra_per_heap: usize,
    pub k_major: bool,
    pub is_4_bit: bool,
    pub form: Form,
}

impl Transposition {
    /// Bytes of one channel of a heap.
    pub fn channel_bytes(&self) -> usize {
        self.spectra_per_heap * self.pols * if self.is_4_bit { 1 } else { 2 }
    }

    /// Copies rows from the first one on of `quantised` \[pol\]\[row\]\[channel\] to the places of these
    /// `spectra` of a heap in `out`, its channels from number `first` on.
    pub fn run(&self, quantised: &[u16], first: usize, spectra: &Range<usize>, out: &mut [u8]) {
        let mut done = 0;
        #[cfg(target_arch = "x86_64")]
        if self.form == Form::Avx512 && self.pols == 2 && spectra.len() == avx512::TILE {
            // SAFETY: a form is chosen only if the processor has it.
            done = unsafe { avx512::transpose(self, &quantised[first..], spectra, out) };
        }
        let channels = out.chunks_exact_mut(self.channel_bytes()).enumerate();
        for (i, out) in channels.skip(done) {
            let column = &quantised[first + i..];
            if self.is_4_bit {
                self.values(column, spectra, out, nibbles);
            } else {
                let out: &mut [[u8; 2]] = bytemuck::cast_slice_mut(out);
                self.values(column, spectra, out, u16::to_le_bytes);
            }
        }
    }

    fn values<T>(
        &self,
        column: &[u16],
        spectra: &Range<usize>,
        out: &mut [T],
        value: impl Fn(u16) -> T,
    ) {
        let (per_pol, per_spectrum) =
            if self.k_major { (self.spectra_per_heap, 1) } else { (1, self.pols) };
        for row in 0..spectra.len() {
            for pol in 0..self.pols {
                let z = column[(pol * self.rows + row) * self.pitch];
                out[pol * per_pol + (spectra.start + row) * per_spectrum] = value(z);
            }
        }
    }
}

/// Real part in the high nibble, imaginary part in the low one.
fn nibbles(z: u16) -> u8 {
    ((z & 0x0f) << 4 | (z >> 8 & 0x0f)) as u8
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{Range, Transposition};
    use std::arch::x86_64::{
        __m512i, _mm256_loadu_si256, _mm256_storeu_si256, _mm512_and_si512, _mm512_castsi256_si512,
        _mm512_cvtepi16_epi8, _mm512_loadu_si512, _mm512_or_si512, _mm512_permutex2var_epi16,
        _mm512_permutexvar_epi16, _mm512_set1_epi16, _mm512_shuffle_i32x4, _mm512_slli_epi16,
        _mm512_srli_epi16, _mm512_storeu_si512, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64,
        _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
    };

    /// Channels and spectra of a tile: of both polarisations they are a cache line of output.
    pub(super) const TILE: usize = 16;

    /// Makes pairs of the first halves of two vectors.
    const PAIRS: [u16; 32] = {
        let (mut indices, mut i) = ([0; 32], 0);
        while i < 32 {
            indices[i as usize] = i / 2 + i % 2 * 32;
            i += 1;
        }
        indices
    };
    /// Puts the first of all pairs into one half and the second into the other.
    const HALVES: [u16; 32] = {
        let (mut indices, mut i) = ([0; 32], 0);
        while i < 32 {
            indices[i as usize] = i % 16 * 2 + i / 16;
            i += 1;
        }
        indices
    };

    /// Transposes the whole tiles of channels in `out`; returns how many channels those are.
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
        assert!(rows >= TILE && quantised.len() >= (rows + TILE - 1) * pitch + channels);
        assert!(spectra.start + TILE <= transposition.spectra_per_heap);
        // SAFETY: the table has 64 bytes.
        let pairs = unsafe { _mm512_loadu_si512(PAIRS.as_ptr().cast()) };
        for (tile, out) in out.chunks_exact_mut(unit * TILE).enumerate() {
            let lines = std::array::from_fn(|row| {
                // SAFETY: by the assertion above, TILE channels from here on are there.
                unsafe {
                    let pol0 = quantised.as_ptr().add(row * pitch + tile * TILE);
                    let pol1 = _mm256_loadu_si256(pol0.add(rows * pitch).cast());
                    let pol0 = _mm256_loadu_si256(pol0.cast());
                    let pol1 = _mm512_castsi256_si512(pol1);
                    _mm512_permutex2var_epi16(_mm512_castsi256_si512(pol0), pairs, pol1)
                }
            });
            for (line, out) in square(&lines).into_iter().zip(out.chunks_exact_mut(unit)) {
                store(transposition, line, spectra, out);
            }
        }
        channels
    }

    /// The transpose of 16 x 16 pairs.
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

    /// Writes the values of 16 spectra, pairs of polarisations, to their places in a channel.
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
            // Real part to the high nibble, imaginary part to the low one.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::random::Random;

    #[test]
    fn every_form_puts_every_value_where_the_portable_one_does() {
        let mut random = Random::new(4);
        let (channels, rows, spectra_per_heap) = (37, 16, 48);
        for pols in [1, 2] {
            let pitch = channels + 5;
            let quantised: Vec<u16> =
                (0..pols * rows * pitch).map(|_| random.bits() as u16).collect();
            for (k_major, is_4_bit) in [(false, false), (false, true), (true, false), (true, true)]
            {
                let run = |form, spectra: &Range<usize>| {
                    let transposition = Transposition {
                        pols,
                        pitch,
                        rows,
                        spectra_per_heap,
                        k_major,
                        is_4_bit,
                        form,
                    };
                    // The channels from number 3 on.
                    let mut out = vec![0; (channels - 3) * transposition.channel_bytes()];
                    transposition.run(&quantised, 3, spectra, &mut out);
                    out
                };
                for spectra in [16..32, 5..14] {
                    let expected = run(Form::Portable, &spectra);
                    assert!(expected.iter().any(|byte| *byte != 0));
                    for form in Form::available() {
                        assert_eq!(run(form, &spectra), expected, "{form:?} {k_major} {is_4_bit}");
                    }
                }
            }
        }
    }
}
