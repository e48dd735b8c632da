#![doc = include_str!("README.md")]

mod cpu;
mod sky;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use crate::common::parallel::{MAX_THREADS, threads_for};
use fxgraph::{
    Axis, Band, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    PortType, Rejection, Resources, ValidityType,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `frb_simulator`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "frb_simulator", page = "README.md", examples("example.yaml"), outputs("output"))]
pub struct FrbSimulator {
    /// ADC sample rate in Hz.
    #[param(default = 800e6)]
    pub adc_sample_rate_hz: f64,
    /// ADC samples from one spectrum to the next.
    #[param(default = 2048)]
    pub samples_per_spectrum: u64,
    /// Spectra of a frame.
    pub spectra_per_frame: usize,
    /// Number of frames; by default the block continues until the flowgraph stops.
    pub frames: Option<u64>,
    /// Number of simulated channels.
    pub channels: usize,
    /// The whole band, which contains the simulated channels.
    #[param(default)]
    pub band: WholeBand,
    /// Cylinders, from west to east.
    #[param(default = 4)]
    pub cylinders: usize,
    /// Feeds per cylinder, from north to south.
    #[param(default = 256)]
    pub feeds: usize,
    /// Spacing of the cylinders from west to east, in metres.
    #[param(default = 22.0)]
    pub cylinder_spacing_metres: f64,
    /// Spacing of the feeds from north to south, in metres.
    #[param(default = 0.3048)]
    pub feed_spacing_metres: f64,
    /// Type of the voltages: `ci4` or `ci8`.
    #[param(default)]
    pub dtype: Voltages,
    /// Standard deviation of each receiver's noise, of real and of imaginary part.
    #[param(default = 2.0)]
    pub noise: f64,
    /// Point source that crosses the sky.
    pub source: Option<Source>,
    /// Pulse of that source.
    pub pulse: Option<Pulse>,
    /// Seed of the noise of receivers and source.
    #[param(default)]
    pub seed: u64,
    /// Threads that share the spectra of a frame, 0 for all cores. Small frames use one thread.
    #[param(default, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

/// The band of the telescope.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WholeBand {
    /// Channels of the band.
    pub channels: usize,
    /// Index of the first simulated channel.
    pub first_channel: usize,
    /// Frequency of the middle channel of the band in Hz.
    pub centre_hz: f64,
    /// Width in Hz; negative if the spectrum is inverted (lower sideband).
    pub bandwidth_hz: f64,
}

impl Default for WholeBand {
    fn default() -> Self {
        Self { channels: 1024, first_channel: 0, centre_hz: 600e6, bandwidth_hz: 400e6 }
    }
}

/// Type of the simulated voltages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Voltages {
    /// Two integers of 4 bits, up to 7.
    #[default]
    Ci4,
    /// Two integers of 8 bits, up to 127.
    Ci8,
}

/// A point source of noise that moves from east to west, or from west to east.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Angle to the east of the meridian at timestamp 0, in degrees.
    pub east_degrees: f64,
    /// Rate of change of `east_degrees`, in degrees per second. The sidereal rate is -0.0042.
    #[serde(default)]
    pub east_degrees_per_second: f64,
    /// Angle to the north of the zenith, in degrees.
    #[serde(default)]
    pub north_degrees: f64,
    /// Standard deviation at each feed, of real and of imaginary part.
    pub amplitude: f64,
}

/// A pulse that is delayed by `4.148808 ms x dispersion measure / (frequency in GHz)^2`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pulse {
    /// Time of the peak at the highest frequency of the simulated channels, in seconds from timestamp 0.
    pub at_seconds: f64,
    /// Width at half of the peak power, in seconds.
    pub width_seconds: f64,
    /// Dispersion measure, in parsecs per cubic centimetre.
    #[serde(default)]
    pub dispersion_measure: f64,
    /// Standard deviation at the peak, at each feed, of real and of imaginary part.
    pub amplitude: f64,
}

/// Largest length of an axis.
const MOST: usize = 1 << 20;
/// Largest frame in bytes.
const MOST_BYTES: usize = 1 << 30;

impl FrbSimulator {
    fn element(&self) -> Dtype {
        match self.dtype {
            Voltages::Ci4 => Dtype::Ci4,
            Voltages::Ci8 => Dtype::Ci8,
        }
    }

    fn whole_band(&self) -> Band {
        let WholeBand { channels, first_channel, centre_hz, bandwidth_hz } = self.band;
        Band::signed(channels, first_channel, centre_hz, bandwidth_hz)
    }

    fn port(&self) -> PortType {
        let axes = vec![
            Axis::new("spectrum", self.spectra_per_frame).from_parameter("spectra_per_frame"),
            Axis::new("channel", self.channels).from_parameter("channels"),
            Axis::new("pol", 2),
            Axis::new("east_west", self.cylinders).from_parameter("cylinders"),
            Axis::new("north_south", self.feeds).from_parameter("feeds"),
        ];
        PortType {
            dtype: self.element(),
            axes,
            clock: Clock::new(
                self.adc_sample_rate_hz,
                self.samples_per_spectrum.saturating_mul(self.spectra_per_frame as u64),
            ),
            band: Some(self.whole_band()),
            validity: ValidityType::flags(vec![Axis::new("spectrum", self.spectra_per_frame)]),
        }
    }

