#![doc = include_str!("README.md")]

mod bench;
pub mod conformance;
mod cpu;
mod cuda;
mod fp32;
mod gains;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod implementation_tests;
mod intensities;
mod matrix;
mod method;
mod phases;
mod sizes;
mod sky;
mod tables;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod voltages;
mod weights;

use crate::common::parallel::{MAX_THREADS, threads_for};
use fxgraph::DeviceName;
use fxgraph::diagnostic::codes;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::{
    At, BlockError, Checked, Configured, Counter, Counters, Implementation, Implementations, Kind,
    KindSpec, LiveKind, Mapped, PortType, Rejection, Resources,
};
use gains::Gains;
use method::Method;
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sizes::Sizes;

/// Parameters of `frb_beamformer`. Stages that are omitted are skipped.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "frb_beamformer",
    page = "README.md",
    examples("example.yaml", "intensities.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct FrbBeamformer {
    /// Factors of the feeds: a number or `{re: .., im: ..}` for all, lists `[pol][feed]`, or lists
    /// `[channel][pol][feed]`. The index of a feed is `cylinder x feeds per cylinder + feed of the cylinder`.
    #[param(default, live)]
    pub gains: Gains,
    /// Transform across the cylinders to beams from west to east.
    pub east_west: Option<EastWest>,
    /// Transform along a cylinder to beams from south to north.
    pub north_south: Option<NorthSouth>,
    /// Selection of the beams of the transform, with the same directions at every frequency.
    pub clamp: Option<Clamp>,
    /// Length, in spectra, of the transform in time. It splits each channel of a beam into as many
    /// narrow channels.
    pub upchannelise: Option<usize>,
    /// Sums of the intensities of the beams.
    pub integrate: Option<Integrate>,
    /// Element type of output voltages: `cf32` or `cf16`.
    #[param(default)]
    pub voltages: Voltages,
    /// Threads that share the output's spectra, 0 for all cores. Small frames use one thread. By
    /// default 0, because a flowgraph has one such beamformer.
    #[param(default, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

/// The transform across the cylinders.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EastWest {
    /// Spacing of the cylinders from west to east, in metres.
    #[serde(default = "EastWest::spacing_metres")]
    pub spacing_metres: f64,
    /// Direction of each beam, in degrees to the east of the meridian.
    #[serde(default = "EastWest::angles_degrees")]
    pub angles_degrees: Vec<f64>,
}

impl EastWest {
    fn spacing_metres() -> f64 {
        22.0
    }
    fn angles_degrees() -> Vec<f64> {
        vec![-0.4, 0.0, 0.4, 0.8]
    }
}

/// The transform along a cylinder.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NorthSouth {
    /// Points of the transform: the feeds of a cylinder, padded with zeros.
    pub points: usize,
}

/// Selection of the beams of the transform.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Clamp {
    /// Spacing of the feeds from north to south, in metres.
    #[serde(default = "Clamp::spacing_metres")]
    pub spacing_metres: f64,
    /// Number of beams, evenly spaced in the sine of the angle from the zenith.
    #[serde(default = "Clamp::beams")]
    pub beams: usize,
    /// Frequency, in Hz, at which the spacing of the beams equals the resolution of a cylinder. By default
    /// the frequency at which as many beams as feeds reach from horizon to horizon.
    pub reference_hz: Option<f64>,
}

impl Clamp {
    fn spacing_metres() -> f64 {
        0.3048
    }
    fn beams() -> usize {
        256
    }
}

/// Sums of intensities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Integrate {
    /// Neighbouring narrow channels per sum.
    #[serde(default = "one")]
    pub channels: usize,
    /// Spectra per sum, counted after `upchannelise`.
    #[serde(default = "one")]
    pub spectra: usize,
}

fn one() -> usize {
    1
}

/// Element type of output voltages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Voltages {
    /// Complex in single precision.
    #[default]
    Cf32,
    /// Complex in half precision.
    Cf16,
}

