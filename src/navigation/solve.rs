//! Position, clock and velocity of a receiver from pseudoranges and Doppler shifts of one epoch: weighted least squares
//! with a check of the residuals (RAIM).

use crate::atmosphere::{AzEl, Ionosphere, troposphere_metres};
use crate::ephemeris::{Constellation, Ephemeris, SatelliteId};
use crate::normal::{Matrix, Normal, Row, UNKNOWNS};
use crate::orbit::{SPEED_OF_LIGHT, State, norm};
use fxgraph_time::Time;
use fxgraph_time::sky::Place;
use thiserror::Error;

/// Largest number of satellites of an epoch; more are ignored.
pub const MAX_SATELLITES: usize = 64;
/// Delays of the atmosphere and elevations are known where the receiver is near the surface of the Earth.
const NEAR_EARTH_METRES: std::ops::Range<f64> = 6.2e6..6.5e6;
const STEPS: usize = 25;
/// A step below this length ends the iteration.
const LAST_STEP_METRES: f64 = 1e-4;
/// Thermal noise of the code loop of L1 C/A at 0 dB Hz: a chip in metres times the root of half of a bandwidth of 1 Hz.
const NOISE_METRES: f64 = 207.0;
/// Multipath and errors of the troposphere's model at the zenith.
const ZENITH_METRES: f64 = 0.5;
/// Error of the ionosphere's delay that a satellite does not share with the others, as a part of the error at the zenith.
const LOCAL_PART: f64 = 0.25;
/// Noise of a range rate in m/s.
const RATE_METRES_PER_SECOND: f64 = 0.1;

/// A measurement of one satellite.
#[derive(Clone, Copy, Debug)]
pub struct Measurement<'a> {
    /// Ephemeris of the satellite.
    pub ephemeris: &'a Ephemeris,
    /// Time of reception by the receiver's clock minus time of transmission by the satellite's, times the speed of light.
    pub pseudorange_metres: f64,
    /// Rate of the pseudorange, from the Doppler shift: `-doppler_hz * SPEED_OF_LIGHT / carrier_hz`.
    pub rate_metres_per_second: Option<f64>,
    /// Ratio of carrier power to noise power density.
    pub cn0_db_hz: f64,
}

/// Settings of the solution.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Satellites below this elevation, in radians, are not used.
    pub elevation_mask: f64,
    /// Delay of the ionosphere. Its error at the zenith is an unknown of the solution.
    pub ionosphere: Ionosphere,
    /// Whether the delay of the troposphere is corrected.
    pub has_troposphere: bool,
    /// Probability, in an epoch without a fault, that the residuals are reported as a fault.
    pub false_alarm: f64,
    /// A-priori standard deviation of the time of reception, in seconds, if that time is not known from the signals; 0
    /// if it is.
    pub time_uncertainty: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            elevation_mask: 5.0_f64.to_radians(),
            ionosphere: Ionosphere::Absent,
            has_troposphere: true,
            false_alarm: 1e-5,
            time_uncertainty: 0.0,
        }
    }
}

/// Result of the check of the residuals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Raim {
    /// Too few satellites for a check.
    Unavailable,
    /// The residuals are as large as noise makes them.
    Passed,
    /// One satellite was excluded; the residuals of the others pass.
    Excluded(SatelliteId),
    /// The residuals are too large, and no single satellite explains them.
    Failed,
}

/// Dilution of precision: the standard deviation of a result for ranges with one of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dops {
    /// Of position and clock.
    pub geometric: f64,
    /// Of the position.
    pub position: f64,
    /// Of the position in the horizontal.
    pub horizontal: f64,
    /// Of the height.
    pub vertical: f64,
    /// Of the clock.
    pub time: f64,
}

/// A satellite in a solution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Used {
    /// Satellite.
    pub satellite: SatelliteId,
    /// Direction at the receiver.
    pub direction: AzEl,
    /// Measured minus computed pseudorange in metres.
    pub residual_metres: f64,
    /// Whether the solution uses the satellite: it is above the mask, healthy, and not excluded.
    pub is_used: bool,
}

