//! From measurements to a position: ephemerides, the time of the receiver's clock, and the filter.

use super::GnssPosition;
use super::satellites::Measured;
use fxgraph::Time;
use fxgraph::time::sky::Place;
use fxgraph_navigation::atmosphere::Ionosphere;
use fxgraph_navigation::coarse::{self, CodePhase};
use fxgraph_navigation::ephemeris::{Klobuchar, UtcParameters};
use fxgraph_navigation::filter::{Dynamics, Filter, clock_seconds};
use fxgraph_navigation::message::Decoded;
use fxgraph_navigation::orbit::{MAX_AGE_SECONDS, SPEED_OF_LIGHT, minus, norm};
use fxgraph_navigation::rinex::Navigation;
use fxgraph_navigation::solve::{Measurement, Options, Raim, Solution, solve};
use fxgraph_navigation::{Ephemeris, SatelliteId};
use std::collections::BTreeMap;

/// Time of flight of the nearest satellites, in seconds.
const FLIGHT_SECONDS: f64 = 0.07;
/// The receiver's clock is set if it is further from the time of the satellites, in seconds.
const SET_SECONDS: f64 = 0.05;
/// Satellites that a position needs.
const LEAST: usize = 4;
/// Satellites that a position from code phases needs: its time is not known, and its residuals must be checked.
const LEAST_COARSE: usize = 6;
/// A position from code phases is wrong if it is further from the place that they were counted from.
const NEAR_METRES: f64 = 140e3;
/// Ephemerides that are kept for the navigation file.
const MOST_EPHEMERIDES: usize = 10_000;
/// Klobuchar's model and relation to UTC, which are kept for the navigation file.
#[derive(Clone, Copy, Debug, Default)]
struct System {
    klobuchar: Option<Klobuchar>,
    utc: Option<UtcParameters>,
}

/// How a position was found; the number is that in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fix {
    /// Code phases and the time of the stream.
    Codes = 1,
    /// Pseudoranges of one epoch.
    Epoch = 2,
    /// Pseudoranges of all epochs, through the filter.
    Filter = 3,
}

/// A position.
#[derive(Clone, Debug)]
pub struct Position {
    pub fix: Fix,
    /// GPS time of reception.
    pub time: Time,
    /// Time of reception by the receiver's clock, to which the pseudoranges belong.
    pub received: Time,
    pub itrf: [f64; 3],
    pub place: Place,
    /// East, north and up; if known.
    pub velocity: Option<[f64; 3]>,
    /// Standard deviations east, north and up, in metres.
    pub deviations: [f64; 3],
    pub clock_seconds: f64,
    pub clock_rate: f64,
    pub solution: Solution,
    /// Pseudorange in metres of each satellite with an ephemeris.
    pub pseudoranges: Vec<(SatelliteId, f64)>,
}

impl Position {
    /// Whether the residuals contradict it.
    pub fn is_faulty(&self) -> bool {
        self.solution.raim == Raim::Failed
    }
}

/// Ephemerides, clock and filter.
pub struct Receiver {
    options: Options,
    has_ionosphere: bool,
    time_uncertainty: f64,
    /// Data of the user's file.
    file: Navigation,
    broadcast: BTreeMap<SatelliteId, Ephemeris>,
    /// All ephemerides that were broadcast, oldest first.
    history: Vec<Ephemeris>,
    system: System,
    filter: Option<Filter>,
    /// Receiver's clock minus the clock of the stream, in picoseconds.
    offset: i128,
    /// Newest position.
    position: Option<[f64; 3]>,
    near: Option<[f64; 3]>,
}

impl Receiver {
    pub fn new(parameters: &GnssPosition, file: &Navigation) -> Self {
        let options = Options {
            elevation_mask: parameters.elevation_mask_degrees.to_radians(),
            ionosphere: Ionosphere::Absent,
            has_troposphere: parameters.troposphere,
            false_alarm: parameters.false_alarm_probability,
            time_uncertainty: 0.0,
        };
        let acceleration = parameters.acceleration_density;
        let dynamics = Dynamics { acceleration, ..Dynamics::default() };
        Self {
            options,
            has_ionosphere: parameters.ionosphere,
            time_uncertainty: parameters.time_uncertainty_seconds,
            file: file.clone(),
            broadcast: BTreeMap::new(),
            history: Vec::new(),
            system: System::default(),
            filter: parameters.filter.then(|| Filter::new(dynamics)),
            offset: 0,
            position: None,
            near: parameters.near.map(super::Near::itrf_metres),
        }
    }

