//! Correlation kernels on the GPU, and the tiling of the visibilities of an array.
#![allow(unsafe_code)] // launches

use super::architecture::Architecture;
use super::rows::{Rows, STAGE_BYTES};
use super::schedule::{Load, Schedule};
use super::tensor_map::{Element, Tensor, TensorMap};
use crate::common::gpu;
use fxgraph::cuda::driver::sys::CUstream;
use fxgraph::cuda::{Arg, CudaError, Device, DeviceArray, Grid, Kernel, Properties};
use std::ops::Range;
use std::sync::Arc;

/// Sizes of the visibilities in device memory: `[channel][row][column][re, im]`, lower triangle used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Pairs of inputs: an antenna with two polarisations, or two antennas with one.
    pub pairs: usize,
    pub channels: usize,
    /// Bits of real and imaginary part as kernels read them: 8 for integers, 16 for half precision.
    pub sample_bits: usize,
}

impl Sizes {
    /// Number of rows and of columns; the last row belongs to no input if the number of inputs is odd.
    pub(super) fn rows(self) -> usize {
        2 * self.pairs
    }

    /// Number of 32-bit words of all visibilities.
    pub(super) fn numbers(self) -> usize {
        2 * self.rows() * self.rows() * self.channels
    }
}

/// Tiling of one kernel, and its launch configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Geometry {
    /// Rows and columns of a tile.
    tile_rows: usize,
    /// Whether one tile covers the whole triangle of a channel.
    single: bool,
    /// Stages of samples in shared memory.
    stages: usize,
    /// Dynamic shared memory in bytes.
    shared_bytes: usize,
    /// Threads per block.
    threads: usize,
}

/// Constants of `kernels/x_engine/correlator_hopper.cu`.
mod hopper {
    pub const BLOCK_ROWS: usize = 32;
    pub const MOST_BLOCKS: usize = 5;
    pub const BLOCKS_OF_MANY: usize = 4;
    pub const THREADS: usize = 384;
    /// Numbers, polarisations, antennas and channels of a box of visibilities: 16 columns of 32 rows, either of both
    /// polarisations or of one.
    pub const BOX: [usize; 4] = [32, 2, BLOCK_ROWS / 2, 1];
    pub const BOX_OF_POLARISATION: [usize; 4] = [32, 1, BLOCK_ROWS, 1];
    pub const ALIGNMENT: usize = 1024;
    /// Shared memory of the boxes of visibilities of both warpgroups.
    pub const SLOTS_BYTES_SINGLE: usize = 2 * 5 * 2 * 4096;
    pub const SLOTS_BYTES_MANY: usize = 2 * 2 * 4 * 4096;
    pub const BARRIER_BYTES: usize = 3 * 8;
    /// Largest useful number of stages.
    pub const MOST_STAGES: usize = 16;
    /// Time of a tile on the diagonal, in percent of one off it, for tiles of 1, 2, 3 and 4 blocks of rows. A tile on
    /// the diagonal has fewer products, but smaller matrix instructions; the last value was measured.
    pub const DIAGONAL_PERCENT: [u64; 4] = [40, 50, 60, 72];
    /// More of it if the polarisations alternate, measured with 4 blocks: they are separated in either tile.
    pub const SEPARATION_PERCENT: u64 = 8;
    /// Number of tiles along a side from which staggered starts of tiles share more data in the cache.
    pub const STAGGERED_TILES: usize = 8;
}

/// Constants of `kernels/x_engine/correlator_tensor_core.cu`.
mod tensor_core {
    pub const THREADS: usize = 256;
    /// Rows of a tile, thread blocks per multiprocessor, and relative speed of full tiles in percent; larger tiles
    /// read less from shared memory.
    pub const TILES: [(usize, usize, usize); 3] = [(128, 1, 100), (96, 2, 90), (64, 3, 75)];
    pub const MOST_STAGES: usize = 6;
    /// Products of the busiest warps for a tile on the diagonal, in percent of one off it.
    pub const DIAGONAL_PERCENT: u64 = 57;
    /// Shared memory that CUDA reserves per thread block, in bytes.
    pub const RESERVED_BYTES: usize = 1024;
}

