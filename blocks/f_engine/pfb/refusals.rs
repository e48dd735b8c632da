//! Why the parameters of `pfb` are refused.

use super::{MAX_CHANNELS, MAX_DELAY_SAMPLES, MAX_TAPS, Pfb};
use crate::common::axes::MAX_FRAME_BYTES;
use crate::common::delay::{MaxRates, refuse_disorder, refuse_piece};
use crate::f_engine::samples::input::is_complex;
use crate::f_engine::samples::schedule::subsampling;
use fxgraph::diagnostic::codes;
use fxgraph::retune::MAX_TIMESTAMP;
use fxgraph::{At, PortType, Refusal};

/// Widest pass band of the filter, in channels.
const MAX_CUTOFF_CHANNELS: usize = 64;

impl Pfb {
    /// Refuses what is wrong whatever the inputs are.
    pub(super) fn parameter_refusals(&self) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut refuse = |name, message: String, help: String| {
            refusals.push(Refusal::parameter(name, message).help(help));
        };
        if !self.channels.is_power_of_two() || !(4..=MAX_CHANNELS).contains(&self.channels) {
            refuse(
                "channels",
                format!(
                    "`pfb` needs a number of channels that is a power of two, not {}",
                    self.channels
                ),
                nearest_powers(self.channels, 4, MAX_CHANNELS),
            );
        }
        if !(1..=MAX_TAPS).contains(&self.taps) {
            refuse(
                "taps",
                format!("`pfb` cannot filter with {} taps", self.taps),
                format!("1 to {MAX_TAPS} taps are possible, 16 are usual"),
            );
        }
        let most_channels = self.channels.clamp(1, MAX_CUTOFF_CHANNELS);
        if !(0.0..=most_channels as f64).contains(&self.w_cutoff) {
            refuse(
                "w_cutoff",
                format!("a cut-off of {} channels is out of range", self.w_cutoff),
                format!("0 to {most_channels} are possible, 1 is usual"),
            );
        }
        let most = (self.channels / 4).clamp(1, 16);
        if !self.unzip.is_power_of_two() || self.unzip > most {
            refuse(
                "unzip",
                format!(
                    "a spectrum of {} channels cannot be cut into {} series",
                    self.channels, self.unzip
                ),
                nearest_powers(self.unzip, 1, most),
            );
        }
        let MaxRates { delay, phase_radians_per_second } = self.rates();
        for (name, limit) in [
            ("max_delay_rate", delay),
            ("max_fringe_rate_radians_per_second", phase_radians_per_second),
        ] {
            if !(limit >= 0.0 && limit.is_finite()) {
                let message = format!("`{name}` must be finite and at least 0, got {limit}");
                refuse(name, message, "leave it out for the usual limit".to_owned());
            }
        }
        if self.centre_hz.is_some_and(|hz| !hz.is_finite()) {
            refuse(
                "centre_hz",
                "the centre of the band is not a number".to_owned(),
                "leave it out for a quarter of the sample rate".to_owned(),
            );
        }
        refusals
    }

    /// Refuses what does not go with complex samples.
    pub(super) fn baseband_refusals(&self, input: &PortType) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut refuse = |name, message: &str, help: &str| {
            refusals.push(Refusal::parameter(name, message).help(help));
        };
        if is_complex(input) && self.unzip != 1 {
            refuse(
                "unzip",
                "spectra of complex samples are not cut into series",
                "leave `unzip` out: their transform needs no step to a real one",
            );
        }
        if is_complex(input) && self.centre_hz(input).is_none() {
            refuse(
                "centre_hz",
                "complex input has no known centre frequency",
                "set `centre_hz` to the frequency at 0 Hz of the input, or to that on the sky",
            );
        }
        refusals
    }

    /// Refuses polarisations of different parts of the band, unless `centre_hz` says what they are.
    pub(super) fn band_refusals(&self, inputs: &[PortType]) -> Vec<Refusal> {
        let is_other = |input: &PortType| input.band != inputs[0].band;
        let other = inputs.iter().position(is_other).filter(|_| self.centre_hz.is_none());
        let refuse = |other: usize| {
            let centre = |input: usize| match inputs[input].band {
                Some(band) => format!("{} Hz", band.centre_hz),
                None => "no known frequency".to_owned(),
            };
            let message = format!(
                "the polarisations are from different bands: around {}, and around {}",
                centre(0),
                centre(other)
            );
            Refusal::new(codes::INPUTS_DIFFER, At::Input(other), message)
                .help("give both `ddc` the same `centre_hz`, or set `centre_hz` here")
        };
        other.map(refuse).into_iter().collect()
    }

    /// Refuses frames of a size that cannot be.
    pub(super) fn frame_refusals(&self, inputs: &[PortType]) -> Vec<Refusal> {
        let (pols, input) = (inputs.len(), &inputs[0]);
        let spectrum_bytes = self.spectrum_bytes() * pols.max(1);
        let most = MAX_FRAME_BYTES / spectrum_bytes;
        let spectra = self.spectra(pols);
        if !(1..=most).contains(&spectra) {
            let message = format!("a frame cannot have {spectra} spectra");
            let refusal = Refusal::parameter("spectra_per_frame", message);
            let help = format!("1 to {most} are possible with {} channels", self.channels);
            return vec![refusal.help(help)];
        }
        let apart = (self.step(input) as u64).saturating_mul(subsampling(input) as u64);
        if spectra as u64 > MAX_TIMESTAMP / apart {
            let message =
                format!("frames of spectra {apart} samples apart go beyond all timestamps");
            return vec![Refusal::new(codes::RATE, At::Input(0), message)];
        }
        Vec::new()
    }

    /// Refuses delay models that do not go with the inputs.
    pub(super) fn delay_refusals(&self, inputs: &[PortType]) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        if !self.delays.is_empty() && self.delays.len() != inputs.len() {
            let message = format!(
                "there are delay models for {} polarisations, but {} inputs",
                self.delays.len(),
                inputs.len()
            );
            let help = "give one list of pieces for each input, empty for no delay";
            refusals.push(Refusal::parameter("delays", message).help(help));
        }
        let rate_hz = inputs[0].clock.adc_sample_rate_hz;
        let max = self.max_delay_seconds();
        if !(0.0..=MAX_DELAY_SAMPLES).contains(&(max * rate_hz)) {
            let message = format!("delays of up to {max} seconds cannot be buffered");
            let help = format!("up to {:e} s are possible", MAX_DELAY_SAMPLES / rate_hz);
            refusals.push(Refusal::parameter("max_delay_seconds", message).help(help));
        }
        for pieces in &self.delays {
            refusals.extend(refuse_disorder("delays", pieces));
            let rates = self.rates();
            refusals
                .extend(pieces.iter().flat_map(|p| refuse_piece(p, "delays", rate_hz, max, rates)));
        }
        refusals
    }
}

/// Advice that names the powers of two around `value` within the limits.
fn nearest_powers(value: usize, least: usize, most: usize) -> String {
    let value = value.clamp(least, most);
    let above = value.next_power_of_two();
    let below = if above == value { value } else { above / 2 };
    if below == above {
        format!("{below} is the nearest")
    } else {
        format!("{below} and {above} are the nearest")
    }
}
