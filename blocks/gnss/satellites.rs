//! What satellites and samples parameters may ask for.

use fxgraph::Refusal;
use fxgraph_dsp::gnss::satellite::MAX_DOPPLER_HZ;
use fxgraph_dsp::gnss::{Satellite, System};

/// Most satellites of one block.
pub const MAX_SATELLITES: usize = 1024;
/// Largest phase of either sign: beyond it a double has no fractions worth the name.
const MAX_PHASE: f64 = 1e12;

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
