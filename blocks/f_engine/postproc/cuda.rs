//! The block on a GPU.
#![allow(unsafe_code)] // launches on memory that the block or the job owns

use super::device_settings::{DeviceSettings, GainKernels, GainStretch, Rows, differ};
use super::heaps::{Collector, Piece};
use super::tiles::Tiles;
use super::{Layout, Postproc};
use crate::common::dither::Dither;
use crate::common::gpu::{self, Table};
use crate::common::live::Live;
use crate::common::spectra::{MIN_CHANNELS, Shape};
use crate::common::versions::reject_many;
use fxgraph::changes::{Change, Changes};
use fxgraph::cuda::{
    Arg, Defines, DeviceArray, IN_FLIGHT, Kernel, Pipeline, Tunable, frame_address,
};
use fxgraph::diagnostic::codes;
use fxgraph::{At, Block, BlockError, Env, Frame, FrameMut, Header, Io, Next, Rejection};
use std::sync::Arc;

/// Threads per block of the kernel `postproc`: the default, and alternatives for tuning.
const THREADS: [usize; 3] = [256, 128, 512];
/// Threads per block of the kernel `postproc_rows`.
const ROW_THREADS: usize = 128;
/// Size of `Row` of `spectrum_row.cuh`: the values that all channels of a spectrum share.
const ROW_BYTES: usize = 32;
/// Largest number of interleaved polarisations.
const MOST_MIXED_POLS: usize = 2;

/// Output frame that a job completes, if any. The CUDA pipeline owns the input frame.
type Job = Option<Output>;

/// Output frame, in the job that completes it.
struct Output {
    frame: FrameMut,
    /// Slot of the counts.
    place: usize,
    /// Whether the frame is sent. Otherwise it is dropped, and readers see the gap in the timestamps.
    has_valid_heap: bool,
}

/// Diagnostics for shapes that the kernel does not support.
pub fn rejections(postproc: &Postproc, shape: Shape) -> Vec<Rejection> {
    reject_pols(postproc, shape).into_iter().chain(reject_channels(shape)).collect()
}

/// Diagnostic for kept channels from an odd channel on, and for interleaved series without whole groups of 4 channels: the
/// kernel reads pairs of channels.
fn reject_channels(shape: Shape) -> Option<Rejection> {
    if shape.unzip > 1 && !shape.channels.is_multiple_of(4 * shape.unzip) {
        let message = format!(
            "the channels must be a multiple of 4 for each of {} series on a GPU, got {}",
            shape.unzip, shape.channels
        );
        let rejection = Rejection::new(codes::IMPLEMENTATION, At::InputAxis(0, "unzip"), message);
        return Some(rejection.help("use a smaller `unzip` in `pfb`, or `implementation: cpu`"));
    }
    if shape.first().is_multiple_of(2) {
        return None;
    }
    let message = format!(
        "`channels` on a GPU must leave out an even number of channels on each side, got {} of {}",
        shape.channels, shape.pitch
    );
    let rejection = Rejection::new(codes::IMPLEMENTATION, At::Parameter("channels"), message);
    let channels = (shape.channels - 2).max(MIN_CHANNELS);
    Some(rejection.help(format!("use {channels} channels, or `implementation: cpu`")))
}

/// Diagnostic for more interleaved polarisations than the kernel supports.
fn reject_pols(postproc: &Postproc, shape: Shape) -> Option<Rejection> {
    if postproc.layout == Layout::KMajor || shape.pols <= MOST_MIXED_POLS {
        return None;
    }
    let message = format!(
        "`layout: standard` on a GPU allows at most {MOST_MIXED_POLS} polarisations, got {}",
        shape.pols
    );
    let rejection = Rejection::new(codes::IMPLEMENTATION, At::InputAxis(0, "pol"), message);
    Some(rejection.help("use `layout: k_major`, or `implementation: cpu`"))
}

/// The kernel `postproc`, with its launch configurations.
pub fn tunable(postproc: &Postproc, shape: Shape) -> Tunable {
    let gains = differ(&postproc.gains.of_shape(&shape));
    Tunable {
        program: "postproc.cu",
        shape: shape_of(postproc, shape, gains),
        ways: THREADS.map(|threads| gpu::numbers([("THREADS", threads)])).to_vec(),
    }
}

