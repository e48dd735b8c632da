//! The block on a GPU.
#![allow(unsafe_code)] // launches on memory that the block or the job owns

use super::heaps::{Collector, Piece};
use super::{Layout, Postproc};
use crate::dither::Dither;
use crate::gpu::{self, Table};
use crate::spectra::Shape;
use fxgraph::cuda::{
    Arg, CudaError, Device, DeviceArray, Grid, IN_FLIGHT, Kernel, Lane, Tunable, frame_address,
};
use fxgraph::diagnostic::codes;
use fxgraph::{At, Block, BlockError, Env, Frame, FrameMut, Io, Next, Refusal, async_trait};
use num_complex::Complex32;
use std::sync::Arc;

/// Threads of a block of the kernel that makes values: as many as suit most cases, and others.
const THREADS: [usize; 3] = [256, 128, 512];
/// Most tiles that a block does one after the other, and rounds of blocks that there should be.
const MOST_IN_TURN: usize = 4;
const ROUNDS: usize = 4;
/// Threads of a block of the kernel that makes rows.
const ROW_THREADS: usize = 128;
/// Bytes of what is the same for all channels of a spectrum.
const ROW_BYTES: usize = 32;
/// Polarisations that alternate at most.
const MOST_MIXED_POLS: usize = 2;
/// Bytes of a channel that a thread writes.
const THREAD_BYTES: usize = 16;

/// How the work is cut up, as in `postproc.cu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tiles {
    spectra_per_heap: usize,
    /// Spectra of a tile: of both halves of a warp.
    spectra: usize,
    /// Polarisations that do not alternate.
    pols_apart: usize,
    channel_blocks: usize,
    /// Of a block, half of which are places of a spectrum.
    threads: usize,
}

impl Tiles {
    fn new(postproc: &Postproc, shape: Shape, threads: usize) -> Self {
        let values = THREAD_BYTES / if postproc.bits == 8 { 2 } else { 1 };
        let (mixed_pols, pols_apart) = match postproc.layout {
            Layout::Standard => (shape.pols, 1),
            Layout::KMajor => (1, shape.pols),
        };
        let places = match shape.unzip {
            1 => shape.channels / 2,
            unzip => shape.channels / unzip / 2 + 1,
        };
        Self {
            spectra_per_heap: postproc.spectra_per_heap,
            spectra: 2 * values / mixed_pols,
            pols_apart,
            channel_blocks: places.div_ceil(threads / 2),
            threads,
        }
    }

    /// The tile that a spectrum is in, by its place among those of all heaps.
    fn of(&self, place: usize) -> usize {
        let (heap, in_heap) = (place / self.spectra_per_heap, place % self.spectra_per_heap);
        heap * self.spectra_per_heap.div_ceil(self.spectra) + in_heap / self.spectra
    }

    fn of_piece(&self, piece: &Piece) -> usize {
        self.of(piece.place + piece.count - 1) - self.of(piece.place) + 1
    }

    /// How many tiles of a piece a block of threads does one after the other: more of them share
    /// what is the same for all spectra, but all multiprocessors must have work to the end.
    fn in_turn(&self, piece: &Piece, blocks_at_once: usize) -> usize {
        let blocks = self.of_piece(piece) * self.channel_blocks * self.pols_apart;
        (blocks / (blocks_at_once * ROUNDS).max(1)).clamp(1, MOST_IN_TURN)
    }

    fn grid(&self, piece: &Piece, in_turn: usize) -> Grid {
        let blocks = self.of_piece(piece).div_ceil(in_turn);
        Grid::new([blocks, self.channel_blocks, self.pols_apart], self.threads)
    }
}

/// What is queued on the GPU.
struct Job {
    _input: Option<Arc<Frame>>,
    output: Option<Output>,
}

/// The output frame of the job that completes it.
struct Output {
    frame: FrameMut,
    /// Of its counts.
    place: usize,
    /// Otherwise it is left out: its readers see the gap in the timestamps.
    has_valid_heap: bool,
}

/// Refuses more polarisations than the kernel lets alternate.
pub fn refuse_pols(postproc: &Postproc, shape: Shape) -> Option<Refusal> {
    if postproc.layout == Layout::KMajor || shape.pols <= MOST_MIXED_POLS {
        return None;
    }
    let message = format!("a GPU does not let {} polarisations alternate", shape.pols);
    let refusal = Refusal::new(codes::IMPLEMENTATION, At::InputAxis(0, "pol"), message);
    Some(refusal.help("use `layout: k_major`, or `implementation: cpu`"))
}

