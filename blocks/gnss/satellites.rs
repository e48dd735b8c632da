//! Checks of satellites in parameters.

use super::samples::Samples;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Rejection};
use fxgraph_dsp::gnss::satellite::MAX_DOPPLER_HZ;
use fxgraph_dsp::gnss::{Carriers, Satellite, System};

/// Largest number of satellites of one block.
pub const MAX_SATELLITES: usize = 1024;
/// Largest magnitude of a phase: beyond it double precision has too few fractional bits.
const MAX_PHASE: f64 = 1e12;

/// Smallest part of the main lobes that a receiver works with: with less, codes have more entries per sample than
/// replicas are made for.
const LEAST_PART: f64 = 0.8;

/// Returns message and help if a signal shifted by `doppler_hz` does not fit in the band of `samples`.
#[must_use]
pub fn outside_band(
    system: System,
    doppler_hz: f64,
    samples: &Samples,
) -> Option<(String, String)> {
    let half_hz = samples.rate_hz / 2.0;
    let carrier_hz = samples.carrier_hz(system) + doppler_hz;
    let name = system.name();
    // The lobes of real samples must not reach those of their negative frequencies.
    let needed_hz = LEAST_PART * system.main_lobe_hz() * if samples.is_real() { 2.0 } else { 1.0 };
    if needed_hz > half_hz {
        let message = format!(
            "the sample rate must be at least {:.3} MS/s for {name}, got {:.3} MS/s",
            2e-6 * needed_hz,
            1e-6 * samples.rate_hz
        );
        let help = "raise `adc_sample_rate_hz` of the source".to_owned();
        return Some((message, help));
    }
    let (least_hz, most_hz) = if samples.is_real() {
        (0.5 * needed_hz, half_hz - 0.5 * needed_hz)
    } else {
        (0.0, half_hz)
    };
    if carrier_hz.abs() < least_hz || carrier_hz.abs() > most_hz {
        let message = format!(
            "the carrier of {name} at {carrier_hz} Hz is outside the band of +-{half_hz} Hz"
        );
        let help = "give `intermediate_hz`, the frequency of the carrier in the samples".to_owned();
        return Some((message, help));
    }
    None
}

/// Returns a warning for each of the `systems` whose main lobes do not fit in the band of `samples`.
pub fn narrow_bands(
    systems: impl Iterator<Item = System> + Clone,
    samples: &Samples,
) -> Vec<Rejection> {
    let half_hz = samples.rate_hz / if samples.is_real() { 4.0 } else { 2.0 };
    let is_narrow = |system: &System| {
        systems.clone().any(|used| used == *system) && half_hz < system.main_lobe_hz()
    };
    let warning = |system: System| {
        let part = system.power_within(half_hz);
        let message = format!(
            "samples at {:.3} MS/s contain {:.1} % of the power of {}: C/N0 is measured {:.1} dB lower",
            1e-6 * samples.rate_hz,
            100.0 * part,
            system.name(),
            // The replica has the whole band: the sum with it has this part of the amplitude, and all of the noise.
            -20.0 * part.log10()
        );
        let help = "raise the sample rate of the source to that of the main lobes";
        Rejection::new(codes::IMPLAUSIBLE, At::Input(0), message).label("narrow").help(help)
    };
    System::ALL.into_iter().filter(is_narrow).map(warning).collect()
}

/// Returns two signals with different carriers, if there are any.
fn two_carriers(satellites: &[&Satellite]) -> Option<[System; 2]> {
    let one = satellites.first()?.system;
    let other = satellites.iter().map(|satellite| satellite.system);
    let mut others = other.filter(|other| (other.carrier_hz() - one.carrier_hz()).abs() > 1.0);
    others.next().map(|other| [one, other])
}

