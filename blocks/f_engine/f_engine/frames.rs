//! Headers of the output frames, for all implementations.
//!
//! Between `pfb`, `fft` and `postproc` there are frames of spectra. Here such a frame, as long as the output frame,
//! is only a header: the schedule of `pfb` fills it, and the collector of `postproc` reads it.

use super::FEngine;
use crate::f_engine::postproc::heaps::Collector;
use crate::f_engine::samples::pol::Store;
use crate::f_engine::samples::power::{Level, Measured, summary};
use crate::f_engine::samples::schedule::Schedule;
use fxgraph::{Env, Header, Ports, Summary};
use std::ops::Range;

/// Validity and power of the spectra of an output frame.
pub struct Spectra {
    header: Header,
    per_pol: usize,
    /// Power of the samples, `[pol]`.
    pub measured: Vec<Measured>,
}

impl Spectra {
    /// Sets the validity of `spectra` of polarisation `p`.
    pub fn mark(&mut self, p: usize, spectra: Range<usize>, is_valid: bool) {
        let of_pol = &mut self.header.validity[p * self.per_pol..];
        of_pol[spectra].fill(u32::from(is_valid));
    }

    /// Returns whether any spectrum is valid.
    pub fn has_valid(&self) -> bool {
        self.header.validity.contains(&1)
    }

    /// Resets the spectra for the frame that starts at `timestamp`: none is valid yet.
    pub fn begin(&mut self, timestamp: u64) {
        self.header.timestamp = timestamp;
        self.header.validity.fill(0);
        self.measured.fill(Measured::default());
    }
}

/// Converts the validity and power of spectra to headers of output frames.
pub struct Frames {
    collector: Collector,
    pols: usize,
    spectra: usize,
    /// Level of the whole run, `[pol]`.
    levels: Vec<Level>,
    summary: Summary,
}

impl Frames {
    pub fn new(f_engine: &FEngine, ports: &Ports, env: &Env) -> Self {
        let shape = f_engine.shape(&ports.inputs);
        Self {
            collector: Collector::new(&f_engine.postproc(), shape, env),
            pols: shape.pols,
            spectra: shape.spectra,
            levels: Level::of_inputs(&ports.inputs, &env.counters),
            summary: env.summary.clone(),
        }
    }

    /// Smallest magnitude that counts as clipped, for samples of polarisation `p`.
    pub fn limit(&self, p: usize) -> i16 {
        self.levels[p].limit
    }

    /// Creates an empty [`Spectra`], to be reused for one frame after the other.
    pub fn spectra(&self) -> Spectra {
        let validity = vec![0; self.pols * self.spectra];
        Spectra {
            header: Header { validity, ..Header::default() },
            per_pol: self.spectra,
            measured: vec![Measured::default(); self.pols],
        }
    }

    /// Begins the output frame: sets its timestamp, and its validity to the number of valid spectra of each heap.
    pub fn fill(&self, spectra: &Spectra, output: &mut Header) {
        self.collector.begin(self.collector.number(&spectra.header), output);
        self.collector.piece(&spectra.header, 0, usize::MAX, output);
    }

    /// Heaps that lack a valid spectrum and must be zero. Call it before [`Frames::complete`].
    pub fn invalid(&self, output: &Header) -> impl Iterator<Item = usize> {
        self.collector.invalid(output)
    }

    /// Completes the header of the output frame, with the counts of clamped values, `saturated` `[heap][pol]`, and the
    /// sums of squares of the measured values, `squares` `[heap][pol]`. Returns whether the frame has a valid heap.
    /// Frames are completed in order.
    pub fn complete<S: Store>(
        &mut self,
        schedule: &Schedule<S>,
        spectra: &mut Spectra,
        saturated: impl ExactSizeIterator<Item = u64>,
        squares: impl ExactSizeIterator<Item = u64>,
        output: &mut Header,
    ) -> bool {
        schedule.annotate_measured(&mut spectra.header, &spectra.measured);
        let measured = self.levels.iter_mut().zip(&spectra.measured);
        measured.for_each(|(level, measured)| level.add(*measured));
        let is_complete = self.collector.accept(&spectra.header) && self.collector.complete(output);
        if is_complete {
            self.collector.annotate_quantised(output, saturated, squares);
        }
        is_complete
    }

    /// Writes the summary of the run.
    pub fn summarise(&self) {
        self.summary.set(summary(&self.levels));
    }
}
