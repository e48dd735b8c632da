#![doc = include_str!("README.md")]

mod bench;
pub mod conformance;
mod cpu;
mod cuda;
mod hopper;
mod tensor_core;
#[cfg(test)]
mod tests;
mod tiles;

use crate::common::dither::Dither;
use crate::common::output_level::{MEASURED_SPECTRA, OutputLevels};
use crate::common::parallel::{MAX_THREADS, threads_for};
use crate::common::stacked::Stacked;
use crate::common::units::Units;
use cuda::{Architecture, Cuda};
use fxgraph::DeviceName;
use fxgraph::cuda::GpuMapped;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::kind::Build;
use fxgraph::{
    At, Axis, Band, Block, BlockError, Checked, Clock, Configured, Counter, Dtype, Env, Header,
    Implementation, Implementations, Kind, KindSpec, LiveKind, PortType, Rejection, Resources,
    ValidityType,
};
use fxgraph_dsp::geometry::Direction;
use num_complex::{Complex32, Complex64};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use std::fmt;

/// Parameters of the block `beamformer`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "beamformer",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct Beamformer {
    /// Beams, one polarisation each.
    #[param(live)]
    pub beams: Vec<Beam>,
    /// Position of each antenna: east, north, up in metres; needed by beams with `towards`. In a longer
    /// list, entries after the last antenna are ignored.
    #[param(default)]
    pub antennas_enu_metres: Vec<[f64; 3]>,
    /// Noise added before rounding.
    #[param(default)]
    pub dither: Dither,
    /// Seed of the dither: the same seed gives the same noise.
    #[param(default)]
    pub dither_seed: u64,
    /// Threads that share the channels, 0 for all cores. Small frames use one thread. By default 0,
    /// because a flowgraph has one beamformer for all antennas.
    #[param(default, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

/// One beam.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Beam {
    /// Polarisation of the antennas that the beam sums: 0 or 1; 0 if the input has one polarisation.
    pub pol: usize,
    /// Weight of the antennas: one number for all, or a list.
    #[serde(default = "one")]
    pub weights: PerAntenna,
    /// Direction of the beam: waves from it are summed in phase. `delays_seconds` are added to its delays.
    pub towards: Option<Direction>,
    /// Delay tau of each antenna relative to the centre of the band, in seconds: one number for all, or a list.
    #[serde(default)]
    pub delays_seconds: PerAntenna,
    /// Phase of each antenna on the sky, in radians: one number for all, or a list.
    #[serde(default)]
    pub phases_radians: PerAntenna,
    /// Factor before the sum is rounded to 8 bits.
    #[serde(default = "unity")]
    pub gain: f64,
}

const fn unity() -> f64 {
    1.0
}

const fn one() -> PerAntenna {
    PerAntenna::All(1.0)
}

/// One number for all antennas, or one for each.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[schemars(untagged)]
pub enum PerAntenna {
    /// The same number for all antennas.
    All(f64),
    /// One number for each antenna.
    Each(Vec<f64>),
}

impl Default for PerAntenna {
    fn default() -> Self {
        Self::All(0.0)
    }
}

impl PerAntenna {
    fn of(&self, antenna: usize) -> f64 {
        match self {
            Self::All(value) => *value,
            Self::Each(values) => values.get(antenna).copied().unwrap_or_default(),
        }
    }

    fn values(&self) -> &[f64] {
        match self {
            Self::All(value) => std::slice::from_ref(value),
            Self::Each(values) => values,
        }
    }
}

