//! From rows of quantised channels to the order of the output.

/// Where a run of spectra goes within a heap.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// First spectrum, within the heap.
    pub first: usize,
    /// Number of spectra.
    pub count: usize,
}

/// How the output is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    pub pols: usize,
    /// Rows of the quantised spectra are this far apart. Not a power of two, or all rows would
    /// share a few sets of the cache.
    pub pitch: usize,
    /// Rows of a polarisation in the quantised spectra.
    pub rows: usize,
    pub spectra_per_heap: usize,
    pub k_major: bool,
    pub is_4_bit: bool,
}

impl Geometry {
    /// Bytes of one channel of a heap.
    pub fn channel_bytes(&self) -> usize {
        self.spectra_per_heap * self.pols * if self.is_4_bit { 1 } else { 2 }
    }

    /// Copies a run of `quantised` \[pol\]\[row\]\[channel\] into `out`, the channels of a heap
    /// from number `first` on.
    pub fn transpose(&self, quantised: &[u16], first: usize, run: Run, out: &mut [u8]) {
        for (i, out) in out.chunks_exact_mut(self.channel_bytes()).enumerate() {
            let column = &quantised[first + i..];
            match (self.k_major, self.is_4_bit, self.pols) {
                (false, false, 2) => self.pairs(column, run, out),
                (_, false, _) => {
                    let out: &mut [[u8; 2]] = bytemuck::cast_slice_mut(out);
                    self.values(column, run, out, u16::to_le_bytes);
                }
                (_, true, _) => self.values(column, run, out, nibbles),
            }
        }
    }

    /// The usual layout: both polarisations of a spectrum are adjacent.
    fn pairs(&self, column: &[u16], run: Run, out: &mut [u8]) {
        let out: &mut [[u8; 4]] = bytemuck::cast_slice_mut(out);
        let (pol0, pol1) = column.split_at(self.rows * self.pitch);
        let out = &mut out[run.first..run.first + run.count];
        for (row, out) in out.iter_mut().enumerate() {
            let both = u32::from(pol0[row * self.pitch]) | u32::from(pol1[row * self.pitch]) << 16;
            *out = both.to_le_bytes();
        }
    }

    fn values<T>(&self, column: &[u16], run: Run, out: &mut [T], value: impl Fn(u16) -> T) {
        let (per_pol, per_spectrum) =
            if self.k_major { (self.spectra_per_heap, 1) } else { (1, self.pols) };
        for pol in 0..self.pols {
            for row in 0..run.count {
                let z = column[(pol * self.rows + row) * self.pitch];
                out[pol * per_pol + (run.first + row) * per_spectrum] = value(z);
            }
        }
    }
}

/// Real part in the high nibble, imaginary part in the low one.
fn nibbles(z: u16) -> u8 {
    ((z & 0x0f) << 4 | (z >> 8 & 0x0f)) as u8
}
