//! The filter with the registers of x86 CPUs.
#![allow(unsafe_code, reason = "loads and stores of whole registers, within slices")]

use super::{Fir, LANES, ROWS, Scratch, Task};
use std::arch::x86_64::{
    __m256, __m512, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_setzero_ps, _mm512_storeu_ps,
};

impl Fir {
    /// [`run`](Fir::run) with AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn run_avx2<T: Copy + Into<f32>>(
        &self,
        samples: &[T],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) {
        // SAFETY: `run_with` makes tasks whose slices are long enough.
        self.run_with(samples, out, scratch, |mut task| unsafe { avx2(&mut task) });
    }

    /// [`run`](Fir::run) with AVX-512.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn run_avx512<T: Copy + Into<f32>>(
        &self,
        samples: &[T],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) {
        // SAFETY: the CPU has the features of this method; `run_with` makes tasks with slices of the right lengths.
        self.run_with(samples, out, scratch, |mut task| unsafe { avx512(&mut task) });
    }
}

/// Defines the implementation for one type of vectors. A block of `$block` weights stays in registers, and
/// each vector of x, loaded once for the block, serves all rows that need it. Each sum is
/// computed in the order of the taps, for any number of rows.
macro_rules! implementation {
    ($implementation:ident, $rows:ident, $taps:ident, $features:literal, $block:literal, $vector:ty,
     $zero:ident, $load:ident, $store:ident, $fmadd:ident) => {
        /// # Safety
        /// The slices of `task` have the lengths given in `task`.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn $implementation(task: &mut Task) {
            const WIDTH: usize = size_of::<$vector>() / size_of::<f32>();
            for column in (0..LANES).step_by(WIDTH) {
                // SAFETY: of the caller.
                unsafe {
                    if task.rows == ROWS {
                        $rows::<ROWS>(task, column);
                    } else {
                        $rows::<1>(task, column);
                    }
                }
            }
        }

        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn $rows<const R: usize>(task: &mut Task, column: usize) {
            let taps = task.weights.len() / LANES;
            let mut sums = [$zero(); R];
            let mut tap = 0;
            // SAFETY: of the caller; each block ends within the taps.
            unsafe {
                while tap + $block <= taps {
                    $taps::<R, $block>(task, column, tap, &mut sums);
                    tap += $block;
                }
                while tap < taps {
                    $taps::<R, 1>(task, column, tap, &mut sums);
                    tap += 1;
                }
                let out = task.out.as_mut_ptr();
                for (row, sum) in sums.into_iter().enumerate() {
                    $store(out.add(row * task.out_pitch + column), sum);
                }
            }
        }

        #[inline(always)]
        unsafe fn $taps<const R: usize, const T: usize>(
            task: &Task,
            column: usize,
            tap: usize,
            sums: &mut [$vector; R],
        ) {
            // SAFETY: of the caller.
            unsafe {
                let weights = task.weights.as_ptr().add(tap * LANES + column);
                let weights: [$vector; T] = std::array::from_fn(|t| $load(weights.add(t * LANES)));
                let x = task.x.as_ptr().add(tap * task.x_pitch + column);
                for row in 0..R + T - 1 {
                    let x = $load(x.add(row * task.x_pitch));
                    for t in 0..T {
                        if (t..t + R).contains(&row) {
                            sums[row - t] = $fmadd(weights[t], x, sums[row - t]);
                        }
                    }
                }
            }
        }
    };
}
implementation!(
    avx2,
    avx2_rows,
    avx2_taps,
    "avx2,fma",
    4,
    __m256,
    _mm256_setzero_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_fmadd_ps
);
implementation!(
    avx512,
    avx512_rows,
    avx512_taps,
    "avx512f",
    4,
    __m512,
    _mm512_setzero_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_fmadd_ps
);
