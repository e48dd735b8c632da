//! The block on a GPU, with one kernel launch for each frame and set of weights.

use super::cpu::Weights;
use super::hopper::{self, Hopper};
use super::tensor_core::{self, TensorCore};
use super::{Beam, Beamformer, Counts, count_antennas};
use crate::common::dither::Dither;
use crate::common::gpu::{self, Table};
use crate::common::stacked::Stacked;
use crate::common::units::{self, Units};
use crate::common::versions::{Versions, reject_many};
use fxgraph::changes::{Change, Changes};
use fxgraph::cuda::driver::sys::CUstream;
use fxgraph::cuda::{Arg, CudaError, Device, GpuJob, GpuMap, Properties};
use fxgraph::diagnostic::codes;
use fxgraph::{At, BlockError, Dtype, Header, Rejection};
use fxgraph_dsp::dither;
use num_complex::Complex32;
use std::ops::Range;
use std::sync::Arc;

/// Words of the description of a heap before its antennas.
pub(super) const HEAP_HEAD: usize = 4;

/// Kernels of the GPU implementations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    /// Integers on warpgroup matrix instructions.
    Hopper,
    /// Half precision on matrix instructions of warps.
    TensorCore,
}

impl Architecture {
    /// Returns the kernel for a stream with these polarisations, antennas and spectra per heap, on this GPU.
    pub(super) fn best([pols, antennas, spectra]: [usize; 3], gpu: Option<&Properties>) -> Self {
        let has_hopper = gpu.is_some_and(|gpu| gpu.capability == hopper::CAPABILITY);
        if has_hopper && hopper::is_fast(pols, antennas, spectra) {
            Self::Hopper
        } else {
            Self::TensorCore
        }
    }
}

/// A kernel with the layouts of its tables.
pub(super) trait Kernels: Send {
    /// Words of a version of the weights.
    fn weight_words(&self) -> usize;

    /// Writes a version of the weights.
    fn write_weights(&self, table: &mut [u32], weights: &Weights);

    /// Words of the description of a heap, of which the first ones are the key of the dither (2), the number of
    /// present antennas, and 0.
    fn heap_words(&self) -> usize;

    /// Writes the other words of a description: which antennas, `valid` not 0, are present.
    fn write_present(&self, words: &mut [u32], valid: &[u32]);

    /// Queues the kernel. The arrays have the sizes of the block's input, its output, and these tables.
    fn launch(&mut self, launch: &Launch) -> Result<(), CudaError>;
}

/// Macros of both kernels: the layouts of input and output, and whether there is dither.
pub(super) fn layout(parameters: &Beamformer, shape: &Stacked) -> Vec<(&'static str, String)> {
    gpu::numbers([
        ("HEAPS", shape.heaps),
        ("ANTENNAS", shape.antennas),
        ("CHANNELS", shape.channels),
        ("SPECTRA", shape.spectra),
        ("POLS", shape.pols),
        ("K_MAJOR", usize::from(shape.k_major)),
        ("FOUR_BIT", usize::from(shape.dtype == Dtype::Ci4)),
        ("BEAMS", parameters.beams.len()),
        ("DITHER", usize::from(parameters.dither == Dither::Uniform)),
    ])
}

/// Arguments of a launch.
pub(super) struct Launch {
    pub stream: CUstream,
    /// Address of the input's payload.
    pub from: u64,
    /// Address of the output's payload.
    pub to: u64,
    pub weights: u64,
    pub heaps: u64,
    pub clamped: u64,
    pub squares: u64,
    /// Whether the level of this frame counts.
    pub is_measured: bool,
    pub first_channel: u64,
    /// Spectra to compute, counted over all heaps.
    pub spectra: Range<usize>,
}

impl Launch {
    /// Arguments of both kernels.
    pub(super) fn arguments(&self) -> [Arg<'static>; 9] {
        [
            self.from.into(),
            self.to.into(),
            self.weights.into(),
            self.heaps.into(),
            self.clamped.into(),
            self.squares.into(),
            self.first_channel.into(),
            (self.spectra.start as u32).into(),
            (self.spectra.end as u32).into(),
        ]
    }
}

/// The running block.
pub(super) struct Cuda {
    kernels: Box<dyn Kernels>,
    shape: Stacked,
    beams: usize,
    dither_seed: Option<u64>,
    first_channel: u64,
    weights: Versions<u32>,
    pols: Vec<usize>,
    changes: Changes<Weights>,
    /// Description of each heap.
    heaps: Table<u32>,
    /// Whether any data of an antenna are there in a heap, `[heap][antenna]`.
    present: Vec<u32>,
    /// `[heap][beam]`.
    clamped: Table<u32>,
    /// Sums of squares of the measured values, `[heap][beam]`.
    squares: Table<u64>,
    counts: Counts,
}

