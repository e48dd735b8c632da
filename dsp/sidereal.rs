//! Sidereal time, and apparent places of sources.
//!
//! Precession is that of IAU 2006, nutation has the largest terms of IAU 2000A, aberration follows from an
//! elliptical orbit of the Earth. Sidereal times are right to 1 ms and places to 0.1 arcseconds in the decades around
//! 2000; no refraction, no parallax, no deflection of light.

use std::f64::consts::TAU;

/// Days of a Julian century.
const CENTURY: f64 = 36_525.0;
/// TT - TAI in seconds.
const TT_MINUS_TAI: f64 = 32.184;
/// Speed of the Earth's rotation at the equator, divided by the speed of light.
const ROTATION_SPEED: f64 = 1.5513e-6;

/// Largest terms of the nutation: multiples of the mean anomalies of Moon and Sun, of the Moon's argument
/// of latitude, elongation and node; sine in longitude and cosine in obliquity, in milliarcseconds.
const NUTATION: [([f64; 5], f64, f64); 21] = [
    ([0.0, 0.0, 0.0, 0.0, 1.0], -17_206.416, 9_205.233),
    ([0.0, 0.0, 2.0, -2.0, 2.0], -1_317.091, 573.034),
    ([0.0, 0.0, 2.0, 0.0, 2.0], -227.641, 97.846),
    ([0.0, 0.0, 0.0, 0.0, 2.0], 207.455, -89.749),
    ([0.0, 1.0, 0.0, 0.0, 0.0], 147.588, 7.387),
    ([0.0, 1.0, 2.0, -2.0, 2.0], -51.682, 22.439),
    ([1.0, 0.0, 0.0, 0.0, 0.0], 71.116, -0.675),
    ([0.0, 0.0, 2.0, 0.0, 1.0], -38.730, 20.073),
    ([1.0, 0.0, 2.0, 0.0, 2.0], -30.146, 12.902),
    ([0.0, -1.0, 2.0, -2.0, 2.0], 21.583, -9.593),
    ([0.0, 0.0, 2.0, -2.0, 1.0], 12.823, -6.898),
    ([-1.0, 0.0, 2.0, 0.0, 2.0], 12.346, -5.331),
    ([-1.0, 0.0, 0.0, 2.0, 0.0], 15.699, -0.124),
    ([1.0, 0.0, 0.0, 0.0, 1.0], 6.311, -3.323),
    ([-1.0, 0.0, 0.0, 0.0, 1.0], -5.798, 3.143),
    ([-1.0, 0.0, 2.0, 2.0, 2.0], -5.964, 2.553),
    ([1.0, 0.0, 2.0, 0.0, 1.0], -5.161, 2.637),
    ([-2.0, 0.0, 2.0, 0.0, 1.0], 4.589, -2.424),
    ([0.0, 0.0, 0.0, 2.0, 0.0], 6.338, -0.125),
    ([0.0, 0.0, 2.0, 2.0, 2.0], -3.857, 1.645),
    ([-2.0, 0.0, 0.0, 2.0, 0.0], -4.771, 0.048),
];

/// A moment of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// UT1 as days since J2000.
    ut1_days: f64,
    /// TT as Julian centuries since J2000.
    centuries: f64,
}

fn arcseconds(value: f64) -> f64 {
    (value / 3600.0).to_radians()
}

