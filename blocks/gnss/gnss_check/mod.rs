#![doc = include_str!("README.md")]

mod cpu;
#[cfg(test)]
mod tests;

use crate::gnss::gnss_signal_simulator::Transmission;
use crate::gnss::gnss_tracker::VALUES;
use crate::gnss::signals::Satellite;
use crate::gnss::signals::satellite::refuse_satellites;
use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Block, BlockError, Dtype, Env, Kind, PortNames, PortType, Ports, Refusal, Resources,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `gnss_check`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GnssCheck {
    /// What is in the sky.
    pub satellites: Vec<Transmission>,
    /// Time from timestamp 0 on that does not count.
    #[serde(default = "default_settle")]
    pub settle_seconds: f64,
    /// The run fails if the rms deviation of a code phase is larger, in chips.
    pub max_code_error_chips: Option<f64>,
    /// The run fails if a mean Doppler shift is farther off, in Hz.
    pub max_doppler_error_hz: Option<f64>,
    /// The run fails if a mean C/N0 is farther off, in dB.
    pub max_cn0_error_db: Option<f64>,
}

fn default_settle() -> f64 {
    1.0
}

impl Kind for GnssCheck {
    const NAME: &'static str = "gnss_check";
    const DOC: &'static str = include_str!("README.md");
    const INPUTS: PortNames = PortNames::Fixed(&["input"]);
    const OUTPUTS: PortNames = PortNames::Fixed(&[]);

    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        let satellites: Vec<Satellite> =
            self.satellites.iter().map(Transmission::satellite).collect();
        let mut refusals = refuse_satellites(satellites.iter(), 0.0, None);
        for (parameter, most) in [
            ("settle_seconds", Some(self.settle_seconds)),
            ("max_code_error_chips", self.max_code_error_chips),
            ("max_doppler_error_hz", self.max_doppler_error_hz),
            ("max_cn0_error_db", self.max_cn0_error_db),
        ] {
            if let Some(most) = most.filter(|most| most.is_nan() || *most < 0.0) {
                let message = format!("{most} is out of range");
                refusals.push(Refusal::parameter(parameter, message).help("0 or more"));
            }
        }
        let input = &inputs[0];
        let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
        if names != ["satellite", "value"] || input.axes[1].len != VALUES {
            refusals.push(
                Refusal::new(
                    codes::INPUT_AXIS,
                    At::Input(0),
                    "these are not satellites that are followed",
                )
                .label(format!("this is {input}"))
                .help("`gnss_tracker` makes [satellite][value 10]"),
            );
        }
        if input.dtype != Dtype::F64 {
            let message = format!("satellites that are followed are f64, not {}", input.dtype);
            refusals.push(Refusal::new(codes::INPUT_DTYPE, At::Input(0), message));
        }
        if refusals.is_empty() { Ok(vec![]) } else { Err(refusals) }
    }

    fn resources(&self, _ports: &Ports) -> Resources {
        Resources::default()
    }

    fn build(&self, ports: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        Ok(Box::new(cpu::Check::new(self.clone(), &ports.inputs[0], env)))
    }
}
