#![doc = include_str!("README.md")]

mod cpu;

use crate::common::axes;
use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Checked, Configured, Dtype, Implementation, Implementations, Kind, KindSpec, PortType,
    Refusal, Resources,
};
use fxgraph_dsp::geometry::Direction;

/// Parameters of `fringe_check`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "fringe_check", page = "README.md", examples("example.yaml"), inputs("input"))]
pub struct FringeCheck {
    /// Place of each antenna: east, north, up in metres. Of a longer list the first ones count.
    pub antennas_enu_metres: Vec<[f64; 3]>,
    /// Where the source stands.
    pub source: Direction,
    /// Delay that the F-engine of each antenna applied, in seconds; without it none.
    #[param(default)]
    pub applied_delays_seconds: Vec<f64>,
    /// Phase that the F-engine of each antenna applied, in radians; without it none.
    #[param(default)]
    pub applied_phases_radians: Vec<f64>,
    /// Whether the F-engines take out the delays of the source, wherever it goes: all phases
    /// should be 0. Instead of `applied_delays_seconds` and `applied_phases_radians`.
    #[param(default)]
    pub tracked: bool,
    /// The run fails if a baseline's phase is farther off, in degrees.
    pub max_phase_error_degrees: Option<f64>,
    /// The run fails if the delay measured on a baseline is farther off, in seconds.
    pub max_delay_error_seconds: Option<f64>,
}

impl FringeCheck {
    fn check_parameters(&self, refusals: &mut Vec<Refusal>) {
        let antennas = self.antennas_enu_metres.len();
        for (parameter, values) in [
            ("applied_delays_seconds", &self.applied_delays_seconds),
            ("applied_phases_radians", &self.applied_phases_radians),
        ] {
            if !values.is_empty() && values.len() != antennas {
                refusals.push(
                    Refusal::parameter(
                        parameter,
                        format!("{} values for {antennas} antennas", values.len()),
                    )
                    .note(At::Parameter("antennas_enu_metres"), "the antennas come from here"),
                );
            }
            if values.iter().any(|value| !value.is_finite()) {
                refusals.push(Refusal::parameter(parameter, "a value is not a finite number"));
            }
        }
        let applied =
            !self.applied_delays_seconds.is_empty() || !self.applied_phases_radians.is_empty();
        if self.tracked && applied {
            let message = "a tracked source leaves nothing for other delays and phases".to_owned();
            refusals.push(
                Refusal::parameter("tracked", message).help("give either it or the applied values"),
            );
        }
        if self.antennas_enu_metres.iter().flatten().any(|v| !v.is_finite() || v.abs() > 1e7) {
            let message = "an antenna stands farther than 10000 km away".to_owned();
            refusals.push(Refusal::parameter("antennas_enu_metres", message));
        }
        if !(self.source.azimuth_degrees + self.source.elevation_degrees).is_finite() {
            refusals.push(Refusal::parameter("source", "the direction is not finite"));
        }
        if self.max_phase_error_degrees.is_some_and(|most| most.is_nan() || most < 0.0) {
            let message = "a phase error is 0 degrees or more".to_owned();
            refusals.push(Refusal::parameter("max_phase_error_degrees", message));
        }
        if self.max_delay_error_seconds.is_some_and(|most| most.is_nan() || most < 0.0) {
            let message = "a delay error is 0 seconds or more".to_owned();
            refusals.push(Refusal::parameter("max_delay_error_seconds", message));
        }
    }
}

impl KindSpec for FringeCheck {
    /// Number of antennas.
    type Shape = usize;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let mut parameters = block.parameters.clone();
        parameters.antennas_enu_metres.truncate(block.shape);
        Ok(Box::new(cpu::Check::new(parameters, &block.ports.inputs[0], env)))
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<usize> {
        let mut refusals = Vec::new();
        self.check_parameters(&mut refusals);
        let input = &inputs[0];
        let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
        let mut found = None;
        if names != ["channel", "baseline", "product"] || input.axes[2].len != 4 {
            refusals.push(
                Refusal::new(codes::INPUT_AXIS, At::Input(0), "these are not visibilities")
                    .label(format!("this is {input}"))
                    .help("`correlator` makes [channel][baseline][product 4]"),
            );
        } else {
            let placed = self.antennas_enu_metres.len();
            let baselines = input.axes[1].len;
            refusals.extend(axes::refuse_validity(0, input, &[("baseline", baselines)]));
            found = antennas_of(baselines).filter(|antennas| *antennas <= placed);
            if found.is_none() {
                let message =
                    format!("{placed} antennas are placed, too few for {baselines} baselines");
                refusals.push(
                    Refusal::parameter("antennas_enu_metres", message)
                        .note(At::InputAxis(0, "baseline"), "the baselines come from here"),
                );
            }
        }
        if input.dtype != Dtype::Ci32 {
            let message = format!("visibilities are ci32, not {}", input.dtype);
            refusals.push(Refusal::new(codes::INPUT_DTYPE, At::Input(0), message));
        }
        if input.band.is_none() {
            refusals.push(
                Refusal::new(codes::INPUT_AXIS, At::Input(0), "the channels have no frequencies")
                    .help("the band comes from `pfb` or from the source's parameters"),
            );
        }
        match found {
            Some(antennas) if refusals.is_empty() => Ok((antennas, vec![])),
            _ => Err(refusals),
        }
    }

    fn resources(block: &Configured<Self>) -> Resources {
        // One double-precision complex sum for the four products of a channel and baseline.
        let host_bytes = block.ports.inputs[0].elements() / 4 * size_of::<[f64; 2]>();
        Resources { host_bytes, ..Resources::default() }
    }
}

/// Antennas that make this number of baselines, autocorrelations included.
fn antennas_of(baselines: usize) -> Option<usize> {
    let antennas = (8 * baselines + 1).isqrt().saturating_sub(1) / 2;
    (antennas * (antennas + 1) / 2 == baselines).then_some(antennas)
}

#[cfg(test)]
mod tests;
