#![doc = include_str!("README.md")]

mod cpu;

use crate::common::{axes, visibilities};
use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Checked, Configured, Dtype, Implementation, Implementations, Kind, KindSpec, PortType,
    Rejection, Resources,
};
use fxgraph_dsp::geometry::Direction;

/// Parameters of `fringe_check`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "fringe_check", page = "README.md", examples("example.yaml"), inputs("input"))]
pub struct FringeCheck {
    /// Position of each antenna: east, north, up in metres. In a longer list, entries after the last
    /// antenna are ignored.
    pub antennas_enu_metres: Vec<[f64; 3]>,
    /// Direction of the source.
    pub source: Direction,
    /// Delay that the F-engine of each antenna applied, in seconds; by default 0.
    #[param(default)]
    pub applied_delays_seconds: Vec<f64>,
    /// Phase that the F-engine of each antenna applied, in radians; by default 0.
    #[param(default)]
    pub applied_phases_radians: Vec<f64>,
    /// Whether the F-engines track the source and stop the fringes: all phases should be 0. Excludes
    /// `applied_delays_seconds` and `applied_phases_radians`.
    #[param(default)]
    pub tracked: bool,
    /// Dumps at the start that are left out, for example until a calibration has converged.
    #[param(default)]
    pub skip_dumps: u64,
    /// Largest phase error of a baseline, in degrees; the run fails if it is exceeded, if a baseline has no fringe above
    /// the noise, or if no visibilities arrive.
    pub max_phase_error_degrees: Option<f64>,
    /// Largest error of the measured delay of a baseline, in seconds; the run fails if it is exceeded, if a baseline has
    /// no fringe above the noise, or if no visibilities arrive.
    pub max_delay_error_seconds: Option<f64>,
}

impl FringeCheck {
    /// Returns the name of the first limit that is set.
    fn limit(&self) -> Option<&'static str> {
        let phase = self.max_phase_error_degrees.map(|_| "max_phase_error_degrees");
        phase.or(self.max_delay_error_seconds.map(|_| "max_delay_error_seconds"))
    }

    fn check_parameters(&self, rejections: &mut Vec<Rejection>) {
        let antennas = self.antennas_enu_metres.len();
        for (parameter, values) in [
            ("applied_delays_seconds", &self.applied_delays_seconds),
            ("applied_phases_radians", &self.applied_phases_radians),
        ] {
            if !values.is_empty() && values.len() != antennas {
                rejections.push(
                    Rejection::parameter(
                        parameter,
                        format!(
                            "`{parameter}` must have {antennas} values, one for each antenna, got {}",
                            values.len()
                        ),
                    )
                    .note(At::Parameter("antennas_enu_metres"), "antennas are set here"),
                );
            }
            if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                let message = format!("`{parameter}` must be finite, got {value}");
                rejections.push(Rejection::parameter(parameter, message));
            }
        }
        let applied =
            !self.applied_delays_seconds.is_empty() || !self.applied_phases_radians.is_empty();
        if self.tracked && applied {
            let message =
                "`tracked` excludes `applied_delays_seconds` and `applied_phases_radians`";
            rejections.push(
                Rejection::parameter("tracked", message)
                    .help("omit `tracked`, or omit the applied values"),
            );
        }
        if self.antennas_enu_metres.iter().flatten().any(|v| !v.is_finite() || v.abs() > 1e7) {
            let message = "`antennas_enu_metres` must be within 10000 km";
            rejections.push(
                Rejection::parameter("antennas_enu_metres", message)
                    .help("give positions in metres, for example `[31, 5, 0]`"),
            );
        }
        if !self.source.is_valid() {
            let message =
                "azimuth of `source` must be finite, and elevation from -90 to 90 degrees";
            rejections.push(Rejection::parameter("source", message));
        }
        if let Some(most) = self.max_phase_error_degrees.filter(|most| most.is_nan() || *most < 0.0)
        {
            let message = format!("`max_phase_error_degrees` must be at least 0, got {most}");
            rejections.push(Rejection::parameter("max_phase_error_degrees", message));
        }
        if let Some(most) = self.max_delay_error_seconds.filter(|most| most.is_nan() || *most < 0.0)
        {
            let message = format!("`max_delay_error_seconds` must be at least 0, got {most}");
            rejections.push(Rejection::parameter("max_delay_error_seconds", message));
        }
    }
}