    fn rejections(&self) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let mut reject = |parameter, message: String, help: &str| {
            rejections.push(Rejection::parameter(parameter, message).help(help));
        };
        let lengths = [
            ("spectra_per_frame", self.spectra_per_frame),
            ("channels", self.channels),
            ("cylinders", self.cylinders),
            ("feeds", self.feeds),
        ];
        // For both polarisations.
        let mut bytes = Some(2 * self.element().bytes(1));
        for (parameter, len) in lengths {
            bytes = bytes.and_then(|bytes| bytes.checked_mul(len));
            if !(1..=MOST).contains(&len) {
                let message = format!("`{parameter}` must be between 1 and {MOST}, got {len}");
                reject(parameter, message, "use a smaller array or shorter frames");
            }
        }
        if bytes.is_none_or(|bytes| bytes > MOST_BYTES) {
            let message = "a frame takes more than 1 GiB".to_owned();
            reject("spectra_per_frame", message, "reduce `spectra_per_frame`");
        }
        if self.samples_per_spectrum == 0 || self.samples_per_spectrum > 1 << 32 {
            let message = format!(
                "`samples_per_spectrum` must be between 1 and 2^32, got {}",
                self.samples_per_spectrum
            );
            reject("samples_per_spectrum", message, "set twice the channels of the band");
        }
        if !(self.adc_sample_rate_hz > 0.0 && self.adc_sample_rate_hz < 1e15) {
            let message = format!(
                "`adc_sample_rate_hz` must be positive and below 1e15, got {}",
                self.adc_sample_rate_hz
            );
            reject(
                "adc_sample_rate_hz",
                message,
                "set the sample rate in Hz, for example 800.0e+6",
            );
        }
        let band = self.band;
        let last = band.first_channel.saturating_add(self.channels);
        if band.channels == 0 || band.channels > MOST || last > band.channels {
            let message = format!(
                "`band.first_channel` + `channels` must be at most the {} channels of the band, got {last}",
                band.channels
            );
            reject("band", message, "reduce `channels`, or set `band.channels`");
        }
        let lowest_hz = band.centre_hz - band.bandwidth_hz.abs() / 2.0;
        // NaN fails the comparison, so it is rejected too.
        let is_band = lowest_hz > 0.0 && band.centre_hz < 1e15;
        if !is_band {
            let message = format!(
                "frequencies of `band` must be between 0 and 1e15 Hz, got {} Hz around {} Hz",
                band.bandwidth_hz, band.centre_hz
            );
            reject("band", message, "set `centre_hz` and `bandwidth_hz` in Hz");
        }
        let is_length = |metres: f64| metres > 0.0 && metres < 1e6;
        for (parameter, metres) in [
            ("cylinder_spacing_metres", self.cylinder_spacing_metres),
            ("feed_spacing_metres", self.feed_spacing_metres),
        ] {
            if !is_length(metres) {
                let message = format!("`{parameter}` must be positive and below 1e6, got {metres}");
                reject(parameter, message, "set the distance in metres");
            }
        }
        let is_amplitude = |value: f64| (0.0..1e6).contains(&value);
        if !is_amplitude(self.noise) {
            let message = format!("`noise` must be at least 0 and below 1e6, got {}", self.noise);
            reject("noise", message, "omit it for the default of 2");
        }
        if let Some(source) = self.source {
            let angles =
                [source.east_degrees, source.north_degrees, source.east_degrees_per_second];
            if !(angles.iter().all(|angle| angle.abs() <= 1e9) && is_amplitude(source.amplitude)) {
                let message =
                    "angles of `source` must be within +-1e9 and `amplitude` at least 0 and below 1e6"
                        .to_owned();
                reject("source", message, "set angles in degrees");
            }
        } else if self.pulse.is_some() {
            let message = "`pulse` needs a `source`".to_owned();
            reject("pulse", message, "add a `source`, with `amplitude: 0` for a pulse alone");
        }
        if let Some(pulse) = self.pulse {
            let is_time = pulse.at_seconds.is_finite() && pulse.width_seconds > 0.0;
            let fits = is_time && (0.0..1e6).contains(&pulse.dispersion_measure);
            if !(fits && is_amplitude(pulse.amplitude)) {
                let message = "time and width of `pulse` must be finite, the width positive, dispersion measure \
                               and amplitude at least 0 and below 1e6"
                    .to_owned();
                reject("pulse", message, "set for example `width_seconds: 3.0e-4`");
            }
        }
        rejections
    }

    /// Threads that share a frame.
    fn threads(&self) -> usize {
        // About 60 operations for the noise of each voltage.
        let voltages = self.spectra_per_frame * self.channels * 2 * self.cylinders * self.feeds;
        threads_for(self.threads, 60.0 * voltages as f64)
    }
}

impl KindSpec for FrbSimulator {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        Ok(Box::new(cpu::Simulator::new(block.parameters.clone(), env)?))
    })];

    fn ports(&self, _inputs: &[PortType]) -> Checked<()> {
        let rejections = self.rejections();
        if rejections.is_empty() { Ok(((), vec![self.port()])) } else { Err(rejections) }
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let parameters = &block.parameters;
        let host_bytes =
            size_of::<f64>() * parameters.channels + size_of::<u64>() * parameters.threads();
        Resources { host_bytes, ..Resources::default() }
    }
}
