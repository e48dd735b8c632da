#![doc = include_str!("README.md")]

mod candidates;
mod causes;
mod checks;
mod cpu;
pub mod layout;
mod senders;
mod slot;
mod thread;
mod timeline;
pub mod window;

use crate::io::spead::address;
use checks::MIN_WINDOW;
use fxgraph::access::ReadPath;
use fxgraph::{
    Axis, Band, Block, BlockError, Clock, Dtype, Env, Kind, PortNames, PortType, Ports, Refusal,
    Resources, ValidityType,
};
use layout::{Layout, Stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which stream a source receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamName {
    /// Packed samples of one polarisation.
    Digitiser,
    /// Channelised voltages of several antennas.
    FEngine,
}

/// Order of the axes inside a heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeapLayout {
    /// `[channel][spectrum][pol]`, what every other engine sends.
    #[default]
    Standard,
    /// `[channel][pol][spectrum]`.
    KMajor,
}

/// What a source does when its sender was restarted with another sync time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnRestart {
    /// Goes on with the new timestamps.
    #[default]
    Resync,
    /// Ends the flowgraph with an error.
    Stop,
}

/// Parameters of `spead_source`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpeadSource {
    /// Which stream: `digitiser` or `f_engine`.
    pub stream: StreamName,
    /// Where it is sent: `a.b.c.d:port` or, for N + 1 consecutive groups, `a.b.c.d+N:port`.
    /// With `pcap`, only what was sent there; empty takes everything.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Network interfaces, by name or address, that multicast groups are joined on, in turn.
    #[serde(default)]
    pub interfaces: Vec<String>,
    /// A capture file to read instead of the network.
    #[serde(default)]
    pub pcap: Option<ReadPath>,
    /// Samples per second of the ADC.
    pub adc_sample_rate_hz: f64,
    /// Unix time of timestamp 0.
    #[serde(default)]
    pub sync_time_seconds: f64,
    /// ADC samples from one frame to the next, a multiple of a heap's; `digitiser` 256 heaps and
    /// `f_engine` 1 heap unless set.
    #[serde(default)]
    pub samples_per_frame: Option<u64>,
    /// Frames that are filled at the same time, for late and overtaken heaps; unless set 50 ms of
    /// them, but at least 16 heaps and at most 256 MiB.
    #[serde(default)]
    #[schemars(range(min = 2, max = 64))]
    pub window: Option<usize>,
    /// Whether frames are dropped (whole, and counted) when the flowgraph does not keep up; otherwise
    /// the socket buffer overflows. A `pcap` is always held back instead.
    #[serde(default = "default_live")]
    pub live: bool,
    /// Bytes the kernel may hold per address.
    #[serde(default = "default_receive_buffer_bytes")]
    pub receive_buffer_bytes: usize,
    /// Ends the stream after this long without data.
    #[serde(default)]
    pub finish_after_seconds: Option<f64>,
    /// Ends the stream when this many of the senders of its data sent a stop heap; 0 (the default)
    /// ignores stop heaps.
    #[serde(default)]
    pub stop_after_senders: Option<usize>,
    /// What to do when the sender was restarted with another sync time, so that its timestamps start
    /// again: `resync` goes on, `stop` ends the flowgraph with an error.
    #[serde(default)]
    pub on_restart: OnRestart,
    /// The longest gap in the stream's timestamps whose heaps are counted as missing; a longer one is
    /// reported as a jump of time.
    #[serde(default = "default_max_gap_seconds")]
    pub max_gap_seconds: f64,
    /// `digitiser`: bits of a sample: 2 to 10, 12 or 16.
    #[serde(default = "default_bits")]
    pub bits: u8,
    /// `digitiser`: samples in a heap.
    #[serde(default = "default_samples_per_heap")]
    pub samples_per_heap: usize,
    /// `digitiser`: takes this polarisation only (least significant bit of the digitiser's identifier).
    #[serde(default)]
    pub pol: Option<u8>,
    /// `f_engine`: antennas, whose F-engines are numbered from 0.
    #[serde(default = "default_one")]
    pub antennas: usize,
    /// `f_engine`: channels of the whole band.
    #[serde(default)]
    pub channels: Option<usize>,
    /// `f_engine`: index, in the whole band, of the first channel received.
    #[serde(default)]
    pub first_channel: usize,
    /// `f_engine`: channels in a heap; all divided by `substreams` unless set.
    #[serde(default)]
    pub channels_per_substream: Option<usize>,
    /// `f_engine`: channel blocks received; one per address unless set.
    #[serde(default)]
    pub substreams: Option<usize>,
    /// `f_engine`: spectra in a heap.
    #[serde(default = "default_spectra_per_heap")]
    pub spectra_per_heap: usize,
    /// `f_engine`: ADC samples from one spectrum to the next; twice `channels` unless set.
    #[serde(default)]
    pub samples_per_spectrum: Option<u64>,
    /// `f_engine`: `ci8` or `ci4`.
    #[serde(default = "default_dtype")]
    pub dtype: String,
    /// `f_engine`: order of the axes inside a heap, `standard` or `k_major`.
    #[serde(default)]
    pub layout: HeapLayout,
    /// `f_engine`: frequency at the centre of the whole band; a quarter of the sample rate unless set.
    #[serde(default)]
    pub centre_hz: Option<f64>,
    /// `f_engine`: width of the whole band; half the sample rate unless set.
    #[serde(default)]
    pub bandwidth_hz: Option<f64>,
}

