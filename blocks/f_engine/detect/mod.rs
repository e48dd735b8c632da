#![doc = include_str!("README.md")]

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)] // values are exact
mod beams_tests;
mod conformance;
mod cpu;
mod cuda;
mod stacked;
mod stacked_cuda;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod stacked_tests;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use crate::common::gpu::Table;
use fxgraph::cuda::GpuMapped;
use fxgraph::diagnostic::codes;
use fxgraph::examples::Case;
use fxgraph::{
    At, Axis, Checked, Configured, Counter, DeviceName, Dtype, Env, Implementation,
    Implementations, Kind, KindSpec, Mapped, PortType, Rejection, Resources, Sideband,
    ValidityType,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stacked::Stack;

/// Kinds of power that `detect` computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Products {
    /// Power of each polarisation.
    Power,
    /// Sum of the powers of both polarisations.
    Intensity,
    /// The four Stokes parameters.
    #[default]
    Stokes,
}

impl Products {
    /// Labels of the products, for `pols` polarisations.
    fn labels(self, pols: usize) -> &'static [&'static str] {
        match self {
            Self::Power => &["XX", "YY"][..pols.min(2)],
            Self::Intensity => &["I"],
            Self::Stokes => &["I", "Q", "U", "V"],
        }
    }
}

/// Sums over the antennas of stacked voltages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Antennas {
    /// The incoherent sum of all antennas.
    #[default]
    Sum,
    /// Each antenna by itself.
    Separate,
}

/// Parameters of `detect`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "detect",
    page = "README.md",
    examples("example.yaml", "stacked.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct Detect {
    /// Powers to compute: `power`, `intensity` or `stokes`.
    #[param(default)]
    pub products: Products,
    /// Adjacent spectra per sum; must divide the number of spectra of a frame.
    #[param(default = 1, range = 1..)]
    pub spectra: usize,
    /// For the voltages of several antennas: `sum` adds the powers of all antennas, `separate` keeps the antennas.
    #[param(default)]
    pub antennas: Antennas,
}

/// Sizes of the input and of the sums.
#[derive(Clone, Copy, Debug)]
pub struct Sizes(Input);

/// Kinds of input.
#[derive(Clone, Copy, Debug)]
enum Input {
    /// Spectra of one antenna.
    One(Shape),
    /// Voltages of several antennas or beams.
    Stack(Stack),
}

impl Input {
    /// Validity counts of a frame.
    fn units(&self) -> usize {
        match self {
            Self::One(shape) => shape.pols * shape.sums * shape.spectra,
            Self::Stack(stack) => stack.units(),
        }
    }

    /// Writes the validity of a frame of sums. Returns the number of spectra that are in no sum.
    fn validity(&self, input: &[u32], output: &mut [u32]) -> u64 {
        match self {
            Self::One(shape) => shape.validity(input, output),
            Self::Stack(stack) => stack.validity(input, output),
        }
    }
}

/// Lengths of the input's axes, and number and length of the sums.
#[derive(Clone, Copy, Debug)]
struct Shape {
    pols: usize,
    channels: usize,
    products: Products,
    /// Sums of a frame.
    sums: usize,
    /// Spectra per sum.
    spectra: usize,
    /// Sideband of the spectra, which sets the sign of Stokes V.
    sideband: Sideband,
}

impl Shape {
    /// Writes to `output` `[sum]` the number of spectra in each sum. A spectrum is in its sum if its validity in
    /// `input` `[pol][spectrum]` is not 0 in any polarisation. Returns the number of spectra that are in no sum.
    fn validity(&self, input: &[u32], output: &mut [u32]) -> u64 {
        let spectra = self.sums * self.spectra;
        let is_there =
            |spectrum: usize| (0..self.pols).all(|pol| input[pol * spectra + spectrum] != 0);
        for (sum, count) in output.iter_mut().enumerate() {
            let of_sum = sum * self.spectra..(sum + 1) * self.spectra;
            *count = of_sum.filter(|spectrum| is_there(*spectrum)).count() as u32;
        }
        (spectra as u64) - output.iter().map(|count| u64::from(*count)).sum::<u64>()
    }
}

