//! The kernel for GPUs of compute capability 9.0: integers on warpgroup matrix instructions.
#![allow(unsafe_code)] // launches

use super::Beamformer;
use super::cpu::Weights;
use super::cuda::{HEAP_HEAD, Kernels, Launch};
use super::tiles;
use crate::common::dither::Dither;
use crate::common::gpu;
use crate::common::stacked::Stacked;
use fxgraph::cuda::{CudaError, Device, Grid, Kernel, Properties};
use fxgraph::diagnostic::codes;
use fxgraph::{At, BlockError, Dtype, Rejection};
use num_complex::Complex32;
use std::sync::Arc;

/// Compute capability that the kernel needs.
pub(super) const CAPABILITY: (usize, usize) = (9, 0);
/// Words of the description of a heap: 16 words of bits for the antennas.
pub(super) const HEAP_WORDS: usize = HEAP_HEAD + 16;
/// Sums of more antennas may exceed 32 bits.
pub(super) const MOST_ANTENNAS: usize = 256;
/// Shared memory of a thread block on these GPUs.
const SHARED_BYTES: usize = 232_448;
/// Antennas per matrix instruction.
const STEP_ANTENNAS: usize = 16;
/// Spectra of a tile.
const TILE_TIMES: usize = 64;
/// Both polarisations of a tile of one antenna are copied by 128 threads, in pieces of this size in bytes.
const PIECE_BYTES: usize = 16;
const WARPGROUP: usize = 128;
/// Weights of a beam for one step: real and imaginary part, each with a high and a low byte for 32 values.
const BEAM_STEP_BYTES: usize = 4 * 32;
/// Key of the noise of a beam.
const KEY_BYTES: usize = 8;
/// Barrier and counter of a buffer of weights, padded.
const BUFFER_BYTES: usize = 16;
const SHARED_ALIGNMENT: usize = 128;
/// Beams per matrix instruction, with the time of a beam relative to that with 16 of them, in percent.
const CHUNKS: [(usize, usize); 3] = [(16, 100), (8, 105), (4, 120)];
/// Numbers of buffers for the weights of a group and of tiles per warpgroup, best first.
const BUFFERS_AND_STAGES: [(usize, usize); 5] = [(2, 3), (2, 2), (2, 1), (1, 2), (1, 1)];
/// Largest weight as an integer: 127 in both bytes.
const MOST: f32 = 32639.0;

/// Whether the kernel supports such a stream, and with heaps of `spectra` is faster than `tensor_core`. Measured on
/// an H200 with 2 to 256 beams of 80 antennas and heaps of 256 spectra.
pub(super) fn is_fast(pols: usize, antennas: usize, spectra: usize) -> bool {
    pols == 2 && antennas <= MOST_ANTENNAS && spectra >= TILE_TIMES / 2
}

/// Upper limit of the words of a version of the weights; 0 for an unsupported input.
pub(super) fn most_weight_words(parameters: &Beamformer, shape: &Stacked) -> usize {
    Layout::new(parameters, shape).map_or(0, |layout| layout.words(shape.channels))
}

/// Diagnostic for an unsupported input, or a GPU without the instructions.
pub(super) fn reject(shape: &Stacked, gpu: Option<&Properties>) -> Option<Rejection> {
    if shape.pols != 2 {
        let message = format!("`hopper` needs 2 polarisations, got {}", shape.pols);
        let help = "set `implementation: tensor_core`, or `cuda`, which selects it";
        let at = At::InputAxis(0, "pol");
        return Some(Rejection::new(codes::IMPLEMENTATION, at, message).help(help));
    }
    if shape.antennas > MOST_ANTENNAS {
        let message =
            format!("`hopper` sums at most {MOST_ANTENNAS} antennas, got {}", shape.antennas);
        let help = "set `implementation: tensor_core`, or `cuda`, which selects it";
        let at = At::InputAxis(0, "antenna");
        return Some(Rejection::new(codes::IMPLEMENTATION, at, message).help(help));
    }
    let Properties { name, capability: (major, minor), .. } =
        gpu.filter(|gpu| gpu.capability != CAPABILITY)?;
    let message =
        format!("`hopper` needs a GPU of compute capability 9.0, {name} has {major}.{minor}");
    let help = "set `implementation: cuda`, which selects the kernel for the installed GPU";
    Some(Rejection::new(codes::IMPLEMENTATION, At::Implementation, message).help(help))
}

