#![doc = include_str!("README.md")]

pub mod accumulate;
mod architecture;
mod bench;
pub mod conformance;
mod cpu;
mod cuda;
pub mod definition;
mod dumps;
mod flagged;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod flagged_tests;
mod floats;
#[cfg(test)]
mod floats_tests;
pub mod pack;
mod products;
mod rows;
mod schedule;
mod sum_bound;
mod sums;
mod tensor_map;
#[cfg(test)]
pub(crate) mod tests;
mod wide_sums;

use crate::common::parallel::{MAX_THREADS, threads_for};
use crate::common::stacked::Stacked;
use crate::common::units::Units;
use accumulate::Accumulator;
use architecture::Architecture;
use cuda::Cuda;
use dumps::Dumps;
use floats::FloatAccumulator;
use fxgraph::DeviceName;
use fxgraph::cuda::Properties;
use fxgraph::diagnostic::codes;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::kind::Build;
use fxgraph::kind::Rounded;
use fxgraph::{
    At, Axis, Block, BlockError, Checked, Clock, Configured, Dtype, Env, Implementation,
    Implementations, Kind, KindSpec, PortType, Rejection, Resources, ValidityType,
};
use fxgraph_dsp::correlator::Kernel;
use fxgraph_dsp::simd;
use sums::Sums;

