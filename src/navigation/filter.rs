//! Kalman filter of position, velocity, clock and delay of the ionosphere over epochs.

use crate::atmosphere::Ionosphere;
use crate::normal::{Matrix, Row, UNKNOWNS};
use crate::orbit::SPEED_OF_LIGHT;
use crate::solve::{Equation, Estimate, Measurement, Options, equations};
use fxgraph_time::Time;
use fxgraph_time::sky::Place;

const POSITION: usize = 0;
const VELOCITY: usize = 3;
const CLOCK: usize = 6;
const DRIFT: usize = 7;
const GALILEO: usize = 8;
const IONOSPHERE: usize = 9;
/// Correlation time of the error of a model of the ionosphere, in seconds.
const IONOSPHERE_SECONDS: f64 = 1800.0;
/// Longest time over which the state is extrapolated, in seconds.
const LONGEST_STEP: f64 = 30.0;
/// Innovations beyond this number of standard deviations are not used.
const GATE: f64 = 5.0;
/// Epochs in which no satellite passes the gate before the filter starts again.
const MOST_REJECTED: u32 = 5;
/// Fewest pseudoranges that are a position: with fewer that pass the gate, the filter may be the one that is wrong.
const LEAST: usize = 4;

/// Power densities of the noise that drives the state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dynamics {
    /// Of the acceleration of the receiver, along each axis, in (m/s^2)^2/Hz.
    pub acceleration: f64,
    /// Of the frequency of the receiver's clock, in (m/s)^2/Hz.
    pub clock: f64,
    /// Of the drift of that frequency, in (m/s^2)^2/Hz.
    pub drift: f64,
}

impl Default for Dynamics {
    /// A receiver that walks, and a temperature-compensated oscillator.
    fn default() -> Self {
        Self { acceleration: 0.1, clock: 0.04, drift: 0.01 }
    }
}

/// The filter.
#[derive(Clone, Debug)]
pub struct Filter {
    dynamics: Dynamics,
    state: Row,
    covariance: Matrix,
    time: Option<Time>,
    /// Model to which the state's delay of the ionosphere is added.
    ionosphere: Ionosphere,
    rejected: u32,
}

impl Filter {
    /// Creates a filter that waits for its first estimate.
    #[must_use]
    pub fn new(dynamics: Dynamics) -> Self {
        Self {
            dynamics,
            state: [0.0; UNKNOWNS],
            covariance: [[0.0; UNKNOWNS]; UNKNOWNS],
            time: None,
            ionosphere: Ionosphere::Absent,
            rejected: 0,
        }
    }

