//! Sums of products in the memory of a GPU, and the kernels that work on them.
#![allow(unsafe_code)] // launches

use super::bound::{Bound, SAMPLES_IN_32_BITS};
use super::products::{Form, Products, Sizes};
use super::rows::{Piece, Rows, STAGE_BYTES, STAGE_SAMPLES, longest_piece, pieces};
use crate::gpu;
use crate::stacked::Stacked;
use fxgraph::cuda::{Device, DeviceArray, Grid, Kernel, Lane, Pinned};
use fxgraph::diagnostic::codes;
use fxgraph::{At, BlockError, Refusal};
use std::ops::Range;
use std::sync::Arc;

/// Threads of a block of `correlator_rows.cu` and `correlator_dump.cu`.
const THREADS: usize = 256;
/// Antennas and samples that a block of `correlator_rows.cu` moves.
const ROWS_BLOCK: (usize, usize) = (8, 256);
/// `AT_ONCE` of `correlator_dump.cu`.
const CHANNELS_AT_ONCE: usize = 4;
/// Words of the kernels' `State`.
const STATE: usize = 2;
/// Largest grid in y.
const MOST_BLOCKS_Y: usize = 65_535;

/// Refuses what the kernels would have to count with more than 32 bits.
pub(super) fn refuse_size(shape: &Stacked) -> Option<Refusal> {
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
        "kernels cannot count {antennas} antennas, {channels} channels and {spectra} spectra in 32 bits"
    );
    let refusal = Refusal::new(codes::IMPLEMENTATION, At::InputAxis(0, "channel"), message);
    Some(refusal.help("share the channels among several correlators, or use `implementation: cpu`"))
}

/// Sums of one dump, and what is needed to add to them.
pub(super) struct Sums {
    shape: Stacked,
    products: Products,
    rows: Kernel,
    watch: Kernel,
    widen: Kernel,
    settle: Kernel,
    dump: Kernel,
    /// `[channel][row][column][re, im]`, lower triangle.
    visibilities: DeviceArray<i32>,
    /// `[channel][row]`: what the imaginary parts lack, see `kernels/voltages.cuh`.
    real_parts: DeviceArray<i32>,
    /// `[channel][baseline][product][re, im]`, for dumps whose sums can leave 32 bits.
    wide: Option<DeviceArray<i64>>,
    /// `[channel][stage][row][64][re, im]`: samples of a piece that cannot be read from the frame.
    joined: DeviceArray<u8>,
    /// `[heap][antenna]` of the heaps that are added.
    valid: DeviceArray<u32>,
    /// `[baseline]` of the dump.
    counts: DeviceArray<u32>,
    /// Products of the dump that did not fit 32 bits.
    saturated: DeviceArray<u64>,
    /// What the kernels know of the sums.
    state: DeviceArray<u32>,
    /// Of the 32-bit sums.
    bound: Bound,
}

/// Lengths of the arrays of [`Sums`].
struct Lengths {
    visibilities: usize,
    real_parts: usize,
    wide: usize,
    joined: usize,
    valid: usize,
    counts: usize,
}

impl Lengths {
    fn new(shape: &Stacked, spectra_per_dump: u64) -> Self {
        let sizes = sizes(shape);
        let baselines = shape.baselines();
        Self {
            visibilities: sizes.numbers(),
            real_parts: sizes.rows() * shape.channels,
            wide: if spectra_per_dump > SAMPLES_IN_32_BITS as u64 {
                8 * baselines * shape.channels
            } else {
                0
            },
            joined: sizes.rows() * shape.channels * joined_stages(shape) * STAGE_BYTES,
            valid: shape.heaps * shape.antennas,
            counts: baselines,
        }
    }
}

fn sizes(shape: &Stacked) -> Sizes {
    Sizes { antennas: shape.antennas, channels: shape.channels }
}

/// Stages of the longest piece once its heaps are joined.
fn joined_stages(shape: &Stacked) -> usize {
    longest_piece(shape).div_ceil(STAGE_SAMPLES)
}

impl Sums {
    /// Device memory of such sums, in bytes.
    pub(super) fn bytes(shape: &Stacked, spectra_per_dump: u64) -> usize {
        let l = Lengths::new(shape, spectra_per_dump);
        4 * (l.visibilities + l.real_parts + l.valid + l.counts) + 8 * l.wide + l.joined
    }