/// Value of a polynomial, lowest power first.
fn polynomial(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

/// Turns the axes around axis `axis` by `angle`.
fn turn(axis: usize, angle: f64, mut vector: [f64; 3]) -> [f64; 3] {
    let (sin, cos) = angle.sin_cos();
    let (a, b) = ((axis + 1) % 3, (axis + 2) % 3);
    (vector[a], vector[b]) = (vector[a] * cos + vector[b] * sin, vector[b] * cos - vector[a] * sin);
    vector
}

fn unit(longitude: f64, latitude: f64) -> [f64; 3] {
    let cos = latitude.cos();
    [cos * longitude.cos(), cos * longitude.sin(), latitude.sin()]
}

/// Longitude from 0 to 2 pi, and latitude.
fn direction([x, y, z]: [f64; 3]) -> [f64; 2] {
    [y.atan2(x).rem_euclid(TAU), z.atan2(x.hypot(y))]
}

impl Moment {
    /// The moment of a Unix time, with UT1 - UTC in seconds.
    #[must_use]
    pub fn new(unix_seconds: f64, ut1_minus_utc: f64) -> Self {
        // Unix time of J2000: small numbers keep their precision.
        let seconds = unix_seconds - 946_728_000.0;
        let tt_minus_utc = super::utc::tai_minus_utc(unix_seconds) + TT_MINUS_TAI;
        Self {
            ut1_days: (seconds + ut1_minus_utc) / 86_400.0,
            centuries: (seconds + tt_minus_utc) / 86_400.0 / CENTURY,
        }
    }

    /// Mean obliquity of the ecliptic.
    fn obliquity(&self) -> f64 {
        let t = [84_381.406, -46.836_769, -0.000_183_1, 0.002_003_4];
        arcseconds(polynomial(&t, self.centuries))
    }

    /// Mean longitude of the Moon's ascending node.
    fn node(&self) -> f64 {
        let t = [450_160.398_036, -6_962_890.543_1, 7.472_2, 0.007_702];
        arcseconds(polynomial(&t, self.centuries))
    }

    /// Nutation in longitude and obliquity.
    fn nutation(&self) -> [f64; 2] {
        let t = self.centuries;
        let moon = [485_868.249_036, 1_717_915_923.217_8, 31.879_2, 0.051_635];
        let sun = [1_287_104.793_05, 129_596_581.048_1, -0.553_2, 0.000_136];
        let latitude = [335_779.526_232, 1_739_527_262.847_8, -12.751_2, -0.001_037];
        let elongation = [1_072_260.703_69, 1_602_961_601.209, -6.370_6, 0.006_593];
        let arguments = [moon, sun, latitude, elongation].map(|c| arcseconds(polynomial(&c, t)));
        let [moon, sun, latitude, elongation] = arguments;
        let arguments = [moon, sun, latitude, elongation, self.node()];
        let mut nutation = [0.0; 2];
        for (multiples, longitude, obliquity) in NUTATION {
            let angle: f64 = multiples.iter().zip(arguments).map(|(m, a)| m * a).sum();
            nutation[0] += longitude * angle.sin();
            nutation[1] += obliquity * angle.cos();
        }
        // The largest change with time, and the largest terms out of phase.
        nutation[0] += -17.467 * t * self.node().sin() + 3.339 * self.node().cos();
        nutation[1] += 0.909 * t * self.node().cos() + 1.538 * self.node().sin();
        nutation.map(|milliarcseconds| arcseconds(milliarcseconds / 1000.0))
    }

    /// Greenwich apparent sidereal time in radians, from 0 to 2 pi.
    #[must_use]
    pub fn greenwich_sidereal_time(&self) -> f64 {
        let days = self.ut1_days;
        // Whole turns are left out before they cost precision.
        let turns = days.rem_euclid(1.0) + 0.779_057_273_264 + 0.002_737_811_911_354_48 * days;
        let since_equinox = [0.014_506, 4_612.156_534, 1.391_581_7, -0.000_000_44, -0.000_029_956];
        let mean = turns * TAU + arcseconds(polynomial(&since_equinox, self.centuries));
        let [longitude, _] = self.nutation();
        let node = self.node();
        let complementary = 0.002_64 * node.sin() + 0.000_063 * (2.0 * node).sin();
        let equinoxes = longitude * self.obliquity().cos() + arcseconds(complementary);
        (mean + equinoxes).rem_euclid(TAU)
    }

    /// Velocity of the Earth around the Sun divided by the speed of light, in ecliptic coordinates of date.
    fn orbit(&self) -> [f64; 3] {
        let t = self.centuries;
        let anomaly = (357.529_11 + 35_999.050_29 * t).to_radians();
        let centre = 1.914_602 * anomaly.sin()
            + 0.019_993 * (2.0 * anomaly).sin()
            + 0.000_289 * (3.0 * anomaly).sin();
        let sun = (280.466_46 + 36_000.769_83 * t + centre).to_radians();
        let perihelion = (102.937_35 + 1.719_46 * t).to_radians();
        let eccentricity = 0.016_708_634 - 0.000_042_037 * t;
        let speed = arcseconds(20.495_52);
        [
            speed * (sun.sin() - eccentricity * perihelion.sin()),
            speed * (eccentricity * perihelion.cos() - sun.cos()),
            0.0,
        ]
    }

    /// Returns the apparent right ascension and declination of a source at an ICRS place, seen from a latitude and at
    /// a local sidereal time; all in radians.
    #[must_use]
    pub fn apparent(
        &self,
        right_ascension: f64,
        declination: f64,
        latitude: f64,
        sidereal_time: f64,
    ) -> [f64; 2] {
        let t = self.centuries;
        let zeta = [2.650_545, 2_306.083_227, 0.298_849_9, 0.018_018_28];
        let z = [-2.650_545, 2_306.077_181, 1.092_734_8, 0.018_268_37];
        let theta = [0.0, 2_004.191_903, -0.429_493_4, -0.041_822_64];
        let [zeta, z, theta] = [zeta, z, theta].map(|c| arcseconds(polynomial(&c, t)));
        let mut place = unit(right_ascension, declination);
        place = turn(2, -zeta, place);
        place = turn(1, theta, place);
        place = turn(2, -z, place);
        let obliquity = self.obliquity();
        let ecliptic = turn(0, obliquity, place);
        let orbit = self.orbit();
        let [in_longitude, in_obliquity] = self.nutation();
        let mut place: [f64; 3] = std::array::from_fn(|n| ecliptic[n] + orbit[n]);
        place = turn(2, -in_longitude, place);
        place = turn(0, -(obliquity + in_obliquity), place);
        let speed = ROTATION_SPEED * latitude.cos();
        place[0] -= speed * sidereal_time.sin();
        place[1] += speed * sidereal_time.cos();
        direction(place)
    }

    /// Returns [`apparent`](Self::apparent), and the position angle of the ICRS north at the source, from the north of
    /// date through east.
    #[must_use]
    pub fn apparent_with_north(
        &self,
        right_ascension: f64,
        declination: f64,
        latitude: f64,
        sidereal_time: f64,
    ) -> [f64; 3] {
        let at =
            |declination: f64| self.apparent(right_ascension, declination, latitude, sidereal_time);
        // Half a degree on both sides; the pole is passed on the other side.
        let half = 0.5_f64.to_radians();
        let ([ra_1, dec_1], [ra_2, dec_2]) = (at(declination - half), at(declination + half));
        let along = (ra_2 - ra_1).sin() * dec_2.cos();
        let up = dec_2.sin() * dec_1.cos() - dec_2.cos() * dec_1.sin() * (ra_2 - ra_1).cos();
        let [ra, dec] = at(declination);
        [ra, dec, along.atan2(up)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    include!("sidereal_reference.rs");

    fn apart(a: f64, b: f64) -> f64 {
        let turn = (a - b).rem_euclid(TAU);
        turn.min(TAU - turn)
    }

    #[test]
    fn sidereal_time_agrees_with_erfa() {
        for reference in REFERENCES {
            let moment = Moment::new(reference.unix, reference.ut1_minus_utc);
            let apart = apart(moment.greenwich_sidereal_time(), reference.gast);
            let milliseconds = apart / TAU * 86_400_000.0;
            assert!(milliseconds < 1.0, "{} {milliseconds}", reference.unix);
        }
    }

    #[test]
    fn apparent_places_agree_with_erfa() {
        for reference in REFERENCES {
            let moment = Moment::new(reference.unix, reference.ut1_minus_utc);
            let [latitude, longitude] = [-30.7, 21.4].map(f64::to_radians);
            let time = moment.greenwich_sidereal_time() + longitude;
            let [ra, dec] = reference.icrs;
            let found = moment.apparent_with_north(ra, dec, latitude, time);
            let [in_ra, in_dec] = [
                apart(found[0], reference.apparent[0]) * dec.cos(),
                found[1] - reference.apparent[1],
            ];
            let seconds = in_ra.hypot(in_dec).to_degrees() * 3600.0;
            assert!(seconds < 0.1, "{} {seconds}", reference.unix);
            assert!(apart(found[2], reference.north) < 2e-5, "{found:?} {reference:?}");
        }
    }
}
