//! Signals of satellites in their orbits, with their navigation messages.

use super::GnssSignalSimulator;
use crate::gnss::navigation;
use fxgraph::access::ReadPath;
use fxgraph::time::sky::Place;
use fxgraph::{BlockError, Time};
use fxgraph_dsp::gnss::phase::{CODE_FRACTION_BITS, turns};
use fxgraph_dsp::gnss::{Nco, Replica, System};
use fxgraph_navigation::arrival::{Arrival, atmosphere_seconds};
use fxgraph_navigation::message::{Broadcast, Signal, encode};
use fxgraph_navigation::nominal::constellation;
use fxgraph_navigation::rinex::Navigation;
use fxgraph_navigation::{Ephemeris, SatelliteId};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;

/// Length of a piece of the polynomials. A cubic over it deviates from the orbit by less than 1e-9 m.
const PIECE_SECONDS: f64 = 0.1;
/// Nodes of a cubic in thirds of its piece. Neighbouring pieces have a node in common, so that phases have no steps.
const NODES: [u64; 4] = [0, 1, 2, 3];
/// Signals that have a message and an orbit.
const SYSTEMS: [System; 2] = [System::GpsL1Ca, System::GalileoE1b];
const PICOSECONDS: i128 = 1_000_000_000_000;

/// Satellites in their orbits, seen by a receiver.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sky {
    /// RINEX navigation file (versions 2 to 4) with the ephemerides of the time of the simulation. Without a file, 30 GPS
    /// satellites are in invented orbits for three hours.
    pub navigation: Option<ReadPath>,
    /// Geodetic latitude of the receiver at timestamp 0 on WGS 84, in degrees.
    pub latitude_degrees: f64,
    /// Longitude in degrees, east positive.
    pub longitude_degrees: f64,
    /// Height above the ellipsoid in metres.
    #[serde(default)]
    pub height_metres: f64,
    /// Velocity of the receiver, which moves along a straight line: east, north and up in metres per second.
    #[serde(default)]
    pub velocity_enu_metres_per_second: [f64; 3],
    /// Satellites below this elevation in degrees are not simulated.
    #[serde(default = "default_mask")]
    pub elevation_mask_degrees: f64,
    /// Ratio of carrier power to noise power density of all satellites, in dB Hz.
    #[serde(default = "super::default_cn0")]
    pub cn0_db_hz: f64,
    /// Whether the signals are delayed by the atmosphere: the ionosphere by the model of the navigation file (Klobuchar),
    /// the troposphere by Saastamoinen's.
    #[serde(default)]
    pub atmosphere: bool,
    /// Simulated signals.
    #[serde(default = "default_signals")]
    pub signals: Vec<System>,
}

fn default_mask() -> f64 {
    5.0
}

fn default_signals() -> Vec<System> {
    vec![System::GpsL1Ca]
}

impl Sky {
    /// Calls `reject` with message and help for each value that is out of range.
    pub(super) fn check(&self, mut reject: impl FnMut(String, &str)) {
        let range = |name: &str, value: f64, least: f64, most: f64| {
            let is_in = (least..=most).contains(&value);
            (!is_in).then(|| {
                format!("`{name}` of `sky` must be between {least} and {most}, got {value}")
            })
        };
        let rates = self.velocity_enu_metres_per_second;
        let fastest = rates
            .into_iter()
            .fold(0.0, |most: f64, rate| if rate.is_nan() { rate } else { most.max(rate.abs()) });
        for message in [
            range("latitude_degrees", self.latitude_degrees, -90.0, 90.0),
            range("longitude_degrees", self.longitude_degrees, -180.0, 360.0),
            range("height_metres", self.height_metres, -1e4, 1e6),
            range("velocity_enu_metres_per_second", fastest, 0.0, 1e4),
            range("elevation_mask_degrees", self.elevation_mask_degrees, -90.0, 90.0),
            range("cn0_db_hz", self.cn0_db_hz, -super::MAX_CN0_DB_HZ, super::MAX_CN0_DB_HZ),
        ]
        .into_iter()
        .flatten()
        {
            reject(message, "give a value in the range");
        }
        let is_known = |system: &System| SYSTEMS.contains(system);
        if self.signals.is_empty() || !self.signals.iter().all(is_known) {
            let names = SYSTEMS.map(System::name).join("` and `");
            let message = format!("`signals` of `sky` must be some of `{names}`");
            reject(message, "leave it out for GPS L1 C/A");
        }
    }

