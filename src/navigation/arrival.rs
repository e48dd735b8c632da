//! Signals as they arrive: the inverse of [`solve`](mod@crate::solve), for simulations and predictions.

use crate::atmosphere::{AzEl, troposphere_metres};
use crate::ephemeris::{Ephemeris, Klobuchar};
use crate::orbit::SPEED_OF_LIGHT;
use fxgraph_time::Time;
use fxgraph_time::sky::Place;

/// A signal on L1 or E1 at a receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// GPS time of reception minus the time that the satellite's clock showed at transmission, in seconds.
    pub delay: f64,
    /// Rate of the distance in metres per second.
    pub range_rate: f64,
    /// Direction of the satellite.
    pub direction: AzEl,
}

impl Ephemeris {
    /// Returns the signal that arrives at the GPS time `received` at `position` (metres along the axes of ITRF) in vacuum;
    /// `None` if the ephemeris is too old.
    #[must_use]
    pub fn arrival(&self, received: Time, position: [f64; 3]) -> Option<Arrival> {
        let mut seconds = 0.075;
        let mut arrival = None;
        // The satellite moves by up to 0.003 mm per metre of range: after three steps the range is exact.
        for _ in 0..4 {
            let state = self.state(received.plus_seconds(-seconds)?)?;
            let path = state.path_to(position, [0.0; 3]);
            seconds = path.range / SPEED_OF_LIGHT;
            arrival = Some(Arrival {
                delay: seconds - (state.clock - self.single_frequency_delay()),
                range_rate: path.range_rate,
                direction: AzEl::of(&Place::from_itrf_metres(position), path.towards),
            });
        }
        arrival
    }
}

/// Delays of code and carrier in the atmosphere, in seconds: the ionosphere delays codes and advances carriers.
#[must_use]
pub fn atmosphere_seconds(
    place: &Place,
    direction: AzEl,
    received: Time,
    klobuchar: Option<&Klobuchar>,
) -> [f64; 2] {
    let troposphere = troposphere_metres(place, direction) / SPEED_OF_LIGHT;
    let ionosphere = klobuchar
        .map_or(0.0, |model| model.delay_metres(place, direction, received) / SPEED_OF_LIGHT);
    [troposphere + ionosphere, troposphere - ionosphere]
}