/// Upper limit of the device memory of the block in bytes, without frames.
pub(super) fn device_bytes(parameters: &Beamformer, shape: &Stacked) -> usize {
    let beams = parameters.beams.len();
    let weights = tensor_core::most_weight_words(shape, beams)
        .max(hopper::most_weight_words(parameters, shape));
    let heap = tensor_core::most_heap_words(shape.antennas).max(hopper::HEAP_WORDS) + beams;
    Versions::<u32>::device_bytes(weights)
        + Table::<u32>::device_bytes(shape.heaps * heap)
        + Table::<u64>::device_bytes(shape.heaps * beams)
}

/// Diagnostic if the weights exceed the range of the kernels.
fn reject_weights(parameters: &Beamformer) -> Option<Rejection> {
    let too_large = |beam: &Beam| {
        let weights = beam.weights.values().iter();
        weights.map(|weight| (weight * beam.gain).abs()).any(|size| size > f64::from(f32::MAX))
    };
    let beam = parameters.beams.iter().position(too_large)?;
    let message = format!("weights times gain of beam {beam} exceed the range of single precision");
    Some(Rejection::new(codes::IMPLEMENTATION, At::Parameter("beams"), message))
}

/// Diagnostics if the kernel `architecture`, or the best one, cannot form these beams, on `gpu` if there is one.
pub(super) fn rejections(
    parameters: &Beamformer,
    shape: &Stacked,
    gpu: Option<&Properties>,
    architecture: Option<Architecture>,
) -> Vec<Rejection> {
    let best = || Architecture::best([shape.pols, shape.antennas, shape.spectra], gpu);
    let of_architecture = match architecture.unwrap_or_else(best) {
        Architecture::Hopper => hopper::reject(shape, gpu),
        Architecture::TensorCore => {
            gpu.and_then(|gpu| tensor_core::reject_antennas(parameters, shape, gpu))
        }
    };
    reject_weights(parameters).into_iter().chain(of_architecture).collect()
}

impl Cuda {
    /// Creates the block with the kernel `architecture`, or the best one.
    pub(super) fn new(
        parameters: &Beamformer,
        shape: Stacked,
        weights: &Weights,
        first_channel: usize,
        architecture: Option<Architecture>,
        (counts, device): (Counts, &Arc<Device>),
    ) -> Result<Self, BlockError> {
        let best = || {
            Architecture::best(
                [shape.pols, shape.antennas, shape.spectra],
                Some(device.properties()),
            )
        };
        let kernels: Box<dyn Kernels> = match architecture.unwrap_or_else(best) {
            Architecture::Hopper => Box::new(Hopper::new(parameters, shape, device)?),
            Architecture::TensorCore => Box::new(TensorCore::new(parameters, shape, device)?),
        };
        let mut table = vec![0; kernels.weight_words()];
        kernels.write_weights(&mut table, weights);
        let beams = weights.pols.len();
        Ok(Self {
            weights: Versions::new(device, &table)?,
            pols: weights.pols.clone(),
            changes: Changes::default(),
            heaps: Table::new(device, shape.heaps * kernels.heap_words())?,
            present: vec![0; shape.heaps * shape.antennas],
            clamped: Table::new(device, shape.heaps * beams)?,
            squares: Table::new(device, shape.heaps * beams)?,
            kernels,
            shape,
            beams,
            dither_seed: (parameters.dither == Dither::Uniform).then_some(parameters.dither_seed),
            first_channel: first_channel as u64,
            counts,
        })
    }

    /// Writes the description of each heap of a frame.
    fn describe_heaps(&mut self, input: &Header, slot: usize) -> Result<(), BlockError> {
        units::reduce(&input.validity, &mut self.present);
        let valid = self.present.chunks(self.shape.antennas);
        let words = self.heaps.host_mut(slot)?.chunks_mut(self.kernels.heap_words());
        for (heap, (words, valid)) in words.zip(valid).enumerate() {
            let later = heap as u64 * self.shape.samples_per_heap();
            let timestamp = input.timestamp.saturating_add(later);
            let key = self.dither_seed.map_or(0, |seed| dither::key(seed, &[timestamp]));
            let present = valid.iter().filter(|&&valid| valid != 0).count() as u32;
            let (head, words) = words.split_at_mut(HEAP_HEAD);
            head.copy_from_slice(&[key as u32, (key >> 32) as u32, present, 0]);
            self.kernels.write_present(words, valid);
        }
        Ok(())
    }
}