    fn place(&self) -> Place {
        Place {
            latitude: self.latitude_degrees.to_radians(),
            longitude: self.longitude_degrees.to_radians(),
            height_metres: self.height_metres,
        }
    }
}

/// Path of the receiver, and everything that its satellites have in common.
#[derive(Clone, Debug)]
pub struct Scene {
    navigation: Navigation,
    /// Position at timestamp 0 and velocity, along the axes of ITRF.
    start: [f64; 3],
    velocity: [f64; 3],
    elevation_mask: f64,
    has_atmosphere: bool,
    sync_time: Time,
    rate_hz: f64,
    intermediate_hz: f64,
}

impl Scene {
    /// Reads the navigation file; the error is a sentence.
    pub(super) fn new(sky: &Sky, parameters: &GnssSignalSimulator) -> Result<Self, String> {
        let navigation = match &sky.navigation {
            Some(path) => navigation::read_file(path)?,
            None => Navigation {
                ephemerides: constellation(parameters.sync_time_seconds),
                ..Navigation::default()
            },
        };
        let place = sky.place();
        let scene = Self {
            navigation,
            start: place.itrf_metres(),
            velocity: place.enu_to_itrf(sky.velocity_enu_metres_per_second),
            elevation_mask: sky.elevation_mask_degrees.to_radians(),
            has_atmosphere: sky.atmosphere,
            sync_time: parameters.sync_time_seconds,
            rate_hz: parameters.adc_sample_rate_hz,
            intermediate_hz: parameters.intermediate_hz,
        };
        if scene.satellites(sky).is_empty() {
            return Err(
                "`navigation` has no healthy satellite of `signals` with an ephemeris of the time `sync_time_seconds`"
                    .to_owned(),
            );
        }
        Ok(scene)
    }

    /// Returns the healthy satellites with an ephemeris at the start, each with its signals.
    pub(super) fn satellites(&self, sky: &Sky) -> Vec<(System, usize)> {
        let is_there = |id: SatelliteId| self.ephemeris(id, self.sync_time).is_some();
        let of = |system: &System| {
            let system = *system;
            let prns = system.prns().filter(move |prn| {
                navigation::satellite(system, *prn).is_some_and(|(id, _)| is_there(id))
            });
            prns.map(move |prn| (system, prn)).collect::<Vec<_>>()
        };
        sky.signals.iter().flat_map(of).collect()
    }

    /// Ephemeris that a satellite broadcasts at `time`; `None` for one that is not healthy.
    fn ephemeris(&self, id: SatelliteId, time: Time) -> Option<&Ephemeris> {
        self.navigation.nearest(id, time).filter(|ephemeris| ephemeris.is_healthy())
    }

    /// Signal of `id` at a sample, and the delays of code and carrier in seconds; `None` below the mask.
    fn arrival(&self, id: SatelliteId, sample: u64) -> Option<(Arrival, [f64; 2])> {
        let time = self.sync_time.plus_samples(sample, self.rate_hz)?;
        let seconds = sample as f64 / self.rate_hz;
        let position: [f64; 3] =
            std::array::from_fn(|n| self.start[n] + self.velocity[n] * seconds);
        let arrival = self.ephemeris(id, time)?.arrival(time, position)?;
        let mut delays = [arrival.delay; 2];
        if self.has_atmosphere {
            let place = Place::from_itrf_metres(position);
            let klobuchar = self.navigation.klobuchar.as_ref();
            let added = atmosphere_seconds(&place, arrival.direction, time, klobuchar);
            delays.iter_mut().zip(added).for_each(|(delay, added)| *delay += added);
        }
        Some((arrival, delays))
    }
}

