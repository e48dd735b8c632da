//! The block on a GPU, with one kernel launch for each frame and set of weights.
#![allow(unsafe_code)] // launches and copies on memory that the job and the block own

use super::cpu::Weights;
use super::tiles::{Tiles, scale};
use super::{Beam, Beamformer, Counts, count_antennas};
use crate::common::dither::Dither;
use crate::common::gpu::{self, Table};
use crate::common::stacked::Stacked;
use crate::common::units::{self, Units};
use crate::common::versions::{Versions, refuse_many};
use fxgraph::cuda::{Device, GpuJob, GpuMap, Grid, Kernel, Properties, Tunable};
use fxgraph::diagnostic::codes;
use fxgraph::retune::{Change, Changes};
use fxgraph::{At, BlockError, Dtype, Env, Header, Refusal};
use fxgraph_dsp::dither;
use num_complex::Complex32;
use std::sync::Arc;

/// Warps per thread block: the default, and alternatives for tuning.
const WARPS: [usize; 3] = [4, 2, 8];
/// Spectra that a warp processes at a time.
const WARP_TIMES: usize = 32;
/// Largest number of thread blocks that share the spectra of a tile; each loads the weights again.
const MOST_SHARING: usize = 16;
/// Number of thread blocks whose weights should fit in the shared memory of a multiprocessor.
const RESIDENT_BLOCKS: usize = 3;
/// Words before the antennas of a `Heap`.
const HEAP_HEAD: usize = 4;

/// The running block.
pub(super) struct Cuda {
    kernel: Kernel,
    grid: Grid,
    shape: Stacked,
    beams: usize,
    dither_seed: Option<u64>,
    first_channel: u64,
    /// Words of a `Heap`.
    heap_words: usize,
    /// Weights, followed by `Slots` of `beamformer.cu`.
    weights: Versions<u32>,
    tiles: Tiles,
    pols: Vec<usize>,
    changes: Changes<Weights>,
    /// `Heap` of `beamformer.cu`, for each heap.
    heaps: Table<u32>,
    /// Whether any data of an antenna are there in a heap, `[heap][antenna]`.
    present: Vec<u32>,
    /// `[heap][beam]`.
    clamped: Table<u32>,
    counts: Counts,
}

/// Upper limit of the device memory of the block in bytes, without frames.
pub(super) fn device_bytes(shape: &Stacked, beams: usize) -> usize {
    // Two words for a weight; at most four slots for a beam, of two words each.
    let weights = 2 * shape.channels * beams * shape.antennas + 8 * beams;
    let heap = HEAP_HEAD + shape.antennas.next_multiple_of(8) + beams;
    Versions::<u32>::device_bytes(weights) + Table::<u32>::device_bytes(shape.heaps * heap)
}

/// The kernel, with its launch configurations, without the macros that depend on the GPU's shared memory.
pub(super) fn tunable(parameters: &Beamformer, shape: &Stacked) -> Tunable {
    Tunable {
        program: "beamformer.cu",
        shape: gpu::numbers([
            ("HEAPS", shape.heaps),
            ("ANTENNAS", shape.antennas),
            ("CHANNELS", shape.channels),
            ("SPECTRA", shape.spectra),
            ("K_MAJOR", usize::from(shape.k_major)),
            ("FOUR_BIT", usize::from(shape.dtype == Dtype::Ci4)),
            ("BEAMS", parameters.beams.len()),
            ("WEIGHT_PARTS", 2),
            ("DITHER", usize::from(parameters.dither == Dither::Uniform)),
        ]),
        ways: WARPS.map(|warps| gpu::numbers([("WARPS", warps)])).to_vec(),
    }
}

/// Tiling of the beams for this GPU; `None` if the weights of all antennas do not fit in shared memory.
fn tiles(parameters: &Beamformer, shape: &Stacked, gpu: &Properties) -> Option<Tiles> {
    let of_pol = [0, 1].map(|pol| parameters.beams.iter().filter(|beam| beam.pol == pol).count());
    let roomy = gpu.shared_bytes_per_multiprocessor / RESIDENT_BLOCKS;
    let rooms = [roomy, gpu.shared_bytes_per_block];
    rooms.iter().find_map(|&bytes| Tiles::new(of_pol, shape.antennas, bytes))
}

