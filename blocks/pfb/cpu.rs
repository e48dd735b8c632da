//! The block on the CPU: which samples each spectrum needs, and when they are there.

use super::Pfb;
use super::fir::{Fir, Scratch};
use super::pol::{Count, Pol};
use super::power::power;
use crate::parallel::Threads;
use crate::simd::Form;
use fxgraph::{Block, BlockError, Env, FrameMut, Input, Io, Next, Ports, Summary, async_trait};

/// Samples of a batch, about: enough for the filter to run at full speed.
const BATCH_SAMPLES: usize = 1 << 18;

/// Spectra that are filtered together.
pub fn batch(step: usize, spectra_per_frame: usize, threads: usize) -> usize {
    let threads = if threads == 0 { rayon::current_num_threads() } else { threads };
    let alone = (BATCH_SAMPLES / step).clamp(16, 64);
    (alone * threads).min(spectra_per_frame)
}

/// Samples of a polarisation to keep room for.
pub fn history_samples(step: usize, taps: usize, batch: usize, max_delay: usize) -> usize {
    // What one batch may need, and as much again as stays from batch to batch, so that the
    // samples are moved to the front seldom.
    let kept = taps * step + 2 * max_delay;
    2 * kept + batch * step + 64
}

/// Working memory of one thread.
struct Job {
    scratch: Scratch,
    power: u64,
    clipped: u64,
}

/// Where the next output frame is.
enum Placed {
    /// At `frame_start`.
    Here,
    /// There is none: the inputs have ended.
    Nowhere,
}

/// The running block.
pub struct Cpu {
    fir: Fir,
    step: usize,
    window: usize,
    spectra: usize,
    batch: usize,
    max_delay: usize,
    threads: Threads,
    jobs: Vec<Job>,
    pols: Vec<Pol>,
    /// Timestamp of the output frame, or the earliest that it may have while not `placed`.
    frame_start: i64,
    placed: bool,
    frame: Option<FrameMut>,
    count: Count,
    summary: Summary,
}

impl Cpu {
    pub fn new(pfb: &Pfb, ports: &Ports, env: &Env) -> Result<Self, BlockError> {
        let (step, spectra) = (pfb.step(), pfb.spectra(ports.inputs.len()));
        let max_delay = pfb.max_delay_samples(&ports.inputs[0].clock);
        let threads = Threads::new(pfb.threads)?;
        let batch = batch(step, spectra, pfb.threads);
        let weights = super::weights(step, pfb.taps, pfb.window, pfb.w_cutoff);
        let fir = Fir::new(&weights, step, pfb.unzip, Form::best());
        let job =
            |_| Job { scratch: fir.scratch(batch.div_ceil(threads.count())), power: 0, clipped: 0 };
        let capacity = history_samples(step, pfb.taps, batch, max_delay);
        let pols = ports.inputs.iter().enumerate().map(|(i, input)| {
            let pieces = pfb.delays.get(i).map_or(&[][..], Vec::as_slice);
            Pol::new(input, pieces, capacity, spectra)
        });
        Ok(Self {
            jobs: (0..threads.count()).map(job).collect(),
            pols: pols.collect(),
            fir,
            step,
            window: step * pfb.taps,
            spectra,
            batch,
            max_delay,
            threads,
            frame_start: 0,
            placed: false,
            frame: None,
            count: Count::new(&env.counters),
            summary: env.summary.clone(),
        })
    }

    /// Finds the next output frame that can have a valid spectrum. `None`: not known yet.
    fn place(&mut self, inputs: &mut [Input]) -> Option<Placed> {
        let (step, reach) = (self.step as i64, self.max_delay as i64);
        let frame_samples = step * self.spectra as i64;
        // From the frame's start to the latest start of one of its windows.
        let last_window = frame_samples - step + reach;
        let mut first = Some(i64::MAX);
        for (pol, input) in self.pols.iter_mut().zip(inputs) {
            pol.history.forget_before(self.frame_start - reach);
            match pol.first_present(input, &self.count) {
                Some(time) if time <= self.frame_start + last_window => return Some(Placed::Here),
                Some(time) => first = first.map(|first| first.min(time)),
                None => first = None,
            }
        }
        let first = first?;
        if first == i64::MAX {
            return Some(Placed::Nowhere);
        }
        let earliest = (first - last_window).max(0) as u64;
        self.frame_start = earliest.next_multiple_of(frame_samples as u64) as i64;
        for pol in &mut self.pols {
            pol.history.forget_before(self.frame_start - reach);
        }
        Some(Placed::Here)
    }

