//! What is known of an output frame: what all forms of the block share.
//!
//! The blocks that this one stands for hand frames of spectra on. Here such a frame, as long as the
//! output's, is a header alone: the schedule of `pfb` says what goes in, the collector of
//! `postproc` reads it.

use super::FEngine;
use crate::pfb::pol::Store;
use crate::pfb::power::{Level, Measured, summary};
use crate::pfb::schedule::{Run, Schedule};
use crate::postproc::heaps::{Collector, Filling};
use fxgraph::{Env, Header, Ports, Summary};

/// What is known of the spectra of an output frame.
pub struct Spectra {
    header: Header,
    per_pol: usize,
    /// Of their samples, for each polarisation.
    pub measured: Vec<Measured>,
}

impl Spectra {
    /// Says whether the spectra of a run of polarisation `p` are valid.
    pub fn mark(&mut self, p: usize, run: &Run, is_valid: bool) {
        let first = p * self.per_pol + run.first;
        self.header.validity[first..first + run.count].fill(u32::from(is_valid));
    }

    /// Whether any of them is valid.
    pub fn has_valid(&self) -> bool {
        self.header.validity.contains(&1)
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
        let shape = f_engine.shape(ports);
        Self {
            collector: Collector::new(&f_engine.postproc(), shape, &env.counters),
            pols: shape.pols,
            spectra: shape.spectra,
            levels: ports.inputs.iter().map(|input| Level::new(input.dtype.bits())).collect(),
            summary: env.summary.clone(),
        }
    }

    /// A sample of polarisation `p` of this magnitude or more is clipped.
    pub fn limit(&self, p: usize) -> i16 {
        self.levels[p].limit
    }

    /// The spectra of the frame that starts at `timestamp`, none of them valid yet.
    pub fn begin(&self, timestamp: i64) -> Spectra {
        // Small tables per frame of megabytes.
        let validity = vec![0; self.pols * self.spectra];
        let timestamp = timestamp.cast_unsigned();
        Spectra {
            header: Header { timestamp, validity, ..Header::default() },
            per_pol: self.spectra,
            measured: vec![Measured::default(); self.pols],
        }
    }

    /// Which heaps they fill.
    pub fn fill(&self, spectra: &Spectra) -> Filling {
        let mut filling = self.collector.begin(self.collector.number(&spectra.header));
        self.collector.piece(&spectra.header, 0, &mut filling);
        filling
    }

    /// The heaps that lack a valid spectrum: they are to be zero.
    pub fn invalid(&self, filling: &Filling) -> impl Iterator<Item = usize> {
        self.collector.invalid(filling)
    }

    /// Writes down what is known of the output frame, with its clamped values \[heap\]\[pol\]; whether
    /// it has a valid heap. Frames are completed in order.
    pub fn complete<S: Store>(
        &mut self,
        schedule: &Schedule<S>,
        mut spectra: Spectra,
        filling: &Filling,
        saturated: &[u64],
        header: &mut Header,
    ) -> bool {
        schedule.annotate_measured(&mut spectra.header, &spectra.measured);
        let measured = self.levels.iter_mut().zip(&spectra.measured);
        measured.for_each(|(level, measured)| level.add(*measured));
        let is_complete =
            self.collector.accept(&spectra.header) && self.collector.complete(filling, header);
        if is_complete {
            self.collector.annotate_saturated(header, saturated);
        }
        is_complete
    }

    /// Writes the summary of the run.
    pub fn summarise(&self) {
        self.summary.set(summary(&self.levels));
    }
}