    /// Forgets the position, too: the stream has another time base, and may come from another place.
    pub fn restart(&mut self) {
        self.position = None;
        self.reset();
    }

    /// Forgets the clock and the filter: the stream has another clock.
    pub fn reset(&mut self) {
        self.offset = 0;
        if let Some(filter) = &mut self.filter {
            filter.reset();
        }
    }

    /// Takes data of a message; returns whether it is an ephemeris.
    pub fn take(&mut self, decoded: Decoded) -> bool {
        match decoded {
            Decoded::Ephemeris(ephemeris) => {
                self.broadcast.insert(ephemeris.satellite, *ephemeris);
                self.keep(*ephemeris);
                return true;
            }
            Decoded::Klobuchar(klobuchar) => self.system.klobuchar = Some(klobuchar),
            Decoded::Utc(utc) => self.system.utc = Some(utc),
            Decoded::NeQuick(_) => {}
        }
        false
    }

    /// Keeps an ephemeris for the file, once, and drops the oldest one if there are too many.
    fn keep(&mut self, ephemeris: Ephemeris) {
        let is_known = |known: &Ephemeris| {
            let same = |e: &Ephemeris| (e.satellite, e.message, e.iode, e.toe());
            same(known) == same(&ephemeris)
        };
        if self.history.iter().any(is_known) {
            return;
        }
        if self.history.len() == MOST_EPHEMERIDES {
            self.history.remove(0);
        }
        self.history.push(ephemeris);
    }

    /// Data that were broadcast, for a file.
    pub fn broadcast(&self) -> Navigation {
        Navigation {
            ephemerides: self.history.clone(),
            klobuchar: self.system.klobuchar,
            ne_quick: None,
            utc: self.system.utc,
        }
    }

    /// Ephemeris of a satellite at `time`: the broadcast one, or that of the file.
    fn ephemeris(&self, id: SatelliteId, time: Time) -> Option<Ephemeris> {
        let is_new = |ephemeris: &&Ephemeris| {
            let toe = ephemeris.toe();
            toe.is_some_and(|toe| time.seconds_since(toe).abs() <= MAX_AGE_SECONDS)
        };
        self.broadcast.get(&id).filter(is_new).or_else(|| self.file.nearest(id, time)).copied()
    }

    fn options(&self, time_uncertainty: f64) -> Options {
        let klobuchar = self.system.klobuchar.or(self.file.klobuchar);
        let ionosphere = match klobuchar {
            _ if !self.has_ionosphere => Ionosphere::Absent,
            Some(model) => Ionosphere::Broadcast(model),
            None => Ionosphere::Unknown,
        };
        Options { ionosphere, time_uncertainty, ..self.options }
    }

    /// Receiver's clock at a time of the stream.
    fn received(&self, stream: Time) -> Option<Time> {
        stream.plus_picoseconds(self.offset)
    }

    /// Computes the position at the time `stream` of the stream's clock; `None` with too few satellites.
    pub fn locate(&mut self, stream: Time, measured: &[Measured]) -> Option<Position> {
        let timed = measured.iter().filter_map(|m| {
            let transmitted = m.transmitted?;
            Some((m, transmitted, self.ephemeris(m.id, transmitted)?))
        });
        let timed: Vec<_> = timed.collect();
        if timed.len() >= LEAST {
            self.set_clock(stream, timed.iter().map(|(_, transmitted, _)| *transmitted))?;
            let received = self.received(stream)?;
            let measurements: Vec<_> = timed
                .iter()
                .map(|(m, transmitted, ephemeris)| Measurement {
                    ephemeris,
                    pseudorange_metres: SPEED_OF_LIGHT * received.seconds_since(*transmitted),
                    rate_metres_per_second: Some(m.rate()),
                    cn0_db_hz: m.cn0_db_hz,
                })
                .collect();
            // Satellites without the time of their messages may still be enough.
            if let Some(position) = self.solved(received, &measurements) {
                return Some(position);
            }
        }
        self.locate_by_codes(stream, measured)
    }

    /// Sets the receiver's clock by the satellites if it is far from their time.
    fn set_clock(&mut self, stream: Time, transmitted: impl Iterator<Item = Time>) -> Option<()> {
        // The middle one: the time of a single satellite may be wrong.
        let mut all: Vec<Time> = transmitted.collect();
        let middle = all.len() / 2;
        let (_, median, _) = all.select_nth_unstable(middle);
        let received = median.plus_seconds(FLIGHT_SECONDS)?;
        if self.received(stream)?.seconds_since(received).abs() > SET_SECONDS {
            self.reset();
            self.offset = received.picoseconds_since(stream);
        }
        Some(())
    }

