#![doc = include_str!("README.md")]

mod bench;
pub mod conformance;
mod cpu;
mod cuda;
mod geometry;
#[cfg(test)]
mod tests;

use crate::common::parallel::{MAX_THREADS, threads_for};
use crate::gnss::samples::Samples;
use crate::gnss::satellites::{narrow_bands, reject_satellites};
use fxgraph::DeviceName;
use fxgraph::cuda::GpuMapped;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::{
    Axis, BlockError, Checked, Configured, Counter, Dtype, Env, Implementation, Implementations,
    Kind, KindSpec, LiveKind, Mapped, PortType, Rejection, Resources, ValidityType,
};
use fxgraph_dsp::gnss::{Nco, Replica, Satellite, System, phase};

/// Largest number of correlator taps, and their largest offset in chips.
const MAX_TAPS: usize = 64;
const MAX_TAP_CHIPS: f64 = 500.0;
/// Largest output frame.
const MAX_BYTES: usize = 1 << 32;

/// Parameters of `gnss_correlator`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "gnss_correlator",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct GnssCorrelator {
    /// Satellites, with the phases of their signals.
    #[param(live)]
    pub satellites: Vec<Satellite>,
    /// Offsets of the correlator taps in chips; positive offsets are early.
    #[param(default = vec![0.5, 0.0, -0.5])]
    pub taps_chips: Vec<f64>,
    /// Frequency of the carrier in the samples without Doppler shift, in Hz; by default that of the input's band, or 0
    /// without a band.
    pub intermediate_hz: Option<f64>,
    /// Number of epochs in a frame: sums over equal parts of its samples.
    #[param(default = 1)]
    pub epochs_per_frame: usize,
    /// Threads that share the satellites; 0 uses all cores, or one thread if a frame has too little work.
    #[param(default, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

/// Replica and phases of a satellite's signal.
pub struct Channel {
    system: System,
    prn: usize,
    replica: Replica,
    /// Phases at timestamp 0.
    nco: Nco,
    /// Offset of each correlator tap, as a phase of the code.
    taps: Vec<u64>,
}

impl Channel {
    /// Returns the phases at `timestamp`.
    fn at(&self, timestamp: u64, samples: &Samples) -> Nco {
        let mut nco = self.nco;
        nco.advance_ticks(timestamp, samples.ratio());
        nco
    }
}

/// Sizes of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    samples: Samples,
    epochs: usize,
    satellites: usize,
    taps: usize,
}

impl Shape {
    fn samples_per_epoch(&self) -> usize {
        self.samples.samples / self.epochs
    }

    /// Timestamp of an epoch of the frame at `start`: that of its first sample, or the next one.
    fn epoch_timestamp(&self, start: u64, epoch: usize) -> u64 {
        start.saturating_add(self.samples.ticks_of(epoch * self.samples_per_epoch()))
    }
}

impl GnssCorrelator {
    fn shape(&self, input: &PortType) -> Result<Shape, Vec<Rejection>> {
        let mut rejections = Vec::new();
        let samples = Samples::of_port(input, 0, self.intermediate_hz)
            .map_err(|more| rejections.extend(more))
            .ok();
        let mut reject = |parameter, message: String, help: String| {
            rejections.push(Rejection::parameter(parameter, message).help(help));
        };
        let taps = self.taps_chips.len();
        if taps == 0 || taps > MAX_TAPS {
            reject(
                "taps_chips",
                format!("`taps_chips` must have 1 to {MAX_TAPS} entries, got {taps}"),
                "give offsets such as [0.5, 0, -0.5]".to_owned(),
            );
        }
        if let Some(tap) =
            self.taps_chips.iter().find(|tap| tap.is_nan() || tap.abs() > MAX_TAP_CHIPS)
        {
            let message = format!(
                "`taps_chips` must be between -{MAX_TAP_CHIPS} and {MAX_TAP_CHIPS} chips, got {tap}"
            );
            reject("taps_chips", message, "give offsets such as [0.5, 0, -0.5]".to_owned());
        }
        let epochs = self.epochs_per_frame;
        if let Some(Samples { samples, .. }) = samples
            && (epochs == 0 || !samples.is_multiple_of(epochs))
        {
            let message = format!(
                "`epochs_per_frame` must divide the {samples} samples of a frame, got {epochs}"
            );
            reject("epochs_per_frame", message, "give a divisor such as 1".to_owned());
        }
        rejections.extend(reject_satellites(self.satellites.iter(), samples.as_ref()));
        match samples {
            Some(samples) if rejections.is_empty() => {
                Ok(Shape { samples, epochs, satellites: self.satellites.len(), taps })
            }
            _ => Err(rejections),
        }
    }

