//! The block on a GPU, for all GPU implementations.
#![allow(unsafe_code)] // launches on memory that the job and the block own

use super::fp32::{self, Fp32};
use super::gains::Gains;
use super::matrix::{self, Matrix};
use super::sizes::Sizes;
use super::weights::{DeviceWeights, Scaling, Stretch, weights_len};
use super::{FrbBeamformer, Stages};
use crate::common::gpu::Table;
use crate::common::versions::reject_many;
use fxgraph::cuda::{Device, Frames, GpuJob, GpuMap, GpuMapped, Pipeline};
use fxgraph::diagnostic::codes;
use fxgraph::retune::{Change, Changes};
use fxgraph::{At, Block, BlockError, Configured, Counter, Env, Rejection};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Kernels of an implementation, and their encoding of the weights.
pub(super) trait MethodKernels: Send {
    /// Encodes the weights of feeds with these `gains` in `words`, with the implementation's number of words per
    /// weight.
    fn write(&self, stages: &Stages, gains: &Gains, words: &mut [u32]) -> Scaling;

    /// Queues the kernels.
    ///
    /// # Safety
    /// The frames and counts of `job` must stay valid until the kernels have run.
    unsafe fn launch(
        &mut self,
        pipeline: &Pipeline<Frames>,
        job: &Job<'_>,
    ) -> Result<(), BlockError>;
}

/// Arguments of the kernels: memory of the sizes that the kernels were compiled for, and weights.
pub(super) struct Job<'a> {
    /// Address of the input frame.
    pub from: u64,
    /// Address of the output frame.
    pub to: u64,
    /// Address of the input's validity, `[time][frequency]`.
    pub units: u64,
    weights: &'a DeviceWeights,
    timestamp: u64,
    sizes: Sizes,
}

impl Job<'_> {
    /// Stretches of equal weights among `spectra` of the frame.
    pub(super) fn stretches(&self, spectra: Range<usize>) -> impl Iterator<Item = Stretch> + Clone {
        self.weights.stretches(self.timestamp, self.sizes.samples_per_spectrum, spectra)
    }
}

/// Macros for stream and stages that all kernels share.
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
        ("HALF_PRECISION", usize::from(stages.half_precision)),
        ("FINE", sizes.fine_channels),
    ];
    numbers.map(|(name, number)| (name, number.to_string())).to_vec()
}

/// Diagnostic of an implementation, at `at`.
pub(super) fn rejection(at: At, message: String, help: &str) -> Rejection {
    Rejection::new(codes::IMPLEMENTATION, at, message).help(help)
}

/// Method of computing the transforms, one for each implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Tensor cores after a radix-8 step in registers.
    Radix8,
    /// Tensor cores alone.
    TensorCore,
    /// Single-precision arithmetic.
    Fp32,
}

impl Method {
    /// All methods.
    pub(super) const ALL: [Self; 3] = [Self::Radix8, Self::TensorCore, Self::Fp32];

    /// Name of the implementation.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Radix8 => "radix8",
            Self::TensorCore => "tensor_core",
            Self::Fp32 => "fp32",
        }
    }

    /// Number of words per weight.
    fn weight_words(self) -> usize {
        if self == Self::Fp32 { fp32::WEIGHT_WORDS } else { matrix::WEIGHT_WORDS }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Device memory of the block in bytes, without frames.
pub(super) fn device_bytes(stages: &Stages, method: Method) -> usize {
    let units = Table::<u32>::device_bytes(stages.sizes.units.iter().product());
    let words = method.weight_words() * weights_len(stages);
    let of_method = match method {
        Method::Fp32 => fp32::device_bytes(stages),
        _ => matrix::device_bytes(stages),
    };
    units + DeviceWeights::device_bytes(words) + of_method
}

/// The running block.
pub(super) struct Cuda {
    stages: Stages,
    kernels: Box<dyn MethodKernels>,
    weights: DeviceWeights,
    changes: Changes<Gains>,
    /// Validity `[time][frequency]` of the input frame, for each job in flight.
    units: Table<u32>,
    transforms_missing: Counter,
}

/// Creates the block with this method.
pub(super) fn block(
    block: &Configured<FrbBeamformer>,
    method: Method,
    env: &Env,
) -> Result<Box<dyn Block>, BlockError> {
    GpuMapped::build(env, |pipeline| {
        let gains = block.parameters.gains.of_values(block.ports.inputs[0].sideband());
        Cuda::new(block.shape.clone(), &gains, method, (env, pipeline.device()))
    })
}

impl Cuda {
    fn new(
        stages: Stages,
        gains: &Gains,
        method: Method,
        (env, device): (&Env, &Arc<Device>),
    ) -> Result<Self, BlockError> {
        let mut words = vec![0; method.weight_words() * weights_len(&stages)];
        let kernels: Box<dyn MethodKernels> = match method {
            Method::Fp32 => Box::new(Fp32::new(&stages, device)?),
            method => Box::new(Matrix::new(&stages, gains, method, device)?),
        };
        let scaling = kernels.write(&stages, gains, &mut words);
        Ok(Self {
            units: Table::new(device, stages.sizes.units.iter().product())?,
            weights: DeviceWeights::new(device, &words, scaling)?,
            kernels,
            stages,
            changes: Changes::default(),
            transforms_missing: super::transforms_missing(&env.counters),
        })
    }
}

impl GpuMap for Cuda {
    fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError> {
        let Self { stages, kernels, weights, .. } = self;
        let GpuJob { pipeline, slot, header, from, to } = job;
        let (sizes, timestamp) = (stages.sizes, header.timestamp);
        let samples = sizes.samples_per_spectrum * sizes.spectra as u64;
        for (from, gains) in self.changes.begin(timestamp, samples) {
            weights.set(from, |words| kernels.write(stages, &gains, words));
        }
        weights.advance(timestamp);
        self.units.host_mut(slot)?.copy_from_slice(&header.validity);
        pipeline.tables();
        self.units.send(pipeline, slot, 0..header.validity.len())?;
        weights.send(pipeline)?;
        pipeline.work()?;
        let job = Job { from, to, units: self.units.address(slot), weights, timestamp, sizes };
        // SAFETY: the job owns the frames, and no other job in flight uses its slot.
        unsafe { kernels.launch(pipeline, &job) }
    }

    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        self.transforms_missing.add(self.stages.sizes.output_validity(input, output));
    }

    fn has_room(&mut self, is_idle: bool) -> bool {
        self.weights.has_room(is_idle)
    }

    fn retune(&mut self, change: Change) -> Result<(), BlockError> {
        reject_many(&["gains"], &self.changes, &change)?;
        self.changes.offer(change)
    }
}
