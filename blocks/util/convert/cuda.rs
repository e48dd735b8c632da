//! The CUDA implementation: one launch per frame.
#![allow(unsafe_code)] // launches on memory that the job and the block own

use super::Convert;
use super::level::Level;
use super::numbers::{is_double, parts};
use crate::common::gpu::{self, Table};
use fxgraph::cuda::{Device, GpuJob, GpuMap, Grid, Kernel};
use fxgraph::{BlockError, Configured, Counter, Dtype, Env, Header};
use std::sync::Arc;

/// Threads of a block, and numbers that each converts; as in `kernels/util/convert.cu`.
const THREADS: usize = 256;
const RUN: usize = 8;

/// The running block.
pub(super) struct Cuda {
    kernel: Kernel,
    grid: Grid,
    numbers: u64,
    scale: f64,
    /// Elements of a job's frame that did not fit, and the sum of squares of the measured numbers.
    counts: Table<u64>,
    values_saturated: Counter,
    level: Option<Level>,
}

/// Returns the kernel's name of the numbers of an element.
fn number(dtype: Dtype) -> String {
    dtype.to_string().trim_start_matches('c').to_uppercase()
}

impl Cuda {
    pub(super) fn new(
        block: &Configured<Convert>,
        env: &Env,
        device: &Arc<Device>,
    ) -> Result<Self, BlockError> {
        let [input, output] = [&block.ports.inputs[0], &block.ports.outputs[0]];
        let (from, to) = (input.dtype, output.dtype);
        let parts_of = |dtype| parts(dtype).unwrap_or(1);
        let parts = parts_of(to);
        let defines = vec![
            ("FROM", number(from)),
            ("TO", number(to)),
            ("PARTS", parts.to_string()),
            ("EMBED", u8::from(parts_of(from) < parts).to_string()),
            ("CONJUGATE", u8::from(block.parameters.conjugate).to_string()),
            ("DOUBLE", u8::from(is_double(from, to)).to_string()),
        ];
        let numbers = output.elements() * parts;
        let kernel = gpu::program(device, "convert.cu", defines)?.kernel("convert", 0)?;
        Ok(Self {
            counts: Table::new(device, 2)?,
            kernel,
            grid: Grid::new([numbers.div_ceil(THREADS * RUN), 1, 1], THREADS),
            numbers: numbers as u64,
            scale: block.parameters.scale,
            values_saturated: super::saturated(&env.counters),
            level: Level::new(output, env),
        })
    }
}

impl GpuMap for Cuda {
    fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError> {
        let GpuJob { pipeline, slot, from, to, .. } = job;
        pipeline.tables();
        self.counts.clear(pipeline, slot)?;
        pipeline.work()?;
        let counts = self.counts.address(slot);
        let arguments =
            [from.into(), to.into(), counts.into(), self.numbers.into(), self.scale.into()];
        // SAFETY: the arguments match the kernel; the job owns the frames, which have as many numbers as
        // the kernel converts, and no other job in flight has its slot.
        unsafe { self.kernel.launch(pipeline.stream(), self.grid, &arguments) }?;
        pipeline.results()?;
        self.counts.fetch(pipeline, slot)
    }

    fn complete(&mut self, slot: usize, output: &mut Header) -> Result<(), BlockError> {
        let [saturated, squares] = *self.counts.host(slot)?.first_chunk().unwrap_or(&[0; 2]);
        self.values_saturated.add(saturated);
        if let Some(level) = &mut self.level {
            level.annotate(output, squares);
        }
        Ok(())
    }
}
