//! Inner loop: sums of products of a few rows with a few columns, over a block of spectra.
//!
//! Inputs (antenna x 2 + polarisation) are packed in panels of `LANES` inputs. One step of a
//! panel is a 32-bit word per input: two spectra of 8-bit numbers, or one of 16-bit numbers.
//! Row inputs are broadcast, column inputs fill the elements of a vector register; each word pair
//! needs one multiply-accumulate for the real part and one for the imaginary part.
//!
//! | format | `row` word | `column_re` | `column_im` |
//! |---|---|---|---|
//! | words | `(re, im)` i16 | `(re, im)` i16 | `(-im, re)` i16 |
//! | bytes | `(re, im)` i8 x 2 | `(re + 128, im + 128)` u8 x 2 | `(127 - im, re + 128)` u8 x 2 |
//!
//! The byte format is for the instruction that multiplies unsigned by signed bytes. The correction for the
//! offsets depends only on the row and is subtracted when the sums are read; sums wrap, so
//! they may temporarily exceed the range. `127 - im` is exact for -128, too.

/// Numbers of column inputs and row inputs of a tile, and the format of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Inputs of a panel, and columns of a tile.
    pub lanes: usize,
    /// Rows of a tile.
    pub rows: usize,
    /// Whether words are two spectra of bytes; otherwise one spectrum of 16-bit numbers.
    pub bytes: bool,
}

impl Geometry {
    /// Returns the number of 32-bit sums of one tile: `[row][re, im][lane]`.
    #[must_use]
    pub const fn tile_len(self) -> usize {
        self.rows * 2 * self.lanes
    }
}

/// Implementation of the inner loop. Only those in [`available`](Kernel::available) may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Any CPU.
    Portable,
    /// 256-bit vectors of 16-bit numbers.
    Avx2,
    /// 256-bit vectors of bytes.
    Vnni256,
    /// 512-bit vectors of bytes.
    Vnni512,
}

impl Kernel {
    /// Returns the implementations that this CPU supports, the simplest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut kernels = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                kernels.push(Self::Avx2);
            }
            if super::x86::has_vnni() {
                kernels.extend([Self::Vnni256, Self::Vnni512]);
            }
        }
        kernels
    }

    /// Returns the fastest implementation for `inputs` inputs on this CPU.
    #[must_use]
    pub fn best(inputs: usize) -> Self {
        let kernels = Self::available();
        // Vector elements without an input are wasted work.
        if inputs <= 8 && kernels.contains(&Self::Vnni256) {
            return Self::Vnni256;
        }
        kernels.last().copied().unwrap_or(Self::Portable)
    }

    /// Returns the sizes of its tiles.
    #[must_use]
    pub const fn geometry(self) -> Geometry {
        match self {
            Self::Portable | Self::Avx2 => Geometry { lanes: 8, rows: 4, bytes: false },
            Self::Vnni256 => Geometry { lanes: 8, rows: 8, bytes: true },
            Self::Vnni512 => Geometry { lanes: 16, rows: 8, bytes: true },
        }
    }

    /// Adds the products of one tile to `sums` `[row][re, im][lane]`. `row` `[step][lanes]`
    /// starts at the tile's first row, and `rows` of each step's words are used;
    /// `column_re` and `column_im` are whole panels `[step][lanes]`.
    ///
    /// # Panics
    /// If the slices are too short for the number of steps of the columns.
    #[inline]
    pub fn tile(self, row: &[u32], column_re: &[u32], column_im: &[u32], sums: &mut [i32]) {
        let Geometry { lanes, rows, .. } = self.geometry();
        let words = column_re.len();
        assert!(words.is_multiple_of(lanes) && column_im.len() == words);
        assert!(words == 0 || row.len() >= words - lanes + rows);
        assert_eq!(sums.len(), self.geometry().tile_len());
        #[cfg(target_arch = "x86_64")]
        super::x86::tile(self, row, column_re, column_im, sums);
        #[cfg(not(target_arch = "x86_64"))]
        portable(row, column_re, column_im, sums);
    }
}

/// Returns the two 16-bit numbers of a word.
#[inline]
fn pair(word: u32) -> [i32; 2] {
    [i32::from(word as i16), i32::from((word >> 16) as i16)]
}

/// [`Kernel::Portable`], written so that compilers vectorise it.
pub(super) fn portable(row: &[u32], column_re: &[u32], column_im: &[u32], sums: &mut [i32]) {
    const LANES: usize = 8;
    const ROWS: usize = 4;
    let columns = column_re.chunks_exact(LANES).zip(column_im.chunks_exact(LANES));
    for r in 0..ROWS {
        let mut re = [0i32; LANES];
        let mut im = [0i32; LANES];
        for (step, (column_re, column_im)) in columns.clone().enumerate() {
            let [x, y] = pair(row[step * LANES + r]);
            for lane in 0..LANES {
                let [u, v] = pair(column_re[lane]);
                re[lane] += x * u + y * v;
                let [u, v] = pair(column_im[lane]);
                im[lane] += x * u + y * v;
            }
        }
        let sums = &mut sums[r * 2 * LANES..][..2 * LANES];
        for (sum, add) in sums.iter_mut().zip(re.iter().chain(&im)) {
            *sum = sum.wrapping_add(*add);
        }
    }
}
