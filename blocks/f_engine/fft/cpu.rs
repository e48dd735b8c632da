//! The block on the CPU.

use crate::common::parallel::Threads;
use crate::common::spectra::Shape;
use fxgraph::{BlockError, Frame, FrameMut, Map};
use fxgraph_dsp::real_fft::RealFixup;
use num_complex::Complex32;
use rustfft::FftPlanner;
use std::sync::Arc;

/// The running block.
pub struct Cpu(Transform);

/// Fourier transform from series of samples to spectra.
pub struct Transform {
    /// Transform of N/unzip complex numbers.
    plan: Arc<dyn rustfft::Fft<f32>>,
    /// Step to the real transform. `None` for complex samples, and with `unzip`, where `postproc` does it.
    fixup: Option<RealFixup>,
    threads: Threads,
    scratches: Vec<Scratch>,
}

/// Working memory of one thread.
#[derive(Clone)]
struct Scratch {
    /// Copy of the current series. rustfft's transform that overwrites its input is faster than the other
    /// one, even with this copy.
    series: Vec<Complex32>,
    library: Vec<Complex32>,
}

impl Transform {
    /// Creates a transform to spectra of this shape, from real or complex samples, on `threads` threads.
    pub fn new(shape: Shape, is_complex: bool, threads: usize) -> Result<Self, BlockError> {
        let plan = FftPlanner::new().plan_fft_forward(shape.channels / shape.unzip);
        let threads = Threads::new(threads)?;
        let room = |len: usize| vec![Complex32::default(); len];
        let scratch =
            Scratch { series: room(plan.len()), library: room(plan.get_outofplace_scratch_len()) };
        Ok(Self {
            plan,
            fixup: (shape.unzip == 1 && !is_complex).then(|| RealFixup::new(shape.channels)),
            scratches: vec![scratch; threads.count()],
            threads,
        })
    }

    /// Transforms each of the `series`. Real samples are passed as pairs, the complex numbers
    /// z_i = x_{2i} + j x_{2i+1}.
    pub fn run(&mut self, series: &[Complex32], spectra: &mut [Complex32]) {
        let len = self.plan.len();
        self.threads.each(spectra, len, &mut self.scratches, |first, spectra, scratch| {
            let series = series[first * len..].chunks_exact(len);
            for (series, spectrum) in series.zip(spectra.chunks_exact_mut(len)) {
                let Scratch { series: copy, library } = &mut *scratch;
                copy.copy_from_slice(series);
                self.plan.process_outofplace_with_scratch(copy, spectrum, library);
                if let Some(fixup) = &self.fixup {
                    fixup.apply(spectrum);
                }
            }
        });
    }
}

impl Cpu {
    pub fn new(shape: Shape, is_complex: bool, threads: usize) -> Result<Self, BlockError> {
        Ok(Self(Transform::new(shape, is_complex, threads)?))
    }
}

impl Map for Cpu {
    fn map(&mut self, input: &Frame, output: &mut FrameMut) -> Result<(), BlockError> {
        self.0.run(input.as_slice()?, output.as_mut_slice()?);
        Ok(())
    }
}
