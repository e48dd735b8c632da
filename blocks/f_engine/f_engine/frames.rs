//! What is known of an output frame: what all forms of the block share.
//!
//! The blocks that this one stands for hand frames of spectra on. Here such a frame, as long as the
//! output's, is a header alone: the schedule of `pfb` says what goes in, the collector of
//! `postproc` reads it.

use super::FEngine;
use crate::f_engine::postproc::heaps::Collector;
use crate::f_engine::samples::pol::Store;
use crate::f_engine::samples::power::{Level, Measured, summary};
use crate::f_engine::samples::schedule::Schedule;
use fxgraph::{Env, Header, Ports, Summary};
use std::ops::Range;

/// What is known of the spectra of an output frame.
pub struct Spectra {
    header: Header,
    per_pol: usize,
    /// Of their samples, for each polarisation.
    pub measured: Vec<Measured>,
}

impl Spectra {
    /// Says whether these spectra of polarisation `p` are valid.
    pub fn mark(&mut self, p: usize, spectra: Range<usize>, is_valid: bool) {
        let of_pol = &mut self.header.validity[p * self.per_pol..];
        of_pol[spectra].fill(u32::from(is_valid));
    }

    /// Whether any of them is valid.
    pub fn has_valid(&self) -> bool {
        self.header.validity.contains(&1)
    }

    /// Forgets the spectra, for those of the frame that starts at `timestamp`: none is valid yet.
    pub fn begin(&mut self, timestamp: u64) {
        self.header.timestamp = timestamp;
        self.header.validity.fill(0);
        self.measured.fill(Measured::default());
    }
}

/// From the spectra of output frames to their headers.
pub struct Frames {
    collector: Collector,
    pols: usize,
    spectra: usize,
    /// Of the whole run, for each polarisation.
    levels: Vec<Level>,
    summary: Summary,
}

impl Frames {
    pub fn new(f_engine: &FEngine, ports: &Ports, env: &Env) -> Self {
        let shape = f_engine.shape(&ports.inputs);
        Self {
            collector: Collector::new(&f_engine.postproc(), shape, &env.counters),
            pols: shape.pols,
            spectra: shape.spectra,
            levels: Level::of_inputs(&ports.inputs, &env.counters),
            summary: env.summary.clone(),
        }
    }

    /// A sample of polarisation `p` of this magnitude or more is clipped.
    pub fn limit(&self, p: usize) -> i16 {
        self.levels[p].limit
    }

    /// Room for what is known of the spectra of one frame after the other.
    pub fn spectra(&self) -> Spectra {
        let validity = vec![0; self.pols * self.spectra];
        Spectra {
            header: Header { validity, ..Header::default() },
            per_pol: self.spectra,
            measured: vec![Measured::default(); self.pols],
        }
    }

    /// Begins the output frame of these spectra with how many of each heap are valid.
    pub fn fill(&self, spectra: &Spectra, output: &mut Header) {
        self.collector.begin(self.collector.number(&spectra.header), output);
        self.collector.piece(&spectra.header, 0, usize::MAX, output);
    }

    /// The heaps that lack a valid spectrum, until the frame is complete: they are to be zero.
    pub fn invalid(&self, output: &Header) -> impl Iterator<Item = usize> {
        self.collector.invalid(output)
    }

    /// Writes down what is known of the output frame, with its clamped values \[heap\]\[pol\]; whether
    /// it has a valid heap. Frames are completed in order.
    pub fn complete<S: Store>(
        &mut self,
        schedule: &Schedule<S>,
        spectra: &mut Spectra,
        saturated: impl ExactSizeIterator<Item = u64>,
        output: &mut Header,
    ) -> bool {
        schedule.annotate_measured(&mut spectra.header, &spectra.measured);
        let measured = self.levels.iter_mut().zip(&spectra.measured);
        measured.for_each(|(level, measured)| level.add(*measured));
        let is_complete = self.collector.accept(&spectra.header) && self.collector.complete(output);
        if is_complete {
            self.collector.annotate_saturated(output, saturated);
        }
        is_complete
    }

    /// Writes the summary of the run.
    pub fn summarise(&self) {
        self.summary.set(summary(&self.levels));
    }
}
