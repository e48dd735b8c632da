//! Acquisition: search for satellites in the samples of a frame.
//!
//! Narrow lines are removed from the samples first. Strong satellites are searched for, removed from the samples, and
//! the others are searched for in the rest, until no more are found. The threshold is that of the measured tail of the
//! statistic.
//!
//! # Layout
//! - [`search`]: powers of the cells of one satellite
//! - [`tail`]: threshold for a probability of a false alarm
//! - [`excision`], [`cancellation`]: removal of lines and of satellites

pub mod cancellation;
pub mod excision;
#[cfg(test)]
mod false_alarms;
pub mod search;
pub mod tail;

use crate::gnss::codes::gps::gold;
use crate::gnss::codes::{AUGMENTATION_DELAY_CHIPS, chips};
use crate::gnss::{Carriers, Planes, Replica, System};
use cancellation::Cancellation;
use excision::Excision;
use search::{Candidate, Depth, Grid, Peak, Scratch, Search};

/// Largest number of searches of a frame, each without the satellites found before.
const MOST_ROUNDS: usize = 6;
/// Part of a satellite's power that may leak into the search for another one: -21 dB with the worst Doppler shift, and
/// as much again for noise and the errors of its estimate.
const LEAK: f64 = 0.03;
/// Largest number of codes that are searched for in order to remove their satellites.
const MOST_OTHERS: usize = 37 + AUGMENTATION_DELAY_CHIPS.len();
/// Number of values of a satellite in a frame.
pub const VALUES: usize = 6;

/// Result of a search, in the order of [`values`](Acquired::values).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Acquired {
    /// The signal.
    pub system: System,
    /// The satellite.
    pub prn: usize,
    /// Largest power divided by the mean power; 0 without a search.
    pub statistic: f64,
    /// Value that the statistic must exceed.
    pub threshold: f64,
    /// Shift of the carrier in Hz.
    pub doppler_hz: f64,
    /// Phase of the code at the frame's timestamp, in chips.
    pub code_phase_chips: f64,
}

impl Acquired {
    /// Returns the result of a satellite that was not searched for.
    #[must_use]
    pub fn none(system: System, prn: usize) -> Self {
        let [statistic, threshold, doppler_hz, code_phase_chips] = [0.0; 4];
        Self { system, prn, statistic, threshold, doppler_hz, code_phase_chips }
    }

    /// Returns the values as in a frame.
    #[must_use]
    pub fn values(&self) -> [f64; VALUES] {
        let [system, prn] = [self.system.number() as f64, self.prn as f64];
        [system, prn, self.statistic, self.threshold, self.doppler_hz, self.code_phase_chips]
    }

    /// Reads the values from a frame; `None` if they are invalid or nothing was found.
    #[must_use]
    pub fn found(values: [f64; VALUES]) -> Option<Self> {
        let [system, prn, statistic, threshold, doppler_hz, code_phase_chips] = values;
        let is_found = statistic > threshold && (doppler_hz + code_phase_chips).is_finite();
        let system = System::numbered(system)?;
        let prn = system.satellite(prn)?;
        is_found.then_some(Self { system, prn, statistic, threshold, doppler_hz, code_phase_chips })
    }
}

/// Settings of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Samples of a frame.
    pub samples: usize,
    /// Samples per second.
    pub rate_hz: f64,
    /// Frequencies of the carriers.
    pub carriers: Carriers,
    /// Largest Doppler shift of either sign.
    pub max_doppler_hz: f64,
    /// Probability of a false detection, per satellite and search.
    pub false_alarm_probability: f64,
}

impl Settings {
    /// Whether a frame is long enough to search for a satellite of `system`, and not too long.
    #[must_use]
    pub fn can_search(&self, system: System) -> bool {
        Grid::new(self, system).is_some()
    }
}

/// Divides peaks among threads, each with a scratch: calls the function with the first frequency, the peaks and the
/// scratch.
pub type Each<'a> = &'a dyn Fn(
    &mut [Peak],
    &mut [Scratch],
    &(dyn Fn(usize, &mut [Peak], &mut Scratch) + Send + Sync),
);

/// Search of a frame for the satellites of several systems.
pub struct FrameSearch {
    planes: Planes,
    excision: Excision,
    cancellation: Cancellation,
    systems: Vec<(Search, Vec<Scratch>)>,
    /// Peaks of the candidate being searched, one for each frequency.
    peaks: Vec<Peak>,
    /// Candidates above their thresholds in a round; the memory is kept.
    hits: Vec<Hit>,
    state: State,
    /// Satellites removed from the frame.
    removed: u64,
}

/// Progress of a search.
#[derive(Clone, Copy, Debug)]
struct State {
    round: usize,
    depth: Depth,
    /// Round that first searched for satellites that are not in the list.
    others_since: Option<usize>,
    system: usize,
    candidate: usize,
    bin: usize,
}

