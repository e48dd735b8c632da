#![doc = include_str!("README.md")]

mod causes;
mod cpu;
pub mod layout;
mod senders;
mod slot;
mod thread;
mod timeline;
pub mod window;

use crate::spead::address;
use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Axis, Band, Block, BlockError, Clock, Dtype, Env, Kind, PortNames, PortType, Ports,
    Refusal, Resources, ValidityType,
};
use layout::{Layout, Stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Largest frame, and largest heap, in bytes.
const MAX_FRAME_BYTES: usize = 1 << 32;
const MAX_HEAP_BYTES: usize = 1 << 30;
/// The window unless it is set: for how long, in how many bytes, and the fewest frames.
const WINDOW_SECONDS: f64 = 0.05;
const WINDOW_BYTES: usize = 256 << 20;
const MIN_WINDOW: usize = 4;
const MIN_WINDOW_HEAPS: usize = 16;
const MAX_WINDOW: usize = 64;

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
    pub pcap: Option<PathBuf>,
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
    /// Ends the stream when this many senders said that they stopped; 0 never. `digitiser` 1 and
    /// `f_engine` one per antenna unless set.
    #[serde(default)]
    pub stop_after_senders: Option<usize>,
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

/// Collects what is wrong with the parameters.
#[derive(Default)]
struct Problems(Vec<Refusal>);

impl Problems {
    fn add(
        &mut self,
        parameter: &'static str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let at = At::Parameter(parameter);
        self.0.push(Refusal::new(codes::PARAMETER_OUT_OF_RANGE, at, message).help(help));
    }

    fn within(&mut self, parameter: &'static str, value: usize, range: (usize, usize)) -> bool {
        let good = (range.0..=range.1).contains(&value);
        if !good {
            let nearest = value.clamp(range.0, range.1);
            self.add(
                parameter,
                format!("{value} is not between {} and {}", range.0, range.1),
                format!("{nearest} is the nearest"),
            );
        }
        good
    }
}

impl SpeadSource {
    fn check_common(&self, problems: &mut Problems) {
        if self.addresses.is_empty() && self.pcap.is_none() {
            problems.add(
                "addresses",
                "neither an address nor a capture file to receive from",
                "give `addresses`, such as [239.10.0.0+7:7148], or `pcap`",
            );
        }
        if let Err(errors) = address::parse_all(&self.addresses) {
            for error in errors {
                problems.add("addresses", error.to_string(), "239.10.0.0+7:7148 names 8 groups");
            }
        }
        let rate = self.adc_sample_rate_hz;
        if !(rate.is_finite() && rate > 0.0) {
            let message = format!("a sample rate of {rate} Hz cannot be");
            problems.add("adc_sample_rate_hz", message, "give samples per second, such as 1.712e9");
        }
        if !self.sync_time_seconds.is_finite() {
            problems.add("sync_time_seconds", "the sync time is no number", "give a Unix time");
        }
        problems.within("window", self.window.unwrap_or(MIN_WINDOW), (2, MAX_WINDOW));
        problems.within("receive_buffer_bytes", self.receive_buffer_bytes, (4096, 1 << 30));
        if let Some(idle) = self.finish_after_seconds
            && !(idle > 0.0 && idle <= 1e9)
        {
            let message = format!("cannot wait for {idle} seconds");
            problems.add("finish_after_seconds", message, "give a positive number of seconds");
        }
    }

    /// How heaps make up frames, and the channels received.
    fn layout(&self) -> Result<Layout, Vec<Refusal>> {
        let mut problems = Problems::default();
        self.check_common(&mut problems);
        let heap = match self.stream {
            StreamName::Digitiser => self.digitiser_heap(&mut problems),
            StreamName::FEngine => self.f_engine_heap(&mut problems),
        };
        let Some((stream, heap_bytes, samples_per_heap)) = heap else { return Err(problems.0) };
        let default_heaps = if self.stream == StreamName::Digitiser { 256 } else { 1 };
        let samples = self.samples_per_frame.unwrap_or(samples_per_heap * default_heaps);
        let heaps = samples / samples_per_heap;
        if samples == 0 || !samples.is_multiple_of(samples_per_heap) || heaps > 1 << 24 {
            let nearest = samples_per_heap.saturating_mul(heaps.clamp(1, 1 << 24));
            problems.add(
                "samples_per_frame",
                format!(
                    "a frame of {samples} samples is no whole number of heaps of {samples_per_heap}"
                ),
                format!("{nearest} is the nearest"),
            );
            return Err(problems.0);
        }
        let layout =
            Layout { stream, heap_bytes, samples_per_heap, heaps_per_frame: heaps as usize };
        let bytes = layout.slots().checked_mul(heap_bytes);
        if bytes.is_none_or(|bytes| bytes > MAX_FRAME_BYTES) {
            problems.add(
                "samples_per_frame",
                format!("a frame would take more than {MAX_FRAME_BYTES} bytes"),
                format!("{samples_per_heap} is one heap"),
            );
        }
        if problems.0.is_empty() { Ok(layout) } else { Err(problems.0) }
    }

    /// Frames that are open at once.
    fn window(&self, layout: &Layout) -> usize {
        self.window.unwrap_or_else(|| {
            let frame_seconds = layout.samples_per_frame() as f64 / self.adc_sample_rate_hz;
            let by_time = (WINDOW_SECONDS / frame_seconds).ceil() as usize;
            // Few heaps are little evidence of where a stream begins.
            let by_heaps = MIN_WINDOW_HEAPS.div_ceil(layout.slots());
            let by_memory = WINDOW_BYTES / (layout.slots() * layout.heap_bytes).max(1);
            by_time.max(by_heaps).min(by_memory).clamp(MIN_WINDOW, MAX_WINDOW)
        })
    }

    fn digitiser_heap(&self, problems: &mut Problems) -> Option<(Stream, usize, u64)> {
        let before = problems.0.len();
        if !matches!(self.bits, 2..=10 | 12 | 16) {
            let nearest = if self.bits < 2 {
                2
            } else if self.bits < 14 {
                12
            } else {
                16
            };
            problems.add(
                "bits",
                format!("no digitiser sends samples of {} bits", self.bits),
                format!("{nearest} is the nearest; it may be 2 to 10, 12 or 16"),
            );
        }
        let samples = self.samples_per_heap;
        if problems.within("samples_per_heap", samples, (8, 1 << 28)) && !samples.is_multiple_of(8)
        {
            problems.add(
                "samples_per_heap",
                format!("{samples} samples may not fill whole bytes"),
                format!("{} is the nearest multiple of 8", samples.next_multiple_of(8)),
            );
        }
        if self.pol.is_some_and(|pol| pol > 1) {
            problems.add("pol", "there are only the polarisations 0 and 1", "give 0 or 1");
        }
        if problems.0.len() > before {
            return None;
        }
        let bytes = Dtype::Packed(self.bits).bytes(samples);
        let stream = Stream::Digitiser { pol: self.pol.map(u64::from) };
        Some((stream, bytes, samples as u64))
    }

    fn f_engine_heap(&self, problems: &mut Problems) -> Option<(Stream, usize, u64)> {
        let before = problems.0.len();
        let Some(channels) = self.channels else {
            problems.add(
                "channels",
                "`f_engine` needs `channels`",
                "give the channels of the whole band",
            );
            return None;
        };
        problems.within("channels", channels, (1, 1 << 24));
        problems.within("antennas", self.antennas, (1, 4096));
        problems.within("spectra_per_heap", self.spectra_per_heap, (1, 1 << 20));
        let substreams = self.substreams();
        problems.within("substreams", substreams, (1, 4096));
        if self.dtype().is_none() {
            let message = format!("`{}` is no type of channelised voltages", self.dtype);
            problems.add("dtype", message, "it may be `ci8` or `ci4`");
        }
        let per_spectrum = self.samples_per_spectrum.unwrap_or((channels as u64).saturating_mul(2));
        problems.within("samples_per_spectrum", per_spectrum as usize, (1, 1 << 32));
        if problems.0.len() > before {
            return None;
        }
        let per_substream = self.channels_per_substream.unwrap_or((channels / substreams).max(1));
        let fits = per_substream
            .checked_mul(substreams)
            .and_then(|received| received.checked_add(self.first_channel))
            .is_some_and(|end| end <= channels && per_substream > 0);
        if !fits {
            problems.add(
                "channels_per_substream",
                format!(
                    "{substreams} blocks of {per_substream} channels from channel {} are not among {channels} channels",
                    self.first_channel
                ),
                format!(
                    "{} is the most",
                    channels.saturating_sub(self.first_channel) / substreams
                ),
            );
            return None;
        }
        let sample_bytes = self.dtype().unwrap_or(Dtype::Ci8).bytes(2);
        let heap_bytes = per_substream * self.spectra_per_heap * sample_bytes;
        if heap_bytes > MAX_HEAP_BYTES {
            let message = format!("a heap would take {heap_bytes} bytes");
            problems.add(
                "spectra_per_heap",
                message,
                format!("a heap may take {MAX_HEAP_BYTES} bytes"),
            );
            return None;
        }
        let stream = Stream::FEngine {
            antennas: self.antennas,
            substreams,
            first_channel: self.first_channel as u64,
            channels_per_substream: per_substream as u64,
        };
        Some((stream, heap_bytes, per_spectrum * self.spectra_per_heap as u64))
    }

    fn substreams(&self) -> usize {
        let addresses = address::parse_all(&self.addresses).map_or(1, |all| all.len());
        self.substreams.unwrap_or(addresses.max(1))
    }

    fn dtype(&self) -> Option<Dtype> {
        let dtype = self.dtype.parse().ok()?;
        matches!(dtype, Dtype::Ci8 | Dtype::Ci4).then_some(dtype)
    }

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

    fn senders(&self) -> usize {
        self.stop_after_senders.unwrap_or(match self.stream {
            StreamName::Digitiser => 1,
            StreamName::FEngine => self.antennas,
        })
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
        Ok(Box::new(cpu::Source::new(self.clone(), layout, window, rate, env)))
    }
}

#[cfg(test)]
mod line_tests;
#[cfg(test)]
mod tests;
