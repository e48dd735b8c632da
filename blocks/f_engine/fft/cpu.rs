//! The block on the CPU.

use crate::common::parallel::Threads;
use crate::common::spectra::Shape;
use fxgraph::{BlockError, Frame, FrameMut, Map};
use fxgraph_dsp::fourier::{Fft, forward_f32};
use fxgraph_dsp::real_fft::RealFixup;
use fxgraph_dsp::simd::Lines;
use num_complex::Complex32;
use std::sync::Arc;

/// Fourier transform from series of samples to spectra.
pub struct Transform {
    /// Transform of N/unzip complex numbers.
    plan: Arc<dyn Fft<f32>>,
    /// Step to the real transform. `None` for complex samples, and with `unzip`, where `postproc` does it.
    fixup: Option<RealFixup>,
}

impl Transform {
    /// Creates a transform to spectra of this shape, from real or complex samples.
    pub fn new(shape: Shape, is_complex: bool) -> Self {
        Self {
            plan: forward_f32(shape.channels / shape.unzip),
            fixup: (shape.unzip == 1 && !is_complex).then(|| RealFixup::new(shape.channels)),
        }
    }

    /// Allocates working memory of the library.
    pub fn scratch(&self) -> Lines<Complex32> {
        Lines::new(self.plan.get_outofplace_scratch_len())
    }

    /// Transforms a series, which is overwritten. Real samples are passed as pairs, the complex numbers
    /// z_i = x_{2i} + j x_{2i+1}.
    pub fn run(
        &self,
        series: &mut [Complex32],
        spectrum: &mut [Complex32],
        scratch: &mut [Complex32],
    ) {
        self.plan.process_outofplace_with_scratch(series, spectrum, scratch);
        if let Some(fixup) = &self.fixup {
            fixup.apply(spectrum);
        }
    }
}

/// Working memory of one thread.
#[derive(Clone)]
struct Job {
    /// Copy of the current series. rustfft's transform that overwrites its input is faster than the other
    /// one, even with this copy.
    series: Lines<Complex32>,
    scratch: Lines<Complex32>,
}

/// The running block.
pub struct Cpu {
    transform: Transform,
    threads: Threads,
    jobs: Vec<Job>,
}

impl Cpu {
    pub fn new(shape: Shape, is_complex: bool, threads: usize) -> Result<Self, BlockError> {
        let transform = Transform::new(shape, is_complex);
        let threads = Threads::new(threads)?;
        let series = Lines::new(shape.channels / shape.unzip);
        let job = Job { series, scratch: transform.scratch() };
        Ok(Self { jobs: vec![job; threads.count()], transform, threads })
    }
}

impl Map for Cpu {
    fn map(&mut self, input: &Frame, output: &mut FrameMut) -> Result<(), BlockError> {
        let (series, spectra): (&[Complex32], _) = (input.as_slice()?, output.as_mut_slice()?);
        let Self { transform, threads, jobs } = self;
        let len = jobs[0].series.len();
        threads.each(spectra, len, jobs, |first, spectra, Job { series: copy, scratch }| {
            let series = series[first * len..].chunks_exact(len);
            for (series, spectrum) in series.zip(spectra.chunks_exact_mut(len)) {
                copy.copy_from_slice(series);
                transform.run(copy, spectrum, scratch);
            }
        });
        Ok(())
    }
}
