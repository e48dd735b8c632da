#![doc = include_str!("README.md")]

mod bench;
pub mod conformance;
mod cpu;
mod cuda;
mod numbers;
#[cfg(test)]
mod tests;

use crate::common::gpu::Table;
use crate::common::parallel::{one_thread, refuse_threads};
use fxgraph::DeviceName;
use fxgraph::diagnostic::codes;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::{
    At, Block, BlockError, CPU, Counter, Counters, Dtype, Env, Implementation, Kind, PortNames,
    PortType, Ports, Refusal, Resources,
};
use numbers::{converter, is_double, parts};
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `convert`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Convert {
    /// Element type of the output: `u8`, `i8`, `i16`, `i32`, `f16`, `f32` or `f64` if the input is real,
    /// `ci4`, `ci8`, `ci16`, `ci32`, `cf16`, `cf32` or `cf64` if it is complex.
    pub dtype: String,
    /// Factor.
    #[serde(default = "default_scale")]
    pub scale: f64,
    /// Threads that share a frame, 0 for all cores. By default 1, because a flowgraph of many
    /// blocks already uses the cores.
    #[serde(default = "one_thread")]
    pub threads: usize,
}

fn default_scale() -> f64 {
    1.0
}

/// Types of elements with so many parts, in words.
fn convertible(of_parts: usize) -> String {
    let dtypes = Dtype::WHOLE_BYTES.into_iter().filter(|dtype| parts(*dtype) == Some(of_parts));
    dtypes.map(|dtype| dtype.to_string()).collect::<Vec<_>>().join(", ")
}

impl Convert {
    /// The output's type.
    fn check(&self, input: Dtype) -> Result<Dtype, Box<Refusal>> {
        let Some(from) = parts(input) else {
            let message = format!("`{input}` cannot be converted");
            let help =
                format!("{} and {} can; `pfb` unpacks samples", convertible(1), convertible(2));
            let refusal = Refusal::new(codes::INPUT_DTYPE, At::Input(0), message);
            return Err(Box::new(refusal.help(help)));
        };
        let to = self.dtype.parse::<Dtype>();
        to.ok().filter(|dtype| parts(*dtype) == Some(from)).ok_or_else(|| {
            let message = format!("`{input}` cannot become `{}`", self.dtype);
            let refusal = Refusal::parameter("dtype", message)
                .note(At::Input(0), format!("the input is `{input}`"))
                .help(format!("it can become {}", convertible(from)));
            Box::new(refusal)
        })
    }

    fn check_scale(&self, is_double: bool) -> Option<Refusal> {
        // As it is used.
        let scale = if is_double { self.scale } else { f64::from(self.scale as f32) };
        (!scale.is_finite() || scale == 0.0).then(|| {
            let message = format!("a scale of {} leaves nothing of the numbers", self.scale);
            let precision = if is_double { "double" } else { "single" };
            Refusal::parameter("scale", message)
                .help(format!("it must be a number other than 0 that fits {precision} precision"))
        })
    }
}

/// The counter of elements that did not fit.
fn saturated(counters: &Counters) -> Counter {
    counters.count(
        "values_saturated",
        "Elements of which a part was beyond the output's type and was clamped, or was no number; \
         choose another scale.",
    )
}

impl Kind for Convert {
    const NAME: &'static str = "convert";
    const DOC: &'static str = include_str!("README.md");
    const INPUTS: PortNames = PortNames::Fixed(&["input"]);
    const OUTPUTS: PortNames = PortNames::Fixed(&["output"]);
    const IMPLEMENTATIONS: &'static [Implementation] =
        &[CPU, Implementation::cuda("cuda", "the same, bit by bit")];

    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        let mut refusals = Vec::from_iter(refuse_threads(self.threads));
        let input = &inputs[0];
        let dtype = self.check(input.dtype).map_err(|refusal| refusals.push(*refusal));
        let double = dtype.is_ok_and(|dtype| is_double(input.dtype, dtype));
        refusals.extend(self.check_scale(double));
        match dtype {
            Ok(dtype) if refusals.is_empty() => Ok(vec![PortType { dtype, ..input.clone() }]),
            _ => Err(refusals),
        }
    }

    fn resources(&self, ports: &Ports) -> Resources {
        let numbers = ports.outputs[0].elements() * parts(ports.outputs[0].dtype).unwrap_or(1);
        Resources { operations_per_frame: numbers as f64, ..Resources::default() }
    }

    fn device_bytes(&self, _: &Ports, _: &str) -> usize {
        Table::<u64>::device_bytes(1)
    }

    fn build(&self, ports: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        let (input, output) = (&ports.inputs[0], &ports.outputs[0]);
        if env.implementation != CPU.name {
            return Ok(Box::new(cuda::Cuda::new(self.scale, input, output, env)?));
        }
        let convert = converter(input.dtype, output.dtype)
            .ok_or_else(|| BlockError::new("there is no such conversion"))?;
        Ok(Box::new(cpu::Cpu::new(self, convert, [input.dtype, output.dtype], &env.counters)?))
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }

    fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
        bench::benchmarks(device)
    }
}
