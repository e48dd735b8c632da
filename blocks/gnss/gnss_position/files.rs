//! RINEX files of observations and of broadcast ephemerides.

use super::receiver::Position;
use super::satellites::Measured;
use crate::io::files::output_file::{OutputFile, Report};
use fxgraph::access::WrittenPath;
use fxgraph::{BlockError, Time};
use fxgraph_navigation::SatelliteId;
use fxgraph_navigation::orbit::SPEED_OF_LIGHT;
use fxgraph_navigation::rinex::{
    Navigation, Observation, navigation_file, observation_epoch, observation_header,
};
use std::collections::BTreeMap;

const PROGRAM: &str = "fxgraph";

/// A carrier phase since the start of a track, and the whole cycles that it is written with.
#[derive(Clone, Copy, Debug)]
struct Carrier {
    track: u64,
    cycles: f64,
}

/// Observation file; its header follows with its first epoch.
pub struct ObservationFile {
    path: WrittenPath,
    file: Option<OutputFile>,
    has_header: bool,
    interval_seconds: f64,
    carriers: BTreeMap<SatelliteId, Carrier>,
    /// Receiver's clock minus that of the stream in the epoch before, in picoseconds.
    clock: Option<i128>,
    text: String,
}

impl ObservationFile {
    pub fn new(path: WrittenPath, interval_seconds: f64) -> Self {
        Self {
            path,
            file: None,
            has_header: false,
            interval_seconds,
            carriers: BTreeMap::new(),
            clock: None,
            text: String::new(),
        }
    }

    /// Begins another file if this one has epochs: they must not go back.
    pub fn begin_again(&mut self, report: &mut Report) -> Result<(), BlockError> {
        if self.has_header { self.open(report) } else { Ok(()) }
    }

    /// Opens the file, or begins another one.
    pub fn open(&mut self, report: &mut Report) -> Result<(), BlockError> {
        self.file = Some(OutputFile::open(&self.path, true, report)?);
        self.has_header = false;
        self.carriers.clear();
        Ok(())
    }

    /// Marks the next phases of all satellites but those of `measured` as slipped: they were not followed until now.
    pub fn lose_all_but(&mut self, measured: &[Measured]) {
        self.carriers.retain(|id, _| measured.iter().any(|m| m.id == *id));
    }

    /// Returns the phase in cycles, which grows with the pseudorange, and whether it is the first one of its track.
    pub fn carrier(&mut self, m: &Measured, pseudorange_metres: f64) -> (f64, bool) {
        let wavelength_metres = SPEED_OF_LIGHT / m.system.carrier_hz();
        // Near the pseudorange in cycles, so that the difference of both is the ionosphere's and a constant.
        let fresh = || (pseudorange_metres / wavelength_metres + m.turns).round();
        let known = self.carriers.get(&m.id).filter(|known| known.track == m.track);
        let cycles = known.map_or_else(fresh, |known| known.cycles);
        let is_new = known.is_none();
        self.carriers.insert(m.id, Carrier { track: m.track, cycles });
        (cycles - m.turns, is_new)
    }

    /// Writes the epoch at the time `stream` of the stream's clock.
    pub fn write(
        &mut self,
        position: &Position,
        stream: Time,
        measured: &[Measured],
    ) -> Result<(), BlockError> {
        // A clock that is set moves the pseudoranges, and not the phases.
        let clock = Some(position.received.picoseconds_since(stream));
        if std::mem::replace(&mut self.clock, clock) != clock {
            self.carriers.clear();
        }
        let mut observations = Vec::with_capacity(measured.len());
        for m in measured {
            let range = position.pseudoranges.iter().find(|(id, _)| *id == m.id);
            let Some((_, pseudorange_metres)) = range else { continue };
            let (cycles, is_new) = self.carrier(m, *pseudorange_metres);
            observations.push(Observation {
                satellite: m.id,
                pseudorange_metres: *pseudorange_metres,
                carrier_cycles: Some(cycles),
                has_slipped: is_new,
                // The loops do not know the sign of the data.
                is_half_ambiguous: true,
                doppler_hz: m.doppler_hz,
                cn0_db_hz: m.cn0_db_hz,
            });
        }
        self.append(position, &observations)
    }

    fn append(
        &mut self,
        position: &Position,
        observations: &[Observation],
    ) -> Result<(), BlockError> {
        self.text.clear();
        let Position { received, itrf, clock_seconds, .. } = *position;
        if !std::mem::replace(&mut self.has_header, true) {
            self.text += &observation_header(PROGRAM, received, itrf, self.interval_seconds);
        }
        observation_epoch(&mut self.text, received, clock_seconds, observations);
        self.file.as_mut().map_or(Ok(()), |file| file.append(self.text.as_bytes()))
    }
}

/// Writes a navigation file, if there are ephemerides for it.
pub fn write_navigation(
    path: &WrittenPath,
    navigation: &Navigation,
    report: &mut Report,
) -> Result<(), BlockError> {
    if navigation.ephemerides.is_empty() {
        report.note(format!("no ephemerides, {path} is not written"));
        return Ok(());
    }
    let text = navigation_file(PROGRAM, navigation);
    OutputFile::open(path, true, report)?.append(text.as_bytes())
}

/// Full GPS week of a time of the stream, or of the machine if the stream has no date.
pub fn near_week(stream: Time) -> u32 {
    /// Week of the year 2010; before it, the sync time of the stream is not known.
    const PLAUSIBLE: u32 = 1560;
    let (week, _) = fxgraph_navigation::ephemeris::week_of(stream);
    if week < PLAUSIBLE { fxgraph_navigation::ephemeris::week_of(Time::now()).0 } else { week }
}
