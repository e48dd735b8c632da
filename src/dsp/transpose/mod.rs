//! Transposition from rows of quantised channels to the order of the output.

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::simd::InstructionSet;
use std::ops::Range;

/// Layout of the output.
#[derive(Clone, Copy, Debug)]
pub struct Transposition {
    /// Number of polarisations.
    pub pols: usize,
    /// Distance of the rows of the quantised spectra. Not a power of two, otherwise all rows would
    /// share a few sets of the cache.
    pub pitch: usize,
    /// Rows of a polarisation in the quantised spectra.
    pub rows: usize,
    /// Spectra in a heap.
    pub spectra_per_heap: usize,
    /// Whether polarisation is slower than spectrum.
    pub k_major: bool,
    /// Whether values are written with 4 bits per part; otherwise 8.
    pub is_4_bit: bool,
    /// Instruction set.
    pub instructions: InstructionSet,
}

impl Transposition {
    /// Returns the size of one channel of a heap in bytes.
    #[inline]
    #[must_use]
    pub fn channel_bytes(&self) -> usize {
        self.spectra_per_heap * self.pols * if self.is_4_bit { 1 } else { 2 }
    }

    /// Copies rows of `quantised` \[pol\]\[row\]\[channel\], from the first one on, to these `spectra` of a heap in
    /// `out`, which contains the channels from number `first` on: \[channel\]\[spectrum\]\[pol\], K-major
    /// \[channel\]\[pol\]\[spectrum\]. A value has two bytes, real part first, or one byte with the real part in the
    /// high nibble.
    ///
    /// # Panics
    /// If `quantised` lacks rows or channels, or `spectra` exceed the heap.
    #[allow(unsafe_code, reason = "calls an implementation that the CPU supports")]
    pub fn run(&self, quantised: &[u16], first: usize, spectra: &Range<usize>, out: &mut [u8]) {
        let mut done = 0;
        #[cfg(target_arch = "x86_64")]
        if self.instructions == InstructionSet::Avx512
            && self.pols == 2
            && spectra.len() == x86::TILE
        {
            // SAFETY: an implementation is chosen only if the CPU supports it.
            done = unsafe { x86::transpose(self, &quantised[first..], spectra, out) };
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

/// Packs the real part in the high nibble, the imaginary part in the low one.
fn nibbles(z: u16) -> u8 {
    ((z & 0x0f) << 4 | (z >> 8 & 0x0f)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn every_implementation_transposes_like_the_portable_one() {
        let mut random = Random::new(4);
        let (rows, spectra_per_heap) = (16, 48);
        let channels = if cfg!(miri) { 5 } else { 37 };
        for pols in [1, 2] {
            let pitch = channels + 5;
            let quantised: Vec<u16> =
                (0..pols * rows * pitch).map(|_| random.bits() as u16).collect();
            for (k_major, is_4_bit) in [(false, false), (false, true), (true, false), (true, true)]
            {
                let run = |instructions, spectra: &Range<usize>| {
                    let transposition = Transposition {
                        pols,
                        pitch,
                        rows,
                        spectra_per_heap,
                        k_major,
                        is_4_bit,
                        instructions,
                    };
                    // The channels from number 3 on.
                    let mut out = vec![0; (channels - 3) * transposition.channel_bytes()];
                    transposition.run(&quantised, 3, spectra, &mut out);
                    out
                };
                for spectra in [16..32, 5..14] {
                    let expected = run(InstructionSet::Portable, &spectra);
                    assert!(expected.iter().any(|byte| *byte != 0));
                    for instructions in InstructionSet::available() {
                        assert_eq!(
                            run(instructions, &spectra),
                            expected,
                            "{instructions:?} {k_major} {is_4_bit}"
                        );
                    }
                }
            }
        }
    }
}
