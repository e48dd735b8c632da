//! The block on the CPU.

use super::Pfb;
use crate::common::parallel::{self, Threads};
use crate::f_engine::samples::host::{self, Number, Series};
use crate::f_engine::samples::input::Sizes;
use crate::f_engine::samples::pol::Count;
use crate::f_engine::samples::power::{Level, Measured, summary};
use crate::f_engine::samples::schedule::{Fate, Placed, Run, Schedule};
use fxgraph::changes::Change;
use fxgraph::{Block, BlockError, Env, FrameMut, Input, Io, Next, PortType, Ports, Summary};
use fxgraph_dsp::polyphase::{Fir, Scratch};
use fxgraph_dsp::simd::InstructionSet;

/// Approximate number of samples per batch, enough for the filter to run at full speed.
const BATCH_SAMPLES: usize = 1 << 18;

/// Number of spectra that are filtered at a time.
pub fn batch(step: usize, spectra_per_frame: usize, threads: usize) -> usize {
    let alone = (BATCH_SAMPLES / step).clamp(16, 64);
    (alone * parallel::count(threads)).min(spectra_per_frame)
}

/// Working memory of one thread, and the power of its samples.
struct Job {
    scratch: Scratch,
    measured: Measured,
}

/// The running block.
pub struct Cpu<S> {
    filter: Filter,
    threads: Threads,
    jobs: Vec<Job>,
    schedule: Schedule<S>,
    frame: Option<FrameMut>,
    /// Power of the samples of the output frame, `[pol]`.
    measured: Vec<Measured>,
    /// Level of the whole run, for each polarisation with ADC samples.
    levels: Vec<Level>,
    summary: Summary,
}

impl<S: Series> Cpu<S> {
    pub fn new(pfb: &Pfb, sizes: Sizes, ports: &Ports, env: &Env) -> Result<Self, BlockError> {
        let batch = batch(sizes.step, sizes.spectra, pfb.threads);
        let delays = pfb.delays_of(ports);
        let count = Count::new(env, &sizes, ports);
        let filter = Filter::new(pfb, &ports.inputs[0]);
        let threads = Threads::new(pfb.threads)?;
        let job = |_| Job {
            scratch: filter.scratch(batch.div_ceil(threads.count())),
            measured: Measured::default(),
        };
        Ok(Self {
            schedule: host::schedule(sizes, ports, &delays, batch, count),
            jobs: (0..threads.count()).map(job).collect(),
            threads,
            filter,
            frame: None,
            measured: vec![Measured::default(); ports.inputs.len()],
            levels: Level::of_inputs(&ports.inputs, &env.counters),
            summary: env.summary.clone(),
        })
    }

    /// Computes the spectra of polarisation `p` whose samples have arrived.
    fn advance(&mut self, p: usize, frame: &mut FrameMut, input: &mut Input) {
        let Sizes { step, window, spectra, .. } = self.schedule.sizes;
        let (header, payload) = frame.parts_mut::<f32>().expect(fxgraph::ON_HOST);
        let row = p * spectra;
        let numbers = self.filter.0.step();
        let payload = &mut payload[row * numbers..][..spectra * numbers];
        let validity = &mut header.validity[row..row + spectra];
        loop {
            self.schedule.forget_done(p);
            let Some(Run { first, count, fate, from }) = self.schedule.next_run(p, input) else {
                return;
            };
            let pol = &self.schedule.pols[p];
            let out = &mut payload[first * numbers..][..count * numbers];
            let limit = self.levels.get(p).map_or(i16::MAX, |level| level.limit);
            validity[first..first + count].fill(u32::from(fate == Fate::Whole));
            match fate {
                Fate::Whole => {
                    let samples = pol.store.numbers(pol.history.place(from));
                    let Self { filter, threads, jobs, .. } = self;
                    threads.each(out, numbers, jobs, |first, out, job| {
                        let samples = &samples[first * numbers..];
                        job.measured = filter.run(samples, out, limit, &mut job.scratch);
                    });
                    let measured = jobs.iter_mut().map(|job| std::mem::take(&mut job.measured));
                    measured.for_each(|measured| self.measured[p].add(measured));
                }
                Fate::Ending => {
                    out.fill(0.0);
                    // The last steps of the windows are adjacent, because the windows are a step apart.
                    let ends = pol.history.place(from + (window - step) as i64);
                    let samples = &pol.store.numbers(ends)[..count * numbers];
                    self.measured[p].add(self.filter.measure(samples, limit));
                }
                Fate::Lost => out.fill(0.0),
            }
        }
    }
}

/// FIR filter from samples to filtered spectra.
pub struct Filter(Fir);

impl Filter {
    /// Creates the filter of `pfb` for samples of the type of `input`.
    pub fn new(pfb: &Pfb, input: &PortType) -> Self {
        Self(Fir::new(&pfb.weights(input), 2 * pfb.channels, pfb.unzip, InstructionSet::best()))
    }

    /// Allocates working memory of one thread, for up to `rows` spectra at a time.
    pub fn scratch(&self, rows: usize) -> Scratch {
        self.0.scratch(rows)
    }

    /// Filters the spectra of `out`, whose first window starts with `samples[0]`, and measures their power.
    pub fn run<T: Number>(
        &self,
        samples: &[T],
        out: &mut [f32],
        limit: i16,
        scratch: &mut Scratch,
    ) -> Measured {
        self.0.run(samples, out, scratch);
        // The last step of each window, as in `measure`.
        let overlap = (self.0.taps() - 1) * self.0.step();
        self.measure(&samples[overlap..][..out.len()], limit)
    }

    /// Measures the power of samples that are not filtered.
    pub fn measure<T: Number>(&self, samples: &[T], limit: i16) -> Measured {
        T::measured(samples, limit, self.0.instructions())
    }
}

impl<S: Series> Block for Cpu<S> {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        match self.schedule.place(io.inputs, |_, _| {}) {
            None => return Ok(Next::Wait),
            Some(Placed::Nowhere) => return Ok(Next::Finished),
            Some(Placed::Here) => {}
        }
        let Some(mut frame) = self.frame.take().or_else(|| io.outputs[0].take()) else {
            return Ok(Next::Wait);
        };
        for (p, input) in io.inputs.iter_mut().enumerate() {
            self.advance(p, &mut frame, input);
        }
        if !self.schedule.is_done() {
            self.frame = Some(frame);
            return Ok(Next::Wait);
        }
        if frame.header().validity.contains(&1) {
            self.schedule.annotate(frame.header_mut());
            if !self.levels.is_empty() {
                self.schedule.annotate_measured(frame.header_mut(), &self.measured);
            }
            let measured = self.levels.iter_mut().zip(&self.measured);
            measured.for_each(|(level, measured)| level.add(*measured));
            io.outputs[0].push(frame);
        } else {
            // No valid spectrum: the frame is reused for the next spectra.
            self.frame = Some(frame);
        }
        self.measured.fill(Measured::default());
        self.schedule.next_frame();
        Ok(Next::Again)
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.schedule.changes.offer(change)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        self.summary.set(summary(&self.levels));
        Ok(())
    }
}
