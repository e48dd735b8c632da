//! Sums of products in device memory, and the kernels that update them.
#![allow(unsafe_code)] // launches

use super::architecture::Architecture;
use super::cuda::missing_flags;
use super::products::{Products, Sizes};
use super::rows::{Piece, Rows, STAGE_BYTES, longest_piece, pieces, stage_samples};
use super::wide_sums::Whole;
use crate::common::gpu;
use crate::common::stacked::Stacked;
use crate::common::units::Units;
use fxgraph::cuda::{Device, DeviceArray, Grid, Kernel, Pinned, Pipeline};
use fxgraph::diagnostic::codes;
use fxgraph::{At, BlockError, Dtype, Rejection};
use std::ops::Range;
use std::sync::Arc;

/// Threads per block of `correlator_rows.cu` and `correlator_dump.cu`.
pub(super) const THREADS: usize = 256;
/// Pairs of rows and stages of samples per thread block of `correlator_rows.cu`.
const ROWS_BLOCK: (usize, usize) = (8, 4);
/// `AT_ONCE` of `correlator_dump.cu`.
const CHANNELS_AT_ONCE: usize = 4;
/// Largest grid in y.
const MOST_BLOCKS_Y: usize = 65_535;

/// Diagnostic for sizes that exceed the 32-bit indices of the kernels.
pub(super) fn reject_size(shape: &Stacked) -> Option<Rejection> {
    let counted = [
        2 * shape.spectra,
        shape.channels.saturating_mul(shape.antennas),
        shape.channels.saturating_mul(2 * shape.baselines()),
    ];
    if counted.iter().all(|&n| i32::try_from(n).is_ok()) {
        return None;
    }
    let Stacked { antennas, channels, spectra, .. } = shape;
    let message = format!(
        "{antennas} antennas, {channels} channels and {spectra} spectra exceed the 32-bit indices of the kernels"
    );
    let rejection = Rejection::new(codes::IMPLEMENTATION, At::InputAxis(0, "channel"), message);
    Some(
        rejection
            .help("split the channels among several correlators, or use `implementation: cpu`"),
    )
}

/// Sums of one dump, with their kernels and tables.
pub(super) struct Sums {
    shape: Stacked,
    products: Products,
    rows: Kernel,
    /// `[channel][row][column][re, im]`, lower triangle: integers or floats.
    visibilities: DeviceArray<u32>,
    /// `[channel][stage][row][byte of the stage]`: samples of a piece that kernels cannot read from the frame.
    joined: DeviceArray<u8>,
    /// Validity of the heaps that are added, `[heap][antenna]`.
    valid: DeviceArray<u32>,
    /// Whether visibilities of the dump are missing: `[baseline]`, or `[channel][baseline][product]`.
    missing: DeviceArray<u8>,
    numbers: Numbers,
}

/// State that depends on the type of the sums.
enum Numbers {
    Integers(Box<Whole>),
    /// Floating-point sums, with the kernel that dumps them.
    Floats(Kernel),
}

/// Addresses of a dump: of the sums, of the frame, and of the flags of baselines or of visibilities without input, both 0
/// if there are none.
pub(super) struct Dump {
    pub visibilities: u64,
    pub payload: u64,
    /// `[baseline]`
    pub missing_baselines: u64,
    /// `[channel][baseline][product]`
    pub missing_products: u64,
}

/// Lengths of the arrays of [`Sums`].
struct Lengths {
    visibilities: usize,
    joined: usize,
    valid: usize,
    missing: usize,
}

impl Lengths {
    fn new(shape: &Stacked) -> Self {
        let sizes = sizes(shape);
        Self {
            visibilities: sizes.numbers(),
            joined: sizes.rows() * shape.channels * joined_stages(shape) * STAGE_BYTES,
            valid: shape.heaps * shape.antennas,
            missing: missing_flags(shape),
        }
    }
}

/// Grid for the baselines and channels of a dump.
pub(super) fn dump_grid(shape: &Stacked) -> Grid {
    let blocks = (shape.pols * shape.baselines()).div_ceil(THREADS);
    let channels = shape.channels.div_ceil(CHANNELS_AT_ONCE);
    Grid::new([blocks, channels.min(MOST_BLOCKS_Y), 1], THREADS)
}