impl<'de> Deserialize<'de> for PerAntenna {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = PerAntenna;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a list with one number for each antenna")
            }
            fn visit_f64<E>(self, value: f64) -> Result<PerAntenna, E> {
                Ok(PerAntenna::All(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<PerAntenna, E> {
                Ok(PerAntenna::All(value as f64))
            }
            fn visit_u64<E>(self, value: u64) -> Result<PerAntenna, E> {
                Ok(PerAntenna::All(value as f64))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<PerAntenna, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = seq.next_element()? {
                    values.push(value);
                }
                Ok(PerAntenna::Each(values))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Supported types of the voltages.
const DTYPES: &[Dtype] = &[Dtype::Ci8, Dtype::Ci4];

const MOST_BEAMS: usize = 1 << 12;
/// Largest table of weights or output frame in bytes; a larger one is taken to be a mistake.
const MOST_BYTES: usize = 1 << 36;

impl Beamformer {
    fn beam_rejections(&self, shape: Option<&Stacked>, band: Option<&Band>) -> Vec<Rejection> {
        let antennas = shape.map(|shape| shape.antennas);
        let pols = shape.map_or(2, |shape| shape.pols);
        let mut rejections = Vec::new();
        let mut reject = |message: String, help: String| {
            rejections.push(Rejection::parameter("beams", message).help(help));
        };
        if self.antennas_enu_metres.iter().flatten().any(|v| !v.is_finite() || v.abs() > 1e7) {
            let message = "`antennas_enu_metres` must be within 10000 km".to_owned();
            reject(message, "give positions in metres, for example `[31, 5, 0]`".to_owned());
        }
        if self.beams.is_empty() || self.beams.len() > MOST_BEAMS {
            let message =
                format!("`beams` must have 1 to {MOST_BEAMS} entries, got {}", self.beams.len());
            reject(message, "add for example `{pol: 0}`".to_owned());
        }
        for (m, beam) in self.beams.iter().enumerate() {
            if beam.pol >= pols {
                let (known, help) = match pols {
                    1 => ("0, the only polarisation of the input", "set `pol: 0`"),
                    _ => ("0 or 1", "set `pol: 0` or `pol: 1`"),
                };
                let message = format!("`pol` of beam {m} must be {known}, got {}", beam.pol);
                reject(message, help.to_owned());
            }
            if !beam.gain.is_finite() {
                let message = format!("`gain` of beam {m} must be finite, got {}", beam.gain);
                reject(message, "omit it for the default of 1".to_owned());
            }
            let lists = [
                ("weights", &beam.weights),
                ("delays_seconds", &beam.delays_seconds),
                ("phases_radians", &beam.phases_radians),
            ];
            for (name, list) in lists {
                if list.values().iter().any(|value| value.is_nan() || value.abs() > 1e30) {
                    let message = format!("`{name}` of beam {m} must be within +-1e30");
                    reject(message, "use finite numbers, for example 1.0".to_owned());
                }
                if let (PerAntenna::Each(values), Some(antennas)) = (list, antennas)
                    && values.len() != antennas
                {
                    let count = values.len();
                    let message = format!(
                        "`{name}` of beam {m} must have {antennas} numbers, one for each antenna, got {count}"
                    );
                    reject(message, "give one number for all antennas, or one for each".to_owned());
                }
            }
            if let Some(direction) = beam.towards {
                if !direction.is_valid() {
                    let message = format!(
                        "azimuth of beam {m} must be finite, and elevation from -90 to 90 degrees"
                    );
                    reject(message, "give azimuth and elevation in degrees".to_owned());
                }
                let placed = self.antennas_enu_metres.len();
                if let Some(antennas) = antennas
                    && placed < antennas
                {
                    let message = format!(
                        "beam {m} has `towards`, but {placed} of {antennas} antennas have positions"
                    );
                    reject(message, "set `antennas_enu_metres` for every antenna".to_owned());
                }
            }
            let delayed = beam.towards.is_some()
                || beam.delays_seconds.values().iter().any(|&delay| delay != 0.0);
            if antennas.is_some() && delayed && band.is_none() {
                let message = format!("beam {m} has delays, but the input has no band");
                reject(message, "use `phases_radians`, or a source that sets the band".to_owned());
            }
        }
        rejections
    }

    fn output(&self, input: &PortType) -> Result<(Stacked, PortType), Vec<Rejection>> {
        let mut rejections = Vec::new();
        let shape = Stacked::of_port(input, DTYPES).map_err(|more| rejections.extend(more)).ok();
        rejections.extend(self.beam_rejections(shape.as_ref(), input.band.as_ref()));
        if let Some(shape) = shape {
            let beams = self.beams.len();
            let cells = beams.checked_mul(shape.channels);
            let table = cells.and_then(|n| n.checked_mul(shape.antennas)?.checked_mul(8));
            let frame =
                cells.and_then(|n| n.checked_mul(shape.heaps * shape.spectra)?.checked_mul(2));
            if [table, frame].iter().any(|bytes| bytes.is_none_or(|bytes| bytes > MOST_BYTES)) {
                let message =
                    format!("{beams} beams of {} channels take more than 64 GiB", shape.channels);
                rejections.push(
                    Rejection::parameter("beams", message)
                        .note(At::InputAxis(0, "channel"), "channels are set here")
                        .help("split the channels or the beams among several beamformers"),
                );
            }
        }
        let (Some(shape), true) = (shape, rejections.is_empty()) else { return Err(rejections) };
        let axis = |name| input.axes.iter().find(|axis| axis.name == name).cloned();
        let beam = Axis::new("beam", self.beams.len()).from_parameter("beams");
        let counted = match shape.units {
            Units::Heap => vec![axis("heap")],
            Units::Channel => vec![axis("heap"), Some(beam.clone()), axis("channel")],
        };
        let axes = [axis("heap"), Some(beam), axis("channel"), axis("spectrum")];
        let output = PortType {
            dtype: Dtype::Ci8,
            axes: axes.into_iter().flatten().collect(),
            clock: Clock { ..input.clock },
            band: input.band,
            validity: ValidityType {
                axes: counted.into_iter().flatten().collect(),
                full: shape.antennas as u32,
            },
        };
        Ok((shape, output))
    }

    /// Complex weights `[channel][beam][antenna]`, quantiser gain included. Phases and delays are on the sky, and become
    /// those of the values.
    fn weights(&self, shape: &Stacked, band: Option<&Band>) -> Vec<Complex32> {
        let sign = band.map_or(1.0, |band| band.sideband.sign());
        let mut weights = Vec::with_capacity(shape.channels * self.beams.len() * shape.antennas);
        for channel in 0..shape.channels {
            let offset_hz = band.map_or(0.0, |band| band.from_centre_hz(channel));
            for beam in &self.beams {
                for antenna in 0..shape.antennas {
                    // Reduced in turns, so that a long delay keeps its precision.
                    let turns = (beam.delays_seconds.of(antenna) * offset_hz).fract();
                    let turns = turns - self.late_turns(beam, antenna, offset_hz, band);
                    let angle = beam.phases_radians.of(antenna) - std::f64::consts::TAU * turns;
                    let weight =
                        Complex64::from_polar(1.0, sign * angle) * beam.weights.of(antenna);
                    let weight = weight * beam.gain;
                    weights.push(Complex32::new(weight.re as f32, weight.im as f32));
                }
            }
        }
        weights
    }

    /// Phase lag, in turns, at `antenna` of a wave from the direction of `beam`; 0 without a direction.
    fn late_turns(&self, beam: &Beam, antenna: usize, offset_hz: f64, band: Option<&Band>) -> f64 {
        let place = self.antennas_enu_metres.get(antenna);
        let (Some(direction), Some(place), Some(band)) = (beam.towards, place, band) else {
            return 0.0;
        };
        (direction.delay_seconds(*place) * (band.centre_hz + offset_hz)).fract()
    }

    fn threads(&self, shape: &Stacked) -> usize {
        threads_for(self.threads, self.products_per_frame(shape)).min(shape.channels)
    }

    /// Complex multiply-accumulates of one frame.
    fn products_per_frame(&self, shape: &Stacked) -> f64 {
        let values = shape.heaps * shape.antennas * shape.channels * shape.spectra;
        values as f64 * self.beams.len() as f64
    }
}

/// One heap of this many in a measured frame is measured, the first one of them: with many beams to measure all of them
/// costs a GPU up to a tenth of its time.
const MEASURED_HEAPS: usize = 8;
/// Frames that are measured in a second at least, if there are as many; and the largest number of frames of which one is measured.
const MEASURED_PER_SECOND: f64 = 2.0;
const MOST_UNMEASURED: f64 = 64.0;

/// Counters of both implementations, and the levels of the beams.
struct Counts {
    values_saturated: Counter,
    heaps_incomplete: Counter,
    levels: OutputLevels,
    /// One of this many frames is measured.
    every: u64,
    samples_per_frame: u64,
    beams: usize,
}

impl Counts {
    fn new(block: &Configured<Beamformer>, env: &Env) -> Self {
        let (shape, beams) = (&block.shape, block.parameters.beams.len());
        let clock = &block.ports.inputs[0].clock;
        // A power of two.
        let of_second = clock.frames_per_second() / MEASURED_PER_SECOND;
        let every = of_second.clamp(1.0, MOST_UNMEASURED).log2().floor().exp2();
        let levels = OutputLevels::new(
            (0..beams).map(|beam| format!("beam{beam}")),
            2 * shape.channels * MEASURED_SPECTRA.min(shape.spectra),
            clock.frames_per_second() / every * shape.heaps.div_ceil(MEASURED_HEAPS) as f64,
            "raise `gain`",
            env,
        );
        Self {
            values_saturated: env.counters.count(
                "values_saturated",
                "complex values of beams that did not fit 8 bits and were clamped; lower the gain",
            ),
            heaps_incomplete: env.counters.count(
                "heaps_incomplete",
                "heaps to which not all antennas contributed; look for missing packets upstream",
            ),
            levels,
            every: every as u64,
            samples_per_frame: clock.samples_per_frame,
            beams,
        }
    }

    /// Whether the level of the frame at `timestamp` is measured.
    fn is_measured(&self, timestamp: u64) -> bool {
        (timestamp / self.samples_per_frame).is_multiple_of(self.every)
    }

    /// Writes the annotations `saturated` and `output_power`, both `[heap][beam]`, of an output frame with its validity.
    /// `squares` `[heap][beam]` of a frame that is measured are 0 for heaps that are not.
    fn annotate(
        &mut self,
        header: &mut Header,
        saturated: impl ExactSizeIterator<Item = u64>,
        squares: impl ExactSizeIterator<Item = u64>,
    ) {
        let table = header.annotations.reset("saturated", saturated.len());
        for (to, count) in table.iter_mut().zip(saturated) {
            *to = count as f64;
            self.values_saturated.add(count);
        }
        if !self.is_measured(header.timestamp) {
            header.annotations.reset("output_power", squares.len());
            return;
        }
        let (beams, units) = (self.beams, squares.len());
        let is_valid = |validity: &[u32], unit: usize| {
            // A count for each heap, or for each channel of each beam.
            let of_unit = validity.len() / units;
            let counts = unit * of_unit..(unit + 1) * of_unit;
            let has_data = if of_unit == 0 {
                validity[unit / beams] > 0
            } else {
                validity[counts].iter().any(|n| *n > 0)
            };
            has_data && (unit / beams).is_multiple_of(MEASURED_HEAPS)
        };
        self.levels.annotate(header, squares, is_valid, |_, _| false);
    }

    /// Validity of an output heap: the number of antennas with `valid` `[antenna]` not 0. Counts incomplete heaps.
    fn heap(&self, valid: &[u32]) -> u32 {
        self.heaps_incomplete.add(u64::from(valid.contains(&0)));
        valid.iter().filter(|&&v| v != 0).count() as u32
    }
}

/// Lowers the counts `[beam][channel]` of a heap to the numbers of antennas whose unit is there in the polarisation of
/// each beam; `units` `[antenna][channel][pol]`.
fn count_antennas(shape: &Stacked, units: &[u32], pols: &[usize], counts: &mut [u32]) {
    for (counts, pol) in counts.chunks_exact_mut(shape.channels).zip(pols) {
        for (channel, count) in counts.iter_mut().enumerate() {
            let (first, step) = (shape.pols * channel + pol, shape.pols * shape.channels);
            let units = units.iter().skip(first).step_by(step);
            *count = (*count).min(units.filter(|unit| **unit != 0).count() as u32);
        }
    }
}

/// Weights of the antennas and polarisations of the beams.
fn weights(block: &Configured<Beamformer>) -> cpu::Weights {
    let table = block.parameters.weights(&block.shape, block.ports.inputs[0].band.as_ref());
    let pols = block.parameters.beams.iter().map(|beam| beam.pol).collect();
    cpu::Weights { table, pols }
}

/// Index, in the whole band, of the first channel of the input.
fn first_channel(block: &Configured<Beamformer>) -> usize {
    block.ports.inputs[0].band.map_or(0, |band| band.first_channel)
}

/// A GPU implementation.
const fn cuda(
    name: &'static str,
    summary: &'static str,
    build: Build<Beamformer>,
) -> Implementation<Beamformer> {
    Implementation::cuda(name, summary, build)
        .device_bytes(|block| cuda::device_bytes(&block.parameters, &block.shape))
}

/// Creates a block with the kernel for `architecture`, or the best one.
fn gpu_block(
    block: &Configured<Beamformer>,
    architecture: Option<Architecture>,
    env: &Env,
) -> Result<Box<dyn Block>, BlockError> {
    let Configured { parameters, shape, .. } = block;
    let (weights, first) = (weights(block), first_channel(block));
    GpuMapped::build(env, |pipeline| {
        let counts = Counts::new(block, env);
        Cuda::new(parameters, *shape, &weights, first, architecture, (counts, pipeline.device()))
    })
}

impl KindSpec for Beamformer {
    type Shape = Stacked;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| {
            let Configured { parameters, shape, .. } = block;
            let (weights, first) = (weights(block), first_channel(block));
            let threads = parameters.threads(shape);
            let counts = Counts::new(block, env);
            Ok(Box::new(cpu::Cpu::new(parameters, *shape, weights, first, threads, counts)?))
        }),
        cuda(
            "cuda",
            "`hopper` on a GPU of compute capability 9.0, otherwise `tensor_core`",
            |block, env| gpu_block(block, None, env),
        )
        .check(|block, gpu| cuda::rejections(&block.parameters, &block.shape, gpu, None))
        .tunable(|block| Some(tensor_core::tunable(&block.parameters, &block.shape))),
        cuda(
            "hopper",
            "integers on warpgroup matrix instructions: compute capability 9.0",
            |block, env| gpu_block(block, Some(Architecture::Hopper), env),
        )
        .check(|block, gpu| {
            cuda::rejections(&block.parameters, &block.shape, gpu, Some(Architecture::Hopper))
        }),
        cuda(
            "tensor_core",
            "any GPU, with each weight as the sum of two half-precision numbers",
            |block, env| gpu_block(block, Some(Architecture::TensorCore), env),
        )
        .check(|block, gpu| {
            cuda::rejections(&block.parameters, &block.shape, gpu, Some(Architecture::TensorCore))
        })
        .tunable(|block| Some(tensor_core::tunable(&block.parameters, &block.shape))),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Stacked> {
        self.output(&inputs[0]).map(|(shape, output)| (shape, vec![output]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let (parameters, shape) = (&block.parameters, &block.shape);
        let beams = parameters.beams.len();
        let table = shape.channels * beams * shape.antennas * size_of::<Complex32>();
        let workers = cpu::worker_bytes(shape, beams, parameters.threads(shape));
        Resources {
            host_bytes: table + workers,
            // The block holds an input frame until all of its heaps are done.
            holds: vec![1],
            operations_per_frame: 8.0 * parameters.products_per_frame(shape),
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

impl LiveKind for Beamformer {
    type Value = cpu::Weights;

    fn live_value(
        new: &Configured<Self>,
        BeamformerLive::Beams: BeamformerLive,
        _: &Configured<Self>,
    ) -> Result<cpu::Weights, BlockError> {
        Ok(weights(new))
    }
}
