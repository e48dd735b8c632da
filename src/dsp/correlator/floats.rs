//! Inner loop for floats: sums of exact products in double precision, each in the order of the
//! spectra.

use super::Geometry;
use crate::simd::InstructionSet;

/// Columns of a tile: the inputs of a panel.
pub const LANES: usize = 8;
/// Rows of a tile; their sums fill the vector registers.
pub const ROWS: usize = 2;
/// Sizes of a tile.
pub const GEOMETRY: Geometry = Geometry { lanes: LANES, rows: ROWS, bytes: false };

/// One spectrum of the inputs of a panel: real parts, then imaginary parts.
pub type Step = [[f64; LANES]; 2];

/// Adds the products of [`ROWS`] rows from `first` on with all columns, spectrum after spectrum, to
/// `sums` `[row][re, im][lane]`. `rows` and `columns` are `[spectrum]` of a panel each. The result is
/// identical for every `instructions` if the products are exact in double precision.
///
/// # Panics
/// If the length of `sums` is not that of a tile, or `first` and the rows exceed the panel.
#[allow(unsafe_code, reason = "calls an implementation that the CPU supports")]
pub fn add_products(
    instructions: InstructionSet,
    rows: &[Step],
    first: usize,
    columns: &[Step],
    sums: &mut [f64],
) {
    match instructions {
        InstructionSet::Portable => add::<false>(rows, first, columns, sums),
        // SAFETY: an implementation is chosen only if the CPU supports it; both include AVX2 and FMA.
        #[cfg(target_arch = "x86_64")]
        _ => unsafe { x86::add_products(rows, first, columns, sums) },
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Step, add};

    /// Implementation of [`add_products`](super::add_products).
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn add_products(rows: &[Step], first: usize, columns: &[Step], sums: &mut [f64]) {
        add::<true>(rows, first, columns, sums);
    }
}

/// Adds the products of `ROWS` rows from `first` on with all columns, spectrum after spectrum, to
/// `sums` `[row][re, im][lane]`. Because the products are exact, the result does not depend on whether they
/// are `FUSED` with the additions.
#[inline(always)]
fn add<const FUSED: bool>(rows: &[Step], first: usize, columns: &[Step], sums: &mut [f64]) {
    let add_to = |sum: &mut f64, a: f64, b: f64| {
        *sum = if FUSED { a.mul_add(b, *sum) } else { *sum + a * b };
    };
    let sums: &mut [Step; ROWS] = bytemuck::cast_slice_mut(sums).try_into().expect("a tile's sums");
    let mut tile = *sums;
    for ([row_re, row_im], [column_re, column_im]) in rows.iter().zip(columns) {
        for (r, [re, im]) in tile.iter_mut().enumerate() {
            let (x, y) = (row_re[first + r], row_im[first + r]);
            for lane in 0..LANES {
                add_to(&mut re[lane], x, column_re[lane]);
                add_to(&mut re[lane], y, column_im[lane]);
                add_to(&mut im[lane], y, column_re[lane]);
                add_to(&mut im[lane], -x, column_im[lane]);
            }
        }
    }
    *sums = tile;
}
