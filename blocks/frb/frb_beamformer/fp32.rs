//! The implementation `fp32`: direct computation in single precision.
#![allow(unsafe_code)] // launches on memory that the caller guarantees

use super::Stages;
use super::gains::Gains;
use super::method::{Job, MethodKernels, defines, rejection};
use super::sizes::Sizes;
use super::weights::{Scaling, Stretch, weights};
use crate::common::gpu;
use fxgraph::cuda::{CudaError, Device, DeviceArray, Frames, Grid, Kernel, Pipeline};
use fxgraph::{At, BlockError, Rejection};
use num_complex::{Complex32, Complex64};
use std::f64::consts::TAU;
use std::sync::Arc;

/// Threads per block, equal to the constant in `kernels/frb/frb_fp32.cu`.
const THREADS: usize = 256;
/// Largest transforms, which fit in the default shared memory.
const MOST_POINTS: usize = 4096;
const MOST_FINE: usize = 128;

/// Largest number of thread blocks in y and z.
const MOST_BLOCKS: usize = 65_535;

/// Number of words per weight: real and imaginary part.
pub(super) const WEIGHT_WORDS: usize = 2;

/// Kernels and tables.
pub(super) struct Fp32 {
    rows: Kernel,
    /// Lines `[channel][pol]` per spectrum.
    lines: usize,
    /// Thread blocks that share the rows of a line.
    row_groups: usize,
    spectra: usize,
    /// Stages after the transform of feeds, if any.
    times: Option<Times>,
    map: DeviceArray<u32>,
    roots: DeviceArray<Complex32>,
}

struct Times {
    kernel: Kernel,
    grid: Grid,
    /// Beams of a frame, `[spectrum][channel][pol][beam]`.
    beams: DeviceArray<Complex32>,
    roots: DeviceArray<Complex32>,
}

/// Beams per thread block, as in the kernels.
const fn tile(fine: usize) -> usize {
    if fine > 64 { 16 } else { 32 }
}

fn rows_together(sizes: &Sizes, points: Option<usize>) -> usize {
    (2048 / points.unwrap_or(sizes.feeds)).clamp(1, sizes.rows)
}

/// exp(-2 pi i n / len), n = 0 .. len - 1.
fn roots(len: usize) -> Vec<Complex32> {
    let root = |n: usize| Complex64::cis(-TAU * n as f64 / len as f64);
    let rounded = |root: Complex64| Complex32::new(root.re as f32, root.im as f32);
    (0..len).map(|n| rounded(root(n))).collect()
}

/// Diagnostics for stages that `fp32` does not support.
pub(super) fn rejections(stages: &Stages) -> Vec<Rejection> {
    let sizes = stages.sizes;
    let mut rejections = Vec::new();
    let points = stages.points.unwrap_or(1);
    if !points.is_power_of_two() || points > MOST_POINTS {
        let message =
            format!("`fp32` needs a power of two up to {MOST_POINTS} as points, got {points}");
        let at = At::Parameter("north_south.points");
        rejections.push(rejection(at, message, "use a power of two, for example 512"));
    }
    if sizes.feeds > MOST_POINTS {
        let message =
            format!("`fp32` supports up to {MOST_POINTS} feeds per cylinder, got {}", sizes.feeds);
        let help = "use `implementation: cpu`";
        rejections.push(rejection(At::InputAxis(0, "north_south"), message, help));
    }
    let fine = sizes.fine_channels;
    if !fine.is_power_of_two() || fine > MOST_FINE {
        let message =
            format!("`fp32` needs a power of two up to {MOST_FINE} as `upchannelise`, got {fine}");
        let help = "use a power of two, for example 128";
        rejections.push(rejection(At::Parameter("upchannelise"), message, help));
    }
    if has_times(&sizes) && sizes.channels.max(sizes.output_spectra()) > MOST_BLOCKS {
        let message = format!(
            "`fp32` supports up to {MOST_BLOCKS} output spectra and channels of a frame, got {} and {}",
            sizes.output_spectra(),
            sizes.channels
        );
        let at = At::InputAxis(0, "spectrum");
        rejections.push(rejection(at, message, "use shorter frames, or fewer channels"));
    }
    rejections
}

