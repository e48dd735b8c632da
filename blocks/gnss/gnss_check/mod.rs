#![doc = include_str!("README.md")]

mod cpu;
#[cfg(test)]
mod tests;

use crate::gnss::gnss_signal_simulator::Transmission;
use crate::gnss::gnss_tracker::VALUES;
use crate::gnss::satellites::reject_satellites;
use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Checked, Dtype, Implementation, Implementations, Kind, KindSpec, PortType, Rejection,
};
use fxgraph_dsp::gnss::Satellite;

/// Parameters of `gnss_check`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "gnss_check", page = "README.md", examples("example.yaml"), inputs("input"))]
pub struct GnssCheck {
    /// Simulated satellites, with the parameters of the `gnss_signal_simulator`.
    pub satellites: Vec<Transmission>,
    /// Time after timestamp 0 that is left out of the comparison.
    #[param(default = 1.0, range = 0.., unit = "s")]
    pub settle_seconds: f64,
    /// Largest rms deviation of a code phase in chips; the block fails beyond it.
    #[param(range = 0..)]
    pub max_code_error_chips: Option<f64>,
    /// Largest deviation of a mean Doppler shift in Hz; the block fails beyond it.
    #[param(range = 0.., unit = "Hz")]
    pub max_doppler_error_hz: Option<f64>,
    /// Largest deviation of a mean C/N0 in dB; the block fails beyond it.
    #[param(range = 0.., unit = "dB")]
    pub max_cn0_error_db: Option<f64>,
}

impl KindSpec for GnssCheck {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        Ok(Box::new(cpu::Check::new(block.parameters.clone(), &block.ports.inputs[0], env)))
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        let satellites: Vec<Satellite> =
            self.satellites.iter().map(Transmission::satellite).collect();
        let mut rejections = reject_satellites(satellites.iter(), None);
        let input = &inputs[0];
        let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
        if names != ["satellite", "value"] || input.axes[1].len != VALUES {
            rejections.push(
                Rejection::new(
                    codes::INPUT_AXIS,
                    At::Input(0),
                    "the input must be the output of `gnss_tracker` ([satellite][value 13])",
                )
                .label(format!("this is {input}"))
                .help("connect the output of a `gnss_tracker`"),
            );
        }
        if input.dtype != Dtype::F64 {
            let message = format!("the input must carry f64, got {}", input.dtype);
            rejections.push(Rejection::new(codes::INPUT_DTYPE, At::Input(0), message));
        }
        if rejections.is_empty() { Ok(((), vec![])) } else { Err(rejections) }
    }
}
