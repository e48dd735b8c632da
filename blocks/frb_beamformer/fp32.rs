//! The plain form in single precision.
#![allow(unsafe_code)] // launches on memory that the caller vouches for

use super::cuda::{defines, refusal};
use super::gains::Gains;
use super::{Stages, sizes::Sizes};
use crate::gpu;
use fxgraph::cuda::{CudaError, Device, DeviceArray, Grid, Kernel, Lane};
use fxgraph::{At, BlockError, Refusal};
use num_complex::Complex32;
use std::sync::Arc;

/// Threads of a block, and beams of a tile; as `kernels/frb_fp32.cu` has them.
const THREADS: usize = 256;
const TILE: usize = 32;
/// Longest transforms, for which shared memory is there without asking.
const MOST_POINTS: usize = 4096;
const MOST_FINE: usize = 128;

/// Kernels and tables.
pub(super) struct Fp32 {
    rows: Kernel,
    rows_grid: Grid,
    /// What comes after the transform of feeds, if anything does.
    times: Option<Times>,
    weights: DeviceArray<Complex32>,
    map: DeviceArray<u32>,
}

struct Times {
    kernel: Kernel,
    grid: Grid,
    /// Beams of a frame, `[spectrum][channel][pol][beam]`.
    beams: DeviceArray<Complex32>,
}

/// Why this form cannot do these stages.
pub(super) fn refusals(stages: &Stages) -> Vec<Refusal> {
    let sizes = stages.sizes;
    let mut refusals = Vec::new();
    let points = stages.points.unwrap_or(1);
    if !points.is_power_of_two() || points > MOST_POINTS {
        let message = format!("`fp32` makes no transform of {points} points");
        let at = At::Parameter("north_south.points");
        refusals.push(refusal(at, message, "powers of two up to 4096"));
    }
    if sizes.feeds > MOST_POINTS {
        let message = format!("`fp32` reads no cylinders of {} feeds", sizes.feeds);
        refusals.push(refusal(At::InputAxis(0, "north_south"), message, "up to 4096"));
    }
    let fine = sizes.fine_channels;
    if !fine.is_power_of_two() || fine > MOST_FINE {
        let message = format!("`fp32` makes no {fine} channels of one");
        refusals.push(refusal(At::Parameter("upchannelise"), message, "powers of two up to 128"));
    }
    refusals
}

/// Factors `[channel][pol][row][cylinder of a row][feed]`: of gains and of the transform across the cylinders.
pub(super) fn weights(stages: &Stages, gains: &Gains) -> Vec<Complex32> {
    let Sizes { channels, pols, cylinders, feeds, rows, .. } = stages.sizes;
    let is_sum = !stages.east_west.is_empty();
    let combined = if is_sum { cylinders } else { 1 };
    let mut weights = Vec::with_capacity(channels * pols * rows * combined * feeds);
    for channel in 0..channels {
        for pol in 0..pols {
            let gains = gains.of(channel, pol);
            for row in 0..rows {
                for n in 0..combined * feeds {
                    let (cylinder, feed) = if is_sum { (n / feeds, n % feeds) } else { (row, n) };
                    let gain = gains.get(cylinder * feeds + feed).unwrap_or(&gains[0]);
                    let factor =
                        stages.east_west.get((channel * rows + row) * cylinders + cylinder);
                    weights.push(factor.map_or(*gain, |factor| factor * gain));
                }
            }
        }
    }
    weights
}

/// Device memory of weights, map and beams in between.
pub(super) fn device_bytes(stages: &Stages) -> usize {
    let sizes = stages.sizes;
    let combined = if stages.east_west.is_empty() { 1 } else { sizes.cylinders };
    let weights = sizes.channels * sizes.pols * sizes.rows * combined * sizes.feeds * 8;
    let between = sizes.spectra * sizes.channels * sizes.pols * sizes.beams() * 8;
    let map = sizes.channels * sizes.row_beams * 4;
    weights + map + if has_times(&sizes) { between } else { 0 }
}

fn has_times(sizes: &Sizes) -> bool {
    sizes.fine_channels > 1 || sizes.integrate.is_some()
}

impl Fp32 {
    pub(super) fn new(
        stages: &Stages,
        gains: &Gains,
        device: &Arc<Device>,
    ) -> Result<Self, CudaError> {
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
        let lines = sizes.spectra * sizes.channels * sizes.pols;
        let times = || {
            let tiles = sizes.beams().div_ceil(TILE);
            Ok::<_, CudaError>(Times {
                kernel: program.kernel("frb_times", 0)?,
                grid: Grid::new([tiles, sizes.channels, sizes.output_spectra()], THREADS),
                beams: DeviceArray::zeros(device, lines * sizes.beams())?,
            })
        };
        Ok(Self {
            rows: program.kernel("frb_rows", 0)?,
            rows_grid: Grid::new([lines, sizes.rows, 1], THREADS),
            times: has_times(&sizes).then(times).transpose()?,
            weights: DeviceArray::from_slice(device, &weights(stages, gains))?,
            map: DeviceArray::from_slice(device, &map)?,
        })
    }

    /// Queues the kernels.
    ///
    /// # Safety
    /// `from` and `to` are a frame of the input and one of the output, `units` the counts of the input's validity; they
    /// stay until the kernels have run.
    pub(super) unsafe fn launch<J>(
        &mut self,
        lane: &Lane<J>,
        from: u64,
        to: u64,
        units: u64,
    ) -> Result<(), BlockError> {
        let between = self.times.as_ref().map_or(to, |times| times.beams.address());
        let arguments = [
            from.into(),
            between.into(),
            self.weights.address().into(),
            self.map.address().into(),
            units.into(),
        ];
        // SAFETY: the kernel's arguments; tables live as long as the block.
        unsafe { self.rows.launch(lane.stream(), self.rows_grid, &arguments) }?;
        if let Some(Times { kernel, grid, .. }) = &mut self.times {
            let arguments = [between.into(), to.into(), units.into()];
            // SAFETY: as above; jobs follow each other on the stream, so the beams are this job's.
            unsafe { kernel.launch(lane.stream(), *grid, &arguments) }?;
        }
        Ok(())
    }
}