/// Division of the beams into groups, whose weights are in shared memory at a time, and of shared memory.
#[derive(Clone, Debug)]
struct Layout {
    /// Slots of beams per group, `[pol]`: multiples of `chunk`.
    slots: [usize; 2],
    /// Beams per matrix instruction.
    chunk: usize,
    /// Matrix instructions in sequence over all antennas.
    steps: usize,
    warpgroups: usize,
    /// Tiles per warpgroup.
    stages: usize,
    /// Bytes of a tile of one antenna.
    row_bytes: usize,
    /// Buffers for the weights of a group.
    buffers: usize,
    dither: bool,
    /// Beam of each slot, `[group][slot]`.
    beams: Vec<Option<usize>>,
}

impl Layout {
    /// Layout with the fewest groups; `None` if there are too many antennas.
    fn new(parameters: &Beamformer, shape: &Stacked) -> Option<Self> {
        if shape.antennas > MOST_ANTENNAS || shape.pols != 2 {
            return None;
        }
        let pols: Vec<usize> = parameters.beams.iter().map(|beam| beam.pol).collect();
        let dither = parameters.dither == Dither::Uniform;
        (1..=pols.len()).find_map(|groups| Self::of_groups(groups, &pols, shape, dither))
    }

    fn of_groups(groups: usize, pols: &[usize], shape: &Stacked, dither: bool) -> Option<Self> {
        let beams = [0, 1].map(|pol| pols.iter().filter(|&&own| own == pol).count());
        let per_group = beams.map(|beams| beams.div_ceil(groups));
        let slots = |chunk: usize| per_group.map(|beams| beams.next_multiple_of(chunk));
        let (chunk, _) = CHUNKS
            .into_iter()
            .min_by_key(|&(chunk, percent)| slots(chunk).iter().sum::<usize>() * percent)?;
        let steps = shape.antennas.div_ceil(STEP_ANTENNAS);
        // Limited by the registers: operands of all antennas, and sums of two chunks.
        let warpgroups = match (steps, chunk) {
            (..=5, ..=8) => 4,
            (..=6, _) => 3,
            _ => 2,
        };
        let value_bytes = if shape.dtype == Dtype::Ci4 { 1 } else { 2 };
        let layout = |(buffers, stages)| Self {
            slots: slots(chunk),
            chunk,
            steps,
            warpgroups,
            stages,
            row_bytes: 2 * TILE_TIMES * value_bytes,
            buffers,
            dither,
            beams: Vec::new(),
        };
        let mut layout = BUFFERS_AND_STAGES
            .map(layout)
            .into_iter()
            .find(|layout| layout.shared_bytes() <= SHARED_BYTES)?;
        layout.beams = tiles::place(pols, layout.slots, groups);
        Some(layout)
    }

    fn groups(&self) -> usize {
        self.beams.len() / self.group_slots()
    }

    /// Slots per group.
    fn group_slots(&self) -> usize {
        self.slots.iter().sum()
    }

    /// Weights of a group in a channel, in bytes.
    fn column_bytes(&self) -> usize {
        self.group_slots() * self.steps * BEAM_STEP_BYTES
    }

    /// The same with its slots.
    fn group_bytes(&self) -> usize {
        self.column_bytes() + self.group_slots() * self.slot_bytes()
    }

    /// `range` of `beamformer_hopper.cu`.
    fn range(&self) -> f32 {
        if self.dither { 254.0 } else { 256.0 }
    }

    /// Size of `Slot` of `beamformer_hopper.cu`.
    fn slot_bytes(&self) -> usize {
        if self.dither { 8 } else { 16 }
    }

    /// Words of the weights of all channels.
    fn words(&self, channels: usize) -> usize {
        channels * self.groups() * self.group_bytes() / size_of::<u32>()
    }

    fn shared_bytes(&self) -> usize {
        let stage = self.steps * STEP_ANTENNAS * self.row_bytes;
        let stages = self.warpgroups * self.stages * stage;
        let buffers = self.buffers * (self.group_bytes() + BUFFER_BYTES);
        let keys = self.warpgroups * if self.dither { self.group_slots() } else { 1 };
        (stages + buffers + keys * KEY_BYTES).next_multiple_of(SHARED_ALIGNMENT)
    }