/// Position, clock and velocity.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// Time of reception: that of the receiver's clock minus `clock_seconds`.
    pub time: Time,
    /// Position in metres along the axes of ITRF.
    pub position: [f64; 3],
    /// Receiver's clock minus GPS time, in seconds.
    pub clock_seconds: f64,
    /// Galileo minus GPS, in seconds: the offset of the clocks of the systems and delays in the receiver. 0 unless both
    /// are used.
    pub galileo_offset_seconds: f64,
    /// Delay of the ionosphere at the zenith minus that of the model, in metres.
    pub ionosphere_metres: f64,
    /// Velocity in metres per second along the axes of ITRF, and rate of the receiver's clock; if enough Doppler shifts
    /// are measured.
    pub velocity: Option<([f64; 3], f64)>,
    /// Covariance of the position in m^2.
    pub covariance: [[f64; 3]; 3],
    /// Dilution of precision.
    pub dops: Dops,
    /// All satellites with an ephemeris.
    pub satellites: Vec<Used>,
    /// Check of the residuals.
    pub raim: Raim,
    /// Weighted sum of squares of the residuals.
    pub chi_square: f64,
}

/// Why an epoch has no solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SolveError {
    /// Too few satellites.
    #[error("a position needs {needed} satellites above the mask, got {got}")]
    Few {
        /// Satellites that the unknowns need.
        needed: usize,
        /// Satellites with an ephemeris that are healthy and above the mask.
        got: usize,
    },
    /// The directions of the satellites do not determine the position.
    #[error("the satellites are in directions that determine no position")]
    Geometry,
    /// The iteration did not end near the Earth.
    #[error("the pseudoranges fit to no position near the Earth")]
    Divergence,
}

impl Solution {
    /// Estimate for a filter to start with; the velocity is 0 if it is not known.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let (velocity, drift) = self.velocity.unwrap_or_default();
        Estimate {
            position: self.position,
            velocity,
            clock: SPEED_OF_LIGHT * self.clock_seconds,
            drift: SPEED_OF_LIGHT * drift,
            galileo: SPEED_OF_LIGHT * self.galileo_offset_seconds,
            ionosphere: self.ionosphere_metres,
        }
    }

    /// Number of satellites that the solution uses.
    #[must_use]
    pub fn used(&self) -> usize {
        self.satellites.iter().filter(|satellite| satellite.is_used).count()
    }
}

/// A measurement with the state of its satellite.
struct Observed {
    satellite: SatelliteId,
    state: State,
    /// Pseudorange without the satellite's clock.
    range: f64,
    rate: Option<f64>,
    /// Variance of noise and ephemeris in m^2.
    variance: f64,
    is_usable: bool,
    is_masked: bool,
    is_excluded: bool,
    direction: AzEl,
    residual: f64,
}

impl Observed {
    fn new(received: Time, measurement: &Measurement<'_>) -> Option<Self> {
        let ephemeris = measurement.ephemeris;
        let seconds = measurement.pseudorange_metres / SPEED_OF_LIGHT;
        let transmitted = ephemeris.transmitted(received.plus_seconds(-seconds)?)?;
        let state = ephemeris.state(transmitted)?;
        let clock = state.clock - ephemeris.single_frequency_delay();
        let noise =
            NOISE_METRES.powi(2) * 10.0_f64.powf(-0.1 * measurement.cn0_db_hz.clamp(0.0, 99.0));
        let accuracy = ephemeris.accuracy_metres();
        Some(Self {
            satellite: ephemeris.satellite,
            state,
            range: measurement.pseudorange_metres + SPEED_OF_LIGHT * clock,
            rate: measurement
                .rate_metres_per_second
                .map(|rate| rate + SPEED_OF_LIGHT * state.clock_rate),
            variance: noise + accuracy.unwrap_or(1e4).powi(2),
            is_usable: ephemeris.is_healthy() && accuracy.is_some(),
            is_masked: false,
            is_excluded: false,
            direction: AzEl::default(),
            residual: 0.0,
        })
    }

    fn is_used(&self) -> bool {
        self.is_usable && !self.is_masked && !self.is_excluded
    }

