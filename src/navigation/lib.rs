//! Satellite navigation: ephemerides, orbits, positions, RINEX and NMEA; no samples and no frames.
//!
//! Units are SI, angles are radians, and instants are [`fxgraph_time::Time`]. Positions and velocities are along the axes
//! of ITRF (WGS 84 agrees within centimetres), in metres from the centre of the Earth.

pub mod arrival;
pub mod atmosphere;
pub mod coarse;
pub mod ephemeris;
pub mod filter;
pub mod message;
pub mod nmea;
pub mod nominal;
pub mod normal;
pub mod orbit;
pub mod rinex;
pub mod solve;

pub use ephemeris::{Constellation, Ephemeris, SatelliteId};
pub use solve::{Measurement, Options, Solution, solve};

#[cfg(test)]
mod tests;