fn default_live() -> bool {
    true
}
fn default_receive_buffer_bytes() -> usize {
    32 << 20
}
fn default_max_gap_seconds() -> f64 {
    60.0
}
fn default_bits() -> u8 {
    10
}
fn default_samples_per_heap() -> usize {
    4096
}
fn default_one() -> usize {
    1
}
fn default_spectra_per_heap() -> usize {
    256
}
fn default_dtype() -> String {
    "ci8".to_owned()
}

impl SpeadSource {
    fn port(&self, layout: &Layout) -> PortType {
        let clock = Clock {
            adc_sample_rate_hz: self.adc_sample_rate_hz,
            sync_time_seconds: self.sync_time_seconds,
            samples_per_frame: layout.samples_per_frame(),
        };
        let heap = Axis::new("heap", layout.heaps_per_frame).from_parameter("samples_per_frame");
        let Stream::FEngine { antennas, substreams, first_channel, channels_per_substream } =
            layout.stream
        else {
            let samples = layout.samples_per_frame() as usize;
            return PortType {
                dtype: Dtype::Packed(self.bits),
                axes: vec![Axis::new("sample", samples).from_parameter("samples_per_frame")],
                clock,
                band: None,
                validity: ValidityType::flags(vec![heap]),
            };
        };
        let antenna = Axis::new("antenna", antennas).from_parameter("antennas");
        let received = substreams * channels_per_substream as usize;
        let channel = Axis::new("channel", received).from_parameter("channels_per_substream");
        let spectrum =
            Axis::new("spectrum", self.spectra_per_heap).from_parameter("spectra_per_heap");
        let pol = Axis::new("pol", 2);
        let axes = match self.layout {
            HeapLayout::Standard => vec![heap.clone(), antenna.clone(), channel, spectrum, pol],
            HeapLayout::KMajor => vec![heap.clone(), antenna.clone(), channel, pol, spectrum],
        };
        PortType {
            dtype: self.dtype().unwrap_or(Dtype::Ci8),
            axes,
            clock,
            band: Some(Band {
                channels: self.channels.unwrap_or(received),
                first_channel: first_channel as usize,
                centre_hz: self.centre_hz.unwrap_or(self.adc_sample_rate_hz / 4.0),
                bandwidth_hz: self.bandwidth_hz.unwrap_or(self.adc_sample_rate_hz / 2.0),
            }),
            validity: ValidityType::flags(vec![heap, antenna]),
        }
    }
}

impl Kind for SpeadSource {
    const NAME: &'static str = "spead_source";
    const DOC: &'static str = include_str!("README.md");
    const INPUTS: PortNames = PortNames::Fixed(&[]);
    const OUTPUTS: PortNames = PortNames::Fixed(&["output"]);

    fn ports(&self, _inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        self.layout().map(|layout| vec![self.port(&layout)])
    }

    fn resources(&self, _ports: &Ports) -> Resources {
        let layout = self.layout().ok();
        let slots = layout.map_or(0, |layout| layout.slots());
        let window = layout.map_or(MIN_WINDOW, |layout| self.window(&layout));
        let unicast = |address: &std::net::SocketAddrV4| !address.ip().is_multicast();
        let addresses = match self.pcap {
            None => address::parse_all(&self.addresses).unwrap_or_default(),
            Some(_) => Vec::new(),
        };
        let grouped = |text: &&String| {
            self.pcap.is_none()
                && address::parse(text).is_ok_and(|all| all.first().is_some_and(|a| !unicast(a)))
        };
        Resources {
            host_bytes: thread::BUFFER_BYTES + window * slots * window::SLOT_BYTES,
            fills: vec![cpu::lent_frames(window)],
            // Groups may be shared, by several blocks too.
            binds: addresses.iter().filter(|a| unicast(a)).map(|a| format!("udp {a}")).collect(),
            sockets: self.addresses.iter().filter(|text| grouped(text)).cloned().collect(),
            ..Resources::default()
        }
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        // Packets from the network go on by themselves.
        self.pcap.is_some().then_some("its recording would begin again")
    }

    fn build(&self, ports: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        let layout = self.layout().map_err(|refusals| {
            BlockError::new(refusals.into_iter().map(|r| r.message).collect::<Vec<_>>().join("; "))
        })?;
        let output = ports.outputs.first().ok_or_else(|| BlockError::new("no output"))?;
        let (window, rate) = (self.window(&layout), output.bytes_per_second());
        if self.sync_time_seconds > 0.0 {
            env.counters.real_time().set_zero(self.sync_time_seconds);
        }
        Ok(Box::new(cpu::Source::new(self.clone(), layout, window, rate, env)))
    }
}

#[cfg(test)]
mod line_tests;
#[cfg(test)]
mod tests;
