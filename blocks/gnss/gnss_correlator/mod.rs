#![doc = include_str!("README.md")]

mod bench;
pub mod conformance;
mod cpu;
mod cuda;
mod geometry;
#[cfg(test)]
mod tests;

use crate::common::parallel::{refuse_threads, threads_for};
use crate::gnss::signals::planes::Samples;
use crate::gnss::signals::satellite::refuse_satellites;
use crate::gnss::signals::{Nco, Replica, Satellite, System, phase};
use fxgraph::DeviceName;
use fxgraph::cuda::Properties;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::retune::LiveValue;
use fxgraph::{
    Axis, Block, BlockError, CPU, Counter, Dtype, Env, Frame, FrameMut, Implementation, Kind,
    PortNames, PortType, Ports, Refusal, Resources, ValidityType,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Most taps, and how far they may be away.
const MAX_TAPS: usize = 64;
const MAX_TAP_CHIPS: f64 = 500.0;
/// Largest output frame.
const MAX_BYTES: usize = 1 << 32;

/// Parameters of `gnss_correlator`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GnssCorrelator {
    /// The satellites, with the phases of their signals.
    pub satellites: Vec<Satellite>,
    /// Offsets of the taps in chips; positive ones are early.
    #[serde(default = "default_taps")]
    pub taps_chips: Vec<f64>,
    /// Where the band's carrier lies in the samples, in Hz, before the satellites' Doppler shifts.
    #[serde(default)]
    pub intermediate_hz: f64,
    /// Sums that are made of a frame, each of an equal part of its samples.
    #[serde(default = "one")]
    pub epochs_per_frame: usize,
    /// Threads that share the satellites, 0 for all cores, or one if a frame is too little work to
    /// share.
    #[serde(default)]
    pub threads: usize,
}

fn default_taps() -> Vec<f64> {
    vec![0.5, 0.0, -0.5]
}
fn one() -> usize {
    1
}

/// A satellite's signal, ready to be compared.
pub(crate) struct Channel {
    system: System,
    prn: usize,
    replica: Replica,
    /// At timestamp 0.
    nco: Nco,
    /// Offset of each tap.
    taps: Vec<u64>,
}

impl Channel {
    /// Its phases at `timestamp`.
    fn at(&self, timestamp: u64) -> Nco {
        let mut nco = self.nco;
        nco.advance(timestamp);
        nco
    }
}

/// Sizes of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    samples: Samples,
    epochs: usize,
    satellites: usize,
    taps: usize,
}

impl Shape {
    fn samples_per_epoch(&self) -> usize {
        self.samples.samples / self.epochs
    }
}

impl GnssCorrelator {
    fn shape(&self, input: &PortType) -> Result<Shape, Vec<Refusal>> {
        let mut refusals = Vec::from_iter(refuse_threads(self.threads));
        let samples = Samples::of_port(input, 0).map_err(|more| refusals.extend(more)).ok();
        let mut refuse = |parameter, message: String, help: String| {
            refusals.push(Refusal::parameter(parameter, message).help(help));
        };
        let taps = self.taps_chips.len();
        if taps == 0 || taps > MAX_TAPS {
            refuse(
                "taps_chips",
                format!("{taps} taps are out of range"),
                format!("1 to {MAX_TAPS}"),
            );
        }
        if let Some(tap) =
            self.taps_chips.iter().find(|tap| tap.is_nan() || tap.abs() > MAX_TAP_CHIPS)
        {
            let help = format!("up to {MAX_TAP_CHIPS} chips to either side");
            refuse("taps_chips", format!("a tap at {tap} chips is out of range"), help);
        }
        let epochs = self.epochs_per_frame;
        if let Some(Samples { samples, .. }) = samples
            && (epochs == 0 || !samples.is_multiple_of(epochs))
        {
            let message = format!("{samples} samples are not {epochs} equal epochs");
            refuse("epochs_per_frame", message, "a divisor of the samples of a frame".to_owned());
        }
        if !self.intermediate_hz.is_finite() {
            let message = "the intermediate frequency is not finite".to_owned();
            refuse(
                "intermediate_hz",
                message,
                "0 if the band is centred on the carrier".to_owned(),
            );
        }
        let rate_hz = samples.map(|samples| samples.rate_hz);
        refusals.extend(refuse_satellites(self.satellites.iter(), self.intermediate_hz, rate_hz));
        match samples {
            Some(samples) if refusals.is_empty() => {
                Ok(Shape { samples, epochs, satellites: self.satellites.len(), taps })
            }
            _ => Err(refusals),
        }
    }

    fn channels(&self, rate_hz: f64) -> Result<Vec<Channel>, BlockError> {
        let channel = |satellite: &Satellite| {
            let replica = Replica::of(satellite).ok_or_else(|| {
                BlockError::new(format!("there is no satellite {}", satellite.label()))
            })?;
            let nco = Nco::new(satellite, &replica, self.intermediate_hz, rate_hz, 0);
            let taps = taps(self, &replica);
            Ok(Channel { system: satellite.system, prn: satellite.prn, replica, nco, taps })
        };
        self.satellites.iter().map(channel).collect()
    }
}

