#![doc = include_str!("README.md")]

pub mod conformance;
mod cpu;
mod cuda;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod delay_tests;
pub(crate) mod device_settings;
pub(crate) mod gains;
pub(crate) mod heaps;
mod phase;
pub(crate) mod quantiser;
mod refusals;
pub(crate) mod rotate;
mod settings;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod tiles;
mod transpose;
mod unzip;

use crate::common::dither::Dither;
use crate::common::live::Live;
use crate::common::parallel::one_thread;
use crate::common::spectra::Shape;
use fxgraph::DeviceName;
use fxgraph::cuda::{Properties, Tunable};
use fxgraph::diagnostic::codes;
use fxgraph::examples::Case;
use fxgraph::retune::LiveValue;
use fxgraph::{
    At, Axis, Block, BlockError, CPU, Clock, Dtype, Env, Implementation, Kind, PortNames, PortType,
    Ports, Refusal, Resources, ValidityType,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use gains::{Gains, PolGains};

/// Most spectra of a heap.
pub const MAX_SPECTRA_PER_HEAP: usize = 1 << 16;

/// Order of the output's axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// \[heap\]\[channel\]\[spectrum\]\[pol\], as F heaps are on the wire.
    #[default]
    Standard,
    /// \[heap\]\[channel\]\[pol\]\[spectrum\]: spectra are adjacent, as correlators like it.
    KMajor,
}

/// Parameters of the block `postproc`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Postproc {
    /// Bits of each real and imaginary part, 8 or 4. Eight-bit values reach from -127 to 127,
    /// four-bit ones from -7 to 7.
    #[serde(default = "default_bits")]
    pub bits: u8,
    /// Order of the output's axes.
    #[serde(default)]
    pub layout: Layout,
    /// Spectra of a heap: they stand next to each other for each channel.
    #[serde(default = "default_spectra_per_heap")]
    pub spectra_per_heap: usize,
    /// Heaps per output frame.
    #[serde(default = "default_heaps_per_frame")]
    pub heaps_per_frame: usize,
    /// Channels to keep, those in the middle of the band: a power of two. By default all.
    #[serde(default)]
    pub channels: Option<usize>,
    /// Factor before quantisation: a number or {re, im}; or a list with, for each polarisation,
    /// one of these or a list of them for each channel.
    #[serde(default)]
    pub gains: Gains,
    /// Noise added before rounding.
    #[serde(default)]
    pub dither: Dither,
    /// Seed of the dither. Give each antenna another one.
    #[serde(default)]
    pub dither_seed: u64,
    /// Threads that share the spectra, 0 for all cores. By default 1, because a flowgraph of many
    /// blocks already uses the cores; give more where one antenna alone is too much for a core.
    #[serde(default = "one_thread")]
    pub threads: usize,
}

pub(crate) fn default_bits() -> u8 {
    8
}
pub(crate) fn default_spectra_per_heap() -> usize {
    256
}
pub(crate) fn default_heaps_per_frame() -> usize {
    1
}

impl Postproc {
    /// The shape of the spectra in `input`, if it has any, with the channels that are kept.
    fn shape(&self, input: &PortType) -> Option<Shape> {
        let shape = Shape::of_channels(input)?;
        Some(shape.middle(self.channels.unwrap_or(shape.channels)))
    }
}

fn no_spectra() -> BlockError {
    BlockError::new("the input of `postproc` has no spectra")
}

impl Kind for Postproc {
    const NAME: &'static str = "postproc";
    const DOC: &'static str = include_str!("README.md");
    const INPUTS: PortNames = PortNames::Fixed(&["input"]);
    const OUTPUTS: PortNames = PortNames::Fixed(&["output"]);
    const IMPLEMENTATIONS: &'static [Implementation] =
        &[CPU, Implementation::cuda("cuda", "one kernel from spectra to heaps")];

