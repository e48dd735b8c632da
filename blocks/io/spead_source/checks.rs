//! Derives the layout of the stream from the parameters, and checks the parameters.

use super::layout::{Layout, Stream};
use super::{Receive, SpeadSource, StreamName};
use crate::common::antenna_numbers::default_numbers;
use crate::common::axes::MAX_FRAME_BYTES;
use crate::common::flagged_antennas;
use crate::common::net::address::{self, Address};
use crate::common::net::family::Family;
use fxgraph::{Dtype, Rejection};

/// Largest number of antennas.
const MOST_ANTENNAS: usize = 4096;
const MAX_HEAP_BYTES: usize = 1 << 30;

/// Collects diagnostics about the parameters.
#[derive(Default)]
struct Problems(Vec<Rejection>);

impl Problems {
    fn add(
        &mut self,
        parameter: &'static str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.0.push(Rejection::parameter(parameter, message).help(help));
    }

    fn within(&mut self, parameter: &'static str, value: usize, range: (usize, usize)) -> bool {
        let good = (range.0..=range.1).contains(&value);
        if !good {
            let nearest = value.clamp(range.0, range.1);
            self.add(
                parameter,
                format!("`{parameter}` must be between {} and {}, got {value}", range.0, range.1),
                format!("the nearest valid value is {nearest}"),
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
                "`addresses` or `pcap` must be set",
                "set `addresses`, such as [239.10.0.0+7:7148], or `pcap`, such as heaps.pcap",
            );
        }
        if let Err(errors) = address::parse_all(&self.addresses) {
            for error in errors {
                let help = "give addresses such as 239.10.0.0+7:7148, which is 8 groups";
                problems.add("addresses", error.to_string(), help);
            }
        }
        let addresses = address::parse_all(&self.addresses).unwrap_or_default();
        problems.0.extend(address::reject_sources(&self.sources, ("addresses", &addresses)));
        if self.interfaces.is_empty() && self.pcap.is_none() {
            let rejection = address::reject_unscoped(&addresses, "addresses", "interfaces");
            problems.0.extend(rejection);
        }
        if !self.sources.is_empty() && (self.pcap.is_some() || self.receive == Receive::AfXdp) {
            let message = "`sources` needs `receive: socket` and no `pcap`";
            let help = "remove `sources`, or receive from sockets: only these drop the packets of other senders";
            problems.add("sources", message, help);
        }
        self.check_threads(problems);
        if self.receive == Receive::AfXdp {
            self.check_af_xdp(problems);
        }
        let antennas = if self.stream == StreamName::FEngine { self.antennas } else { 0 };
        let numbers = default_numbers(antennas.min(MOST_ANTENNAS));
        problems.0.extend(flagged_antennas::rejection(&self.flagged_antennas, &numbers));
        let rate = self.adc_sample_rate_hz;
        if !(rate.is_finite() && rate > 0.0) {
            let message = format!("`adc_sample_rate_hz` must be positive and finite, got {rate}");
            problems.add("adc_sample_rate_hz", message, "give samples per second, such as 1.712e9");
        }
        if let Some(bytes) = self.receive_buffer_bytes {
            problems.within("receive_buffer_bytes", bytes, (4096, 1 << 30));
        }
        if let Some(idle) = self.finish_after_seconds
            && !(idle > 0.0 && idle <= 1e9)
        {
            let message =
                format!("`finish_after_seconds` must be above 0 and at most 1e9, got {idle}");
            problems.add("finish_after_seconds", message, "give seconds, such as 10");
        }
    }

    fn check_threads(&self, problems: &mut Problems) {
        let Some(threads) = self.threads else { return };
        if threads > 1 && self.pcap.is_some() {
            let message = format!("`threads` must be 1 with `pcap`, got {threads}");
            problems.add("threads", message, "remove `threads`: one thread reads a capture file");
            return;
        }
        if self.receive == Receive::AfXdp {
            // The number of receive queues limits them, which is known at the start.
            return;
        }
        let addresses = address::parse_all(&self.addresses).unwrap_or_default();
        let count = address::count(&self.addresses);
        if count > 0 && threads > count && addresses.iter().any(Address::is_multicast) {
            let message = format!(
                "`threads` must be at most the number of `addresses`, {count}, because they have \
                 multicast groups, got {threads}"
            );
            let help = format!(
                "lower `threads` to {count}, or send to more groups: the kernel gives each datagram of a \
                 group to all sockets of the group, so threads cannot divide a group"
            );
            problems.add("threads", message, help);
        }
    }

