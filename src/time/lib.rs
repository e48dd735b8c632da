//! Instants, time scales, and places on the sky.
//!
//! Calendar, leap seconds, precession, nutation and the orbit of the Earth are those of SOFA (crate `sofars`).

mod instant;
mod leap;
mod orientation;
pub mod sky;
mod text;

pub use instant::{SECOND_PICOSECONDS, Time, Utc};
pub use orientation::{EarthOrientation, EarthOrientations};
pub use text::NAME;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::float_cmp, reason = "values are exact")]
mod tests;