    /// Delay in the atmosphere in metres, as far as it is modelled.
    fn atmosphere(&self, place: &Place, options: &Options, received: Time) -> f64 {
        let troposphere =
            if options.has_troposphere { troposphere_metres(place, self.direction) } else { 0.0 };
        troposphere + options.ionosphere.delay_metres(place, self.direction, received)
    }

    /// Variance of a range with the error of multipath and atmosphere, in m^2; `zenith_error` is the standard deviation of
    /// the ionosphere's delay at the zenith.
    fn variance(&self, zenith_error: f64) -> f64 {
        let sine = self.direction.elevation.sin().max(0.1);
        let local = LOCAL_PART * zenith_error * self.direction.obliquity();
        self.variance + (ZENITH_METRES / sine).powi(2) + local.powi(2)
    }
}

/// Unknowns: position, clock, then offset of Galileo, error of the ionosphere at the zenith and time of reception as far as
/// they are unknown.
struct Unknowns {
    count: usize,
    galileo: Option<usize>,
    ionosphere: Option<usize>,
    time: Option<usize>,
}

/// Estimate of the unknowns.
#[derive(Clone, Copy, Debug, Default)]
struct Guess {
    position: [f64; 3],
    clock: f64,
    galileo: f64,
    ionosphere: f64,
    /// Correction of the time of reception, in seconds.
    time: f64,
}

const CLOCK: usize = 3;

/// Epoch in work.
struct Epoch<'a> {
    options: &'a Options,
    received: Time,
    observed: Vec<Observed>,
    guess: Guess,
    /// A-priori standard deviation of the ionosphere's delay at the zenith, in metres.
    zenith_error: f64,
}

