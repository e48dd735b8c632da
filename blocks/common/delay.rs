//! Limits of delay models, and the gauge of the group delay.

use fxgraph::kind::Effect;
use fxgraph::{Clock, Counters, Rejection};
use fxgraph_dsp::delay::Piece;

/// Largest magnitudes of the rates of a delay model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MaxRates {
    /// Delay rate, in seconds per second.
    pub delay: f64,
    /// Phase rate, in radians per second.
    pub phase_radians_per_second: f64,
}

impl Default for MaxRates {
    fn default() -> Self {
        Self { delay: default_max_rate(), phase_radians_per_second: default_max_phase_rate() }
    }
}

/// Returns the default of the largest delay rate, in seconds per second.
#[must_use]
pub fn default_max_rate() -> f64 {
    2.56e-9
}

/// Returns the default of the largest fringe rate, in radians per second.
#[must_use]
pub fn default_max_phase_rate() -> f64 {
    49.22
}

/// Default of the largest delay, in seconds.
pub const MAX_DELAY_SECONDS: f64 = 79.53e-6;

/// Sets the gauge of the group delay of a filter with `taps` taps, `step` ADC samples apart: half of its length.
/// The timestamps of the filter's output are those of the first sample of a window.
pub fn show_group_delay(counters: &Counters, taps: usize, step: usize, adc_sample_rate_hz: f64) {
    let gauge = counters.state(
        "filter_group_delay_seconds",
        "time from the timestamp of an output to the centre of the filter's window; add the delays of all blocks in the chain",
    );
    gauge.set(taps.saturating_sub(1) as f64 / 2.0 * step as f64 / adc_sample_rate_hz);
}

/// States how the delay models of inputs on `clock` are understood that take effect as `effect` says: the pieces of each
/// input that will be in force. With a sync time that was measured, their times have an uncertainty.
#[must_use]
pub fn statement(models: &[Vec<Piece>], clock: Clock, effect: &Effect) -> serde_json::Value {
    let clock = clock.in_base(&effect.base);
    let utc = |timestamp: u64| clock.time(timestamp).map(|time| time.to_string());
    let piece = |piece: &Piece| {
        let from = piece.start_samples.max(effect.from);
        let mut stated = serde_json::json!({
            "start_samples": piece.start_samples,
            "start_utc": utc(piece.start_samples),
            "in_force_from": from,
            "in_force_from_utc": utc(from),
            "has_expired": changes(piece) && piece.start_samples < effect.base.from,
        });
        // Null if it is not known.
        if effect.base.uncertainty_seconds > 0.0 {
            stated["utc_uncertainty_seconds"] = effect.base.uncertainty_seconds.into();
        }
        stated
    };
    let of_input = |pieces: &Vec<Piece>| -> Vec<serde_json::Value> {
        let started = pieces.partition_point(|piece| piece.start_samples <= effect.from);
        pieces[started.saturating_sub(1)..].iter().map(piece).collect()
    };
    models.iter().map(of_input).collect()
}

/// Whether one of the delay models depends on timestamps: a constant delay from timestamp 0 on does not.
#[must_use]
pub fn have_timestamps(models: &[Vec<Piece>]) -> bool {
    models.iter().flatten().any(|piece| piece.start_samples > 0 || changes(piece))
}

/// Whether the delay or the phase of a piece changes with time.
fn changes(piece: &Piece) -> bool {
    piece.rate != 0.0 || piece.phase_rate_radians_per_second != 0.0
}

/// Returns diagnostics for an invalid piece, at `parameter`.
#[must_use]
pub fn reject_piece(
    piece: &Piece,
    parameter: &'static str,
    adc_sample_rate_hz: f64,
    max_delay_seconds: f64,
    rates: MaxRates,
) -> Vec<Rejection> {
    let reject =
        |message: String, help: String| Rejection::parameter(parameter, message).help(help);
    let mut rejections = Vec::new();
    if piece.delay_samples.is_some() && piece.delay_seconds.is_some() {
        rejections.push(reject(
            "a piece must not have both `delay_samples` and `delay_seconds`".to_owned(),
            "remove one of `delay_samples` and `delay_seconds`".to_owned(),
        ));
    }
    let delay_seconds = piece.delay_seconds(adc_sample_rate_hz);
    let limited = [
        ("delay", "s", delay_seconds, max_delay_seconds, "max_delay_seconds"),
        ("delay rate", "s/s", piece.rate, rates.delay, "max_delay_rate"),
        (
            "fringe rate",
            "rad/s",
            piece.phase_rate_radians_per_second,
            rates.phase_radians_per_second,
            "max_fringe_rate_radians_per_second",
        ),
    ];
    for (what, unit, value, limit, name) in limited {
        // Written so that NaN is rejected, too.
        let within = value.abs() <= limit;
        if !within {
            rejections.push(reject(
                format!(
                    "the {what} must be between -{limit:e} and {limit:e} {unit}, got {value:e}"
                ),
                format!("give a smaller {what}, or raise `{name}`"),
            ));
        }
    }
    if !piece.phase_radians.is_finite() {
        rejections.push(reject(
            format!("`phase_radians` must be finite, got {}", piece.phase_radians),
            "give a phase in radians, such as 0.5".to_owned(),
        ));
    }
    rejections
}

