//! Position, velocity and clock of a satellite from its broadcast ephemeris (IS-GPS-200, 20.3.3.4.3 and 20.3.3.3.3;
//! Galileo OS SIS ICD, 5.1.1 and 5.1.4).

use crate::ephemeris::Ephemeris;
use fxgraph_time::Time;

/// Speed of light in vacuum, in metres per second.
pub const SPEED_OF_LIGHT: f64 = 299_792_458.0;
/// Rotation rate of the Earth in radians per second (WGS 84).
pub const EARTH_RATE: f64 = 7.292_115_146_7e-5;
/// Ephemerides are extrapolated by at most this time. Two hours are the rule; a receiver that starts with a file of
/// yesterday has errors of hundreds of metres, and a worse one finds nothing.
pub const MAX_AGE_SECONDS: f64 = 4.0 * 3600.0;
/// Larger eccentricities are damaged messages: messages have at most 0.5.
const MAX_ECCENTRICITY: f64 = 0.5;

/// State of a satellite at an instant of GPS time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Position of the antenna in metres, along the axes of ITRF at this instant.
    pub position: [f64; 3],
    /// Velocity relative to the rotating Earth, in metres per second.
    pub velocity: [f64; 3],
    /// Time of the satellite's clock minus GPS time in seconds, with relativity, without group delay.
    pub clock: f64,
    /// Rate of `clock`, in seconds per second.
    pub clock_rate: f64,
}

/// Solves Kepler's equation `M = E - e sin E` for E, in radians.
fn eccentric_anomaly(mean: f64, eccentricity: f64) -> f64 {
    let mut anomaly = mean;
    // Newton's method; for eccentricities up to 0.5 the error squares from the first step on.
    for _ in 0..10 {
        let step =
            (anomaly - eccentricity * anomaly.sin() - mean) / (1.0 - eccentricity * anomaly.cos());
        anomaly -= step;
        if step.abs() < 1e-15 {
            break;
        }
    }
    anomaly
}

/// Eccentric anomaly and its rate.
struct Kepler {
    semi_major_axis: f64,
    anomaly: f64,
    anomaly_rate: f64,
}

