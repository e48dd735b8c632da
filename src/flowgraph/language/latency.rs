//! Latency targets, and the frame sizes of sources in real time that follow from them and the rate of the stream.
//!
//! A frame is filled over its duration, then every block works on it, and a sink at the pace of the stream sends it
//! over its duration. So the duration is at most a quarter of the latency: two quarters for filling and sending, two
//! for the jobs in between.

use crate::language::scope::Substitution;
use crate::text::document::wrong_type;
use fxgraph_core::diagnostic::{Diagnostic, Span, codes};
use fxgraph_core::kind::FrameSizes;
use fxgraph_core::tree::Node;
use serde::Serialize;

/// Latency target without `latency_seconds`.
pub const DEFAULT_LATENCY_SECONDS: f64 = 0.01;
/// Part of the latency that a frame may last.
pub(crate) const SHARE: f64 = 0.25;
/// Latency target of a flowgraph or of one of its sources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Latency {
    pub(crate) seconds: f64,
    /// Place in the file, if the target is given.
    pub(crate) span: Option<Span>,
}

impl Default for Latency {
    fn default() -> Self {
        Self { seconds: DEFAULT_LATENCY_SECONDS, span: None }
    }
}

impl Latency {
    /// Value of `latency_seconds`, if it is given and has no error.
    pub(crate) fn read(node: Option<&Node>, values: &mut Substitution<'_>) -> Option<Self> {
        let node = node?;
        let node = Node::new(values.node(node)?.value, node.span);
        let Some(seconds) = node.value.float() else {
            values.problems.push(wrong_type(&node, "a number of seconds"));
            return None;
        };
        if seconds > 0.0 && seconds.is_finite() {
            return Some(Self { seconds, span: Some(node.span) });
        }
        let message = format!("`latency_seconds` must be positive and finite, got {seconds}");
        values.problems.push(
            Diagnostic::error(codes::PARAMETER_OUT_OF_RANGE, node.span, message)
                .label("out of range")
                .help("give seconds, such as 0.01"),
        );
        None
    }
}

/// Reason for the size of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameReason {
    /// The flowgraph gives it.
    Given,
    /// The largest size within a quarter of the latency.
    Latency,
    /// The smallest size, although it is longer than a quarter of the latency.
    Smallest,
    /// The largest size, although the latency would allow more.
    Largest,
}

/// Frame size of a source in real time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceFrame {
    /// Parameter that sets the size.
    pub parameter: &'static str,
    /// Its value, in ADC samples.
    pub samples: u64,
    /// Duration of a frame.
    pub seconds: f64,
    /// Latency target.
    pub latency_seconds: f64,
    /// Reason for the size.
    pub reason: FrameReason,
}

impl SourceFrame {
    /// Duration of a frame in milliseconds, rounded to three digits.
    #[must_use]
    pub fn milliseconds(&self) -> f64 {
        milliseconds(self.seconds)
    }

    /// The reason in words.
    #[must_use]
    pub fn why(&self) -> String {
        let quarter =
            format!("a quarter of the latency of {} ms", milliseconds(self.latency_seconds));
        match self.reason {
            FrameReason::Given => format!("given by `{}`", self.parameter),
            FrameReason::Latency => format!("the largest within {quarter}"),
            FrameReason::Smallest => format!("the smallest; longer than {quarter}"),
            FrameReason::Largest => format!("the largest; shorter than {quarter}"),
        }
    }
}

/// `seconds` in milliseconds, rounded to three digits.
pub(crate) fn milliseconds(seconds: f64) -> f64 {
    let value = seconds * 1e3;
    let scale = 10f64.powi(2 - value.abs().max(1e-9).log10().floor() as i32);
    (value * scale).round() / scale
}

