//! Which samples of the input make a sample of the output.

use crate::timeline::LAST_TIMESTAMP;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Axis, Band, BlockError, Clock, Dtype, PortType, Refusal, ValidityType};
use std::ops::Range;

/// How the output of a sub-flowgraph follows from its input: output sample `k`, counted from the start of the stream,
/// is computed from the input samples `k decimation + reads`, and has the time of input sample `k decimation + centre`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Input samples for each output sample.
    pub decimation: usize,
    /// Input samples that output sample 0 depends on; one that is missing marks it as missing.
    pub reads: Range<usize>,
    /// Input sample whose time output sample 0 has.
    pub centre: usize,
}

impl Timing {
    /// A block that makes one sample of each, without a delay.
    pub const SAMPLE_BY_SAMPLE: Self = Self { decimation: 1, reads: 0..1, centre: 0 };

    /// FutureSDR's `Fir` with `taps` symmetric taps: it keeps every `decimation`-th sample. A sample has the time of the
    /// middle of its filter, which takes the filter's constant delay out.
    #[must_use]
    pub fn fir(taps: usize, decimation: usize) -> Self {
        // Its first sum begins at sample `decimation - 1`.
        let first = decimation.saturating_sub(1);
        Self { decimation, reads: first..first + taps, centre: first + taps.saturating_sub(1) / 2 }
    }

    /// Why there is no such timing.
    pub(crate) fn check(&self) -> Result<(), BlockError> {
        let is_possible =
            self.decimation > 0 && !self.reads.is_empty() && self.centre < self.reads.end;
        let text = "`decimation` must be at least 1, `reads` not empty, `centre` before its end";
        is_possible.then_some(()).ok_or_else(|| BlockError::new(text))
    }

    /// The output port of a kind that hosts such a sub-flowgraph: frames of `samples` samples of type `dtype`, by default
    /// as many as one input frame makes.
    pub fn output(
        &self,
        input: &PortType,
        dtype: Dtype,
        samples: Option<usize>,
    ) -> Result<PortType, Vec<Refusal>> {
        let refuse = |text: String| Err(vec![Refusal::new(codes::INPUT_AXIS, At::Input(0), text)]);
        let (len, units) = match input.axes.as_slice() {
            [axis] if axis.name == "sample" => (axis.len, input.validity.units()),
            _ => return refuse(format!("the input must be [sample], got `{input}`")),
        };
        if !input.clock.samples_per_frame.is_multiple_of(len as u64) {
            return refuse(format!("a sample of `{input}` is no whole number of ADC samples"));
        }
        if !len.is_multiple_of(units) {
            return refuse(format!("{len} samples of a frame are no multiple of {units} flags"));
        }
        let samples = samples.unwrap_or(len / self.decimation.max(1));
        let step = input.clock.samples_per_frame / len as u64;
        let frame = (samples as u64)
            .checked_mul(self.decimation as u64)
            .and_then(|samples| samples.checked_mul(step));
        let whole = 1..=LAST_TIMESTAMP;
        let Some(samples_per_frame) = frame.filter(|frame| {
            whole.contains(frame) && whole.contains(&input.clock.samples_per_frame)
        }) else {
            let text = "frames of input and output must be 1 to 2^62 ADC samples long";
            return refuse(format!("{text}: {len} samples in, {samples} out"));
        };
        // Flags for as many samples as those of the input stand for, if these are whole frames.
        let unit = (len / units / self.decimation.max(1)).max(1);
        let units = if samples.is_multiple_of(unit) { samples / unit } else { 1 };
        Ok(PortType {
            dtype,
            axes: vec![Axis::new("sample", samples)],
            clock: Clock { samples_per_frame, ..input.clock },
            band: input.band.and_then(|band| self.band(band, input.dtype)),
            validity: ValidityType::flags(vec![Axis::new("heap", units)]),
        })
    }

    /// The band of the output. Where samples are real, a decimated one need not begin at 0 Hz, and is not stated.
    fn band(&self, band: Band, dtype: Dtype) -> Option<Band> {
        let is_complex = matches!(
            dtype,
            Dtype::Ci4
                | Dtype::Ci8
                | Dtype::Ci16
                | Dtype::Ci32
                | Dtype::Cf16
                | Dtype::Cf32
                | Dtype::Cf64
        );
        let bandwidth_hz = band.bandwidth_hz / self.decimation as f64;
        (is_complex || self.decimation == 1).then_some(Band { bandwidth_hz, ..band })
    }
}