impl KindSpec for FringeCheck {
    /// Numbers of the antennas.
    type Shape = Vec<u32>;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let mut parameters = block.parameters.clone();
        parameters.antennas_enu_metres.truncate(block.shape.len());
        let numbers = block.shape.clone();
        Ok(Box::new(cpu::Check::new(parameters, numbers, &block.ports.inputs[0], env)))
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<Vec<u32>> {
        let mut rejections = Vec::new();
        self.check_parameters(&mut rejections);
        let input = &inputs[0];
        let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
        let mut found = None;
        if names != ["channel", "baseline", "product"] || ![1, 4].contains(&input.axes[2].len) {
            rejections.push(
                Rejection::new(codes::INPUT_AXIS, At::Input(0), "the input must be visibilities")
                    .label(format!("this is {input}"))
                    .help("connect a `correlator`: [channel][baseline][product]"),
            );
        } else {
            let placed = self.antennas_enu_metres.len();
            let baselines = input.axes[1].len;
            if input.validity.axes != input.axes {
                rejections.extend(axes::reject_validity(0, input, &[("baseline", baselines)]));
            }
            found = visibilities::antennas(input);
            if found.is_none() {
                let message = "the baselines of the input must be all pairs of antennas";
                rejections.push(
                    Rejection::new(codes::INPUT_AXIS, At::InputAxis(0, "baseline"), message)
                        .help("connect a `correlator`, without a selection of baselines"),
                );
            } else if found.as_ref().is_some_and(|numbers| numbers.len() > placed) {
                let message = format!(
                    "`antennas_enu_metres` has {placed} positions, too few for {baselines} baselines"
                );
                rejections.push(
                    Rejection::parameter("antennas_enu_metres", message)
                        .note(At::InputAxis(0, "baseline"), "baselines are set here"),
                );
            } else if found.as_ref().is_some_and(|numbers| numbers.len() < 2) {
                let message =
                    "the input must have a baseline between two antennas, got one antenna";
                rejections.push(
                    Rejection::new(codes::INPUT_AXIS, At::InputAxis(0, "baseline"), message).help(
                        "connect the correlator of two antennas or more, or omit `fringe_check`",
                    ),
                );
            }
        }
        if input.dtype != Dtype::Ci32 {
            let message = format!("the input must be ci32, got {}", input.dtype);
            rejections.push(Rejection::new(codes::INPUT_DTYPE, At::Input(0), message));
        }
        if input.band.is_none() {
            rejections.push(
                Rejection::new(codes::INPUT_AXIS, At::Input(0), "the input has no band")
                    .help("insert a `pfb`, or set `band` of the source"),
            );
        }
        let used = input.band.zip(input.axis_len("channel"));
        let used = used.map(|(band, channels)| channels - cpu::first_used(&band, channels));
        if let (Some(..3), Some(parameter)) = (used, self.limit()) {
            let message =
                format!("`{parameter}` needs three channels, to tell a fringe from noise");
            rejections.push(
                Rejection::parameter(parameter, message)
                    .help("give more channels (the lowest one of the band is left out)"),
            );
        }
        match found {
            Some(numbers) if rejections.is_empty() => Ok((numbers, vec![])),
            _ => Err(rejections),
        }
    }

    fn resources(block: &Configured<Self>) -> Resources {
        // One double-precision complex sum per channel and baseline, for all products together.
        let input = &block.ports.inputs[0];
        let host_bytes = input.elements() / input.axes[2].len * size_of::<[f64; 2]>();
        Resources { host_bytes, ..Resources::default() }
    }
}

#[cfg(test)]
mod tests;