    /// Writes `weights` `[channel][beam][antenna]` as `[channel][group]` of `Weights` of `beamformer_hopper.cu`.
    /// A value of four bits is 16 times as large in the kernel.
    fn write(&self, table: &mut [u32], weights: &[Complex32], antennas: usize, value_scale: f32) {
        let channels = table.len() / self.words(1);
        let of_channels = weights.chunks_exact(weights.len() / channels);
        for (of_channel, table) in of_channels.zip(table.chunks_exact_mut(self.words(1))) {
            let groups = table.chunks_exact_mut(self.group_bytes() / size_of::<u32>());
            for (group, beams) in groups.zip(self.beams.chunks_exact(self.group_slots())) {
                group.fill(0);
                let (columns, slots) = group.split_at_mut(self.column_bytes() / size_of::<u32>());
                let columns: &mut [u8] = bytemuck::cast_slice_mut(columns);
                let slots = slots.chunks_exact_mut(self.slot_bytes() / size_of::<u32>());
                for ((slot, beam), words) in beams.iter().enumerate().zip(slots) {
                    let Some(beam) = *beam else {
                        words[1] = u32::MAX;
                        continue;
                    };
                    let own = &of_channel[beam * antennas..][..antennas];
                    let unit = unit(own);
                    self.write_beam(columns, slot, own, unit);
                    let scale = unit / value_scale;
                    words[0] = (scale / self.range()).to_bits();
                    words[1] = beam as u32;
                    if !self.dither {
                        words[2] = (127.0 / scale).to_bits();
                    }
                }
            }
        }
    }

    /// Writes the columns of a beam. The product of (re, im) of a voltage with (re, -im) of a weight is the real part of
    /// a sum, the product with (im, re) the imaginary one. The high bytes are in blocks of four beams, 8 columns of 16
    /// bytes each, and the low ones in as many blocks after them.
    fn write_beam(&self, columns: &mut [u8], slot: usize, weights: &[Complex32], unit: f32) {
        const HALF_BYTES: usize = 128;
        const BLOCK_BYTES: usize = 2 * HALF_BYTES;
        let step_bytes = self.chunk * BEAM_STEP_BYTES;
        let low = self.chunk / 4 * BLOCK_BYTES;
        let (chunk, slot) = (slot / self.chunk, slot % self.chunk);
        let first = chunk * self.steps * step_bytes + slot / 4 * BLOCK_BYTES + slot % 4 * 32;
        for (antenna, weight) in weights.iter().enumerate() {
            let in_step = antenna % STEP_ANTENNAS;
            // A thread has antennas n and n + 4 in a word.
            let place = in_step / 8 * HALF_BYTES + in_step % 4 * 4 + in_step / 4 % 2 * 2;
            let at = first + antenna / STEP_ANTENNAS * step_bytes + place;
            let [re, im] = [weight.re, weight.im]
                .map(|part| if unit > 0.0 { (part / unit).round_ties_even() as i32 } else { 0 });
            for (at, pair) in [(at, [re, -im]), (at + 16, [im, re])] {
                let high = pair.map(|value| (value + 128) >> 8);
                let lows = [pair[0] - 256 * high[0], pair[1] - 256 * high[1]];
                columns[at..at + 2].copy_from_slice(&high.map(|byte| byte as u8));
                columns[at + low..at + low + 2].copy_from_slice(&lows.map(|byte| byte as u8));
            }
        }
    }
}

/// Unit of the integers for these weights: a power of two if all weights are multiples of one that is small enough, so
/// that they are exact, or else the smallest possible unit. 0 if all weights are 0, or too small for any output but 0.
fn unit(weights: &[Complex32]) -> f32 {
    let parts = || weights.iter().flat_map(|weight| [weight.re, weight.im]);
    let largest = parts().fold(0.0_f32, |largest, part| largest.max(part.abs()));
    if largest < 1e-30 {
        return 0.0;
    }
    let smallest = largest / MOST;
    // The next power of two: only the exponent of the number.
    let power = f32::from_bits(smallest.to_bits().next_multiple_of(1 << 23));
    let is_exact = parts().all(|part| (part / power).fract() == 0.0);
    if is_exact { power } else { smallest }
}

/// `kernels/x_engine/beamformer_hopper.cu`.
pub(super) struct Hopper {
    /// The kernel for whole tiles, the same with values that are measured, and that for any spectra.
    whole: Kernel,
    measured: Kernel,
    part: Kernel,
    grid: Grid,
    layout: Layout,
    shape: Stacked,
}