    /// Position from pseudoranges, with the filter.
    fn solved(&mut self, received: Time, measurements: &[Measurement<'_>]) -> Option<Position> {
        let options = self.options(0.0);
        let solution = solve(received, measurements, self.position, &options).ok()?;
        let mut position = Position::of(Fix::Epoch, received, solution, measurements);
        if position.is_faulty() {
            return Some(position);
        }
        if let Some(filter) = &mut self.filter {
            let is_used = |measurement: &&Measurement<'_>| {
                let mut satellites = position.solution.satellites.iter();
                satellites.any(|s| s.satellite == measurement.ephemeris.satellite && s.is_used)
            };
            let used: Vec<_> = measurements.iter().filter(is_used).copied().collect();
            if !filter.has_started() {
                filter.start(received, &position.solution.estimate());
            }
            if filter.update(received, &used, &options) >= LEAST {
                position.take_filter(received, filter);
            }
        }
        self.position = Some(position.itrf);
        Some(position)
    }

    /// Position from code phases, ephemerides and the time of the stream, near a known place.
    fn locate_by_codes(&mut self, stream: Time, measured: &[Measured]) -> Option<Position> {
        let mut received = self.received(stream)?;
        let mut guess = self.position.or(self.near)?;
        let known: Vec<_> =
            measured.iter().filter_map(|m| Some((m, self.ephemeris(m.id, received)?))).collect();
        if known.len() < LEAST_COARSE {
            return None;
        }
        let phases: Vec<_> = known
            .iter()
            .map(|(m, ephemeris)| CodePhase {
                ephemeris,
                period_milliseconds: m.period_milliseconds,
                phase_seconds: m.phase_seconds,
                rate_metres_per_second: Some(m.rate()),
                cn0_db_hz: m.cn0_db_hz,
            })
            .collect();
        let options = self.options(self.time_uncertainty);
        let mut position = None;
        // The second time, the satellites are where they were at the time that the first one found.
        for _ in 0..2 {
            let measurements = coarse::measurements(&phases, received, guess);
            let solution = solve(received, &measurements, Some(guess), &options).ok()?;
            let is_checked = matches!(solution.raim, Raim::Passed | Raim::Excluded(_));
            let is_near = norm(minus(solution.position, guess)) < NEAR_METRES;
            if !is_checked || !is_near {
                return None;
            }
            (received, guess) = (solution.time, solution.position);
            position = Some(Position::of(Fix::Codes, solution.time, solution, &measurements));
        }
        self.position = Some(guess);
        position
    }
}

/// Standard deviations east, north and up of a covariance along the axes of ITRF.
fn deviations(place: &Place, covariance: &[[f64; 3]; 3]) -> [f64; 3] {
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]].map(|axis| {
        let along = place.enu_to_itrf(axis);
        let product = |i: usize| (0..3).map(|j| covariance[i][j] * along[j]).sum::<f64>();
        (0..3).map(|i| along[i] * product(i)).sum::<f64>().max(0.0).sqrt()
    })
}

impl Position {
    fn of(fix: Fix, received: Time, solution: Solution, measurements: &[Measurement<'_>]) -> Self {
        let place = Place::from_itrf_metres(solution.position);
        let (velocity, clock_rate) = match solution.velocity {
            Some((velocity, rate)) => (Some(place.itrf_to_enu(velocity)), rate),
            None => (None, 0.0),
        };
        Self {
            fix,
            time: solution.time,
            received,
            itrf: solution.position,
            place,
            velocity,
            deviations: deviations(&place, &solution.covariance),
            clock_seconds: solution.clock_seconds,
            clock_rate,
            pseudoranges: measurements
                .iter()
                .map(|m| (m.ephemeris.satellite, m.pseudorange_metres))
                .collect(),
            solution,
        }
    }

    fn take_filter(&mut self, received: Time, filter: &Filter) {
        let estimate = filter.estimate();
        self.fix = Fix::Filter;
        self.itrf = estimate.position;
        self.place = Place::from_itrf_metres(estimate.position);
        self.velocity = Some(self.place.itrf_to_enu(estimate.velocity));
        self.deviations = deviations(&self.place, &filter.position_covariance());
        self.clock_seconds = clock_seconds(&estimate);
        self.clock_rate = estimate.drift / SPEED_OF_LIGHT;
        self.time = received.plus_seconds(-self.clock_seconds).unwrap_or(self.time);
    }
}
