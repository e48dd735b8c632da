//! The kernel for any GPU: matrix instructions of warps on half-precision numbers.
#![allow(unsafe_code)] // launches

use super::Beamformer;
use super::cpu::Weights;
use super::cuda::{HEAP_HEAD, Kernels, Launch, layout};
use super::tiles::{Tiles, scale};
use crate::common::gpu;
use crate::common::stacked::Stacked;
use fxgraph::cuda::{CudaError, Device, Grid, Kernel, Properties, Tunable};
use fxgraph::diagnostic::codes;
use fxgraph::{At, BlockError, Rejection};
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

/// Upper limit of the words of a version of the weights.
pub(super) fn most_weight_words(shape: &Stacked, beams: usize) -> usize {
    // Two words for a weight; at most four slots for a beam, of two words each.
    2 * shape.channels * beams * shape.antennas + 8 * beams
}

/// Upper limit of the words of the description of a heap.
pub(super) fn most_heap_words(antennas: usize) -> usize {
    HEAP_HEAD + antennas.next_multiple_of(8)
}

/// The kernel, with its launch configurations, without the macros that depend on the GPU's shared memory.
pub(super) fn tunable(parameters: &Beamformer, shape: &Stacked) -> Tunable {
    Tunable {
        program: "beamformer.cu",
        shape: [layout(parameters, shape), gpu::numbers([("WEIGHT_PARTS", 2)])].concat(),
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

/// Diagnostic if the weights of all antennas do not fit in shared memory.
pub(super) fn reject_antennas(
    parameters: &Beamformer,
    shape: &Stacked,
    gpu: &Properties,
) -> Option<Rejection> {
    if tiles(parameters, shape, gpu).is_some() {
        return None;
    }
    let message = format!(
        "the weights of {} antennas do not fit in the shared memory of {}",
        shape.antennas, gpu.name
    );
    Some(Rejection::new(codes::IMPLEMENTATION, At::InputAxis(0, "antenna"), message))
}

/// `kernels/x_engine/beamformer.cu`.
pub(super) struct TensorCore {
    kernel: Kernel,
    grid: Grid,
    tiles: Tiles,
    shape: Stacked,
    beams: usize,
}

impl TensorCore {
    pub(super) fn new(
        parameters: &Beamformer,
        shape: Stacked,
        device: &Arc<Device>,
    ) -> Result<Self, BlockError> {
        let tiles = tiles(parameters, &shape, device.properties()).ok_or_else(|| {
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
        let multiprocessors = device.properties().multiprocessors;
        let at_once = kernel.blocks_per_multiprocessor(32 * warps)? * multiprocessors;
        let sharing = sharing(blocks, items.div_ceil(warps), at_once);
        let grid = Grid::new([blocks, sharing, 1], 32 * warps);
        Ok(Self { kernel, grid, tiles, shape, beams: parameters.beams.len() })
    }

    /// Words of the weights, which the slots follow.
    fn scaled_words(&self) -> usize {
        2 * self.shape.channels * self.beams * self.shape.antennas
    }
}

impl Kernels for TensorCore {
    fn weight_words(&self) -> usize {
        self.scaled_words() + self.tiles.slot_words()
    }

    /// Writes the weights `[channel][beam][antenna]`, divided by the scale of each beam, and then the slots of the
    /// beams with these scales.
    fn write_weights(&self, table: &mut [u32], weights: &Weights) {
        let (scaled, slots) = table.split_at_mut(self.scaled_words());
        let scaled: &mut [Complex32] = bytemuck::cast_slice_mut(scaled);
        scaled.copy_from_slice(&weights.table);
        let scales = scale(scaled, self.beams, self.shape.antennas);
        slots.copy_from_slice(&self.tiles.slots(&weights.pols, &scales));
    }

    fn heap_words(&self) -> usize {
        HEAP_HEAD + self.tiles.padded_antennas()
    }

    fn write_present(&self, words: &mut [u32], valid: &[u32]) {
        for (word, &valid) in words.iter_mut().zip(valid) {
            *word = if valid == 0 { 0 } else { u32::MAX };
        }
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), CudaError> {
        // SAFETY: the caller's arrays have the sizes that the kernel was compiled for.
        unsafe { self.kernel.launch(launch.stream, self.grid, &launch.arguments()) }
    }
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
