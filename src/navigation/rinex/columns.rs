//! Fields in fixed columns.

use super::{Fault, RinexError};
use crate::ephemeris::time_of_week;
use fxgraph_time::{Time, Utc};

/// Modified Julian date of 1980-01-06, when GPS time began.
const GPS_MJD: i64 = 44_244;

/// A line with its number.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Number from 1.
    pub number: usize,
    /// Text without its end.
    pub text: &'a str,
}

impl<'a> Line<'a> {
    /// An error in this line.
    pub fn error(&self, fault: Fault) -> RinexError {
        RinexError { line: self.number, fault }
    }

    /// Text from the byte `from` on, `len` bytes or until the line ends; empty across characters of several bytes.
    pub fn text(&self, from: usize, len: usize) -> &'a str {
        let end = (from + len).min(self.text.len());
        self.text.get(from..end).unwrap_or("").trim()
    }

    /// Label of a header line.
    pub fn label(&self) -> &'a str {
        self.text(60, 20)
    }

    /// Number in `len` columns; `None` if they are blank.
    pub fn number(&self, from: usize, len: usize) -> Result<Option<f64>, RinexError> {
        let text = self.text(from, len);
        if text.is_empty() {
            return Ok(None);
        }
        // Exponents are written with D, E, d or e.
        let number = text.replace(['D', 'd'], "E").parse::<f64>().ok();
        number.filter(|number| number.is_finite()).map(Some).ok_or_else(|| {
            let text = text.chars().take(20).collect();
            self.error(Fault::Number { from: from + 1, to: from + len, text })
        })
    }

    /// Number in `len` columns, 0 if they are blank.
    pub fn value(&self, from: usize, len: usize) -> Result<f64, RinexError> {
        Ok(self.number(from, len)?.unwrap_or(0.0))
    }

    /// Date and time in GPS time from its six fields, each with its first column and length.
    pub fn epoch(&self, fields: [(usize, usize); 6]) -> Result<Time, RinexError> {
        let mut values = [0.0; 6];
        for (value, (from, len)) in values.iter_mut().zip(fields) {
            *value = self.number(from, len)?.ok_or_else(|| self.error(Fault::Epoch))?;
        }
        gps_time(values).ok_or_else(|| self.error(Fault::Epoch))
    }
}

/// Instant of year, month, day, hour, minute and second of GPS time, which has no leap seconds.
fn gps_time([year, month, day, hour, minute, second]: [f64; 6]) -> Option<Time> {
    let is_time = (0.0..24.0).contains(&hour)
        && (0.0..60.0).contains(&minute)
        && (0.0..=60.0).contains(&second);
    let year = match year as i32 {
        short @ 0..80 => short + 2000,
        short @ 80..100 => short + 1900,
        year => year,
    };
    let (month, day) = (month as i32, day as i32);
    let utc = Utc { year, month, day, hour: 0, minute: 0, second: 0, picoseconds: 0 };
    let days = Time::from_utc(&utc).filter(|_| is_time)?.to_mjd().0 - GPS_MJD;
    let week = u32::try_from(days.div_euclid(7)).ok()?;
    let of_week = days.rem_euclid(7) as f64 * 86_400.0;
    time_of_week(week, of_week + 3600.0 * hour + 60.0 * minute + second)
}

/// Year, month, day, hour and minute of an instant in GPS time, and the seconds.
pub fn gps_date(time: Time) -> ([i64; 5], f64) {
    let (seconds, picoseconds) = time.to_gps();
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let date = Time::from_mjd(days + GPS_MJD, 0, 0).unwrap_or_default().to_utc();
    let whole =
        [date.year.into(), date.month.into(), date.day.into(), of_day / 3600, of_day / 60 % 60];
    (whole, (of_day % 60) as f64 + 1e-12 * picoseconds as f64)
}

/// Formats a number in 19 columns with 12 decimals, as Fortran's `1P D19.12`.
pub fn scientific(value: f64) -> String {
    number(value, 12, 19)
}

/// Formats a number with `decimals` in `width` columns.
pub fn number(value: f64, decimals: usize, width: usize) -> String {
    let text = format!("{:.decimals$e}", if value.is_finite() { value } else { 0.0 });
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // A value below the columns is 0; one above them is no value of a message.
    if exponent < -99 {
        return number(0.0, decimals, width);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{:>width$}", format!("{mantissa}D{sign}{:02}", exponent.abs().min(99)))
}
