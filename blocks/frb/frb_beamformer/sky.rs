//! Directions of the beams.
//!
//! A wave that reaches a feed later than the first one by tau has a phase of `-2 pi f tau`. A wave from an angle `a`
//! to the east of the meridian reaches a cylinder x metres to the east earlier by `x sin(a) / c`. A wave from an angle
//! `z` to the north of the zenith reaches a feed y metres to the south later by `y sin(z) / c`.

use super::{Clamp, EastWest};
use fxgraph::PortType;
use fxgraph_dsp::geometry::SPEED_OF_LIGHT;
use num_complex::{Complex32, Complex64};
use std::f64::consts::TAU;

/// Frequency of each channel, in Hz, with the sign of the phases of its values: negative if these are the conjugates of
/// those of the sky. 0 if the input has no band.
pub fn channels_hz(input: &PortType) -> Vec<f64> {
    let channels = input.axis_len("channel").unwrap_or(0);
    let sign = input.sideband().sign();
    let hz = |channel| input.band.map_or(0.0, |band| sign * band.channel_hz(channel));
    (0..channels).map(hz).collect()
}

/// Factors `[channel][beam][cylinder]` that align the phases of the cylinders for each beam.
pub fn east_west(parameters: &EastWest, cylinders: usize, channels_hz: &[f64]) -> Vec<Complex32> {
    let spacing_seconds = parameters.spacing_metres / SPEED_OF_LIGHT;
    let mut factors = Vec::new();
    for hz in channels_hz {
        for angle in &parameters.angles_degrees {
            let turns = hz * spacing_seconds * angle.to_radians().sin();
            for cylinder in 0..cylinders {
                let turns = (turns * cylinder as f64).fract();
                let Complex64 { re, im } = Complex64::cis(-TAU * turns);
                factors.push(Complex32::new(re as f32, im as f32));
            }
        }
    }
    factors
}

/// Sine of the angle between neighbouring beams.
fn step_sine(clamp: &Clamp, feeds: usize) -> f64 {
    let horizon_to_horizon = SPEED_OF_LIGHT / (2.0 * clamp.spacing_metres);
    let reference_hz = clamp.reference_hz.unwrap_or(horizon_to_horizon);
    SPEED_OF_LIGHT / (reference_hz * clamp.spacing_metres * feeds as f64)
}

/// Sine of the angle between the zenith and the beam that is farthest from it.
pub fn farthest_sine(clamp: &Clamp, feeds: usize) -> f64 {
    step_sine(clamp, feeds) * (clamp.beams / 2) as f64
}

/// Index of the point of the transform nearest to the direction of each beam, `[channel][beam]`. Beam `beams / 2`
/// points to the zenith, and the beams after it to the north.
pub fn index_map(clamp: &Clamp, feeds: usize, points: usize, channels_hz: &[f64]) -> Vec<u32> {
    let step = step_sine(clamp, feeds);
    let mut map = Vec::with_capacity(channels_hz.len() * clamp.beams);
    for hz in channels_hz {
        for beam in 0..clamp.beams {
            let sine = step * (beam as f64 - (clamp.beams / 2) as f64);
            let point = points as f64 * clamp.spacing_metres / SPEED_OF_LIGHT * hz * sine;
            map.push(point.round().rem_euclid(points as f64) as u32);
        }
    }
    map
}