    /// Does what polarisation `p` has samples for.
    fn advance(&mut self, p: usize, frame: &mut FrameMut, input: &mut Input) {
        let (header, payload) = frame.parts_mut::<f32>();
        let step = self.step;
        let row = p * self.spectra;
        let payload = &mut payload[row * step..][..self.spectra * step];
        let validity = &mut header.validity[row..row + self.spectra];
        let pol = &mut self.pols[p];
        while pol.done < self.spectra {
            let first = pol.done;
            let t = self.frame_start + (first * step) as i64;
            pol.history.forget_before(t - self.max_delay as i64);
            let run = pol.same_coarse(first, self.batch);
            let Some(coarse) = pol.coarse(first, self.max_delay) else {
                payload[first * step..][..run * step].fill(0.0);
                validity[first..first + run].fill(0);
                self.count.delays_out_of_range.add(run as u64);
                pol.done += run;
                continue;
            };
            let from = t - coarse;
            if !pol.fetch(from + ((run - 1) * step + self.window) as i64, input, &self.count) {
                return;
            }
            let start = |n: usize| from + (n * step) as i64;
            let is_whole =
                |n: &usize| pol.history.is_whole(start(*n), start(*n) + self.window as i64);
            let whole = (0..run).take_while(is_whole).count();
            let lost = (whole..run).take_while(|n| !is_whole(n)).count();
            if whole > 0 {
                let samples = pol.history.from(from);
                let out = &mut payload[first * step..][..whole * step];
                filter(&self.fir, &self.threads, &mut self.jobs, samples, out, pol.limit);
                pol.add(&self.jobs, whole * step);
            }
            for n in whole..whole + lost {
                pol.measure_end(start(n) + self.window as i64, &self.fir);
            }
            payload[(first + whole) * step..][..lost * step].fill(0.0);
            validity[first..first + whole].fill(1);
            validity[first + whole..][..lost].fill(0);
            let counted = (whole..whole + lost).filter(|n| pol.expects(start(*n))).count();
            self.count.spectra_missing.add(counted as u64);
            pol.done += whole + lost;
        }
    }

    /// Writes down what belongs to the whole frame.
    fn annotate(&self, frame: &mut FrameMut) {
        let header = frame.header_mut();
        header.timestamp = self.frame_start.cast_unsigned();
        let pols = self.pols.len();
        let delays = || self.pols.iter().flat_map(|pol| &pol.delays);
        let tables = &mut header.annotations;
        let fine = tables.reset("fine_delay_samples", pols * self.spectra);
        fine.iter_mut().zip(delays()).for_each(|(to, delay)| *to = delay.fine_samples);
        let phase = tables.reset("phase_turns", pols * self.spectra);
        phase.iter_mut().zip(delays()).for_each(|(to, delay)| *to = delay.phase_turns);
        let power = tables.reset("adc_power", 2 * pols);
        for (to, pol) in power.chunks_exact_mut(2).zip(&self.pols) {
            to[0] = pol.power as f64;
            to[1] = pol.measured as f64;
        }
        let clipped = tables.reset("adc_clipped", pols);
        for (to, pol) in clipped.iter_mut().zip(&self.pols) {
            *to = pol.clipped as f64;
            self.count.samples_clipped.add(pol.clipped);
        }
    }
}

/// Filters the spectra of `out`, whose first window starts `samples`, and measures them.
fn filter(
    fir: &Fir,
    threads: &Threads,
    jobs: &mut [Job],
    samples: &[i16],
    out: &mut [f32],
    limit: i16,
) {
    jobs.iter_mut().for_each(|job| (job.power, job.clipped) = (0, 0));
    let (step, overlap) = (fir.step(), (fir.taps() - 1) * fir.step());
    threads.each(out, step, jobs, |first, out, job| {
        let samples = &samples[first * step..];
        fir.run(samples, out, &mut job.scratch);
        // The last step of each window: adjacent, as the windows are a step apart.
        (job.power, job.clipped) = power(&samples[overlap..][..out.len()], limit, fir.form());
    });
}

impl Pol {
    fn add(&mut self, jobs: &[Job], samples: usize) {
        self.power += jobs.iter().map(|job| job.power).sum::<u64>();
        self.clipped += jobs.iter().map(|job| job.clipped).sum::<u64>();
        self.measured += samples as u64;
    }

    /// Measures the last `step` samples of a window that is not whole, if they are there.
    fn measure_end(&mut self, end: i64, fir: &Fir) {
        let step = fir.step();
        let from = end - step as i64;
        if self.history.is_whole(from, end) {
            let (power, clipped) = power(&self.history.from(from)[..step], self.limit, fir.form());
            self.power += power;
            self.clipped += clipped;
            self.measured += step as u64;
        }
    }
}

#[async_trait]
impl Block for Cpu {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if !self.placed {
            match self.place(io.inputs) {
                None => return Ok(Next::Wait),
                Some(Placed::Nowhere) => return Ok(Next::Finished),
                Some(Placed::Here) => self.placed = true,
            }
            for pol in &mut self.pols {
                pol.begin(self.frame_start.cast_unsigned(), self.step as u64);
            }
        }
        let Some(mut frame) = self.frame.take().or_else(|| io.outputs[0].take()) else {
            return Ok(Next::Wait);
        };
        for (p, input) in io.inputs.iter_mut().enumerate() {
            self.advance(p, &mut frame, input);
        }
        if self.pols.iter().any(|pol| pol.done < self.spectra) {
            self.frame = Some(frame);
            return Ok(Next::Wait);
        }
        if frame.header().validity.contains(&1) {
            self.annotate(&mut frame);
            self.pols.iter_mut().for_each(Pol::add_to_totals);
            io.outputs[0].push(frame);
        } else {
            // Nothing in it: the frame is used for the next spectra.
            self.frame = Some(frame);
        }
        self.frame_start += (self.spectra * self.step) as i64;
        self.placed = false;
        Ok(Next::Again)
    }

    async fn finish(&mut self) -> Result<(), BlockError> {
        let line = |(p, pol): (usize, &Pol)| Some(format!("pol{p}: {}\n", pol.level()?));
        let lines: Vec<String> = self.pols.iter().enumerate().filter_map(line).collect();
        self.summary.set(lines.concat());
        Ok(())
    }
}