impl Hopper {
    pub(super) fn new(
        parameters: &Beamformer,
        shape: Stacked,
        device: &Arc<Device>,
    ) -> Result<Self, BlockError> {
        let layout = Layout::new(parameters, &shape)
            .ok_or_else(|| BlockError::new("too many antennas for this kernel"))?;
        let of_gpu = gpu::numbers([
            ("GROUPS", layout.groups()),
            ("SLOTS_0", layout.slots[0]),
            ("SLOTS_1", layout.slots[1]),
            ("CHUNK", layout.chunk),
            ("WARPGROUPS", layout.warpgroups),
            ("STAGES", layout.stages),
            ("BUFFERS", layout.buffers),
        ]);
        let defines = [super::cuda::layout(parameters, &shape), of_gpu].concat();
        let program = gpu::program(device, "beamformer_hopper.cu", defines)?;
        let blocks = device.properties().multiprocessors;
        Ok(Self {
            whole: program.kernel("beamform", layout.shared_bytes())?,
            measured: program.kernel("beamform_measured", layout.shared_bytes())?,
            part: program.kernel("beamform_part", layout.shared_bytes())?,
            grid: Grid::new([blocks, 1, 1], WARPGROUP * layout.warpgroups),
            layout,
            shape,
        })
    }
}

impl Kernels for Hopper {
    fn weight_words(&self) -> usize {
        self.layout.words(self.shape.channels)
    }

    fn write_weights(&self, table: &mut [u32], weights: &Weights) {
        let value_scale = if self.shape.dtype == Dtype::Ci4 { 16.0 } else { 1.0 };
        self.layout.write(table, &weights.table, self.shape.antennas, value_scale);
    }

    fn heap_words(&self) -> usize {
        HEAP_WORDS
    }

