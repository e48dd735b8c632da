#![doc = include_str!("README.md")]

mod arrivals;
mod cpu;
pub mod device;
mod reader;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)] // values are exact
mod tests;

use device::{Arguments, Gain, Setting};
use fxgraph::kind::unlikely_band;
use fxgraph::{
    Axis, Band, BlockError, Checked, Clock, Configured, Dtype, FrameSizes, Implementation,
    Implementations, Kind, KindSpec, LiveKind, PortType, Rejection, Resources, Sideband,
    ValidityType,
};
use fxgraph_common::axes::MAX_FRAME_BYTES;
use fxgraph_common::samples::ChannelAxis;
use reader::Sizes;

/// Largest number of channels of a device.
pub const MAX_CHANNELS: usize = 16;
/// Length of a frame of the default size in seconds, where no plan chooses it.
const FRAME_SECONDS: f64 = 0.02;

/// Parameters of `sdr_source`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "sdr_source", page = "README.md", examples("example.yaml"), outputs("output"))]
pub struct SdrSource {
    /// Arguments that select the device, such as `driver=rtlsdr` or `driver=soapy, soapy_driver=lime, serial=0009062000`:
    /// `driver` is `rtlsdr`, `hackrf`, `hydrasdr`, `pluto`, `bladerf`, `soapy` or `dummy`. `fxgraph doctor` lists the
    /// devices of this machine with their arguments.
    pub device: String,
    /// Numbers of the device's receive channels, from 0. All have the same settings.
    #[param(default = vec![0])]
    pub channels: Vec<usize>,
    /// Axis of several channels: `pol` or `antenna`.
    #[param(default)]
    pub channel_axis: ChannelAxis,
    /// Complex samples per second.
    pub adc_sample_rate_hz: f64,
    /// Frequency to which the device is tuned: the centre of the band.
    #[param(live)]
    pub centre_hz: f64,
    /// Sideband of the samples. `lower`: the spectrum is inverted by a converter before the device, whose oscillator is above
    /// the band.
    #[param(default)]
    pub sideband: Sideband,
    /// Width of the device's analogue filter; by default the driver's choice. The band of the output is as wide as the
    /// sample rate.
    #[param(live)]
    pub bandwidth_hz: Option<f64>,
    /// Gain of the receiver in dB: a number, which the driver divides among the stages, or the gain of each stage, such as
    /// `{LNA: 24, VGA: 20}`. By default the driver's choice. Not used while `agc` is true.
    #[param(live)]
    pub gain_db: Option<Gain>,
    /// Whether the device controls its gain itself; by default the driver's choice.
    #[param(live)]
    pub agc: Option<bool>,
    /// Name of the antenna port; by default the driver's choice.
    #[param(live)]
    pub antenna: Option<String>,
    /// Samples of a frame in each channel, a multiple of `samples_per_heap`. By default the plan chooses it from
    /// `latency_seconds`.
    pub samples_per_frame: Option<usize>,
    /// Samples in a heap: the unit of validity.
    #[param(default = 1024, range = 1..=1_073_741_824)]
    pub samples_per_heap: usize,
    /// Time after the effective timestamp of a new setting whose samples are flagged as missing, and after the start whose
    /// samples are discarded: older samples are still in buffers, and the receiver settles.
    #[param(default = 0.05, range = 0..=60, unit = "s")]
    pub settle_seconds: f64,
    /// Number of frames; by default the block runs until the flowgraph stops.
    pub frames: Option<u64>,
}

impl SdrSource {
    /// Samples of a frame in each channel.
    fn frame_samples(&self) -> usize {
        self.samples_per_frame.unwrap_or_else(|| {
            let heaps = self.adc_sample_rate_hz * FRAME_SECONDS / self.samples_per_heap as f64;
            self.samples_per_heap.saturating_mul(heaps.ceil().max(1.0) as usize)
        })
    }