    /// Sums of nothing.
    pub(super) fn new(
        device: &Arc<Device>,
        form: Form,
        shape: Stacked,
        spectra_per_dump: u64,
    ) -> Result<Self, BlockError> {
        let lengths = Lengths::new(&shape, spectra_per_dump);
        let visibilities = DeviceArray::zeros(device, lengths.visibilities)?;
        let real_parts = DeviceArray::zeros(device, lengths.real_parts)?;
        let wide = match lengths.wide {
            0 => None,
            len => Some(DeviceArray::zeros(device, len)?),
        };
        // Read from the frame, short heaps take more stages than joined.
        let whole = Piece { heap: 0, first: 0, samples: longest_piece(&shape) };
        let of_frame = Rows::of_frame(&shape, 0);
        let stages = of_frame.map_or(0, |rows| rows.stages(&shape, &whole).len());
        let stages = stages.max(joined_stages(&shape));
        let number = |n: usize| n.to_string();
        let layout = vec![
            ("ANTENNAS", number(shape.antennas)),
            ("CHANNELS", number(shape.channels)),
            ("SPECTRA", number(shape.spectra)),
            ("K_MAJOR", number(usize::from(shape.k_major))),
            ("FOUR_BIT", number(usize::from(shape.four_bit))),
        ];
        let dumping = gpu::program(device, "correlator_dump.cu", Vec::new())?;
        Ok(Self {
            shape,
            products: Products::new(device, form, sizes(&shape), stages)?,
            rows: gpu::program(device, "correlator_rows.cu", layout)?.kernel("rows", 0)?,
            watch: dumping.kernel("watch", 0)?,
            widen: dumping.kernel("widen", 0)?,
            settle: dumping.kernel("settle", 0)?,
            dump: dumping.kernel("dump", 0)?,
            visibilities,
            real_parts,
            wide,
            joined: DeviceArray::new(device, lengths.joined)?,
            valid: DeviceArray::new(device, lengths.valid)?,
            counts: DeviceArray::new(device, lengths.counts)?,
            saturated: DeviceArray::new(device, 1)?,
            state: DeviceArray::zeros(device, STATE)?,
            bound: Bound::default(),
        })
    }

    /// Queues the products of heaps `heaps` of the frame at `payload`. `valid` holds `[heap][antenna]`
    /// of these heaps, 0 where an antenna lacks one; without it all are there.
    ///
    /// # Safety
    /// `payload` and `valid` must stay as they are until the job is done.
    pub(super) unsafe fn add<J>(
        &mut self,
        lane: &Lane<J>,
        payload: u64,
        heaps: Range<usize>,
        valid: Option<&Pinned<u32>>,
    ) -> Result<(), BlockError> {
        if let Some(valid) = valid {
            let bytes = heaps.len() * self.shape.antennas * size_of::<u32>();
            // SAFETY: both hold as many elements as a frame has heaps and antennas.
            unsafe { lane.copy(self.valid.address(), valid.address(), bytes) }?;
        }
        let in_place = Rows::of_frame(&self.shape, payload).filter(|_| valid.is_none());
        for piece in pieces(&self.shape, heaps.clone()) {
            if let Some(most) = self.bound.add(piece.samples) {
                self.make_room(lane, most)?;
            }
            let (rows, stages) = if let Some(rows) = in_place {
                (rows, rows.stages(&self.shape, &piece))
            } else {
                let table = valid.map_or(0, |_| {
                    let row = self.shape.antennas * size_of::<u32>();
                    self.valid.address() + ((piece.heap - heaps.start) * row) as u64
                });
                // SAFETY: the caller's promise.
                let rows = unsafe { self.join(lane, payload, &piece, table) }?;
                (rows, 0..piece.samples.div_ceil(STAGE_SAMPLES))
            };
            let (visibilities, real_parts) =
                (self.visibilities.address(), self.real_parts.address());
            // SAFETY: own arrays; rows in the frame are the caller's promise.
            unsafe {
                self.products.launch(lane.stream(), &rows, stages, visibilities, real_parts)
            }?;
        }
        Ok(())
    }

