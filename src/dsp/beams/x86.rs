//! The arithmetic compiled for x86 CPUs.

use super::{Layout, Scratch, add, quantise};
use crate::dither;
use num_complex::Complex32;

macro_rules! compiled_for {
    ($features:literal, $add:ident, $quantise:ident, $fill:expr) => {
        #[target_feature(enable = $features)]
        pub(super) fn $add(
            layout: &Layout,
            row: &[u8],
            antenna: usize,
            weights: &[Complex32],
            pols: &[usize],
            scratch: &mut Scratch,
        ) {
            add(layout, row, antenna, weights, pols, scratch);
        }

        #[target_feature(enable = $features)]
        pub(super) fn $quantise(
            key: Option<u64>,
            scratch: &Scratch,
            beam: usize,
            output: &mut [[i8; 2]],
        ) -> u64 {
            quantise(key, scratch, beam, output, $fill)
        }
    };
}

compiled_for!("avx2", add_avx2, quantise_avx2, |key, first, values| dither::x86::fill(
    key, first, values
));
compiled_for!("avx512f,avx512bw,avx512dq,avx512vl", add_avx512, quantise_avx512, dither::fill);