    fn check_af_xdp(&self, problems: &mut Problems) {
        if cfg!(not(any(feature = "xdp", test))) {
            let message = "this program was built without `xdp`, which `receive: af_xdp` needs";
            let help = "build fxgraph with `--features xdp`, or use `receive: socket`";
            problems.add("receive", message, help);
            return;
        }
        if self.pcap.is_some() {
            let message = "`receive` must be `socket` with `pcap`, got `af_xdp`";
            problems.add("receive", message, "remove `receive`, or receive from `addresses`");
            return;
        }
        let interfaces = &self.interfaces;
        if interfaces.is_empty() {
            let help =
                "name the interfaces on which the packets arrive, such as `interfaces: [eth0]`";
            problems.add("interfaces", "`receive: af_xdp` needs `interfaces`", help);
        }
        let is_repeated = |(at, name): &(usize, &String)| interfaces[..*at].contains(name);
        if let Some((_, name)) = interfaces.iter().enumerate().find(is_repeated) {
            let message =
                format!("`interfaces` must differ with `receive: af_xdp`, got `{name}` twice");
            problems.add("interfaces", message, "name each interface once");
        }
        let addresses = address::parse_all(&self.addresses).unwrap_or_default();
        let is_v6 = |address: &&Address| address.family() == Some(Family::V6);
        if let Some(text) = addresses.iter().find(is_v6).and_then(|all| all.texts().pop()) {
            let message =
                format!("`addresses` must be IPv4 addresses with `receive: af_xdp`, got {text}");
            problems.add("addresses", message, "use `receive: socket`, or an IPv4 address");
        }
        let mut listed = addresses.iter().filter_map(Address::listed).flatten();
        if let Some(any) = listed.find(|address| address.ip().is_unspecified()) {
            let message =
                format!("`addresses` must be those of packets with `receive: af_xdp`, got {any}");
            let help = "give the address of the interface, such as 10.0.0.1:7148";
            problems.add("addresses", message, help);
        }
    }

    /// Returns the layout of heaps in frames.
    pub(super) fn layout(&self) -> Result<Layout, Vec<Rejection>> {
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
                    "`samples_per_frame` must be 1 to 16777216 heaps of {samples_per_heap} samples, \
                     got {samples}"
                ),
                format!("the nearest valid value is {nearest}"),
            );
            return Err(problems.0);
        }
        let layout =
            Layout { stream, heap_bytes, samples_per_heap, heaps_per_frame: heaps as usize };
        let bytes = layout.slots().checked_mul(heap_bytes);
        if bytes.is_none_or(|bytes| bytes > MAX_FRAME_BYTES) {
            problems.add(
                "samples_per_frame",
                format!("a frame must have at most {MAX_FRAME_BYTES} bytes"),
                format!("lower `samples_per_frame`; one heap is {samples_per_heap}"),
            );
        }
        if problems.0.is_empty() { Ok(layout) } else { Err(problems.0) }
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
                format!("`bits` must be 2 to 10, 12 or 16, got {}", self.bits),
                format!("the nearest valid value is {nearest}"),
            );
        }
        let samples = self.samples_per_heap;
        if problems.within("samples_per_heap", samples, (8, 1 << 28)) && !samples.is_multiple_of(8)
        {
            problems.add(
                "samples_per_heap",
                format!("`samples_per_heap` must be a multiple of 8, got {samples}"),
                format!("the next multiple of 8 is {}", samples.next_multiple_of(8)),
            );
        }
        if let Some(pol) = self.pol.filter(|pol| *pol > 1) {
            problems.add("pol", format!("`pol` must be 0 or 1, got {pol}"), "give 0 or 1");
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
                "`stream: f_engine` needs `channels`",
                "give the number of channels of the whole band, such as 4096",
            );
            return None;
        };
        problems.within("channels", channels, (1, 1 << 24));
        problems.within("antennas", self.antennas, (1, MOST_ANTENNAS));
        problems.within("spectra_per_heap", self.spectra_per_heap, (1, 1 << 20));
        let substreams = self.substreams();
        problems.within("substreams", substreams, (1, 4096));
        if self.dtype().is_none() {
            let message = format!("`dtype` must be `ci8` or `ci4`, got `{}`", self.dtype);
            problems.add("dtype", message, "give the dtype that the F-engines send");
        }
        if self.nyquist_zone.is_multiple_of(2) && self.bandwidth_hz.is_some_and(|hz| hz > 0.0) {
            problems.add(
                "bandwidth_hz",
                "`bandwidth_hz` must be negative in an even Nyquist zone, whose spectrum is inverted",
                "omit `bandwidth_hz`, or omit `nyquist_zone` and give the width with its sign",
            );
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
                    "{substreams} substreams of {per_substream} channels from channel {} exceed the \
                     band of {channels} channels",
                    self.first_channel
                ),
                format!(
                    "`channels_per_substream` can be at most {}",
                    channels.saturating_sub(self.first_channel) / substreams
                ),
            );
            return None;
        }
        let sample_bytes = self.dtype().unwrap_or(Dtype::Ci8).bytes(2);
        let heap_bytes = per_substream * self.spectra_per_heap * sample_bytes;
        if heap_bytes > MAX_HEAP_BYTES {
            let message =
                format!("a heap must have at most {MAX_HEAP_BYTES} bytes, got {heap_bytes}");
            problems.add("spectra_per_heap", message, "lower `spectra_per_heap`, such as to 256");
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
        self.substreams.unwrap_or(address::count(&self.addresses).max(1))
    }

    pub(super) fn dtype(&self) -> Option<Dtype> {
        let dtype = self.dtype.parse().ok()?;
        matches!(dtype, Dtype::Ci8 | Dtype::Ci4).then_some(dtype)
    }
}