impl Epoch<'_> {
    fn unknowns(&self) -> Unknowns {
        let is_galileo = |o: &Observed| o.satellite.constellation == Constellation::Galileo;
        let used = || self.observed.iter().filter(|o| o.is_used());
        let has_both = used().any(is_galileo) && used().any(|o| !is_galileo(o));
        let galileo = has_both.then_some(CLOCK + 1);
        let mut count = CLOCK + 1 + usize::from(has_both);
        let mut next = |is_unknown: bool| {
            count += usize::from(is_unknown);
            is_unknown.then_some(count - 1)
        };
        let ionosphere = next(self.options.ionosphere != Ionosphere::Absent);
        let time = next(self.options.time_uncertainty > 0.0);
        Unknowns { count, galileo, ionosphere, time }
    }

    /// Equations at the present estimate, and the computed residuals; `weighted` by their variances, or all equal.
    fn equations(&mut self, unknowns: &Unknowns, weighted: bool) -> Normal {
        let mut normal = Normal::new(unknowns.count);
        let Guess { position, clock, galileo, ionosphere, time } = self.guess;
        let is_near = NEAR_EARTH_METRES.contains(&norm(position));
        let place = Place::from_itrf_metres(position);
        // On the way from the centre of the Earth, any.
        self.zenith_error = 1.0;
        if is_near {
            [_, self.zenith_error] = self.options.ionosphere.zenith_metres(&place, self.received);
        }
        for o in &mut self.observed {
            // While the time of reception is corrected, the satellites move along their tangents.
            let moved = State {
                position: std::array::from_fn(|n| o.state.position[n] + o.state.velocity[n] * time),
                ..o.state
            };
            let path = moved.path_to(position, [0.0; 3]);
            let [mut delay, mut obliquity] = [0.0, 0.0];
            if is_near {
                o.direction = AzEl::of(&place, path.towards);
                delay = o.atmosphere(&place, self.options, self.received);
                obliquity = o.direction.obliquity();
            }
            let mut row: Row = [0.0; UNKNOWNS];
            row[..CLOCK].iter_mut().zip(path.towards).for_each(|(to, part)| *to = -part);
            row[CLOCK] = 1.0;
            let mut computed = path.range + clock + delay;
            if let (Some(at), Constellation::Galileo) =
                (unknowns.galileo, o.satellite.constellation)
            {
                row[at] = 1.0;
                computed += galileo;
            }
            if let Some(at) = unknowns.ionosphere {
                row[at] = obliquity;
                computed += obliquity * ionosphere;
            }
            if let Some(at) = unknowns.time {
                row[at] = path.range_rate;
            }
            o.residual = o.range - computed;
            if o.is_used() {
                let weight = if weighted { o.variance(self.zenith_error).recip() } else { 1.0 };
                normal.add(&row, o.residual, weight);
            }
        }
        let mut add_prior = |at: Option<usize>, value: f64, deviation: f64| {
            let Some(at) = at else { return };
            let mut row: Row = [0.0; UNKNOWNS];
            row[at] = 1.0;
            normal.add(&row, -value, deviation.powi(-2));
        };
        add_prior(unknowns.ionosphere, ionosphere, self.zenith_error);
        add_prior(unknowns.time, time, self.options.time_uncertainty);
        normal
    }

    fn used(&self) -> usize {
        self.observed.iter().filter(|o| o.is_used()).count()
    }

    /// Iterates to the solution; returns its covariance.
    fn iterate(&mut self) -> Result<Matrix, SolveError> {
        let unknowns = self.unknowns();
        let with_prior = [unknowns.ionosphere, unknowns.time];
        let needed = unknowns.count - with_prior.into_iter().flatten().count();
        if self.used() < needed {
            return Err(SolveError::Few { needed, got: self.used() });
        }
        for _ in 0..STEPS {
            let normal = self.equations(&unknowns, true);
            let (step, covariance) = normal.solve().ok_or(SolveError::Geometry)?;
            let of = |at: Option<usize>| at.map_or(0.0, |at| step[at]);
            let guess = &mut self.guess;
            guess.position.iter_mut().zip(step).for_each(|(value, step)| *value += step);
            guess.clock += step[CLOCK];
            guess.galileo += of(unknowns.galileo);
            guess.ionosphere += of(unknowns.ionosphere);
            guess.time += of(unknowns.time);
            if norm([step[0], step[1], step[2]]) < LAST_STEP_METRES {
                self.equations(&unknowns, true);
                let is_near = NEAR_EARTH_METRES.contains(&norm(self.guess.position));
                return if is_near { Ok(covariance) } else { Err(SolveError::Divergence) };
            }
        }
        Err(SolveError::Divergence)
    }

    /// Solves with all satellites that are not excluded, masks those that are low, and solves again.
    fn solve(&mut self) -> Result<Matrix, SolveError> {
        self.observed.iter_mut().for_each(|o| o.is_masked = false);
        let first = self.iterate()?;
        let mask = self.options.elevation_mask;
        let mut changed = false;
        for o in &mut self.observed {
            let is_masked = o.direction.elevation < mask;
            changed |= is_masked != o.is_masked;
            o.is_masked = is_masked;
        }
        if changed { self.iterate() } else { Ok(first) }
    }

    /// Weighted sum of squares of the residuals, and the number of redundant satellites. A time that is hardly known
    /// takes away the residual of one satellite; the error of the ionosphere is a residual itself.
    fn residuals(&self) -> (f64, usize) {
        let used = self.observed.iter().filter(|o| o.is_used());
        let sum: f64 = used.map(|o| o.residual.powi(2) / o.variance(self.zenith_error)).sum();
        let unknowns = self.unknowns();
        let Some(_) = unknowns.ionosphere else {
            return (sum, self.used().saturating_sub(unknowns.count));
        };
        let of_ionosphere = (self.guess.ionosphere / self.zenith_error).powi(2);
        (sum + of_ionosphere, (self.used() + 1).saturating_sub(unknowns.count))
    }

    fn passes(&self) -> bool {
        let (sum, redundant) = self.residuals();
        sum <= chi_square_limit(redundant, self.options.false_alarm)
    }

    fn check(&mut self) -> Raim {
        match self.residuals() {
            (_, 0) => Raim::Unavailable,
            _ if self.passes() => Raim::Passed,
            _ => Raim::Failed,
        }
    }

    /// Solves, checks the residuals, and excludes the satellite without which they pass.
    fn solve_checked(&mut self) -> Result<(Matrix, Raim), SolveError> {
        let start = self.guess;
        let all = self.solve();
        let raim = if all.is_ok() { self.check() } else { Raim::Failed };
        if raim != Raim::Failed {
            return all.map(|covariance| (covariance, raim));
        }
        let mut best: Option<(f64, usize)> = None;
        for n in 0..self.observed.len() {
            if !self.observed[n].is_usable {
                continue;
            }
            self.guess = start;
            self.observed[n].is_excluded = true;
            // The masks of a position that a fault shifts are wrong: each set of satellites has its own.
            if self.solve().is_ok() && self.check() == Raim::Passed {
                let sum = self.residuals().0;
                if best.is_none_or(|(least, _)| sum < least) {
                    best = Some((sum, n));
                }
            }
            self.observed[n].is_excluded = false;
        }
        self.guess = start;
        let Some((_, n)) = best else {
            all?;
            return Ok((self.solve()?, Raim::Failed));
        };
        self.observed[n].is_excluded = true;
        Ok((self.solve()?, Raim::Excluded(self.observed[n].satellite)))
    }

    fn dops(&mut self) -> Dops {
        let unknowns = Unknowns { ionosphere: None, time: None, ..self.unknowns() };
        let count = CLOCK + 1 + usize::from(unknowns.galileo.is_some());
        let normal = self.equations(&Unknowns { count, ..unknowns }, false);
        let Some(inverse) = normal.inverse() else { return Dops::default() };
        let place = Place::from_itrf_metres(self.guess.position);
        let variance = |enu: [f64; 3]| {
            let along = place.enu_to_itrf(enu);
            let product = |i: usize| (0..3).map(|j| inverse[i][j] * along[j]).sum::<f64>();
            (0..3).map(|i| along[i] * product(i)).sum::<f64>()
        };
        let [east, north, up] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]].map(variance);
        let time = inverse[CLOCK][CLOCK];
        Dops {
            geometric: (east + north + up + time).sqrt(),
            position: (east + north + up).sqrt(),
            horizontal: (east + north).sqrt(),
            vertical: up.sqrt(),
            time: time.sqrt(),
        }
    }

    /// Velocity, and rate of the clock in seconds per second.
    fn velocity(&self) -> Option<([f64; 3], f64)> {
        let mut normal = Normal::new(CLOCK + 1);
        for o in self.observed.iter().filter(|o| o.is_used()) {
            let Some(rate) = o.rate else { continue };
            let path = o.state.path_to(self.guess.position, [0.0; 3]);
            let mut row: Row = [0.0; UNKNOWNS];
            row[..CLOCK].iter_mut().zip(path.towards).for_each(|(to, part)| *to = -part);
            row[CLOCK] = 1.0;
            normal.add(&row, rate - path.range_rate, RATE_METRES_PER_SECOND.powi(-2));
        }
        let (solution, _) = normal.solve()?;
        Some(([solution[0], solution[1], solution[2]], solution[CLOCK] / SPEED_OF_LIGHT))
    }
}

