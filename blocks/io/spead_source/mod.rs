#![doc = include_str!("README.md")]

mod candidates;
mod causes;
mod checks;
mod cpu;
mod in_step;
pub mod layout;
mod means;
mod network;
mod senders;
mod slot;
mod thread;
mod timeline;
pub mod window;

use crate::common::antenna_numbers::default_numbers;
use crate::common::flagged_antennas;
use crate::common::net::{address, interface};
use crate::common::nyquist::{self, MAX_NYQUIST_ZONE};
use crate::io::spead::xdp;
use fxgraph::access::ReadPath;
use fxgraph::kind::{Chosen, slow_digitiser, unlikely_band};
use fxgraph::{
    Axis, Band, BlockError, Checked, Clock, Configured, Dtype, FrameSizes, Implementation,
    Implementations, Kind, KindSpec, LiveKind, PortType, Rejection, Resources, Time, ValidityType,
};
use layout::{Layout, Stream};
use means::Means;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use window::MAX_THREADS;

/// Type of the stream that a source receives.
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
    /// `[channel][spectrum][pol]`, as all other engines send.
    #[default]
    Standard,
    /// `[channel][pol][spectrum]`.
    KMajor,
}

/// Action of a source when its sender was restarted with another sync time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnRestart {
    /// Continues with the new timestamps.
    #[default]
    Resync,
    /// Ends the flowgraph with an error.
    Stop,
}

/// Way of packets from the network to a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// UDP sockets of the kernel.
    #[default]
    Socket,
    /// AF_XDP sockets, to which a program on the interface redirects the packets.
    AfXdp,
}

