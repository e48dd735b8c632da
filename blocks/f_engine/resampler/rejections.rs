//! Inputs and parameters that the block rejects, and the timing of the others.

use super::{HEAP_SAMPLES, Resampler};
use crate::common::axes::MAX_FRAME_BYTES;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Dtype, PortType, Rejection};
use fxgraph_dsp::resample::fraction;

/// Largest number of weights of the filter.
const MAX_WEIGHTS: usize = 1 << 22;
/// Largest numerator and denominator of the ratio of ADC rate and output rate.
const MAX_RATIO: u64 = 1 << 24;
/// Largest factor by which the rate may decrease.
const MAX_DECIMATION: usize = 4096;
/// Tolerated distance of a band from the edges of the input's band, relative to the rate.
const ROUNDING: f64 = 1e-9;

/// Times of the samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub input_rate_hz: f64,
    /// ADC samples from one sample of the input to the next.
    pub step: u64,
    /// Output samples for every `down` input samples.
    pub up: usize,
    pub down: usize,
    /// Samples, and ADC samples, of an output frame.
    pub samples: usize,
    pub samples_per_frame: u64,
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns ADC samples between input samples, or the problems of the input.
fn step(input: &PortType, row: Option<usize>) -> Result<u64, Vec<Rejection>> {
    let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
    let is_known = matches!(names.as_slice(), ["sample"] | [_, "sample"]);
    if !is_known || !matches!(input.dtype, Dtype::F32 | Dtype::Cf32) {
        let message = format!("`resampler` cannot read `{input}`");
        let help = "connect f32 or cf32 samples, [sample] or [beam][sample]: those of `synthesiser`, `ddc` or \
                    `convert`";
        return Err(vec![Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help)]);
    }
    let mut rejections = Vec::new();
    let (rows, samples) = match input.axes.as_slice() {
        [row, sample] => (row.len, sample.len),
        axes => (1, axes[0].len),
    };
    let units: Vec<_> = input.validity.axes.iter().map(|axis| (axis.name, axis.len)).collect();
    let per_row = match units.as_slice() {
        [(name, len), rest @ ..] if names.len() == 2 && *name == names[0] && *len == rows => rest,
        all => all,
    };
    let divides = |len: usize| len > 0 && samples.is_multiple_of(len);
    if !matches!(per_row, [] | [_]) || !per_row.iter().all(|(_, len)| divides(*len)) {
        let message = format!(
            "the validity of the input must divide its {samples} samples into equal parts, got {units:?}"
        );
        let help =
            "set the validity axes in the block upstream, such as `validity_axes` of `null_source`";
        rejections.push(Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help));
    }
    let per_frame = input.clock.samples_per_frame;
    if !per_frame.is_multiple_of(samples as u64) {
        let message = format!(
            "a sample of the input must take a whole number of ADC samples, got {samples} samples in {per_frame}"
        );
        let help = "resample once only: connect the samples before the first `resampler`";
        rejections.push(Rejection::new(codes::RATE, At::Input(0), message).help(help));
    }
    if let Some(row) = row.filter(|row| *row >= rows) {
        let message =
            format!("`row` must be less than {rows}, the number of rows of the input, got {row}");
        rejections.push(Rejection::parameter("row", message).help("omit it for all rows"));
    }
    if rejections.is_empty() { Ok(per_frame / samples as u64) } else { Err(rejections) }
}

impl Resampler {
    /// Returns the timing of the stream, or all problems.
    pub(super) fn timing(&self, input: &PortType) -> Result<Timing, Vec<Rejection>> {
        let step = step(input, self.row)?;
        let input_rate_hz = input.clock.adc_sample_rate_hz / step as f64;
        let rejections = self.band_rejections(input, input_rate_hz);
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let one = |rejection: Box<Rejection>| vec![*rejection];
        let ratio = self.ratio(input, step).map_err(one)?;
        let timing = self.frame(input, step, input_rate_hz, ratio).map_err(one)?;
        match self.size_rejection(input, &timing) {
            Some(rejection) => Err(vec![rejection]),
            None => Ok(timing),
        }
    }

