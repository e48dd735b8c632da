//! The block on the CPU: one heap at a time, with the channels shared among threads.

use super::{Beamformer, Counts, MEASURED_HEAPS, count_antennas};
use crate::common::dither::Dither;
use crate::common::output_level::MEASURED_SPECTRA;
use crate::common::stacked::Stacked;
use crate::common::units::{self, Units};
use fxgraph::changes::{Change, Changes, Timed};
use fxgraph::{Block, BlockError, Dtype, Frame, FrameMut, Io, Next};
use fxgraph_dsp::beams::{Layout, Scratch, add_antennas, quantise_beam};
use fxgraph_dsp::dither;
use fxgraph_dsp::power::sum_of_squares;
use fxgraph_dsp::simd::InstructionSet;
use num_complex::Complex32;
use rayon::prelude::*;
use std::sync::Arc;

/// The running block.
pub(super) struct Cpu {
    former: Former,
    workers: Vec<Worker>,
    pool: Option<rayon::ThreadPool>,
    /// Current input and output frame, and the next heap.
    frames: Option<(Arc<Frame>, FrameMut, usize)>,
    /// Number of clamped values of the current frame, `[heap][beam]`.
    saturated: Vec<u64>,
    /// Sums of squares of its measured values, `[heap][beam]`.
    squares: Vec<u64>,
    /// Whether any data of each antenna are there in the current heap.
    present: Vec<u32>,
    counts: Counts,
    changes: Changes<Weights>,
}

/// Data that all threads read.
struct Former {
    instructions: InstructionSet,
    shape: Stacked,
    beams: usize,
    weights: Timed<Weights>,
    dither_seed: Option<u64>,
    first_channel: usize,
    channels_per_worker: usize,
}

/// Weights of the antennas and polarisations of the beams.
pub struct Weights {
    /// `[channel][beam][antenna]`.
    pub table: Vec<Complex32>,
    /// Polarisation of each beam.
    pub pols: Vec<usize>,
}

/// Working memory of one thread.
struct Worker {
    scratch: Scratch,
    /// Scratch memory for the spectra of a heap after a change of the weights.
    changed: Scratch,
    /// Output of the thread's channels of one heap, `[beam][channel][spectrum]`.
    output: Vec<[i8; 2]>,
    /// Number of clamped values of the current heap, `[beam]`.
    saturated: Vec<u64>,
}

/// Working memory of `threads` workers in bytes.
pub(super) fn worker_bytes(shape: &Stacked, beams: usize, threads: usize) -> usize {
    let channels = shape.channels.div_ceil(threads.max(1));
    let rows = 16 * shape.spectra + 8 * beams * shape.spectra + 8 * beams;
    threads.saturating_mul(rows + 2 * beams * channels * shape.spectra)
}

impl Cpu {
    pub(super) fn new(
        parameters: &Beamformer,
        shape: Stacked,
        weights: Weights,
        first_channel: usize,
        threads: usize,
        counts: Counts,
    ) -> Result<Self, BlockError> {
        let beams = parameters.beams.len();
        let channels_per_worker = shape.channels.div_ceil(threads.clamp(1, shape.channels));
        let workers = shape.channels.div_ceil(channels_per_worker);
        let worker = |_| Worker {
            scratch: Scratch::new(shape.spectra, beams),
            changed: Scratch::new(shape.spectra, beams),
            output: vec![[0; 2]; beams * channels_per_worker * shape.spectra],
            saturated: vec![0; beams],
        };
        Ok(Self {
            former: Former {
                instructions: InstructionSet::best(),
                shape,
                weights: Timed::new(weights),
                beams,
                dither_seed: (parameters.dither == Dither::Uniform)
                    .then_some(parameters.dither_seed),
                first_channel,
                channels_per_worker,
            },
            workers: (0..workers).map(worker).collect(),
            pool: crate::common::parallel::pool(workers)?,
            frames: None,
            saturated: vec![0; shape.heaps * beams],
            squares: vec![0; shape.heaps * beams],
            present: vec![0; shape.antennas],
            counts,
            changes: Changes::default(),
        })
    }