/// Macros for this shape, with gains that `differ` from channel to channel, or do not.
fn shape_of(postproc: &Postproc, shape: Shape, differ: bool) -> Defines {
    gpu::numbers([
        ("CHANNELS", shape.channels),
        ("PITCH", shape.pitch),
        ("UNZIP", shape.unzip),
        ("POLS", shape.pols),
        ("SPECTRA_PER_HEAP", postproc.spectra_per_heap),
        ("BITS", usize::from(postproc.bits)),
        ("K_MAJOR", usize::from(postproc.layout == Layout::KMajor)),
        ("DITHER", usize::from(postproc.dither == Dither::Uniform)),
        ("GAINS", usize::from(differ)),
    ])
}

/// Device memory of the block in bytes, without frames.
pub fn device_bytes(postproc: &Postproc, shape: Shape) -> usize {
    let rows = shape.pols * shape.spectra;
    Table::<u8>::device_bytes(rows * ROW_BYTES)
        + Table::<f64>::device_bytes(2 * rows)
        + Table::<u64>::device_bytes(2 * postproc.heaps_per_frame * shape.pols)
        + DeviceSettings::device_bytes(shape.pols, shape.channels)
}

/// The running block.
pub struct Cuda {
    /// First, so that it waits for the GPU before anything else is dropped.
    pipeline: Pipeline<Job>,
    make_rows: Kernel,
    make_values: GainKernels,
    tiles: Tiles,
    /// Resident thread blocks of `make_values` on the whole device.
    blocks_at_once: usize,
    shape: Shape,
    heap_bytes: usize,
    settings: DeviceSettings,
    changes: Changes<Live>,
    // Tables of an input frame or an output frame rotate like the slots of jobs, but frame by frame, because a
    // frame may take several jobs.
    /// `[phase, fine delay][pol][spectrum]` of the input frame.
    delays: Table<f64>,
    /// `[pol][spectrum]` of the input frame.
    rows: Vec<DeviceArray<u8>>,
    inputs_begun: usize,
    /// Counts of clamped values `[heap][pol]` of the output frame, then the sums of squares of its measured values
    /// `[heap][pol]`.
    counts: Table<u64>,
    outputs_begun: usize,
    collector: Collector,
    /// The input frame being read, and the next of its spectra.
    input: Option<(Arc<Frame>, usize)>,
    /// The output frame being filled.
    filling: Option<FrameMut>,
    /// Whether the output frame that was completed last has a valid heap.
    has_valid_heap: bool,
}

impl Cuda {
    pub fn new(postproc: &Postproc, shape: Shape, env: &Env) -> Result<Self, BlockError> {
        let pipeline = Pipeline::new(env)?;
        let device = Arc::clone(pipeline.device());
        let gains = postproc.gains.of_shape(&shape);
        let tunable = tunable(postproc, shape);
        let way = device.chosen(&tunable);
        let threads = tunable.number(way, "THREADS");
        let program = |differ| {
            let macros = [shape_of(postproc, shape, differ), tunable.ways[way].clone()];
            gpu::program(&device, tunable.program, macros.concat())
        };
        let first = program(differ(&gains))?;
        let of_each = || Ok(program(true)?.kernel("postproc", 0)?);
        let make_values = GainKernels::new(first.kernel("postproc", 0)?, &gains, of_each)?;
        let make_rows = first.kernel("postproc_rows", 0)?;
        let order = (0..shape.channels).collect();
        let settings = DeviceSettings::new(&device, &gains, order, postproc.dither_seed)?;
        let multiprocessors = device.properties().multiprocessors;
        let rows = shape.pols * shape.spectra;
        let counts = postproc.heaps_per_frame * shape.pols;
        let values = shape.pols * shape.channels * postproc.spectra_per_heap;
        Ok(Self {
            pipeline,
            make_rows,
            tiles: Tiles::new(postproc, shape, threads),
            blocks_at_once: make_values.first().blocks_per_multiprocessor(threads)?
                * multiprocessors,
            make_values,
            shape,
            heap_bytes: values * if postproc.bits == 8 { 2 } else { 1 },
            settings,
            changes: Changes::default(),
            delays: Table::new(&device, 2 * rows)?,
            rows: gpu::for_each_slot(|| DeviceArray::new(&device, rows * ROW_BYTES))?,
            inputs_begun: 0,
            counts: Table::new(&device, 2 * counts)?,
            outputs_begun: 0,
            collector: Collector::new(postproc, shape, env),
            input: None,
            filling: None,
            has_valid_heap: false,
        })
    }

    /// Slot of the tables of the input frame being read.
    fn input_place(&self) -> usize {
        self.inputs_begun % IN_FLIGHT
    }

    /// Slot of the counts of the output frame being filled.
    fn output_place(&self) -> usize {
        self.outputs_begun % IN_FLIGHT
    }