    fn channels(&self, samples: &Samples) -> Result<Vec<Channel>, BlockError> {
        let channel = |satellite: &Satellite| {
            let replica = Replica::of(satellite).ok_or_else(|| {
                BlockError::new(format!("satellite {} does not exist", satellite.label()))
            })?;
            let at_zero = Satellite { at_timestamp: 0, ..satellite.clone() };
            let carrier_hz = samples.carrier_hz(satellite.system);
            let mut nco = Nco::new(&at_zero, &replica, carrier_hz, samples.rate_hz, 0);
            nco.go_back_ticks(satellite.at_timestamp, samples.ratio());
            let taps = taps(self, &replica);
            Ok(Channel { system: satellite.system, prn: satellite.prn, replica, nco, taps })
        };
        self.satellites.iter().map(channel).collect()
    }
}

/// Returns the offsets of the correlator taps as phases of the code.
fn taps(parameters: &GnssCorrelator, replica: &Replica) -> Vec<u64> {
    parameters.taps_chips.iter().map(|chips| phase::tap(*chips, replica)).collect()
}

/// Counter of both implementations.
struct Counts {
    frames_incomplete: Counter,
}

impl Counts {
    fn new(env: &Env) -> Self {
        let frames_incomplete = env.counters.count(
            "frames_incomplete",
            "frames with missing samples; look for missing data upstream",
        );
        Self { frames_incomplete }
    }

    /// Flags the output as valid if the input frame is complete.
    fn validity(&self, input: &[u32], output: &mut [u32]) {
        let is_whole = input.iter().all(|count| *count != 0);
        self.frames_incomplete.add(u64::from(!is_whole));
        output.fill(u32::from(is_whole));
    }
}

impl KindSpec for GnssCorrelator {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| {
            let Configured { parameters, shape, .. } = block;
            let channels = parameters.channels(&shape.samples)?;
            let operations = Self::resources(block).operations_per_frame;
            let threads = threads_for(parameters.threads, operations).min(shape.satellites);
            // Satellites with another carrier are multiplied sample by sample.
            let carrier_hz = shape.samples.carrier_hz(parameters.satellites[0].system);
            let shared_step = phase::turns(carrier_hz / shape.samples.rate_hz);
            Ok(Box::new(Mapped(cpu::Cpu::new(*shape, shared_step, channels, threads, env)?)))
        }),
        Implementation::<Self>::cuda(
            "cuda",
            "all satellites and epochs of a frame in one launch",
            |block, env| {
                let channels = block.parameters.channels(&block.shape.samples)?;
                GpuMapped::build(env, |pipeline| {
                    cuda::Cuda::new(
                        &block.parameters,
                        block.shape,
                        channels,
                        env,
                        pipeline.device(),
                    )
                })
            },
        )
        .check(|block, _| geometry::rejections(&block.shape))
        .device_bytes(|block| cuda::device_bytes(&block.parameters, &block.shape)),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        let input = &inputs[0];
        let shape = self.shape(input)?;
        let lens = [shape.epochs, shape.satellites, shape.samples.antennas, shape.taps];
        let bytes = lens.iter().try_fold(8_usize, |bytes, len| bytes.checked_mul(*len));
        if bytes.is_none_or(|bytes| bytes > MAX_BYTES) {
            let message = "an output frame must have at most 4 GiB";
            let rejection = Rejection::parameter("epochs_per_frame", message);
            return Err(vec![rejection.help("use fewer epochs, satellites or correlator taps")]);
        }
        let axes = vec![
            Axis::new("epoch", shape.epochs).from_parameter("epochs_per_frame"),
            Axis::labelled("satellite", self.satellites.iter().map(Satellite::label))
                .from_parameter("satellites"),
            Axis::new("antenna", shape.samples.antennas),
            Axis::new("tap", shape.taps).from_parameter("taps_chips"),
        ];
        let output = PortType {
            dtype: Dtype::Cf32,
            axes,
            clock: input.clock,
            band: None,
            validity: ValidityType::flags(vec![]),
        };
        Ok((shape, vec![output]))
    }

    fn warnings(block: &Configured<Self>) -> Vec<Rejection> {
        narrow_bands(block.parameters.satellites.iter().map(|s| s.system), &block.shape.samples)
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let shape = &block.shape;
        let satellites = &block.parameters.satellites;
        let replicas: usize = satellites.iter().map(|s| Replica::bytes(s.system)).sum();
        let products = (shape.satellites * shape.samples.antennas * shape.samples.samples) as f64;
        Resources {
            host_bytes: replicas + cpu::worker_bytes(shape),
            // A complex product with the carrier; for each correlator tap two products and sums.
            operations_per_frame: products * (8.0 + 4.0 * shape.taps as f64),
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

impl LiveKind for GnssCorrelator {
    type Value = Vec<Channel>;

    fn live_value(
        new: &Configured<Self>,
        GnssCorrelatorLive::Satellites: GnssCorrelatorLive,
        running: &Configured<Self>,
    ) -> Result<Vec<Channel>, BlockError> {
        let systems = |of: &Self| of.satellites.iter().map(|s| s.system).collect::<Vec<_>>();
        if systems(&new.parameters) != systems(&running.parameters) {
            let message =
                "the number and systems of `satellites` cannot change while the block runs";
            return Err(BlockError::new(message));
        }
        new.parameters.channels(&new.shape.samples)
    }
}