    /// Queues the writing of rows of a piece; `valid` is the address of its table, or 0.
    ///
    /// # Safety
    /// As for [`add`](Self::add).
    unsafe fn join<J>(
        &mut self,
        lane: &Lane<J>,
        payload: u64,
        piece: &Piece,
        valid: u64,
    ) -> Result<Rows, BlockError> {
        let Stacked { antennas, channels, .. } = self.shape;
        let heap_bytes = antennas * channels * self.shape.row_bytes();
        let from = payload + (piece.heap * heap_bytes) as u64;
        let (block_antennas, block_samples) = ROWS_BLOCK;
        let blocks = antennas.div_ceil(block_antennas) * channels;
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
        // SAFETY: the kernel's arguments; it writes the piece's stages only, of which there are at
        // most as many as `joined` holds.
        unsafe { self.rows.launch(lane.stream(), grid, &arguments) }?;
        Ok(Rows::joined(&self.shape, to, stages))
    }

    fn grid(&self) -> Grid {
        let blocks = (2 * self.shape.baselines()).div_ceil(THREADS);
        let channels = self.shape.channels.div_ceil(CHANNELS_AT_ONCE);
        Grid::new([blocks, channels.min(MOST_BLOCKS_Y), 1], THREADS)
    }

    /// Queues a look at the 32-bit sums, which moves them to the 64-bit ones if one of them is
    /// larger than `most`.
    fn make_room<J>(&mut self, lane: &Lane<J>, most: u32) -> Result<(), BlockError> {
        // Without 64-bit sums a dump is too short to need room.
        let Some(wide) = &self.wide else { return Ok(()) };
        let int = |n: usize| n as i32;
        let (channels, inputs) = (self.shape.channels, 2 * self.shape.antennas);
        let rows = Grid::new([(inputs * channels).div_ceil(THREADS), 1, 1], THREADS);
        let (grid, one) = (self.grid(), Grid::new([1, 1, 1], THREADS));
        let visibilities = self.visibilities.address().into();
        let real_parts = self.real_parts.address().into();
        let state = self.state.address().into();
        let [n, baselines, channels] =
            [inputs, self.shape.baselines(), channels].map(|n| int(n).into());
        let watched = [visibilities, state, n, channels];
        let wide = wide.address().into();
        let widened = [visibilities, real_parts, wide, state, most.into(), n, baselines, channels];
        let settled = [real_parts, state, most.into(), n, channels];
        // SAFETY: the kernels' arguments; own arrays of the lengths they expect.
        unsafe {
            self.watch.launch(lane.stream(), rows, &watched)?;
            self.widen.launch(lane.stream(), grid, &widened)?;
            self.settle.launch(lane.stream(), one, &settled)?;
        }
        Ok(())
    }

    /// Queues the dump to the frame at `payload` and starts again from 0. `counts` `[baseline]` is
    /// 0 where there was no input; without it there was everywhere. How many products did not fit
    /// 32 bits is in `saturated` once the job is done.
    ///
    /// # Safety
    /// All three must stay valid until the job is done.
    pub(super) unsafe fn put_out<J>(
        &mut self,
        lane: &Lane<J>,
        payload: u64,
        counts: Option<&Pinned<u32>>,
        saturated: &Pinned<u64>,
    ) -> Result<(), BlockError> {
        self.bound = Bound::default();
        let (n, grid) = (2 * self.shape.antennas, self.grid());
        let table = counts.map_or(0, |_| self.counts.address());
        let arguments = [
            self.visibilities.address().into(),
            self.real_parts.address().into(),
            self.wide.as_ref().map_or(0, DeviceArray::address).into(),
            self.state.address().into(),
            table.into(),
            payload.into(),
            self.saturated.address().into(),
            (n as i32).into(),
            (self.shape.baselines() as i32).into(),
            (self.shape.channels as i32).into(),
        ];
        // SAFETY: the kernel's arguments; own arrays of the lengths it expects, and a frame and
        // tables that are the caller's promise.
        unsafe {
            if let Some(counts) = counts {
                lane.copy(table, counts.address(), self.counts.bytes())?;
            }
            lane.clear(self.saturated.address(), self.saturated.bytes())?;
            self.dump.launch(lane.stream(), grid, &arguments)?;
            lane.clear(self.real_parts.address(), self.real_parts.bytes())?;
            lane.clear(self.state.address(), self.state.bytes())?;
            lane.copy(saturated.address(), self.saturated.address(), self.saturated.bytes())
        }
    }
}