/// Cubic through its values at [`NODES`].
#[derive(Clone, Copy, Debug, Default)]
struct Cubic([f64; 4]);

impl Cubic {
    fn through([a, b, c, d]: [f64; 4]) -> Self {
        // Differences from the first value, so that it is exact.
        let [b, c, d] = [b - a, c - a, d - a];
        Self([
            a,
            9.0 * b - 4.5 * c + d,
            -22.5 * b + 18.0 * c - 4.5 * d,
            13.5 * b - 13.5 * c + 4.5 * d,
        ])
    }

    fn at(&self, x: f64) -> f64 {
        let [a, b, c, d] = self.0;
        a + x * (b + x * (c + x * d))
    }

    fn slope(&self, x: f64) -> f64 {
        let [_, b, c, d] = self.0;
        b + x * (2.0 * c + x * 3.0 * d)
    }
}

/// Delays of a piece of time.
#[derive(Clone, Copy, Debug)]
struct Piece {
    number: u64,
    /// Time of its first sample.
    start: Time,
    code: Cubic,
    carrier: Cubic,
    is_visible: bool,
}

/// Symbols of a unit of the message.
#[derive(Clone, Debug)]
struct Unit {
    /// Its start in seconds of GPS time.
    start: i64,
    symbols: Vec<bool>,
}

/// Signal of a satellite in its orbit.
#[derive(Clone, Debug)]
pub struct Orbit {
    scene: Arc<Scene>,
    id: SatelliteId,
    signal: Signal,
    carrier_hz: f64,
    /// Period of the code in picoseconds.
    period: i128,
    /// Samples of a piece, a multiple of 3.
    piece_samples: u64,
    piece: Option<Piece>,
    unit: Option<Unit>,
}

/// Signal at a sample: phases, symbol, and samples for which both are valid.
pub struct Moment {
    pub nco: Nco,
    pub symbol: f64,
    pub left: u64,
}

impl Orbit {
    /// Creates the signal of code `prn`; the error says that its message cannot be encoded.
    pub fn new(scene: &Arc<Scene>, system: System, prn: usize) -> Result<Self, BlockError> {
        let label = system.label(prn);
        let (id, signal) = navigation::satellite(system, prn)
            .ok_or_else(|| BlockError::new(format!("satellite {label} has no message")))?;
        let mut orbit = Self {
            id,
            signal,
            carrier_hz: system.carrier_hz(),
            period: i128::from(signal.period_milliseconds()) * PICOSECONDS / 1000,
            piece_samples: 3 * ((PIECE_SECONDS / 3.0 * scene.rate_hz) as u64).max(1),
            scene: scene.clone(),
            piece: None,
            unit: None,
        };
        let start = scene.sync_time;
        orbit
            .unit_at(start.to_gps().0, start)
            .map_err(|why| BlockError::new(format!("{label}: {why}")))?;
        Ok(orbit)
    }

    /// Returns the unit of the message with the second `seconds` of GPS time, which is received at `time`.
    fn unit_at(&mut self, seconds: i64, time: Time) -> Result<&Unit, String> {
        let start = self.signal.unit_start(seconds);
        let unit = match self.unit.take().filter(|unit| unit.start == start) {
            Some(unit) => unit,
            // A unit lasts seconds.
            None => Unit { start, symbols: self.encoded(start, time)? },
        };
        Ok(self.unit.insert(unit))
    }

