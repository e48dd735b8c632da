//! Diagnostics for the parameters of `pfb`.

use super::{MAX_CHANNELS, MAX_DELAY_SAMPLES, MAX_TAPS, Pfb};
use crate::common::axes::MAX_FRAME_BYTES;
use crate::common::delay::{MaxRates, reject_disorder, reject_piece};
use crate::common::spectra::{MIN_CHANNELS, can_be_channels, nearest_channels};
use crate::f_engine::samples::input::{is_complex, ticks};
use fxgraph::changes::MAX_TIMESTAMP;
use fxgraph::diagnostic::codes;
use fxgraph::{At, PortType, Rejection};

/// Widest pass band of the filter, in channels.
const MAX_CUTOFF_CHANNELS: usize = 64;

impl Pfb {
    /// Diagnostics that do not depend on the inputs.
    pub(super) fn parameter_rejections(&self) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let mut reject = |name, message: String, help: String| {
            rejections.push(Rejection::parameter(name, message).help(help));
        };
        if !can_be_channels(self.channels) || self.channels > MAX_CHANNELS {
            reject(
                "channels",
                format!(
                    "`channels` must be an even number from {MIN_CHANNELS} to {MAX_CHANNELS} with the prime factors 2, 3 and \
                     5, got {}",
                    self.channels
                ),
                nearest_channels(self.channels, MAX_CHANNELS),
            );
        }
        if !(1..=MAX_TAPS).contains(&self.taps) {
            reject(
                "taps",
                format!("`taps` must be between 1 and {MAX_TAPS}, got {}", self.taps),
                "omit it for the default of 16".to_owned(),
            );
        }
        let most_channels = self.channels.clamp(1, MAX_CUTOFF_CHANNELS);
        if !(0.0..=most_channels as f64).contains(&self.w_cutoff) {
            reject(
                "w_cutoff",
                format!("`w_cutoff` must be between 0 and {most_channels}, got {}", self.w_cutoff),
                "omit it for the default of 1".to_owned(),
            );
        }
        // Each series has a multiple of 4 channels, as the last step of the transform needs.
        let most = 1 << (self.channels / 4).max(1).trailing_zeros().min(4);
        if !self.unzip.is_power_of_two() || self.unzip > most {
            reject(
                "unzip",
                format!(
                    "`unzip` must be a power of two up to {most} with {} channels, got {}",
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
                reject(name, message, "omit it for the default limit".to_owned());
            }
        }
        if let Some(hz) = self.centre_hz.filter(|hz| !hz.is_finite()) {
            reject(
                "centre_hz",
                format!("`centre_hz` must be finite, got {hz}"),
                "omit it for a quarter of the sample rate".to_owned(),
            );
        }
        rejections
    }

