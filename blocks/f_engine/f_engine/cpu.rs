//! The block on the CPU: the arithmetic of `pfb`, `fft` and `postproc`, run by run.

use super::FEngine;
use super::frames::{Frames, Spectra};
use crate::common::parallel::{self, Threads};
use crate::f_engine::fft::cpu::Transform;
use crate::f_engine::pfb::cpu::{Filter, batch};
use crate::f_engine::postproc::quantiser::{PADDING, Quantiser, TILE_SPECTRA};
use crate::f_engine::samples::host::{self, Decoded, Series};
use crate::f_engine::samples::input::Sizes;
use crate::f_engine::samples::pol::Count;
use crate::f_engine::samples::power::Measured;
use crate::f_engine::samples::schedule::{Fate, Placed, Run, Schedule};
use fxgraph::changes::Change;
use fxgraph::{Block, BlockError, Env, FrameMut, Input, Io, Next, Ports};
use fxgraph_dsp::polyphase::Scratch;
use fxgraph_dsp::simd::Lines;
use num_complex::Complex32;

/// Host memory of the block in bytes.
pub fn host_bytes(f_engine: &FEngine, ports: &Ports) -> usize {
    let sizes = f_engine.pfb(f_engine.spectra()).sizes(&ports.inputs);
    let batch = batch(sizes.step, sizes.spectra, f_engine.threads);
    let pols = ports.inputs.len();
    let history = 2 * pols * host::capacity(&sizes, batch);
    let quantised = 2 * pols * sizes.spectra * (f_engine.channels + PADDING);
    let jobs = parallel::count(f_engine.threads).min(batch);
    // Weights, filtered samples of a batch, twiddle factors, and a spectrum and scratch memory of each thread.
    let transforms = (8 + 16 * jobs) * f_engine.channels;
    let working = 4 * sizes.window + 4 * batch.next_multiple_of(jobs) * sizes.step + transforms;
    history + quantised + working
}

/// Working memory of one thread, and the power of its samples.
struct Job {
    filtering: Scratch,
    /// Filtered samples of a run; pairs of real samples are the complex input of the transform.
    series: Lines<Complex32>,
    transforming: Lines<Complex32>,
    /// A spectrum, which is quantised while it is in the cache.
    spectrum: Lines<Complex32>,
    measured: Measured,
}

/// The running block.
pub struct Cpu {
    schedule: Schedule<Decoded>,
    frames: Frames,
    filter: Filter,
    transform: Transform,
    /// Quantiser with rows for all spectra of an output frame.
    quantiser: Quantiser,
    threads: Threads,
    jobs: Vec<Job>,
    /// The output frame being filled.
    frame: Option<FrameMut>,
    /// Validity and power of the spectra of the output frame.
    known: Spectra,
}

impl Cpu {
    pub fn new(f_engine: &FEngine, ports: &Ports, env: &Env) -> Result<Self, BlockError> {
        let pfb = f_engine.pfb(f_engine.spectra());
        let sizes = pfb.sizes(&ports.inputs);
        let batch = batch(sizes.step, sizes.spectra, f_engine.threads);
        let delays = pfb.delays_of(ports);
        let count = Count::new(env, &sizes, ports);
        let threads = Threads::new(f_engine.threads)?;
        let filter = Filter::new(&pfb, &ports.inputs[0]);
        let transform = Transform::new(f_engine.shape(&ports.inputs), false);
        let jobs = threads.count().min(batch);
        let rows = batch.div_ceil(jobs);
        let job = |_| Job {
            filtering: filter.scratch(rows),
            series: Lines::new(rows * f_engine.channels),
            transforming: transform.scratch(),
            spectrum: Lines::new(f_engine.channels),
            measured: Measured::default(),
        };
        let frames = Frames::new(f_engine, ports, env);
        Ok(Self {
            schedule: host::schedule(sizes, ports, &delays, batch, count),
            jobs: (0..jobs).map(job).collect(),
            filter,
            transform,
            quantiser: Quantiser::new(
                &f_engine.postproc(),
                f_engine.shape(&ports.inputs),
                sizes.spectra,
            ),
            threads,
            frame: None,
            known: frames.spectra(),
            frames,
        })
    }

