//! Directions, and geometric delays of antennas.

use schemars::JsonSchema;
use serde::Deserialize;

/// Speed of light in vacuum, in metres per second.
pub const SPEED_OF_LIGHT: f64 = 299_792_458.0;

/// Direction on the sky as seen from the array.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    /// Azimuth in degrees, from north through east.
    pub azimuth_degrees: f64,
    /// Elevation above the horizon in degrees.
    pub elevation_degrees: f64,
}

impl Direction {
    /// Whether this is a direction: finite, and with an elevation from -90 to 90 degrees.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.azimuth_degrees.is_finite() && (-90.0..=90.0).contains(&self.elevation_degrees)
    }

    /// Returns the delay of a plane wave from this direction at `enu_metres` (east, north, up) relative to the
    /// array's origin, in seconds: `-(b . s) / c`, negative for antennas nearer to the source.
    #[must_use]
    pub fn delay_seconds(self, enu_metres: [f64; 3]) -> f64 {
        let (azimuth, elevation) =
            (self.azimuth_degrees.to_radians(), self.elevation_degrees.to_radians());
        let towards =
            [azimuth.sin() * elevation.cos(), azimuth.cos() * elevation.cos(), elevation.sin()];
        let along: f64 = enu_metres.iter().zip(towards).map(|(b, s)| b * s).sum();
        -along / SPEED_OF_LIGHT
    }

    /// Returns the rate of the delay, in seconds per second, while azimuth and elevation change at these rates.
    #[must_use]
    pub fn delay_rate(
        self,
        [east, north, up]: [f64; 3],
        azimuth_degrees_per_second: f64,
        elevation_degrees_per_second: f64,
    ) -> f64 {
        let (azimuth, elevation) =
            (self.azimuth_degrees.to_radians(), self.elevation_degrees.to_radians());
        let by_azimuth = (east * azimuth.cos() - north * azimuth.sin()) * elevation.cos();
        let along = east * azimuth.sin() + north * azimuth.cos();
        let by_elevation = up * elevation.cos() - along * elevation.sin();
        let along = by_azimuth * azimuth_degrees_per_second.to_radians()
            + by_elevation * elevation_degrees_per_second.to_radians();
        -along / SPEED_OF_LIGHT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_rate_is_the_slope_of_the_delay() {
        let at = |seconds: f64| Direction {
            azimuth_degrees: 37.0 + 0.3 * seconds,
            elevation_degrees: 62.0 - 0.2 * seconds,
        };
        let place = [4000.0, -3000.0, 50.0];
        let slope = (at(0.01).delay_seconds(place) - at(-0.01).delay_seconds(place)) / 0.02;
        let rate = at(0.0).delay_rate(place, 0.3, -0.2);
        assert!((rate - slope).abs() < 1e-6 * rate.abs(), "{rate:e} {slope:e}");
    }

    #[test]
    fn antenna_nearer_to_the_source_has_a_negative_delay() {
        let east = Direction { azimuth_degrees: 90.0, elevation_degrees: 0.0 };
        let delay = east.delay_seconds([SPEED_OF_LIGHT, 0.0, 0.0]);
        assert!((delay + 1.0).abs() < 1e-12);
        assert!(east.delay_seconds([0.0, 1e6, 1e6]).abs() < 1e-12);
        let zenith = Direction { azimuth_degrees: 12.0, elevation_degrees: 90.0 };
        assert!((zenith.delay_seconds([5.0, 5.0, -SPEED_OF_LIGHT]) - 1.0).abs() < 1e-6);
    }
}
