#![doc = include_str!("README.md")]

mod cpu;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests;

use crate::common::axes::MAX_FRAME_BYTES;
use crate::io::playback::PlaybackParameters;
use crate::io::played_file::{PlayedFile, cannot_read};
use crate::util::null_source::BandParameter;
use fxgraph::access::ReadPath;
use fxgraph::diagnostic::codes;
use fxgraph::kind::unlikely_band;
use fxgraph::{
    At, Axis, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    PortType, Rejection, Resources, ValidityType,
};
use fxgraph_formats::vdif::{Header, Reader, Step, epoch_time, flip_encoding, middle_fraction};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::File;

/// Frames at the beginning of the file that are searched for threads, and their largest size in bytes.
const SEARCHED_FRAMES: usize = 4096;
const SEARCHED_BYTES: usize = 1 << 24;
/// Samples of an output frame of the default size.
const FRAME_SAMPLES: usize = 1 << 16;
/// Samples of all rows of an output frame of the default size.
const FRAME_VALUES: usize = 1 << 20;
/// Bytes of samples whose encoding is looked at, and the least number of codes for a statement.
const LOOKED_AT_BYTES: usize = 1 << 16;
const LEAST_CODES: usize = 512;
/// Least fraction of the codes in the middle half of their range without a warning.
const LEAST_MIDDLE: f64 = 0.4;
/// Largest number of VDIF frames of a thread in an output frame.
const MAX_VDIF_FRAMES: usize = 1 << 16;
/// Largest sample rate in Hz.
const MAX_RATE_HZ: f64 = 1e11;

/// Parameters of `vdif_source`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "vdif_source", page = "README.md", examples("example.yaml"), outputs("output"))]
pub struct VdifSource {
    /// File to play.
    pub path: ReadPath,
    /// Threads to play, in the order of the output's rows. By default all threads at the beginning of the file, in
    /// ascending order.
    #[param(default)]
    pub threads: Vec<u16>,
    /// Type of each sample, or of each part of a complex sample.
    #[param(default)]
    pub dtype: Number,
    /// Encoding of the samples: `offset_binary`, that of the specification, or `twos_complement`.
    #[param(default)]
    pub encoding: Encoding,
    /// Samples of a channel per second, if the headers do not give the rate (they do with EDV 1 and 3).
    pub sample_rate_hz: Option<f64>,
    /// VDIF frames of a thread in one frame of the output. By default as many as have up to 65536 samples, and up to
    /// 2^20 samples of all rows together.
    #[param(range = 1..=MAX_VDIF_FRAMES)]
    pub vdif_frames: Option<usize>,
    #[param(flatten)]
    playback: PlaybackParameters,
    /// Frequencies of the band that the samples cover, with `channels: 1`; of a file with more channels than samples in
    /// a VDIF frame, those of its channels.
    pub band: Option<BandParameter>,
}

/// Encoding of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// Codes from the lowest value up, as the specification says.
    #[default]
    OffsetBinary,
    /// Two's complement, which some recorders write.
    TwosComplement,
}

/// Type of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Number {
    /// Levels of the quantiser: -1 and 1, or -3.3359, -1, 1 and 3.3359, or integers.
    #[default]
    F32,
    /// 8-bit integers.
    I8,
    /// 16-bit integers.
    I16,
}

/// Format of the file and of the output.
#[derive(Clone)]
pub struct Format {
    /// Header of the first frame.
    header: Header,
    /// Threads, in the order of the rows.
    threads: Vec<u16>,
    /// VDIF frames of a thread per second.
    frames_per_second: u64,
    /// VDIF frames of a thread in a frame of the output.
    vdif_frames: usize,
    /// Fraction of the codes in the middle half of their range, by `encoding`.
    middle_fraction: Option<f64>,
}

impl Format {
    /// Rows of the output: channels of all threads.
    fn rows(&self) -> usize {
        self.threads.len() * self.header.channels()
    }

    fn components(&self) -> usize {
        if self.header.is_complex { 2 } else { 1 }
    }

    /// Whether the channels are those of a filter bank, not a few bands: more channels than samples in a VDIF frame.
    fn is_channelised(&self) -> bool {
        self.header.channels() > self.header.samples()
    }

    /// Ticks of a VDIF frame: one for each sample, real or complex. A spectrum of a filter bank takes as many as the real
    /// samples that the filter bank made it of.
    fn ticks(&self) -> u64 {
        let of_spectrum = self.header.channels() * self.components();
        let of_sample = if self.is_channelised() { of_spectrum } else { 1 };
        (self.header.samples() * of_sample) as u64
    }
}

/// Content of the frames at the beginning of a file.
struct Beginning {
    /// Threads, ascending.
    threads: Vec<u16>,
    /// Fraction of the codes in the middle half of their range; `None` for too few or 1-bit samples.
    middle_fraction: Option<f64>,
}