impl Geometry {
    fn new(architecture: Architecture, rows: usize, gpu: &Properties) -> Self {
        match architecture {
            Architecture::Hopper => Self::hopper(rows, gpu),
            Architecture::TensorCore => Self::tensor_core(rows, gpu),
        }
    }

    fn hopper(rows: usize, gpu: &Properties) -> Self {
        use hopper::{
            ALIGNMENT, BARRIER_BYTES, BLOCK_ROWS, BLOCKS_OF_MANY, MOST_BLOCKS, MOST_STAGES,
            SLOTS_BYTES_MANY, SLOTS_BYTES_SINGLE, THREADS,
        };
        let blocks = rows.div_ceil(BLOCK_ROWS);
        let single = blocks <= MOST_BLOCKS;
        let tile_rows = BLOCK_ROWS * if single { blocks } else { BLOCKS_OF_MANY };
        let (operands, slots) =
            if single { (1, SLOTS_BYTES_SINGLE) } else { (2, SLOTS_BYTES_MANY) };
        let stage_bytes = operands * tile_rows * STAGE_BYTES + BARRIER_BYTES;
        let room = gpu.shared_bytes_per_block.saturating_sub(ALIGNMENT + slots);
        let stages = (room / stage_bytes).clamp(2, MOST_STAGES);
        Self {
            tile_rows,
            single,
            stages,
            shared_bytes: ALIGNMENT + stages * stage_bytes + slots,
            threads: THREADS,
        }
    }

    fn tensor_core(rows: usize, gpu: &Properties) -> Self {
        use tensor_core::{DIAGONAL_PERCENT, MOST_STAGES, RESERVED_BYTES, THREADS, TILES};
        // Work per channel, in units of rows x columns / 100.
        let work = |tile_rows: usize, percent: usize| {
            let tiles = rows.div_ceil(tile_rows);
            let full = 100 * tiles * (tiles - 1) / 2 + DIAGONAL_PERCENT as usize * tiles;
            100 * full * tile_rows * tile_rows / percent
        };
        let [first, others @ ..] = TILES;
        let (tile_rows, resident, _) =
            others.iter().fold(first, |best, &(rows, resident, speed)| {
                if work(rows, speed) < work(best.0, best.2) {
                    (rows, resident, speed)
                } else {
                    best
                }
            });
        let slot_bytes = 2 * tile_rows * STAGE_BYTES;
        let of_all = gpu.shared_bytes_per_multiprocessor / resident;
        let room = gpu.shared_bytes_per_block.min(of_all.saturating_sub(RESERVED_BYTES));
        let stages = (room / slot_bytes).clamp(2, MOST_STAGES);
        Self {
            tile_rows,
            single: rows <= tile_rows,
            stages,
            shared_bytes: stages * slot_bytes,
            threads: THREADS,
        }
    }

    /// Launches for the rows of tiles, for samples whose polarisations alternate or not.
    fn launches(
        &self,
        architecture: Architecture,
        rows: usize,
        sample_bits: usize,
        alternating: bool,
    ) -> Vec<Launch> {
        let tiles = rows.div_ceil(self.tile_rows);
        let stages = ("STAGES", self.stages.to_string());
        if architecture == Architecture::TensorCore {
            let bits = ("SAMPLE_BITS", sample_bits.to_string());
            let defines = vec![bits, ("TILE_ROWS", self.tile_rows.to_string()), stages];
            let diagonal_percent = tensor_core::DIAGONAL_PERCENT;
            return vec![Launch { rows: 0..tiles, defines, diagonal_percent }];
        }
        let launch = |rows: Range<usize>, blocks: usize| Launch {
            rows,
            defines: vec![
                ("SINGLE_TILE", u8::from(self.single).to_string()),
                ("ROW_BLOCKS", blocks.to_string()),
                ("K_MAJOR", u8::from(!alternating).to_string()),
                stages.clone(),
            ],
            diagonal_percent: hopper::DIAGONAL_PERCENT[blocks.min(hopper::BLOCKS_OF_MANY) - 1]
                + if alternating { hopper::SEPARATION_PERCENT } else { 0 },
        };
        let blocks = self.tile_rows / hopper::BLOCK_ROWS;
        let last = rows.div_ceil(hopper::BLOCK_ROWS) - (tiles - 1) * blocks;
        if last == blocks {
            return vec![launch(0..tiles, blocks)];
        }
        vec![launch(0..tiles - 1, blocks), launch(tiles - 1..tiles, last)]
    }
}