/// Offsets of the taps in units of a code's phase.
fn taps(parameters: &GnssCorrelator, replica: &Replica) -> Vec<u64> {
    parameters.taps_chips.iter().map(|chips| phase::tap(*chips, replica)).collect()
}

/// What both forms count.
struct Counts {
    frames_incomplete: Counter,
}

impl Counts {
    fn new(env: &Env) -> Self {
        let frames_incomplete = env.counters.count(
            "frames_incomplete",
            "Frames of which samples were missing; look for losses upstream.",
        );
        Self { frames_incomplete }
    }

    /// Writes the header of the sums of a frame.
    fn begin(&self, input: &Frame, output: &mut FrameMut) {
        let is_whole = input.header().validity.iter().all(|count| *count != 0);
        self.frames_incomplete.add(u64::from(!is_whole));
        let header = output.header_mut();
        header.continue_from(input.header());
        header.validity.fill(u32::from(is_whole));
    }
}

impl Kind for GnssCorrelator {
    const NAME: &'static str = "gnss_correlator";
    const DOC: &'static str = include_str!("README.md");
    const INPUTS: PortNames = PortNames::Fixed(&["input"]);
    const OUTPUTS: PortNames = PortNames::Fixed(&["output"]);

    const IMPLEMENTATIONS: &'static [Implementation] =
        &[CPU, Implementation::cuda("cuda", "all satellites and epochs of a frame in one launch")];

    const LIVE: &'static [&'static str] = &["satellites"];

    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        let input = &inputs[0];
        let shape = self.shape(input)?;
        let lens = [shape.epochs, shape.satellites, shape.samples.antennas, shape.taps];
        let bytes = lens.iter().try_fold(8_usize, |bytes, len| bytes.checked_mul(*len));
        if bytes.is_none_or(|bytes| bytes > MAX_BYTES) {
            let message = "the sums of a frame take more than 4 GiB";
            let refusal = Refusal::parameter("epochs_per_frame", message);
            return Err(vec![refusal.help("fewer epochs, or shorter frames")]);
        }
        let axes = vec![
            Axis::new("epoch", shape.epochs).from_parameter("epochs_per_frame"),
            Axis::labelled("satellite", self.satellites.iter().map(Satellite::label))
                .from_parameter("satellites"),
            Axis::new("antenna", shape.samples.antennas),
            Axis::new("tap", shape.taps).from_parameter("taps_chips"),
        ];
        Ok(vec![PortType {
            dtype: Dtype::Cf32,
            axes,
            clock: input.clock,
            band: None,
            validity: ValidityType::flags(vec![]),
        }])
    }

    fn resources(&self, ports: &Ports) -> Resources {
        let Ok(shape) = self.shape(&ports.inputs[0]) else { return Resources::default() };
        let replicas: usize = self.satellites.iter().map(|s| Replica::bytes(s.system)).sum();
        let products = (shape.satellites * shape.samples.antennas * shape.samples.samples) as f64;
        Resources {
            host_bytes: replicas + cpu::worker_bytes(&shape),
            // A complex product with the carrier; for each tap two products and sums.
            operations_per_frame: products * (8.0 + 4.0 * shape.taps as f64),
            ..Resources::default()
        }
    }

    fn check(&self, ports: &Ports, implementation: &str, _: Option<&Properties>) -> Vec<Refusal> {
        match self.shape(&ports.inputs[0]) {
            Ok(shape) if implementation != CPU.name => geometry::refusals(&shape),
            _ => Vec::new(),
        }
    }

    fn device_bytes(&self, ports: &Ports, _implementation: &str) -> usize {
        let shape = self.shape(&ports.inputs[0]);
        shape.map_or(0, |shape| cuda::device_bytes(self, &shape))
    }

    fn live_value(
        &self,
        _parameter: &str,
        running: &Self,
        ports: &Ports,
    ) -> Result<LiveValue, BlockError> {
        let systems = |of: &Self| of.satellites.iter().map(|s| s.system).collect::<Vec<_>>();
        if systems(self) != systems(running) {
            let message = "other numbers or systems of satellites need a new block";
            return Err(BlockError::new(message));
        }
        Ok(Box::new(self.channels(ports.inputs[0].clock.adc_sample_rate_hz)?))
    }

    fn build(&self, ports: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        let unfit =
            |_| BlockError::new("the input is not a stream of samples that the signals fit in");
        let shape = self.shape(&ports.inputs[0]).map_err(unfit)?;
        let channels = self.channels(shape.samples.rate_hz)?;
        if env.implementation == "cuda" {
            return Ok(Box::new(cuda::Cuda::new(self, shape, channels, env)?));
        }
        let operations = self.resources(ports).operations_per_frame;
        let threads = threads_for(self.threads, operations).min(shape.satellites);
        let shared_step = phase::turns(self.intermediate_hz / shape.samples.rate_hz);
        Ok(Box::new(cpu::Cpu::new(shape, shared_step, channels, threads, env)?))
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }

    fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
        bench::benchmarks(device)
    }
}