    /// Computes the spectra of polarisation `p` whose samples have arrived.
    fn advance(&mut self, p: usize, input: &mut Input) {
        let Sizes { ticks, step, window, spectra: per_frame, .. } = self.schedule.sizes;
        let first_number = self.schedule.timestamp() / (step * ticks) as u64;
        let channels = step / 2;
        loop {
            self.schedule.forget_done(p);
            let Some(Run { first, count, fate, from }) = self.schedule.next_run(p, input) else {
                return;
            };
            let pol = &self.schedule.pols[p];
            let limit = self.frames.limit(p);
            self.known.mark(p, first..first + count, fate == Fate::Whole);
            match fate {
                Fate::Whole => {
                    let samples = pol.store.numbers(pol.history.place(from));
                    let (rows, delays) = (p * per_frame + first, &pol.delays);
                    let Self { filter, transform, quantiser, threads, jobs, .. } = self;
                    quantiser.write(rows..rows + count, threads, jobs, |rows, to, job| {
                        let from = rows.start - p * per_frame;
                        let series = &mut job.series[..rows.len() * channels];
                        job.measured = filter.run(
                            &samples[(from - first) * step..],
                            bytemuck::cast_slice_mut(series),
                            limit,
                            &mut job.filtering,
                        );
                        let series = series.chunks_exact_mut(channels);
                        for ((n, series), row) in (from..).zip(series).zip(to) {
                            transform.run(series, &mut job.spectrum, &mut job.transforming);
                            let (delay, number) = (&delays[n], first_number + n as u64);
                            let (phase, fine) = (delay.phase_turns, delay.fine_samples);
                            row.write(&job.spectrum, (p, number), phase, fine);
                        }
                    });
                    let measured = jobs.iter_mut().map(|job| std::mem::take(&mut job.measured));
                    measured.for_each(|measured| self.known.measured[p].add(measured));
                }
                Fate::Ending => {
                    // The last steps of the windows are adjacent, because the windows are a step apart.
                    let ends = pol.history.place(from + (window - step) as i64);
                    let samples = &pol.store.numbers(ends)[..count * step];
                    self.known.measured[p].add(self.filter.measure(samples, limit));
                }
                Fate::Lost => {}
            }
        }
    }

    /// Transposes the spectra to the output frame and sends it, unless it has no valid heap.
    fn complete(&mut self, mut frame: FrameMut, io: &mut Io<'_>) {
        let Self { schedule, frames, known, quantiser, threads, jobs, .. } = self;
        let (header, payload) = frame.parts_mut::<u8>().expect(fxgraph::ON_HOST);
        frames.fill(known, header);
        let (pols, rows, heaps) = (schedule.pols.len(), quantiser.rows(), header.validity.len());
        let per_heap = rows / heaps;
        // Clamped values and sums of squares, [heap][pol].
        let first_row = |unit: usize| unit % pols * rows + unit / pols * per_heap;
        let saturated = (0..heaps * pols).map(|unit| {
            let first = first_row(unit);
            quantiser.clamped(first..first + per_heap)
        });
        let squares =
            (0..heaps * pols).map(|unit| quantiser.squares(first_row(unit), &(0..per_heap)));
        if !frames.complete(schedule, known, saturated, squares, header) {
            return;
        }
        for (heap, out) in payload.chunks_exact_mut(quantiser.heap_bytes()).enumerate() {
            if header.validity[heap] == 0 {
                out.fill(0);
                continue;
            }
            for first in (0..per_heap).step_by(TILE_SPECTRA) {
                let spectra = first..per_heap.min(first + TILE_SPECTRA);
                let row = heap * per_heap + first;
                quantiser.transpose(row, &spectra, out, threads, jobs);
            }
        }
        io.outputs[0].push(frame);
    }
}

impl Block for Cpu {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let settings = &mut self.quantiser.settings;
        match self.schedule.place(io.inputs, |from, live| settings.update(from, live)) {
            None => return Ok(Next::Wait),
            Some(Placed::Nowhere) => return Ok(Next::Finished),
            Some(Placed::Here) => settings.advance(self.schedule.timestamp()),
        }
        let begin = || {
            self.known.begin(self.schedule.timestamp());
            io.outputs[0].take()
        };
        let Some(frame) = self.frame.take().or_else(begin) else { return Ok(Next::Wait) };
        for (p, input) in io.inputs.iter_mut().enumerate() {
            self.advance(p, input);
        }
        if !self.schedule.is_done() {
            self.frame = Some(frame);
            return Ok(Next::Wait);
        }
        if self.known.has_valid() {
            self.complete(frame, io);
        }
        self.schedule.next_frame();
        Ok(Next::Again)
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.schedule.changes.offer(change)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        self.frames.summarise();
        Ok(())
    }
}