/// State of a receiver: an estimate of a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Position in metres along the axes of ITRF.
    pub position: [f64; 3],
    /// Velocity in metres per second.
    pub velocity: [f64; 3],
    /// Receiver's clock minus GPS time, times the speed of light, in metres.
    pub clock: f64,
    /// Rate of `clock` in metres per second.
    pub drift: f64,
    /// Offset of Galileo, times the speed of light, in metres.
    pub galileo: f64,
    /// Delay of the ionosphere at the zenith minus that of the model, in metres.
    pub ionosphere: f64,
}

/// A measurement, linear around an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Equation {
    /// Unit vector to the satellite.
    pub towards: [f64; 3],
    /// Whether the pseudorange has the offset of Galileo.
    pub is_galileo: bool,
    /// Delay of the ionosphere for one of 1 at the zenith.
    pub obliquity: f64,
    /// Measured minus computed pseudorange in metres.
    pub residual: f64,
    /// Variance of the pseudorange in m^2.
    pub variance: f64,
    /// Measured minus computed rate of the pseudorange in m/s, and its variance.
    pub rate: Option<(f64, f64)>,
}

/// Returns the equations of the healthy satellites above the mask, around `estimate`, for a filter.
#[must_use]
pub fn equations(
    received: Time,
    measurements: &[Measurement<'_>],
    options: &Options,
    estimate: &Estimate,
) -> Vec<Equation> {
    let measurements = &measurements[..measurements.len().min(MAX_SATELLITES)];
    let place = Place::from_itrf_metres(estimate.position);
    let [_, zenith_error] = options.ionosphere.zenith_metres(&place, received);
    let equation = |measurement: &Measurement<'_>| {
        let mut observed = Observed::new(received, measurement)?;
        let path = observed.state.path_to(estimate.position, estimate.velocity);
        observed.direction = AzEl::of(&place, path.towards);
        let is_up = observed.direction.elevation >= options.elevation_mask;
        let is_galileo = observed.satellite.constellation == Constellation::Galileo;
        let offset = if is_galileo { estimate.galileo } else { 0.0 };
        let obliquity = observed.direction.obliquity();
        let delay =
            observed.atmosphere(&place, options, received) + obliquity * estimate.ionosphere;
        let computed = path.range + estimate.clock + offset + delay;
        (observed.is_usable && is_up).then(|| Equation {
            towards: path.towards,
            is_galileo,
            obliquity,
            residual: observed.range - computed,
            variance: observed.variance(zenith_error),
            rate: observed.rate.map(|rate| {
                (rate - path.range_rate - estimate.drift, RATE_METRES_PER_SECOND.powi(2))
            }),
        })
    };
    measurements.iter().filter_map(equation).collect()
}

