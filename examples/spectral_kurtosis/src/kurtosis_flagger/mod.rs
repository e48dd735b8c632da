#![doc = include_str!("README.md")]

mod conformance;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use fxgraph::diagnostic::codes;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::{
    At, Axis, BlockError, Checked, Configured, DeviceName, Dtype, Implementation, Implementations,
    Kind, KindSpec, LiveKind, PortType, Rejection, Resources, ValidityType,
};

/// Smallest number of spectra of a frame for a meaningful kurtosis.
const MIN_SPECTRA: usize = 4;

/// Parameters of `kurtosis_flagger`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "kurtosis_flagger",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output", "kurtosis")
)]
pub struct KurtosisFlagger {
    /// Standard deviations from 1 beyond which a channel is flagged; live.
    #[param(default = 5.0, live)]
    pub sigmas: f64,
}

/// Lengths of the axes of the input.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pols: usize,
    spectra: usize,
    channels: usize,
}

impl Shape {
    fn of(port: &PortType) -> Option<Self> {
        let axes: Vec<(&str, usize)> =
            port.axes.iter().map(|axis| (axis.name.as_ref(), axis.len)).collect();
        match (port.dtype, axes.as_slice()) {
            (Dtype::Cf32, &[("pol", pols), ("spectrum", spectra), ("channel", channels)])
                if spectra >= MIN_SPECTRA =>
            {
                Some(Self { pols, spectra, channels })
            }
            _ => None,
        }
    }
}

impl KindSpec for KurtosisFlagger {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| Ok(Box::new(cpu::Flagger::new(block, env)))),
        Implementation::<Self>::cuda(
            "cuda",
            "one kernel, sums in double precision",
            |block, env| Ok(Box::new(cuda::Flagger::new(block, env)?)),
        )
        .device_bytes(|_| cuda::Flagger::device_bytes())
        .programs(cuda::PROGRAMS),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        let input = &inputs[0];
        let mut rejections = Vec::new();
        if !(self.sigmas > 0.0 && self.sigmas.is_finite()) {
            let message = format!("`sigmas` must be greater than 0, got {}", self.sigmas);
            rejections.push(Rejection::parameter("sigmas", message));
        }
        let shape = Shape::of(input);
        if shape.is_none() {
            let message = format!("`kurtosis_flagger` cannot read `{input}`");
            let help =
                "connect cf32 [pol][spectrum][channel] with at least 4 spectra, such as an `fft`";
            rejections.push(Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help));
        }
        let Some(shape) = shape.filter(|_| rejections.is_empty()) else { return Err(rejections) };
        let kurtosis = PortType {
            dtype: Dtype::F32,
            axes: vec![Axis::new("pol", shape.pols), Axis::new("channel", shape.channels)],
            validity: ValidityType::flags(vec![Axis::new("frame", 1)]),
            ..input.clone()
        };
        Ok((shape, vec![input.clone(), kurtosis]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        // The power takes 3 operations, its square 1, both sums 2.
        let operations_per_frame = 6.0 * block.ports.inputs[0].elements() as f64;
        Resources { operations_per_frame, ..Resources::default() }
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }

    fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
        let blocks = "  \
            source: {kind: null_source, parameters: {dtype: cf32, axes: [{name: pol, len: 2}, \
            {name: spectrum, len: 256}, {name: channel, len: 1024}], samples_per_frame: 524288, \
            pattern: random}}\n  \
            block: {kind: kurtosis_flagger, queue: 1, input: source}\n  \
            sink: {kind: null_sink, input: block.output}\n  \
            kurtosis: {kind: null_sink, input: block.kurtosis}\n";
        let flowgraph = format!("flowgraph: bench\ndevice: \"{device}\"\nblocks:\n{blocks}");
        let name = "kurtosis_flagger, 1024 channels, 256 spectra".to_owned();
        vec![Benchmark { name, flowgraph, blocks: &["block"] }]
    }
}

impl LiveKind for KurtosisFlagger {
    type Value = f64;

    fn live_value(
        new: &Configured<Self>,
        KurtosisFlaggerLive::Sigmas: KurtosisFlaggerLive,
        _: &Configured<Self>,
    ) -> Result<f64, BlockError> {
        Ok(new.parameters.sigmas)
    }
}