    fn encoded(&self, start: i64, received: Time) -> Result<Vec<bool>, String> {
        let time = Time::from_gps(start, 0).ok_or("the time is outside the years 1 to 9999")?;
        let Navigation { klobuchar, ne_quick, utc, .. } = self.scene.navigation;
        // A unit may begin before the first ephemeris holds.
        let mut of_either = [time, received].into_iter();
        let ephemeris = of_either.find_map(|time| self.scene.ephemeris(self.id, time));
        let ephemeris = *ephemeris.ok_or("it has no ephemeris")?;
        let broadcast = Broadcast { ephemeris, klobuchar, nequick: ne_quick, utc };
        encode(self.signal, &broadcast, start).map_err(|error| error.to_string())
    }

    /// Returns the delays of a piece of time.
    fn piece(&mut self, number: u64) -> Piece {
        if let Some(piece) = self.piece.filter(|piece| piece.number == number) {
            return piece;
        }
        let first = number.saturating_mul(self.piece_samples);
        let nodes = NODES.map(|third| first.saturating_add(third * (self.piece_samples / 3)));
        let arrivals = nodes.map(|node| self.scene.arrival(self.id, node));
        let start = self.scene.sync_time.plus_samples(first, self.scene.rate_hz);
        let delays =
            |n: usize| arrivals.map(|arrival| arrival.map_or(0.0, |(_, delays)| delays[n]));
        let is_up = |arrival: &Option<(Arrival, _)>| {
            arrival.is_some_and(|(arrival, _)| {
                arrival.direction.elevation >= self.scene.elevation_mask
            })
        };
        let piece = Piece {
            number,
            start: start.unwrap_or_default(),
            code: Cubic::through(delays(0)),
            carrier: Cubic::through(delays(1)),
            is_visible: arrivals.iter().all(is_up),
        };
        self.piece = Some(piece);
        piece
    }

    /// Returns the signal at a sample.
    pub fn at(&mut self, sample: u64, replica: &Replica) -> Result<Moment, BlockError> {
        let piece = self.piece(sample / self.piece_samples);
        let within = sample % self.piece_samples;
        let left = self.piece_samples - within;
        if !piece.is_visible {
            return Ok(Moment { nco: Nco::default(), symbol: 0.0, left });
        }
        let Scene { rate_hz, intermediate_hz, .. } = *self.scene;
        let x = within as f64 / self.piece_samples as f64;
        // Changes of the delays per sample.
        let [code_step, carrier_step] =
            [&piece.code, &piece.carrier].map(|cubic| cubic.slope(x) / self.piece_samples as f64);
        let period_seconds = self.period as f64 * 1e-12;
        let (seconds, picoseconds) = piece.start.to_gps();
        let start = i128::from(seconds) * PICOSECONDS + i128::from(picoseconds);
        let in_period = start.rem_euclid(self.period) as f64 * 1e-12;
        let periods = (in_period + within as f64 / rate_hz - piece.code.at(x)) / period_seconds;
        let number = start.div_euclid(self.period) + periods.floor() as i128;

        let length = replica.entries().len() as f64;
        let unit = 2.0_f64.powi(CODE_FRACTION_BITS.cast_signed());
        let code_wrap = (replica.entries().len() as u64) << CODE_FRACTION_BITS;
        let turns_per_sample = intermediate_hz / rate_hz;
        let carrier = turns(-self.carrier_hz * piece.carrier.at(x));
        let mut nco = Nco {
            code: (((periods - periods.floor()) * length * unit) as u64).min(code_wrap - 1),
            code_step: 0,
            code_wrap,
            carrier: carrier.wrapping_add(turns(turns_per_sample).wrapping_mul(sample)),
            carrier_step: turns(turns_per_sample - self.carrier_hz * carrier_step),
        };
        nco.set_code_rate((rate_hz.recip() - code_step) * length / period_seconds);
        let left = left.min((code_wrap - nco.code).div_ceil(nco.code_step));
        Ok(Moment { nco, symbol: self.symbol(number, piece.start)?, left })
    }