/// Parameters of the stages that do not change while the block runs.
#[derive(Clone)]
pub struct Stages {
    sizes: Sizes,
    /// Factors `[channel][beam][cylinder]` of the transform across the cylinders; empty without it.
    east_west: Vec<Complex32>,
    /// Points of the transform along a cylinder; `None` without it.
    points: Option<usize>,
    /// Index of the point that each beam takes, `[channel][beam]`; empty if all points are beams.
    index_map: Vec<u32>,
    /// Whether output voltages are in half precision.
    half_precision: bool,
}

impl FrbBeamformer {
    fn stages(&self, input: &PortType) -> Result<Stages, Vec<Rejection>> {
        let mut rejections = Vec::new();
        let sizes = Sizes::new(self, input).map_err(|more| rejections.extend(more)).ok();
        rejections.extend(self.sky_rejections(input));
        if let Some(sizes) = &sizes {
            rejections.extend(self.gains.rejection(sizes));
        }
        let (Some(sizes), true) = (sizes, rejections.is_empty()) else { return Err(rejections) };
        let hz = sky::channels_hz(input);
        Ok(Stages {
            east_west: self
                .east_west
                .as_ref()
                .map_or(Vec::new(), |east_west| sky::east_west(east_west, sizes.cylinders, &hz)),
            points: self.north_south.as_ref().map(|north_south| north_south.points),
            index_map: match (&self.clamp, &self.north_south) {
                (Some(clamp), Some(north_south)) => {
                    sky::index_map(clamp, sizes.feeds, north_south.points, &hz)
                }
                _ => Vec::new(),
            },
            half_precision: self.voltages == Voltages::Cf16,
            sizes,
        })
    }

    /// Diagnostics for positions of the feeds and directions of the beams.
    fn sky_rejections(&self, input: &PortType) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let mut reject = |parameter, message: String, help: &str| {
            rejections.push(Rejection::parameter(parameter, message).help(help));
        };
        let is_length = |metres: f64| metres > 0.0 && metres < 1e6;
        if let Some(EastWest { spacing_metres, angles_degrees }) = &self.east_west {
            if !is_length(*spacing_metres) {
                let message = format!(
                    "`east_west.spacing_metres` must be positive and below 1e6, got {spacing_metres}"
                );
                reject("east_west.spacing_metres", message, "omit it for the default of 22");
            }
            if !angles_degrees.iter().all(|angle| angle.abs() <= 90.0) {
                let message = "`east_west.angles_degrees` must be between -90 and 90".to_owned();
                let help = "give degrees from the meridian, for example `[-0.4, 0, 0.4, 0.8]`";
                reject("east_west.angles_degrees", message, help);
            }
        }
        if let Some(clamp) = &self.clamp {
            let feeds = input.axis_len("north_south").unwrap_or(0);
            if !is_length(clamp.spacing_metres) {
                let message = format!(
                    "`clamp.spacing_metres` must be positive and below 1e6, got {}",
                    clamp.spacing_metres
                );
                reject("clamp.spacing_metres", message, "omit it for the default of 0.3048");
            } else if let Some(hz) = clamp.reference_hz.filter(|hz| !(*hz > 0.0 && *hz < 1e15)) {
                let message =
                    format!("`clamp.reference_hz` must be positive and below 1e15, got {hz}");
                reject(
                    "clamp.reference_hz",
                    message,
                    "set a frequency in Hz, for example 492.0e+6",
                );
            } else if feeds > 0 && sky::farthest_sine(clamp, feeds) > 1.0 + 1e-9 {
                let sine = sky::farthest_sine(clamp, feeds);
                let message = format!(
                    "`clamp` points beams below the horizon: the sine of beam 0 is -{sine:.3}"
                );
                let help = "reduce `beams`, or set a higher `reference_hz`";
                reject("clamp", message, help);
            }
        }
        let pointed = self.east_west.is_some() || self.clamp.is_some();
        if pointed && input.band.is_none() {
            rejections.push(
                Rejection::new(codes::INPUT_AXIS, At::Input(0), "the input has no band")
                    .help("set `band` of the source; `east_west` and `clamp` need frequencies"),
            );
        }
        rejections
    }

    /// Floating-point operations per frame, with 5 n log2 n for a transform of n points.
    fn operations(&self, sizes: &Sizes) -> f64 {
        let transform = |points: usize| 5.0 * points as f64 * (points as f64).log2();
        let rows = (sizes.spectra * sizes.channels * sizes.pols) as f64;
        let feeds = sizes.cylinders * sizes.feeds;
        let across = self.east_west.as_ref().map_or(0, |_| 8 * feeds * sizes.rows);
        let along = self
            .north_south
            .as_ref()
            .map_or(0.0, |along| sizes.rows as f64 * transform(along.points));
        let in_time =
            sizes.beams() as f64 * transform(sizes.fine_channels) / sizes.fine_channels as f64;
        let sums = self.integrate.map_or(0, |_| 4 * sizes.beams());
        rows * ((6 * feeds + across + sums) as f64 + along + in_time)
    }
}

