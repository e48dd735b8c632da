//! The form for CUDA devices: one launch for each frame.
#![allow(unsafe_code)] // launches on frames that the job owns

use super::Layout;
use super::kernel::{self, Launch};
use crate::common::gpu;
use fxgraph::cuda::{Grid, Kernel, Lane, Turn, frame_address};
use fxgraph::{Block, BlockError, Env, Frame, FrameMut, Io, Next, async_trait};
use std::sync::Arc;

/// The running block.
pub struct Cuda {
    layout: Layout,
    lane: Lane<(Arc<Frame>, FrameMut)>,
    kernel: Kernel,
    grid: Grid,
}

impl Cuda {
    pub fn new(layout: Layout, env: &Env) -> Result<Self, BlockError> {
        let lane = Lane::new(env)?;
        let too_large = || BlockError::new("frames of 2^32 elements or more are too large");
        let kernel::Kernel { name, tunable, launches } = layout.kernel().ok_or_else(too_large)?;
        let way = lane.device().chosen(&tunable);
        let program = gpu::program(lane.device(), tunable.program, tunable.defines(way))?;
        let Launch { grid, shared_bytes } = launches[way];
        let kernel = program.kernel(name, shared_bytes)?;
        Ok(Self { layout, lane, kernel, grid })
    }

    fn begin(&mut self, input: Arc<Frame>, mut output: FrameMut) -> Result<(), BlockError> {
        self.layout.header(input.header(), output.header_mut());
        let device = self.lane.device();
        let [from, to] = [frame_address(&input, device)?, frame_address(&output, device)?];
        self.lane.begin(input.header().timestamp)?;
        self.lane.hold((input, output))?;
        self.lane.work()?;
        // SAFETY: the kernel's arguments; the job owns both frames, whose sizes it was compiled for.
        unsafe { self.kernel.launch(self.lane.stream(), self.grid, &[from.into(), to.into()]) }?;
        self.lane.submit()
    }
}

#[async_trait]
impl Block for Cuda {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        match self.lane.turn(io)? {
            Turn::Begin(input, output) => self.begin(input, output).map(|()| Next::Again),
            Turn::Rest(next) => Ok(next),
        }
    }
}