    const LIVE: &'static [&'static str] = &["gains", "dither_seed"];

    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        let mut refusals = self.parameter_refusals();
        let input = &inputs[0];
        let shape = self.shape(input);
        match shape {
            None => {
                let message = format!("`postproc` cannot work on `{input}`");
                refusals.push(Refusal::new(codes::INPUT_AXIS, At::Input(0), message).help(
                    "it takes what `fft` makes: cf32 [pol][spectrum][channel], or with [unzip] before [channel]",
                ));
            }
            Some(shape) => {
                refusals.extend(self.shape_refusals(input, shape));
                if refusals.is_empty() {
                    refusals.extend(self.refuse_frames(shape));
                }
                refusals.extend(self.gain_refusals(shape));
            }
        }
        let Some(shape) = shape.filter(|_| refusals.is_empty()) else { return Err(refusals) };
        let heap = Axis::new("heap", self.heaps_per_frame).from_parameter("heaps_per_frame");
        let mut channel = Axis::new("channel", shape.channels);
        channel.origin = input.axes.last().map(|axis| axis.origin.clone()).unwrap_or_default();
        let spectrum =
            Axis::new("spectrum", self.spectra_per_heap).from_parameter("spectra_per_heap");
        let pol = Axis::new("pol", shape.pols);
        let samples = self.heaps_per_frame * self.spectra_per_heap * shape.step;
        Ok(vec![PortType {
            dtype: if self.bits == 8 { Dtype::Ci8 } else { Dtype::Ci4 },
            axes: match self.layout {
                Layout::Standard => vec![heap.clone(), channel, spectrum, pol],
                Layout::KMajor => vec![heap.clone(), channel, pol, spectrum],
            },
            clock: Clock { samples_per_frame: samples as u64, ..input.clock },
            band: input.band.map(|band| shape.band(band)),
            validity: ValidityType::flags(vec![heap]),
        }])
    }

    fn resources(&self, ports: &Ports) -> Resources {
        let Some(shape) = self.shape(&ports.inputs[0]) else { return Resources::default() };
        let values = shape.pols * shape.channels;
        let unzipped = if shape.unzip == 1 { 0 } else { 8 * shape.channels * (shape.unzip + 1) };
        Resources {
            host_bytes: 2 * values * quantiser::TILE_SPECTRA + 16 * values + unzipped,
            holds: vec![1],
            operations_per_frame: (values * self.spectra_per_heap * self.heaps_per_frame) as f64
                * (24.0 + 8.0 * (shape.unzip - 1) as f64),
            ..Resources::default()
        }
    }

    fn live_value(
        &self,
        parameter: &str,
        _running: &Self,
        ports: &Ports,
    ) -> Result<LiveValue, BlockError> {
        let shape = self.shape(&ports.inputs[0]).ok_or_else(no_spectra)?;
        Ok(Box::new(match parameter {
            "gains" => Live::Gains(self.gains.of_pols(shape.pols)),
            _ => Live::DitherSeed(self.dither_seed),
        }))
    }

    fn build(&self, ports: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        let shape = self.shape(&ports.inputs[0]).ok_or_else(no_spectra)?;
        match env.implementation {
            "cuda" => Ok(Box::new(cuda::Cuda::new(self, shape, env)?)),
            _ => Ok(Box::new(cpu::Cpu::new(self, shape, env)?)),
        }
    }

    fn check(
        &self,
        ports: &Ports,
        implementation: &str,
        _gpu: Option<&Properties>,
    ) -> Vec<Refusal> {
        let shape = self.shape(&ports.inputs[0]).filter(|_| implementation != CPU.name);
        Vec::from_iter(shape.and_then(|shape| cuda::refuse_pols(self, shape)))
    }

    fn tunable(&self, ports: &Ports, implementation: &str) -> Option<Tunable> {
        let shape = self.shape(&ports.inputs[0]).filter(|_| implementation != CPU.name);
        shape.map(|shape| cuda::tunable(self, shape))
    }

    fn device_bytes(&self, ports: &Ports, _implementation: &str) -> usize {
        self.shape(&ports.inputs[0]).map_or(0, |shape| cuda::device_bytes(self, shape))
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }
}