    /// Whether the filter has a state.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.time.is_some()
    }

    /// Forgets the state.
    pub fn reset(&mut self) {
        self.time = None;
    }

    /// Position, velocity and clock at the time of the last update.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let axes = |from: usize| std::array::from_fn(|n| self.state[from + n]);
        Estimate {
            position: axes(POSITION),
            velocity: axes(VELOCITY),
            clock: self.state[CLOCK],
            drift: self.state[DRIFT],
            galileo: self.state[GALILEO],
            ionosphere: self.state[IONOSPHERE],
        }
    }

    /// Covariance of the position in m^2.
    #[must_use]
    pub fn position_covariance(&self) -> [[f64; 3]; 3] {
        std::array::from_fn(|i| std::array::from_fn(|j| self.covariance[i][j]))
    }

    /// Starts at `estimate`, which holds at the time `received` of the receiver's clock.
    pub fn start(&mut self, received: Time, estimate: &Estimate) {
        self.state[..VELOCITY].copy_from_slice(&estimate.position);
        self.state[VELOCITY..CLOCK].copy_from_slice(&estimate.velocity);
        self.state[CLOCK] = estimate.clock;
        self.state[DRIFT] = estimate.drift;
        self.state[GALILEO] = estimate.galileo;
        self.covariance = [[0.0; UNKNOWNS]; UNKNOWNS];
        // The first update has the model of the ionosphere.
        self.state[IONOSPHERE] = 0.0;
        self.ionosphere = Ionosphere::Absent;
        let deviations = [100.0, 100.0, 100.0, 10.0, 10.0, 10.0, 100.0, 10.0, 30.0, 0.0_f64];
        (0..UNKNOWNS).for_each(|n| self.covariance[n][n] = deviations[n].powi(2));
        self.time = Some(received);
        self.rejected = 0;
    }

    /// Extrapolates the state by `seconds`.
    fn predict(&mut self, seconds: f64) {
        // Pairs of a value and its rate; the rate is a random walk.
        let Dynamics { acceleration, clock, drift } = self.dynamics;
        let pairs = [
            (0, 3, 0.0, acceleration),
            (1, 4, 0.0, acceleration),
            (2, 5, 0.0, acceleration),
            (CLOCK, DRIFT, clock, drift),
        ];
        for (value, rate, of_value, of_rate) in pairs {
            self.state[value] += seconds * self.state[rate];
            // F P F^T, one pair at a time: F adds the rate to the value.
            for n in 0..UNKNOWNS {
                self.covariance[value][n] += seconds * self.covariance[rate][n];
            }
            for n in 0..UNKNOWNS {
                self.covariance[n][value] += seconds * self.covariance[n][rate];
            }
            self.covariance[value][value] += of_value * seconds + of_rate * seconds.powi(3) / 3.0;
            self.covariance[value][rate] += of_rate * seconds.powi(2) / 2.0;
            self.covariance[rate][value] += of_rate * seconds.powi(2) / 2.0;
            self.covariance[rate][rate] += of_rate * seconds;
        }
        // The offset of Galileo changes by a metre in hours.
        self.covariance[GALILEO][GALILEO] += 1e-4 * seconds;
    }

    /// Extrapolates the error of the model of the ionosphere by `seconds`. With another model the delay stays, and the new
    /// model becomes a measurement of it.
    fn predict_ionosphere(
        &mut self,
        correction: &mut Row,
        seconds: f64,
        received: Time,
        model: Ionosphere,
    ) {
        let place = Place::from_itrf_metres(self.estimate().position);
        let [zenith, deviation] = model.zenith_metres(&place, received);
        let before = std::mem::replace(&mut self.ionosphere, model);
        let is_first = before == Ionosphere::Absent || model == Ionosphere::Absent;
        // A Gauss-Markov process: its variance stays that of the model.
        let kept = if is_first { 0.0 } else { (-seconds / IONOSPHERE_SECONDS).exp() };
        self.state[IONOSPHERE] *= kept;
        for n in 0..UNKNOWNS {
            self.covariance[IONOSPHERE][n] *= kept;
            self.covariance[n][IONOSPHERE] *= kept;
        }
        self.covariance[IONOSPHERE][IONOSPHERE] += deviation.powi(2) * (1.0 - kept.powi(2));
        if before != model && !is_first {
            let [zenith_before, _] = before.zenith_metres(&place, received);
            self.state[IONOSPHERE] += zenith_before - zenith;
            let mut row: Row = [0.0; UNKNOWNS];
            row[IONOSPHERE] = 1.0;
            self.take(correction, &row, -self.state[IONOSPHERE], deviation.powi(2));
        }
    }

    /// Takes a measurement `residual = row . correction` into the correction `x`; returns whether it passed the gate.
    fn take(&mut self, x: &mut Row, row: &Row, residual: f64, variance: f64) -> bool {
        let weighted: Row =
            std::array::from_fn(|i| (0..UNKNOWNS).map(|j| self.covariance[i][j] * row[j]).sum());
        let dot = |a: &Row, b: &Row| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let total = dot(&weighted, row) + variance;
        let innovation = residual - dot(row, x);
        let passes = innovation.powi(2) <= GATE.powi(2) * total;
        if !passes || total.is_nan() || total <= 0.0 {
            return false;
        }
        for i in 0..UNKNOWNS {
            x[i] += weighted[i] / total * innovation;
            for j in 0..UNKNOWNS {
                self.covariance[i][j] -= weighted[i] * weighted[j] / total;
            }
        }
        // Rounding errors do not grow if the matrix stays symmetric.
        for i in 0..UNKNOWNS {
            for j in 0..i {
                self.covariance[i][j] = self.covariance[j][i];
            }
        }
        true
    }

    /// Extrapolates to the time `received` of the receiver's clock and takes the measurements; returns the number of
    /// pseudoranges that passed the gate. The filter waits for another [`start`](Self::start) after 30 s without
    /// measurements, a time that goes back, and five epochs in which fewer than four passed.
    pub fn update(
        &mut self,
        received: Time,
        measurements: &[Measurement<'_>],
        options: &Options,
    ) -> usize {
        let Some(last) = self.time else { return 0 };
        let seconds = received.seconds_since(last);
        if !(0.0..=LONGEST_STEP).contains(&seconds) {
            self.reset();
            return 0;
        }
        self.predict(seconds);
        self.time = Some(received);
        let mut correction: Row = [0.0; UNKNOWNS];
        self.predict_ionosphere(&mut correction, seconds, received, options.ionosphere);
        let mut passed = 0;
        for equation in equations(received, measurements, options, &self.estimate()) {
            passed += usize::from(self.take_equation(&mut correction, &equation));
        }
        self.state.iter_mut().zip(correction).for_each(|(value, step)| *value += step);
        self.rejected = if passed >= LEAST { 0 } else { self.rejected + 1 };
        if self.rejected == MOST_REJECTED {
            self.reset();
        }
        passed
    }

    fn take_equation(&mut self, correction: &mut Row, equation: &Equation) -> bool {
        let mut row: Row = [0.0; UNKNOWNS];
        let mut rate_row: Row = [0.0; UNKNOWNS];
        for axis in 0..3 {
            row[POSITION + axis] = -equation.towards[axis];
            rate_row[VELOCITY + axis] = -equation.towards[axis];
        }
        row[CLOCK] = 1.0;
        row[GALILEO] = f64::from(u8::from(equation.is_galileo));
        row[IONOSPHERE] = equation.obliquity;
        rate_row[DRIFT] = 1.0;
        let has_passed = self.take(correction, &row, equation.residual, equation.variance);
        if let Some((residual, variance)) = equation.rate.filter(|_| has_passed) {
            self.take(correction, &rate_row, residual, variance);
        }
        has_passed
    }
}

/// Receiver's clock minus GPS time in seconds.
#[must_use]
pub fn clock_seconds(estimate: &Estimate) -> f64 {
    estimate.clock / SPEED_OF_LIGHT
}