/// The kernel that makes values, with the ways to cut it.
pub fn tunable(postproc: &Postproc, shape: Shape) -> Tunable {
    let has_own_gain = |pol: usize| !postproc.gains.of_pol(pol, shape.channels).1;
    Tunable {
        program: "postproc.cu",
        shape: gpu::numbers([
            ("CHANNELS", shape.channels),
            ("PITCH", shape.pitch),
            ("UNZIP", shape.unzip),
            ("POLS", shape.pols),
            ("SPECTRA_PER_HEAP", postproc.spectra_per_heap),
            ("BITS", usize::from(postproc.bits)),
            ("K_MAJOR", usize::from(postproc.layout == Layout::KMajor)),
            ("DITHER", usize::from(postproc.dither == Dither::Uniform)),
            ("GAINS", usize::from((0..shape.pols).any(has_own_gain))),
        ]),
        ways: THREADS.map(|threads| gpu::numbers([("THREADS", threads)])).to_vec(),
    }
}

/// Bytes in device memory that the block takes for itself.
pub fn device_bytes(postproc: &Postproc, shape: Shape) -> usize {
    let rows = shape.pols * shape.spectra;
    let gains = 8 * shape.pols * shape.channels;
    Table::<u8>::device_bytes(rows * ROW_BYTES)
        + Table::<f64>::device_bytes(2 * rows)
        + Table::<u64>::device_bytes(postproc.heaps_per_frame * shape.pols)
        + gains
}

/// Gains of all channels, and what each channel has besides; of all polarisations.
struct DeviceGains {
    /// \[pol\]\[re, im\].
    common: DeviceArray<f64>,
    /// \[pol\]\[channel\].
    each: DeviceArray<Complex32>,
}

impl DeviceGains {
    fn new(postproc: &Postproc, shape: Shape, device: &Arc<Device>) -> Result<Self, CudaError> {
        let of_pols: Vec<_> =
            (0..shape.pols).map(|pol| postproc.gains.of_pol(pol, shape.channels)).collect();
        let differ = of_pols.iter().any(|(_, all_equal)| !all_equal);
        let one = Complex32::new(1.0, 0.0);
        let common = of_pols.iter().map(|(gains, _)| if differ { one } else { gains[0] });
        let common: Vec<f64> = common.flat_map(|z| [f64::from(z.re), f64::from(z.im)]).collect();
        let each: Vec<Complex32> = of_pols.iter().flat_map(|(gains, _)| gains).copied().collect();
        Ok(Self {
            common: DeviceArray::from_slice(device, &common)?,
            each: DeviceArray::from_slice(device, &each)?,
        })
    }
}

/// The running block.
pub struct Cuda {
    /// First, so that it waits for the GPU before anything else is dropped.
    lane: Lane<Job>,
    make_rows: Kernel,
    make_values: Kernel,
    tiles: Tiles,
    /// Blocks of `make_values` that the device runs at once.
    blocks_at_once: usize,
    shape: Shape,
    heap_bytes: usize,
    dither_seed: u64,
    gains: DeviceGains,
    // What belongs to an input frame or to an output frame has places that take turns as the slots of
    // jobs do, but frame by frame: a frame may take several jobs.
    /// \[phase, fine delay\]\[pol\]\[spectrum\] of the input frame.
    delays: Table<f64>,
    /// \[pol\]\[spectrum\] of the input frame.
    rows: Vec<DeviceArray<u8>>,
    inputs_begun: usize,
    /// \[heap\]\[pol\] of the output frame.
    saturated: Table<u64>,
    outputs_begun: usize,
    collector: Collector,
    /// The input frame being read, and the next of its spectra.
    input: Option<(Arc<Frame>, usize)>,
    /// The output frame being filled.
    filling: Option<FrameMut>,
}

