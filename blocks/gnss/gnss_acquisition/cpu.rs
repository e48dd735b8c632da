//! The block: searches a few frequencies of one satellite per call, so that other blocks can run.

use super::search::{Grid, Peak, Scratch, Search};
use super::{Acquired, GnssAcquisition, VALUES};
use crate::common::parallel::Threads;
use crate::gnss::samples::Samples;
use fxgraph::{Block, BlockError, Counter, Env, Frame, FrameMut, Io, Next};
use fxgraph_dsp::gnss::{Planes, System};

/// Frequencies per call and thread.
const BINS_AT_ONCE: usize = 4;

/// The running block.
pub(super) struct Acquisition {
    samples: Samples,
    planes: Planes,
    systems: Vec<(Search, Vec<Scratch>)>,
    every_frames: u64,
    frames: u64,
    threads: Threads,
    searched: Option<Searched>,
    /// Peaks of the candidate being searched, one for each frequency.
    peaks: Vec<Peak>,
    searches: Counter,
    found: Counter,
}

/// A frame being searched, whose spectra are stored.
struct Searched {
    output: FrameMut,
    system: usize,
    candidate: usize,
    bin: usize,
}

impl Acquisition {
    pub(super) fn new(
        parameters: &GnssAcquisition,
        samples: Samples,
        env: &Env,
    ) -> Result<Self, BlockError> {
        let threads = Threads::new(parameters.threads)?;
        let samples = Samples { antennas: 1, ..samples };
        let search = |system: System| {
            let all = parameters.satellites.iter().enumerate();
            let of_system = all.filter(|(_, s)| s.system == system).map(|(i, s)| (i, s.prn));
            let satellites: Vec<_> = of_system.collect();
            let grid =
                Grid::new(parameters, system, &samples).filter(|_| !satellites.is_empty())?;
            let search = Search::new(grid, &satellites);
            let scratches = (0..threads.count()).map(|_| search.scratch()).collect();
            Some((search, scratches))
        };
        let systems: Vec<_> = System::ALL.into_iter().filter_map(search).collect();
        let bins = systems.iter().map(|(search, _)| search.grid().bins).max().unwrap_or(0);
        Ok(Self {
            planes: Planes::new(1, samples.samples),
            samples,
            systems,
            every_frames: parameters.every_frames,
            frames: 0,
            threads,
            searched: None,
            peaks: vec![Peak::default(); bins],
            searches: env.counters.count("searches", "searches for a satellite"),
            found: env.counters.count("found", "searches that found the satellite"),
        })
    }

    /// Starts a frame; returns the output at once if the frame is not searched.
    fn begin(&mut self, input: &Frame, mut output: FrameMut) -> Option<FrameMut> {
        let is_whole = input.header().validity.iter().all(|count| *count != 0);
        let is_due = self.frames.is_multiple_of(self.every_frames);
        let (header, payload) = output.parts_mut::<[f64; VALUES]>().expect(fxgraph::ON_HOST);
        header.continue_from(input.header());
        header.validity.fill(u32::from(is_whole));
        for (place, nothing) in self.systems.iter().flat_map(|(search, _)| search.unsearched()) {
            payload[place] = nothing.values();
        }
        // A frame with missing samples is skipped; the next one is searched instead.
        if !is_whole || !is_due {
            self.frames += u64::from(!is_due);
            return Some(output);
        }
        self.frames += 1;
        let payload = input.as_slice().expect(fxgraph::ON_HOST);
        self.samples.read(payload, 0..self.samples.samples, &mut self.planes);
        for (search, scratches) in &mut self.systems {
            search.take(&self.planes, &mut scratches[0]);
        }
        self.searched = Some(Searched { output, system: 0, candidate: 0, bin: 0 });
        None
    }

    /// Continues the search; returns the output at its end.
    fn search(&mut self, mut searched: Searched) -> Option<FrameMut> {
        let Some((search, scratches)) = self.systems.get_mut(searched.system) else {
            return Some(searched.output);
        };
        let (candidate, bins) = (searched.candidate, search.grid().bins);
        let end = bins.min(searched.bin + BINS_AT_ONCE * self.threads.count());
        let begin = searched.bin;
        let all = &mut self.peaks[begin..end];
        self.threads.each(all, 1, scratches, |first, peaks, scratch| {
            for (i, peak) in peaks.iter_mut().enumerate() {
                *peak = search.peak(candidate, (begin + first + i) as i64, scratch);
            }
        });
        searched.bin = end;
        if end == bins {
            let (place, acquired) =
                search.conclude(candidate, &self.peaks[..bins], &mut scratches[0]);
            self.searches.add(1);
            self.found.add(u64::from(Acquired::found(acquired.values()).is_some()));
            searched.output.as_mut_slice::<[f64; VALUES]>().expect(fxgraph::ON_HOST)[place] =
                acquired.values();
            (searched.candidate, searched.bin) = (candidate + 1, 0);
            if searched.candidate == search.candidates() {
                (searched.system, searched.candidate) = (searched.system + 1, 0);
            }
        }
        self.searched = Some(searched);
        None
    }
}

impl Block for Acquisition {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let done = if let Some(searched) = self.searched.take() {
            self.search(searched)
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
