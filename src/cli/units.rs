//! Numbers and durations in a readable form.

use std::time::Duration;

/// `1.5 GB`, in powers of 1000 as link rates are.
pub fn bytes(bytes: f64) -> String {
    scaled(bytes, "B")
}

/// `12.3 M`.
pub fn count(count: f64) -> String {
    scaled(count, "").trim_end().to_owned()
}

/// Factors of prefixes, the largest first.
const PREFIXES: [(f64, &str); 6] =
    [(1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];

/// Factor and prefix of `value`; `None` below 1000.
fn prefix(value: f64) -> Option<(f64, &'static str)> {
    // Without the factor, 999.95 would become 1000.0 with the smaller prefix.
    PREFIXES.into_iter().find(|(step, _)| value.abs() >= step * 0.9995)
}

/// `12.3 Gop/s`, `1.7 GS/s`: `value` with three digits and a prefix before `unit`.
pub fn scaled(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    match prefix(value) {
        Some((step, prefix)) => format!("{} {prefix}{unit}", three_digits(value / step)),
        None if value.fract() == 0.0 => format!("{value} {unit}"),
        None => format!("{} {unit}", three_digits(value)),
    }
}

/// Digits of a double, and most decimals of a text.
const MOST_DIGITS: i32 = 15;

/// Formats `values`, which are read together, with as many digits as their span needs: each has three digits or more,
/// and their range is resolved to three digits. `largest` is the magnitude of the largest value.
fn together(values: &[f64], largest: f64) -> Vec<String> {
    let known = || values.iter().copied().filter(|value| value.is_finite());
    let span = known().fold(f64::NEG_INFINITY, f64::max) - known().fold(f64::INFINITY, f64::min);
    let exponent = |value: f64| value.log10().floor() as i32;
    let text = |value: f64| match value {
        value if !value.is_finite() => "-".to_owned(),
        0.0 => "0".to_owned(),
        value if !(span > 0.0 && span.is_finite()) => three_digits(value),
        value if largest < 9.995e-4 => {
            let digits = (2 + exponent(largest) - exponent(span)).clamp(2, MOST_DIGITS);
            format!("{value:.*e}", digits as usize)
        }
        value => {
            let decimals = (2 - exponent(span)).min(MOST_DIGITS - exponent(largest).max(0));
            let text = format!("{value:.*}", decimals.max(0) as usize);
            let short = three_digits(value);
            // A value far below the largest one keeps its own digits.
            if short.len() > text.len() && !short.contains('e') { short } else { text }
        }
    };
    values.iter().map(|value| text(*value)).collect()
}

/// Formats values that are read together, like minimum, maximum and mean, so that their differences are visible.
pub fn spanned(values: &[f64]) -> Vec<String> {
    together(values, magnitude(values))
}

/// Labels of an axis at `values`: all with the prefix of the largest one, and with the digits that distinguish them.
#[cfg(feature = "tui")]
pub fn axis(values: &[f64]) -> Vec<String> {
    let largest = magnitude(values);
    let (step, prefix) = prefix(largest).unwrap_or((1.0, ""));
    let scaled: Vec<f64> = values.iter().map(|value| value / step).collect();
    let mut labels = together(&scaled, largest / step);
    let ends_with_zero = |label: &String| {
        label == "0" || (label.contains('.') && label.ends_with('0') && !label.contains('e'))
    };
    while labels.iter().all(ends_with_zero) && labels.iter().any(|label| label != "0") {
        for label in labels.iter_mut().filter(|label| *label != "0") {
            label.pop();
            label.truncate(label.trim_end_matches('.').len());
        }
    }
    let label = |text: String| if text == "0" { text } else { format!("{text} {prefix}") };
    labels.into_iter().map(|text| label(text).trim_end().to_owned()).collect()
}

/// Magnitude of the largest finite value.
fn magnitude(values: &[f64]) -> f64 {
    values.iter().filter(|value| value.is_finite()).fold(0.0, |most, value| value.abs().max(most))
}

/// `value` with three significant digits, as an integer from 100 on.
pub fn three_digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v < 9.995e-4 => format!("{value:.2e}"),
        v if v < 9.995e-3 => format!("{value:.5}"),
        v if v < 9.995e-2 => format!("{value:.4}"),
        v if v < 9.995e-1 => format!("{value:.3}"),
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// About 30 years, so that adding a duration to an `Instant` never overflows.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

/// Parses a duration like `10s`, `1.5m`, `2h` or `200ms`; a bare number is in seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unknown unit `{unit}`; use ms, s, m or h")),
    };
    let value: f64 = number.trim().parse().map_err(|_| "give it like 10s, 1.5m or 200ms")?;
    Duration::try_from_secs_f64(value * scale)
        .ok()
        .filter(|duration| !duration.is_zero() && *duration <= LONGEST)
        .ok_or_else(|| "the time must be above 0 and at most 10^9 s".to_owned())
}

