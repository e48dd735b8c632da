//! Places on the Earth: geodetic coordinates, east-north-up, ITRF, and baseline vectors as seen from a source.

/// Equatorial radius of the ellipsoid WGS 84, in metres.
const RADIUS: f64 = 6_378_137.0;
/// Flattening of the ellipsoid WGS 84.
const FLATTENING: f64 = 1.0 / 298.257_223_563;

/// A place in geodetic coordinates on WGS 84.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Latitude in radians.
    pub latitude: f64,
    /// Longitude in radians, east positive.
    pub longitude: f64,
    /// Height above the ellipsoid in metres.
    pub height_metres: f64,
}

impl Place {
    /// Returns the place in ITRF: metres from the centre of the Earth.
    #[must_use]
    pub fn itrf_metres(&self) -> [f64; 3] {
        let (sin, cos) = self.latitude.sin_cos();
        let squashed = FLATTENING * (2.0 - FLATTENING);
        let normal = RADIUS / (1.0 - squashed * sin * sin).sqrt();
        let across = (normal + self.height_metres) * cos;
        [
            across * self.longitude.cos(),
            across * self.longitude.sin(),
            (normal * (1.0 - squashed) + self.height_metres) * sin,
        ]
    }

    /// Returns the vector `enu` (east, north, up at this place) along the axes of ITRF.
    #[must_use]
    pub fn enu_to_itrf(&self, [east, north, up]: [f64; 3]) -> [f64; 3] {
        let (sin, cos) = self.latitude.sin_cos();
        let (sin_lon, cos_lon) = self.longitude.sin_cos();
        // Away from the axis of the Earth.
        let outwards = up * cos - north * sin;
        [
            outwards * cos_lon - east * sin_lon,
            outwards * sin_lon + east * cos_lon,
            north * cos + up * sin,
        ]
    }
}

/// Direction of a source relative to the rotating Earth, and the orientation of the map around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pointing {
    /// Hour angle at Greenwich in radians.
    pub greenwich_hour_angle: f64,
    /// Apparent declination in radians.
    pub declination: f64,
    /// Position angle of the map's north in radians, from the north of date through east.
    pub north_angle: f64,
}

impl Pointing {
    /// Returns a vector along the axes of ITRF as (u, v, w): towards east and north of the map, and
    /// towards the source.
    #[must_use]
    pub fn uvw(&self, [x, y, z]: [f64; 3]) -> [f64; 3] {
        let (sin, cos) = self.greenwich_hour_angle.sin_cos();
        let (sin_dec, cos_dec) = self.declination.sin_cos();
        let (outwards, east) = (x * cos - y * sin, x * sin + y * cos);
        let north = z * cos_dec - outwards * sin_dec;
        let (sin_angle, cos_angle) = self.north_angle.sin_cos();
        [
            east * cos_angle - north * sin_angle,
            north * cos_angle + east * sin_angle,
            outwards * cos_dec + z * sin_dec,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::FRAC_PI_2;

    fn close(a: [f64; 3], b: [f64; 3], tolerance: f64) -> bool {
        a.iter().zip(b).all(|(a, b)| (a - b).abs() < tolerance)
    }

    #[test]
    fn places_agree_with_astropy() {
        let meerkat = Place {
            latitude: (-30.712_919_44_f64).to_radians(),
            longitude: 21.443_803_33_f64.to_radians(),
            height_metres: 1053.0,
        };
        // astropy.coordinates.EarthLocation.from_geodetic, in metres.
        let expected = [5_109_237.996_231_675, 2_006_795.806_487_737, -3_239_108.653_765_41];
        assert!(close(meerkat.itrf_metres(), expected, 1e-6));
        let pole = Place { latitude: FRAC_PI_2, longitude: 1.0, height_metres: 0.0 };
        assert!(close(pole.itrf_metres(), [0.0, 0.0, 6_356_752.314_245], 1e-6));
    }

    #[test]
    fn enu_axes_point_along_the_differences_of_places() {
        let place = Place { latitude: -0.5, longitude: 2.0, height_metres: 1000.0 };
        let change = 1e-6;
        let near = |latitude: f64, longitude: f64, height_metres: f64| {
            let moved = Place {
                latitude: place.latitude + latitude,
                longitude: place.longitude + longitude,
                height_metres: place.height_metres + height_metres,
            };
            let (a, b) = (place.itrf_metres(), moved.itrf_metres());
            let d: [f64; 3] = std::array::from_fn(|n| b[n] - a[n]);
            let len = d.iter().map(|x| x * x).sum::<f64>().sqrt();
            d.map(|x| x / len)
        };
        assert!(close(place.enu_to_itrf([1.0, 0.0, 0.0]), near(0.0, change, 0.0), 1e-5));
        assert!(close(place.enu_to_itrf([0.0, 1.0, 0.0]), near(change, 0.0, 0.0), 1e-5));
        assert!(close(place.enu_to_itrf([0.0, 0.0, 1.0]), near(0.0, 0.0, 1.0), 1e-5));
    }

    #[test]
    fn uvw_of_the_zenith_is_enu() {
        let place = Place { latitude: 0.7, longitude: -1.2, height_metres: 0.0 };
        let pointing = Pointing {
            greenwich_hour_angle: -place.longitude,
            declination: place.latitude,
            north_angle: 0.0,
        };
        let enu = [31.0, -5.0, 2.0];
        assert!(close(pointing.uvw(place.enu_to_itrf(enu)), enu, 1e-12));
    }

    #[test]
    fn north_angle_turns_the_map() {
        let at =
            |north_angle| Pointing { greenwich_hour_angle: 0.0, declination: 0.0, north_angle };
        // North of date is at the position angle -90 degrees of a map whose north points to the east.
        assert!(close(at(FRAC_PI_2).uvw([0.0, 0.0, 1.0]), [-1.0, 0.0, 0.0], 1e-12));
        assert!(close(at(0.0).uvw([2.0, 3.0, 1.0]), [3.0, 1.0, 2.0], 1e-12));
    }
}
