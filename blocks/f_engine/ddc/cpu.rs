//! The block on the CPU.
#![allow(unsafe_code)] // calls of functions compiled for AVX2 and AVX-512

use super::mixer::{LANES, Mixer};
#[cfg(target_arch = "x86_64")]
use super::x86;
use super::{Ddc, HEAP_SAMPLES};
use crate::common::live::Live;
use crate::common::parallel::Threads;
use crate::common::simd::Form;
use crate::f_engine::pfb::host_samples::{self, Decoded, Series};
use crate::f_engine::pfb::pol::Count;
use crate::f_engine::pfb::schedule::{Fate, Placed, Run, Schedule};
use fxgraph::retune::{Change, Timed};
use fxgraph::{Block, BlockError, Env, FrameMut, Input, Io, Next, Ports};
use num_complex::Complex32;

/// Input samples that are filtered at once by a thread, about.
const BATCH_SAMPLES: usize = 1 << 16;
/// Output samples that share each weight read.
pub const ROWS: usize = 4;

/// Heaps that are filtered at once.
fn batch(ddc: &Ddc) -> usize {
    let sizes = ddc.sizes();
    let threads = if ddc.threads == 0 { rayon::current_num_threads() } else { ddc.threads };
    ((BATCH_SAMPLES / sizes.step).max(1) * threads).min(sizes.spectra)
}

/// Memory that the block takes.
pub fn host_bytes(ddc: &Ddc) -> usize {
    let history = host_samples::capacity(&ddc.sizes(), batch(ddc));
    size_of::<i16>() * history + size_of::<f32>() * (ddc.sizes().window + 3 * ddc.taps())
}

/// The counters of a block: what is lost are heaps of its output.
pub fn count(env: &Env) -> Count {
    Count {
        spectra_missing: env.counters.loss(
            "heaps_missing",
            "heaps of 256 output samples that touch missing samples; look for lost heaps upstream",
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
    pub fn new(ddc: &Ddc, ports: &Ports, env: &Env) -> Result<Self, BlockError> {
        Ok(Self {
            schedule: host_samples::schedule(ddc.sizes(), ports, &[], batch(ddc), count(env)),
            filter: Filter::new(ddc)?,
            mixer: Timed::new(ddc.mixer(ports.inputs[0].clock.adc_sample_rate_hz)?),
            frame: None,
        })
    }

    /// Does what there are samples for.
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
                let t = start + (first * self.schedule.sizes.step) as u64;
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
            // Nothing in it: the frame is used for the next samples.
            self.frame = Some(frame);
        }
        self.schedule.next_frame();
        Ok(Next::Again)
    }

    fn retune(&mut self, change: Change) -> Result<(), BlockError> {
        self.schedule.changes.offer(change)
    }
}

/// What makes output samples of input samples.
pub struct Filter {
    subsampling: usize,
    /// Input samples of a heap.
    window: usize,
    form: Form,
    threads: Threads,
    /// For each thread the samples of a heap, and zeros for the weights beyond the taps.
    scratches: Vec<Vec<f32>>,
}

impl Filter {
    /// The filter of `ddc`.
    pub fn new(ddc: &Ddc) -> Result<Self, BlockError> {
        let threads = Threads::new(ddc.threads)?;
        let window = ddc.sizes().window;
        Ok(Self {
            subsampling: ddc.subsampling(),
            window,
            form: Form::best(),
            scratches: vec![vec![0.0; window + LANES]; threads.count()],
            threads,
        })
    }

    /// Makes whole heaps, of which the first one starts with the first of `samples`, at timestamp `t`.
    pub fn run(&mut self, mixer: &Timed<Mixer>, t: u64, samples: &[i16], out: &mut [Complex32]) {
        let Self { subsampling, window, form, threads, scratches } = self;
        threads.each(out, HEAP_SAMPLES, scratches, |first, out, scratch| {
            for (n, out) in out.chunks_exact_mut(HEAP_SAMPLES).enumerate() {
                let begins = (first + n) * HEAP_SAMPLES * *subsampling;
                let t = t + begins as u64;
                let mixer = mixer.at(t);
                let samples = &samples[begins..][..*window];
                filter(samples, scratch, mixer.weights(), *subsampling, out, *form);
                mixer.turn(t, out);
            }
        });
    }
}

/// out_j = sum over k of x_{Sj+k} g_k, for real and imaginary parts of g, whose taps are a multiple of [`LANES`]
/// and reach at most into the zeros behind the samples in `x`.
fn filter(
    samples: &[i16],
    x: &mut [f32],
    g: (&[f32], &[f32]),
    subsampling: usize,
    out: &mut [Complex32],
    form: Form,
) {
    match form {
        Form::Portable => filter_portable(samples, x, g, subsampling, out),
        // SAFETY: a form is chosen only if the processor has it.
        #[cfg(target_arch = "x86_64")]
        Form::Avx2 => unsafe { x86::avx2(samples, x, g, subsampling, out) },
        // SAFETY: likewise.
        #[cfg(target_arch = "x86_64")]
        Form::Avx512 => unsafe { x86::avx512(samples, x, g, subsampling, out) },
    }
}

/// Samples as single-precision numbers.
#[inline(always)]
pub fn widen(samples: &[i16], to: &mut [f32]) {
    to.iter_mut().zip(samples).for_each(|(to, from)| *to = f32::from(*from));
}

fn filter_portable(
    samples: &[i16],
    x: &mut [f32],
    (re, im): (&[f32], &[f32]),
    subsampling: usize,
    out: &mut [Complex32],
) {
    widen(samples, x);
    for (n, out) in out.chunks_exact_mut(ROWS).enumerate() {
        let mut sums = [[[0.0_f32; LANES]; 2]; ROWS];
        for (k, (re, im)) in re.chunks_exact(LANES).zip(im.chunks_exact(LANES)).enumerate() {
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = &x[(n * ROWS + row) * subsampling + k * LANES..][..LANES];
                for l in 0..LANES {
                    sums[0][l] += x[l] * re[l];
                    sums[1][l] += x[l] * im[l];
                }
            }
        }
        for (out, [re, im]) in out.iter_mut().zip(&sums) {
            *out = Complex32::new(total(re), total(im));
        }
    }
}

/// The sum of all lanes, in pairs.
fn total(lanes: &[f32; LANES]) -> f32 {
    let mut lanes = *lanes;
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] += lanes[l + half];
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::random::Random;

    #[test]
    fn every_form_filters_like_the_portable_one() {
        let mut random = Random::new(4);
        let mut values =
            |len: usize| -> Vec<f32> { (0..len).map(|_| random.normal_pair()[0] as f32).collect() };
        for (subsampling, taps) in [(2, 32), (8, 128), (10, 160), (64, 1024)] {
            let samples: Vec<i16> =
                values(63 * subsampling + taps).iter().map(|x| (100.0 * x) as i16).collect();
            let (re, im) = (values(taps), values(taps));
            let run = |form| {
                let mut out = vec![Complex32::default(); 64];
                let mut x = vec![0.0; samples.len() + LANES];
                filter(&samples, &mut x, (&re, &im), subsampling, &mut out, form);
                out
            };
            let expected = run(Form::Portable);
            for form in Form::available() {
                let close = |(a, b): (&Complex32, &Complex32)| (a - b).norm() < 1e-3 * taps as f32;
                assert!(
                    run(form).iter().zip(&expected).all(close),
                    "{form:?} {subsampling} {taps}"
                );
            }
        }
    }
}