/// Device memory of map, roots and intermediate beams, in bytes.
pub(super) fn device_bytes(stages: &Stages) -> usize {
    let sizes = stages.sizes;
    let between = sizes.spectra * sizes.channels * sizes.pols * sizes.beams() * 8;
    let map = sizes.channels * sizes.row_beams * 4;
    let roots = 8 * (stages.points.unwrap_or(1) + sizes.fine_channels);
    map + roots + if has_times(&sizes) { between } else { 0 }
}

fn has_times(sizes: &Sizes) -> bool {
    sizes.fine_channels > 1 || sizes.integrate.is_some()
}

impl Fp32 {
    pub(super) fn new(stages: &Stages, device: &Arc<Device>) -> Result<Self, CudaError> {
        let sizes = stages.sizes;
        let sums = sizes.integrate.map_or([0; 2], |sums| [sums.channels, sums.spectra]);
        let more = gpu::numbers([
            ("FEEDS", sizes.feeds),
            ("POINTS", stages.points.unwrap_or(0)),
            ("SUM_CHANNELS", sums[0]),
            ("SUM_SPECTRA", sums[1]),
        ]);
        let program = gpu::program(device, "frb_fp32.cu", [defines(stages), more].concat())?;
        let all = 0..sizes.row_beams as u32;
        let map = if stages.index_map.is_empty() {
            (0..sizes.channels).flat_map(|_| all.clone()).collect()
        } else {
            stages.index_map.clone()
        };
        let lines = sizes.channels * sizes.pols;
        let times = || {
            let tiles = sizes.beams().div_ceil(tile(sizes.fine_channels));
            Ok::<_, CudaError>(Times {
                kernel: program.kernel("frb_times", 0)?,
                grid: Grid::new([tiles, sizes.channels, sizes.output_spectra()], THREADS),
                beams: DeviceArray::zeros(device, sizes.spectra * lines * sizes.beams())?,
                roots: DeviceArray::from_slice(device, &roots(sizes.fine_channels))?,
            })
        };
        Ok(Self {
            rows: program.kernel("frb_rows", 0)?,
            lines,
            row_groups: sizes.rows.div_ceil(rows_together(&sizes, stages.points)),
            spectra: sizes.spectra,
            times: has_times(&sizes).then(times).transpose()?,
            map: DeviceArray::from_slice(device, &map)?,
            roots: DeviceArray::from_slice(device, &roots(stages.points.unwrap_or(1)))?,
        })
    }
}

impl MethodKernels for Fp32 {
    fn write(&self, stages: &Stages, gains: &Gains, words: &mut [u32]) -> Scaling {
        let parts: &mut [Complex32] = bytemuck::cast_slice_mut(words);
        parts.iter_mut().zip(weights(stages, gains)).for_each(|(to, weight)| *to = weight);
        Scaling { divided: 1.0, all_one: false }
    }

    unsafe fn launch(
        &mut self,
        pipeline: &Pipeline<Frames>,
        job: &Job<'_>,
    ) -> Result<(), BlockError> {
        let between = self.times.as_ref().map_or(job.to, |times| times.beams.address());
        // One launch for all adjacent spectra with the same weights.
        for Stretch { first, count, address, .. } in job.stretches(0..self.spectra) {
            let arguments = [
                job.from.into(),
                between.into(),
                address.into(),
                self.map.address().into(),
                self.roots.address().into(),
                job.units.into(),
                ((first * self.lines) as u32).into(),
            ];
            let grid = Grid::new([count * self.lines, self.row_groups, 1], THREADS);
            // SAFETY: the arguments match the kernel; tables live as long as the block.
            unsafe { self.rows.launch(pipeline.stream(), grid, &arguments) }?;
        }
        if let Some(Times { kernel, grid, roots, .. }) = &mut self.times {
            let arguments =
                [between.into(), job.to.into(), roots.address().into(), job.units.into()];
            // SAFETY: the arguments match the kernel. Tables live as long as the block, and jobs are in order on the
            // stream, so the beams belong to this job.
            unsafe { kernel.launch(pipeline.stream(), *grid, &arguments) }?;
        }
        Ok(())
    }
}
