//! RINEX files of observations and of broadcast ephemerides.

use super::receiver::Position;
use super::satellites::Measured;
use fxgraph::access::WrittenPath;
use fxgraph::files::{note_recorded, reason};
use fxgraph::{BlockError, Time};
use fxgraph_navigation::SatelliteId;
use fxgraph_navigation::orbit::SPEED_OF_LIGHT;
use fxgraph_navigation::rinex::{
    Navigation, Observation, navigation_file, observation_epoch, observation_header,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

const PROGRAM: &str = "fxgraph";

/// A carrier phase since the start of a track, and the whole cycles that it is written with.
#[derive(Clone, Copy, Debug)]
struct Carrier {
    track: u64,
    cycles: f64,
}

/// Observation file, from its first epoch on.
pub struct ObservationFile {
    path: WrittenPath,
    file: Option<File>,
    interval_seconds: f64,
    carriers: BTreeMap<SatelliteId, Carrier>,
    text: String,
}

fn failed(path: &WrittenPath, error: &std::io::Error) -> BlockError {
    BlockError::new(format!("cannot write `{path}`: {}", reason(error)))
}

/// Creates a file that no later block of this process overwrites.
fn create(path: &WrittenPath) -> std::io::Result<File> {
    let file = path.files().overwrite(path.path())?;
    note_recorded(&file)?;
    Ok(file)
}

impl ObservationFile {
    pub fn new(path: WrittenPath, interval_seconds: f64) -> Self {
        Self { path, file: None, interval_seconds, carriers: BTreeMap::new(), text: String::new() }
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

    /// Writes an epoch.
    pub fn write(&mut self, position: &Position, measured: &[Measured]) -> Result<(), BlockError> {
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
        self.append(position, &observations).map_err(|error| failed(&self.path, &error))
    }

    fn append(&mut self, position: &Position, observations: &[Observation]) -> std::io::Result<()> {
        self.text.clear();
        let Position { received, itrf, clock_seconds, .. } = *position;
        if self.file.is_none() {
            self.file = Some(create(&self.path)?);
            self.text += &observation_header(PROGRAM, received, itrf, self.interval_seconds);
        }
        observation_epoch(&mut self.text, received, clock_seconds, observations);
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(self.text.as_bytes()))
    }
}

/// Writes a navigation file.
pub fn write_navigation(path: &WrittenPath, navigation: &Navigation) -> Result<(), BlockError> {
    let text = navigation_file(PROGRAM, navigation);
    let written = create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| failed(path, &error))
}

/// Full GPS week of a time of the stream, or of the machine if the stream has no date.
pub fn near_week(stream: Time) -> u32 {
    /// Week of the year 2010; before it, the sync time of the stream is not known.
    const PLAUSIBLE: u32 = 1560;
    let (week, _) = fxgraph_navigation::ephemeris::week_of(stream);
    if week < PLAUSIBLE { fxgraph_navigation::ephemeris::week_of(Time::now()).0 } else { week }
}