/// One launch: a range of rows of tiles, and the macros of its kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Launch {
    rows: Range<usize>,
    defines: Vec<(&'static str, String)>,
    /// Time of a tile on the diagonal, in percent of one off it.
    diagonal_percent: u64,
}

/// Largest number of arguments of a kernel.
const MOST_ARGUMENTS: usize = 15;

/// A kernel with its work list.
struct Part {
    kernel: Kernel,
    grid: Grid,
    segments: DeviceArray<i32>,
    starts: DeviceArray<i32>,
}

/// Kernels of one implementation, with their work lists.
pub(super) struct Products {
    architecture: Architecture,
    sizes: Sizes,
    geometry: Geometry,
    parts: Vec<Part>,
    /// Kernels for alternating polarisations; empty if not needed.
    alternating: Vec<Part>,
    /// Number of stages for which the work lists were computed; the kernels scale them to any number.
    listed: usize,
}

impl Products {
    /// Creates the kernels for visibilities of `sizes` and launches with up to `stages` stages of samples, also of
    /// `alternating` polarisations.
    pub(super) fn new(
        device: &Arc<Device>,
        architecture: Architecture,
        sizes: Sizes,
        stages: usize,
        alternating: bool,
    ) -> Result<Self, CudaError> {
        let gpu = device.properties();
        let geometry = Geometry::new(architecture, sizes.rows(), gpu);
        let source = match architecture {
            Architecture::Hopper => "correlator_hopper.cu",
            Architecture::TensorCore => "correlator_tensor_core.cu",
        };
        let part = |launch: Launch| {
            let kernel = gpu::program(device, source, launch.defines)?
                .kernel("correlate", geometry.shared_bytes)?;
            let resident = kernel.blocks_per_multiprocessor(geometry.threads)?.max(1);
            let schedule = Schedule::new(&Load {
                channels: sizes.channels,
                staggered: architecture == Architecture::Hopper
                    && launch.rows.len() >= hopper::STAGGERED_TILES,
                rows: launch.rows,
                stages,
                blocks: gpu.multiprocessors * resident,
                diagonal_percent: launch.diagonal_percent,
            });
            Ok(Part {
                kernel,
                grid: Grid::new([schedule.blocks(), 1, 1], geometry.threads),
                segments: DeviceArray::from_slice(device, &schedule.segments())?,
                starts: DeviceArray::from_slice(device, &schedule.starts())?,
            })
        };
        let parts = |alternating| {
            let launches =
                geometry.launches(architecture, sizes.rows(), sizes.sample_bits, alternating);
            launches.into_iter().map(part).collect::<Result<_, CudaError>>()
        };
        let own = parts(false)?;
        let alternating = if alternating { parts(true)? } else { Vec::new() };
        Ok(Self { architecture, sizes, geometry, parts: own, alternating, listed: stages })
    }

