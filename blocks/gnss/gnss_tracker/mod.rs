#![doc = include_str!("README.md")]

mod channel;
mod cpu;
#[cfg(test)]
mod prompts;
mod report;
#[cfg(test)]
mod tests;

use crate::common::axes::{MAX_FRAME_BYTES, checked_elements};
use crate::gnss::gnss_acquisition;
use crate::gnss::samples::Samples;
use crate::gnss::weights::{Array, Weight, live_weights, reject_weights};
use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Axis, BlockError, Checked, Configured, Dtype, Implementation, Implementations, Kind,
    KindSpec, LiveKind, PortType, Rejection, Resources, ValidityType,
};
use fxgraph_dsp::gnss::System;
use num_complex::Complex32;

/// Names of the values of a satellite in the output, in order.
pub const LABELS: [&str; 13] = [
    "system",
    "satellite",
    "is_locked",
    "cn0_db_hz",
    "doppler_hz",
    "code_phase_chips",
    "carrier_phase_turns",
    "prompt_real",
    "prompt_imaginary",
    "periods",
    "track",
    "period",
    "doppler_turns",
];
/// Number of values of a satellite in the output.
pub const VALUES: usize = LABELS.len();

/// Names of the values of a prompt sum in the output `prompts`, in order.
pub const PROMPT_LABELS: [&str; 5] =
    ["track", "period", "end_sample", "prompt_real", "prompt_imaginary"];
/// Number of values of a prompt sum.
pub const PROMPT_VALUES: usize = PROMPT_LABELS.len();

/// Parameters of `gnss_tracker`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "gnss_tracker",
    page = "README.md",
    examples("example.yaml"),
    inputs("input", "acquired"),
    outputs("output", optional("prompts"))
)]
pub struct GnssTracker {
    /// Frequency of the carrier in the samples without Doppler shift, in Hz; by default that of the input's band, or 0
    /// without a band.
    pub intermediate_hz: Option<f64>,
    /// Noise bandwidth of the code loop, in Hz. A track starts with 2 Hz, and reaches this one after `0.5 / code_bandwidth_hz`
    /// seconds.
    #[param(default = 0.1)]
    pub code_bandwidth_hz: f64,
    /// Noise bandwidth of the carrier loop, in Hz.
    #[param(default = 15.0)]
    pub carrier_bandwidth_hz: f64,
    /// Weights of the antennas in the sum that is tracked, `{re, im}` each; needed with several antennas.
    #[param(default, live)]
    pub weights: Vec<Weight>,
    /// Whether the block has the output `prompts` with the prompt sum of each code period, for `gnss_position`.
    #[param(default)]
    pub prompts: bool,
}

/// Widest loop bandwidth: with periods of 4 ms, wider loops oscillate.
const MAX_BANDWIDTH_HZ: f64 = 40.0;