    fn band(&self) -> Band {
        Band {
            channels: 1,
            first_channel: 0,
            centre_hz: self.centre_hz,
            bandwidth_hz: self.adc_sample_rate_hz,
            sideband: self.sideband,
        }
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            channels: self.channels.len(),
            samples: self.frame_samples(),
            heap: self.samples_per_heap,
            settling: (self.settle_seconds * self.adc_sample_rate_hz).ceil() as u64,
            rate_hz: self.adc_sample_rate_hz,
        }
    }

    /// Settings that are given, in the order in which the device gets them.
    fn settings(&self) -> Vec<Setting> {
        let gain = self.gain_db.clone().filter(|_| self.agc != Some(true));
        [
            self.bandwidth_hz.map(Setting::BandwidthHz),
            self.antenna.clone().map(Setting::Antenna),
            Some(Setting::CentreHz(self.centre_hz)),
            self.agc.map(Setting::Agc),
            gain.map(Setting::GainDb),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn rejections(&self) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let mut reject = |name, message: String, help: &str| {
            rejections.push(Rejection::parameter(name, message).help(help));
        };
        if let Err(why) = Arguments::read(&self.device) {
            reject("device", why, "give the driver: `device: driver=rtlsdr`");
        }
        let mut channels = self.channels.clone();
        channels.sort_unstable();
        channels.dedup();
        if channels.len() != self.channels.len() || !(1..=MAX_CHANNELS).contains(&channels.len()) {
            let message = format!(
                "`channels` must be 1 to {MAX_CHANNELS} different numbers, got {:?}",
                self.channels
            );
            reject("channels", message, "give the numbers of channels: `channels: [0, 1]`");
        }
        let rate_hz = self.adc_sample_rate_hz;
        if !(rate_hz > 0.0 && rate_hz <= 1e10) {
            let message =
                format!("`adc_sample_rate_hz` must be positive and at most 1e10, got {rate_hz}");
            reject("adc_sample_rate_hz", message, "give a rate such as 2.4e6");
        }
        for (name, hz) in [("centre_hz", Some(self.centre_hz)), ("bandwidth_hz", self.bandwidth_hz)]
        {
            if let Some(hz) = hz.filter(|hz| !(0.0..=1e12).contains(hz)) {
                reject(
                    name,
                    format!("`{name}` must be between 0 and 1e12, got {hz}"),
                    "give it in Hz",
                );
            }
        }
        if let Some(gain) = &self.gain_db
            && let Some(db) = gain.values().find(|db| !(-200.0..=200.0).contains(db))
        {
            let message = format!("`gain_db` must be between -200 and 200 dB, got {db}");
            reject("gain_db", message, "give it in dB, such as 30");
        }
        let (samples, heap) = (self.frame_samples(), self.samples_per_heap);
        let bytes = samples.saturating_mul(self.channels.len()).saturating_mul(8);
        if samples == 0 || !samples.is_multiple_of(heap) || bytes > MAX_FRAME_BYTES {
            let message = format!(
                "`samples_per_frame` must be a multiple of `samples_per_heap` ({heap}) in frames of at most 4 GiB, got \
                 {samples}"
            );
            reject("samples_per_frame", message, "omit it for the plan's choice");
        }
        rejections
    }
}

impl KindSpec for SdrSource {
    type Shape = Sizes;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        Ok(Box::new(cpu::Source::new(block.parameters.clone(), block.shape, env)))
    })];

    fn ports(&self, _inputs: &[PortType]) -> Checked<Sizes> {
        let rejections = self.rejections();
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let sizes = self.sizes();
        let several = (sizes.channels > 1).then(|| {
            Axis::new(self.channel_axis.name(), sizes.channels).from_parameter("channels")
        });
        let samples = Axis::new("sample", sizes.samples).from_parameter("samples_per_frame");
        let heap = Axis::new("heap", sizes.heaps()).from_parameter("samples_per_heap");
        let port = PortType {
            dtype: Dtype::Cf32,
            axes: several.into_iter().chain([samples]).collect(),
            clock: Clock::new(self.adc_sample_rate_hz, sizes.samples as u64),
            band: Some(self.band()),
            validity: ValidityType::flags(vec![heap]),
        };
        Ok((sizes, vec![port]))
    }

    fn frame_sizes(&self) -> Option<FrameSizes> {
        let (heap, bits) = (self.samples_per_heap as u64, 64 * self.channels.len() as u64);
        FrameSizes::of_heaps("samples_per_frame", self.adc_sample_rate_hz, heap, bits)
    }

    fn warnings(block: &Configured<Self>) -> Vec<Rejection> {
        unlikely_band("adc_sample_rate_hz", &block.ports.outputs[0]).into_iter().collect()
    }

    fn resources(block: &Configured<Self>) -> Resources {
        Resources {
            // Samples for which there is no frame.
            host_bytes: block.ports.outputs[0].frame_bytes(),
            fills: vec![block.shape.lent_frames()],
            // Two blocks cannot open one device.
            binds: vec![format!("device {}", block.parameters.device)],
            ..Resources::default()
        }
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        // The device is opened again, and its stream goes on in another time base.
        None
    }
}

impl LiveKind for SdrSource {
    type Value = Setting;

    fn live_value(
        new: &Configured<Self>,
        parameter: SdrSourceLive,
        _: &Configured<Self>,
    ) -> Result<Setting, BlockError> {
        let new = &new.parameters;
        let (name, setting) = match parameter {
            SdrSourceLive::CentreHz => ("centre_hz", Some(Setting::CentreHz(new.centre_hz))),
            SdrSourceLive::BandwidthHz => {
                ("bandwidth_hz", new.bandwidth_hz.map(Setting::BandwidthHz))
            }
            SdrSourceLive::GainDb => ("gain_db", new.gain_db.clone().map(Setting::GainDb)),
            SdrSourceLive::Agc => ("agc", new.agc.map(Setting::Agc)),
            SdrSourceLive::Antenna => ("antenna", new.antenna.clone().map(Setting::Antenna)),
        };
        setting.ok_or_else(|| {
            BlockError::new(format!(
                "`{name}` must have a value: a running device keeps its setting"
            ))
        })
    }
}
