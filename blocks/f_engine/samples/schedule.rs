//! Selection of the samples of each spectrum, as they arrive, for all implementations.

use super::input::Sizes;
use super::pol::{Count, Pol, Store};
use super::power::Measured;
use crate::common::gaps::Gaps;
use crate::common::live::Live;
use fxgraph::changes::Changes;
use fxgraph::{Header, Input, PortType};
use fxgraph_dsp::delay::Piece;

/// Availability of the samples of a spectrum, with the values that `pfb.cu` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The whole window is present.
    Whole = 0,
    /// The spectrum is missing, but the last `step` samples of its window are present and are measured.
    Ending = 1,
    /// The spectrum is missing.
    Lost = 2,
}

/// Adjacent spectra of one polarisation with the same coarse delay and the same fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index of the first spectrum within the output frame.
    pub first: usize,
    pub count: usize,
    pub fate: Fate,
    /// Time of the first sample of the first window, in samples of the input.
    pub from: i64,
}

/// Time of the next output frame.
pub enum Placed {
    /// The frame starts at the schedule's timestamp.
    Here,
    /// There is no next frame, because the inputs have ended.
    Nowhere,
}

/// Schedule of the spectra of all polarisations, one output frame after the other.
pub struct Schedule<S> {
    pub sizes: Sizes,
    pub pols: Vec<Pol<S>>,
    /// Largest number of spectra of a run.
    most: usize,
    /// Time of the output frame in samples of the input, or its earliest time while not `placed`.
    frame_start: i64,
    placed: bool,
    /// Time after the last present sample of any polarisation.
    reached: i64,
    gaps: Gaps,
    count: Count,
    /// Scheduled live updates.
    pub changes: Changes<Live>,
}

impl<S: Store> Schedule<S> {
    /// Creates a schedule of `inputs` with runs of up to `most` spectra. `delays` has one list for each input, or is
    /// empty for blocks without delays. `stores` has one buffer of `capacity` samples for each input.
    pub fn new(
        sizes: Sizes,
        inputs: &[PortType],
        delays: &[Vec<Piece>],
        most: usize,
        capacity: usize,
        stores: impl IntoIterator<Item = S>,
        count: Count,
    ) -> Self {
        let pol = |(p, (input, store))| {
            let pieces = delays.get(p).map(Vec::as_slice);
            Pol::new(input, pieces, store, capacity, sizes)
        };
        let pols = inputs.iter().zip(stores).enumerate().map(pol);
        Self {
            sizes,
            pols: pols.collect(),
            most,
            frame_start: 0,
            placed: false,
            reached: 0,
            gaps: Gaps::new(inputs[0].clock.adc_sample_rate_hz),
            count,
            changes: Changes::default(),
        }
    }

    /// Timestamp of the output frame.
    pub fn timestamp(&self) -> u64 {
        self.frame_start.cast_unsigned() * self.sizes.ticks as u64
    }

    /// Finds the next output frame that can have a valid spectrum, unless it is already placed. Returns `None` if
    /// its time is not known yet. Applies the live updates that take effect before the end of the frame: delays
    /// here, all others through `update`.
    pub fn place(
        &mut self,
        inputs: &mut [Input],
        mut update: impl FnMut(u64, Live),
    ) -> Option<Placed> {
        if self.placed {
            return Some(Placed::Here);
        }
        if let Placed::Nowhere = self.find(inputs)? {
            return Some(Placed::Nowhere);
        }
        self.placed = true;
        let start = self.timestamp();
        let step = (self.sizes.step * self.sizes.ticks) as u64;
        for (from, live) in self.changes.begin(start, step * self.sizes.spectra as u64) {
            match live {
                Live::Delays(delays) => {
                    let pols = self.pols.iter_mut().zip(&delays);
                    pols.for_each(|(pol, pieces)| pol.update(from, pieces));
                }
                live => update(from, live),
            }
        }
        for pol in &mut self.pols {
            pol.begin(start, step);
        }
        for (gauge, pol) in self.count.delays.iter().zip(&self.pols) {
            gauge.set(pol.delay_seconds());
        }
        self.count.show_expired(&mut self.pols, start);
        Some(Placed::Here)
    }

    /// Returns whether the output frame is placed and its live updates have been applied.
    pub fn is_placed(&self) -> bool {
        self.placed
    }

    fn find(&mut self, inputs: &mut [Input]) -> Option<Placed> {
        let (step, reach) = (self.sizes.step as i64, self.sizes.max_delay as i64);
        let frame_samples = step * self.sizes.spectra as i64;
        // Distance from the frame's start to the latest start of one of its windows.
        let last_window = frame_samples - step + reach;
        let mut first = Some(i64::MAX);
        for (pol, input) in self.pols.iter_mut().zip(inputs) {
            pol.forget_before(self.frame_start - reach);
            match pol.first_present(input, &self.count) {
                Some(time) if time <= self.frame_start + last_window => return Some(Placed::Here),
                Some(time) => first = first.map(|first| first.min(time)),
                None => first = None,
            }
        }
        let first = first?;
        if first == i64::MAX {
            return Some(Placed::Nowhere);
        }
        let earliest = (first - last_window).max(0) as u64;
        let (before, frame_start) =
            (self.frame_start, earliest.next_multiple_of(frame_samples as u64) as i64);
        self.frame_start = frame_start;
        let Sizes { ticks, window, .. } = self.sizes;
        let (gap, unit) =
            ((frame_start - before) as u64 * ticks as u64, step as u64 * ticks as u64);
        let skipped = self.gaps.missing(gap, unit) as i64;
        for pol in &mut self.pols {
            pol.skip_spectra(before, skipped, step, window as i64);
            pol.forget_before(frame_start - reach);
        }
        Some(Placed::Here)
    }

