//! The block on the CPU.

use super::Pfb;
use super::fir::{Fir, Scratch};
use super::history::Move;
use super::pol::Store;
use super::power::{Level, Measured, power, summary};
use super::schedule::{Fate, Placed, Run, Schedule, Sizes};
use crate::packed::Decoder;
use crate::parallel::Threads;
use crate::simd::Form;
use fxgraph::retune::Change;
use fxgraph::{
    Block, BlockError, Dtype, Env, Frame, FrameMut, Input, Io, Next, PortType, Ports, Summary,
    async_trait,
};
use std::sync::Arc;

/// Samples of a batch, about: enough for the filter to run at full speed.
const BATCH_SAMPLES: usize = 1 << 18;

/// Spectra that are filtered together.
pub fn batch(step: usize, spectra_per_frame: usize, threads: usize) -> usize {
    let threads = if threads == 0 { rayon::current_num_threads() } else { threads };
    let alone = (BATCH_SAMPLES / step).clamp(16, 64);
    (alone * threads).min(spectra_per_frame)
}

/// Samples of a polarisation to keep room for.
pub fn history_samples(sizes: &Sizes, batch: usize) -> usize {
    // What one batch may need, and as much again as stays from batch to batch, so that the
    // samples are moved to the front seldom.
    let kept = sizes.window + 2 * sizes.max_delay;
    2 * kept + batch * sizes.step + 64
}

/// Decoded samples of one polarisation.
pub struct Decoded {
    pub samples: Vec<i16>,
    /// `None` for samples that are 16-bit integers already.
    decoder: Option<Decoder>,
}

impl Decoded {
    /// Room for `capacity` samples of `input`.
    pub fn new(input: &PortType, capacity: usize) -> Self {
        let decoder = match input.dtype {
            Dtype::Packed(bits) => Decoder::new(bits),
            _ => None,
        };
        Self { samples: vec![0; capacity], decoder }
    }
}

impl Store for Decoded {
    fn move_to_front(&mut self, Move { from, samples }: Move) {
        self.samples.copy_within(from..from + samples, 0);
    }

    fn write(&mut self, frame: &Arc<Frame>, first: usize, count: usize, at: usize) {
        let samples = &mut self.samples[at..at + count];
        match &self.decoder {
            Some(decoder) => decoder.decode(frame.as_slice(), first, samples),
            None => samples.copy_from_slice(&frame.as_slice()[first..first + count]),
        }
    }
}

/// Working memory of one thread.
struct Job {
    scratch: Scratch,
    power: u64,
    clipped: u64,
}

/// The running block.
pub struct Cpu {
    filter: Filter,
    schedule: Schedule<Decoded>,
    frame: Option<FrameMut>,
    /// Of the output frame, for each polarisation.
    measured: Vec<Measured>,
    /// Of the whole run, for each polarisation.
    levels: Vec<Level>,
    summary: Summary,
}

impl Cpu {
    pub fn new(pfb: &Pfb, ports: &Ports, env: &Env) -> Result<Self, BlockError> {
        let sizes = Sizes::new(pfb, ports);
        let batch = batch(sizes.step, sizes.spectra, pfb.threads);
        let capacity = history_samples(&sizes, batch);
        let stores = ports.inputs.iter().map(|input| Decoded::new(input, capacity));
        Ok(Self {
            schedule: Schedule::new(pfb, ports, batch, capacity, stores, &env.counters),
            filter: Filter::new(pfb, batch)?,
            frame: None,
            measured: vec![Measured::default(); ports.inputs.len()],
            levels: ports.inputs.iter().map(|input| Level::new(input.dtype.bits())).collect(),
            summary: env.summary.clone(),
        })
    }

