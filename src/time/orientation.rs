//! Orientation of the Earth: UT1 - UTC, and the motion of the pole.

use crate::Time;
use crate::leap;

/// Orientation of the Earth at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EarthOrientation {
    /// UT1 - UTC in seconds.
    pub ut1_utc_seconds: f64,
    /// Coordinates x and y of the pole in radians.
    pub pole: [f64; 2],
}

/// A day of a table.
#[derive(Clone, Copy, Debug)]
struct Row {
    mjd: i64,
    /// UT1 - TAI in seconds, apart from a constant: it has no leap seconds, so that it can be interpolated.
    ut1_tai: f64,
    pole: [f64; 2],
}

/// Orientation of the Earth on successive days, from a file of the International Earth Rotation and Reference Systems
/// Service (IERS).
#[derive(Clone, Debug)]
pub struct EarthOrientations(Vec<Row>);

/// Leap seconds before the modified Julian date `mjd`.
fn leaps(mjd: i64) -> f64 {
    leap::before_unix((mjd - leap::UNIX_MJD) * leap::DAY_SECONDS) as f64
}

impl EarthOrientations {
    /// Reads a file in the format `finals2000A` (columns MJD, PM-x, PM-y and UT1-UTC). Lines without values, which end
    /// such a file, are skipped.
    pub fn finals2000a(text: &str) -> Result<Self, String> {
        let mut rows: Vec<Row> = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let wrong = |column: &str| format!("line {}: {column} is not a number", n + 1);
            let column = |name: &str, from: usize, to: usize| match line.get(from - 1..to) {
                Some(text) if !text.trim().is_empty() => {
                    let number = text.trim().parse::<f64>().ok().filter(|n| n.abs() < 1e6);
                    number.map(Some).ok_or_else(|| wrong(name))
                }
                _ => Ok(None),
            };
            // Bulletin B is final, bulletin A is rapid or a prediction.
            let x = column("PM-x", 135, 144)?.or(column("PM-x", 19, 27)?);
            let y = column("PM-y", 145, 154)?.or(column("PM-y", 38, 46)?);
            let ut1_utc = column("UT1-UTC", 155, 165)?.or(column("UT1-UTC", 59, 68)?);
            let values = [column("MJD", 8, 15)?, x, y, ut1_utc];
            let [Some(mjd), Some(x), Some(y), Some(ut1_utc)] = values else { continue };
            let mjd = mjd as i64;
            if rows.last().is_some_and(|last| last.mjd >= mjd) {
                return Err(format!("line {}: the MJD must be later than that before", n + 1));
            }
            let pole = [x, y].map(|arcseconds| (arcseconds / 3600.0).to_radians());
            rows.push(Row { mjd, ut1_tai: ut1_utc - leaps(mjd), pole });
        }
        if rows.is_empty() {
            return Err("the file has no line with MJD, PM-x, PM-y and UT1-UTC in the columns of \
                        finals2000A"
                .to_owned());
        }
        Ok(Self(rows))
    }

    /// First and last day, modified Julian dates.
    #[must_use]
    pub fn days(&self) -> [i64; 2] {
        [self.0.first(), self.0.last()].map(|row| row.map_or(0, |row| row.mjd))
    }

    /// Orientation at `time`, or that of the first or last day.
    #[must_use]
    pub fn nearest(&self, time: Time) -> EarthOrientation {
        self.at(time).unwrap_or_else(|| {
            let is_early = self.0.first().is_some_and(|row| time.to_mjd().0 < row.mjd);
            let row = if is_early { self.0.first() } else { self.0.last() };
            row.map_or_else(EarthOrientation::default, |row| EarthOrientation {
                // The difference to TAI holds, so that a leap second counts.
                ut1_utc_seconds: row.ut1_tai + leaps(time.to_mjd().0),
                pole: row.pole,
            })
        })
    }

    /// Orientation at `time`, interpolated between days; `None` before the first day and after the last.
    #[must_use]
    pub fn at(&self, time: Time) -> Option<EarthOrientation> {
        let (mjd, _, _) = time.to_mjd();
        let part = time.to_julian_date()[1];
        let after = self.0.partition_point(|row| row.mjd <= mjd);
        let before = self.0.get(after.checked_sub(1)?)?;
        let next = match self.0.get(after) {
            Some(next) => next,
            // The last day is an instant.
            None if before.mjd == mjd && part == 0.0 => before,
            None => return None,
        };
        let length = (next.mjd - before.mjd).max(1) as f64;
        let weight = ((mjd - before.mjd) as f64 + part) / length;
        let mix = |a: f64, b: f64| a + (b - a) * weight;
        Some(EarthOrientation {
            ut1_utc_seconds: mix(before.ut1_tai, next.ut1_tai) + leaps(mjd),
            pole: [0, 1].map(|n| mix(before.pole[n], next.pole[n])),
        })
    }
}
