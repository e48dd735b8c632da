//! Relation between the samples of input and output.

use crate::timeline::LAST_TIMESTAMP;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Axis, Band, BlockError, Clock, Dtype, PortType, Rejection, ValidityType};
use std::ops::Range;

/// Timing of a sub-flowgraph: output sample `k`, counted from the start of the stream, is computed from the input
/// samples `k decimation + reads`, and has the time of input sample `k decimation + centre`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Input samples per output sample.
    pub decimation: usize,
    /// Input samples on which output sample 0 depends; if one is missing, the output sample is missing.
    pub reads: Range<usize>,
    /// Input sample with the time of output sample 0.
    pub centre: usize,
}

impl Timing {
    /// Timing of a block that outputs one sample per input sample, without delay.
    pub const SAMPLE_BY_SAMPLE: Self = Self { decimation: 1, reads: 0..1, centre: 0 };

    /// Returns the timing of FutureSDR's `Fir` with `taps` symmetric taps, which keeps every `decimation`-th sample.
    /// A sample has the time of the middle of its filter window, which removes the constant delay of the filter.
    #[must_use]
    pub fn fir(taps: usize, decimation: usize) -> Self {
        // The filter's first sum begins at sample `decimation - 1`.
        let first = decimation.saturating_sub(1);
        Self { decimation, reads: first..first + taps, centre: first + taps.saturating_sub(1) / 2 }
    }

    /// Checks the timing.
    pub(crate) fn check(&self) -> Result<(), BlockError> {
        let is_possible =
            self.decimation > 0 && !self.reads.is_empty() && self.centre < self.reads.end;
        let text = "`decimation` must be at least 1, `reads` not empty, `centre` before its end";
        is_possible.then_some(()).ok_or_else(|| BlockError::new(text))
    }

    /// Returns the output port of a kind that hosts such a sub-flowgraph: frames of `samples` samples of type `dtype`,
    /// by default the number of output samples of one input frame.
    pub fn output(
        &self,
        input: &PortType,
        dtype: Dtype,
        samples: Option<usize>,
    ) -> Result<PortType, Vec<Rejection>> {
        let reject =
            |text: String| Err(vec![Rejection::new(codes::INPUT_AXIS, At::Input(0), text)]);
        let (len, units) = match input.axes.as_slice() {
            [axis] if axis.name == "sample" => (axis.len, input.validity.units()),
            _ => return reject(format!("the input must have the axis [sample], got `{input}`")),
        };
        if !input.clock.samples_per_frame.is_multiple_of(len as u64) {
            return reject(format!(
                "a sample must be a whole number of ADC samples, got `{input}`"
            ));
        }
        if !len.is_multiple_of(units) {
            return reject(format!(
                "the samples of a frame must be a multiple of its {units} flags, got {len} samples"
            ));
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
            let text = "frames of input and output must have 1 to 2^62 ADC samples";
            return reject(format!("{text}, got {len} input samples and {samples} output samples"));
        };
        // Flags of the output cover the same time as flags of the input, if that divides the frame.
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

    /// Returns the band of the output. `None` for decimated real samples, whose band may not begin at 0 Hz.
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
