//! Checks of satellites in parameters.

use fxgraph::Refusal;
use fxgraph_dsp::gnss::satellite::MAX_DOPPLER_HZ;
use fxgraph_dsp::gnss::{Satellite, System};

/// Largest number of satellites of one block.
pub const MAX_SATELLITES: usize = 1024;
/// Largest magnitude of a phase: beyond it double precision has too few fractional bits.
const MAX_PHASE: f64 = 1e12;

/// Returns message and help if a signal with its carrier at `carrier_hz` does not fit in complex samples at
/// `rate_hz`.
#[must_use]
pub fn outside_band(system: System, carrier_hz: f64, rate_hz: f64) -> Option<(String, String)> {
    let half_hz = rate_hz / 2.0;
    let needed_hz = system.main_lobe_hz();
    let name = system.name();
    if needed_hz > half_hz {
        let message = format!(
            "the sample rate must be at least {:.3} MS/s for {name}, got {:.3} MS/s",
            2e-6 * needed_hz,
            1e-6 * rate_hz
        );
        let help = "raise `adc_sample_rate_hz` of the source".to_owned();
        Some((message, help))
    } else if carrier_hz.abs() > half_hz {
        let message = format!(
            "the carrier of {name} at {carrier_hz} Hz is outside the band of +-{half_hz} Hz"
        );
        Some((message, "change `intermediate_hz`, or use a smaller Doppler shift".to_owned()))
    } else {
        None
    }
}

/// Returns diagnostics for satellites that do not exist, or whose signals do not fit in the band.
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
        let message = format!("`satellites` must have 1 to {MAX_SATELLITES} entries, got {count}");
        refuse(message, "list satellites such as {system: gps_l1_ca, prn: 7}".to_owned());
    }
    for satellite in satellites.take(MAX_SATELLITES) {
        let system = satellite.system;
        if satellite.prn == 0 || satellite.prn > system.last_prn() {
            let (name, last) = (system.name(), system.last_prn());
            let message =
                format!("`prn` of {name} must be between 1 and {last}, got {}", satellite.prn);
            refuse(message, format!("give a number from 1 to {last}"));
        }
        let numbers = [
            ("doppler_hz", satellite.doppler_hz, MAX_DOPPLER_HZ),
            ("code_phase_chips", satellite.code_phase_chips, MAX_PHASE),
            ("carrier_turns", satellite.carrier_turns, MAX_PHASE),
        ];
        let is_outside =
            |(_, value, most): &(&str, f64, f64)| value.is_nan() || value.abs() > *most;
        if let Some((name, value, most)) = numbers.into_iter().find(is_outside) {
            let message = format!(
                "`{name}` of {} must be between -{most:e} and {most:e}, got {value:e}",
                satellite.label()
            );
            refuse(message, "give a smaller value".to_owned());
        } else if let Some(rate_hz) = rate_hz
            && let Some((message, help)) =
                outside_band(system, intermediate_hz + satellite.doppler_hz, rate_hz)
        {
            refuse(message, help);
        }
    }
    refusals
}