impl GnssTracker {
    fn samples(&self, inputs: &[PortType]) -> Result<Samples, Vec<Rejection>> {
        let mut rejections = Vec::new();
        let samples = Samples::of_port(&inputs[0], 0, self.intermediate_hz)
            .map_err(|more| rejections.extend(more))
            .ok();
        let names: Vec<&str> = inputs[1].axes.iter().map(|axis| axis.name).collect();
        if names != ["satellite", "value"] || inputs[1].axes[1].len != gnss_acquisition::VALUES {
            rejections.push(
                Rejection::new(
                    codes::INPUT_AXIS,
                    At::Input(1),
                    "input `acquired` must be the output of `gnss_acquisition` ([satellite][value 6])",
                )
                .label(format!("this is {}", inputs[1]))
                .help("connect the output of a `gnss_acquisition`"),
            );
        }
        if inputs[1].dtype != Dtype::F64 {
            let message = format!("input `acquired` must carry f64, got {}", inputs[1].dtype);
            rejections.push(Rejection::new(codes::INPUT_DTYPE, At::Input(1), message));
        }
        if inputs[1].clock != inputs[0].clock {
            rejections.push(
                Rejection::new(
                    codes::INPUTS_DIFFER,
                    At::Input(1),
                    "input `acquired` must have the same frames and clock as `input`",
                )
                .help("connect `gnss_acquisition` and `gnss_tracker` to the same samples"),
            );
        }
        let mut reject = |parameter, message: String, help: &str| {
            rejections.push(Rejection::parameter(parameter, message).help(help));
        };
        for (parameter, hz) in [
            ("code_bandwidth_hz", self.code_bandwidth_hz),
            ("carrier_bandwidth_hz", self.carrier_bandwidth_hz),
        ] {
            let is_good = hz > 0.0 && hz <= MAX_BANDWIDTH_HZ;
            if !is_good {
                reject(
                    parameter,
                    format!(
                        "`{parameter}` must be above 0 and at most {MAX_BANDWIDTH_HZ}, got {hz}"
                    ),
                    "give a bandwidth such as 15",
                );
            }
        }
        if let Some(samples) = &samples {
            rejections.extend(reject_weights(&self.weights, samples));
        }
        let mut reject = |parameter, message: String, help: &str| {
            rejections.push(Rejection::parameter(parameter, message).help(help));
        };
        let is_outside = |samples: &Samples, system: &System| {
            samples.carrier_hz(*system).abs() > samples.rate_hz / 2.0
        };
        if let Some(samples) =
            samples.filter(|samples| System::ALL.iter().all(|system| is_outside(samples, system)))
        {
            let message = format!(
                "the carrier must be within half the sample rate of 0 Hz, got {} Hz",
                samples.carrier_hz(System::GpsL1Ca)
            );
            let help = "give `intermediate_hz`, the frequency of the carrier in the samples";
            reject("intermediate_hz", message, help);
        }
        samples.filter(|_| rejections.is_empty()).ok_or(rejections)
    }
}

impl KindSpec for GnssTracker {
    type Shape = Samples;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let axis = &block.ports.inputs[1].axes[0];
        let label = |n: usize| axis.labels.get(n).cloned().unwrap_or_else(|| n.to_string());
        let labels: Vec<String> = (0..axis.len).map(label).collect();
        Ok(Box::new(cpu::Tracker::new(&block.parameters, block.shape, labels, env)))
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<Samples> {
        let samples = self.samples(inputs)?;
        let output = PortType {
            dtype: Dtype::F64,
            axes: vec![inputs[1].axes[0].clone(), Axis::labelled("value", LABELS)],
            clock: inputs[0].clock,
            band: None,
            validity: ValidityType::flags(vec![]),
        };
        let mut outputs = vec![output];
        if self.prompts {
            let axes = vec![
                inputs[1].axes[0].clone(),
                Axis::new("slot", cpu::slots(&samples)),
                Axis::labelled("value", PROMPT_LABELS),
            ];
            if checked_elements(&axes, MAX_FRAME_BYTES / size_of::<f64>()).is_none() {
                let message = format!(
                    "`prompts` must fit in frames of at most {MAX_FRAME_BYTES} bytes, got {} sums of each satellite in a \
                     frame",
                    axes[1].len
                );
                let help = "give the source shorter frames";
                return Err(vec![Rejection::parameter("prompts", message).help(help)]);
            }
            outputs.push(PortType { axes, ..outputs[0].clone() });
        }
        Ok((samples, outputs))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let satellites = block.ports.inputs[1].axes[0].len;
        let samples = block.shape.samples;
        Resources {
            host_bytes: samples
                .saturating_mul(8)
                .saturating_add(satellites * channel::BYTES)
                .saturating_add(Array::host_bytes(&block.shape)),
            // A complex product with the carrier, and two products and sums per correlator tap.
            operations_per_frame: satellites as f64 * samples as f64 * (8.0 + 12.0),
            ..Resources::default()
        }
    }
}

impl LiveKind for GnssTracker {
    type Value = Vec<Complex32>;

    fn live_value(
        new: &Configured<Self>,
        GnssTrackerLive::Weights: GnssTrackerLive,
        _running: &Configured<Self>,
    ) -> Result<Vec<Complex32>, BlockError> {
        Ok(live_weights(&new.parameters.weights))
    }
}