/// Counter of transforms that were left out.
fn transforms_missing(counters: &Counters) -> Counter {
    counters.count(
        "transforms_missing",
        "transforms left out because some of their input was missing, counted per validity unit; \
         look for missing data upstream",
    )
}

impl KindSpec for FrbBeamformer {
    type Shape = Stages;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| {
            let Configured { parameters, shape, ports, .. } = block;
            let threads = threads_for(parameters.threads, parameters.operations(&shape.sizes));
            let gains = parameters.gains.of_values(ports.inputs[0].sideband());
            let output = &ports.outputs[0];
            Ok(Box::new(Mapped(cpu::Cpu::new(shape.clone(), gains, output, threads, env)?)))
        }),
        Implementation::<Self>::cuda(
            Method::Radix8.name(),
            "on tensor cores, in half precision, without shuffles between threads",
            |block, env| cuda::block(block, Method::Radix8, env),
        )
        .check(|block, gpu| matrix::rejections(&block.shape, Method::Radix8, gpu))
        .device_bytes(|block| cuda::device_bytes(&block.shape, Method::Radix8)),
        Implementation::<Self>::cuda(
            Method::TensorCore.name(),
            "on tensor cores, in half precision, factorised as in the CHIME note",
            |block, env| cuda::block(block, Method::TensorCore, env),
        )
        .check(|block, gpu| matrix::rejections(&block.shape, Method::TensorCore, gpu))
        .device_bytes(|block| cuda::device_bytes(&block.shape, Method::TensorCore)),
        Implementation::<Self>::cuda(
            Method::Fp32.name(),
            "in single precision, for arrays of other sizes",
            |block, env| cuda::block(block, Method::Fp32, env),
        )
        .check(|block, _| fp32::rejections(&block.shape))
        .device_bytes(|block| cuda::device_bytes(&block.shape, Method::Fp32)),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Stages> {
        let stages = self.stages(&inputs[0])?;
        let output = stages.sizes.output(self, &inputs[0]);
        Ok((stages, vec![output]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let (parameters, stages) = (&block.parameters, &block.shape);
        let operations = parameters.operations(&stages.sizes);
        let threads = threads_for(parameters.threads, operations);
        let tables = 8 * stages.east_west.len() + 4 * stages.index_map.len();
        let scratch = stages.scratch_bytes().saturating_mul(threads);
        Resources {
            host_bytes: tables + parameters.gains.bytes() + scratch,
            operations_per_frame: operations,
            ..Resources::default()
        }
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }

    fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
        bench::benchmarks(device)
    }
}

impl LiveKind for FrbBeamformer {
    type Value = Gains;

    fn live_value(
        new: &Configured<Self>,
        FrbBeamformerLive::Gains: FrbBeamformerLive,
        _: &Configured<Self>,
    ) -> Result<Gains, BlockError> {
        Ok(new.parameters.gains.of_values(new.ports.inputs[0].sideband()))
    }
}
