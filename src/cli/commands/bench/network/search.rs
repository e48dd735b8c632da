//! Bisection for the highest rate without missing data.

/// Ratio of the rates between which the search ends.
const RESOLUTION: f64 = 1.05;
/// Ratio of the highest rate that is tried to the rate that an overloaded sender reached. A sender that competes with
/// the flowgraph for cores is faster at a lower rate.
const BEYOND_SENDER: f64 = 2.0;

/// Result of a trial, for the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// No data was missing.
    Lossless,
    /// Data was missing.
    Lossy,
    /// The sender reached only this rate.
    SenderLimited(f64),
}

/// Returns the highest rate between `minimum` and `maximum` that `trial` finds lossless; `None` if the lowest rate is
/// not. The order of the trials is: minimum, maximum, and then the geometric mean of the highest lossless rate and the
/// lowest lossy rate.
pub fn highest_lossless<E>(
    minimum: f64,
    maximum: f64,
    mut trial: impl FnMut(f64) -> Result<Verdict, E>,
) -> Result<Option<f64>, E> {
    if trial(minimum)? != Verdict::Lossless {
        return Ok(None);
    }
    let (mut low, mut high, mut rate) = (minimum, maximum, maximum);
    while high / low > RESOLUTION {
        match trial(rate)? {
            Verdict::Lossless if rate >= high => return Ok(Some(rate)),
            Verdict::Lossless => low = rate,
            Verdict::Lossy => high = rate,
            Verdict::SenderLimited(reached) => high = rate.min(BEYOND_SENDER * reached).max(low),
        }
        rate = (low * high).sqrt();
    }
    Ok(Some(low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Searches with a flowgraph that is lossless up to `limit` and a sender that reaches `sender`; returns the
    /// result and the rates that were tried.
    fn search(bounds: (f64, f64), limit: f64, sender: f64) -> (Option<f64>, Vec<f64>) {
        let mut tried = Vec::new();
        let found = highest_lossless(bounds.0, bounds.1, |rate| {
            tried.push(rate);
            let verdict = match rate {
                rate if rate > sender => Verdict::SenderLimited(sender),
                rate if rate > limit => Verdict::Lossy,
                _ => Verdict::Lossless,
            };
            Ok::<_, Infallible>(verdict)
        });
        (found.unwrap_or_else(|never| match never {}), tried)
    }

    #[test]
    fn bisection_ends_within_five_percent_below_the_limit() {
        for limit in [1.01e6, 3e6, 0.7e9, 3.99e9] {
            let (found, tried) = search((1e6, 4e9), limit, f64::INFINITY);
            let found = found.unwrap_or_default();
            assert!(found <= limit && found * RESOLUTION >= limit, "{found} of {limit}");
            assert!(tried.len() <= 12, "{tried:?}");
        }
    }

    #[test]
    fn bounds_that_are_both_lossless_or_both_lossy_end_the_search_early() {
        assert_eq!(search((1e6, 4e9), 5e9, 9e9), (Some(4e9), vec![1e6, 4e9]));
        assert_eq!(search((1e6, 4e9), 1e5, 9e9), (None, vec![1e6]));
        assert_eq!(search((1e6, 1e6), 5e9, 9e9), (Some(1e6), vec![1e6]));
    }

    #[test]
    fn overloaded_sender_lowers_the_upper_bound() {
        let (found, tried) = search((1e6, 4e9), 5e9, 1e8);
        let found = found.unwrap_or_default();
        assert!(found <= 1e8 && found * RESOLUTION >= 1e8, "{found}");
        assert!(tried[2] < 2e7, "{tried:?}");
        // A sender that reaches less than the lowest rate that it had kept.
        let (found, _) = search((1e6, 4e9), 5e9, 1.0001e6);
        assert!(found.is_some_and(|found| (1e6..=1.0001e6).contains(&found)), "{found:?}");
    }
}
