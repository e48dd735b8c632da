//! The forms for CUDA devices: the block that runs either of them.
#![allow(unsafe_code)] // launches on memory that the job and the block own

use super::fp32::Fp32;
use super::gains::Gains;
use super::matrix::Matrix;
use super::sizes::Sizes;
use super::{FP32, Stages};
use crate::gpu::Table;
use fxgraph::cuda::{Lane, Turn, frame_address};
use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Block, BlockError, Counter, Env, Frame, FrameMut, Io, Next, Refusal, async_trait,
};
use std::sync::Arc;

/// The running block.
pub(super) struct Cuda {
    lane: Lane<(Arc<Frame>, FrameMut)>,
    form: Form,
    sizes: Sizes,
    /// Counts `[time][frequency]` of a job's frame.
    units: Table<u32>,
    transforms_missing: Counter,
}

enum Form {
    Matrix(Matrix),
    Fp32(Fp32),
}

/// Macros that describe stream and stages in the same words to all kernels.
pub(super) fn defines(stages: &Stages) -> Vec<(&'static str, String)> {
    let sizes = stages.sizes;
    let [in_time, in_frequency] = sizes.units;
    let numbers = [
        ("SPECTRA", sizes.spectra),
        ("CHANNELS", sizes.channels),
        ("POLS", sizes.pols),
        ("CYLINDERS", sizes.cylinders),
        ("BITS", sizes.dtype.bits() / 2),
        ("ROWS", sizes.rows),
        ("EAST_WEST", usize::from(!stages.east_west.is_empty())),
        ("ROW_BEAMS", sizes.row_beams),
        ("UNITS_IN_TIME", in_time),
        ("UNITS_IN_FREQUENCY", in_frequency),
        ("HALVES", usize::from(stages.halves)),
        ("FINE", sizes.fine_channels),
    ];
    numbers.map(|(name, number)| (name, number.to_string())).to_vec()
}

/// A refusal of this implementation because of `at`.
pub(super) fn refusal(at: At, message: String, help: &str) -> Refusal {
    Refusal::new(codes::IMPLEMENTATION, at, message).help(help)
}

impl Cuda {
    pub(super) fn new(stages: &Stages, gains: &Gains, env: &Env) -> Result<Self, BlockError> {
        let lane = Lane::new(env)?;
        let device = lane.device();
        let form = if env.implementation == FP32 {
            Form::Fp32(Fp32::new(stages, gains, device)?)
        } else {
            Form::Matrix(Matrix::new(stages, gains, env.implementation, device)?)
        };
        Ok(Self {
            units: Table::new(device, stages.sizes.units.iter().product())?,
            form,
            sizes: stages.sizes,
            transforms_missing: super::transforms_missing(&env.counters),
            lane,
        })
    }

    fn begin(&mut self, input: Arc<Frame>, mut output: FrameMut) -> Result<(), BlockError> {
        let validity = &input.header().validity;
        output.header_mut().continue_from(input.header());
        let missing = self.sizes.output_validity(validity, &mut output.header_mut().validity);
        self.transforms_missing.add(missing);
        let slot = self.lane.begin(input.header().timestamp)?;
        let device = self.lane.device();
        let [from, to] = [frame_address(&input, device)?, frame_address(&output, device)?];
        self.units.host_mut(slot).copy_from_slice(validity);
        self.lane.tables();
        self.units.send(&self.lane, slot, 0..validity.len())?;
        self.lane.work()?;
        let units = self.units.address(slot);
        // SAFETY: the job owns the frames, whose sizes the kernels were compiled for, and no other job in
        // flight has its slot.
        match &mut self.form {
            Form::Matrix(form) => unsafe { form.launch(&self.lane, from, to, units) }?,
            Form::Fp32(form) => unsafe { form.launch(&self.lane, from, to, units) }?,
        }
        self.lane.submit((input, output))
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
