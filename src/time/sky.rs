//! Places on the Earth, sidereal time, and apparent places of sources, from SOFA.
//!
//! Precession and nutation are those of IAU 2006 and 2000A. Apparent places include light deflection by the Sun,
//! annual and diurnal aberration and polar motion; they have no refraction and no parallax.

use crate::{EarthOrientation, Time};
use sofars::astro::{IauAstrom, apco13, atciq, atioq};
use sofars::{coords, erst, ts, vm};
use std::f64::consts::TAU;

/// WGS 84 in SOFA's list of ellipsoids.
const WGS84: i32 = 1;

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
        // Only an unknown ellipsoid fails.
        coords::gd2gc(WGS84, self.longitude, self.latitude, self.height_metres).unwrap_or_default()
    }

    /// Returns the place at a point in ITRF, in metres from the centre of the Earth; at the centre, latitude 90 degrees.
    #[must_use]
    pub fn from_itrf_metres(itrf: [f64; 3]) -> Self {
        // Only an unknown ellipsoid fails.
        let (longitude, latitude, height_metres) = coords::gc2gd(WGS84, itrf).unwrap_or_default();
        Self { latitude, longitude, height_metres }
    }

    /// Returns the vector `itrf` along the axes of ITRF as east, north and up at this place.
    #[must_use]
    pub fn itrf_to_enu(&self, [x, y, z]: [f64; 3]) -> [f64; 3] {
        let (sin, cos) = self.latitude.sin_cos();
        let (sin_lon, cos_lon) = self.longitude.sin_cos();
        // Away from the axis of the Earth.
        let outwards = x * cos_lon + y * sin_lon;
        [y * cos_lon - x * sin_lon, z * cos - outwards * sin, outwards * cos + z * sin]
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

/// The sky at an instant, seen from a place.
pub struct Sky {
    /// Star-independent parameters of SOFA.
    astrom: IauAstrom,
    /// Earth rotation angle minus Greenwich apparent sidereal time.
    equation_of_origins: f64,
    sidereal_time: f64,
}

impl Sky {
    /// The sky at `time`; `None` if SOFA has no UTC for it.
    #[must_use]
    pub fn new(time: Time, orientation: &EarthOrientation, place: &Place) -> Option<Self> {
        let [day, part] = time.to_julian_date();
        let EarthOrientation { ut1_utc_seconds, pole: [x, y] } = *orientation;
        let mut astrom = IauAstrom::default();
        let mut equation_of_origins = 0.0;
        let Place { latitude, longitude, height_metres } = *place;
        // Without pressure there is no refraction.
        apco13(
            day,
            part,
            ut1_utc_seconds,
            longitude,
            latitude,
            height_metres,
            x,
            y,
            0.0,
            0.0,
            0.0,
            0.0,
            &mut astrom,
            &mut equation_of_origins,
        )
        .ok()?;
        let (ut1_day, ut1_part) = ts::utcut1(day, part, ut1_utc_seconds).ok()?;
        let turned = erst::era00(ut1_day, ut1_part) - equation_of_origins + longitude;
        Some(Self { astrom, equation_of_origins, sidereal_time: vm::anp(turned) })
    }

    /// Local apparent sidereal time in radians, from 0 to 2 pi.
    #[must_use]
    pub fn sidereal_time(&self) -> f64 {
        self.sidereal_time
    }

    /// Returns the apparent right ascension and declination of a source at an ICRS place; all in radians.
    #[must_use]
    pub fn apparent(&self, right_ascension: f64, declination: f64) -> [f64; 2] {
        // SOFA in Rust asks for parameters that it could change, and does not.
        let mut astrom = self.astrom;
        let (ra, dec) = atciq(right_ascension, declination, 0.0, 0.0, 0.0, 0.0, &mut astrom);
        let (_, _, _, dec, ra) = atioq(ra, dec, &self.astrom);
        [(ra - self.equation_of_origins).rem_euclid(TAU), dec]
    }

    /// Returns [`apparent`](Self::apparent), and the position angle of the ICRS north at the source, from the north of
    /// date through east.
    #[must_use]
    pub fn apparent_with_north(&self, right_ascension: f64, declination: f64) -> [f64; 3] {
        // Half a degree on both sides; the pole is passed on the other side.
        let half = 0.5_f64.to_radians();
        let [ra_1, dec_1] = self.apparent(right_ascension, declination - half);
        let [ra_2, dec_2] = self.apparent(right_ascension, declination + half);
        let along = (ra_2 - ra_1).sin() * dec_2.cos();
        let up = dec_2.sin() * dec_1.cos() - dec_2.cos() * dec_1.sin() * (ra_2 - ra_1).cos();
        let [ra, dec] = self.apparent(right_ascension, declination);
        [ra, dec, along.atan2(up)]
    }
}