fn spectra_missing(env: &Env) -> Counter {
    env.counters.count(
        "spectra_missing",
        "spectra left out of their sum because samples were missing; look for missing data upstream",
    )
}

impl KindSpec for Detect {
    type Shape = Sizes;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| match block.shape.0 {
            Input::One(shape) => Ok(Box::new(Mapped(cpu::Cpu::new(shape, env)))),
            Input::Stack(stack) => Ok(Box::new(Mapped(stacked::Cpu::new(stack, env)))),
        }),
        Implementation::<Self>::cuda("cuda", "one kernel launch for each frame", |block, env| {
            let input = block.shape.0;
            GpuMapped::build(env, |pipeline| cuda::Cuda::new(input, env, pipeline.device()))
        })
        .check(|block, _| Vec::from_iter(cuda::rejection(&block.shape.0)))
        .device_bytes(|block| Table::<u32>::device_bytes(block.shape.0.units()))
        .programs(cuda::PROGRAMS),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Sizes> {
        let input = &inputs[0];
        if input.axis_len("antenna").is_some() {
            let (stack, outputs) = Stack::of_antennas(self, input)?;
            return Ok((Sizes(Input::Stack(stack)), outputs));
        }
        if input.axis_len("beam").is_some() {
            let (stack, outputs) = Stack::of_beams(self, input)?;
            return Ok((Sizes(Input::Stack(stack)), outputs));
        }
        let lengths: Vec<_> = input.axes.iter().map(|axis| (axis.name, axis.len)).collect();
        let (Dtype::Cf32, &[("pol", pols @ 1..=2), ("spectrum", spectra), ("channel", channels)]) =
            (input.dtype, lengths.as_slice())
        else {
            let message = format!("`detect` cannot read `{input}`");
            let help = "connect the output of `fft`, cf32 [pol][spectrum][channel] with 1 or 2 polarisations, or that of \
                        `antenna_stack` or `beamformer`";
            return Err(vec![Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help)]);
        };
        let mut rejections = Vec::new();
        let units: Vec<_> = input.validity.axes.iter().map(|axis| (axis.name, axis.len)).collect();
        if units != [("pol", pols), ("spectrum", spectra)] || input.validity.full != 1 {
            let message = "the validity of the input must be flags `[pol][spectrum]`";
            rejections.push(Rejection::new(codes::INPUT_AXIS, At::Input(0), message));
        }
        if !spectra.is_multiple_of(self.spectra) {
            let message = format!(
                "`spectra` must divide the {spectra} spectra of a frame, got {}",
                self.spectra
            );
            rejections.push(Rejection::parameter("spectra", message));
        }
        if pols == 1 && self.products != Products::Power {
            let message = "`products` must be `power`, because the input has one polarisation";
            rejections.push(Rejection::parameter("products", message));
        }
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let sums = spectra / self.spectra;
        let products = Axis::labelled("product", self.products.labels(pols).iter().copied());
        let output = PortType {
            dtype: Dtype::F32,
            axes: vec![Axis::new("spectrum", sums), products, input.axes[2].clone()],
            validity: ValidityType {
                axes: vec![Axis::new("spectrum", sums)],
                full: u32::try_from(self.spectra).unwrap_or(u32::MAX),
            },
            ..input.clone()
        };
        let shape = Shape {
            pols,
            channels,
            products: self.products,
            sums,
            spectra: self.spectra,
            sideband: input.sideband(),
        };
        Ok((Sizes(Input::One(shape)), vec![output]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let of_value = if block.parameters.products == Products::Stokes { 7.0 } else { 4.0 };
        let operations_per_frame = of_value * block.ports.inputs[0].elements() as f64;
        Resources { operations_per_frame, ..Resources::default() }
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }
}
