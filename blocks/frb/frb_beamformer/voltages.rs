//! Voltages of beams on tensor cores.
#![allow(unsafe_code)] // launches on memory that the caller guarantees

use super::Stages;
use super::method::{Job, Method};
use super::tables::{Tables, program};
use super::weights::Stretch;
use fxgraph::BlockError;
use fxgraph::cuda::{CudaError, Device, Frames, Grid, Kernel, Pipeline};
use std::sync::Arc;

/// Warps per block.
const WARPS: usize = 4;
/// Transforms per warp for each load of weights or map.
const PER_WARP: usize = 16;

/// The kernels.
pub(super) struct VoltageKernels {
    /// Kernel for weights that are all 1, if the block started with such weights.
    plain: Option<Transforms>,
    weighted: Transforms,
    /// Thread blocks for the transforms of one spectrum.
    blocks: usize,
    spectra: usize,
}

struct Transforms {
    kernel: Kernel,
    per_warp: usize,
}

impl VoltageKernels {
    pub(super) fn new(
        stages: &Stages,
        all_one: bool,
        method: Method,
        device: &Arc<Device>,
    ) -> Result<Self, CudaError> {
        let sizes = stages.sizes;
        let transforms = |is_weighted: bool| {
            // With neither weights nor map, the order of memory accesses matters more than repeated loads.
            let is_long = is_weighted || !stages.index_map.is_empty();
            let per_warp = if is_long { PER_WARP } else { 1 };
            let program = program(stages, method, is_weighted, [WARPS, per_warp], device)?;
            Ok::<_, CudaError>(Transforms { kernel: program.kernel("frb_voltages", 0)?, per_warp })
        };
        Ok(Self {
            plain: all_one.then(|| transforms(false)).transpose()?,
            weighted: transforms(true)?,
            blocks: (sizes.channels * sizes.pols * sizes.rows).div_ceil(WARPS),
            spectra: sizes.spectra,
        })
    }

    /// Queues the kernels, with one launch for all adjacent spectra with the same weights.
    ///
    /// # Safety
    /// The memory of `job` and `tables` must stay valid until the kernels have run.
    pub(super) unsafe fn launch(
        &mut self,
        pipeline: &Pipeline<Frames>,
        job: &Job<'_>,
        tables: &Tables,
    ) -> Result<(), BlockError> {
        for Stretch { first, count, address, scaling } in job.stretches(0..self.spectra) {
            let (transforms, divided) = match &mut self.plain {
                Some(plain) if scaling.all_one => (plain, 1.0),
                _ => (&mut self.weighted, scaling.divided),
            };
            let end = first + count;
            let own = [(divided as f32).into(), (first as u32).into(), (end as u32).into()];
            let arguments = tables.arguments(job, address.into(), own);
            let blocks = self.blocks * count.div_ceil(transforms.per_warp);
            let grid = Grid::new([blocks, 1, 1], 32 * WARPS);
            // SAFETY: the arguments match the kernel; the caller guarantees the memory.
            unsafe { transforms.kernel.launch(pipeline.stream(), grid, &arguments) }?;
        }
        Ok(())
    }
}