/// Returns diagnostics for satellites that do not exist, or whose signals do not fit in the band.
#[must_use]
pub fn reject_satellites<'a>(
    satellites: impl ExactSizeIterator<Item = &'a Satellite>,
    samples: Option<&Samples>,
) -> Vec<Rejection> {
    let mut rejections = Vec::new();
    let mut reject = |message: String, help: String| {
        rejections.push(Rejection::parameter("satellites", message).help(help));
    };
    let count = satellites.len();
    if count == 0 || count > MAX_SATELLITES {
        let message = format!("`satellites` must have 1 to {MAX_SATELLITES} entries, got {count}");
        reject(message, "list satellites such as {system: gps_l1_ca, prn: 7}".to_owned());
    }
    let satellites: Vec<&Satellite> = satellites.take(MAX_SATELLITES).collect();
    if let Some(Samples { carriers: Carriers::At(hz), .. }) = samples
        && let Some([one, other]) = two_carriers(&satellites)
    {
        let message = format!(
            "the carriers of {} and {} are not both at {hz} Hz of the samples",
            one.name(),
            other.name()
        );
        let help =
            "give the input a band instead of `intermediate_hz`, or use a block for each carrier";
        reject(message, help.to_owned());
    }
    for satellite in satellites {
        let system = satellite.system;
        let prns = system.prns();
        if !prns.contains(&satellite.prn) {
            let (name, first, last) = (system.name(), prns.start(), prns.end());
            let message = format!(
                "`prn` of {name} must be between {first} and {last}, got {}",
                satellite.prn
            );
            reject(message, format!("give a number from {first} to {last}"));
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
            reject(message, "give a smaller value".to_owned());
        } else if let Some(samples) = samples
            && let Some((message, help)) = outside_band(system, satellite.doppler_hz, samples)
        {
            reject(message, help);
        }
    }
    rejections
}

#[cfg(test)]
mod tests {
    use super::*;
    use fxgraph_dsp::gnss::Subcarrier;

    /// Row of a signal in the table of signals.
    fn row(system: System) -> String {
        let signal = system.signal();
        let (first, last) = (signal.prns.start(), signal.prns.end());
        let shape = match signal.subcarrier {
            Subcarrier::None => "rectangle".to_owned(),
            Subcarrier::Sine(half_periods) => {
                format!("BOC({},1), {half_periods} entries", half_periods / 2)
            }
            Subcarrier::Cosine(half_periods) => format!("BOCcos({},1)", half_periods / 2),
            Subcarrier::Sum => "CBOC(6,1,1/11), levels 79 and 25, 12 entries".to_owned(),
            Subcarrier::Difference => {
                "CBOC(6,1,1/11) with -BOC(6,1), levels 79 and 25, 12 entries".to_owned()
            }
            Subcarrier::TimeMultiplexed => "TMBOC(6,1,4/33), 12 entries".to_owned(),
            Subcarrier::FirstHalf => "first half, 2 entries".to_owned(),
            Subcarrier::SecondHalf => "second half, 2 entries".to_owned(),
        };
        let secondary =
            signal.secondary.map_or("none".to_owned(), |(length, _)| format!("{length} chips"));
        let period_ms = 1e3 * system.period_seconds();
        let symbol = signal
            .periods_per_symbol
            .map_or("pilot".to_owned(), |periods| format!("{} ms", periods as f64 * period_ms));
        format!(
            "| {} | `{}` | {first} to {last} | `{}` to `{}` | {} | {} | {} | {shape} | {period_ms} | {secondary} | {symbol} |",
            system.number(),
            signal.name,
            system.label(*first),
            system.label(*last),
            signal.carrier_hz / 1e6,
            signal.chips,
            signal.chip_rate_hz / 1e6,
        )
    }

    #[test]
    fn page_of_the_correlator_has_the_table_of_signals() {
        let page = include_str!("gnss_correlator/README.md");
        let rows: Vec<String> = System::ALL.into_iter().map(row).collect();
        let missing: Vec<&String> = rows.iter().filter(|row| !page.contains(*row)).collect();
        assert!(missing.is_empty(), "{missing:#?}");
    }
}
