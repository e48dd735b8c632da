#![doc = include_str!("README.md")]

mod bench;
pub mod conformance;
mod cpu;
mod cuda;
mod level;
mod numbers;
#[cfg(test)]
mod tests;

use crate::common::gpu::Table;
use crate::common::parallel::MAX_THREADS;
use fxgraph::DeviceName;
use fxgraph::cuda::GpuMapped;
use fxgraph::diagnostic::codes;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::{
    At, Band, Checked, Configured, Counter, Counters, Dtype, Implementation, Implementations, Kind,
    KindSpec, Mapped, PortType, Rejection, Resources,
};
use numbers::{converter, is_double, parts};

/// Parameters of `convert`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "convert",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct Convert {
    /// Element type of the output: `u8`, `i8`, `i16`, `i32`, `f16`, `f32` or `f64` if the input is real; or a complex
    /// one, `ci4`, `ci8`, `ci16`, `ci32`, `cf16`, `cf32` or `cf64`, with the imaginary part 0 if the input is real.
    pub dtype: String,
    /// Factor.
    #[param(default = 1.0)]
    pub scale: f64,
    /// Conjugates complex elements, which mirrors their spectrum and changes the sideband of their band.
    #[param(default)]
    pub conjugate: bool,
    /// Threads that share a frame, 0 for all cores. By default 1, because a flowgraph of many
    /// blocks already uses the cores.
    #[param(default = 1, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

/// Whether `port` has samples of one band, not spectra.
fn are_samples(port: &PortType) -> bool {
    let has = |name: &str| port.axis_len(name).is_some();
    has("sample") && !has("channel") && !has("spectrum")
}

/// Returns the names of element types with this number of parts, as text.
fn convertible(of_parts: usize) -> String {
    let dtypes = Dtype::WHOLE_BYTES.into_iter().filter(|dtype| parts(*dtype) == Some(of_parts));
    dtypes.map(|dtype| dtype.to_string()).collect::<Vec<_>>().join(", ")
}

impl Convert {
    /// Returns the output type, and the conversion.
    fn conversion(&self, input: Dtype) -> Result<(Dtype, numbers::Convert), Box<Rejection>> {
        let Some(from) = parts(input) else {
            let message = format!("`{input}` cannot be converted");
            let help = format!(
                "convert one of {}, {}; `pfb` unpacks samples",
                convertible(1),
                convertible(2)
            );
            let rejection = Rejection::new(codes::INPUT_DTYPE, At::Input(0), message);
            return Err(Box::new(rejection.help(help)));
        };
        let is_possible = |dtype: &Dtype| parts(*dtype).is_some_and(|to| to >= from);
        let to = self.dtype.parse::<Dtype>().ok().filter(is_possible);
        let conversion = |to| Some((to, converter(input, to)?));
        to.and_then(conversion).ok_or_else(|| {
            let message = format!("`{input}` cannot be converted to `{}`", self.dtype);
            let rejection = Rejection::parameter("dtype", message)
                .note(At::Input(0), format!("the input is `{input}`"))
                .help(match from {
                    1 => format!("use one of {}, {}", convertible(1), convertible(2)),
                    _ => format!("use one of {}", convertible(from)),
                });
            Box::new(rejection)
        })
    }

    /// Factors of real and imaginary parts.
    fn scales(&self) -> [f64; 2] {
        [self.scale, if self.conjugate { -self.scale } else { self.scale }]
    }

    /// Diagnostic for a stream whose type the output cannot describe.
    fn reject_meaning(&self, input: &PortType, dtype: Dtype) -> Option<Rejection> {
        let is_complex = input.dtype.is_complex();
        let has = |name: &str| input.axis_len(name).is_some();
        if self.conjugate && !is_complex {
            let message = format!("`conjugate` needs complex elements, got {}", input.dtype);
            return Some(Rejection::parameter("conjugate", message).help("omit it"));
        }
        if self.conjugate && input.band.is_some() && !are_samples(input) {
            let message = "`conjugate` needs samples: conjugated channels would keep the order of their frequencies";
            let rejection = Rejection::parameter("conjugate", message);
            return Some(rejection.help("conjugate the samples before `pfb`"));
        }
        if !is_complex && dtype.is_complex() && has("spectrum") && has("sample") {
            let message = "filtered samples of real spectra cannot become complex";
            let rejection = Rejection::new(codes::INPUT_AXIS, At::Input(0), message);
            return Some(rejection.help("insert the `convert` before `pfb`"));
        }
        None
    }

    /// Band of the output.
    fn band(&self, input: &PortType, dtype: Dtype) -> Option<Band> {
        let band = input.band?;
        let becomes_complex = !input.dtype.is_complex() && dtype.is_complex();
        if becomes_complex && are_samples(input) {
            // Real samples have the centre of their band at a quarter of their rate, complex ones at 0 Hz: with the
            // imaginary part 0 that is the edge of the band, and the mirror image is below.
            let samples = input.axis_len("sample").unwrap_or(1) as f64;
            let rate_hz = input.clock.frames_per_second() * samples;
            let centre_hz = band.centre_hz - band.sideband.sign() * rate_hz / 4.0;
            return Some(Band { centre_hz, bandwidth_hz: rate_hz, ..band });
        }
        let sideband = if self.conjugate { band.sideband.inverted() } else { band.sideband };
        Some(Band { sideband, ..band })
    }

    fn check_scale(&self, is_double: bool) -> Option<Rejection> {
        // As used in the calculation.
        let scale = if is_double { self.scale } else { f64::from(self.scale as f32) };
        (!scale.is_finite() || scale == 0.0).then(|| {
            let precision = if is_double { "double" } else { "single" };
            let message = format!(
                "`scale` must be finite and not 0 in {precision} precision, got {}",
                self.scale
            );
            Rejection::parameter("scale", message).help("give a factor such as 0.5")
        })
    }
}

/// Creates the counter of elements that did not fit.
fn saturated(counters: &Counters) -> Counter {
    counters.count(
        "values_saturated",
        "elements with a part beyond the range of the output type, which was clamped, or with a NaN; \
         choose another scale",
    )
}

impl KindSpec for Convert {
    type Shape = numbers::Convert;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| Ok(Box::new(Mapped(cpu::Cpu::new(block, env)?)))),
        Implementation::<Self>::cuda("cuda", "identical bit by bit", |block, env| {
            GpuMapped::build(env, |pipeline| cuda::Cuda::new(block, env, pipeline.device()))
        })
        .device_bytes(|_| Table::<u64>::device_bytes(2)),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<numbers::Convert> {
        let mut rejections = Vec::new();
        let input = &inputs[0];
        let conversion =
            self.conversion(input.dtype).map_err(|rejection| rejections.push(*rejection));
        let double = conversion.is_ok_and(|(dtype, _)| is_double(input.dtype, dtype));
        rejections.extend(self.check_scale(double));
        if let Ok((dtype, _)) = conversion {
            rejections.extend(self.reject_meaning(input, dtype));
        }
        match conversion {
            Ok((dtype, convert)) if rejections.is_empty() => {
                let band = self.band(input, dtype);
                Ok((convert, vec![PortType { dtype, band, ..input.clone() }]))
            }
            _ => Err(rejections),
        }
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let output = &block.ports.outputs[0];
        let numbers = output.elements() * parts(output.dtype).unwrap_or(1);
        Resources { operations_per_frame: numbers as f64, ..Resources::default() }
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }

    fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
        bench::benchmarks(device)
    }
}