impl GpuMap for Cuda {
    fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError> {
        let GpuJob { pipeline, slot, header, from, to } = job;
        let timestamp = header.timestamp;
        let samples = self.shape.heaps as u64 * self.shape.samples_per_heap();
        for (from, weights) in self.changes.begin(timestamp, samples) {
            self.weights.set(from, |table| self.kernels.write_weights(table, &weights));
        }
        self.weights.advance(timestamp);
        self.describe_heaps(header, slot)?;
        pipeline.tables();
        self.heaps.send(pipeline, slot, 0..self.heaps.slot_len())?;
        self.clamped.clear(pipeline, slot)?;
        self.squares.clear(pipeline, slot)?;
        self.weights.send(pipeline)?;
        pipeline.work()?;
        let Stacked { heaps, spectra, samples_per_spectrum, .. } = self.shape;
        let spectra = heaps * spectra;
        let mut done = 0;
        // One launch for all adjacent spectra with the same weights.
        while done < spectra {
            let t = timestamp + done as u64 * samples_per_spectrum;
            let end = done + self.weights.run(t, samples_per_spectrum, spectra - done);
            self.kernels.launch(&Launch {
                stream: pipeline.stream(),
                from,
                to,
                weights: self.weights.address(t),
                heaps: self.heaps.address(slot),
                clamped: self.clamped.address(slot),
                squares: self.squares.address(slot),
                is_measured: self.counts.is_measured(timestamp),
                first_channel: self.first_channel,
                spectra: done..end,
            })?;
            done = end;
        }
        pipeline.results()?;
        self.clamped.fetch(pipeline, slot)?;
        self.squares.fetch(pipeline, slot)
    }

    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        units::reduce(input, &mut self.present);
        let heaps = self.present.chunks(self.shape.antennas);
        match self.shape.units {
            Units::Heap => output.iter_mut().zip(heaps).for_each(|(to, valid)| {
                *to = self.counts.heap(valid);
            }),
            Units::Channel => {
                let units = input.chunks_exact(self.shape.validity_units() / self.shape.heaps);
                let counts = output.chunks_exact_mut(self.beams * self.shape.channels);
                for ((valid, units), counts) in heaps.zip(units).zip(counts) {
                    self.counts.heap(valid);
                    counts.fill(u32::MAX);
                    count_antennas(&self.shape, units, &self.pols, counts);
                }
            }
        }
    }

    fn has_room(&mut self, is_idle: bool) -> bool {
        self.weights.has_room(is_idle)
    }

    fn complete(&mut self, slot: usize, output: &mut Header) -> Result<(), BlockError> {
        let clamped = self.clamped.host(slot)?.iter().map(|count| u64::from(*count));
        let squares = self.squares.host(slot)?.iter().copied();
        debug_assert_eq!(clamped.len(), self.shape.heaps * self.beams);
        self.counts.annotate(output, clamped, squares);
        Ok(())
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        let weights = change.value::<Weights>("beams");
        if weights.is_some_and(|weights| weights.pols != self.pols) {
            let text = "`pol` of a beam cannot change while the block runs on a GPU";
            return Err(BlockError::new(text));
        }
        let is_too_large = |z: &Complex32| !z.re.is_finite() || !z.im.is_finite();
        if weights.is_some_and(|weights| weights.table.iter().any(is_too_large)) {
            return Err(BlockError::new("weights times gain exceed the range of single precision"));
        }
        reject_many(&["beams"], &self.changes, &change)?;
        self.changes.offer(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_kernel_depends_on_gpu_input_and_number_of_beams() {
        let gpu = |capability| Properties {
            name: String::new(),
            capability,
            multiprocessors: 132,
            memory_bytes: 1 << 37,
            shared_bytes_per_block: 232_448,
            shared_bytes_per_multiprocessor: 233_472,
            l2_bytes: 50 << 20,
        };
        let [ampere, hopper, blackwell] = [(8, 0), (9, 0), (10, 0)].map(gpu);
        for (antennas, spectra, gpu, best) in [
            (80, 256, Some(&hopper), Architecture::Hopper),
            (256, 32, Some(&hopper), Architecture::Hopper),
            (257, 256, Some(&hopper), Architecture::TensorCore),
            (80, 31, Some(&hopper), Architecture::TensorCore),
            (80, 256, Some(&ampere), Architecture::TensorCore),
            (80, 256, Some(&blackwell), Architecture::TensorCore),
            (80, 256, None, Architecture::TensorCore),
        ] {
            let found = Architecture::best([2, antennas, spectra], gpu);
            assert_eq!(found, best, "{antennas} antennas, {spectra} spectra");
        }
        assert_eq!(Architecture::best([1, 80, 256], Some(&hopper)), Architecture::TensorCore);
    }
}