    /// Queues the kernel that computes the rows of a new input frame: the values that all channels of a spectrum
    /// share.
    fn queue_rows(&mut self, input: &Frame) -> Result<(), BlockError> {
        self.inputs_begun = self.inputs_begun.wrapping_add(1);
        let place = self.input_place();
        let header = input.header();
        let rows = self.shape.pols * self.shape.spectra;
        let tables = ["phase_turns", "fine_delay_samples"].map(|name| header.annotations.get(name));
        for (to, table) in self.delays.host_mut(place)?.chunks_exact_mut(rows).zip(tables) {
            // A stream without delays has no tables.
            let known = table.len().min(rows);
            to[..known].copy_from_slice(&table[..known]);
            to[known..].fill(0.0);
        }
        self.delays.send(&mut self.pipeline, place, 0..2 * rows)?;
        self.settings.send(&mut self.pipeline)?;
        let phases = self.delays.address(place);
        let Shape { spectra, step, .. } = self.shape;
        let of = Rows {
            phases,
            fine_delays: phases + (rows * size_of::<f64>()) as u64,
            to: self.rows[place].address(),
            spectra,
            start: header.timestamp,
            step: step as u64,
        };
        // SAFETY: the kernel takes these arguments, and all memory belongs to the block.
        unsafe { self.settings.make_rows(&self.pipeline, &mut self.make_rows, ROW_THREADS, &of) }
    }

    /// Applies the live updates for the spectra of an input frame.
    fn begin(&mut self, input: &Header) {
        let samples = self.shape.spectra * self.shape.step;
        for (from, live) in self.changes.begin(input.timestamp, samples as u64) {
            self.settings.update(from, live);
        }
        self.settings.advance(input.timestamp);
    }

    /// Stretch of equal gains of an input frame that starts with spectrum `from`.
    fn stretch(&self, input: &Header, from: usize) -> GainStretch {
        let Shape { spectra, step, .. } = self.shape;
        let t = input.timestamp + (from * step) as u64;
        self.settings.stretch(t, step as u64, spectra - from)
    }

    /// Queues the kernel for a piece of an input frame with equal gains, from and to these payloads.
    fn queue_piece(
        &mut self,
        [input, output]: [u64; 2],
        piece: &Piece,
        stretch: &GainStretch,
    ) -> Result<(), BlockError> {
        let number = |n: usize| Arg::from(n as u32);
        let in_turn = self.tiles.in_turn(piece, self.blocks_at_once);
        let saturated = self.counts.address(self.output_place());
        let squares = saturated + (self.counts.slot_len() / 2 * size_of::<u64>()) as u64;
        let arguments = [
            input.into(),
            self.rows[self.input_place()].address().into(),
            stretch.each.into(),
            output.into(),
            saturated.into(),
            squares.into(),
            number(self.shape.spectra),
            number(piece.from),
            number(piece.place),
            number(piece.count),
            number(self.tiles.of(piece.place)),
            number(in_turn),
        ];
        let make_values = self.make_values.of(stretch.differ);
        let grid = self.tiles.grid(piece, in_turn);
        // SAFETY: the arguments match the kernel. The job owns the input. The output belongs to the job or to
        // the block, which passes it on only after the CUDA pipeline has finished with it.
        let queued = unsafe { make_values.launch(self.pipeline.stream(), grid, &arguments) };
        Ok(queued?)
    }

    /// Completes the header of the output frame being filled, and queues the clearing of its invalid heaps and
    /// the download of the counts.
    fn queue_end(&mut self, address: u64) -> Result<(), BlockError> {
        let Some(frame) = &mut self.filling else { return Ok(()) };
        self.pipeline.results()?;
        for heap in self.collector.invalid(frame.header()) {
            let heap = address + (heap * self.heap_bytes) as u64;
            // SAFETY: the heap is within the frame, which the block passes on only after the CUDA pipeline has
            // finished with it.
            unsafe { self.pipeline.clear(heap, self.heap_bytes) }?;
        }
        self.has_valid_heap = self.collector.complete(frame.header_mut());
        let place = self.output_place();
        self.counts.fetch(&mut self.pipeline, place)
    }

    /// Takes the output frame being filled, which gets no more spectra, for the job that completes it.
    fn take_output(&mut self) -> Option<Output> {
        let frame = self.filling.take()?;
        Some(Output { frame, place: self.output_place(), has_valid_heap: self.has_valid_heap })
    }

