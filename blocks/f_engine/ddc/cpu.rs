//! The block on the CPU.

use super::{Ddc, HEAP_SAMPLES};
use crate::common::live::Live;
use crate::common::parallel::{self, Threads};
use crate::f_engine::samples::host::{self, Decoded, Series};
use crate::f_engine::samples::pol::Count;
use crate::f_engine::samples::schedule::{Fate, Placed, Run, Schedule, Sizes, rate_hz};
use fxgraph::retune::{Change, Timed};
use fxgraph::{Block, BlockError, Env, FrameMut, Input, Io, Next, Ports};
use fxgraph_dsp::decimate::filter;
use fxgraph_dsp::mixer::{LANES, Mixer};
use fxgraph_dsp::simd::Form;
use num_complex::Complex32;

/// Approximate number of input samples that a thread filters at a time.
const BATCH_SAMPLES: usize = 1 << 16;

/// Number of heaps that are filtered at a time.
fn batch(ddc: &Ddc, sizes: &Sizes) -> usize {
    let threads = parallel::count(ddc.threads);
    ((BATCH_SAMPLES / sizes.step).max(1) * threads).min(sizes.spectra)
}

/// Host memory of the block in bytes.
pub fn host_bytes(ddc: &Ddc, sizes: &Sizes) -> usize {
    let history = host::capacity(sizes, batch(ddc, sizes));
    size_of::<i16>() * history + size_of::<f32>() * (sizes.window + 3 * ddc.taps())
}

/// Counters of a block. Missing data is counted in heaps of the output.
pub fn count(env: &Env) -> Count {
    Count {
        spectra_missing: env.counters.loss(
            "heaps_missing",
            "groups of 256 output samples that touch missing samples; look for missing heaps upstream",
        ),
        ..Count::of_misplaced(&env.counters)
    }
}

/// The running block.
pub struct Cpu {
    schedule: Schedule<Decoded>,
    filter: Filter,
    mixer: Timed<Mixer>,
    frame: Option<FrameMut>,
}

impl Cpu {
    pub fn new(ddc: &Ddc, sizes: Sizes, ports: &Ports, env: &Env) -> Result<Self, BlockError> {
        Ok(Self {
            schedule: host::schedule(sizes, ports, &[], batch(ddc, &sizes), count(env)),
            filter: Filter::new(ddc, &sizes)?,
            mixer: Timed::new(ddc.mixer(rate_hz(&ports.inputs[0]))?),
            frame: None,
        })
    }

    /// Computes the output samples whose input has arrived.
    fn advance(&mut self, frame: &mut FrameMut, input: &mut Input) {
        let start = self.schedule.timestamp();
        let (header, payload) = frame.parts_mut::<Complex32>().expect(fxgraph::ON_HOST);
        loop {
            self.schedule.forget_done(0);
            let Some(Run { first, count, fate, from }) = self.schedule.next_run(0, input) else {
                return;
            };
            header.validity[first..first + count].fill(u32::from(fate == Fate::Whole));
            let out = &mut payload[first * HEAP_SAMPLES..][..count * HEAP_SAMPLES];
            if fate == Fate::Whole {
                let pol = &self.schedule.pols[0];
                let samples = pol.store.numbers(pol.history.place(from));
                let Sizes { step, ticks, .. } = self.schedule.sizes;
                let t = start + (first * step * ticks) as u64;
                self.filter.run(&self.mixer, t, samples, out);
            } else {
                out.fill(Complex32::default());
            }
        }
    }
}

impl Block for Cpu {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let Self { schedule, mixer, .. } = self;
        let retune = |from, live| {
            if let Live::Mixer(new) = live {
                mixer.set(from, new);
            }
        };
        match schedule.place(io.inputs, retune) {
            None => return Ok(Next::Wait),
            Some(Placed::Nowhere) => return Ok(Next::Finished),
            Some(Placed::Here) => {}
        }
        let Some(mut frame) = self.frame.take().or_else(|| io.outputs[0].take()) else {
            return Ok(Next::Wait);
        };
        self.mixer.advance(self.schedule.timestamp());
        self.advance(&mut frame, &mut io.inputs[0]);
        if !self.schedule.is_done() {
            self.frame = Some(frame);
            return Ok(Next::Wait);
        }
        if frame.header().validity.contains(&1) {
            frame.header_mut().timestamp = self.schedule.timestamp();
            io.outputs[0].push(frame);
        } else {
            // No valid heap: the frame is reused for the next samples.
            self.frame = Some(frame);
        }
        self.schedule.next_frame();
        Ok(Next::Again)
    }

    fn retune(&mut self, change: Change) -> Result<(), BlockError> {
        self.schedule.changes.offer(change)
    }
}

/// Filter and mixer, from input samples to output samples.
pub struct Filter {
    /// Ticks of an input sample.
    ticks: u64,
    subsampling: usize,
    /// Input samples of a heap.
    window: usize,
    form: Form,
    threads: Threads,
    /// Scratch memory of each thread: the samples of a heap, padded with zeros for the SIMD weights.
    scratches: Vec<Vec<f32>>,
}

impl Filter {
    /// Creates the filter of `ddc`.
    pub fn new(ddc: &Ddc, &Sizes { ticks, window, .. }: &Sizes) -> Result<Self, BlockError> {
        let threads = Threads::new(ddc.threads)?;
        Ok(Self {
            ticks: ticks as u64,
            subsampling: ddc.subsampling(),
            window,
            form: Form::best(),
            scratches: vec![vec![0.0; window + LANES]; threads.count()],
            threads,
        })
    }

    /// Computes whole heaps of output samples. The first window starts with `samples[0]`, at timestamp `t`.
    pub fn run(&mut self, mixer: &Timed<Mixer>, t: u64, samples: &[i16], out: &mut [Complex32]) {
        let Self { ticks, subsampling, window, form, threads, scratches } = self;
        threads.each(out, HEAP_SAMPLES, scratches, |first, out, scratch| {
            for (n, out) in out.chunks_exact_mut(HEAP_SAMPLES).enumerate() {
                let begins = (first + n) * HEAP_SAMPLES * *subsampling;
                let t = t + begins as u64 * *ticks;
                let mixer = mixer.at(t);
                let samples = &samples[begins..][..*window];
                filter(samples, scratch, mixer.weights(), *subsampling, out, *form);
                mixer.turn(t / *ticks, out);
            }
        });
    }
}