    fn write_present(&self, words: &mut [u32], valid: &[u32]) {
        let at_once = WARPGROUP / (self.layout.row_bytes / PIECE_BYTES);
        words.fill(0);
        for (antenna, &valid) in valid.iter().enumerate() {
            words[antenna % at_once] |= u32::from(valid != 0) << (antenna / at_once);
        }
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), CudaError> {
        let edges = [self.shape.spectra, launch.spectra.start, launch.spectra.end];
        let is_whole = edges.iter().all(|edge| edge.is_multiple_of(TILE_TIMES));
        let kernel = match (is_whole, launch.is_measured) {
            (true, true) => &mut self.measured,
            (true, false) => &mut self.whole,
            (false, _) => &mut self.part,
        };
        // SAFETY: the caller's arrays have the sizes that the kernels were compiled for.
        unsafe { kernel.launch(launch.stream, self.grid, &launch.arguments()) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::common::units::Units;

    /// Layout of `beams` beams, of which every third has polarisation 1, or all have `pol`.
    fn layout(
        beams: usize,
        antennas: usize,
        pol: Option<usize>,
        dither: &str,
    ) -> Option<(Layout, Vec<usize>)> {
        let pols: Vec<usize> = (0..beams).map(|n| pol.unwrap_or(usize::from(n % 3 == 1))).collect();
        let beams: Vec<_> = pols.iter().map(|pol| serde_json::json!({ "pol": pol })).collect();
        let parameters: Beamformer =
            serde_json::from_value(serde_json::json!({ "beams": beams, "dither": dither }))
                .unwrap();
        let shape = Stacked {
            heaps: 1,
            antennas,
            channels: 2,
            pols: 2,
            spectra: 64,
            samples_per_spectrum: 4,
            k_major: false,
            dtype: Dtype::Ci8,
            units: Units::Heap,
        };
        Some((Layout::new(&parameters, &shape)?, pols))
    }

    #[test]
    fn layout_fits_with_one_slot_for_each_beam() {
        for antennas in [1, 16, 17, 80, 81, 129, 256] {
            for beams in [1, 2, 5, 16, 33, 64, 130, 256, 1000] {
                for (pol, dither) in
                    [(None, "none"), (Some(0), "uniform"), (Some(1), "none"), (None, "uniform")]
                {
                    let (layout, pols) = layout(beams, antennas, pol, dither).unwrap();
                    assert!(layout.shared_bytes() <= SHARED_BYTES);
                    let mut placed = Vec::new();
                    for (at, beam) in layout.beams.iter().enumerate() {
                        let slot = at % layout.group_slots();
                        let Some(beam) = *beam else { continue };
                        assert_eq!(pols[beam], usize::from(slot >= layout.slots[0]));
                        placed.push(beam);
                    }
                    placed.sort_unstable();
                    assert!(placed.into_iter().eq(0..beams), "{antennas} {beams} {pol:?}");
                }
            }
        }
        assert!(layout(1, 257, None, "none").is_none());
    }

    /// Operands are in the order in which the threads of a matrix instruction hold voltages: thread q has bytes 4 q to
    /// 4 q + 3 of each 16 bytes, which are antennas q and q + 4.
    #[test]
    fn columns_multiply_the_voltages_of_their_antennas() {
        for dither in ["none", "uniform"] {
            check_columns(37, dither);
        }
    }

    fn check_columns(antennas: usize, dither: &str) {
        let (layout, _) = layout(21, antennas, None, dither).unwrap();
        let weight = |n: usize| Complex32::from_polar(0.1 + n as f32 % 7.0, n as f32);
        let weights: Vec<_> = (0..2 * 21 * antennas).map(weight).collect();
        let mut table = vec![0xabab_abab; layout.words(2)];
        layout.write(&mut table, &weights, antennas, 1.0);
        let bytes: &[u8] = bytemuck::cast_slice(&table);
        let voltage = |antenna: usize| ((antenna * 7 % 13) as i64 - 6, (antenna % 5) as i64 - 2);
        let groups = bytes.chunks_exact(layout.group_bytes());
        for (index, group) in groups.enumerate() {
            let channel = index / layout.groups();
            let beams = &layout.beams[index % layout.groups() * layout.group_slots()..];
            for (slot, beam) in beams[..layout.group_slots()].iter().enumerate() {
                let words: &[u32] = bytemuck::cast_slice(
                    &group[layout.column_bytes() + slot * layout.slot_bytes()..]
                        [..layout.slot_bytes()],
                );
                let Some(beam) = *beam else {
                    assert_eq!(words[1], u32::MAX);
                    continue;
                };
                assert_eq!(words[1], beam as u32);
                let chunk = slot / layout.chunk;
                let columns = layout.chunk * 4;
                // Sum over all bytes of a column of 256 hi + lo times the voltage.
                let sum = |part: usize| {
                    let mut sum = 0;
                    for step in 0..layout.steps {
                        for k in 0..32 {
                            let antenna = 16 * step + k / 16 * 8 + k % 16 / 4 + k % 4 / 2 * 4;
                            let byte = |column: usize| {
                                let at = (chunk * layout.steps + step) * columns * 32;
                                let at = at + column / 8 * 256 + k / 16 * 128;
                                i64::from(group[at + column % 8 * 16 + k % 16] as i8)
                            };
                            let column = slot % layout.chunk * 2 + part;
                            let value = 256 * byte(column) + byte(column + columns / 2);
                            let voltage = voltage(antenna);
                            let voltage = if k % 2 == 0 { voltage.0 } else { voltage.1 };
                            if antenna >= antennas {
                                assert_eq!(value, 0);
                            }
                            sum += value * voltage;
                        }
                    }
                    sum as f32 * f32::from_bits(words[0]) * layout.range()
                };
                let own = &weights[(channel * 21 + beam) * antennas..][..antennas];
                let expected: Complex32 = (0..antennas)
                    .map(|antenna| {
                        let (re, im) = voltage(antenna);
                        own[antenna] * Complex32::new(re as f32, im as f32)
                    })
                    .sum();
                let error = Complex32::new(sum(0), sum(1)) - expected;
                // Of 37 weights up to 7, rounded to 16 bits, times voltages up to 6.
                assert!(error.norm() < 0.02, "{channel} {beam} {error}");
            }
        }
    }

    #[test]
    fn weights_that_are_multiples_of_a_power_of_two_are_exact() {
        let weights = [0.25, -0.75, 1.0, 0.0].map(|re| Complex32::new(re, 0.5));
        let power = unit(&weights);
        assert_eq!(power.to_bits() & 0x7f_ffff, 0);
        assert!(1.0 / power <= MOST && 1.0 / power > MOST / 2.0);
        let smallest = 0.3 / MOST;
        assert_eq!(unit(&[Complex32::new(0.3, 0.1)]).to_bits(), smallest.to_bits());
        assert_eq!(unit(&[Complex32::new(0.0, 0.0)]).to_bits(), 0);
    }
}