    /// Reserves space for all samples of the output frame. They keep their places until the frame is done.
    pub fn reserve_frame(&mut self) {
        let first = self.frame_start - self.sizes.max_delay as i64;
        for pol in &mut self.pols {
            pol.forget_before(first);
            pol.reserve_until(first + self.sizes.frame_samples() as i64);
        }
    }

    /// Drops the samples of polarisation `p` that no later spectrum needs.
    pub fn forget_done(&mut self, p: usize) {
        let Sizes { step, max_delay, .. } = self.sizes;
        let t = self.frame_start + (self.pols[p].done * step) as i64;
        self.pols[p].forget_before(t - max_delay as i64);
    }

    /// Next run of spectra of polarisation `p`; `None` if their samples have not arrived or the frame is complete.
    pub fn next_run(&mut self, p: usize, input: &mut Input) -> Option<Run> {
        let Sizes { step, window, spectra, max_delay, .. } = self.sizes;
        let pol = &mut self.pols[p];
        let first = pol.done;
        if first == spectra {
            return None;
        }
        let t = self.frame_start + (first * step) as i64;
        let same = pol.same_coarse(first, self.most.min(spectra - first));
        let Some(coarse) = pol.coarse(first, max_delay) else {
            self.count.delays_out_of_range.add(same as u64);
            self.count.spectra_missing.add(pol.missing.take());
            pol.done += same;
            return Some(Run { first, count: same, fate: Fate::Lost, from: t });
        };
        let from = t - coarse;
        if !pol.fetch(from + ((same - 1) * step + window) as i64, input, &self.count) {
            return None;
        }
        let start = |n: usize| from + (n * step) as i64;
        let fate = |n: usize| {
            let end = start(n) + window as i64;
            if pol.history.is_whole(start(n), end) {
                Fate::Whole
            } else if pol.history.is_whole(end - step as i64, end) {
                Fate::Ending
            } else {
                Fate::Lost
            }
        };
        let of_first = fate(0);
        // Samples are seldom missing, so check the whole run first instead of each spectrum.
        let count = if pol.history.is_whole(from, start(same - 1) + window as i64) {
            same
        } else {
            1 + (1..same).take_while(|n| fate(*n) == of_first).count()
        };
        if of_first == Fate::Whole {
            self.count.spectra_missing.add(pol.missing.take());
        } else {
            let expects = |n: &usize| pol.expects(start(*n), start(*n) + window as i64);
            let mut expected = (0..count).filter(expects);
            if let Some(begin) = expected.next() {
                pol.missing.add(start(begin) + window as i64, 1 + expected.count() as u64);
            }
        }
        self.reached = self.reached.max(pol.history.last_present());
        pol.done += count;
        Some(Run { first, count, fate: of_first, from })
    }

    /// Returns whether all spectra of the frame have been in a run.
    pub fn is_done(&self) -> bool {
        self.pols.iter().all(|pol| pol.done == self.sizes.spectra)
    }

    /// Writes the timestamp of the frame and the delays of its spectra to `header`.
    pub fn annotate(&self, header: &mut Header) {
        header.timestamp = self.timestamp();
        let rows = self.pols.len() * self.sizes.spectra;
        let delays = || self.pols.iter().flat_map(|pol| &pol.delays);
        let tables = &mut header.annotations;
        let fine = tables.reset("fine_delay_samples", rows);
        fine.iter_mut().zip(delays()).for_each(|(to, delay)| *to = delay.fine_samples);
        let phase = tables.reset("phase_turns", rows);
        phase.iter_mut().zip(delays()).for_each(|(to, delay)| *to = delay.phase_turns);
    }

    /// Writes power and clipping of the frame's samples, `[pol]`, to `header`.
    pub fn annotate_measured(&self, header: &mut Header, measured: &[Measured]) {
        let power = header.annotations.reset("adc_power", 2 * measured.len());
        for (to, measured) in power.chunks_exact_mut(2).zip(measured) {
            to[0] = measured.power as f64;
            to[1] = measured.samples as f64;
        }
        let clipped = header.annotations.reset("adc_clipped", measured.len());
        for (to, measured) in clipped.iter_mut().zip(measured) {
            *to = measured.clipped as f64;
            self.count.samples_clipped.add(measured.clipped);
        }
    }

    /// Continues with the next output frame.
    pub fn next_frame(&mut self) {
        for pol in &mut self.pols {
            let missing = pol.missing.take_until(self.reached, self.sizes.step as i64);
            self.count.spectra_missing.add(missing);
        }
        self.frame_start += (self.sizes.spectra * self.sizes.step) as i64;
        self.placed = false;
    }
}
