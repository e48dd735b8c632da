#![doc = include_str!("README.md")]

mod bench;
mod channels;
mod conformance;
mod cpu;
mod cuda;
mod shape;
mod statistics;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use channels::ChannelRange;
pub use shape::Shape;

use fxgraph::changes::{Change, Changes, Timed};
use fxgraph::cuda::GpuMapped;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::{
    BlockError, Checked, Configured, DeviceName, Implementation, Implementations, Kind, KindSpec,
    LiveKind, Mapped, PortType, Rejection, Resources,
};
use fxgraph_dsp::kurtosis::{FALSE_ALARM_PROBABILITY, Limits, Test};

/// Parameters of `spectral_kurtosis`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "spectral_kurtosis",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct SpectralKurtosis {
    /// Probability that Gaussian noise is above the upper limit, and the same for the lower limit.
    #[param(default = 0.001_349_898, range = 1e-9..=0.1, live)]
    pub false_alarm_probability: f64,
    /// Channels that are flagged in every heap: indices of the input's channel axis, or ranges `[first, last]`. An
    /// example is `[0, [100, 120]]`.
    #[param(default, live)]
    pub channels_always_flagged: Vec<ChannelRange>,
    /// Whether anything is flagged. If false, heaps pass unchanged.
    #[param(default = true, live)]
    pub enabled: bool,
}

/// New value of a live parameter.
pub enum Live {
    /// Test with the limits of the false-alarm probability.
    Test(Test),
    /// Whether each channel is always flagged.
    Always(Vec<bool>),
    /// Whether anything is flagged.
    Enabled(bool),
}

impl SpectralKurtosis {
    fn test(&self, shape: &Shape) -> Test {
        Limits::new(shape.spectra, self.false_alarm_probability).test(shape.spectra)
    }
}

/// Settings with their live updates, which apply to whole heaps.
struct Settings {
    test: Timed<Test>,
    always: Timed<Vec<bool>>,
    enabled: Timed<bool>,
    changes: Changes<Live>,
}

/// Settings of one heap.
#[derive(Clone, Copy)]
struct OfHeap<'a> {
    test: &'a Test,
    always: &'a [bool],
    enabled: bool,
}

impl Settings {
    fn new(block: &Configured<SpectralKurtosis>) -> Self {
        let Configured { parameters, shape, .. } = block;
        let always = channels::mask(&parameters.channels_always_flagged, shape.channels);
        Self {
            test: Timed::new(parameters.test(shape)),
            always: Timed::new(always),
            enabled: Timed::new(parameters.enabled),
            changes: Changes::default(),
        }
    }

    /// Begins a frame: takes the updates that become effective before its end.
    fn begin(&mut self, timestamp: u64, samples: u64) {
        for (from, value) in self.changes.begin(timestamp, samples) {
            match value {
                Live::Test(test) => self.test.set(from, test),
                Live::Always(always) => self.always.set(from, always),
                Live::Enabled(enabled) => self.enabled.set(from, enabled),
            }
        }
        self.test.advance(timestamp);
        self.always.advance(timestamp);
        self.enabled.advance(timestamp);
    }

    /// Settings of the heap that starts at `timestamp`.
    fn at(&self, timestamp: u64) -> OfHeap<'_> {
        OfHeap {
            test: self.test.at(timestamp),
            always: self.always.at(timestamp),
            enabled: *self.enabled.at(timestamp),
        }
    }

    fn offer(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}

impl KindSpec for SpectralKurtosis {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| Ok(Box::new(Mapped(cpu::Cpu::new(block, env))))),
        Implementation::<Self>::cuda(
            "cuda",
            "one kernel launch for each frame, with the same sums and decisions as the reference",
            |block, env| {
                GpuMapped::build(env, |pipeline| cuda::Cuda::new(block, env, pipeline.device()))
            },
        )
        .check(|block, _| Vec::from_iter(cuda::rejection(&block.shape)))
        .device_bytes(|block| cuda::device_bytes(&block.shape))
        .programs(cuda::PROGRAMS),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        let input = &inputs[0];
        let mut rejections = Vec::new();
        if !FALSE_ALARM_PROBABILITY.contains(&self.false_alarm_probability) {
            let (least, most) = (FALSE_ALARM_PROBABILITY.start(), FALSE_ALARM_PROBABILITY.end());
            let message = format!(
                "`false_alarm_probability` must be between {least} and {most}, got {}",
                self.false_alarm_probability
            );
            rejections.push(Rejection::parameter("false_alarm_probability", message));
        }
        let shape = Shape::of_port(input).map_err(|more| rejections.extend(more)).ok();
        if let Some(shape) = &shape {
            rejections.extend(channels::rejection(&self.channels_always_flagged, shape.channels));
        }
        let Some(shape) = shape.filter(|_| rejections.is_empty()) else { return Err(rejections) };
        Ok((shape, vec![shape.output(input)]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let shape = &block.shape;
        // The power takes 3 operations, its square 1, both sums 2.
        let operations_per_frame = 6.0 * block.ports.inputs[0].elements() as f64;
        Resources { host_bytes: shape.units(), operations_per_frame, ..Resources::default() }
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }

    fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
        bench::benchmarks(device)
    }
}

impl LiveKind for SpectralKurtosis {
    type Value = Live;

    fn live_value(
        new: &Configured<Self>,
        parameter: SpectralKurtosisLive,
        _: &Configured<Self>,
    ) -> Result<Live, BlockError> {
        let Configured { parameters, shape, .. } = new;
        Ok(match parameter {
            SpectralKurtosisLive::FalseAlarmProbability => Live::Test(parameters.test(shape)),
            SpectralKurtosisLive::ChannelsAlwaysFlagged => {
                Live::Always(channels::mask(&parameters.channels_always_flagged, shape.channels))
            }
            SpectralKurtosisLive::Enabled => Live::Enabled(parameters.enabled),
        })
    }
}