impl Cuda {
    pub fn new(postproc: &Postproc, shape: Shape, env: &Env) -> Result<Self, BlockError> {
        let lane = Lane::new(env)?;
        let device = Arc::clone(lane.device());
        let gains = DeviceGains::new(postproc, shape, &device)?;
        let tunable = tunable(postproc, shape);
        let way = tunable.chosen(&device);
        let threads = tunable.number(way, "THREADS");
        let program = gpu::program(&device, tunable.program, tunable.defines(way))?;
        let make_values = program.kernel("postproc", 0)?;
        let multiprocessors = device.properties().multiprocessors;
        let rows = shape.pols * shape.spectra;
        let counts = postproc.heaps_per_frame * shape.pols;
        let values = shape.pols * shape.channels * postproc.spectra_per_heap;
        Ok(Self {
            lane,
            make_rows: program.kernel("postproc_rows", 0)?,
            tiles: Tiles::new(postproc, shape, threads),
            blocks_at_once: make_values.blocks_per_multiprocessor(threads)? * multiprocessors,
            make_values,
            shape,
            heap_bytes: values * if postproc.bits == 8 { 2 } else { 1 },
            dither_seed: postproc.dither_seed,
            gains,
            delays: Table::new(&device, 2 * rows)?,
            rows: gpu::for_each_slot(|| DeviceArray::new(&device, rows * ROW_BYTES))?,
            inputs_begun: 0,
            saturated: Table::new(&device, counts)?,
            outputs_begun: 0,
            collector: Collector::new(postproc, shape, &env.counters),
            input: None,
            filling: None,
        })
    }

    /// Where the tables of the input frame being read are.
    fn input_place(&self) -> usize {
        self.inputs_begun % IN_FLIGHT
    }

    /// Where the counts of the output frame being filled are.
    fn output_place(&self) -> usize {
        self.outputs_begun % IN_FLIGHT
    }

    /// Queues what is the same for all channels of a new input frame's spectra.
    fn queue_rows(&mut self, input: &Frame) -> Result<(), BlockError> {
        self.inputs_begun = self.inputs_begun.wrapping_add(1);
        let place = self.input_place();
        let header = input.header();
        let count = self.shape.pols * self.shape.spectra;
        let tables = ["phase_turns", "fine_delay_samples"].map(|name| header.annotations.get(name));
        for (to, table) in self.delays.host_mut(place).chunks_exact_mut(count).zip(tables) {
            // A stream without delays has no tables.
            let known = table.len().min(count);
            to[..known].copy_from_slice(&table[..known]);
            to[known..].fill(0.0);
        }
        self.delays.send(&self.lane, place, 0..2 * count)?;
        let delays = self.delays.address(place);
        let arguments = [
            delays.into(),
            (delays + (count * size_of::<f64>()) as u64).into(),
            self.gains.common.address().into(),
            self.rows[place].address().into(),
            (self.shape.spectra as u32).into(),
            self.collector.number(header).into(),
            self.dither_seed.into(),
        ];
        let grid = Grid::new([count.div_ceil(ROW_THREADS), 1, 1], ROW_THREADS);
        // SAFETY: the arguments are those of the kernel, all of them the block's own.
        unsafe { self.make_rows.launch(self.lane.stream(), grid, &arguments) }?;
        Ok(())
    }

    /// Queues a piece of an input frame.
    fn queue_piece(
        &mut self,
        input: &Frame,
        output: &Frame,
        piece: &Piece,
    ) -> Result<(), BlockError> {
        let device = self.lane.device();
        let number = |n: usize| Arg::from(n as u32);
        let in_turn = self.tiles.in_turn(piece, self.blocks_at_once);
        let arguments = [
            frame_address(input, device)?.into(),
            self.rows[self.input_place()].address().into(),
            self.gains.each.address().into(),
            frame_address(output, device)?.into(),
            self.saturated.address(self.output_place()).into(),
            number(self.shape.spectra),
            number(piece.from),
            number(piece.place),
            number(piece.count),
            number(self.tiles.of(piece.place)),
            number(in_turn),
        ];
        // SAFETY: the arguments are those of the kernel; the job owns the input; the output is the
        // job's or stays with the block, which the lane outlasts.
        let grid = self.tiles.grid(piece, in_turn);
        let queued = unsafe { self.make_values.launch(self.lane.stream(), grid, &arguments) };
        Ok(queued?)
    }

    /// Queues what completes an output frame: the clearing of heaps that lack a spectrum, and the
    /// copy of the counts.
    fn queue_end(&mut self, mut frame: FrameMut) -> Result<Output, BlockError> {
        self.lane.results()?;
        let address = frame_address(&frame, self.lane.device())?;
        for heap in self.collector.invalid(frame.header()) {
            let heap = address + (heap * self.heap_bytes) as u64;
            // SAFETY: the heap lies within the frame, which the job owns.
            unsafe { self.lane.clear(heap, self.heap_bytes) }?;
        }
        let place = self.output_place();
        self.saturated.fetch(&self.lane, place)?;
        let has_valid_heap = self.collector.complete(frame.header_mut());
        Ok(Output { frame, place, has_valid_heap })
    }

