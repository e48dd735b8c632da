#![doc = include_str!("README.md")]

mod conformance;
mod cpu;
mod cuda;
mod groups;
mod selection;
mod shape;
mod smearing;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use fxgraph::diagnostic::codes;
use fxgraph::examples::Case;
use fxgraph::{
    At, Checked, Configured, DeviceName, Dtype, Implementation, Implementations, Kind, KindSpec,
    PortType, Rejection, Resources,
};
use schemars::JsonSchema;
use selection::Selection;
use serde::{Deserialize, Serialize};
use shape::Shape;
use smearing::Smearing;
use std::sync::Arc;

/// Largest factor of an average, in time or in frequency.
const MAX_FACTOR: usize = 1 << 20;

/// Values that `average` outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    /// Sums divided by their counts.
    #[default]
    Mean,
    /// Sums.
    Sum,
}

/// Parameters of `average`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "average",
    page = "README.md",
    examples("example.yaml", "baselines.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct Average {
    /// Dumps (spectra of `detect`) per average.
    #[param(default = 1, range = 1..=MAX_FACTOR)]
    pub dumps: usize,
    /// Adjacent channels per average; must divide the channels of the input.
    #[param(default = 1, range = 1..=MAX_FACTOR)]
    pub channels: usize,
    /// Output: `mean` (sums divided by their counts) or `sum`.
    #[param(default)]
    pub values: Values,
    /// Limit that selects baselines by their length: the block outputs only the baselines that it allows to average
    /// over exactly `dumps` dumps. By default all baselines are output.
    pub smearing: Option<Smearing>,
    /// Baselines that the block outputs, such as `{pairs: [[0, 1]]}`, `{antennas: [3, 7]}` or `{autocorrelations: true}`. By
    /// default all baselines are output.
    pub baselines: Option<Selection>,
}

impl KindSpec for Average {
    type Shape = Arc<Shape>;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| Ok(cpu::block(&block.shape, env))),
        Implementation::<Self>::cuda("cuda", "one kernel launch for each frame", |block, env| {
            Ok(Box::new(cuda::Cuda::new(&block.shape, env)?))
        })
        .check(|block, _| Vec::from_iter(cuda::rejection(&block.shape)))
        .device_bytes(|block| cuda::device_bytes(&block.shape))
        .programs(cuda::PROGRAMS),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Arc<Shape>> {
        let input = &inputs[0];
        let axes = shape::Axes::of_port(input).ok_or_else(|| {
            let message = format!("`average` cannot read `{input}`");
            let help = "connect a `correlator` (ci32 or cf32 [channel][baseline][product]) or a `detect` (f32 \
                        [spectrum][product][channel])";
            vec![Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help)]
        })?;
        let mut rejections = Vec::new();
        rejections.extend(axes.reject_validity(input));
        rejections.extend(axes.reject_factors(self, input));
        let all = || (0..axes.lengths[shape::BASELINE] as u32).collect();
        let smearing = self.smearing.as_ref();
        let baselines = smearing.map(|smearing| smearing.select(self.dumps, &axes, input));
        let mut baselines: Vec<u32> =
            baselines.unwrap_or_else(|| Ok(all())).unwrap_or_else(|more| {
                rejections.extend(more);
                Vec::new()
            });
        if let Some(selection) = &self.baselines {
            match selection.select(input) {
                Ok(selected) => baselines.retain(|baseline| selected[*baseline as usize]),
                Err(more) => rejections.extend(more),
            }
            if rejections.is_empty() && baselines.is_empty() {
                let message = "`baselines` and `smearing` select no baseline together";
                rejections.push(Rejection::parameter("baselines", message));
            }
        }
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let shape = Shape::new(self, &axes, baselines, input);
        let output = shape.output(input);
        Ok((Arc::new(shape), vec![output]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let shape = &block.shape;
        let parts = (shape.numbers() * shape.spectra_out()) as f64;
        Resources {
            host_bytes: shape.numbers() * shape.spectra_out() * size_of::<u64>(),
            // One addition for each number of the input.
            operations_per_frame: parts * (shape.dumps * shape.channels) as f64,
            ..Resources::default()
        }
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }
}

/// Whether `dtype` is a type of values that the block reads.
fn is_known(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Ci32 | Dtype::Cf32 | Dtype::F32)
}
