#![doc = include_str!("README.md")]

mod cpu;
mod sky;
#[cfg(test)]
mod tests;

use crate::gnss::samples::DTYPES;
use crate::gnss::samples::Samples;
use crate::gnss::satellites::reject_satellites;
use fxgraph::kind::slow_digitiser;
use fxgraph::{
    Axis, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    PortType, Rejection, Resources, Time, ValidityType,
};
use fxgraph_dsp::gnss::{Carriers, Replica, Satellite};
use fxgraph_dsp::satellite_parameters;
use sky::{Scene, Sky};
use std::sync::Arc;

/// Largest number of samples in a frame (all antennas together), and of antennas.
const MAX_FRAME_SAMPLES: usize = 1 << 26;
const MAX_ANTENNAS: usize = 1 << 10;
/// Strongest noise and signals, so that their sums are finite floats.
const MAX_NOISE: f64 = 1e9;
const MAX_CN0_DB_HZ: f64 = 300.0;

/// Parameters of `gnss_signal_simulator`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "gnss_signal_simulator",
    page = "README.md",
    examples("example.yaml"),
    outputs("output")
)]
pub struct GnssSignalSimulator {
    /// Satellites with constant Doppler shifts; needed without `sky`.
    pub satellites: Option<Vec<Transmission>>,
    /// Satellites in their orbits, from a file of ephemerides, with their navigation messages.
    pub sky: Option<Sky>,
    /// Type of the samples: `ci8`, `ci16` or `cf32`.
    #[param(default = "ci16".to_owned())]
    pub dtype: String,
    /// Number of antennas.
    #[param(default = 1)]
    pub antennas: usize,
    /// Standard deviation of the noise in real and imaginary part.
    #[param(default = 20.0)]
    pub noise_rms: f64,
    /// Frequency of the carrier in the samples without Doppler shift, in Hz.
    #[param(default)]
    pub intermediate_hz: f64,
    /// Samples per second.
    #[param(default = 5e6)]
    pub adc_sample_rate_hz: f64,
    /// Time of timestamp 0: Unix seconds, or a time in UTC such as `2026-11-25T14:20:40.25Z`.
    #[param(default)]
    pub sync_time_seconds: Time,
    /// Samples of a frame, per antenna.
    #[param(default = 100_000)]
    pub samples_per_frame: usize,
    /// Number of frames; by default the block runs until the flowgraph stops.
    pub frames: Option<u64>,
    /// Seed of noise and data.
    #[param(default)]
    pub seed: u64,
}

satellite_parameters! {
    /// Signal of one satellite.
    Transmission {
        /// Ratio of carrier power to noise power density, in dB Hz.
        #[serde(default = "default_cn0")]
        pub cn0_db_hz: f64,
        /// Phase of the signal at each antenna, in turns; by default 0.
        #[serde(default)]
        pub antenna_turns: Vec<f64>,
        /// Whether the signal is modulated with data.
        #[serde(default = "default_data")]
        pub data: bool,
    }
}

impl Transmission {
    /// Returns the signal without power and data.
    #[must_use]
    pub fn satellite(&self) -> Satellite {
        Satellite {
            system: self.system,
            prn: self.prn,
            doppler_hz: self.doppler_hz,
            code_phase_chips: self.code_phase_chips,
            carrier_turns: self.carrier_turns,
            at_timestamp: self.at_timestamp,
        }
    }
}

fn default_cn0() -> f64 {
    45.0
}
fn default_data() -> bool {
    true
}

impl GnssSignalSimulator {
    /// Satellites with constant Doppler shifts.
    fn satellites(&self) -> &[Transmission] {
        self.satellites.as_deref().unwrap_or_default()
    }

    fn dtype(&self) -> Option<Dtype> {
        self.dtype.parse().ok().filter(|dtype| DTYPES.contains(dtype))
    }

