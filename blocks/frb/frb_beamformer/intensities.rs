//! Intensities on tensor cores.
#![allow(unsafe_code)] // launches on memory that the caller guarantees

use super::Stages;
use super::method::{Job, Method};
use super::phases::{self, FEEDS, POINTS};
use super::tables::{Tables, program};
use super::weights::{Stretch, combined};
use crate::common::versions::PLACES;
use bytemuck::{Pod, Zeroable};
use fxgraph::cuda::{Arg, CudaError, Device, DeviceArray, Frames, Grid, Kernel, Pipeline};
use fxgraph::{BlockError, Dtype};
use std::sync::Arc;

/// Warps per block.
const WARPS: usize = 16;
/// Spectra per batch of the kernel, and distance in words between the feeds of adjacent spectra.
const BATCH: usize = 16;
const PITCH: usize = FEEDS + 16;

/// Shared memory per thread block in bytes.
pub(super) fn shared_bytes(stages: &Stages) -> usize {
    let (sizes, combined) = (stages.sizes, combined(stages));
    let words = sizes.fine_channels * sizes.row_beams + WARPS * POINTS + 2 * BATCH * PITCH;
    // Staging buffer of the input rows, if they are short enough.
    let is_staged = sizes.dtype == Dtype::Ci4 && combined <= 4;
    4 * words + if is_staged { 2 * BATCH * combined * FEEDS } else { 0 }
}

/// Weights that apply from a spectrum of the frame on; the same structure as in `kernels/frb/frb_intensities.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct WeightsFrom {
    address: u64,
    first: u32,
    /// Factor to the common scale of all versions.
    factor: f32,
}

/// Versions of the weights in an argument, as in the kernel: the most that a sum may have, plus one that is never
/// reached.
const VERSIONS: usize = 10;
const _: () = assert!(PLACES < VERSIONS);
type Changing = [WeightsFrom; VERSIONS];

/// The kernels.
pub(super) struct IntensityKernels {
    kernel: Kernel,
    /// Kernel for sums in which the weights change.
    changing: Kernel,
    time_phases: DeviceArray<u32>,
    channels: usize,
    rows: usize,
    /// Input spectra per sum.
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

    /// Queues the kernels: one launch for all adjacent sums with the same weights, and one for each sum in which the
    /// weights change.
    ///
    /// # Safety
    /// The memory of `job` and `tables` must stay valid until the kernels have run.
    pub(super) unsafe fn launch(
        &mut self,
        pipeline: &Pipeline<Frames>,
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
            // SAFETY: the arguments match the kernel; the caller guarantees the memory.
            unsafe { kernel.launch(pipeline.stream(), grid, &arguments) }?;
            first += sums * self.spectra_per_sum;
        }
        Ok(())
    }
}

/// Versions of the weights of a sum, on the scale with the largest divisor, and this divisor.
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
    fn weights_of_a_sum_have_common_scale_and_unreached_terminator() {
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