    /// The kernels' form.
    pub(super) fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// Queues the products of `stages` of `rows`. They are added to the visibilities at `visibilities`. For integers,
    /// the real parts of each row are added to the sums at `real_parts`.
    ///
    /// # Safety
    /// The addresses must be valid until the kernels have run: `rows` as described there, `visibilities` for
    /// [`Sizes::numbers`] words, and `real_parts` for one integer for each row and channel (unused for half
    /// precision).
    pub(super) unsafe fn launch(
        &mut self,
        stream: CUstream,
        rows: &Rows,
        stages: Range<usize>,
        visibilities: u64,
        real_parts: u64,
    ) -> Result<(), CudaError> {
        let int = |n: usize| n as i32;
        let maps = match self.architecture {
            Architecture::Hopper => Some(self.maps(rows, visibilities)?),
            Architecture::TensorCore => None,
        };
        let [pol, antenna, channel, run] = rows.strides.map(|bytes| Arg::from(bytes as i64));
        let tensors: &[Arg<'_>] = match &maps {
            Some(maps) => &maps.each_ref().map(|map| Arg::Bytes(map.bytes())),
            None => &[
                rows.address.into(),
                pol,
                antenna,
                channel,
                run,
                int(rows.run_bytes).into(),
                visibilities.into(),
            ],
        };
        let sizes =
            [real_parts.into(), int(self.sizes.rows()).into(), int(rows.stages_per_run()).into()];
        for part in if rows.alternating { &mut self.alternating } else { &mut self.parts } {
            let work = [
                part.segments.address().into(),
                part.starts.address().into(),
                int(stages.start).into(),
                int(stages.len()).into(),
                int(self.listed).into(),
            ];
            let count = tensors.len() + sizes.len() + work.len();
            let all = tensors.iter().chain(&sizes).chain(&work);
            let mut arguments = [Arg::from(0_u32); MOST_ARGUMENTS];
            arguments.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
            // SAFETY: the arguments match the kernel; the caller guarantees the addresses.
            unsafe { part.kernel.launch(stream, part.grid, &arguments[..count]) }?;
        }
        Ok(())
    }

