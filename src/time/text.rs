//! Instants as texts and numbers.

use crate::{SECOND_PICOSECONDS, Time, Utc};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// Name with which [`Time`] asks a deserializer for the digits of a number, as a newtype struct of text.
pub const NAME: &str = "fxgraph_time::Time";
/// Digits of picoseconds.
const DIGITS: usize = 12;
const EXPECTED: &str = "Unix seconds, or a time in UTC such as 2026-11-25T14:20:40.25Z";

/// Picoseconds of the digits after the point; half a picosecond rounds up, also to a whole second.
fn fraction(digits: &str) -> Option<u64> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = &digits[..digits.len().min(DIGITS)];
    let value: u64 = format!("{kept:0<DIGITS$}").parse().ok()?;
    let is_up = digits.as_bytes().get(DIGITS).is_some_and(|digit| *digit >= b'5');
    Some(value + u64::from(is_up))
}

/// Reads exactly `N` whole numbers of one to four digits.
fn numbers<'a, const N: usize>(parts: impl Iterator<Item = &'a str>) -> Option<[i32; N]> {
    let number = |part: &str| {
        let is_number = (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| part.parse().ok())?
    };
    let numbers: Option<Vec<i32>> = parts.take(N + 1).map(number).collect();
    numbers?.try_into().ok()
}

impl Time {
    /// Reads Unix seconds such as `1638307198.123456789` or `1.8e9`, exactly to the picosecond. `None` if `text` is no
    /// number, or outside the years 1 to 9999.
    #[must_use]
    pub fn from_decimal(text: &str) -> Option<Self> {
        let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let exponent: i32 = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
        let unsigned = number.strip_prefix('-');
        let number = unsigned.or(number.strip_prefix('+')).unwrap_or(number);
        let (whole, rest) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{rest}");
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        // Largest number of digits that makes a difference; hostile texts are not padded to any length.
        let exponent = exponent.clamp(-1000, 1000);
        let point = whole.len() as i64 + i64::from(exponent);
        let before = usize::try_from(-point).unwrap_or(0);
        let digits = format!("{}{digits}", "0".repeat(before));
        let point = usize::try_from(point).unwrap_or(0);
        let (whole, rest) = digits.split_at(point.min(digits.len()));
        let after = point.saturating_sub(digits.len());
        let whole = whole.trim_start_matches('0');
        let whole: i64 = if whole.is_empty() {
            0
        } else {
            format!("{whole}{}", "0".repeat(after)).parse().ok()?
        };
        let picoseconds = i128::from(fraction(rest)?);
        let since = i128::from(whole) * i128::from(SECOND_PICOSECONDS) + picoseconds;
        let since = if unsigned.is_some() { -since } else { since };
        let second = i128::from(SECOND_PICOSECONDS);
        Self::from_unix(
            i64::try_from(since.div_euclid(second)).ok()?,
            since.rem_euclid(second) as u64,
        )
    }

    /// Unix seconds as an exact decimal number, such as `1638307198.123456789`.
    #[must_use]
    pub fn decimal(self) -> String {
        let (seconds, picoseconds) = self.to_unix();
        let since = i128::from(seconds) * i128::from(SECOND_PICOSECONDS) + i128::from(picoseconds);
        let sign = if since < 0 { "-" } else { "" };
        let (since, second) = (since.unsigned_abs(), u128::from(SECOND_PICOSECONDS));
        let text = format!("{sign}{}.{:012}", since / second, since % second);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }

    /// Date and time of day, such as `2026-11-25T14:20:40.250000000Z`, with at most 12 digits after the
    /// point.
    #[must_use]
    pub fn iso(self, digits: usize) -> String {
        let digits = digits.min(DIGITS);
        let half = 10_i128.pow((DIGITS - digits) as u32) / 2;
        // The last instant of the year 9999 is not rounded up.
        let rounded = self.plus_picoseconds(half).unwrap_or(self);
        let Utc { year, month, day, hour, minute, second, picoseconds } = rounded.to_utc();
        let fraction = format!("{picoseconds:012}");
        let fraction = &fraction[..digits];
        let point = if fraction.is_empty() { "" } else { "." };
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{point}{fraction}Z")
    }

    /// Reads a date and time of day in UTC, such as `2026-11-25T14:20:40.25Z`; `None` if `text` is none. The time zone
    /// must be `Z` or `+00:00`.
    #[must_use]
    pub fn from_iso(text: &str) -> Option<Self> {
        let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00"))?;
        let (date, of_day) = text.split_once('T')?;
        Self::from_date(date, of_day)
    }

    /// Reads a date `2026-11-25` and a time of day `14:20:40.25`, UTC; `None` if they are none.
    #[must_use]
    pub fn from_date(date: &str, of_day: &str) -> Option<Self> {
        let [year, month, day] = numbers(date.split('-'))?;
        let (clock, rest) = of_day.split_once('.').unwrap_or((of_day, "0"));
        let [hour, minute, second] = numbers(clock.split(':'))?.map(i64::from);
        let picoseconds = if rest.is_empty() { None } else { fraction(rest) }?;
        if !(1..=9999).contains(&year) {
            return None;
        }
        Self::from_utc(&Utc { year, month, day, hour, minute, second, picoseconds })
    }

    /// Reads either [a number](Self::from_decimal) or [a date](Self::from_iso).
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        Self::from_iso(text).or_else(|| Self::from_decimal(text))
    }
}

impl fmt::Display for Time {
    /// Writes the date and time of day to the picosecond, without trailing zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.iso(DIGITS);
        let text = text.trim_end_matches('Z').trim_end_matches('0').trim_end_matches('.');
        write!(f, "{text}Z")
    }
}

impl Serialize for Time {
    /// Unix seconds: a number if it is exact, otherwise the digits as text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = self.to_unix_f64();
        if Self::from_unix_f64(number) == Some(*self) {
            serializer.serialize_f64(number)
        } else {
            serializer.serialize_str(&self.to_string())
        }
    }
}

struct Reading;

impl<'de> Visitor<'de> for Reading {
    type Value = Time;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Time, D::Error> {
        inner.deserialize_any(self)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Time, E> {
        let time = Time::from_unix_f64(value);
        time.ok_or_else(|| E::invalid_value(Unexpected::Float(value), &self))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Time, E> {
        Time::from_unix(value, 0).ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Time, E> {
        let time = i64::try_from(value).ok().and_then(|value| Time::from_unix(value, 0));
        time.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
        Time::read(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(NAME, Reading)
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["number", "string"]})
    }
}
