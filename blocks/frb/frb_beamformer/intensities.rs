//! Intensities on matrix units.
#![allow(unsafe_code)] // launches on memory that the caller vouches for

use super::Stages;
use super::cuda::{Job, Method};
use super::matrix::{Tables, program};
use super::phases::{self, FEEDS, POINTS};
use super::weights::{Stretch, combined};
use crate::common::versions::PLACES;
use bytemuck::{Pod, Zeroable};
use fxgraph::cuda::{Arg, CudaError, Device, DeviceArray, Frames, Grid, Kernel, Lane};
use fxgraph::{BlockError, Dtype};
use std::sync::Arc;

/// Warps of a block.
const WARPS: usize = 16;
/// Spectra of a batch of the kernel, and words from the feeds of one to those of the next.
const BATCH: usize = 16;
const PITCH: usize = FEEDS + 16;

/// Shared memory of a block.
pub(super) fn shared_bytes(stages: &Stages) -> usize {
    let (sizes, combined) = (stages.sizes, combined(stages));
    let words = sizes.fine_channels * sizes.row_beams + WARPS * POINTS + 2 * BATCH * PITCH;
    // Rows on their way in, which have room there if they are short.
    let is_staged = sizes.dtype == Dtype::Ci4 && combined <= 4;
    4 * words + if is_staged { 2 * BATCH * combined * FEEDS } else { 0 }
}

/// Weights that hold from a spectrum of the frame on; as `kernels/frb/frb_intensities.cuh` has it.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct WeightsFrom {
    address: u64,
    first: u32,
    /// What brings them to the scale of the others.
    factor: f32,
}

/// Versions of the weights in an argument, as the kernel has them: all that a sum may have, and one behind them that is
/// never reached.
const VERSIONS: usize = 10;
const _: () = assert!(PLACES < VERSIONS);
type Changing = [WeightsFrom; VERSIONS];

/// The kernels.
pub(super) struct IntensityKernels {
    kernel: Kernel,
    /// For sums in which the weights change.
    changing: Kernel,
    time_phases: DeviceArray<u32>,
    channels: usize,
    rows: usize,
    /// Spectra of the input.
    spectra_per_sum: usize,
    spectra: usize,
}

impl IntensityKernels {
    pub(super) fn new(
        stages: &Stages,
        method: Method,
        device: &Arc<Device>,
    ) -> Result<Self, CudaError> {
        let (sizes, shared) = (stages.sizes, shared_bytes(stages));
        let program = program(stages, method, true, [WARPS, 1], device)?;
        let time_phases = phases::of_spectra(sizes.fine_channels);
        Ok(Self {
            kernel: program.kernel("frb_intensities", shared)?,
            changing: program.kernel("frb_changing_intensities", shared)?,
            time_phases: DeviceArray::from_slice(device, &time_phases)?,
            channels: sizes.channels,
            rows: sizes.rows,
            spectra_per_sum: sizes.fine_channels * sizes.spectra_per_sum(),
            spectra: sizes.spectra,
        })
    }

    /// Queues them: once for all sums that have the same weights, and for each one in which they change.
    ///
    /// # Safety
    /// What `job` and `tables` point to stays until the kernels have run.
    pub(super) unsafe fn launch(
        &mut self,
        lane: &Lane<Frames>,
        job: &Job<'_>,
        tables: &Tables,
    ) -> Result<(), BlockError> {
        let mut first = 0;
        while let Some(stretch) = job.stretches(first..self.spectra).next() {
            let whole = stretch.count / self.spectra_per_sum;
            let of_sum = first..first + self.spectra_per_sum;
            let (changing, most) = changing(job.stretches(of_sum));
            let (kernel, weights, divided) = if whole > 0 {
                (&mut self.kernel, Arg::from(stretch.address), stretch.scaling.divided)
            } else {
                (&mut self.changing, Arg::Bytes(bytemuck::bytes_of(&changing)), most)
            };
            let own = [
                self.time_phases.address().into(),
                (divided.powi(2) as f32).into(),
                ((first / self.spectra_per_sum) as u32).into(),
            ];
            let arguments = tables.arguments(job, weights, own);
            let sums = whole.max(1);
            let grid = Grid::new([self.channels, self.rows, sums], 32 * WARPS);
            // SAFETY: the kernel's arguments, by the caller's promise.
            unsafe { kernel.launch(lane.stream(), grid, &arguments) }?;
            first += sums * self.spectra_per_sum;
        }
        Ok(())
    }
}

/// The weights of a sum, on the scale of those that are divided most, and by what these are.
fn changing(stretches: impl Iterator<Item = Stretch> + Clone) -> (Changing, f64) {
    let divided = stretches.clone().map(|stretch| stretch.scaling.divided).fold(0.0, f64::max);
    let nowhere = WeightsFrom { address: 0, first: u32::MAX, factor: 0.0 };
    let mut changing = [nowhere; VERSIONS];
    for (to, Stretch { first, address, scaling, .. }) in
        changing[..VERSIONS - 1].iter_mut().zip(stretches)
    {
        let factor = (scaling.divided / divided) as f32;
        *to = WeightsFrom { address, first: first as u32, factor };
    }
    (changing, divided)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frb::frb_beamformer::weights::Scaling;

    #[test]
    fn weights_of_a_sum_come_to_one_scale_and_end_with_such_that_are_never_reached() {
        let stretch = |first: usize, address: u64, divided: f64| {
            let scaling = Scaling { divided, all_one: false };
            Stretch { first, count: 100, address, scaling }
        };
        let stretches = [stretch(384, 7, 0.5), stretch(484, 8, 4.0), stretch(584, 9, 1.0)];
        let (changing, divided) = changing(stretches.into_iter());
        assert!((divided - 4.0).abs() < 1e-12);
        let from = |address, first, factor| WeightsFrom { address, first, factor };
        assert_eq!(changing[..3], [from(7, 384, 0.125), from(8, 484, 1.0), from(9, 584, 0.25)]);
        assert!(changing[3..].iter().all(|version| version.first == u32::MAX));
    }
}