    /// Tensor maps for the tensor memory accelerator: samples, visibilities, visibilities of rows of one polarisation.
    fn maps(&self, rows: &Rows, visibilities: u64) -> Result<[TensorMap; 3], CudaError> {
        let Sizes { pairs, channels, .. } = self.sizes;
        let n = self.sizes.rows();
        let [pol, pair, channel, run] = rows.strides;
        // Alternating polarisations: the same number of bytes, half of the samples of both polarisations in a row.
        let (lengths, stride) = if rows.alternating {
            ([STAGE_BYTES, 2 * rows.run_bytes / STAGE_BYTES], STAGE_BYTES)
        } else {
            ([rows.run_bytes, 2], pol)
        };
        let samples = Tensor {
            address: rows.address,
            element: Element::Byte,
            lengths: [lengths[0], lengths[1], pairs, channels, rows.runs],
            strides: [1, stride, pair, channel, run],
        };
        let sums = Tensor {
            address: visibilities,
            element: Element::Int,
            lengths: [2 * n, 2, pairs, channels],
            strides: [4, 8 * n, 16 * n, 8 * n * n],
        };
        let of_tile = [STAGE_BYTES, 2, self.geometry.tile_rows / 2, 1, 1];
        // A single tile reads samples once. If the cache also fetches those of the next stage, it is 2.5 % faster on an
        // H100 (K-major); with several tiles it is slower.
        let l2_bytes = if self.geometry.single { 2 * STAGE_BYTES } else { STAGE_BYTES };
        Ok([
            TensorMap::new(&samples, of_tile, l2_bytes)?,
            TensorMap::new(&sums, hopper::BOX, STAGE_BYTES)?,
            TensorMap::new(&sums, hopper::BOX_OF_POLARISATION, STAGE_BYTES)?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::super::architecture::reject_hopper;
    use super::*;
    use fxgraph::{At, Dtype};

    fn gpu(per_block: usize, per_multiprocessor: usize) -> Properties {
        Properties {
            name: String::new(),
            capability: (9, 0),
            multiprocessors: 132,
            memory_bytes: 1 << 37,
            shared_bytes_per_block: per_block,
            shared_bytes_per_multiprocessor: per_multiprocessor,
            l2_bytes: 50 << 20,
        }
    }

    #[test]
    fn hopper_uses_one_tile_up_to_80_antennas() {
        let gpu = gpu(232_448, 233_472);
        for (antennas, tile_rows, single, stages) in [
            (1, 32, true, 16),
            (16, 32, true, 16),
            (17, 64, true, 16),
            (48, 96, true, 12),
            (64, 128, true, 9),
            (80, 160, true, 7),
            (81, 128, false, 5),
            (512, 128, false, 5),
        ] {
            let geometry = Geometry::new(Architecture::Hopper, 2 * antennas, &gpu);
            let found = (geometry.tile_rows, geometry.single, geometry.stages);
            assert_eq!(found, (tile_rows, single, stages), "{antennas}");
            assert!(geometry.shared_bytes <= gpu.shared_bytes_per_block);
        }
    }

    #[test]
    fn partial_rows_of_tiles_have_a_separate_launch() {
        let gpu = gpu(232_448, 233_472);
        for (antennas, expected) in [
            (80, vec![(0..1, "5")]),
            (81, vec![(0..1, "4"), (1..2, "2")]),
            (128, vec![(0..2, "4")]),
            (197, vec![(0..3, "4"), (3..4, "1")]),
        ] {
            let rows = 2 * antennas;
            let geometry = Geometry::new(Architecture::Hopper, rows, &gpu);
            let launches = geometry.launches(Architecture::Hopper, rows, 8, false);
            let found: Vec<_> =
                launches.iter().map(|l| (l.rows.clone(), l.defines[1].1.as_str())).collect();
            assert_eq!(found, expected, "{antennas}");
        }
    }

    #[test]
    fn tensor_core_tiles_fit_every_gpu() {
        // Compute capability 8.0, 8.6, 9.0.
        for (per_block, per_multiprocessor) in
            [(166_912, 167_936), (101_376, 102_400), (232_448, 233_472)]
        {
            let gpu = gpu(per_block, per_multiprocessor);
            for antennas in [1, 8, 32, 33, 48, 64, 80, 128, 200, 256, 512] {
                let geometry = Geometry::new(Architecture::TensorCore, 2 * antennas, &gpu);
                assert!(geometry.stages >= 2 && geometry.shared_bytes <= per_block);
                assert!([64, 96, 128].contains(&geometry.tile_rows));
            }
        }
    }

    #[test]
    fn tensor_core_selects_tiles_with_least_padding() {
        let gpu = gpu(232_448, 233_472);
        let tile =
            |antennas: usize| Geometry::new(Architecture::TensorCore, 2 * antennas, &gpu).tile_rows;
        assert_eq!([3, 32, 48, 64, 80, 256, 512].map(tile), [64, 64, 96, 128, 96, 128, 128]);
    }

    #[test]
    fn best_kernel_depends_on_gpu_and_voltages() {
        assert_eq!(Architecture::best(Dtype::Ci8, (9, 0)), Architecture::Hopper);
        assert_eq!(Architecture::best(Dtype::Ci8, (12, 0)), Architecture::TensorCore);
        assert_eq!(Architecture::best(Dtype::Cf16, (9, 0)), Architecture::TensorCore);
    }

    #[test]
    fn hopper_rejects_other_gpus_and_half_precision() {
        let [hopper, other] =
            [(9, 0), (12, 0)].map(|capability| Properties { capability, ..gpu(232_448, 233_472) });
        assert!(reject_hopper(Dtype::Ci4, Some(&hopper)).is_none());
        let rejection = reject_hopper(Dtype::Ci8, Some(&other)).unwrap();
        assert_eq!(rejection.at, At::Implementation);
        assert!(rejection.message.contains("12.0"));
        for gpu in [None, Some(&hopper)] {
            let rejection = reject_hopper(Dtype::Cf16, gpu).unwrap();
            assert!(rejection.help.unwrap().contains("tensor_core"));
        }
    }
}