    fn rejections(&self) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let mut reject = |parameter, message: String, help: &str| {
            rejections.push(Rejection::parameter(parameter, message).help(help));
        };
        if self.dtype().is_none() {
            reject(
                "dtype",
                format!("`dtype` must be `ci8`, `ci16` or `cf32`, got `{}`", self.dtype),
                "`ci16` is the default",
            );
        }
        if self.antennas == 0 || self.antennas > MAX_ANTENNAS {
            let message =
                format!("`antennas` must be between 1 and {MAX_ANTENNAS}, got {}", self.antennas);
            reject("antennas", message, "1 is the default");
        }
        let of_all = self.samples_per_frame.checked_mul(self.antennas);
        if !of_all.is_some_and(|count| (1..=MAX_FRAME_SAMPLES).contains(&count)) {
            let message = format!(
                "`samples_per_frame` times `antennas` must be between 1 and {MAX_FRAME_SAMPLES}, got {} x {}",
                self.samples_per_frame, self.antennas
            );
            reject("samples_per_frame", message, "100000 is the default");
        }
        let rate_hz = self.adc_sample_rate_hz;
        let is_rate = rate_hz.is_finite() && rate_hz > 0.0;
        if !is_rate {
            let message =
                format!("`adc_sample_rate_hz` must be positive and finite, got {rate_hz}");
            reject("adc_sample_rate_hz", message, "give samples per second, such as 5e6");
        }
        if !(0.0..=MAX_NOISE).contains(&self.noise_rms) {
            let message = format!("`noise_rms` must be between 0 and 1e9, got {}", self.noise_rms);
            reject("noise_rms", message, "20 is the default");
        }
        for (parameter, value) in [("intermediate_hz", self.intermediate_hz)] {
            if !value.is_finite() {
                let message = format!("`{parameter}` must be finite, got {value}");
                reject(parameter, message, "0 is the default");
            }
        }
        for transmission in self.satellites() {
            let of_antennas = &transmission.antenna_turns;
            let label = transmission.system.label(transmission.prn);
            let cn0_db_hz = transmission.cn0_db_hz;
            if cn0_db_hz.is_nan() || cn0_db_hz.abs() > MAX_CN0_DB_HZ {
                let message =
                    format!("`cn0_db_hz` of {label} must be between -300 and 300, got {cn0_db_hz}");
                reject("satellites", message, "give a ratio such as 45");
            }
            if of_antennas.iter().any(|turns| turns.is_nan() || turns.abs() > 1e6) {
                let message = format!("`antenna_turns` of {label} must be between -1e6 and 1e6");
                reject("satellites", message, "give phases such as [0, 0.25]");
            }
            if of_antennas.len() > self.antennas {
                let message = format!(
                    "`antenna_turns` of {label} must have at most one entry per antenna ({}), got {}",
                    self.antennas,
                    of_antennas.len()
                );
                reject("satellites", message, "remove entries, or raise `antennas`");
            }
        }
        let satellites: Vec<_> = self.satellites().iter().map(Transmission::satellite).collect();
        let samples = Samples {
            carriers: Carriers::At(self.intermediate_hz),
            ..Samples::complex(Dtype::Cf32, self.antennas, self.samples_per_frame, rate_hz)
        };
        if let Some(sky) = &self.sky {
            sky.check(|message, help| {
                rejections.push(Rejection::parameter("sky", message).help(help));
            });
        }
        if satellites.is_empty() && self.sky.is_some() {
            return rejections;
        }
        rejections.extend(reject_satellites(satellites.iter(), Some(&samples).filter(|_| is_rate)));
        rejections
    }
}

impl KindSpec for GnssSignalSimulator {
    type Shape = Option<Arc<Scene>>;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let scene = block.shape.as_ref();
        Ok(Box::new(cpu::Simulator::new(&block.parameters, scene, &block.ports.outputs[0], env)?))
    })];

    fn ports(&self, _inputs: &[PortType]) -> Checked<Self::Shape> {
        let rejections = self.rejections();
        let (Some(dtype), true) = (self.dtype(), rejections.is_empty()) else {
            return Err(rejections);
        };
        let scene = self.sky.as_ref().map(|sky| Scene::new(sky, self).map(Arc::new)).transpose();
        let scene = scene.map_err(|why| {
            let help = "give a navigation file of the day, and its time as `sync_time_seconds`";
            vec![Rejection::parameter("sky", why).help(help)]
        })?;
        let antenna = Axis::new("antenna", self.antennas).from_parameter("antennas");
        let sample =
            Axis::new("sample", self.samples_per_frame).from_parameter("samples_per_frame");
        let axes = if self.antennas > 1 { vec![antenna, sample] } else { vec![sample] };
        let output = PortType {
            dtype,
            axes,
            clock: Clock {
                sync_time: self.sync_time_seconds,
                ..Clock::new(self.adc_sample_rate_hz, self.samples_per_frame as u64)
            },
            band: None,
            validity: ValidityType::flags(vec![]),
        };
        Ok((scene, vec![output]))
    }

    fn warnings(block: &Configured<Self>) -> Vec<Rejection> {
        slow_digitiser("adc_sample_rate_hz", block.parameters.adc_sample_rate_hz)
            .into_iter()
            .collect()
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let satellites = block.parameters.satellites();
        let in_orbit = block.shape.as_ref().zip(block.parameters.sky.as_ref());
        let in_orbit = in_orbit.map_or(Vec::new(), |(scene, sky)| scene.satellites(sky));
        let systems =
            satellites.iter().map(|s| s.system).chain(in_orbit.iter().map(|(system, _)| *system));
        let host_bytes = systems.map(|system| Replica::bytes(system) + cpu::SIGNAL_BYTES).sum();
        Resources { host_bytes, ..Resources::default() }
    }
}