    /// Completes the output frame being filled, which gets no more spectra.
    fn submit_end(&mut self) -> Result<(), BlockError> {
        let Some(frame) = self.filling.take() else { return Ok(()) };
        self.lane.begin(frame.header().timestamp)?;
        let output = self.queue_end(frame)?;
        self.lane.submit(Job { _input: None, output: Some(output) })
    }

    /// Puts those spectra of `input` from number `from` on that belong to the output frame being
    /// filled into it; the number of the next one.
    fn submit_piece(
        &mut self,
        input: &Arc<Frame>,
        from: usize,
        mut frame: FrameMut,
        is_new: bool,
    ) -> Result<usize, BlockError> {
        let piece = self.collector.piece(input.header(), from, frame.header_mut());
        self.lane.begin(input.header().timestamp)?;
        self.lane.tables();
        if from == 0 {
            self.queue_rows(input)?;
        }
        if is_new {
            self.outputs_begun = self.outputs_begun.wrapping_add(1);
            self.saturated.clear(&self.lane, self.output_place())?;
        }
        self.lane.work()?;
        self.queue_piece(input, &frame, &piece)?;
        let output = if self.collector.is_last(&piece) {
            Some(self.queue_end(frame)?)
        } else {
            self.filling = Some(frame);
            None
        };
        self.lane.submit(Job { _input: Some(Arc::clone(input)), output })?;
        Ok(from + piece.count)
    }

    /// Hands on what a job has completed.
    fn hand_on(&mut self, job: Job, io: &mut Io<'_>) {
        let Some(Output { mut frame, place, has_valid_heap: true }) = job.output else { return };
        let saturated = self.saturated.host(place).iter().copied();
        self.collector.annotate_saturated(frame.header_mut(), saturated);
        io.outputs[0].push(frame);
    }
}

#[async_trait]
impl Block for Cuda {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while io.outputs[0].has_room()
            && let Some(job) = self.lane.done()?
        {
            self.hand_on(job, io);
        }
        if !self.lane.has_room() {
            return Ok(Next::Wait);
        }
        let Some((input, from)) = self.input.take() else {
            if let Some(frame) = io.inputs[0].pop() {
                if self.collector.accept(frame.header()) {
                    self.input = Some((frame, 0));
                }
                return Ok(Next::Again);
            }
            if !io.inputs[0].ended() {
                return Ok(Next::Wait);
            }
            self.submit_end()?;
            return Ok(if self.lane.is_idle() { Next::Finished } else { Next::Wait });
        };
        let first = self.collector.frame_of(input.header(), from);
        let is_other = |frame: &FrameMut| self.collector.number(frame.header()) != first;
        if self.filling.as_ref().is_some_and(is_other) {
            self.submit_end()?;
            self.input = Some((input, from));
            return Ok(Next::Again);
        }
        let is_new = self.filling.is_none();
        let begin = || {
            let mut frame = io.outputs[0].take()?;
            self.collector.begin(first, frame.header_mut());
            Some(frame)
        };
        let Some(frame) = self.filling.take().or_else(begin) else {
            self.input = Some((input, from));
            return Ok(Next::Wait);
        };
        let next = self.submit_piece(&input, from, frame, is_new)?;
        if next < self.shape.spectra {
            self.input = Some((input, next));
        }
        Ok(Next::Again)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::chain::kind;
    use serde_json::json;

    #[test]
    fn a_piece_has_all_tiles_that_its_spectra_are_in() {
        let postproc: Postproc = kind(json!({"spectra_per_heap": 21, "heaps_per_frame": 3}));
        let shape = Shape {
            pols: 2,
            spectra: 10,
            unzip: 1,
            channels: 4096,
            pitch: 4096,
            step: 8192,
            is_complex: false,
        };
        let tiles = Tiles::new(&postproc, shape, 256);
        // Of 8 spectra: three for each heap.
        assert_eq!([0, 7, 8, 20, 21, 62].map(|place| tiles.of(place)), [0, 0, 1, 2, 3, 8]);
        let piece = |place, count| Piece { from: 0, place, count };
        assert_eq!(tiles.grid(&piece(6, 3), 1).blocks, [2, 16, 1]);
        assert_eq!(tiles.grid(&piece(20, 2), 1).blocks, [2, 16, 1]);
        // 9 tiles and 16 parts of the channels: 144 blocks.
        assert_eq!([1, 10, 36, 400].map(|n| tiles.in_turn(&piece(0, 63), n)), [4, 3, 1, 1]);
        assert_eq!(tiles.grid(&piece(0, 63), 4).blocks, [3, 16, 1]);
    }
}
