//! Tracked satellites: their messages, and measurements at the end of a frame.

use crate::gnss::gnss_tracker::{PROMPT_VALUES, VALUES};
use crate::gnss::navigation;
use fxgraph::Time;
use fxgraph_dsp::gnss::System;
use fxgraph_navigation::SatelliteId;
use fxgraph_navigation::message::{Channel, Counts, Decoded};
use fxgraph_navigation::orbit::SPEED_OF_LIGHT;

/// Approximate memory of one satellite in bytes: symbols of two units of its message, and pieces of its ephemeris.
pub const BYTES: usize = 1 << 16;

/// State of a satellite at the end of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub id: SatelliteId,
    pub system: System,
    pub prn: usize,
    pub cn0_db_hz: f64,
    pub doppler_hz: f64,
    /// Time since the start of the code period, in seconds.
    pub phase_seconds: f64,
    pub period_milliseconds: u32,
    /// Time that the satellite's clock showed, if its message has told it.
    pub transmitted: Option<Time>,
    /// Turns of the carrier since the start of the track: the integral of the Doppler shift.
    pub turns: f64,
    pub track: u64,
}

impl Measured {
    /// Rate of the pseudorange in metres per second.
    pub fn rate(&self) -> f64 {
        -self.doppler_hz * SPEED_OF_LIGHT / self.system.carrier_hz()
    }
}

/// A row of the tracker.
struct Tracked {
    channel: Channel,
    system: System,
    prn: usize,
    track: u64,
    measured: Option<Measured>,
}

/// All rows of the tracker.
pub struct Satellites {
    rows: Vec<Option<Tracked>>,
    slots: usize,
    /// Units of messages of tracks that have ended.
    past: Counts,
}

/// Returns the whole number of a value of a stream.
fn whole(value: f64) -> Option<u64> {
    (value >= 0.0 && value < 2.0_f64.powi(53)).then_some(value as u64)
}

impl Satellites {
    pub fn new(satellites: usize, slots: usize) -> Self {
        Self { rows: (0..satellites).map(|_| None).collect(), slots, past: Counts::default() }
    }

    /// Takes a frame of the tracker. `near_week` is a full GPS week within 10 years; `decoded` gets the content of the
    /// messages.
    pub fn take(
        &mut self,
        tracked: &[[f64; VALUES]],
        prompts: &[[f64; PROMPT_VALUES]],
        near_week: u32,
        mut decoded: impl FnMut(Decoded),
    ) {
        let slots = prompts.chunks(self.slots.max(1));
        for ((row, values), prompts) in self.rows.iter_mut().zip(tracked).zip(slots) {
            let named = System::numbered(values[0])
                .and_then(|system| Some((system, system.satellite(values[1])?)));
            let signal = named.and_then(|(system, prn)| navigation::satellite(system, prn));
            let (Some((system, prn)), Some((id, signal)), Some(track)) =
                (named, signal, whole(values[10]))
            else {
                close(row, &mut self.past);
                continue;
            };
            let is_same = |row: &Tracked| (row.system, row.prn, row.track) == (system, prn, track);
            if !row.as_ref().is_some_and(is_same) {
                close(row, &mut self.past);
            }
            // A channel allocates its window when a track begins, which is rare.
            let row = row.get_or_insert_with(|| Tracked {
                channel: Channel::new(signal, id, near_week),
                system,
                prn,
                track,
                measured: None,
            });
            for [of_track, period, _, re, im] in prompts {
                if whole(*of_track) == Some(track)
                    && let Some(period) = whole(*period)
                {
                    row.channel.add(period, [*re, *im]);
                }
            }
            while let Some(data) = row.channel.take() {
                decoded(data);
            }
            row.measured = row.measure(values);
        }
    }

    /// Satellites whose carriers are locked, each with the number of its row.
    pub fn measured(&self) -> impl Iterator<Item = (usize, &Measured)> {
        self.rows
            .iter()
            .enumerate()
            .filter_map(|(n, row)| Some((n, row.as_ref()?.measured.as_ref()?)))
    }

    /// Units of all messages by result.
    pub fn counts(&self) -> Counts {
        let running = self.rows.iter().flatten().map(|row| row.channel.counts());
        running.fold(self.past, sum)
    }

    /// Forgets all satellites.
    pub fn clear(&mut self) {
        self.rows.iter_mut().for_each(|row| close(row, &mut self.past));
    }
}

fn sum(a: Counts, b: Counts) -> Counts {
    Counts {
        decoded: a.decoded + b.decoded,
        failed: a.failed + b.failed,
        contradicted: a.contradicted + b.contradicted,
    }
}

fn close(row: &mut Option<Tracked>, past: &mut Counts) {
    if let Some(row) = row.take() {
        *past = sum(*past, row.channel.counts());
    }
}

impl Tracked {
    /// State at the end of the frame with the row `values`; `None` without a lock, and while the satellite's messages
    /// raise an alert.
    fn measure(&self, values: &[f64; VALUES]) -> Option<Measured> {
        let [_, _, locked, cn0_db_hz, doppler_hz, code_phase_chips, ..] = *values;
        let is_locked = locked > 0.5 && cn0_db_hz > 0.0;
        let is_finite =
            [cn0_db_hz, doppler_hz, code_phase_chips].iter().all(|value| value.is_finite());
        if !is_locked || !is_finite || self.channel.is_alert() {
            return None;
        }
        let phase_seconds = code_phase_chips / self.system.signal().chip_rate_hz;
        let start = whole(values[11]).and_then(|period| self.channel.transmission(period));
        let (id, signal) = (self.channel.satellite(), self.channel.signal());
        Some(Measured {
            id,
            system: self.system,
            prn: self.prn,
            cn0_db_hz,
            doppler_hz,
            phase_seconds,
            period_milliseconds: signal.period_milliseconds(),
            transmitted: start.and_then(|start| start.plus_seconds(phase_seconds)),
            turns: values[12],
            track: self.track,
        })
    }
}