/// Returns a diagnostic for a list whose pieces are not in order of time: a later entry replaces all
/// pieces that start after it.
#[must_use]
pub fn reject_disorder(parameter: &'static str, pieces: &[Piece]) -> Option<Rejection> {
    let pair = pieces.windows(2).find(|pair| pair[1].start_samples <= pair[0].start_samples)?;
    let message = format!(
        "pieces must be in order of `start_samples`, got {} after {}",
        pair[1].start_samples, pair[0].start_samples
    );
    Some(Rejection::parameter(parameter, message).help("sort the pieces by `start_samples`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start_samples: u64, delay_samples: f64) -> Piece {
        Piece { start_samples, delay_samples: Some(delay_samples), ..Piece::default() }
    }

    fn rejections(piece: &Piece, rates: MaxRates) -> usize {
        reject_piece(piece, "delays", 1.712e9, MAX_DELAY_SECONDS, rates).len()
    }

    #[test]
    fn statement_has_the_uncertainty_of_a_measured_sync_time() {
        let stated = |uncertainty_seconds| {
            let sync_time = Some(fxgraph::Time::unix(1_800_000_000));
            let base = fxgraph::TimeBase { from: 1 << 48, sync_time, uncertainty_seconds };
            let effect = Effect { from: 1 << 48, base };
            let models = [vec![piece(1 << 48, 1.0)]];
            statement(&models, Clock::new(1e6, 1), &effect)[0][0]["utc_uncertainty_seconds"].take()
        };
        assert_eq!(stated(0.27), 0.27);
        assert!(stated(0.0).is_null());
    }

    #[test]
    fn reject_disorder_rejects_pieces_out_of_order() {
        let rejected = |starts: &[u64]| {
            let pieces: Vec<Piece> = starts.iter().map(|start| piece(*start, 1.0)).collect();
            reject_disorder("delays", &pieces).is_some()
        };
        assert!(rejected(&[500_000, 1000]) && rejected(&[7, 7]));
        assert!(!rejected(&[0, 7, 500_000]) && !rejected(&[]));
    }

    #[test]
    fn reject_piece_rejects_values_out_of_range() {
        let bad = [
            Piece { delay_seconds: Some(80e-6), ..Piece::default() },
            Piece { delay_samples: Some(f64::NAN), ..Piece::default() },
            Piece { delay_samples: Some(1.0), delay_seconds: Some(1e-9), ..Piece::default() },
            Piece { rate: -2.6e-9, ..Piece::default() },
            Piece { phase_rate_radians_per_second: 50.0, ..Piece::default() },
            Piece { phase_radians: f64::INFINITY, ..Piece::default() },
        ];
        for piece in bad {
            assert_eq!(rejections(&piece, MaxRates::default()), 1, "{piece:?}");
        }
        let good = Piece { delay_seconds: Some(-79.5e-6), rate: 2.5e-9, ..Piece::default() };
        assert_eq!(rejections(&good, MaxRates::default()), 0);
    }

    #[test]
    fn reject_piece_accepts_rates_within_given_limits() {
        let fast = Piece { rate: -3e-6, phase_rate_radians_per_second: 4000.0, ..Piece::default() };
        assert_eq!(rejections(&fast, MaxRates::default()), 2);
        assert_eq!(rejections(&fast, MaxRates { delay: 3e-6, phase_radians_per_second: 4e3 }), 0);
        assert_eq!(rejections(&fast, MaxRates { delay: 0.0, phase_radians_per_second: 4e3 }), 1);
    }
}
