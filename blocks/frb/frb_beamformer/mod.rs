#![doc = include_str!("README.md")]

mod bench;
pub mod conformance;
mod cpu;
mod cuda;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod form_tests;
mod fp32;
mod gains;
mod intensities;
mod matrix;
mod phases;
mod sizes;
mod sky;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod voltages;
mod weights;

use crate::common::parallel::{MAX_THREADS, threads_for};
use cuda::Method;
use fxgraph::DeviceName;
use fxgraph::diagnostic::codes;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::{
    At, BlockError, Checked, Configured, Counter, Counters, Implementation, Implementations, Kind,
    KindSpec, LiveKind, Mapped, PortType, Refusal, Resources,
};
use gains::Gains;
use num_complex::Complex32;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sizes::Sizes;

/// Parameters of `frb_beamformer`. A stage that is left out is not done.
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
    /// `[channel][pol][feed]`; a feed's number is `cylinder x feeds of a cylinder + place`.
    #[param(default, live)]
    pub gains: Gains,
    /// Adds the cylinders up to beams side by side, from east to west.
    pub east_west: Option<EastWest>,
    /// Transforms the feeds of a cylinder to beams from north to south.
    pub north_south: Option<NorthSouth>,
    /// Picks the transform's beams that point where they point at every frequency.
    pub clamp: Option<Clamp>,
    /// Spectra of which each channel of a beam is transformed to as many narrower channels.
    pub upchannelise: Option<usize>,
    /// Makes intensities of voltages and adds them up.
    pub integrate: Option<Integrate>,
    /// Element type of voltages: `cf32`, or `cf16`.
    #[param(default)]
    pub voltages: Voltages,
    /// Threads that share the output's spectra, 0 for all cores, or one if a frame is too little work
    /// to share. By default 0, because a flowgraph has one such beamformer.
    #[param(default, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

/// The transform across the cylinders.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EastWest {
    /// How far each cylinder stands to the east of the one before, in metres.
    #[serde(default = "EastWest::spacing_metres")]
    pub spacing_metres: f64,
    /// Where each beam points: degrees to the east of the meridian.
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
    /// Points of the transform: the feeds of a cylinder and zeros behind them.
    pub points: usize,
}

/// Which of the transform's beams are kept.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Clamp {
    /// How far each feed stands to the south of the one before, in metres.
    #[serde(default = "Clamp::spacing_metres")]
    pub spacing_metres: f64,
    /// Beams to keep, evenly spaced in the sine of the angle from the zenith.
    #[serde(default = "Clamp::beams")]
    pub beams: usize,
    /// Frequency at which neighbouring beams are as far apart as the length of a cylinder resolves. Without it
    /// the one at which as many beams as feeds reach from horizon to horizon.
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
    /// Neighbouring narrow channels that are added.
    #[serde(default = "one")]
    pub channels: usize,
    /// Spectra, after `upchannelise`, that are added.
    #[serde(default = "one")]
    pub spectra: usize,
}

fn one() -> usize {
    1
}

/// How voltages of beams are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Voltages {
    /// In single precision.
    #[default]
    Cf32,
    /// In half precision.
    Cf16,
}

/// What does not change while the block runs.
#[derive(Clone)]
pub struct Stages {
    sizes: Sizes,
    /// Factors `[channel][beam][cylinder]` of the transform across the cylinders; empty without it.
    east_west: Vec<Complex32>,
    /// Points of the transform along a cylinder, if there is one.
    points: Option<usize>,
    /// Index of the point that each beam takes, `[channel][beam]`; empty if all points are beams.
    index_map: Vec<u32>,
    /// Whether voltages are put out in half precision.
    halves: bool,
}

