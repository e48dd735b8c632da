//! The block: searches a few frequencies of one satellite per call, so that other blocks can run.

use super::{Acquired, GnssAcquisition, VALUES};
use crate::common::parallel::Threads;
use crate::gnss::samples::Samples;
use crate::gnss::weights::Array;
use fxgraph::changes::Change;
use fxgraph::{Block, BlockError, Counter, Env, Frame, FrameMut, Gauge, Io, Next, TimeBase};
use fxgraph_dsp::gnss::acquisition::FrameSearch;

/// Frequencies per call and thread.
const BINS_AT_ONCE: usize = 4;

/// The running block.
pub(super) struct Acquisition {
    array: Array,
    search: FrameSearch,
    every_frames: u64,
    frames: u64,
    /// Time base of the last frame.
    base: TimeBase,
    threads: Threads,
    /// Output of the frame being searched.
    output: Option<FrameMut>,
    searches: Counter,
    found: Counter,
    removed: Counter,
    excised: Gauge,
}

impl Acquisition {
    pub(super) fn new(
        parameters: &GnssAcquisition,
        samples: Samples,
        env: &Env,
    ) -> Result<Self, BlockError> {
        let threads = Threads::new(parameters.threads)?;
        let satellites: Vec<_> = parameters.satellites.iter().map(|s| (s.system, s.prn)).collect();
        Ok(Self {
            search: FrameSearch::new(&parameters.settings(&samples), &satellites, threads.count()),
            array: Array::new(&samples, &parameters.weights),
            every_frames: parameters.every_frames,
            frames: 0,
            base: TimeBase::default(),
            threads,
            output: None,
            searches: env.counters.count("searches", "searches for a satellite"),
            found: env.counters.count("found", "searches that found the satellite"),
            removed: env.counters.count(
                "satellites_removed",
                "satellites removed from the samples of a frame before the search for weaker ones",
            ),
            excised: env.counters.measurement_every(
                parameters.every_frames,
                "excised_band_ratio",
                "part of the band removed because of narrow lines; look for interference if it is large",
            ),
        })
    }

    /// Starts a frame; returns the output at once if the frame is not searched.
    fn begin(&mut self, input: &Frame, mut output: FrameMut) -> Option<FrameMut> {
        let is_whole = input.header().validity.iter().all(|count| *count != 0);
        let start = input.header().timestamp;
        self.array.begin(start);
        let base = input.header().base;
        if !base.is(&self.base) {
            // The code phases in a new time base are others.
            (self.base, self.frames) = (base, 0);
        }
        let is_due = self.frames.is_multiple_of(self.every_frames);
        let header = output.header_mut();
        header.continue_from(input.header());
        header.validity.fill(u32::from(is_whole));
        self.frames += u64::from(is_whole || !is_due);
        // A frame with missing samples is skipped; the next one is searched instead.
        if !is_whole || !is_due {
            self.search.clear();
            self.write(&mut output);
            return Some(output);
        }
        let payload = input.as_slice().expect(fxgraph::ON_HOST);
        self.array.read(payload, start, self.search.samples_mut());
        self.excised.set(self.search.start());
        self.output = Some(output);
        None
    }

    /// Continues the search; returns the output at its end.
    fn search(&mut self, mut output: FrameMut) -> Option<FrameMut> {
        let Self { search, threads, .. } = self;
        let bins = BINS_AT_ONCE * threads.count();
        if !search.step(bins, &|peaks, scratches, work| threads.each(peaks, 1, scratches, work)) {
            self.output = Some(output);
            return None;
        }
        self.removed.add(search.removed());
        self.write(&mut output);
        Some(output)
    }

    /// Writes the results of all satellites.
    fn write(&self, output: &mut FrameMut) {
        let rows = output.as_mut_slice::<[f64; VALUES]>().expect(fxgraph::ON_HOST);
        for (place, acquired) in self.search.results() {
            rows[place] = acquired.values();
            self.searches.add(u64::from(acquired.statistic > 0.0));
            self.found.add(u64::from(Acquired::found(rows[place]).is_some()));
        }
    }
}

impl Block for Acquisition {
    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.array.update(change)
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let done = if let Some(output) = self.output.take() {
            self.search(output)
        } else {
            if io.inputs[0].peek().is_none() {
                return Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait });
            }
            let Some(output) = io.outputs[0].take() else { return Ok(Next::Wait) };
            let Some(input) = io.inputs[0].pop() else { return Ok(Next::Wait) };
            self.begin(&input, output)
        };
        if let Some(output) = done {
            io.outputs[0].push(output);
        }
        Ok(Next::Again)
    }
}
