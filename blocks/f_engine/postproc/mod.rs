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
pub(crate) mod quantiser;
mod rejections;
mod settings;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod tiles;

use crate::common::dither::Dither;
use crate::common::live::Live;
use crate::common::parallel::MAX_THREADS;
use crate::common::spectra::Shape;
use fxgraph::DeviceName;
use fxgraph::diagnostic::codes;
use fxgraph::examples::Case;
use fxgraph::{
    At, Axis, BlockError, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind,
    KindSpec, LiveKind, PortType, Rejection, Resources, ValidityType,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use gains::{Gains, PolGains};

/// Largest number of spectra of a heap.
pub const MAX_SPECTRA_PER_HEAP: usize = 1 << 16;

/// Order of the output's axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// \[heap\]\[channel\]\[spectrum\]\[pol\], the order of F-engine heaps in SPEAD packets.
    #[default]
    Standard,
    /// \[heap\]\[channel\]\[pol\]\[spectrum\]: spectra are adjacent, the fastest order for correlators.
    KMajor,
}

/// Parameters of the block `postproc`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "postproc",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct Postproc {
    /// Bits of each real and imaginary part, 8 or 4. The range of values is -127 to 127 with 8 bits and
    /// -7 to 7 with 4 bits.
    #[param(default = 8)]
    pub bits: u8,
    /// Order of the output's axes: `standard` is `[heap][channel][spectrum][pol]`, `k_major` is
    /// `[heap][channel][pol][spectrum]`.
    #[param(default)]
    pub layout: Layout,
    /// Spectra per heap; those of one channel are adjacent.
    #[param(default = 256)]
    pub spectra_per_heap: usize,
    /// Heaps per output frame.
    #[param(default = 1)]
    pub heaps_per_frame: usize,
    /// Channels to keep, those in the middle of the band: an even number, at least 4. By default all.
    pub channels: Option<usize>,
    /// Factor before quantisation, on the sky: a number or {re, im}; or a list with one entry for each
    /// polarisation, which is a number, {re, im}, or a list of them for each channel.
    #[param(default, live)]
    pub gains: Gains,
    /// Noise added before rounding.
    #[param(default)]
    pub dither: Dither,
    /// Seed of the dither. Set a different one for each antenna.
    #[param(default, live)]
    pub dither_seed: u64,
    /// Threads that share the spectra, 0 for all cores. By default 1, because a flowgraph of many
    /// blocks already uses the cores; set more if one antenna is too much for one core.
    #[param(default = 1, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

impl Postproc {
    /// Shape of the spectra in `input` with the kept channels; `None` if the axes are not those of spectra.
    fn shape(&self, input: &PortType) -> Option<Shape> {
        let shape = Shape::of_channels(input)?;
        Some(shape.middle(self.channels.unwrap_or(shape.channels)))
    }
}

impl KindSpec for Postproc {
    /// Shape of the spectra of the input, with the kept channels.
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| {
            Ok(Box::new(cpu::Cpu::new(&block.parameters, block.shape, env)?))
        }),
        Implementation::<Self>::cuda("cuda", "one kernel from spectra to heaps", |block, env| {
            Ok(Box::new(cuda::Cuda::new(&block.parameters, block.shape, env)?))
        })
        .check(|block, _| cuda::rejections(&block.parameters, block.shape))
        .tunable(|block| Some(cuda::tunable(&block.parameters, block.shape)))
        .device_bytes(|block| cuda::device_bytes(&block.parameters, block.shape)),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        let mut rejections = self.parameter_rejections();
        let input = &inputs[0];
        let shape = self.shape(input);
        match shape {
            None => {
                let message = format!("`postproc` cannot read `{input}`");
                rejections.push(Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(
                    "connect the output of `fft`: cf32 [pol][spectrum][channel], or with [unzip] before [channel]",
                ));
            }
            Some(shape) => {
                rejections.extend(self.shape_rejections(input, shape));
                if rejections.is_empty() {
                    rejections.extend(self.reject_frames(shape));
                }
                rejections.extend(self.gain_rejections(shape));
            }
        }
        let Some(shape) = shape.filter(|_| rejections.is_empty()) else { return Err(rejections) };
        let heap = Axis::new("heap", self.heaps_per_frame).from_parameter("heaps_per_frame");
        let mut channel = Axis::new("channel", shape.channels);
        channel.origin = input.axes.last().map(|axis| axis.origin.clone()).unwrap_or_default();
        let spectrum =
            Axis::new("spectrum", self.spectra_per_heap).from_parameter("spectra_per_heap");
        let pol = Axis::new("pol", shape.pols);
        let samples = self.heaps_per_frame * self.spectra_per_heap * shape.step;
        let output = PortType {
            dtype: if self.bits == 8 { Dtype::Ci8 } else { Dtype::Ci4 },
            axes: match self.layout {
                Layout::Standard => vec![heap.clone(), channel, spectrum, pol],
                Layout::KMajor => vec![heap.clone(), channel, pol, spectrum],
            },
            clock: Clock { samples_per_frame: samples as u64, ..input.clock },
            band: input.band.map(|band| shape.band(band)),
            validity: ValidityType::flags(vec![heap]),
        };
        Ok((shape, vec![output]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let Configured { parameters, shape, .. } = block;
        let values = shape.pols * shape.channels;
        let unzipped = if shape.unzip == 1 { 0 } else { 8 * shape.channels * (shape.unzip + 1) };
        let spectra = parameters.spectra_per_heap * parameters.heaps_per_frame;
        Resources {
            host_bytes: 2 * values * quantiser::TILE_SPECTRA + 16 * values + unzipped,
            holds: vec![1],
            operations_per_frame: (values * spectra) as f64
                * (24.0 + 8.0 * (shape.unzip - 1) as f64),
            ..Resources::default()
        }
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }
}

impl LiveKind for Postproc {
    type Value = Live;

    fn live_value(
        new: &Configured<Self>,
        parameter: PostprocLive,
        _: &Configured<Self>,
    ) -> Result<Live, BlockError> {
        Ok(match parameter {
            PostprocLive::Gains => Live::Gains(new.parameters.gains.of_shape(&new.shape)),
            PostprocLive::DitherSeed => Live::DitherSeed(new.parameters.dither_seed),
        })
    }
}