    /// Does what polarisation `p` has samples for.
    fn advance(&mut self, p: usize, frame: &mut FrameMut, input: &mut Input) {
        let Sizes { step, window, spectra, .. } = self.schedule.sizes;
        let (header, payload) = frame.parts_mut::<f32>();
        let row = p * spectra;
        let payload = &mut payload[row * step..][..spectra * step];
        let validity = &mut header.validity[row..row + spectra];
        loop {
            self.schedule.forget_done(p);
            let Some(Run { first, count, fate, from }) = self.schedule.next_run(p, input) else {
                return;
            };
            let pol = &self.schedule.pols[p];
            let out = &mut payload[first * step..][..count * step];
            let limit = self.levels[p].limit;
            validity[first..first + count].fill(u32::from(fate == Fate::Whole));
            match fate {
                Fate::Whole => {
                    let samples = &pol.store.samples[pol.history.place(from)..];
                    self.measured[p].add(self.filter.run(samples, out, limit));
                }
                Fate::Ending => {
                    out.fill(0.0);
                    // The last step of each window: adjacent, as the windows are a step apart.
                    let ends = pol.history.place(from + (window - step) as i64);
                    let samples = &pol.store.samples[ends..][..count * step];
                    self.measured[p].add(self.filter.measure(samples, limit));
                }
                Fate::Lost => out.fill(0.0),
            }
        }
    }
}

/// What makes spectra of samples.
pub struct Filter {
    fir: Fir,
    threads: Threads,
    jobs: Vec<Job>,
}

impl Filter {
    /// The filter of `pfb`, for up to `batch` spectra at a time.
    pub fn new(pfb: &Pfb, batch: usize) -> Result<Self, BlockError> {
        let threads = Threads::new(pfb.threads)?;
        let weights = super::weights(pfb.step(), pfb.taps, pfb.window, pfb.w_cutoff);
        let fir = Fir::new(&weights, pfb.step(), pfb.unzip, Form::best());
        let job =
            |_| Job { scratch: fir.scratch(batch.div_ceil(threads.count())), power: 0, clipped: 0 };
        let jobs = (0..threads.count()).map(job).collect();
        Ok(Self { fir, threads, jobs })
    }

    /// Filters the spectra of `out`, whose first window starts `samples`, and measures them.
    pub fn run(&mut self, samples: &[i16], out: &mut [f32], limit: i16) -> Measured {
        let Self { fir, threads, jobs } = self;
        jobs.iter_mut().for_each(|job| (job.power, job.clipped) = (0, 0));
        let (step, overlap) = (fir.step(), (fir.taps() - 1) * fir.step());
        let measured = out.len();
        threads.each(out, step, jobs, |first, out, job| {
            let samples = &samples[first * step..];
            fir.run(samples, out, &mut job.scratch);
            // The last step of each window, as in `measure`.
            (job.power, job.clipped) = power(&samples[overlap..][..out.len()], limit, fir.form());
        });
        Measured {
            power: jobs.iter().map(|job| job.power).sum(),
            samples: measured as u64,
            clipped: jobs.iter().map(|job| job.clipped).sum(),
        }
    }

    /// Measures samples that are not filtered.
    pub fn measure(&self, samples: &[i16], limit: i16) -> Measured {
        let (power, clipped) = power(samples, limit, self.fir.form());
        Measured { power, samples: samples.len() as u64, clipped }
    }
}

#[async_trait]
impl Block for Cpu {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
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
            self.schedule.annotate_measured(frame.header_mut(), &self.measured);
            let measured = self.levels.iter_mut().zip(&self.measured);
            measured.for_each(|(level, measured)| level.add(*measured));
            io.outputs[0].push(frame);
        } else {
            // Nothing in it: the frame is used for the next spectra.
            self.frame = Some(frame);
        }
        self.measured.fill(Measured::default());
        self.schedule.next_frame();
        Ok(Next::Again)
    }

    fn retune(&mut self, change: Change) -> Result<(), BlockError> {
        self.schedule.changes.offer(change)
    }

    async fn finish(&mut self) -> Result<(), BlockError> {
        self.summary.set(summary(&self.levels));
        Ok(())
    }
}
