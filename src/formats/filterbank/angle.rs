//! Coordinates as SIGPROC writes them: hours or degrees, minutes and seconds as the decimal digits of one number.

/// Reads a right ascension `hh:mm:ss.s`; returns `hhmmss.s`, or `None` if `text` is none.
#[must_use]
pub fn right_ascension(text: &str) -> Option<f64> {
    let hours = digits(text)?;
    (hours < 240_000.0).then_some(hours)
}

/// Reads a declination `dd:mm:ss.s` with an optional sign; returns `ddmmss.s` with its sign, or `None` if `text` is
/// none.
#[must_use]
pub fn declination(text: &str) -> Option<f64> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => (-1.0, text),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let degrees = digits(text)?;
    (degrees <= 900_000.0).then_some(sign * degrees)
}

/// Reads three numbers separated by colons, the last with an optional fraction.
fn digits(text: &str) -> Option<f64> {
    let mut parts = text.split(':');
    let (first, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let is_plain = |part: &str| {
        let whole = part.split('.').next().unwrap_or_default();
        let is_digits = part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        (1..=2).contains(&whole.len()) && is_digits
    };
    let are_whole = !first.contains('.') && !minutes.contains('.');
    if parts.next().is_some() || !are_whole || ![first, minutes, seconds].into_iter().all(is_plain)
    {
        return None;
    }
    let (first, minutes, seconds) =
        (first.parse::<f64>().ok()?, minutes.parse::<f64>().ok()?, seconds.parse::<f64>().ok()?);
    (minutes < 60.0 && seconds < 60.0).then_some(first * 10_000.0 + minutes * 100.0 + seconds)
}