/// Parameters of the block `correlator`.
#[derive(Clone, Debug, Default, Kind)]
#[kind(
    name = "correlator",
    page = "README.md",
    examples("example.yaml", "half_precision.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct Correlator {
    /// Spectra per dump; a multiple of the spectra per heap. Set either this or `dump_seconds`.
    pub spectra_per_dump: Option<u64>,
    /// Length of a dump in seconds, rounded to whole heaps (at least one). `fxgraph plan` shows the
    /// result; a difference of more than 10 % is a warning.
    pub dump_seconds: Option<f64>,
    /// Threads that share the channels, 0 for all cores. Small frames use one thread. By default 0,
    /// because a flowgraph has one correlator for all antennas.
    #[param(default, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

/// Supported types of the voltages.
const DTYPES: &[Dtype] = &[Dtype::Ci8, Dtype::Ci4, Dtype::Cf16];
/// Largest number of spectra per dump for which sums of products of 8-bit numbers fit in 64 bits.
const MOST_SPECTRA: u64 = 1 << 47;
/// Largest output frame in bytes; a larger one is taken to be a mistake.
const MOST_BYTES: usize = 1 << 36;

impl Correlator {
    /// Heaps per dump.
    ///
    /// # Errors
    /// If the length of a dump is not set, is set twice, or is out of range.
    fn heaps_per_dump(&self, shape: &Stacked, clock: &Clock) -> Result<u64, Box<Rejection>> {
        let spectra = shape.spectra as u64;
        let whole = |at, heaps: u64, message: String, help: String| {
            let fits = heaps
                .checked_mul(shape.samples_per_heap())
                .is_some_and(|samples| samples < 1 << 60);
            if heaps == 0 || heaps > u64::from(u32::MAX) || heaps * spectra > MOST_SPECTRA || !fits
            {
                return Err(out_of_range(at, message, help));
            }
            Ok(heaps)
        };
        match (self.spectra_per_dump, self.dump_seconds) {
            (Some(wanted), None) => {
                let at = At::Parameter("spectra_per_dump");
                if wanted % spectra != 0 {
                    let below = wanted - wanted % spectra;
                    let above = below.saturating_add(spectra);
                    let help = match below {
                        0 => format!("use {spectra}, the shortest dump"),
                        _ => format!("use {below} or {above}, the nearest multiples"),
                    };
                    let message = format!(
                        "`spectra_per_dump` must be a multiple of the {spectra} spectra per heap, got {wanted}"
                    );
                    let note = "spectra per heap are set here".to_owned();
                    let mut rejection = out_of_range(at, message, help);
                    rejection.notes.push((At::InputAxis(0, "spectrum"), note));
                    return Err(rejection);
                }
                let message = format!("`spectra_per_dump` is out of range, got {wanted}");
                let help = format!("use at least {spectra}, the spectra of one heap");
                whole(at, wanted / spectra, message, help)
            }
            (None, Some(seconds)) => {
                let heap_seconds = shape.samples_per_heap() as f64 / clock.adc_sample_rate_hz;
                let at = At::Parameter("dump_seconds");
                let message = format!("`dump_seconds` is out of range, got {seconds}");
                let help =
                    format!("use a multiple of {heap_seconds:.3e} s, the length of one heap");
                if !seconds.is_finite() || seconds <= 0.0 || !heap_seconds.is_normal() {
                    return Err(out_of_range(at, message, help));
                }
                // The conversion saturates, and the largest integer is rejected.
                whole(at, ((seconds / heap_seconds).round() as u64).max(1), message, help)
            }
            (Some(_), Some(_)) => {
                let at = At::Parameter("dump_seconds");
                let message = "`dump_seconds` and `spectra_per_dump` exclude each other";
                Err(out_of_range(at, message, "omit one of them"))
            }
            (None, None) => {
                let message = "the length of a dump is not set";
                let help =
                    "set `spectra_per_dump` or `dump_seconds`, for example `dump_seconds: 0.5`";
                Err(out_of_range(At::Block, message, help))
            }
        }
    }

    fn output(&self, input: &PortType) -> Result<(Stacked, PortType), Vec<Rejection>> {
        let mut rejections = Vec::new();
        let shape = match Stacked::of_port(input, DTYPES) {
            Ok(shape) => shape,
            Err(more) => {
                rejections.extend(more);
                return Err(rejections);
            }
        };
        let products = shape.antennas.checked_mul(shape.antennas + 1).map(|n| n / 2);
        let bytes =
            products.and_then(|n| n.checked_mul(8 * shape.products())?.checked_mul(shape.channels));
        if bytes.is_none_or(|bytes| bytes > MOST_BYTES) {
            let message = format!(
                "a dump of {} antennas and {} channels takes more than 64 GiB",
                shape.antennas, shape.channels
            );
            rejections.push(
                Rejection::new(codes::INPUT_AXIS, At::InputAxis(0, "antenna"), message)
                    .note(At::InputAxis(0, "channel"), "channels are set here")
                    .help("split the channels among several correlators"),
            );
        }
        let heaps = self
            .heaps_per_dump(&shape, &input.clock)
            .map_err(|rejection| rejections.push(*rejection));
        let (Ok(heaps), true) = (heaps, rejections.is_empty()) else { return Err(rejections) };
        let channel = input.axes.iter().find(|axis| axis.name == "channel").cloned();
        let antenna = input.axes.iter().find(|axis| axis.name == "antenna");
        let names = antenna.map_or(&[][..], |antenna| &antenna.labels);
        let labels =
            |two: usize| (0..=two).map(move |one| format!("{}-{}", names[one], names[two]));
        let labels: Vec<String> = (0..names.len()).flat_map(labels).collect();
        let baseline =
            || Axis { labels: labels.clone(), ..Axis::new("baseline", shape.baselines()) };
        let axes: Vec<Axis> = channel
            .into_iter()
            .chain([baseline(), Axis::new("product", shape.products())])
            .collect();
        let counted = match shape.units {
            Units::Heap => vec![baseline()],
            Units::Channel => axes.clone(),
        };
        let output = PortType {
            dtype: if shape.dtype == Dtype::Cf16 { Dtype::Cf32 } else { Dtype::Ci32 },
            axes,
            clock: Clock { samples_per_frame: heaps * shape.samples_per_heap(), ..input.clock },
            band: input.band,
            validity: ValidityType { axes: counted, full: heaps as u32 },
        };
        Ok((shape, output))
    }

    /// Threads that share a frame.
    fn threads(&self, shape: &Stacked) -> usize {
        let products = products_per_heap(shape) * shape.heaps as f64;
        threads_for(self.threads, products).min(shape.channels)
    }
}

fn out_of_range(at: At, message: impl Into<String>, help: impl Into<String>) -> Box<Rejection> {
    Box::new(Rejection::new(codes::PARAMETER_OUT_OF_RANGE, at, message).help(help))
}

/// Complex multiply-accumulates per heap of all antennas.
fn products_per_heap(shape: &Stacked) -> f64 {
    (shape.products() * shape.baselines()) as f64 * shape.channels as f64 * shape.spectra as f64
}

impl KindSpec for Correlator {
    type Shape = Stacked;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(reference),
        cuda(
            "cuda",
            "the faster of `hopper` and `tensor_core` on the installed GPU",
            |block, env| gpu_block(block, Architecture::best, env),
        ),
        cuda("hopper", "warpgroup matrix instructions: compute capability 9.0", |block, env| {
            gpu_block(block, |_, _| Architecture::Hopper, env)
        })
        .check(|block, gpu| {
            let mut rejections = reject_size(block, gpu);
            rejections.extend(architecture::reject_hopper(block.shape.dtype, gpu));
            rejections
        }),
        cuda("tensor_core", "any GPU of compute capability 8.0 or later", |block, env| {
            gpu_block(block, |_, _| Architecture::TensorCore, env)
        }),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Stacked> {
        self.output(&inputs[0]).map(|(shape, output)| (shape, vec![output]))
    }

    fn rounded(block: &Configured<Self>) -> Vec<Rounded> {
        let Some(given) = block.parameters.dump_seconds else { return Vec::new() };
        let (input, output) = (&block.ports.inputs[0].clock, &block.ports.outputs[0].clock);
        let used = output.frames_per_second().recip();
        let step = block.shape.samples_per_heap() as f64 / input.adc_sample_rate_hz;
        vec![Rounded { parameter: "dump_seconds", unit: "s", given, used, step }]
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let shape = &block.shape;
        let threads = block.parameters.threads(shape);
        let heaps = block.ports.outputs[0].validity.full;
        let counts = match shape.units {
            Units::Heap => 0,
            Units::Channel => 4 * shape.products() * shape.channels * shape.baselines(),
        };
        let host_bytes = match shape.dtype {
            Dtype::Cf16 => FloatAccumulator::bytes(shape, threads),
            _ => Accumulator::bytes(shape, Kernel::best(shape.inputs()), threads),
        };
        Resources {
            host_bytes: host_bytes.saturating_add(counts),
            // A complex multiply-accumulate is 4 multiplications and 4 additions.
            operations_per_frame: 8.0 * products_per_heap(shape) * f64::from(heaps),
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

/// Creates the reference implementation.
fn reference(block: &Configured<Correlator>, env: &Env) -> Result<Box<dyn Block>, BlockError> {
    let shape = block.shape;
    let (threads, clock) = (block.parameters.threads(&shape), &block.ports.outputs[0].clock);
    let dumps = Dumps::new(shape, clock, &env.counters);
    let seconds = clock.samples_per_frame as f64 / clock.adc_sample_rate_hz;
    let sums = if shape.dtype == Dtype::Cf16 {
        let instructions = simd::InstructionSet::best();
        tracing::info!(block = env.name, ?instructions, threads, "dumps of {seconds} s");
        cpu::Sums::Floats(FloatAccumulator::new(shape, instructions, threads)?)
    } else {
        let kernel = Kernel::best(shape.inputs());
        tracing::info!(block = env.name, ?kernel, threads, "dumps of {seconds} s");
        cpu::Sums::Integers(Accumulator::new(shape, kernel, threads)?)
    };
    Ok(Box::new(cpu::Cpu::new(shape, sums, dumps)))
}

/// Declares an implementation on a GPU.
const fn cuda(
    name: &'static str,
    summary: &'static str,
    build: Build<Correlator>,
) -> Implementation<Correlator> {
    Implementation::cuda(name, summary, build).check(reject_size).device_bytes(|block| {
        Sums::bytes(&block.shape, spectra_per_dump(&block.shape, &block.ports.outputs[0].clock))
    })
}

fn reject_size(block: &Configured<Correlator>, _: Option<&Properties>) -> Vec<Rejection> {
    Vec::from_iter(sums::reject_size(&block.shape))
}

/// Creates a block with the kernel that `architecture` selects for a type of voltages and a compute capability.
fn gpu_block(
    block: &Configured<Correlator>,
    architecture: fn(Dtype, (usize, usize)) -> Architecture,
    env: &Env,
) -> Result<Box<dyn Block>, BlockError> {
    let clock = &block.ports.outputs[0].clock;
    let dumps = Dumps::new(block.shape, clock, &env.counters);
    let spectra = spectra_per_dump(&block.shape, clock);
    Ok(Box::new(Cuda::new(block.shape, spectra, dumps, architecture, env)?))
}

/// Spectra per dump for the clock of the output.
fn spectra_per_dump(shape: &Stacked, dump: &Clock) -> u64 {
    dump.samples_per_frame / shape.samples_per_spectrum
}