    /// Submits a job that completes the output frame being filled, which gets no more spectra.
    fn submit_end(&mut self) -> Result<(), BlockError> {
        let Some(frame) = &self.filling else { return Ok(()) };
        let address = frame_address(frame, self.pipeline.device())?;
        self.pipeline.begin(frame.header().timestamp)?;
        self.queue_end(address)?;
        let output = self.take_output();
        self.pipeline.hold(output)?;
        self.pipeline.submit()
    }

    /// Submits a job for the spectra of `input`, from `from` on, that belong to the output frame being filled.
    /// Returns the index of the next spectrum.
    fn submit_piece(
        &mut self,
        input: &Arc<Frame>,
        from: usize,
        is_new: bool,
    ) -> Result<usize, BlockError> {
        let stretch = self.stretch(input.header(), from);
        let Some(frame) = &mut self.filling else { return Ok(from) };
        let piece = self.collector.piece(input.header(), from, stretch.count, frame.header_mut());
        let device = self.pipeline.device();
        let payloads = [frame_address(input, device)?, frame_address(frame, device)?];
        self.pipeline.begin(input.header().timestamp)?;
        self.pipeline.keep(Arc::clone(input))?;
        self.pipeline.tables();
        if from == 0 {
            self.queue_rows(input)?;
        }
        if is_new {
            self.outputs_begun = self.outputs_begun.wrapping_add(1);
            self.counts.clear(&mut self.pipeline, self.outputs_begun % IN_FLIGHT)?;
        }
        // The job owns the output frame only if it completes it.
        self.pipeline.hold(None)?;
        self.pipeline.work()?;
        self.queue_piece(payloads, &piece, &stretch)?;
        if self.collector.is_last(&piece) {
            self.queue_end(payloads[1])?;
            let output = self.take_output();
            self.pipeline.hold(output)?;
        }
        self.pipeline.submit()?;
        Ok(from + piece.count)
    }

    /// Abandons the output frame being filled if `queued` is an error: kernels may still write to the frame, and
    /// its data would not match its header.
    fn settle<T>(&mut self, queued: Result<T, BlockError>) -> Result<T, BlockError> {
        queued.inspect_err(|_| {
            self.pipeline.abandon();
            self.filling = None;
        })
    }

    /// Sends the frame that a job has completed.
    fn hand_on(&mut self, job: Job, io: &mut Io<'_>) -> Result<(), BlockError> {
        let Some(Output { mut frame, place, has_valid_heap: true }) = job else { return Ok(()) };
        let counts = self.counts.host(place)?;
        let (saturated, squares) = counts.split_at(counts.len() / 2);
        let [saturated, squares] = [saturated, squares].map(|counts| counts.iter().copied());
        self.collector.annotate_quantised(frame.header_mut(), saturated, squares);
        io.outputs[0].push(frame);
        Ok(())
    }
}

impl Block for Cuda {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while io.outputs[0].has_room()
            && let Some(job) = self.pipeline.done()?
        {
            self.hand_on(job, io)?;
        }
        if !self.pipeline.has_room() {
            return Ok(Next::Wait);
        }
        let Some((input, from)) = self.input.take() else {
            if !self.settings.has_room(self.pipeline.is_idle()) {
                return Ok(Next::Wait);
            }
            if let Some(frame) = io.inputs[0].pop() {
                if self.collector.accept(frame.header()) {
                    self.begin(frame.header());
                    self.input = Some((frame, 0));
                }
                return Ok(Next::Again);
            }
            if !io.inputs[0].ended() {
                return Ok(Next::Wait);
            }
            let ended = self.submit_end();
            self.settle(ended)?;
            return Ok(if self.pipeline.is_idle() { Next::Finished } else { Next::Wait });
        };
        let first = self.collector.frame_of(input.header(), from);
        let is_other = |frame: &FrameMut| self.collector.number(frame.header()) != first;
        if self.filling.as_ref().is_some_and(is_other) {
            let ended = self.submit_end();
            self.settle(ended)?;
            self.input = Some((input, from));
            return Ok(Next::Again);
        }
        let is_new = self.filling.is_none();
        let begin = || {
            let mut frame = io.outputs[0].take()?;
            self.collector.begin(first, frame.header_mut());
            Some(frame)
        };
        self.filling = self.filling.take().or_else(begin);
        if self.filling.is_none() {
            self.input = Some((input, from));
            return Ok(Next::Wait);
        }
        let queued = self.submit_piece(&input, from, is_new);
        let next = self.settle(queued)?;
        if next < self.shape.spectra {
            self.input = Some((input, next));
        }
        Ok(Next::Again)
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        reject_many(&["gains"], &self.changes, &change)?;
        self.changes.offer(change)
    }
}