    /// Returns the symbol of a period of the code, counted from the start of GPS time, which is received at `time`.
    fn symbol(&mut self, period: i128, time: Time) -> Result<f64, BlockError> {
        let milliseconds = (period * self.period / (PICOSECONDS / 1000)) as i64;
        let length = i64::from(self.signal.symbol_milliseconds());
        let label = self.id;
        let unit = self.unit_at(milliseconds.div_euclid(1000), time).map_err(|why| {
            BlockError::new(format!("the message of {label} cannot be encoded: {why}"))
        })?;
        let index = (milliseconds - 1000 * unit.start) / length;
        let is_one = usize::try_from(index).ok().and_then(|index| unit.symbols.get(index));
        Ok(if is_one == Some(&true) { -1.0 } else { 1.0 })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fxgraph_navigation::message::Channel;
    use fxgraph_navigation::orbit::MAX_AGE_SECONDS;
    use fxgraph_navigation::rinex::navigation_file;
    use serde_json::json;

    const RATE_HZ: f64 = 2.048e6;
    const INTERMEDIATE_HZ: f64 = 123_456.7;

    #[test]
    fn cubics_pass_through_their_nodes() {
        let polynomial = |x: f64| 0.07 + 3e-6 * x - 2e-7 * x * x + 5e-8 * x.powi(3);
        let nodes = [0.0, 1.0 / 3.0, 2.0 / 3.0, 1.0];
        let cubic = Cubic::through(nodes.map(polynomial));
        for x in [0.0, 0.2, 1.0 / 3.0, 0.9, 1.0] {
            assert!((cubic.at(x) - polynomial(x)).abs() < 1e-16, "{x}");
            let slope = 3e-6 - 4e-7 * x + 1.5e-7 * x * x;
            assert!((cubic.slope(x) - slope).abs() < 1e-15, "{x}");
        }
    }

    fn sync_time() -> Time {
        // Just before a second, so that all parts of the phases wrap.
        Time::from_gps(2190 * 604_800 + 518_429, 999_999_999_000).unwrap()
    }

    fn scene() -> (Scene, Sky) {
        scene_from(sync_time(), constellation(sync_time()))
    }

    fn scene_from(start: Time, ephemerides: Vec<Ephemeris>) -> (Scene, Sky) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("sky.rnx");
        let navigation = Navigation { ephemerides, ..Navigation::default() };
        std::fs::write(&file, navigation_file("test", &navigation)).unwrap();
        let sky = json!({"navigation": file, "latitude_degrees": 48.15, "longitude_degrees": 11.58, "height_metres": 560,
            "velocity_enu_metres_per_second": [20, -10, 1]});
        let parameters =
            json!({"sky": sky, "adc_sample_rate_hz": RATE_HZ, "intermediate_hz": INTERMEDIATE_HZ});
        let parameters: GnssSignalSimulator = serde_json::from_value(parameters).unwrap();
        let parameters = GnssSignalSimulator { sync_time_seconds: start, ..parameters };
        let sky = parameters.sky.clone().unwrap();
        (Scene::new(&sky, &parameters).unwrap(), sky)
    }

    #[test]
    fn phases_are_those_of_the_time_of_transmission() {
        let (scene, sky) = scene();
        let scene = Arc::new(scene);
        let mut visible = 0;
        for (system, prn) in scene.satellites(&sky) {
            let replica = Replica::new(system, prn).unwrap();
            let mut orbit = Orbit::new(&scene, system, prn).unwrap();
            for sample in [0, 1, 2047, 204_798, 1_000_003, 40_000_000] {
                let moment = orbit.at(sample, &replica).unwrap();
                if moment.symbol == 0.0 {
                    continue;
                }
                visible += 1;
                // Directly from the orbit, at the sample itself.
                let (_, [delay, _]) = scene.arrival(orbit.id, sample).unwrap();
                let received = sync_time().plus_samples(sample, RATE_HZ).unwrap().to_gps();
                let shown = (received.1 % 1_000_000_000) as f64 * 1e-12 - delay;
                let chips = (shown * 1.023e6).rem_euclid(1023.0);
                let apart = (moment.nco.entries() - chips + 511.5).rem_euclid(1023.0) - 511.5;
                // Times are rounded to a picosecond.
                assert!(apart.abs() < 3e-6, "{prn} {sample}: {apart} chips");
                let turns = INTERMEDIATE_HZ * (sample as f64 / RATE_HZ) - 1575.42e6 * delay;
                let apart = (moment.nco.carrier_turns() - turns + 0.5).rem_euclid(1.0) - 0.5;
                assert!(apart.abs() < 1e-4, "{prn} {sample}: {apart} turns");
            }
        }
        assert!(visible >= 36, "{visible}");
    }

