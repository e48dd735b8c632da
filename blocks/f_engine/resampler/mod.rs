#![doc = include_str!("README.md")]

mod cpu;
mod history;
mod rejections;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use crate::common::samples::Samples;
use fxgraph::{
    Axis, Band, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    PortType, Resources, ValidityType,
};
use fxgraph_dsp::mixer::Frequency;
use fxgraph_dsp::resample::{self, Design};
use rejections::Timing;

/// Output samples that share one validity count.
pub const HEAP_SAMPLES: usize = 256;
/// Default of the part of the band that passes.
const PASS: f64 = 0.875;

/// Parameters of `resampler`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "resampler",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct Resampler {
    /// Width of the output's band in Hz. The sample rate is as high with `output: complex`, and twice as high with
    /// `output: real`.
    pub bandwidth_hz: f64,
    /// Frequency at the centre of the output's band in Hz, counted like the band of the input: on the sky if the
    /// input has a band, otherwise in the sampled band. By default the centre of the input's band.
    pub centre_hz: Option<f64>,
    /// Samples to make, `real` or `complex`.
    #[param(default = Samples::Complex)]
    pub output: Samples,
    /// Width of the pass band in Hz, in the middle of the output's band. By default seven eighths of the band.
    pub pass_bandwidth_hz: Option<f64>,
    /// Attenuation of the stop bands.
    #[param(default = 80.0, range = 30.0..=120.0, unit = "dB")]
    pub stop_band_db: f64,
    /// Beam or polarisation to resample; the output then has only the axis `sample`. By default all.
    pub row: Option<usize>,
    /// Samples of an output frame, a multiple of 256 that takes a whole number of ADC samples. By default about as
    /// long as a frame of the input.
    pub samples_per_frame: Option<usize>,
}

/// Sizes that follow from parameters and input.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// First row of the output, and number of its rows.
    first_row: usize,
    rows: usize,
    /// Samples of a row of the input.
    input_samples: usize,
    /// Units of the input's validity for each row, and whether each row has its own.
    units: usize,
    has_row_validity: bool,
    /// ADC samples from one sample of the input to the next.
    step: u64,
    /// Samples of a row of the output.
    samples: usize,
    is_complex: bool,
    output: Samples,
    design: Design,
    /// Frequency in the input that becomes 0, in Hz, and the rate of the output.
    zero_hz: f64,
    rate_hz: f64,
    samples_per_frame: u64,
}

impl Shape {
    fn resampler(&self) -> resample::Resampler {
        // The real part of a complex signal has half of its power.
        let variance = if self.output == Samples::Real { 2.0 } else { 1.0 };
        let zero = Frequency::aliased(self.zero_hz, self.rate_hz);
        resample::Resampler::new(&self.design, zero, variance)
    }

    /// Products of real numbers for each output sample.
    fn products(&self) -> usize {
        self.design.taps() * if self.is_complex { 4 } else { 2 }
    }

    /// Input samples that the block holds at most, for each row.
    fn held(&self) -> usize {
        let heap =
            (HEAP_SAMPLES as u128 * self.design.down as u128).div_ceil(self.design.up as u128);
        self.input_samples + heap as usize + self.design.taps() + 1
    }
}

impl Resampler {
    fn pass(&self) -> f64 {
        self.pass_bandwidth_hz.map_or(PASS, |hz| hz / self.bandwidth_hz)
    }

    /// Sample rate of the output.
    fn rate_hz(&self) -> f64 {
        match self.output {
            Samples::Real => 2.0 * self.bandwidth_hz,
            Samples::Complex => self.bandwidth_hz,
        }
    }

    /// Band of the input.
    fn input_band(input: &PortType, rate_hz: f64) -> Band {
        // Without a band, frequencies are those of the samples.
        let (middle_hz, width_hz) = if input.dtype == Dtype::Cf32 {
            (0.0, rate_hz)
        } else {
            (rate_hz / 4.0, rate_hz / 2.0)
        };
        Band {
            channels: 1,
            first_channel: 0,
            centre_hz: input.band.map_or(middle_hz, |band| band.centre_hz),
            bandwidth_hz: width_hz,
            sideband: input.sideband(),
        }
    }