pub(super) fn sizes(shape: &Stacked) -> Sizes {
    let sample_bits = if shape.dtype == Dtype::Cf16 { 16 } else { 8 };
    Sizes { pairs: shape.pairs(), channels: shape.channels, sample_bits }
}

/// Stages of the longest piece after its heaps are joined.
fn joined_stages(shape: &Stacked) -> usize {
    longest_piece(shape).div_ceil(stage_samples(shape))
}

impl Sums {
    /// Device memory of the sums, in bytes.
    pub(super) fn bytes(shape: &Stacked, spectra_per_dump: u64) -> usize {
        let l = Lengths::new(shape);
        let whole = match shape.dtype {
            Dtype::Cf16 => 0,
            _ => Whole::bytes(shape, spectra_per_dump),
        };
        4 * (l.visibilities + l.valid) + l.missing + l.joined + whole
    }

    /// Creates sums of 0.
    pub(super) fn new(
        device: &Arc<Device>,
        architecture: Architecture,
        shape: Stacked,
        spectra_per_dump: u64,
    ) -> Result<Self, BlockError> {
        let lengths = Lengths::new(&shape);
        // Short heaps take more stages if read from the frame than if joined.
        let whole = Piece { heap: 0, first: 0, samples: longest_piece(&shape) };
        let of_frame = Rows::of_frame(architecture, &shape, 0);
        let alternating = of_frame.is_some_and(|rows| rows.alternating);
        let stages = of_frame.map_or(0, |rows| rows.stages(&shape, &whole).len());
        let stages = stages.max(joined_stages(&shape));
        let number = |n: usize| n.to_string();
        let layout = vec![
            ("ANTENNAS", number(shape.antennas)),
            ("CHANNELS", number(shape.channels)),
            ("SPECTRA", number(shape.spectra)),
            ("POLS", number(shape.pols)),
            ("K_MAJOR", number(usize::from(shape.k_major))),
            ("SAMPLE_BITS", number(shape.dtype.bits() / 2)),
        ];
        let dumping =
            gpu::program(device, "correlator_dump.cu", vec![("POLS", number(shape.pols))])?;
        let numbers = match shape.dtype {
            Dtype::Cf16 => Numbers::Floats(dumping.kernel("dump_floats", 0)?),
            _ => Whole::new(device, &dumping, shape, spectra_per_dump)
                .map(|whole| Numbers::Integers(Box::new(whole)))?,
        };
        Ok(Self {
            shape,
            products: Products::new(device, architecture, sizes(&shape), stages, alternating)?,
            rows: gpu::program(device, "correlator_rows.cu", layout)?.kernel("rows", 0)?,
            visibilities: DeviceArray::zeros(device, lengths.visibilities)?,
            joined: DeviceArray::new(device, lengths.joined)?,
            valid: DeviceArray::new(device, lengths.valid)?,
            missing: DeviceArray::new(device, lengths.missing)?,
            numbers,
        })
    }

    /// Queues the products of heaps `heaps` of the frame at `payload`. `valid` `[heap][antenna]` is the validity of
    /// these heaps, 0 where an antenna lacks one; `None` if no heap is missing.
    ///
    /// # Safety
    /// `payload` must not change until the job is done.
    pub(super) unsafe fn add<J>(
        &mut self,
        pipeline: &mut Pipeline<J>,
        payload: u64,
        heaps: Range<usize>,
        valid: Option<&mut Pinned<u32>>,
    ) -> Result<(), BlockError> {
        let some_missing = valid.is_some();
        if let Some(valid) = valid {
            pipeline.send(valid, &self.valid, 0..heaps.len() * self.shape.antennas)?;
        }
        let of_frame = Rows::of_frame(self.products.architecture(), &self.shape, payload);
        let in_place = of_frame.filter(|_| !some_missing);
        for piece in pieces(&self.shape, heaps.clone()) {
            let visibilities = self.visibilities.address();
            let real_parts = match &mut self.numbers {
                Numbers::Integers(whole) => {
                    whole.make_room(pipeline, visibilities, piece.samples)?;
                    whole.real_parts()
                }
                Numbers::Floats(_) => 0,
            };
            let (rows, stages) = if let Some(rows) = in_place {
                (rows, rows.stages(&self.shape, &piece))
            } else {
                let row = self.shape.antennas * size_of::<u32>();
                let first = self.valid.address() + ((piece.heap - heaps.start) * row) as u64;
                let table = if some_missing { first } else { 0 };
                // SAFETY: guaranteed by the caller.
                let rows = unsafe { self.join(pipeline, payload, &piece, table) }?;
                (rows, 0..piece.samples.div_ceil(stage_samples(&self.shape)))
            };
            // SAFETY: the arrays belong to `self`; the caller guarantees the rows in the frame.
            unsafe {
                self.products.launch(pipeline.stream(), &rows, stages, visibilities, real_parts)
            }?;
        }
        Ok(())
    }