/// Looks at the frames at the beginning of the file.
fn beginning_of(reader: &mut Reader<File>, encoding: Encoding) -> std::io::Result<Beginning> {
    let most = SEARCHED_BYTES / reader.template().frame_bytes as usize;
    let bits = reader.template().bits;
    let (mut threads, mut payloads) = (Vec::new(), Vec::new());
    for _ in 0..most.clamp(64, SEARCHED_FRAMES) {
        match reader.step()? {
            Step::Frame(header, payload) => {
                threads.push(header.thread);
                let room = LOOKED_AT_BYTES - payloads.len();
                if !header.is_invalid {
                    // Whole words, so that samples of 16 bits are not split.
                    payloads.extend_from_slice(&payload[..payload.len().min(room / 8 * 8)]);
                }
            }
            Step::Searching => continue,
            Step::End => break,
        }
        reader.advance();
    }
    threads.sort_unstable();
    threads.dedup();
    if encoding == Encoding::TwosComplement {
        flip_encoding(&mut payloads, bits);
    }
    let is_enough = 8 * payloads.len() >= LEAST_CODES * usize::from(bits);
    let middle_fraction = middle_fraction(&payloads, bits).filter(|_| is_enough);
    Ok(Beginning { threads, middle_fraction })
}

impl VdifSource {
    fn open(&self) -> Result<Reader<File>, String> {
        let path = &self.path;
        let reader = Reader::new(PlayedFile::open(path)?.file).map_err(cannot_read(path))?;
        reader.map_err(|error| {
            format!("there is no VDIF frame in the first 4 MiB of {path}: {error}")
        })
    }

    /// Returns the samples per second.
    fn rate_hz(&self, header: &Header) -> Result<u64, Box<Rejection>> {
        let reject = |message: String, help: &str| {
            Err(Box::new(Rejection::parameter("sample_rate_hz", message).help(help)))
        };
        let Some(rate) = self.sample_rate_hz.or(header.sample_rate_hz().map(|hz| hz as f64)) else {
            let message = format!("the headers of {} do not give the sample rate", self.path);
            return reject(message, "set `sample_rate_hz`, for example 32.0e6");
        };
        let samples = header.samples() as f64;
        if !(1.0..=MAX_RATE_HZ).contains(&rate) || rate % samples != 0.0 {
            let message = format!(
                "the sample rate must be a multiple of the {samples} samples of a VDIF frame, up to 10^11 \
                 Hz, got {rate} Hz"
            );
            return reject(message, "set `sample_rate_hz` to the samples of a channel per second");
        }
        Ok(rate as u64)
    }

    fn format(&self) -> Result<Format, Box<Rejection>> {
        let at_path = |why: String| Box::new(Rejection::parameter("path", why));
        let mut reader = self.open().map_err(at_path)?;
        let header = *reader.template();
        let rate_hz = self.rate_hz(&header)?;
        let read = beginning_of(&mut reader, self.encoding).map_err(cannot_read(&self.path));
        let Beginning { threads: found, middle_fraction } = read.map_err(at_path)?;
        let threads = if self.threads.is_empty() { found } else { self.threads.clone() };
        let mut sorted = threads.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() < threads.len() || sorted.last().is_some_and(|last| *last > 1023) {
            let message =
                format!("`threads` must be different numbers up to 1023, got {threads:?}");
            return Err(Box::new(
                Rejection::parameter("threads", message).help("omit it for all threads"),
            ));
        }
        if threads.is_empty() {
            return Err(at_path(format!("there is no complete VDIF frame in {}", self.path)));
        }
        if self.dtype == Number::I8 && header.bits > 8 {
            let message = format!("`i8` cannot hold samples of {} bits", header.bits);
            return Err(Box::new(Rejection::parameter("dtype", message).help("set `dtype: i16`")));
        }
        let samples = header.samples();
        // Samples of all rows: frames of many channels stay small, too.
        let of_rows = samples.saturating_mul(threads.len().saturating_mul(header.channels()));
        let usual = (FRAME_SAMPLES / samples).min(FRAME_VALUES / of_rows.max(1));
        let vdif_frames = self.vdif_frames.unwrap_or(usual.clamp(1, MAX_VDIF_FRAMES));
        let frames_per_second = rate_hz / samples as u64;
        Ok(Format { header, threads, frames_per_second, vdif_frames, middle_fraction })
    }