/// Parameters of `spead_source`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "spead_source", page = "README.md", examples("example.yaml"), outputs("output"))]
pub struct SpeadSource {
    /// Type of the stream: `digitiser` or `f_engine`.
    pub stream: StreamName,
    /// Addresses to receive on: `a.b.c.d:port`, `[ipv6]:port`, `name:port` or, for N + 1 consecutive groups,
    /// `a.b.c.d+N:port` or `[ipv6]+N:port`.
    /// With `pcap`, the destinations to accept; empty accepts all.
    #[param(default)]
    pub addresses: Vec<String>,
    /// Network interfaces, by name or address, on which multicast groups are joined: with n of them, group i
    /// uses interface i mod n.
    #[param(default)]
    pub interfaces: Vec<String>,
    /// Addresses of the senders whose packets are received (source-specific multicast); empty receives those of all. The
    /// `addresses` must then be multicast groups.
    #[param(default)]
    pub sources: Vec<String>,
    /// Capture file (pcap or pcapng) to read instead of the network.
    pub pcap: Option<ReadPath>,
    /// Samples per second of the ADC.
    pub adc_sample_rate_hz: f64,
    /// Time of timestamp 0: Unix seconds, or a time in UTC such as `2026-11-25T14:20:40.25Z`. A whole second states that
    /// the digitiser starts on the second, also when it is restarted.
    #[param(default)]
    pub sync_time_seconds: Time,
    /// ADC samples by which the signal is later than the timestamps, because of filters at the sender: (`taps` - 1) / 2
    /// times the samples of a spectrum, if the timestamps are those of the first sample of a window.
    #[param(default)]
    pub filter_delay_samples: f64,
    /// ADC samples from one frame to the next, a multiple of the samples of a heap. By default the plan chooses it from
    /// `latency_seconds` (`digitiser`), 256 heaps from a `pcap`, or 1 heap (`f_engine`).
    pub samples_per_frame: Option<u64>,
    /// Frames that are filled at the same time, for late and overtaken heaps. By default frames of 125 ms (`digitiser`)
    /// or 50 ms (`f_engine`), but at least 16 heaps and at most 512 MiB (`f_engine`: 256 MiB).
    #[param(range = 2..=64)]
    pub window: Option<usize>,
    /// Whether the source drops (and counts) whole frames when the flowgraph does not keep up; if false,
    /// the socket buffer overflows. A `pcap` is read as fast as the flowgraph takes it.
    #[param(default = true)]
    pub live: bool,
    /// Way of packets from the network: `socket`, or `af_xdp`, which bypasses the kernel's network stack and needs
    /// a program built with the feature `xdp`, `interfaces`, the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and Linux 6.6.
    #[param(default)]
    pub receive: Receive,
    /// Receiving threads. With at least as many `addresses`, the addresses are divided among the threads.
    /// With fewer, which must then be unicast, the threads divide the datagrams to each address by sender.
    /// With `receive: af_xdp` the receive queues of the interfaces are divided among the threads. By default one for each
    /// 1.5 GB/s of the stream, up to the number of `addresses` and to half of the cores; 1 with `receive: af_xdp`.
    #[param(range = 1..=MAX_THREADS)]
    pub threads: Option<usize>,
    /// Bytes of the kernel's receive buffer, per socket; with `receive: af_xdp` per receive queue of the interfaces. By
    /// default 125 ms of the stream, but at least 32 MiB and at most 512 MiB; 32 MiB with `receive: af_xdp`.
    pub receive_buffer_bytes: Option<usize>,
    /// Ends the stream after this long without data.
    pub finish_after_seconds: Option<f64>,
    /// Ends the stream when this many of its senders sent a stop heap; 0 (the default) ignores stop heaps.
    pub stop_after_senders: Option<usize>,
    /// Action when the sender was restarted with another sync time, so that its timestamps start
    /// again: `resync` continues, `stop` ends the flowgraph with an error.
    #[param(default)]
    pub on_restart: OnRestart,
    /// Longest gap in the stream's timestamps whose heaps are counted as missing; a longer gap is
    /// reported as the event `time_jumped`.
    #[param(default = 60.0, range = 0..=1e9, unit = "s")]
    pub max_gap_seconds: f64,
    /// `digitiser`: bits per sample: 2 to 10, 12 or 16.
    #[param(default = 10)]
    pub bits: u8,
    /// `digitiser`: samples in a heap.
    #[param(default = 4096)]
    pub samples_per_heap: usize,
    /// `digitiser`: polarisation to accept (least significant bit of the digitiser's identifier); both
    /// by default.
    pub pol: Option<u8>,
    /// `f_engine`: number of antennas; F-engines are numbered from 0.
    #[param(default = 1)]
    pub antennas: usize,
    /// `f_engine`: numbers of flagged antennas. Their heaps are output as missing ones: zeros with validity 0.
    #[param(default, live)]
    pub flagged_antennas: Vec<u32>,
    /// `f_engine`: number of channels of the whole band.
    pub channels: Option<usize>,
    /// `f_engine`: index, in the whole band, of the first channel received.
    #[param(default)]
    pub first_channel: usize,
    /// `f_engine`: channels in a heap; by default `channels` divided by `substreams`.
    pub channels_per_substream: Option<usize>,
    /// `f_engine`: number of channel blocks (heaps per timestamp and antenna) received; by default one per
    /// address.
    pub substreams: Option<usize>,
    /// `f_engine`: spectra in a heap.
    #[param(default = 256)]
    pub spectra_per_heap: usize,
    /// `f_engine`: ADC samples from one spectrum to the next; by default twice `channels`.
    pub samples_per_spectrum: Option<u64>,
    /// `f_engine`: `ci8` or `ci4`.
    #[param(default = "ci8".to_owned())]
    pub dtype: String,
    /// `f_engine`: order of the axes inside a heap, `standard` or `k_major`.
    #[param(default)]
    pub layout: HeapLayout,
    /// Nyquist zone of the samples of the ADC, counted from 1. Even zones have an inverted spectrum (lower sideband): the
    /// frequency on the sky falls with the frequency of the samples, and phases have the opposite sign.
    #[param(default = 1, range = 1..=MAX_NYQUIST_ZONE)]
    pub nyquist_zone: u32,
    /// Frequency on the sky at the centre of the whole band; by default the centre of the Nyquist zone.
    pub centre_hz: Option<f64>,
    /// `f_engine`: width of the whole band; by default half the sample rate. Negative if the spectrum is inverted (lower
    /// sideband), in place of `nyquist_zone`.
    pub bandwidth_hz: Option<f64>,
}

impl SpeadSource {
    /// Whether each antenna is flagged; `None` for a stream without antennas.
    fn flagged(&self, layout: &Layout) -> Option<Vec<bool>> {
        match layout.stream {
            Stream::Digitiser { .. } => None,
            Stream::FEngine { antennas, .. } => {
                Some(flagged_antennas::mask(&self.flagged_antennas, &default_numbers(antennas)))
            }
        }
    }

