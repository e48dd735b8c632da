//! A satellite as parameters name it.

use super::System;
use super::phase::code_rate_hz;
use fxgraph::Refusal;

/// Most satellites of one block.
pub const MAX_SATELLITES: usize = 1024;
/// Largest shift of a carrier, of either sign: that of 1900 km/s. The rate of the chips then differs from its own
/// by less than a hundredth, on which the length of [`Replica::extended`](super::Replica::extended) counts.
const MAX_DOPPLER_HZ: f64 = 1e7;
/// Largest phase of either sign: beyond it a double has no fractions worth the name.
const MAX_PHASE: f64 = 1e12;

/// Declares parameters that name a satellite, with the phases that its signal has at a timestamp; more of them may
/// follow.
macro_rules! satellite_parameters {
    ($(#[$about:meta])* $name:ident { $($more:tt)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, ::serde::Deserialize, ::schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Its signal: `gps_l1_ca` or `galileo_e1b`.
            pub system: $crate::gnss::signals::System,
            /// Its number: 1 to 37 for `gps_l1_ca`, 1 to 50 for `galileo_e1b`.
            pub prn: usize,
            /// Shift of its carrier in Hz; the chips are shifted by the same part.
            #[serde(default)]
            pub doppler_hz: f64,
            /// Chips of the code that have passed at `at_timestamp`.
            #[serde(default)]
            pub code_phase_chips: f64,
            /// Phase of the carrier at `at_timestamp`, in turns.
            #[serde(default)]
            pub carrier_turns: f64,
            /// The timestamp for which the phases are stated, in samples.
            #[serde(default)]
            pub at_timestamp: u64,
            $($more)*
        }
    };
}
pub(crate) use satellite_parameters;

satellite_parameters! {
    /// A satellite, with the phases that its signal has at a timestamp.
    Satellite {}
}

impl Satellite {
    /// Chips per second.
    #[must_use]
    pub fn code_rate_hz(&self) -> f64 {
        code_rate_hz(self.doppler_hz)
    }

    /// What receivers call it.
    #[must_use]
    pub fn label(&self) -> String {
        self.system.label(self.prn)
    }
}

/// Why `rate_hz` complex samples per second cannot carry a signal whose carrier lies at `carrier_hz`, if so.
#[must_use]
pub fn outside_band(system: System, carrier_hz: f64, rate_hz: f64) -> Option<(String, String)> {
    let half_hz = rate_hz / 2.0;
    let needed_hz = system.main_lobe_hz();
    let name = system.name();
    if needed_hz > half_hz {
        let message = format!(
            "{name} is {:.3} MHz wide, {:.3} MS/s carry less",
            2e-6 * needed_hz,
            1e-6 * rate_hz
        );
        let help = format!("its code needs {:.3} MS/s at least", 2e-6 * needed_hz);
        Some((message, help))
    } else if carrier_hz.abs() > half_hz {
        let message = format!(
            "a carrier of {name} at {carrier_hz} Hz is outside the band, which is {half_hz} Hz to either side"
        );
        Some((message, "change `intermediate_hz`, or take a smaller Doppler shift".to_owned()))
    } else {
        None
    }
}

/// Refuses satellites that do not exist, or whose signals the samples cannot carry.
#[must_use]
pub fn refuse_satellites<'a>(
    satellites: impl ExactSizeIterator<Item = &'a Satellite>,
    intermediate_hz: f64,
    rate_hz: Option<f64>,
) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut refuse = |message: String, help: String| {
        refusals.push(Refusal::parameter("satellites", message).help(help));
    };
    let count = satellites.len();
    if count == 0 || count > MAX_SATELLITES {
        refuse(format!("{count} satellites are out of range"), format!("1 to {MAX_SATELLITES}"));
    }
    for satellite in satellites.take(MAX_SATELLITES) {
        let system = satellite.system;
        if satellite.prn == 0 || satellite.prn > system.last_prn() {
            let message = format!("there is no satellite {} of {}", satellite.prn, system.name());
            refuse(message, format!("1 to {}", system.last_prn()));
        }
        let numbers = [
            ("doppler_hz", satellite.doppler_hz, MAX_DOPPLER_HZ),
            ("code_phase_chips", satellite.code_phase_chips, MAX_PHASE),
            ("carrier_turns", satellite.carrier_turns, MAX_PHASE),
        ];
        let is_outside =
            |(_, value, most): &(&str, f64, f64)| value.is_nan() || value.abs() > *most;
        if let Some((name, value, most)) = numbers.into_iter().find(is_outside) {
            let message = format!("`{name}` of {} is {value:e}", satellite.label());
            refuse(message, format!("up to {most:e} of either sign"));
        } else if let Some(rate_hz) = rate_hz
            && let Some((message, help)) =
                outside_band(system, intermediate_hz + satellite.doppler_hz, rate_hz)
        {
            refuse(message, help);
        }
    }
    refusals
}