/// A candidate above its threshold.
struct Hit {
    system: usize,
    candidate: usize,
    /// Ratio of signal power to noise power density in Hz, and its excess over the threshold.
    strength_hz: f64,
    margin_hz: f64,
}

/// Returns the C/A codes of satellites that are not in `listed`: GPS, augmentation systems and QZSS. There are none
/// if no listed signal has their carrier.
fn others(listed: &[(System, usize)]) -> impl Iterator<Item = Replica> {
    let known: Vec<Vec<i8>> = listed
        .iter()
        .filter(|(system, _)| matches!(system, System::GpsL1Ca | System::QzssL1Ca))
        .filter_map(|(system, prn)| chips(*system, *prn))
        .collect();
    let gps = System::GpsL1Ca.prns().filter_map(|prn| chips(System::GpsL1Ca, prn));
    gps.chain(AUGMENTATION_DELAY_CHIPS.into_iter().map(gold))
        .filter(move |code| !known.contains(code))
        .map(|code| Replica::of_chips(System::GpsL1Ca, &code))
        .take(if listed.iter().any(|(system, _)| has_carrier_of_others(*system)) {
            MOST_OTHERS
        } else {
            0
        })
}

/// Whether C/A codes have the carrier of `system`.
fn has_carrier_of_others(system: System) -> bool {
    (system.carrier_hz() - System::GpsL1Ca.carrier_hz()).abs() < 1.0
}

impl FrameSearch {
    /// Creates a search for `satellites`, for `threads` threads.
    #[must_use]
    pub fn new(settings: &Settings, satellites: &[(System, usize)], threads: usize) -> Self {
        let all_listed = satellites;
        let search = |system: System| {
            let all = satellites.iter().enumerate();
            let of_system = all.filter(|(_, (s, _))| *s == system).map(|(i, (_, prn))| (i, *prn));
            let satellites: Vec<_> = of_system.collect();
            // A search for other codes than C/A would take longer than all others; they leak little into other systems.
            let others: Vec<Replica> =
                if system == System::GpsL1Ca { others(all_listed).collect() } else { vec![] };
            let is_used = !(satellites.is_empty() && others.is_empty());
            let grid = Grid::new(settings, system).filter(|_| is_used)?;
            let search = Search::new(grid, &satellites, others);
            let scratches = (0..threads).map(|_| search.scratch()).collect();
            Some((search, scratches))
        };
        let systems: Vec<_> = System::ALL.into_iter().filter_map(search).collect();
        let grids = || systems.iter().map(|(search, _)| search.grid());
        let bins = grids().map(|grid| grid.bins).max().unwrap_or(0);
        let candidates = systems.iter().map(|(search, _)| search.candidates.len()).sum();
        let period = grids().map(Grid::period_samples).max().unwrap_or(1);
        let Settings { samples, rate_hz, carriers, .. } = *settings;
        let depth = Depth::Full;
        Self {
            planes: Planes::new(1, samples),
            excision: Excision::new(samples, rate_hz),
            cancellation: Cancellation::new(period, rate_hz, carriers),
            peaks: vec![Peak::default(); bins],
            hits: Vec::with_capacity(candidates),
            state: State { round: 0, depth, others_since: None, system: 0, candidate: 0, bin: 0 },
            systems,
            removed: 0,
        }
    }

    /// Returns the approximate memory in bytes.
    #[must_use]
    pub fn host_bytes(settings: &Settings, systems: &[System], threads: usize) -> usize {
        let of_system = |system: System| {
            let listed = systems.iter().filter(|listed| **listed == system).count();
            let has_others =
                system == System::GpsL1Ca && systems.iter().copied().any(has_carrier_of_others);
            let others = if has_others { MOST_OTHERS } else { 0 };
            let grid = Grid::new(settings, system).filter(|_| listed + others > 0)?;
            let cancellation = Cancellation::host_bytes(grid.period_samples());
            Some(grid.host_bytes(listed + others, threads) + cancellation)
        };
        System::ALL.into_iter().filter_map(of_system).sum::<usize>()
            + Excision::host_bytes(settings.samples, settings.rate_hz)
            + 2 * size_of::<f32>() * settings.samples
    }

    /// Forgets the results of the frame before.
    pub fn clear(&mut self) {
        self.systems.iter_mut().for_each(|(search, _)| search.begin_frame());
    }

    /// Returns the samples, to be filled with a frame.
    pub fn samples_mut(&mut self) -> &mut Planes {
        &mut self.planes
    }

    /// Starts the search of the samples; returns the part of the band that was removed because of lines.
    pub fn start(&mut self) -> f64 {
        self.clear();
        self.removed = 0;
        let excised = self.excision.apply(&mut self.planes);
        let is_quick = self.systems.iter().any(|(search, _)| search.has_quick());
        let depth = if is_quick { Depth::Quick } else { Depth::Full };
        self.take(depth);
        self.state = State { round: 0, depth, others_since: None, system: 0, candidate: 0, bin: 0 };
        excised
    }

