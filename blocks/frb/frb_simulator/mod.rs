#![doc = include_str!("README.md")]

mod cpu;
mod sky;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use crate::common::parallel::{MAX_THREADS, threads_for};
use fxgraph::{
    Axis, Band, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    PortType, Refusal, Resources, ValidityType,
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
    /// Number of frames; without it the block goes on until the flowgraph stops.
    pub frames: Option<u64>,
    /// Channels that are made.
    pub channels: usize,
    /// The whole band, of which these channels are a part.
    #[param(default)]
    pub band: WholeBand,
    /// Cylinders, from west to east.
    #[param(default = 4)]
    pub cylinders: usize,
    /// Feeds of a cylinder, from north to south.
    #[param(default = 256)]
    pub feeds: usize,
    /// How far each cylinder stands to the east of the one before, in metres.
    #[param(default = 22.0)]
    pub cylinder_spacing_metres: f64,
    /// How far each feed stands to the south of the one before, in metres.
    #[param(default = 0.3048)]
    pub feed_spacing_metres: f64,
    /// Type of the voltages: `ci4`, or `ci8`.
    #[param(default)]
    pub dtype: Voltages,
    /// Standard deviation of each receiver's noise, of real and of imaginary part.
    #[param(default = 2.0)]
    pub noise: f64,
    /// Point source that crosses the sky.
    pub source: Option<Source>,
    /// Pulse of that source.
    pub pulse: Option<Pulse>,
    /// Selects the noise of receivers and source.
    #[param(default)]
    pub seed: u64,
    /// Threads that share the spectra of a frame, 0 for all cores, or one if a frame is too little work to share.
    #[param(default, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

/// The band of the telescope.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WholeBand {
    /// Channels of the band.
    pub channels: usize,
    /// Index of the first channel that is made.
    pub first_channel: usize,
    /// Frequency of its middle channel in Hz.
    pub centre_hz: f64,
    /// Width in Hz.
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
    /// Its change with time. The sky turns by -0.0042 degrees per second.
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
    /// When its middle comes, in seconds from timestamp 0, at the highest frequency of the channels made.
    pub at_seconds: f64,
    /// Its width at half of the peak power, in seconds.
    pub width_seconds: f64,
    /// Electrons on its way, in parsecs per cubic centimetre.
    #[serde(default)]
    pub dispersion_measure: f64,
    /// Standard deviation at the peak, at each feed, of real and of imaginary part.
    pub amplitude: f64,
}

/// Longest axis.
const MOST: usize = 1 << 20;
/// Largest frame.
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
        Band { channels, first_channel, centre_hz, bandwidth_hz }
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
            clock: Clock {
                adc_sample_rate_hz: self.adc_sample_rate_hz,
                sync_time_seconds: 0.0,
                samples_per_frame: self
                    .samples_per_spectrum
                    .saturating_mul(self.spectra_per_frame as u64),
            },
            band: Some(self.whole_band()),
            validity: ValidityType::flags(vec![Axis::new("spectrum", self.spectra_per_frame)]),
        }
    }

    fn refusals(&self) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut refuse = |parameter, message: String, help: &str| {
            refusals.push(Refusal::parameter(parameter, message).help(help));
        };
        let lengths = [
            ("spectra_per_frame", self.spectra_per_frame),
            ("channels", self.channels),
            ("cylinders", self.cylinders),
            ("feeds", self.feeds),
        ];
        // Of both polarisations.
        let mut bytes = Some(2 * self.element().bytes(1));
        for (parameter, len) in lengths {
            bytes = bytes.and_then(|bytes| bytes.checked_mul(len));
            if !(1..=MOST).contains(&len) {
                refuse(parameter, format!("{len} is out of range"), "1 to 1048576");
            }
        }
        if bytes.is_none_or(|bytes| bytes > MOST_BYTES) {
            let message = "a frame takes more than 1 GiB".to_owned();
            refuse("spectra_per_frame", message, "make shorter frames");
        }
        if self.samples_per_spectrum == 0 || self.samples_per_spectrum > 1 << 32 {
            let message = format!("spectra of {} samples are none", self.samples_per_spectrum);
            refuse("samples_per_spectrum", message, "twice the channels of the band, mostly");
        }
        if !(self.adc_sample_rate_hz > 0.0 && self.adc_sample_rate_hz < 1e15) {
            let message = format!("{} Hz is not a sample rate", self.adc_sample_rate_hz);
            refuse("adc_sample_rate_hz", message, "more than 0");
        }
        let band = self.band;
        let last = band.first_channel.saturating_add(self.channels);
        if band.channels == 0 || band.channels > MOST || last > band.channels {
            let message = format!("the band has {} channels, {last} are asked for", band.channels);
            refuse("band", message, "first_channel + channels are at most the band's channels");
        }
        let lowest_hz = band.centre_hz - band.bandwidth_hz.abs() / 2.0;
        // Written so that NaN is refused too.
        let is_band = lowest_hz > 0.0 && band.centre_hz < 1e15;
        if !is_band {
            let message = "the band has no frequencies above 0".to_owned();
            refuse("band", message, "centre and width are in Hz");
        }
        let is_length = |metres: f64| metres > 0.0 && metres < 1e6;
        for (parameter, metres) in [
            ("cylinder_spacing_metres", self.cylinder_spacing_metres),
            ("feed_spacing_metres", self.feed_spacing_metres),
        ] {
            if !is_length(metres) {
                refuse(
                    parameter,
                    format!("{metres} m is no distance"),
                    "more than 0, less than 1000 km",
                );
            }
        }
        let is_amplitude = |value: f64| (0.0..1e6).contains(&value);
        if !is_amplitude(self.noise) {
            refuse("noise", format!("noise of {} is none", self.noise), "0 or more");
        }
        if let Some(source) = self.source {
            let angles =
                [source.east_degrees, source.north_degrees, source.east_degrees_per_second];
            if !(angles.iter().all(|angle| angle.abs() <= 1e9) && is_amplitude(source.amplitude)) {
                let message = "the source is nowhere, or its amplitude is less than 0".to_owned();
                refuse("source", message, "angles are in degrees");
            }
        } else if self.pulse.is_some() {
            let message = "there is no source to have a pulse".to_owned();
            refuse(
                "pulse",
                message,
                "give a `source` too, with amplitude 0 if it is dark but for the pulse",
            );
        }
        if let Some(pulse) = self.pulse {
            let is_time = pulse.at_seconds.is_finite() && pulse.width_seconds > 0.0;
            let fits = is_time && (0.0..1e6).contains(&pulse.dispersion_measure);
            if !(fits && is_amplitude(pulse.amplitude)) {
                let message =
                    "the pulse has no time, width, dispersion or amplitude that can be".to_owned();
                refuse("pulse", message, "a width of more than 0, the others of 0 or more");
            }
        }
        refusals
    }

    /// Threads that share a frame.
    fn threads(&self) -> usize {
        // Some 60 operations for the noise of each voltage.
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
        let refusals = self.refusals();
        if refusals.is_empty() { Ok(((), vec![self.port()])) } else { Err(refusals) }
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let parameters = &block.parameters;
        let host_bytes =
            size_of::<f64>() * parameters.channels + size_of::<u64>() * parameters.threads();
        Resources { host_bytes, ..Resources::default() }
    }
}