    /// Diagnostics for parameters that complex samples do not allow.
    pub(super) fn baseband_rejections(&self, input: &PortType) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let mut reject = |name, message: &str, help: &str| {
            rejections.push(Rejection::parameter(name, message).help(help));
        };
        if is_complex(input) && self.unzip != 1 {
            reject(
                "unzip",
                "`unzip` must be 1 for complex samples",
                "omit `unzip`: a complex transform needs no step to a real one",
            );
        }
        if is_complex(input) && self.centre_hz(input).is_none() {
            reject(
                "centre_hz",
                "complex input has no known centre frequency",
                "set `centre_hz` to the sky frequency at 0 Hz of the input",
            );
        }
        if self.nyquist_zone.is_some() && (is_complex(input) || input.band.is_some()) {
            reject(
                "nyquist_zone",
                "`nyquist_zone` needs real samples whose source states no band",
                "omit it: the band of the input has the sideband",
            );
        }
        rejections
    }

    /// Diagnostic for polarisations of different bands, unless `centre_hz` is set.
    pub(super) fn band_rejections(&self, inputs: &[PortType]) -> Vec<Rejection> {
        let sideband = inputs[0].sideband();
        if let Some(other) = inputs.iter().position(|input| input.sideband() != sideband) {
            let message = "one polarisation has the upper sideband and the other one the lower";
            let rejection = Rejection::new(codes::INPUTS_DIFFER, At::Input(other), message);
            return vec![rejection.help("give both sources the same band")];
        }
        let is_other = |input: &PortType| input.band != inputs[0].band;
        let other = inputs.iter().position(is_other).filter(|_| self.centre_hz.is_none());
        let reject = |other: usize| {
            let centre = |input: usize| match inputs[input].band {
                Some(band) => format!("{} Hz", band.centre_hz),
                None => "an unknown frequency".to_owned(),
            };
            let message = format!(
                "the polarisations have different bands, centred at {} and at {}",
                centre(0),
                centre(other)
            );
            Rejection::new(codes::INPUTS_DIFFER, At::Input(other), message)
                .help("give both `ddc` the same `centre_hz`, or set `centre_hz` here")
        };
        other.map(reject).into_iter().collect()
    }

    /// Diagnostics for the number of spectra of a frame.
    pub(super) fn frame_rejections(&self, inputs: &[PortType]) -> Vec<Rejection> {
        let (pols, input) = (inputs.len(), &inputs[0]);
        let spectrum_bytes = self.spectrum_bytes() * pols.max(1);
        let most = MAX_FRAME_BYTES / spectrum_bytes;
        let spectra = self.spectra(pols);
        if !(1..=most).contains(&spectra) {
            let message = format!(
                "`spectra_per_frame` must be between 1 and {most} with {} channels, got {spectra}",
                self.channels
            );
            let rejection = Rejection::parameter("spectra_per_frame", message);
            return vec![rejection.help("omit it for frames of about 1 MiB")];
        }
        let apart = (self.step(input) as u64).saturating_mul(ticks(input) as u64);
        if spectra as u64 > MAX_TIMESTAMP / apart {
            let message = format!(
                "a frame of {spectra} spectra, {apart} ticks apart, exceeds the range of timestamps"
            );
            return vec![Rejection::new(codes::RATE, At::Input(0), message)];
        }
        Vec::new()
    }

    /// Diagnostics for delay models that do not fit the inputs.
    pub(super) fn delay_rejections(&self, inputs: &[PortType]) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        if !self.delays.is_empty() && self.delays.len() != inputs.len() {
            let message = format!(
                "`delays` must have one list for each of the {} inputs, got {} lists",
                inputs.len(),
                self.delays.len()
            );
            let help = "write one list of pieces for each input, `[]` for no delay";
            rejections.push(Rejection::parameter("delays", message).help(help));
        }
        let rate_hz = inputs[0].clock.adc_sample_rate_hz;
        let max = self.max_delay_seconds();
        if !(0.0..=MAX_DELAY_SAMPLES).contains(&(max * rate_hz)) {
            let most = MAX_DELAY_SAMPLES / rate_hz;
            let message = format!("`max_delay_seconds` must be between 0 and {most:e}, got {max}");
            let help = "omit it for the default limit";
            rejections.push(Rejection::parameter("max_delay_seconds", message).help(help));
        }
        for pieces in &self.delays {
            rejections.extend(reject_disorder("delays", pieces));
            let rates = self.rates();
            rejections
                .extend(pieces.iter().flat_map(|p| reject_piece(p, "delays", rate_hz, max, rates)));
        }
        rejections
    }
}

/// Help that names the powers of two nearest to `value`, from `least` to `most`.
fn nearest_powers(value: usize, least: usize, most: usize) -> String {
    let value = value.clamp(least, most);
    let above = value.next_power_of_two();
    let below = if above == value { value } else { above / 2 };
    if below == above {
        format!("use {below}, the nearest power of two")
    } else {
        format!("use {below} or {above}, the nearest powers of two")
    }
}
