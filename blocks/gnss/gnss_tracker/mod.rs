#![doc = include_str!("README.md")]

mod channel;
mod cpu;
#[cfg(test)]
mod tests;

use crate::gnss::gnss_acquisition;
use crate::gnss::samples::Samples;
use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Axis, Checked, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    PortType, Refusal, Resources, ValidityType,
};

/// What the numbers of a satellite in the output are, in their order.
pub const LABELS: [&str; 10] = [
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
];
/// Numbers of a satellite in the output.
pub const VALUES: usize = LABELS.len();

/// Parameters of `gnss_tracker`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "gnss_tracker",
    page = "README.md",
    examples("example.yaml"),
    inputs("input", "acquired"),
    outputs("output")
)]
pub struct GnssTracker {
    /// Where the band's carrier lies in the samples, in Hz, before the satellites' Doppler shifts.
    #[param(default)]
    pub intermediate_hz: f64,
    /// Noise bandwidth of the code's loop.
    #[param(default = 1.0)]
    pub code_bandwidth_hz: f64,
    /// Noise bandwidth of the carrier's loop.
    #[param(default = 15.0)]
    pub carrier_bandwidth_hz: f64,
}

/// Widest loops: with periods of 4 ms wider ones swing.
const MAX_BANDWIDTH_HZ: f64 = 40.0;

impl GnssTracker {
    fn samples(&self, inputs: &[PortType]) -> Result<Samples, Vec<Refusal>> {
        let mut refusals = Vec::new();
        let samples = Samples::of_port(&inputs[0], 0).map_err(|more| refusals.extend(more)).ok();
        let names: Vec<&str> = inputs[1].axes.iter().map(|axis| axis.name).collect();
        if names != ["satellite", "value"] || inputs[1].axes[1].len != gnss_acquisition::VALUES {
            refusals.push(
                Refusal::new(
                    codes::INPUT_AXIS,
                    At::Input(1),
                    "these are not satellites that were found",
                )
                .label(format!("this is {}", inputs[1]))
                .help("`gnss_acquisition` makes [satellite][value 6]"),
            );
        }
        if inputs[1].dtype != Dtype::F64 {
            let message = format!("satellites that were found are f64, not {}", inputs[1].dtype);
            refusals.push(Refusal::new(codes::INPUT_DTYPE, At::Input(1), message));
        }
        if inputs[1].clock != inputs[0].clock {
            refusals.push(
                Refusal::new(
                    codes::INPUTS_DIFFER,
                    At::Input(1),
                    "its frames are not those of the samples",
                )
                .help("feed both from the same block"),
            );
        }
        let mut refuse = |parameter, message: String, help: &str| {
            refusals.push(Refusal::parameter(parameter, message).help(help));
        };
        for (parameter, hz) in [
            ("code_bandwidth_hz", self.code_bandwidth_hz),
            ("carrier_bandwidth_hz", self.carrier_bandwidth_hz),
        ] {
            let is_good = hz > 0.0 && hz <= MAX_BANDWIDTH_HZ;
            if !is_good {
                refuse(
                    parameter,
                    format!("a loop of {hz} Hz is out of range"),
                    "above 0, up to 40",
                );
            }
        }
        let is_inside = samples.is_none_or(|s| self.intermediate_hz.abs() <= s.rate_hz / 2.0);
        if !is_inside || self.intermediate_hz.is_nan() {
            let message = format!("a carrier at {} Hz is outside the band", self.intermediate_hz);
            refuse("intermediate_hz", message, "up to half the sample rate to either side");
        }
        samples.filter(|_| refusals.is_empty()).ok_or(refusals)
    }
}

impl KindSpec for GnssTracker {
    type Shape = Samples;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let satellites = block.ports.inputs[1].axes[0].len;
        Ok(Box::new(cpu::Tracker::new(&block.parameters, block.shape, satellites, env)))
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
        Ok((samples, vec![output]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let [input, acquired] = [&block.ports.inputs[0], &block.ports.inputs[1]];
        let satellites = acquired.axes[0].len;
        let samples = input.clock.samples_per_frame as usize;
        Resources {
            host_bytes: 8 * samples + satellites * channel::BYTES,
            // A complex product with the carrier, and two products and sums for each of three taps.
            operations_per_frame: (satellites * samples) as f64 * (8.0 + 12.0),
            ..Resources::default()
        }
    }
}