impl FrbBeamformer {
    fn stages(&self, input: &PortType) -> Result<Stages, Vec<Refusal>> {
        let mut refusals = Vec::new();
        let sizes = Sizes::new(self, input).map_err(|more| refusals.extend(more)).ok();
        refusals.extend(self.sky_refusals(input));
        if let Some(sizes) = &sizes {
            refusals.extend(self.gains.refusal(sizes));
        }
        let (Some(sizes), true) = (sizes, refusals.is_empty()) else { return Err(refusals) };
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
            halves: self.voltages == Voltages::Cf16,
            sizes,
        })
    }

    /// What is wrong with where the beams point.
    fn sky_refusals(&self, input: &PortType) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut refuse = |parameter, message: String, help: &str| {
            refusals.push(Refusal::parameter(parameter, message).help(help));
        };
        let is_length = |metres: f64| metres > 0.0 && metres < 1e6;
        if let Some(EastWest { spacing_metres, angles_degrees }) = &self.east_west {
            if !is_length(*spacing_metres) {
                let message = format!("cylinders do not stand {spacing_metres} m apart");
                refuse("east_west.spacing_metres", message, "more than 0 and less than 1000 km");
            }
            if !angles_degrees.iter().all(|angle| angle.abs() <= 90.0) {
                let message = "a beam points below the horizon".to_owned();
                refuse("east_west.angles_degrees", message, "-90 to 90 degrees from the meridian");
            }
        }
        if let Some(clamp) = &self.clamp {
            let feeds = input.axis_len("north_south").unwrap_or(0);
            if !is_length(clamp.spacing_metres) {
                let message = format!("feeds do not stand {} m apart", clamp.spacing_metres);
                refuse("clamp.spacing_metres", message, "more than 0 and less than 1000 km");
            } else if clamp.reference_hz.is_some_and(|hz| !(hz > 0.0 && hz < 1e15)) {
                let message = "the frequency of reference is not one".to_owned();
                refuse("clamp.reference_hz", message, "it is in Hz, more than 0");
            } else if feeds > 0 && sky::farthest_sine(clamp, feeds) > 1.0 + 1e-9 {
                let sine = sky::farthest_sine(clamp, feeds);
                let message =
                    format!("the index map leaves the sky: the sine of beam 0 is -{sine:.3}");
                let help = "fewer beams, or a higher `reference_hz`, are closer together";
                refuse("clamp", message, help);
            }
        }
        let pointed = self.east_west.is_some() || self.clamp.is_some();
        if pointed && input.band.is_none() {
            refusals.push(
                Refusal::new(codes::INPUT_AXIS, At::Input(0), "the channels have no frequencies")
                    .help("beams point by frequency; the band comes from the source's parameters"),
            );
        }
        refusals
    }

    /// Operations of a frame, 5 n log2 n for a transform of n points.
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

/// The counter of what did not come.
fn transforms_missing(counters: &Counters) -> Counter {
    counters.count(
        "transforms_missing",
        "Transforms of spectra that were left out because not all of their input came, by unit of validity; \
         look for losses upstream.",
    )
}

impl KindSpec for FrbBeamformer {
    type Shape = Stages;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| {
            let Configured { parameters, shape, ports, .. } = block;
            let threads = threads_for(parameters.threads, parameters.operations(&shape.sizes));
            let gains = parameters.gains.clone();
            let output = &ports.outputs[0];
            Ok(Box::new(Mapped(cpu::Cpu::new(shape.clone(), gains, output, threads, env)?)))
        }),
        Implementation::<Self>::cuda(
            Method::Radix8.name(),
            "on matrix units, in half precision, without exchanges between lanes",
            |block, env| cuda::block(block, Method::Radix8, env),
        )
        .check(|block, gpu| matrix::refusals(&block.shape, Method::Radix8, gpu))
        .device_bytes(|block| cuda::device_bytes(&block.shape, Method::Radix8)),
        Implementation::<Self>::cuda(
            Method::TensorCore.name(),
            "on matrix units, in half precision, as the note has it",
            |block, env| cuda::block(block, Method::TensorCore, env),
        )
        .check(|block, gpu| matrix::refusals(&block.shape, Method::TensorCore, gpu))
        .device_bytes(|block| cuda::device_bytes(&block.shape, Method::TensorCore)),
        Implementation::<Self>::cuda(
            Method::Fp32.name(),
            "plainly, in single precision",
            |block, env| cuda::block(block, Method::Fp32, env),
        )
        .check(|block, _| fp32::refusals(&block.shape))
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
        Ok(new.parameters.gains.clone())
    }
}