    /// Queues the kernel that joins the rows of a piece; `valid` is the address of its validity, or 0.
    ///
    /// # Safety
    /// As for [`add`](Self::add).
    unsafe fn join<J>(
        &mut self,
        pipeline: &Pipeline<J>,
        payload: u64,
        piece: &Piece,
        valid: u64,
    ) -> Result<Rows, BlockError> {
        let Stacked { antennas, channels, .. } = self.shape;
        let heap_bytes = antennas * channels * self.shape.row_bytes();
        let from = payload + (piece.heap * heap_bytes) as u64;
        let (block_pairs, block_stages) = ROWS_BLOCK;
        let block_samples = block_stages * stage_samples(&self.shape);
        let blocks = self.shape.pairs().div_ceil(block_pairs) * channels;
        let grid = Grid::new([blocks, piece.samples.div_ceil(block_samples), 1], THREADS);
        let stages = joined_stages(&self.shape);
        let to = self.joined.address();
        let int = |n: usize| n as i32;
        let arguments = [
            from.into(),
            valid.into(),
            to.into(),
            int(piece.first).into(),
            int(piece.samples).into(),
            int(stages).into(),
        ];
        // SAFETY: the arguments match the kernel; it writes only the stages of the piece, which fit in `joined`.
        unsafe { self.rows.launch(pipeline.stream(), grid, &arguments) }?;
        Ok(Rows::joined(&self.shape, to, stages))
    }

    /// Queues the dump to the frame at `payload` and resets the sums to 0. `missing` has the flags of baselines or
    /// visibilities without input; `None` if there are none. After the job, `saturated` is the number of integer products
    /// that did not fit 32 bits.
    ///
    /// # Safety
    /// `payload` must stay valid until the job is done.
    pub(super) unsafe fn put_out<J>(
        &mut self,
        pipeline: &mut Pipeline<J>,
        payload: u64,
        missing: Option<&mut Pinned<u8>>,
        saturated: &mut Pinned<u64>,
    ) -> Result<(), BlockError> {
        let visibilities = self.visibilities.address();
        let mut dump = Dump { visibilities, payload, missing_baselines: 0, missing_products: 0 };
        if let Some(missing) = missing {
            pipeline.send(missing, &self.missing, 0..self.missing.len())?;
            match self.shape.units {
                Units::Heap => dump.missing_baselines = self.missing.address(),
                Units::Channel => dump.missing_products = self.missing.address(),
            }
        }
        // SAFETY: the arguments match the kernels; the arrays belong to `self` and have the lengths that the
        // kernels expect; the caller guarantees the frame.
        unsafe {
            match &mut self.numbers {
                Numbers::Integers(whole) => whole.put_out(pipeline, &dump, saturated)?,
                Numbers::Floats(kernel) => {
                    let arguments = [
                        dump.visibilities.into(),
                        dump.missing_baselines.into(),
                        dump.missing_products.into(),
                        dump.payload.into(),
                        (sizes(&self.shape).rows() as i32).into(),
                        (self.shape.baselines() as i32).into(),
                        (self.shape.channels as i32).into(),
                    ];
                    kernel.launch(pipeline.stream(), dump_grid(&self.shape), &arguments)?;
                }
            }
        }
        Ok(())
    }
}