    fn port(&self, format: &Format) -> Result<PortType, Box<Rejection>> {
        let samples = format.header.samples().saturating_mul(format.vdif_frames);
        let is_complex = format.header.is_complex;
        let dtype = match (self.dtype, is_complex) {
            (Number::F32, false) => Dtype::F32,
            (Number::F32, true) => Dtype::Cf32,
            (Number::I8, false) => Dtype::I8,
            (Number::I8, true) => Dtype::Ci8,
            (Number::I16, false) => Dtype::I16,
            (Number::I16, true) => Dtype::Ci16,
        };
        let rows = format.rows();
        let bytes = samples.checked_mul(rows).and_then(|count| count.checked_mul(dtype.bits() / 8));
        if bytes.is_none_or(|bytes| bytes > MAX_FRAME_BYTES) {
            let message = "a frame of the output must have at most 4 GiB";
            let rejection = Rejection::parameter("vdif_frames", message);
            return Err(Box::new(rejection.help("lower `vdif_frames`, or select `threads`")));
        }
        let sample = Axis::new("sample", samples).from_parameter("vdif_frames");
        let units = |name| Axis::new(name, format.vdif_frames).from_parameter("vdif_frames");
        let channels = format.header.channels();
        let (axes, validity) = if format.is_channelised() {
            let pol = Axis::new("pol", format.threads.len()).from_parameter("threads");
            let spectrum = Axis::new("spectrum", samples).from_parameter("vdif_frames");
            let units = vec![pol.clone(), spectrum.clone()];
            (vec![pol, spectrum, Axis::new("channel", channels)], units)
        } else if rows == 1 {
            (vec![sample], vec![units("heap")])
        } else {
            let pol = Axis::new("pol", rows).from_parameter("threads");
            (vec![pol.clone(), sample], vec![pol, units("sample")])
        };
        let band_channels = if format.is_channelised() { channels } else { 1 };
        let band = self.band.map(|band| band.band(band_channels)).transpose().map_err(|why| {
            let help = format!("set `channels: {band_channels}` in `band`");
            Box::new(Rejection::parameter("band", why).help(help))
        })?;
        let per_second = format.frames_per_second * format.ticks();
        Ok(PortType {
            dtype,
            axes,
            clock: Clock {
                sync_time: epoch_time(format.header.epoch),
                ..Clock::new(per_second as f64, format.ticks() * format.vdif_frames as u64)
            },
            band,
            validity: ValidityType::flags(validity),
        })
    }
}

impl KindSpec for VdifSource {
    type Shape = Format;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let port = &block.ports.outputs[0];
        Ok(Box::new(cpu::Source::new(block.parameters.clone(), &block.shape, port, env)))
    })];

    /// Reads the format from the first frames of the file.
    fn ports(&self, _inputs: &[PortType]) -> Checked<Format> {
        self.playback.check()?;
        let format = self.format().map_err(|rejection| vec![*rejection])?;
        let port = self.port(&format).map_err(|rejection| vec![*rejection])?;
        Ok((format, vec![port]))
    }

    fn warnings(block: &Configured<Self>) -> Vec<Rejection> {
        let fraction = block.shape.middle_fraction.filter(|fraction| *fraction < LEAST_MIDDLE);
        let (is, other) = match block.parameters.encoding {
            Encoding::OffsetBinary => ("offset binary", "twos_complement"),
            Encoding::TwosComplement => ("two's complement", "offset_binary"),
        };
        let warning = |fraction: f64| {
            let message = format!(
                "{}: as {is} only {:.0} % of the samples are in the middle half of their range, as if the file had \
                 another encoding",
                block.parameters.path,
                100.0 * fraction
            );
            Rejection::new(codes::IMPLAUSIBLE, At::Parameter("path"), message)
                .label("few small values")
                .help(format!("set `encoding: {other}` if the recorder writes that"))
        };
        let path = &block.parameters.path;
        let given = block.parameters.sample_rate_hz;
        let of_headers = block.shape.header.sample_rate_hz().map(|hz| hz as f64);
        let is_other = |(given, of_headers): &(f64, f64)| (given / of_headers - 1.0).abs() > 1e-9;
        let rates = given.zip(of_headers).filter(is_other);
        let rate = rates.map(|(given, of_headers)| {
            let message = format!("the headers of {path} say {of_headers} Hz, not {given} Hz");
            Rejection::new(codes::IMPLAUSIBLE, At::Parameter("sample_rate_hz"), message)
                .label("differs from the headers")
                .help("omit `sample_rate_hz` to use the rate of the headers")
        });
        let band = unlikely_band("band", &block.ports.outputs[0]);
        fraction.map(warning).into_iter().chain(rate).chain(band).collect()
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let header = &block.shape.header;
        let values = header.samples() * header.channels() * block.shape.components();
        Resources {
            host_bytes: 4 * (header.frame_bytes as usize).max(1 << 20) + size_of::<f32>() * values,
            fills: vec![2],
            ..Resources::default()
        }
    }
}