/// Chooses one of `sizes` for `latency_seconds`; `None` if there are none.
pub(crate) fn choose(sizes: &FrameSizes, latency_seconds: f64) -> Option<SourceFrame> {
    let seconds = |samples: u64| samples as f64 / sizes.adc_sample_rate_hz;
    let limit = latency_seconds * SHARE;
    let within = sizes.sizes.iter().filter(|samples| seconds(**samples) <= limit).count();
    let (samples, reason) = match within {
        0 => (*sizes.sizes.first()?, FrameReason::Smallest),
        // The next larger size would be the double.
        _ if within == sizes.sizes.len() && 2.0 * seconds(*sizes.sizes.last()?) <= limit => {
            (*sizes.sizes.last()?, FrameReason::Largest)
        }
        _ => (sizes.sizes[within - 1], FrameReason::Latency),
    };
    Some(SourceFrame {
        parameter: sizes.parameter,
        samples,
        seconds: seconds(samples),
        latency_seconds,
        reason,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn chosen(rate: f64, heap: u64, latency: f64) -> (u64, FrameReason) {
        let sizes = FrameSizes::of_heaps("samples_per_frame", rate, heap, 10).unwrap();
        let frame = choose(&sizes, latency).unwrap();
        (frame.samples, frame.reason)
    }

    #[test]
    fn choose_takes_largest_power_of_two_within_a_quarter() {
        // 2.5 ms of 1712 MS/s are 4.28 million samples, of 5 MS/s 12500, of 107 MS/s 267500.
        assert_eq!(chosen(1712e6, 4096, 0.01), (4_194_304, FrameReason::Latency));
        assert_eq!(chosen(107e6, 4096, 0.01), (262_144, FrameReason::Latency));
        assert_eq!(chosen(5e6, 4096, 0.01), (8192, FrameReason::Latency));
        // 0.5 ms of 1712 MS/s are 856000 samples.
        assert_eq!(chosen(1712e6, 4096, 0.002), (524_288, FrameReason::Latency));
        // Exactly a quarter: 4096 samples at 1.6384 MS/s last 2.5 ms.
        assert_eq!(chosen(1.6384e6, 4096, 0.01), (4096, FrameReason::Latency));
    }

    #[test]
    fn choose_never_takes_less_than_a_heap() {
        assert_eq!(chosen(1e6, 4096, 0.01), (4096, FrameReason::Smallest));
        assert_eq!(chosen(1.0, 4096, 1e-9), (4096, FrameReason::Smallest));
        // A heap beyond the limit of bytes is still one frame.
        assert_eq!(chosen(1712e6, 1 << 28, 0.01), (1 << 28, FrameReason::Smallest));
    }

    #[test]
    fn choose_is_bounded_by_memory() {
        // 32 MiB are 26.8 million samples of 10 bits; 2^24 is the largest power of two below.
        assert_eq!(chosen(1712e6, 4096, 10.0), (1 << 24, FrameReason::Largest));
        // 2^24 samples are within a quarter of 40 ms, and 2^25 are not.
        assert_eq!(chosen(1712e6, 4096, 0.04), (1 << 24, FrameReason::Latency));
    }

    #[test]
    fn choose_of_any_rate_lies_between_an_eighth_and_a_quarter() {
        for step in 0..200 {
            let rate = 2e6 * 1.04f64.powi(step);
            let (samples, reason) = chosen(rate, 4096, 0.01);
            let part = samples as f64 / rate / 0.01;
            assert!(part <= 0.25, "{rate} {samples}");
            assert!(part > 0.125 || reason == FrameReason::Largest, "{rate} {samples} {reason:?}");
        }
    }

    #[test]
    fn choose_without_sizes_is_none() {
        let sizes = FrameSizes { parameter: "n", adc_sample_rate_hz: 1.0, sizes: Vec::new() };
        assert_eq!(choose(&sizes, 0.01), None);
        assert!(FrameSizes::of_heaps("n", f64::NAN, 8, 8).is_none());
        assert!(FrameSizes::of_heaps("n", 1e6, 0, 8).is_none());
    }
}