/// `0.8 s`, `12 s`, `3:05`, `1:02:03`.
pub fn elapsed(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{}:{:02}", seconds / 60, seconds % 60),
        _ => format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

/// `3.20 s`, `5.00 min`, `2.50 h`, `12.0 days`, `31.7 years`: a time of any length, with three digits.
pub fn long(seconds: f64) -> String {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 60.0 * MINUTE;
    const DAY: f64 = 24.0 * HOUR;
    const YEAR: f64 = 365.25 * DAY;
    let (unit, name) = match seconds {
        s if s < MINUTE => (1.0, "s"),
        s if s < HOUR => (MINUTE, "min"),
        s if s < 2.0 * DAY => (HOUR, "h"),
        s if s < 2.0 * YEAR => (DAY, "days"),
        _ => (YEAR, "years"),
    };
    format!("{} {name}", three_digits(seconds / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_have_a_unit_of_their_length() {
        let times = [3.2, 300.0, 9000.0, 86_400.0, 259_200.0, 1e9];
        let texts = ["3.20 s", "5.00 min", "2.50 h", "24.0 h", "3.00 days", "31.7 years"];
        assert_eq!(times.map(long), texts);
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(999.0), "999 B");
        assert_eq!(bytes(999_960.0), "1.00 MB");
        assert_eq!(bytes(12_345_678.0), "12.3 MB");
        assert_eq!(count(12.0), "12");
        assert_eq!(scaled(1.712e9, "S/s"), "1.71 GS/s");
        assert_eq!(scaled(f64::INFINITY, "B"), "-");
        assert_eq!(three_digits(0.25), "0.250");
        assert_eq!(three_digits(0.004), "0.00400");
        assert_eq!(three_digits(99.96), "100");
    }

    #[test]
    fn axis_labels_differ_however_small_the_span_is() {
        let around = |middle: f64, half: f64| axis(&[middle - half, middle, middle + half]);
        assert_eq!(around(1.42e9, 107e3), ["1.419893 G", "1.420000 G", "1.420107 G"]);
        assert_eq!(axis(&[0.0, 9.5e3, 19e3]), ["0", "9.5 k", "19 k"]);
        assert_eq!(axis(&[-60.0, -30.0, 0.0]), ["-60", "-30", "0"]);
        assert_eq!(axis(&[7.0, 7.0]), ["7", "7"]);
        let small = axis(&[0.0, 2e-10, 4e-10]);
        assert!(small[1].ends_with("e-10") && small[2].ends_with("e-10"), "{small:?}");
        assert_eq!(axis(&[0.0, 0.0]), ["0", "0"]);
        for exponent in -3..15 {
            let labels = around(1.42e9, 10_f64.powi(exponent));
            let distinct: std::collections::HashSet<_> = labels.iter().collect();
            assert_eq!(distinct.len(), 3, "{labels:?}");
        }
    }

    #[test]
    fn numbers_read_together_show_their_differences() {
        assert_eq!(spanned(&[1000.2, 1000.9, 1000.55]), ["1000.200", "1000.900", "1000.550"]);
        assert_eq!(spanned(&[-4.0, 5.0, 1.0, 3.5355]), ["-4.00", "5.00", "1.00", "3.54"]);
        assert_eq!(spanned(&[0.0, 2.5e6, f64::NAN]), ["0", "2500000", "-"]);
        assert_eq!(spanned(&[1e18, -1e18]), ["1000000000000000000", "-1000000000000000000"]);
        assert_eq!(spanned(&[1.0001e-6, 1.0002e-6]), ["1.000100e-6", "1.000200e-6"]);
    }

    #[test]
    fn parse_duration_reads_units() {
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(parse_duration("3"), Ok(Duration::from_secs(3)));
        assert!(parse_duration("10000000000s").is_err());
    }

    #[test]
    fn parse_duration_rejects_zero_negative_and_non_finite_times() {
        for text in ["", "s", "10 fortnights", "-1s", "0s", "1e400s", "nan", "inf", "1e30h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn elapsed_adds_minutes_and_hours_when_needed() {
        assert_eq!(elapsed(Duration::from_millis(1234)), "1.2 s");
        assert_eq!(elapsed(Duration::from_secs(59)), "59 s");
        assert_eq!(elapsed(Duration::from_secs(185)), "3:05");
        assert_eq!(elapsed(Duration::from_secs(3723)), "1:02:03");
    }
}