    fn heap(&mut self, input: &Frame, output: &mut FrameMut, heap: usize) {
        let Self { former, workers, pool, present, .. } = self;
        let shape = former.shape;
        let units_of_heap = shape.validity_units() / shape.heaps;
        let units = &input.header().validity[heap * units_of_heap..][..units_of_heap];
        units::reduce(units, present);
        let valid = &present[..];
        let of_frame = input.header().timestamp;
        let timestamp = of_frame.saturating_add(heap as u64 * shape.samples_per_heap());
        for (from, weights) in self.changes.begin(timestamp, shape.samples_per_heap()) {
            former.weights.set(from, weights);
        }
        former.weights.advance(timestamp);
        let former = &*former;
        let payload = input.as_slice().expect(fxgraph::ON_HOST);
        let work = |(index, worker): (usize, &mut Worker)| {
            former.channels(worker, index, payload, heap, valid, timestamp);
        };
        match pool {
            Some(pool) => pool.install(|| workers.par_iter_mut().enumerate().for_each(work)),
            None => workers.iter_mut().enumerate().for_each(work),
        }
        let beams = former.beams;
        let (header, payload) = output.parts_mut::<[i8; 2]>().expect(fxgraph::ON_HOST);
        let row = shape.channels * shape.spectra;
        let part = former.channels_per_worker * shape.spectra;
        let rows = payload[heap * beams * row..][..beams * row].chunks_exact_mut(row);
        for (beam, row) in rows.enumerate() {
            for (worker, row) in workers.iter().zip(row.chunks_mut(part)) {
                row.copy_from_slice(&worker.output[beam * part..][..row.len()]);
            }
            let is_measured =
                heap.is_multiple_of(MEASURED_HEAPS) && self.counts.is_measured(of_frame);
            let measured = if is_measured { MEASURED_SPECTRA.min(shape.spectra) } else { 0 };
            let values = row.chunks_exact(shape.spectra).map(|values| &values[..measured]);
            self.squares[heap * beams + beam] =
                values.map(|values| sum_of_squares(values.as_flattened())).sum();
        }
        let antennas = self.counts.heap(valid);
        match shape.units {
            Units::Heap => header.validity[heap] = antennas,
            Units::Channel => {
                let counts = beams * shape.channels;
                let counts = &mut header.validity[heap * counts..][..counts];
                former.count(units, timestamp, counts);
            }
        }
        for beam in 0..beams {
            let saturated = workers.iter().map(|worker| worker.saturated[beam]).sum();
            self.saturated[heap * beams + beam] = saturated;
        }
    }
}

impl Former {
    /// Writes the numbers of antennas `[beam][channel]` of a heap. A beam whose polarisation changes within the heap has
    /// the smaller number.
    fn count(&self, units: &[u32], timestamp: u64, counts: &mut [u32]) {
        let Stacked { spectra, samples_per_spectrum: step, .. } = self.shape;
        counts.fill(u32::MAX);
        let mut done = 0;
        while done < spectra {
            let t = timestamp.saturating_add(done as u64 * step);
            count_antennas(&self.shape, units, &self.weights.at(t).pols, counts);
            done += self.weights.run(t, step, spectra - done);
        }
    }

    /// Computes all beams of the channels of worker `index`.
    fn channels(
        &self,
        worker: &mut Worker,
        index: usize,
        payload: &[u8],
        heap: usize,
        valid: &[u32],
        timestamp: u64,
    ) {
        let Stacked { spectra, antennas, channels, k_major, dtype, .. } = self.shape;
        let layout = Layout { antennas, spectra, k_major, is_4_bit: dtype == Dtype::Ci4 };
        let beams = self.beams;
        let first = index * self.channels_per_worker;
        let last = channels.min(first + self.channels_per_worker);
        worker.saturated.fill(0);
        if valid.iter().all(|&v| v == 0) {
            worker.output.fill([0; 2]);
            return;
        }
        for channel in first..last {
            let rows = (0..antennas)
                .filter(|&a| valid[a] != 0)
                .map(|a| (a, self.shape.row(payload, heap, a, channel)));
            let add = |t: u64, scratch: &mut Scratch| {
                let Weights { table, pols } = self.weights.at(t);
                let weights = &table[channel * beams * antennas..][..beams * antennas];
                add_antennas(self.instructions, &layout, rows.clone(), weights, pols, scratch);
            };
            let step = self.shape.samples_per_spectrum;
            add(timestamp, &mut worker.scratch);
            let mut done = self.weights.run(timestamp, step, spectra);
            while done < spectra {
                let t = timestamp + done as u64 * step;
                add(t, &mut worker.changed);
                worker.scratch.replace_from(done, &worker.changed, spectra);
                done += self.weights.run(t, step, spectra - done);
            }
            for beam in 0..beams {
                let place = [timestamp, (self.first_channel + channel) as u64, beam as u64];
                let dither_key = self.dither_seed.map(|seed| dither::key(seed, &place));
                let at = (beam * self.channels_per_worker + channel - first) * spectra;
                let output = &mut worker.output[at..][..spectra];
                worker.saturated[beam] +=
                    quantise_beam(self.instructions, dither_key, &worker.scratch, beam, output);
            }
        }
    }
}

impl Block for Cpu {
    /// Processes one heap per call, so that large frames do not delay other blocks.
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let (input, mut output, heap) = if let Some(frames) = self.frames.take() {
            frames
        } else {
            if io.inputs[0].peek().is_none() {
                let ended = io.inputs[0].ended();
                return Ok(if ended { Next::Finished } else { Next::Wait });
            }
            let Some(mut output) = io.outputs[0].take() else { return Ok(Next::Wait) };
            let Some(input) = io.inputs[0].pop() else { return Ok(Next::Wait) };
            output.header_mut().continue_from(input.header());
            (input, output, 0)
        };
        self.heap(&input, &mut output, heap);
        if heap + 1 < self.former.shape.heaps {
            self.frames = Some((input, output, heap + 1));
        } else {
            let (saturated, squares) = (self.saturated.iter(), self.squares.iter());
            self.counts.annotate(output.header_mut(), saturated.copied(), squares.copied());
            io.outputs[0].push(output);
        }
        Ok(Next::Again)
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}
