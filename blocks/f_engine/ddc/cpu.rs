//! The block on the CPU.

use super::{Ddc, HEAP_SAMPLES};
use crate::common::live::Live;
use crate::common::parallel::{self, Threads};
use crate::f_engine::samples::host::{self, Number, Series};
use crate::f_engine::samples::input::{Sizes, is_complex};
use crate::f_engine::samples::pol::Count;
use crate::f_engine::samples::schedule::{Fate, Placed, Run, Schedule};
use fxgraph::changes::{Change, Timed};
use fxgraph::{Block, BlockError, Env, FrameMut, Input, Io, Next, PortType, Ports};
use fxgraph_dsp::decimate::filter;
use fxgraph_dsp::mixer::{LANES, Mixer};
use fxgraph_dsp::simd::InstructionSet;
use num_complex::Complex32;

/// Approximate number of input samples that a thread filters at a time.
const BATCH_SAMPLES: usize = 1 << 16;

/// Number of heaps that are filtered at a time.
fn batch(ddc: &Ddc, sizes: &Sizes) -> usize {
    let threads = parallel::count(ddc.threads);
    ((BATCH_SAMPLES / sizes.step).max(1) * threads).min(sizes.spectra)
}

/// Host memory of the block in bytes.
pub fn host_bytes(ddc: &Ddc, input: &PortType, sizes: &Sizes) -> usize {
    let history = host::capacity(sizes, batch(ddc, sizes));
    let sample = if is_complex(input) { size_of::<[f32; 2]>() } else { size_of::<i16>() };
    sample * history + size_of::<f32>() * (sizes.window + 2 * HEAP_SAMPLES + 3 * ddc.taps(input))
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
pub struct Cpu<S> {
    schedule: Schedule<S>,
    filter: Filter,
    mixer: Timed<Mixer>,
    frame: Option<FrameMut>,
}

impl<S: Series<Number: Sample>> Cpu<S> {
    pub fn new(ddc: &Ddc, sizes: Sizes, ports: &Ports, env: &Env) -> Result<Self, BlockError> {
        Ok(Self {
            schedule: host::schedule(sizes, ports, &[], batch(ddc, &sizes), count(env)),
            filter: Filter::new(ddc, &ports.inputs[0], &sizes)?,
            mixer: Timed::new(ddc.mixer(&ports.inputs[0])?),
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

impl<S: Series<Number: Sample>> Block for Cpu<S> {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let Self { schedule, mixer, .. } = self;
        let update = |from, live| {
            if let Live::Mixer(new) = live {
                mixer.set(from, new);
            }
        };
        match schedule.place(io.inputs, update) {
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

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
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
    instructions: InstructionSet,
    threads: Threads,
    scratches: Vec<Scratch>,
}

/// Memory of a thread.
#[derive(Clone)]
pub struct Scratch {
    /// A part of the samples of a heap, padded with zeros for the SIMD weights.
    part: Vec<f32>,
    /// Sums of the imaginary parts.
    sums: [Complex32; HEAP_SAMPLES],
}

/// Number of which the input's samples consist: one of a real sample, two of a complex one.
pub trait Sample: Number {
    const PARTS: usize;

    /// Computes the sums over the samples from `first` on, for the weights `g`.
    fn filter(
        samples: &[Self],
        scratch: &mut Scratch,
        g: (&[f32], &[f32]),
        subsampling: usize,
        out: &mut [Complex32],
        instructions: InstructionSet,
    );
}

impl Sample for i16 {
    const PARTS: usize = 1;

    fn filter(
        samples: &[Self],
        scratch: &mut Scratch,
        g: (&[f32], &[f32]),
        subsampling: usize,
        out: &mut [Complex32],
        instructions: InstructionSet,
    ) {
        filter(samples, f32::from, &mut scratch.part, g, subsampling, out, instructions);
    }
}

impl Sample for f32 {
    const PARTS: usize = 2;

    fn filter(
        samples: &[Self],
        Scratch { part, sums }: &mut Scratch,
        g: (&[f32], &[f32]),
        subsampling: usize,
        out: &mut [Complex32],
        instructions: InstructionSet,
    ) {
        let (samples, _) = samples.as_chunks::<2>();
        filter(samples, |[re, _]| re, part, g, subsampling, out, instructions);
        filter(samples, |[_, im]| im, part, g, subsampling, sums, instructions);
        for (out, sum) in out.iter_mut().zip(sums) {
            *out += Complex32::new(-sum.im, sum.re);
        }
    }
}

impl Filter {
    /// Creates the filter of `ddc`.
    pub fn new(ddc: &Ddc, input: &PortType, sizes: &Sizes) -> Result<Self, BlockError> {
        let threads = Threads::new(ddc.threads)?;
        let &Sizes { ticks, window, .. } = sizes;
        let scratch =
            Scratch { part: vec![0.0; window + LANES], sums: [Complex32::ZERO; HEAP_SAMPLES] };
        Ok(Self {
            ticks: ticks as u64,
            subsampling: ddc.subsampling(input),
            window,
            instructions: InstructionSet::best(),
            scratches: vec![scratch; threads.count()],
            threads,
        })
    }

    /// Computes whole heaps of output samples. The first window starts with `samples[0]`, at timestamp `t`.
    pub fn run<X: Sample>(
        &mut self,
        mixer: &Timed<Mixer>,
        t: u64,
        samples: &[X],
        out: &mut [Complex32],
    ) {
        let Self { ticks, subsampling, window, instructions, threads, scratches } = self;
        threads.each(out, HEAP_SAMPLES, scratches, |first, out, scratch| {
            for (n, out) in out.chunks_exact_mut(HEAP_SAMPLES).enumerate() {
                let begins = (first + n) * HEAP_SAMPLES * *subsampling;
                let t = t + begins as u64 * *ticks;
                let mixer = mixer.at(t);
                let samples = &samples[X::PARTS * begins..][..X::PARTS * *window];
                X::filter(samples, scratch, mixer.weights(), *subsampling, out, *instructions);
                mixer.turn(t / *ticks, out);
            }
        });
    }
}