/// Diagnostics if the kernel cannot form these beams, on `gpu` if there is one.
pub(super) fn refusals(
    parameters: &Beamformer,
    shape: &Stacked,
    gpu: Option<&Properties>,
) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let too_large = |beam: &Beam| {
        let weights = beam.weights.values().iter();
        weights.map(|weight| (weight * beam.gain).abs()).any(|size| size > f64::from(f32::MAX))
    };
    if let Some(beam) = parameters.beams.iter().position(too_large) {
        let message =
            format!("weights times gain of beam {beam} exceed the range of single precision");
        let at = At::Parameter("beams");
        refusals.push(Refusal::new(codes::IMPLEMENTATION, at, message));
    }
    if let Some(gpu) = gpu
        && tiles(parameters, shape, gpu).is_none()
    {
        let message = format!(
            "the weights of {} antennas do not fit in the shared memory of {}",
            shape.antennas, gpu.name
        );
        let at = At::InputAxis(0, "antenna");
        refusals.push(Refusal::new(codes::IMPLEMENTATION, at, message));
    }
    refusals
}

impl Cuda {
    pub(super) fn new(
        parameters: &Beamformer,
        shape: Stacked,
        weights: &Weights,
        first_channel: usize,
        (env, device): (&Env, &Arc<Device>),
    ) -> Result<Self, BlockError> {
        let pols = weights.pols.clone();
        let beams = pols.len();
        let properties = device.properties();
        let tiles = tiles(parameters, &shape, properties).ok_or_else(|| {
            BlockError::new("the weights of the antennas do not fit in shared memory")
        })?;
        let tunable = tunable(parameters, &shape);
        let way = device.chosen(&tunable);
        let warps = tunable.number(way, "WARPS");
        let of_gpu = gpu::numbers([
            ("TILES_0", tiles.per_group[0]),
            ("TILES_1", tiles.per_group[1]),
            ("GROUPS", tiles.groups),
        ]);
        let defines = [tunable.defines(way), of_gpu].concat();
        let program = gpu::program(device, tunable.program, defines)?;
        let kernel = program.kernel("beamform", tiles.shared_bytes())?;
        let blocks = tiles.groups * shape.channels;
        let items = shape.heaps * shape.spectra.div_ceil(WARP_TIMES);
        let at_once = kernel.blocks_per_multiprocessor(32 * warps)? * properties.multiprocessors;
        let sharing = sharing(blocks, items.div_ceil(warps), at_once);
        let grid = Grid::new([blocks, sharing, 1], 32 * warps);
        let mut table = vec![0; 2 * weights.table.len() + tiles.slot_words()];
        write(&mut table, &tiles, weights, shape.antennas);
        let heap_words = HEAP_HEAD + tiles.padded_antennas();
        Ok(Self {
            weights: Versions::new(device, &table)?,
            tiles,
            pols,
            changes: Changes::default(),
            heaps: Table::new(device, shape.heaps * heap_words)?,
            present: vec![0; shape.heaps * shape.antennas],
            clamped: Table::new(device, shape.heaps * beams)?,
            kernel,
            grid,
            shape,
            beams,
            dither_seed: (parameters.dither == Dither::Uniform).then_some(parameters.dither_seed),
            first_channel: first_channel as u64,
            heap_words,
            counts: Counts::new(env),
        })
    }

    /// Writes the `Heap` of each heap of a frame.
    fn describe_heaps(&mut self, input: &Header, slot: usize) -> Result<(), BlockError> {
        units::reduce(&input.validity, &mut self.present);
        let valid = self.present.chunks(self.shape.antennas);
        let words = self.heaps.host_mut(slot)?.chunks_mut(self.heap_words);
        for (heap, (words, valid)) in words.zip(valid).enumerate() {
            let later = heap as u64 * self.shape.samples_per_heap();
            let timestamp = input.timestamp.saturating_add(later);
            let key = self.dither_seed.map_or(0, |seed| dither::key(seed, &[timestamp]));
            let present = valid.iter().filter(|&&valid| valid != 0).count() as u32;
            words[..HEAP_HEAD].copy_from_slice(&[key as u32, (key >> 32) as u32, present, 0]);
            for (word, &valid) in words[HEAP_HEAD..].iter_mut().zip(valid) {
                *word = if valid == 0 { 0 } else { u32::MAX };
            }
        }
        Ok(())
    }
}

