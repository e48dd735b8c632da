//! The block on a GPU, for all GPU implementations.
#![allow(unsafe_code)] // launches on memory that the job and the block own

use super::fp32::{self, Fp32};
use super::gains::Gains;
use super::matrix::{self, Matrix};
use super::method::{Job, Method, MethodKernels};
use super::weights::{DeviceWeights, weights_len};
use super::{FrbBeamformer, Stages};
use crate::common::gpu::Table;
use crate::common::versions::reject_many;
use fxgraph::changes::{Change, Changes};
use fxgraph::cuda::{Device, GpuJob, GpuMap, GpuMapped};
use fxgraph::{Block, BlockError, Configured, Counter, Env};
use std::sync::Arc;

/// Number of words per weight.
fn weight_words(method: Method) -> usize {
    if method == Method::Fp32 { fp32::WEIGHT_WORDS } else { matrix::WEIGHT_WORDS }
}

/// Device memory of the block in bytes, without frames.
pub(super) fn device_bytes(stages: &Stages, method: Method) -> usize {
    let units = Table::<u32>::device_bytes(stages.sizes.units.iter().product());
    let words = weight_words(method) * weights_len(stages);
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
        let mut words = vec![0; weight_words(method) * weights_len(&stages)];
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

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        reject_many(&["gains"], &self.changes, &change)?;
        self.changes.offer(change)
    }
}
