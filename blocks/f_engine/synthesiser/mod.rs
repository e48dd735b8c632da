#![doc = include_str!("README.md")]

mod cpu;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use crate::common::axes::{self, MAX_FRAME_BYTES};
use crate::common::samples::Samples;
use crate::f_engine::pfb::MAX_TAPS;
use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Axis, Band, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind,
    KindSpec, PortType, Rejection, Resources, ValidityType,
};
use fxgraph_dsp::polyphase::{Window, weights};
use fxgraph_dsp::synthesis::{Inverse, Synthesis};

/// Largest number of spectra on each side by which the filter extends.
const MAX_MARGIN: usize = 256;
/// Largest number of weights of the filter.
const MAX_WEIGHTS: usize = 1 << 26;

/// Parameters of `synthesiser`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "synthesiser",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct Synthesiser {
    /// Samples to make: `real` samples of the whole band of a digitiser, or `complex` samples of the input's
    /// channels.
    #[param(default = Samples::Real)]
    pub output: Samples,
    /// Taps of the F-engine's filter bank: `taps` of `pfb` or `f_engine`. 1 with `window: rect` and `w_cutoff: 0`
    /// makes the inverse exact.
    #[param(default = 16, range = 1..=MAX_TAPS)]
    pub taps: usize,
    /// Window of the F-engine's filter.
    #[param(default)]
    pub window: Window,
    /// Width of the pass band of the F-engine's filter, in channels.
    #[param(default = 1.0, range = 0.0..=16.0)]
    pub w_cutoff: f64,
    /// Spectra on each side by which the inverse filter extends beyond those that contain a sample; more make the
    /// inverse more exact. By default as many as `taps`; 0 with one tap.
    pub margin: Option<usize>,
    /// Power of the spectra's quantisation noise relative to their signal, in dB. A lower value makes the inverse
    /// more exact and amplifies this noise. Without effect for one tap.
    #[param(default = -35.0, range = -120.0..=0.0, unit = "dB")]
    pub noise_db: f64,
}

/// Sizes and strides of the input.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    rows: usize,
    channels: usize,
    heaps: usize,
    /// Spectra of a heap.
    spectra: usize,
    dtype: Dtype,
    /// Elements of the input from one row, channel, and spectrum to the next; a heap has `heap_elements`.
    row_stride: usize,
    channel_stride: usize,
    spectrum_stride: usize,
    heap_elements: usize,
    /// ADC samples from one spectrum to the next.
    step: usize,
    output: Samples,
}

impl Shape {
    /// Reads the sizes from the type of the input.
    fn of_port(input: &PortType, output: Samples) -> Result<Self, Vec<Rejection>> {
        let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        let is_known = matches!(
            sorted.as_slice(),
            ["beam", "channel", "heap", "spectrum"] | ["channel", "heap", "pol", "spectrum"]
        );
        if !is_known || names[0] != "heap" {
            let message = format!(
                "expected the axes [heap][beam][channel][spectrum], or pol in place of beam, got [{}]",
                names.join("][")
            );
            let help =
                "connect the output of `beamformer` or of an F-engine (`postproc`, `f_engine`)";
            return Err(vec![Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help)]);
        }
        let mut rejections = Vec::new();
        if !matches!(input.dtype, Dtype::Ci8 | Dtype::Cf32) {
            let message = format!("the input must carry `ci8` or `cf32`, got `{}`", input.dtype);
            rejections.push(
                Rejection::new(codes::INPUT_DTYPE, At::Input(0), message)
                    .help("insert a `convert` with `dtype: ci8` before this block"),
            );
        }
        let len = |name: &str| input.axis_len(name).unwrap_or(1);
        rejections.extend(axes::reject_validity(0, input, &[("heap", len("heap"))]));
        let (heaps, spectra) = (len("heap"), len("spectrum"));
        let per_frame = (heaps as u64).saturating_mul(spectra as u64);
        let step = input.clock.samples_per_frame / per_frame;
        if step == 0 || !input.clock.samples_per_frame.is_multiple_of(per_frame) {
            let message = format!(
                "the length of a frame, {} samples, must be a multiple of its {per_frame} spectra",
                input.clock.samples_per_frame
            );
            rejections.push(Rejection::new(codes::RATE, At::Input(0), message));
        }
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let stride = |name: &str| {
            let after = input.axes.iter().skip_while(|axis| axis.name != name).skip(1);
            after.map(|axis| axis.len).product()
        };
        let row = if names.contains(&"beam") { "beam" } else { "pol" };
        Ok(Self {
            rows: len(row),
            channels: len("channel"),
            heaps,
            spectra,
            dtype: input.dtype,
            row_stride: stride(row),
            channel_stride: stride("channel"),
            spectrum_stride: stride("spectrum"),
            heap_elements: stride("heap"),
            step: usize::try_from(step).unwrap_or(usize::MAX),
            output,
        })
    }

    /// Spectra of a frame.
    fn frame_spectra(&self) -> usize {
        self.heaps * self.spectra
    }

    /// Samples of one spectrum.
    fn samples(&self) -> usize {
        match self.output {
            Samples::Real => 2 * self.channels,
            Samples::Complex => self.channels,
        }
    }
}

impl Synthesiser {
    fn margin(&self) -> usize {
        self.margin.unwrap_or(if self.taps == 1 { 0 } else { self.taps })
    }

    /// Spectra in each sum.
    fn rows(&self) -> usize {
        self.taps + 2 * self.margin()
    }