    /// Centre of the output's band as a frequency of the input's samples, in Hz.
    fn centre_in_samples(&self, input: &PortType, rate_hz: f64) -> f64 {
        let band = Self::input_band(input, rate_hz);
        let from_centre = self.centre_hz.map_or(0.0, |hz| hz - band.centre_hz);
        let middle = if input.dtype == Dtype::Cf32 { 0.0 } else { rate_hz / 4.0 };
        middle + from_centre * band.sideband.sign()
    }

    fn shape(&self, input: &PortType, timing: &Timing) -> Shape {
        let rows = input.elements() / input.axis_len("sample").unwrap_or(1).max(1);
        let centre_hz = self.centre_in_samples(input, timing.input_rate_hz);
        let lower_hz = centre_hz - self.bandwidth_hz / 2.0;
        let has_row_validity = input.axes.len() == 2
            && input.validity.axes.first().is_some_and(|axis| axis.name == input.axes[0].name);
        let units = input.validity.units();
        Shape {
            first_row: self.row.unwrap_or(0),
            rows: if self.row.is_some() { 1 } else { rows },
            input_samples: input.axis_len("sample").unwrap_or(1),
            units: if has_row_validity { units / rows } else { units },
            has_row_validity,
            step: timing.step,
            samples: timing.samples,
            is_complex: input.dtype == Dtype::Cf32,
            output: self.output,
            design: self.design(input, timing),
            zero_hz: if self.output == Samples::Real { lower_hz } else { centre_hz },
            rate_hz: self.rate_hz(),
            samples_per_frame: timing.samples_per_frame,
        }
    }

    fn design(&self, input: &PortType, timing: &Timing) -> Design {
        Design {
            up: timing.up,
            down: timing.down,
            centre: self.centre_in_samples(input, timing.input_rate_hz) / timing.input_rate_hz,
            width: self.bandwidth_hz / timing.input_rate_hz,
            pass: self.pass(),
            stop_decibels: self.stop_band_db,
        }
    }

    fn output(&self, input: &PortType, shape: &Shape) -> PortType {
        let sample = Axis::new("sample", shape.samples).from_parameter("samples_per_frame");
        let heap = Axis::new("heap", shape.samples / HEAP_SAMPLES);
        let has_row = input.axes.len() == 2 && self.row.is_none();
        let row = has_row.then(|| input.axes[0].clone());
        let of_input = Self::input_band(input, input.clock.adc_sample_rate_hz / shape.step as f64);
        PortType {
            dtype: if self.output == Samples::Real { Dtype::F32 } else { Dtype::Cf32 },
            validity: ValidityType {
                axes: row
                    .clone()
                    .filter(|_| shape.has_row_validity)
                    .into_iter()
                    .chain([heap])
                    .collect(),
                full: input.validity.full,
            },
            axes: row.into_iter().chain([sample]).collect(),
            // The filter is symmetric around an output sample, so it adds no delay.
            clock: Clock { samples_per_frame: shape.samples_per_frame, ..input.clock },
            band: Some(Band {
                centre_hz: self.centre_hz.unwrap_or(of_input.centre_hz),
                bandwidth_hz: self.bandwidth_hz,
                ..of_input
            }),
        }
    }
}

impl KindSpec for Resampler {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> =
        &[Implementation::cpu(|block, env| Ok(Box::new(cpu::Cpu::new(block, env))))];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        let input = &inputs[0];
        let timing = self.timing(input)?;
        let shape = self.shape(input, &timing);
        let output = self.output(input, &shape);
        Ok((shape, vec![output]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let shape = &block.shape;
        let numbers = shape.rows * shape.held() * if shape.is_complex { 2 } else { 1 };
        let weights = 2 * shape.design.up * shape.design.taps();
        Resources {
            host_bytes: size_of::<f32>() * (numbers + weights),
            holds: vec![1],
            operations_per_frame: (shape.rows * shape.samples) as f64
                * 2.0
                * shape.products() as f64,
            ..Resources::default()
        }
    }
}
