//! Values that are possible and probably not meant.

use super::rejection::{At, Rejection};
use crate::diagnostic::codes;
use crate::port::PortType;

/// Largest relative difference between a value and the one in use without a warning.
const MAX_DIFFERENCE: f64 = 0.1;
/// Sample rates below this one in Hz were probably given in MHz or GHz.
const LEAST_RATE_HZ: f64 = 1e4;
/// Bands narrower than this part of the rate of their samples were probably given in kHz or MHz.
const LEAST_WIDTH: f64 = 1.1e-3;

/// A parameter in physical units that the block rounds to a grid, such as a dump that has whole heaps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounded {
    /// Parameter; a path with dots for nested values.
    pub parameter: &'static str,
    /// Unit, such as `s`.
    pub unit: &'static str,
    /// Value of the parameter.
    pub given: f64,
    /// Value in use.
    pub used: f64,
    /// Step of the grid.
    pub step: f64,
}

impl Rounded {
    /// Warning, if the value in use differs by more than 10 % from the given one.
    #[must_use]
    pub fn warning(&self) -> Option<Rejection> {
        let Self { parameter, unit, given, used, step } = *self;
        let is_near = (used - given).abs() <= MAX_DIFFERENCE * given.abs();
        let [given, used, step] = [given, used, step].map(four_digits);
        (!is_near).then(|| {
            let message =
                format!("`{parameter}` of {given} {unit} is rounded to {used} {unit}, the nearest possible value");
            Rejection::new(codes::IMPLAUSIBLE, At::Parameter(parameter), message)
                .label(format!("becomes {used}"))
                .help(format!("give a multiple of {step} {unit}, or make this step smaller upstream"))
        })
    }
}

/// `value` with four significant digits.
#[must_use]
pub fn four_digits(value: f64) -> String {
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    if (1e-4..1e9).contains(&rounded.abs()) || rounded == 0.0 {
        format!("{rounded}")
    } else {
        format!("{rounded:e}")
    }
}

/// Warning about the sample rate of a digitiser that was probably given in MHz or GHz.
#[must_use]
pub fn slow_digitiser(parameter: &'static str, rate_hz: f64) -> Option<Rejection> {
    (rate_hz > 0.0 && rate_hz < LEAST_RATE_HZ).then(|| {
        let message =
            format!("`{parameter}` is {rate_hz} Hz, which is slow for a digitiser: is it in MHz?");
        Rejection::new(codes::IMPLAUSIBLE, At::Parameter(parameter), message)
            .label("in Hz")
            .help(format!("for {rate_hz} MHz write {:e}", rate_hz * 1e6))
    })
}

/// Warning about a band of samples that is wider than their rate allows, or so narrow that its width was probably given
/// in kHz or MHz. `parameter` sets the band of `port`.
#[must_use]
pub fn unlikely_band(parameter: &'static str, port: &PortType) -> Option<Rejection> {
    let band = port.band.filter(|band| band.channels == 1)?;
    let sample = port.axes.iter().find(|axis| axis.name == "sample")?;
    let clock = &port.clock;
    let rate_hz = clock.adc_sample_rate_hz * sample.len as f64 / clock.samples_per_frame as f64;
    let widest = if port.dtype.is_complex() { rate_hz } else { rate_hz / 2.0 };
    let width = band.bandwidth_hz;
    let is_likely = width <= 1.01 * widest && width >= LEAST_WIDTH * widest;
    let [width, widest] = [width, widest].map(four_digits);
    (!is_likely).then(|| {
        let message =
            format!("the band has {width} Hz, but the rate of its samples allows {widest} Hz");
        Rejection::new(codes::IMPLAUSIBLE, At::Parameter(parameter), message)
            .label("does not fit the sample rate")
            .help(format!("give the width in Hz, such as {widest}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Dtype;
    use crate::port::{Axis, Band, Clock, ValidityType};

    #[test]
    fn band_must_fit_the_rate_of_its_samples() {
        let warns = |dtype, bandwidth_hz: f64| {
            let port = PortType {
                dtype,
                axes: vec![Axis::new("sample", 100)],
                clock: Clock::new(2e6, 200),
                band: Some(Band::signed(1, 0, 1e9, bandwidth_hz)),
                validity: ValidityType::flags(vec![]),
            };
            unlikely_band("band", &port).is_some()
        };
        for (dtype, widest) in [(Dtype::I8, 5e5), (Dtype::Ci8, 1e6)] {
            let warned = [widest, -widest, 0.6 * widest, 1.1 * widest, 1e-6 * widest];
            assert_eq!(warned.map(|hz| warns(dtype, hz)), [false, false, false, true, true]);
        }
    }

    fn dump(given: f64, used: f64) -> Option<String> {
        let rounded = Rounded { parameter: "dump_seconds", unit: "s", given, used, step: 0.032 };
        rounded.warning().map(|warning| warning.message)
    }

    #[test]
    fn rounded_warns_above_ten_percent() {
        assert_eq!(dump(0.5, 0.512), None);
        assert_eq!(dump(1.0, 0.9), None);
        assert_eq!(
            dump(0.001, 0.032).as_deref(),
            Some("`dump_seconds` of 0.001 s is rounded to 0.032 s, the nearest possible value")
        );
        assert!(dump(0.1, 0.111).is_some() && dump(0.1, 0.089).is_some());
    }

    #[test]
    fn slow_digitiser_is_one_below_ten_kilohertz() {
        let help = slow_digitiser("rate", 1712.0).and_then(|warning| warning.help);
        assert_eq!(help.as_deref(), Some("for 1712 MHz write 1.712e9"));
        assert!(
            slow_digitiser("rate", 48e3).is_none() && slow_digitiser("rate", 1.712e9).is_none()
        );
    }

    #[test]
    fn four_digits_are_short() {
        let texts = [0.0766, 1.0 / 3.0, 1.712e9, 0.0, 1e-7, 123_456.0].map(four_digits);
        assert_eq!(texts, ["0.0766", "0.3333", "1.712e9", "0", "1e-7", "123500"]);
    }
}
