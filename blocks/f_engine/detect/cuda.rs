//! The block on a GPU, with one kernel launch for each frame.
#![allow(unsafe_code)] // launches on memory that the job and the block own

use super::{Input, Products, Shape, spectra_missing, stacked_cuda};
use crate::common::gpu::{Table, numbers};
use fxgraph::cuda::{Device, GpuJob, GpuMap, Grid, Kernel, Needs, Program, ProgramSource, Source};
use fxgraph::diagnostic::codes;
use fxgraph::{At, BlockError, Counter, Env, Rejection};
use std::sync::Arc;

/// Threads per block, one for each channel.
const THREADS: usize = 128;

pub(super) static PROGRAMS: &[ProgramSource] = &[
    ProgramSource {
        source: Source::embedded("detect.cu", include_str!("detect.cu")),
        headers: &[],
        needs: Needs::Ampere,
        cases: &[
            "POLS=1 CHANNELS=1024 SUMS=4 SPECTRA=4 PRODUCTS=0 INVERTED=0",
            "POLS=2 CHANNELS=1000 SUMS=1 SPECTRA=64 PRODUCTS=1 INVERTED=0",
            "POLS=2 CHANNELS=4096 SUMS=16 SPECTRA=1 PRODUCTS=2 INVERTED=1",
        ],
    },
    stacked_cuda::PROGRAM,
];

/// Thread blocks per launch.
pub(super) fn blocks(shape: &Shape) -> usize {
    shape.channels.div_ceil(THREADS).saturating_mul(shape.sums)
}

/// Diagnostic for frames that exceed the largest grid.
pub(super) fn rejection(input: &Input) -> Option<Rejection> {
    let (blocks, message) = match input {
        Input::One(shape) => {
            (blocks(shape), "a frame must have fewer than 2^31 blocks of 128 channels")
        }
        Input::Stack(stack) => {
            (stacked_cuda::blocks(stack), "a frame must have fewer than 2^34 sums of a channel")
        }
    };
    (blocks > i32::MAX as usize)
        .then(|| Rejection::new(codes::IMPLEMENTATION, At::InputAxis(0, "spectrum"), message))
}

/// The running block.
pub(super) struct Cuda {
    input: Input,
    kernel: Kernel,
    grid: Grid,
    /// Validity of the input, for each job in flight.
    valid: Table<u32>,
    spectra_missing: Counter,
}

impl Cuda {
    pub(super) fn new(input: Input, env: &Env, device: &Arc<Device>) -> Result<Self, BlockError> {
        let (program, kernel, grid, mut defines, products, sideband) = match &input {
            Input::One(shape) => {
                let defines = numbers([
                    ("POLS", shape.pols),
                    ("CHANNELS", shape.channels),
                    ("SUMS", shape.sums),
                    ("SPECTRA", shape.spectra),
                ]);
                let grid = Grid::new([blocks(shape), 1, 1], THREADS);
                (&PROGRAMS[0], "detect", grid, defines, shape.products, shape.sideband)
            }
            Input::Stack(stack) => {
                let (grid, defines) = (stacked_cuda::grid(stack), stacked_cuda::defines(stack));
                let program = &PROGRAMS[1];
                (program, "detect_stacked", grid, defines, stack.products, stack.sideband)
            }
        };
        let number = match products {
            Products::Power => 0,
            Products::Intensity => 1,
            Products::Stokes => 2,
        };
        defines.extend(numbers([
            ("INVERTED", usize::from(sideband.is_inverted())),
            ("PRODUCTS", number),
        ]));
        Ok(Self {
            kernel: Program::compile(program, device, defines)?.kernel(kernel, 0)?,
            grid,
            valid: Table::new(device, input.units())?,
            spectra_missing: spectra_missing(env),
            input,
        })
    }
}

impl GpuMap for Cuda {
    fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError> {
        let GpuJob { pipeline, slot, header, from, to } = job;
        self.valid.host_mut(slot)?.copy_from_slice(&header.validity);
        pipeline.tables();
        self.valid.send(pipeline, slot, 0..header.validity.len())?;
        pipeline.work()?;
        let arguments = [self.valid.address(slot).into(), from.into(), to.into()];
        // SAFETY: the arguments match the kernel, which was compiled for the sizes of the frames; the job owns the
        // frames, and no other job in flight uses its slot.
        Ok(unsafe { self.kernel.launch(pipeline.stream(), self.grid, &arguments) }?)
    }

    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        self.spectra_missing.add(self.input.validity(input, output));
    }
}
