//! The CUDA implementation: one launch per frame.
#![allow(unsafe_code)] // launches on frames that the job owns

use super::Layout;
use super::kernel::{self, Launch};
use crate::common::gpu;
use fxgraph::BlockError;
use fxgraph::cuda::{Device, GpuJob, GpuMap, Grid, Kernel};
use std::sync::Arc;

/// The running block.
pub struct Cuda {
    layout: Layout,
    kernel: Kernel,
    grid: Grid,
}

impl Cuda {
    pub fn new(layout: Layout, device: &Arc<Device>) -> Result<Self, BlockError> {
        let too_large = || BlockError::new("frames must have fewer than 2^32 elements");
        let kernel::Kernel { name, tunable, launches } = layout.kernel().ok_or_else(too_large)?;
        let way = device.chosen(&tunable);
        let program = gpu::program(device, tunable.program, tunable.defines(way))?;
        let Launch { grid, shared_bytes } = launches[way];
        let kernel = program.kernel(name, shared_bytes)?;
        Ok(Self { layout, kernel, grid })
    }
}

impl GpuMap for Cuda {
    fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError> {
        job.pipeline.work()?;
        let arguments = [job.from.into(), job.to.into()];
        // SAFETY: the arguments match the kernel; the job owns both frames, whose sizes the kernel was
        // compiled for.
        Ok(unsafe { self.kernel.launch(job.pipeline.stream(), self.grid, &arguments) }?)
    }

    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        self.layout.validity(input, output);
    }
}