    /// Diagnostics for a band that is not within that of the input.
    fn band_rejections(&self, input: &PortType, rate_hz: f64) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let mut reject = |name, message: String, help: String| {
            rejections.push(Rejection::parameter(name, message).help(help));
        };
        let band = Self::input_band(input, rate_hz);
        let width_hz = band.bandwidth_hz;
        if !(self.bandwidth_hz > 0.0 && self.bandwidth_hz <= width_hz) {
            reject(
                "bandwidth_hz",
                format!(
                    "`bandwidth_hz` must be positive and at most the {width_hz} Hz of the input, got {}",
                    self.bandwidth_hz
                ),
                format!("set for example `bandwidth_hz: {}`", width_hz / 2.0),
            );
            return rejections;
        }
        let most_hz = (width_hz - self.bandwidth_hz) / 2.0;
        let from_centre_hz = self.centre_hz.map_or(0.0, |hz| hz - band.centre_hz);
        let is_within = from_centre_hz.abs() <= most_hz + ROUNDING * rate_hz;
        // NaN is not within.
        if !is_within {
            reject(
                "centre_hz",
                format!(
                    "a band of {} Hz around {} Hz is not within the {width_hz} Hz around {} Hz of the input",
                    self.bandwidth_hz,
                    self.centre_hz.unwrap_or(band.centre_hz),
                    band.centre_hz
                ),
                format!(
                    "set `centre_hz` between {} and {}",
                    band.centre_hz - most_hz,
                    band.centre_hz + most_hz
                ),
            );
        }
        if !(0.01..=0.99).contains(&self.pass()) {
            reject(
                "pass_bandwidth_hz",
                format!(
                    "`pass_bandwidth_hz` must be from 1 % to 99 % of the band, got {} of {} Hz",
                    self.pass_bandwidth_hz.unwrap_or_default(),
                    self.bandwidth_hz
                ),
                "omit it for the default of seven eighths".to_owned(),
            );
        }
        if !self.stop_band_db.is_finite() {
            let message = format!("`stop_band_db` must be finite, got {}", self.stop_band_db);
            reject("stop_band_db", message, "omit it for the default of 80".to_owned());
        }
        rejections
    }

    /// ADC samples p that take q output samples, as a reduced fraction.
    fn ratio(&self, input: &PortType, step: u64) -> Result<(u64, u64), Box<Rejection>> {
        let adc_hz = input.clock.adc_sample_rate_hz;
        fraction(adc_hz, self.rate_hz(), MAX_RATIO)
            .filter(|(_, q)| q.checked_mul(step).is_some())
            .ok_or_else(|| {
                let message = format!(
                    "the output rate of {} Hz must be a fraction of the {adc_hz} Hz of the ADC with numbers up to \
                     {MAX_RATIO}",
                    self.rate_hz()
                );
                let nearest = self.bandwidth_hz.round().max(1.0);
                let help = format!("set a whole number of Hz such as `bandwidth_hz: {nearest}`");
                Box::new(Rejection::parameter("bandwidth_hz", message).help(help))
            })
    }

    /// Lengths of the output's frames.
    fn frame(
        &self,
        input: &PortType,
        step: u64,
        input_rate_hz: f64,
        (p, q): (u64, u64),
    ) -> Result<Timing, Box<Rejection>> {
        let heap = HEAP_SAMPLES as u64;
        let unit = heap / gcd(heap, q) * q;
        let samples = self.samples_per_frame.map_or_else(
            || {
                let like_input = input.clock.samples_per_frame as f64 * q as f64 / p as f64;
                ((like_input / unit as f64).round().max(1.0) as u64).saturating_mul(unit)
            },
            |samples| samples as u64,
        );
        let per_frame = (samples / q).checked_mul(p);
        match per_frame {
            Some(samples_per_frame) if samples > 0 && samples.is_multiple_of(unit) => {
                let common = gcd(p, q * step);
                let to_usize = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
                Ok(Timing {
                    input_rate_hz,
                    step,
                    up: to_usize(q * step / common),
                    down: to_usize(p / common),
                    samples: to_usize(samples),
                    samples_per_frame,
                })
            }
            _ => {
                let nearest = (samples / unit + u64::from(samples % unit > unit / 2)).max(1) * unit;
                let message = format!(
                    "`samples_per_frame` must be a multiple of {unit}: of {HEAP_SAMPLES}, and of the {q} samples \
                     that take {p} ADC samples, got {samples}"
                );
                let help = format!("set for example `samples_per_frame: {nearest}`");
                Err(Box::new(Rejection::parameter("samples_per_frame", message).help(help)))
            }
        }
    }

    /// Diagnostic for a filter or a frame that is too large.
    fn size_rejection(&self, input: &PortType, timing: &Timing) -> Option<Rejection> {
        if timing.down / timing.up > MAX_DECIMATION {
            let message = format!(
                "the output rate must be at least 1/{MAX_DECIMATION} of the input's {} Hz, got {} Hz",
                timing.input_rate_hz,
                self.rate_hz()
            );
            return Some(
                Rejection::parameter("bandwidth_hz", message).help("decimate with `ddc` before"),
            );
        }
        let taps = self.design(input, timing).taps();
        let weights = timing.up.saturating_mul(taps);
        if weights > MAX_WEIGHTS {
            let message = format!(
                "the filter must have at most {MAX_WEIGHTS} weights, got {weights}: {} phases of {taps} taps",
                timing.up
            );
            let help = "choose a rate with a simpler ratio to that of the input, a narrower pass band, or decimate \
                        with `ddc` before";
            return Some(Rejection::parameter("bandwidth_hz", message).help(help));
        }
        let rows = input.elements() / input.axis_len("sample").unwrap_or(1).max(1);
        let bytes = timing.samples.checked_mul(8).and_then(|bytes| bytes.checked_mul(rows));
        bytes.is_none_or(|bytes| bytes > MAX_FRAME_BYTES).then(|| {
            let message = format!(
                "a frame of the output must have at most {MAX_FRAME_BYTES} bytes, got {} samples of {rows} rows",
                timing.samples
            );
            Rejection::parameter("samples_per_frame", message).help("set a smaller number")
        })
    }
}