/// Writes the weights `[channel][beam][antenna]`, divided by the scale of each beam, and then the slots of the
/// beams with these scales.
fn write(table: &mut [u32], tiles: &Tiles, weights: &Weights, antennas: usize) {
    let (scaled, slots) = table.split_at_mut(2 * weights.table.len());
    let scaled: &mut [Complex32] = bytemuck::cast_slice_mut(scaled);
    scaled.copy_from_slice(&weights.table);
    let scales = scale(scaled, weights.pols.len(), antennas);
    slots.copy_from_slice(&tiles.slots(&weights.pols, &scales));
}

/// Number of thread blocks, at most `most`, that share the spectra of each of `blocks` tiles, on a GPU with `at_once`
/// resident blocks: the smallest number that leaves little of the GPU idle in the last round.
fn sharing(blocks: usize, most: usize, at_once: usize) -> usize {
    let busy = |sharing: usize| {
        let rounds = (blocks * sharing).div_ceil(at_once.max(1));
        (blocks * sharing) as f64 / (rounds * at_once.max(1)) as f64
    };
    let choices = 1..=most.clamp(1, MOST_SHARING);
    let good = choices.clone().find(|&sharing| busy(sharing) > 0.9);
    good.or(choices.max_by(|&a, &b| busy(a).total_cmp(&busy(b)))).unwrap_or(1)
}

impl GpuMap for Cuda {
    fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError> {
        let GpuJob { lane, slot, header, from, to } = job;
        let timestamp = header.timestamp;
        let samples = self.shape.heaps as u64 * self.shape.samples_per_heap();
        for (from, weights) in self.changes.begin(timestamp, samples) {
            self.weights
                .set(from, |table| write(table, &self.tiles, &weights, self.shape.antennas));
        }
        self.weights.advance(timestamp);
        self.describe_heaps(header, slot)?;
        lane.tables();
        self.heaps.send(lane, slot, 0..self.shape.heaps * self.heap_words)?;
        self.clamped.clear(lane, slot)?;
        self.weights.send(lane)?;
        lane.work()?;
        let Stacked { heaps, spectra, channels, antennas, samples_per_spectrum, .. } = self.shape;
        let spectra = heaps * spectra;
        let mut done = 0;
        // One launch for all adjacent spectra with the same weights.
        while done < spectra {
            let t = timestamp + done as u64 * samples_per_spectrum;
            let weights = self.weights.address(t);
            let end = done + self.weights.run(t, samples_per_spectrum, spectra - done);
            let slots =
                weights + (channels * self.beams * antennas * size_of::<Complex32>()) as u64;
            let arguments = [
                from.into(),
                to.into(),
                weights.into(),
                slots.into(),
                self.heaps.address(slot).into(),
                self.clamped.address(slot).into(),
                self.first_channel.into(),
                (done as u32).into(),
                (end as u32).into(),
            ];
            // SAFETY: the arrays belong to the block and the slot of the job, and the frames to the job; the
            // kernel was compiled for their sizes.
            unsafe { self.kernel.launch(lane.stream(), self.grid, &arguments) }?;
            done = end;
        }
        lane.results()?;
        self.clamped.fetch(lane, slot)
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
        let clamped = self.clamped.host(slot)?;
        let saturated = output.annotations.reset("saturated", clamped.len());
        for (saturated, &clamped) in saturated.iter_mut().zip(clamped.iter()) {
            *saturated = f64::from(clamped);
            self.counts.values_saturated.add(u64::from(clamped));
        }
        debug_assert_eq!(clamped.len(), self.shape.heaps * self.beams);
        Ok(())
    }

    fn retune(&mut self, change: Change) -> Result<(), BlockError> {
        let weights = change.value::<Weights>("beams");
        if weights.is_some_and(|weights| weights.pols != self.pols) {
            let text = "`pol` of a beam cannot change while the block runs on a GPU";
            return Err(BlockError::new(text));
        }
        let is_too_large = |z: &Complex32| !z.re.is_finite() || !z.im.is_finite();
        if weights.is_some_and(|weights| weights.table.iter().any(is_too_large)) {
            return Err(BlockError::new("weights times gain exceed the range of single precision"));
        }
        refuse_many(&["beams"], &self.changes, &change)?;
        self.changes.offer(change)
    }
}