impl Ephemeris {
    /// Whether the elements describe an orbit.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        let numbers = [
            self.mean_anomaly,
            self.perigee,
            self.node,
            self.inclination,
            self.semi_major_axis_rate,
            self.mean_motion_rate,
            self.toc_seconds,
            self.toe_seconds,
        ];
        (2000.0..10_000.0).contains(&self.sqrt_a)
            && (0.0..=MAX_ECCENTRICITY).contains(&self.eccentricity)
            && numbers.iter().all(|number| number.is_finite())
            && self.has_small_corrections()
            && self.toe().is_some()
            && self.toc().is_some()
    }

    /// Whether harmonics, clock and rates have the size of those of a satellite.
    fn has_small_corrections(&self) -> bool {
        let angles = [self.cuc, self.cus, self.cic, self.cis].map(|angle| (angle, 1e-4));
        let metres = [self.crc, self.crs].map(|length| (length, 2000.0));
        let rates = [self.mean_motion_difference, self.inclination_rate, self.node_rate];
        let rates = rates.map(|rate| (rate, 3e-8));
        // Clocks of GPS are kept within 1 ms, those of Galileo drift to 10 ms.
        let clock = [(self.af0, 0.05), (self.af1, 2e-8), (self.af2, 1e-13)];
        let all = angles.iter().chain(&metres).chain(&rates).chain(&clock);
        all.into_iter().all(|(value, limit)| value.abs() <= *limit)
    }

    fn kepler(&self, since_toe: f64) -> Kepler {
        let at_toe = self.sqrt_a.powi(2);
        let semi_major_axis = at_toe + self.semi_major_axis_rate * since_toe;
        let gravitation = self.satellite.constellation.gravitation();
        // Rates are 0 but in CNAV (IS-GPS-200, table 30-II).
        let motion = (gravitation / at_toe.powi(3)).sqrt() + self.mean_motion_difference;
        let mean = motion + 0.5 * self.mean_motion_rate * since_toe;
        let anomaly = eccentric_anomaly(self.mean_anomaly + mean * since_toe, self.eccentricity);
        let anomaly_rate = (motion + self.mean_motion_rate * since_toe)
            / (1.0 - self.eccentricity * anomaly.cos());
        Kepler { semi_major_axis, anomaly, anomaly_rate }
    }

    /// Clock and its rate; `Kepler` gives the relativistic part.
    fn clock(&self, kepler: &Kepler, since_toc: f64) -> (f64, f64) {
        let gravitation = self.satellite.constellation.gravitation();
        let relativity =
            -2.0 * gravitation.sqrt() * self.eccentricity * self.sqrt_a / SPEED_OF_LIGHT.powi(2);
        let (sin, cos) = kepler.anomaly.sin_cos();
        let clock = self.af0 + since_toc * (self.af1 + since_toc * self.af2) + relativity * sin;
        let rate = self.af1 + 2.0 * self.af2 * since_toc + relativity * cos * kepler.anomaly_rate;
        (clock, rate)
    }

    /// Returns the state at `time`; `None` for elements that describe no orbit, or more than [`MAX_AGE_SECONDS`] from the
    /// reference time.
    #[must_use]
    pub fn state(&self, time: Time) -> Option<State> {
        let since_toe = time.seconds_since(self.toe()?);
        let since_toc = time.seconds_since(self.toc()?);
        if !self.is_plausible() || since_toe.abs() > MAX_AGE_SECONDS {
            return None;
        }
        let kepler = self.kepler(since_toe);
        let (clock, clock_rate) = self.clock(&kepler, since_toc);
        let (position, velocity) = self.place(&kepler, since_toe);
        Some(State { position, velocity, clock, clock_rate })
    }

    /// Returns the GPS time at which the satellite's clock, for a user of L1 or E1 alone, shows `shown`.
    #[must_use]
    pub fn transmitted(&self, shown: Time) -> Option<Time> {
        // The clock changes by 1e-11 s per second, and is off by less than a millisecond: one step is exact.
        let state = self.state(shown)?;
        let offset = state.clock - self.single_frequency_delay();
        shown.plus_seconds(-offset * (1.0 - state.clock_rate))
    }

    /// Position and velocity in the rotating frame.
    fn place(&self, kepler: &Kepler, since_toe: f64) -> ([f64; 3], [f64; 3]) {
        let Kepler { semi_major_axis, anomaly, anomaly_rate } = *kepler;
        let eccentricity = self.eccentricity;
        let (sin, cos) = anomaly.sin_cos();
        let root = (1.0 - eccentricity.powi(2)).sqrt();
        let true_anomaly = (root * sin).atan2(cos - eccentricity);
        let true_rate = anomaly_rate * root / (1.0 - eccentricity * cos);

        let latitude = true_anomaly + self.perigee;
        let (sin2, cos2) = (2.0 * latitude).sin_cos();
        // A harmonic correction, and its rate.
        let harmonic =
            |c: f64, s: f64| (c * cos2 + s * sin2, 2.0 * true_rate * (s * cos2 - c * sin2));
        let (of_latitude, of_latitude_rate) = harmonic(self.cuc, self.cus);
        let (of_radius, of_radius_rate) = harmonic(self.crc, self.crs);
        let (of_inclination, of_inclination_rate) = harmonic(self.cic, self.cis);

        let argument = latitude + of_latitude;
        let argument_rate = true_rate + of_latitude_rate;
        let radius = semi_major_axis * (1.0 - eccentricity * cos) + of_radius;
        let radius_rate = semi_major_axis * eccentricity * sin * anomaly_rate + of_radius_rate;
        let inclination = self.inclination + of_inclination + self.inclination_rate * since_toe;
        let inclination_rate = self.inclination_rate + of_inclination_rate;
        let node =
            self.node + (self.node_rate - EARTH_RATE) * since_toe - EARTH_RATE * self.toe_seconds;
        let node_rate = self.node_rate - EARTH_RATE;

        // In the plane of the orbit, the first axis towards the node.
        let (sin_u, cos_u) = argument.sin_cos();
        let (x, y) = (radius * cos_u, radius * sin_u);
        let x_rate = radius_rate * cos_u - y * argument_rate;
        let y_rate = radius_rate * sin_u + x * argument_rate;
        let (sin_i, cos_i) = inclination.sin_cos();
        let (sin_n, cos_n) = node.sin_cos();
        let (across, up) = (y * cos_i, y * sin_i);
        let across_rate = y_rate * cos_i - up * inclination_rate;
        let up_rate = y_rate * sin_i + across * inclination_rate;
        let position = [x * cos_n - across * sin_n, x * sin_n + across * cos_n, up];
        let velocity = [
            x_rate * cos_n - across_rate * sin_n - position[1] * node_rate,
            x_rate * sin_n + across_rate * cos_n + position[0] * node_rate,
            up_rate,
        ];
        (position, velocity)
    }
}

/// Returns a vector of the rotating frame `seconds` earlier along the axes of the frame now.
#[must_use]
pub fn rotate_with_earth([x, y, z]: [f64; 3], seconds: f64) -> [f64; 3] {
    let (sin, cos) = (EARTH_RATE * seconds).sin_cos();
    [x * cos + y * sin, y * cos - x * sin, z]
}

/// Length of a vector.
#[must_use]
pub fn norm([x, y, z]: [f64; 3]) -> f64 {
    (x * x + y * y + z * z).sqrt()
}

/// Difference `a - b` of two vectors.
#[must_use]
pub fn minus(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|axis| a[axis] - b[axis])
}

/// Scalar product.
#[must_use]
pub fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// Path of a signal from a satellite to a receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Path {
    /// Distance in metres between the satellite at transmission and the receiver at reception.
    pub range: f64,
    /// Rate of the distance in metres per second, with the aberration of the rotating Earth.
    pub range_rate: f64,
    /// Unit vector from the receiver to the satellite.
    pub towards: [f64; 3],
}

impl State {
    /// Returns the path from this state, that of the transmission, to a receiver at `position` with `velocity`.
    #[must_use]
    pub fn path_to(&self, position: [f64; 3], velocity: [f64; 3]) -> Path {
        // The Earth turns by 1.5 m per millisecond at the satellite; the second step is exact to micrometres.
        let mut seconds = norm(minus(self.position, position)) / SPEED_OF_LIGHT;
        seconds = norm(minus(rotate_with_earth(self.position, seconds), position)) / SPEED_OF_LIGHT;
        let satellite = rotate_with_earth(self.position, seconds);
        let apart = minus(satellite, position);
        let range = norm(apart);
        let towards = apart.map(|part| part / range.max(1.0));
        let relative = minus(rotate_with_earth(self.velocity, seconds), velocity);
        // The change of the time of flight itself adds less than a centimetre per second.
        Path { range, range_rate: dot(relative, towards), towards }
    }
}