    fn rejections(&self, shape: &Shape, input: &PortType) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let mut reject = |name, message: String, help: &str| {
            rejections.push(Rejection::parameter(name, message).help(help));
        };
        let channels = shape.channels;
        let (first, whole) =
            input.band.map_or((0, channels), |band| (band.first_channel, band.channels));
        match self.output {
            Samples::Real if (first, whole) != (0, channels) => reject(
                "output",
                format!(
                    "`output: real` needs all {whole} channels of the band, got {channels} from {first} on"
                ),
                "set `output: complex`, or connect all channels",
            ),
            Samples::Real if shape.step != 2 * channels => reject(
                "output",
                format!(
                    "`output: real` needs spectra of 2 x {channels} ADC samples, got {} samples",
                    shape.step
                ),
                "set `output: complex`: these are not spectra of a digitiser's real samples",
            ),
            Samples::Complex
                if !channels.is_multiple_of(2) || !shape.step.is_multiple_of(channels) =>
            {
                reject(
                    "output",
                    format!(
                        "the channels must be an even number that divides the {} samples of a spectrum, got {channels}",
                        shape.step
                    ),
                    "select a power of two of channels, such as `channels: 128` of `antenna_stack`",
                );
            }
            _ => {}
        }
        if self.margin() > MAX_MARGIN {
            let message = format!("`margin` must be at most {MAX_MARGIN}, got {}", self.margin());
            reject("margin", message, "omit it for the default of as many as `taps`");
            return rejections;
        }
        if self.margin() > shape.frame_spectra() {
            let message = format!(
                "`margin` must be at most the {} spectra of a frame, got {}",
                shape.frame_spectra(),
                self.margin()
            );
            reject(
                "margin",
                message,
                "set a smaller `margin`, or more spectra for each frame upstream",
            );
        }
        if !self.w_cutoff.is_finite() || !self.noise_db.is_finite() {
            let message = "`w_cutoff` and `noise_db` must be finite".to_owned();
            reject("w_cutoff", message, "omit them for the defaults");
        }
        let weights = shape.step.saturating_mul(self.rows());
        if weights > MAX_WEIGHTS {
            let message =
                format!("the filter must have at most {MAX_WEIGHTS} weights, got {weights}");
            reject("taps", message, "use fewer channels, or one tap");
        }
        let numbers = shape.rows.checked_mul(shape.frame_spectra());
        let numbers = numbers.and_then(|n| n.checked_mul(2 * channels));
        if numbers.is_none_or(|numbers| numbers > MAX_FRAME_BYTES / size_of::<f32>()) {
            let message =
                format!("a frame of the output must have at most {MAX_FRAME_BYTES} bytes");
            reject("output", message, "use fewer heaps for each frame upstream");
        }
        rejections
    }

    /// The filter for this input.
    fn synthesis(&self, shape: &Shape) -> Synthesis {
        let (branches, step) = (shape.samples(), shape.step);
        // The filter at the times of the output's samples, scaled for them.
        let apart = step / branches;
        let weights = weights(step, self.taps, self.window, self.w_cutoff);
        let scale = (apart as f64).sqrt();
        let analysis: Vec<f64> =
            weights.iter().step_by(apart).map(|weight| scale * f64::from(*weight)).collect();
        Synthesis::new(&analysis, branches, self.margin(), 10.0_f64.powf(self.noise_db / 10.0))
    }

    /// Clock of the output: the filter takes back the delay of the filter bank's windows. A stream whose filter delay is
    /// unknown has 0.
    fn clock(&self, input: &PortType, shape: &Shape) -> Clock {
        let step = shape.step as f64;
        let before = input.clock.behind_filter(step, step * self.taps as f64);
        Clock { filter_delay_samples: before.filter_delay_samples.max(0.0), ..before }
    }

    /// Band of the output.
    fn band(&self, input: &PortType, channels: usize) -> Option<Band> {
        input.band.map(|band| match self.output {
            Samples::Real => Band { channels: 1, first_channel: 0, ..band },
            Samples::Complex => Band {
                channels: 1,
                first_channel: 0,
                centre_hz: band.channel_hz(channels / 2),
                bandwidth_hz: band.bandwidth_hz * channels as f64 / band.channels as f64,
                ..band
            },
        })
    }
}

impl KindSpec for Synthesiser {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> =
        &[Implementation::cpu(|block, env| Ok(Box::new(cpu::Cpu::new(block, env))))];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        let input = &inputs[0];
        let shape = Shape::of_port(input, self.output)?;
        let rejections = self.rejections(&shape, input);
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let of = |name: &str| input.axes.iter().find(|axis| axis.name == name).cloned();
        let sample = Axis::new("sample", shape.frame_spectra() * shape.samples());
        let output = PortType {
            dtype: if self.output == Samples::Real { Dtype::F32 } else { Dtype::Cf32 },
            axes: of("beam").or_else(|| of("pol")).into_iter().chain([sample]).collect(),
            clock: self.clock(input, &shape),
            band: self.band(input, shape.channels),
            validity: ValidityType { axes: of("heap").into_iter().collect(), ..input.validity },
        };
        Ok((shape, vec![output]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let (shape, rows) = (&block.shape, block.parameters.rows());
        let spectra = shape.frame_spectra() + rows;
        let numbers = 2 * shape.channels * (shape.rows * spectra + rows);
        let samples = shape.rows * shape.frame_spectra() * shape.samples();
        // About 5 n log2 n operations for a complex transform.
        let per_sample = 2 * rows + 5 * shape.samples().ilog2() as usize;
        Resources {
            host_bytes: size_of::<f32>() * numbers + Inverse::bytes(shape.channels),
            operations_per_frame: samples as f64 * per_sample as f64,
            ..Resources::default()
        }
    }
}