    fn port(&self, layout: &Layout) -> PortType {
        let clock = Clock {
            sync_time: self.sync_time_seconds,
            filter_delay_samples: self.filter_delay_samples,
            ..Clock::new(self.adc_sample_rate_hz, layout.samples_per_frame())
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
                band: nyquist::band(self.nyquist_zone, self.adc_sample_rate_hz, self.centre_hz),
                validity: ValidityType::flags(vec![heap]),
            };
        };
        let zone = Band::of_nyquist_zone(self.nyquist_zone, self.adc_sample_rate_hz);
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
            band: Some(Band::signed(
                self.channels.unwrap_or(received),
                first_channel as usize,
                self.centre_hz.unwrap_or(zone.centre_hz),
                self.bandwidth_hz.unwrap_or(zone.signed_bandwidth_hz()),
            )),
            validity: ValidityType::flags(vec![heap, antenna]),
        }
    }
}

impl KindSpec for SpeadSource {
    type Shape = Layout;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let Configured { parameters, shape: layout, ports, .. } = block;
        let rate = ports.outputs[0].bytes_per_second();
        let means = Means::of(parameters, layout, rate);
        if let Some(sync_time) = ports.outputs[0].clock.known_sync_time() {
            env.counters.real_time().set_sync_time(sync_time);
        }
        Ok(Box::new(cpu::Source::new(parameters.clone(), *layout, means, rate, env)))
    })];

    fn ports(&self, _inputs: &[PortType]) -> Checked<Layout> {
        self.layout().map(|layout| (layout, vec![self.port(&layout)]))
    }

    fn warnings(block: &Configured<Self>) -> Vec<Rejection> {
        let rate = slow_digitiser("adc_sample_rate_hz", block.parameters.adc_sample_rate_hz);
        let band = unlikely_band("bandwidth_hz", &block.ports.outputs[0]);
        rate.into_iter().chain(band).collect()
    }

    fn chosen(block: &Configured<Self>) -> Vec<Chosen> {
        let rate = block.ports.outputs[0].bytes_per_second();
        Means::of(&block.parameters, &block.shape, rate).chosen
    }

    fn frame_sizes(&self) -> Option<FrameSizes> {
        // The frames of F-engine heaps set the dumps of a correlator, so their size stays one heap.
        if self.stream != StreamName::Digitiser || self.pcap.is_some() {
            return None;
        }
        let (heap, bits) = (self.samples_per_heap as u64, self.bits.into());
        FrameSizes::of_heaps("samples_per_frame", self.adc_sample_rate_hz, heap, bits)
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let Configured { parameters, shape: layout, ports, .. } = block;
        let Means { window, threads, receive_buffer_bytes, .. } =
            Means::of(parameters, layout, ports.outputs[0].bytes_per_second());
        let parsed: Vec<_> = match parameters.pcap {
            None => parameters.addresses.iter().map(|text| (text, address::parse(text))).collect(),
            Some(_) => Vec::new(),
        };
        let valid =
            || parsed.iter().filter_map(|(text, parsed)| Some((*text, parsed.as_ref().ok()?)));
        let unicast = valid().filter(|(_, address)| !address.is_multicast());
        let bound = unicast.flat_map(|(_, address)| address.texts());
        let bound = bound.map(|text| format!("udp {text}"));
        let groups = valid().filter(|(_, address)| address.is_multicast());
        let is_xdp = parameters.receive == Receive::AfXdp && parameters.pcap.is_none();
        let redirected = parameters.interfaces.iter().filter(|_| is_xdp);
        let queues: usize = redirected.clone().map(|name| interface::queues(name)).sum();
        Resources {
            host_bytes: thread::buffer_bytes(threads)
                + window * layout.slots() * window::SLOT_BYTES
                + queues * xdp::queue::allocated_bytes(receive_buffer_bytes),
            fills: vec![cpu::lent_frames(window)],
            // Several receivers, and several blocks, may share a group.
            binds: bound.chain(redirected.map(|name| format!("AF_XDP on {name}"))).collect(),
            sockets: groups.map(|(text, _)| text.clone()).collect(),
            ..Resources::default()
        }
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        // A stream from the network continues during a restart, a capture file would be read again.
        self.pcap.is_some().then_some("it would play its capture file again from the start")
    }
}

impl LiveKind for SpeadSource {
    type Value = Vec<bool>;

    fn live_value(
        new: &Configured<Self>,
        SpeadSourceLive::FlaggedAntennas: SpeadSourceLive,
        _: &Configured<Self>,
    ) -> Result<Vec<bool>, BlockError> {
        let mask = new.parameters.flagged(&new.shape);
        mask.ok_or_else(|| BlockError::new("the stream has no antennas"))
    }
}

#[cfg(test)]
mod line_tests;
#[cfg(test)]
mod overload_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod threads_tests;
#[cfg(test)]
mod xdp_tests;
