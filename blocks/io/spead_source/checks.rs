//! What parameters make of a stream: its heaps, its frames, and why there is no such stream.

use super::layout::{Layout, Stream};
use super::{SpeadSource, StreamName};
use crate::common::axes::MAX_FRAME_BYTES;
use crate::io::spead::address;
use fxgraph::{Dtype, Refusal};

const MAX_HEAP_BYTES: usize = 1 << 30;
/// The window unless it is set: for how long, in how many bytes, and the fewest frames.
const WINDOW_SECONDS: f64 = 0.05;
const WINDOW_BYTES: usize = 256 << 20;
pub(super) const MIN_WINDOW: usize = 4;
const MIN_WINDOW_HEAPS: usize = 16;
const MAX_WINDOW: usize = 64;

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
        self.0.push(Refusal::parameter(parameter, message).help(help));
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
        problems.within("receive_buffer_bytes", self.receive_buffer_bytes, (4096, 1 << 30));
        if let Some(idle) = self.finish_after_seconds
            && !(idle > 0.0 && idle <= 1e9)
        {
            let message = format!("cannot wait for {idle} seconds");
            problems.add("finish_after_seconds", message, "give a positive number of seconds");
        }
    }

    /// How heaps make up frames, and the channels received.
    pub(super) fn layout(&self) -> Result<Layout, Vec<Refusal>> {
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
    pub(super) fn window(&self, layout: &Layout) -> usize {
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

    pub(super) fn dtype(&self) -> Option<Dtype> {
        let dtype = self.dtype.parse().ok()?;
        matches!(dtype, Dtype::Ci8 | Dtype::Ci4).then_some(dtype)
    }
}