/// Computes position, clock and velocity at the time `received` of the receiver's clock, which must be within seconds of
/// GPS time. `guess` is an approximate position; without one the iteration starts at the centre of the Earth.
pub fn solve(
    received: Time,
    measurements: &[Measurement<'_>],
    guess: Option<[f64; 3]>,
    options: &Options,
) -> Result<Solution, SolveError> {
    let measurements = &measurements[..measurements.len().min(MAX_SATELLITES)];
    let observed: Vec<Observed> =
        measurements.iter().filter_map(|m| Observed::new(received, m)).collect();
    let guess = Guess { position: guess.unwrap_or_default(), ..Guess::default() };
    let mut epoch = Epoch { options, received, observed, guess, zenith_error: 1.0 };
    let (covariance, raim) = epoch.solve_checked()?;
    let dops = epoch.dops();
    let velocity = epoch.velocity();
    let Guess { position, clock, galileo, ionosphere, time } = epoch.guess;
    let clock_seconds = clock / SPEED_OF_LIGHT;
    // A time of reception that is not known from the signals: the clock is that of the time given.
    let shift = time - if options.time_uncertainty > 0.0 { 0.0 } else { clock_seconds };
    Ok(Solution {
        time: received.plus_seconds(shift).ok_or(SolveError::Divergence)?,
        position,
        clock_seconds,
        galileo_offset_seconds: match epoch.unknowns().galileo {
            Some(_) => galileo / SPEED_OF_LIGHT,
            None => 0.0,
        },
        ionosphere_metres: ionosphere,
        velocity,
        covariance: std::array::from_fn(|i| std::array::from_fn(|j| covariance[i][j])),
        dops,
        chi_square: epoch.residuals().0,
        satellites: epoch
            .observed
            .iter()
            .map(|o| Used {
                satellite: o.satellite,
                direction: o.direction,
                residual_metres: o.residual,
                is_used: o.is_used(),
            })
            .collect(),
        raim,
    })
}

/// Returns the value that a chi-square variable with `freedom` degrees exceeds with `probability`; infinite without degrees
/// of freedom. Exact for one and two, within 5 % for more (Wilson and Hilferty's approximation).
#[must_use]
pub fn chi_square_limit(freedom: usize, probability: f64) -> f64 {
    match freedom {
        0 => f64::INFINITY,
        1 => normal_quantile(0.5 * probability).powi(2),
        2 => -2.0 * probability.ln(),
        _ => {
            let part = 2.0 / (9.0 * freedom as f64);
            let root = 1.0 - part + normal_quantile(probability) * part.sqrt();
            freedom as f64 * root.powi(3)
        }
    }
}

/// Returns the value that a normal variable exceeds with `probability` (Abramowitz and Stegun, 26.2.23).
fn normal_quantile(probability: f64) -> f64 {
    let tail = probability.clamp(1e-300, 0.5);
    let t = (-2.0 * tail.ln()).sqrt();
    t - (2.515_517 + t * (0.802_853 + t * 0.010_328))
        / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}
