//! Delays of the signal in the atmosphere.

use crate::ephemeris::{Klobuchar, WEEK_SECONDS};
use crate::orbit::SPEED_OF_LIGHT;
use fxgraph_time::Time;
use fxgraph_time::sky::Place;
use std::f64::consts::{PI, TAU};

/// Direction to a satellite in radians.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AzEl {
    /// From north through east, 0 to 2 pi.
    pub azimuth: f64,
    /// Above the horizon.
    pub elevation: f64,
}

impl AzEl {
    /// Direction of the vector `towards`, along the axes of ITRF, at `place`.
    #[must_use]
    pub fn of(place: &Place, towards: [f64; 3]) -> Self {
        let [east, north, up] = place.itrf_to_enu(towards);
        Self { azimuth: east.atan2(north).rem_euclid(TAU), elevation: up.atan2(east.hypot(north)) }
    }
}

/// Ionosphere without a broadcast model: 5 ns at the zenith at night, as in each of Klobuchar's models, and 20 ns at 14:00
/// local time, as often at middle latitudes.
const NOMINAL: Klobuchar =
    Klobuchar { alpha: [1.5e-8, 0.0, 0.0, 0.0], beta: [1.0e5, 0.0, 0.0, 0.0] };
/// Delay that a nominal ionosphere leaves, as a part of its own.
const UNKNOWN_PART: f64 = 1.0;
/// Delay that a broadcast model leaves: it corrects about half of the rms (IS-GPS-200, 20.3.3.5.2.5).
const BROADCAST_PART: f64 = 0.5;

/// Knowledge of the delay of the ionosphere.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Ionosphere {
    /// There is none, or its delay is left in the measurements.
    #[default]
    Absent,
    /// No model was received: a nominal delay is expected, which may be wrong by its own size.
    Unknown,
    /// A broadcast model, which may be wrong by half of its delay.
    Broadcast(Klobuchar),
}

impl Ionosphere {
    fn model(&self) -> Option<(&Klobuchar, f64)> {
        match self {
            Self::Absent => None,
            Self::Unknown => Some((&NOMINAL, UNKNOWN_PART)),
            Self::Broadcast(model) => Some((model, BROADCAST_PART)),
        }
    }

    /// Returns the expected delay on L1 in metres.
    #[must_use]
    pub fn delay_metres(&self, place: &Place, direction: AzEl, time: Time) -> f64 {
        self.model().map_or(0.0, |(model, _)| model.delay_metres(place, direction, time))
    }

    /// Returns the expected delay of a satellite at the zenith, and its standard deviation, in metres.
    #[must_use]
    pub fn zenith_metres(&self, place: &Place, time: Time) -> [f64; 2] {
        let up = AzEl { azimuth: 0.0, elevation: 0.5 * PI };
        self.model().map_or([0.0; 2], |(model, part)| {
            let delay = model.delay_metres(place, up, time);
            [delay, part * delay]
        })
    }
}

impl AzEl {
    /// Returns the delay of the ionosphere in this direction for one of 1 at the zenith (IS-GPS-200, figure 20-4).
    #[must_use]
    pub fn obliquity(self) -> f64 {
        1.0 + 16.0 * (0.53 - self.elevation.max(0.0) / PI).powi(3)
    }
}

impl Klobuchar {
    /// Returns the delay on L1 in metres, for codes; the carrier is advanced by the same distance (IS-GPS-200, figure 20-4).
    #[must_use]
    pub fn delay_metres(&self, place: &Place, direction: AzEl, time: Time) -> f64 {
        // Angles in semicircles, as the specification has them.
        let elevation = (direction.elevation / PI).max(0.0);
        let to_pierce = 0.0137 / (elevation + 0.11) - 0.022;
        let latitude =
            (place.latitude / PI + to_pierce * direction.azimuth.cos()).clamp(-0.416, 0.416);
        let longitude =
            place.longitude / PI + to_pierce * direction.azimuth.sin() / (latitude * PI).cos();
        let magnetic = latitude + 0.064 * ((longitude - 1.617) * PI).cos();
        let (seconds, picoseconds) = time.to_gps();
        let of_week = seconds.rem_euclid(WEEK_SECONDS) as f64 + 1e-12 * picoseconds as f64;
        let local = (43_200.0 * longitude + of_week).rem_euclid(86_400.0);

        let polynomial = |of: &[f64; 4]| of.iter().rev().fold(0.0, |sum, a| sum * magnetic + a);
        let amplitude = polynomial(&self.alpha).max(0.0);
        let period = polynomial(&self.beta).max(72_000.0);
        let phase = TAU * (local - 50_400.0) / period;
        let day = if phase.abs() < 1.57 {
            amplitude * (1.0 - phase.powi(2) / 2.0 + phase.powi(4) / 24.0)
        } else {
            0.0
        };
        SPEED_OF_LIGHT * direction.obliquity() * (5e-9 + day)
    }
}

/// Relative humidity of the standard atmosphere.
const HUMIDITY: f64 = 0.7;

/// Returns the delay of the troposphere in metres: Saastamoinen's model with a standard atmosphere of 70 % humidity (in the
/// form of Davis et al., Geodesy by radio interferometry, Radio Science 20, 1985). 0 outside heights of -500 to 10000 m
/// and below the horizon.
#[must_use]
pub fn troposphere_metres(place: &Place, direction: AzEl) -> f64 {
    let height = place.height_metres;
    if !(-500.0..=10_000.0).contains(&height) || direction.elevation <= 0.0 {
        return 0.0;
    }
    let pressure = 1013.25 * (1.0 - 2.2557e-5 * height).powf(5.2568);
    let kelvin = 288.16 - 6.5e-3 * height;
    let vapour = 6.108 * HUMIDITY * ((17.15 * kelvin - 4684.0) / (kelvin - 38.45)).exp();
    let gravity = 1.0 - 0.00266 * (2.0 * place.latitude).cos() - 2.8e-7 * height;
    let dry = 0.002_276_8 * pressure / gravity;
    let wet = 0.002_277 * (1255.0 / kelvin + 0.05) * vapour;
    (dry + wet) / direction.elevation.sin()
}
