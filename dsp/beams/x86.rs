//! The arithmetic compiled for x86 CPUs.

use super::{Layout, Scratch, add, quantise};
use num_complex::Complex32;

macro_rules! compiled_for {
    ($features:literal, $add:ident, $quantise:ident) => {
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
            quantise(key, scratch, beam, output)
        }
    };
}

compiled_for!("avx2", add_avx2, quantise_avx2);
compiled_for!("avx512f,avx512bw,avx512dq,avx512vl", add_avx512, quantise_avx512);