    #[test]
    fn phases_have_no_steps_between_pieces() {
        let (scene, sky) = scene();
        let scene = Arc::new(scene);
        for (system, prn) in scene.satellites(&sky).into_iter().take(12) {
            let replica = Replica::new(system, prn).unwrap();
            let mut orbit = Orbit::new(&scene, system, prn).unwrap();
            let border = orbit.piece_samples * 7;
            let before = orbit.at(border - 100, &replica).unwrap();
            let after = orbit.at(border, &replica).unwrap();
            if before.symbol == 0.0 {
                continue;
            }
            let mut nco = before.nco;
            nco.advance(100);
            let turns =
                nco.carrier.wrapping_sub(after.nco.carrier).cast_signed() as f64 / 2.0_f64.powi(64);
            let chips = (nco.entries() - after.nco.entries() + 511.5).rem_euclid(1023.0) - 511.5;
            // Pieces start at whole picoseconds: half of one is 5.2e-7 chips.
            assert!(turns.abs() < 1e-6 && chips.abs() < 6e-7, "{prn}: {turns} {chips}");
        }
    }

    #[test]
    fn signals_begin_with_their_first_ephemeris() {
        let mut ephemerides = constellation(sync_time());
        // The ephemerides hold from 4 s after the start of a unit of 6 s on.
        for ephemeris in &mut ephemerides {
            ephemeris.toe_seconds += 16.0;
            ephemeris.toc_seconds += 16.0;
        }
        let first = ephemerides[0].toe().unwrap().plus_seconds(-MAX_AGE_SECONDS).unwrap();
        let start = first.plus_seconds(0.2).unwrap();
        let (scene, sky) = scene_from(start, ephemerides);
        let scene = Arc::new(scene);
        let mut visible = 0;
        for (system, prn) in scene.satellites(&sky) {
            let mut orbit = Orbit::new(&scene, system, prn).unwrap();
            let moment = orbit.at(0, &Replica::new(system, prn).unwrap()).unwrap();
            visible += usize::from(moment.symbol != 0.0);
        }
        assert!(visible >= 4, "{visible}");
    }

    #[test]
    fn symbols_are_the_message_and_its_time() {
        let (scene, sky) = scene();
        let scene = Arc::new(scene);
        let (system, prn) = scene.satellites(&sky)[0];
        let mut orbit = Orbit::new(&scene, system, prn).unwrap();
        let mut channel = Channel::new(orbit.signal, orbit.id, 2190);
        let first = i128::from(sync_time().to_gps().0) * 1000;
        for period in 0..36_000_u64 {
            let symbol = orbit.symbol(first + i128::from(period), sync_time()).unwrap();
            channel.add(period, [symbol, 0.0]);
        }
        let ephemeris = channel.ephemeris().unwrap();
        let sent = scene.ephemeris(orbit.id, sync_time()).unwrap();
        assert_eq!((ephemeris.iode, ephemeris.week), (sent.iode, sent.week));
        assert!((ephemeris.mean_anomaly - sent.mean_anomaly).abs() < 2e-9);
        let start = channel.transmission(0).unwrap();
        assert_eq!(start.to_gps(), (sync_time().to_gps().0, 0));
    }
}