    /// Transforms the samples, without the satellites that were removed.
    fn take(&mut self, depth: Depth) {
        for (search, scratches) in &mut self.systems {
            search.take(&self.planes, depth, &mut scratches[0]);
        }
    }

    /// Searches for one satellite at up to `bins` frequencies; returns whether the search is over.
    pub fn step(&mut self, bins: usize, each: Each) -> bool {
        let state = self.state;
        let Some((search, scratches)) = self.systems.get_mut(state.system) else {
            return self.conclude_round();
        };
        let Some(candidate) = search.candidates.get(state.candidate) else {
            (self.state.system, self.state.candidate) = (state.system + 1, 0);
            return false;
        };
        if !state.includes(search, candidate) {
            self.state.candidate += 1;
            return false;
        }
        if state.bin == 0 {
            search.load(state.candidate, scratches);
        }
        let all = search.grid().bins;
        let end = all.min(state.bin + bins);
        let shared = &*search;
        each(&mut self.peaks[state.bin..end], scratches, &|first, peaks, scratch| {
            for (i, peak) in peaks.iter_mut().enumerate() {
                *peak = shared.peak((state.bin + first + i) as i64, scratch);
            }
        });
        self.state.bin = end;
        if end == all {
            search.conclude(state.candidate, &self.peaks[..all], scratches);
            (self.state.candidate, self.state.bin) = (state.candidate + 1, 0);
        }
        false
    }

    /// Removes the satellites that the round found and prepares the next round; returns whether the search is over.
    fn conclude_round(&mut self) -> bool {
        let state = self.state;
        let mut hits = std::mem::take(&mut self.hits);
        hits.clear();
        let mut is_wide = false;
        for (system, (search, _)) in self.systems.iter_mut().enumerate() {
            if state.depth == Depth::Quick && !search.has_quick() {
                continue;
            }
            let (threshold, is_wider) = search.threshold();
            is_wide |= is_wider;
            let period_seconds = search.grid().period_seconds();
            for candidate in 0..search.candidates.len() {
                if !state.includes(search, &search.candidates[candidate]) {
                    continue;
                }
                let acquired = &mut search.candidates[candidate].acquired;
                acquired.threshold = threshold;
                if acquired.statistic > threshold {
                    let strength_hz = (acquired.statistic - 1.0) / period_seconds;
                    let margin_hz = (acquired.statistic - threshold) / period_seconds;
                    hits.push(Hit { system, candidate, strength_hz, margin_hz });
                }
            }
        }
        hits.sort_unstable_by(|a, b| b.strength_hz.total_cmp(&a.strength_hz));
        // A weaker one may be what leaks from the strongest one: it is searched for again.
        let leak_hz = hits.first().map_or(0.0, |hit| LEAK * hit.strength_hz);
        let mut rank = 0;
        hits.retain(|hit| {
            rank += 1;
            rank == 1 || hit.margin_hz > leak_hz
        });
        let was_quick = state.depth == Depth::Quick;
        let begins_others = is_wide && !was_quick && state.others_since.is_none();
        let is_last = state.round + 1 == MOST_ROUNDS;
        if is_last || (hits.is_empty() && !was_quick && !begins_others) {
            self.hits = hits;
            return true;
        }
        for hit in &hits {
            let found = &mut self.systems[hit.system].0.candidates[hit.candidate];
            self.cancellation.apply(&mut self.planes, &found.replica, &found.acquired);
            found.is_removed = true;
            self.removed += 1;
        }
        self.hits = hits;
        let round = state.round + 1;
        let others_since = if begins_others { Some(round) } else { state.others_since };
        self.state =
            State { round, depth: Depth::Full, others_since, system: 0, candidate: 0, bin: 0 };
        self.take(Depth::Full);
        false
    }

    /// Returns the number of satellites removed from the frame.
    #[must_use]
    pub fn removed(&self) -> u64 {
        self.removed
    }

    /// Returns the results, each with the index of the satellite in the list.
    pub fn results(&self) -> impl Iterator<Item = (usize, Acquired)> + '_ {
        let candidates = self.systems.iter().flat_map(|(search, _)| &search.candidates);
        candidates.filter_map(|candidate| Some((candidate.place?, candidate.acquired)))
    }
}

impl State {
    /// Whether this round searches for `candidate`.
    fn includes(&self, search: &Search, candidate: &Candidate) -> bool {
        if candidate.is_removed || (self.depth == Depth::Quick && !search.has_quick()) {
            return false;
        }
        let acquired = &candidate.acquired;
        let is_new = self.others_since == Some(self.round);
        candidate.place.is_some() || is_new || acquired.statistic > acquired.threshold
    }
}
