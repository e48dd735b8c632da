#![doc = include_str!("README.md")]

mod cpu;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests;

use crate::common::axes::MAX_FRAME_BYTES;
use crate::io::file_source::Pace;
use crate::io::pace::{default_catch_up, refuse_catch_up};
use crate::util::null_source::BandParameter;
use fxgraph::access::ReadPath;
use fxgraph::files::reason;
use fxgraph::{
    Axis, Band, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    PortType, Refusal, Resources, ValidityType,
};
use fxgraph_formats::vdif::{Header, Reader, Step, epoch_time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::File;

/// Frames at the beginning of the file that are searched for threads, and their largest size in bytes.
const SEARCHED_FRAMES: usize = 4096;
const SEARCHED_BYTES: usize = 1 << 24;
/// Samples of an output frame of the default size.
const FRAME_SAMPLES: usize = 1 << 16;
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
    /// Samples of a channel per second, if the headers do not give the rate (they do with EDV 1 and 3).
    pub sample_rate_hz: Option<f64>,
    /// VDIF frames of a thread in one frame of the output. By default as many as have up to 65536 samples.
    #[param(range = 1..=MAX_VDIF_FRAMES)]
    pub vdif_frames: Option<usize>,
    /// Largest number of frames to play.
    pub frames: Option<u64>,
    /// Rate of the frames: `full` is as fast as the readers take them.
    #[param(default)]
    pub pace: Pace,
    /// Rate at which a late recording catches up, as a multiple of real time, with `pace: real_time`.
    #[param(default = default_catch_up())]
    pub catch_up: f64,
    /// Frequencies of the band that the samples cover, with `channels: 1`.
    pub band: Option<BandParameter>,
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
}

impl Format {
    /// Rows of the output: channels of all threads.
    fn rows(&self) -> usize {
        self.threads.len() * self.header.channels()
    }

    fn components(&self) -> usize {
        if self.header.is_complex { 2 } else { 1 }
    }

    /// ADC samples of a VDIF frame: a complex sample counts as two.
    fn adc_samples(&self) -> u64 {
        (self.header.samples() * self.components()) as u64
    }
}

/// Threads of the frames at the beginning of the file, ascending.
fn threads_of(reader: &mut Reader<File>) -> std::io::Result<Vec<u16>> {
    let most = SEARCHED_BYTES / reader.template().frame_bytes as usize;
    let mut threads = Vec::new();
    for _ in 0..most.clamp(64, SEARCHED_FRAMES) {
        match reader.step()? {
            Step::Frame(header, _) => threads.push(header.thread),
            Step::Searching => continue,
            Step::End => break,
        }
        reader.advance();
    }
    threads.sort_unstable();
    threads.dedup();
    Ok(threads)
}

impl VdifSource {
    fn open(&self) -> Result<Reader<File>, String> {
        let path = &self.path;
        let cannot = |error: std::io::Error| format!("cannot read {path}: {}", reason(&error));
        let reader = Reader::new(path.open().map_err(cannot)?).map_err(cannot)?;
        reader.map_err(|error| format!("{path} does not begin with a VDIF frame: {error}"))
    }

    /// Returns the samples per second.
    fn rate_hz(&self, header: &Header) -> Result<u64, Box<Refusal>> {
        let refuse = |message: String, help: &str| {
            Err(Box::new(Refusal::parameter("sample_rate_hz", message).help(help)))
        };
        let Some(rate) = self.sample_rate_hz.or(header.sample_rate_hz().map(|hz| hz as f64)) else {
            let message = format!("the headers of {} do not give the sample rate", self.path);
            return refuse(message, "set `sample_rate_hz`, for example 32.0e6");
        };
        let samples = header.samples() as f64;
        if !(1.0..=MAX_RATE_HZ).contains(&rate) || rate % samples != 0.0 {
            let message = format!(
                "the sample rate must be a multiple of the {samples} samples of a VDIF frame, up to 10^11 \
                 Hz, got {rate} Hz"
            );
            return refuse(message, "set `sample_rate_hz` to the samples of a channel per second");
        }
        Ok(rate as u64)
    }

    fn format(&self) -> Result<Format, Box<Refusal>> {
        let at_path = |why: String| Box::new(Refusal::parameter("path", why));
        let mut reader = self.open().map_err(at_path)?;
        let header = *reader.template();
        let rate_hz = self.rate_hz(&header)?;
        let mut threads = self.threads.clone();
        if threads.is_empty() {
            let read = threads_of(&mut reader);
            threads = read.map_err(|error| {
                at_path(format!("cannot read {}: {}", self.path, reason(&error)))
            })?;
        }
        let mut sorted = threads.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() < threads.len() || sorted.last().is_some_and(|last| *last > 1023) {
            let message =
                format!("`threads` must be different numbers up to 1023, got {threads:?}");
            return Err(Box::new(
                Refusal::parameter("threads", message).help("omit it for all threads"),
            ));
        }
        if threads.is_empty() {
            return Err(at_path(format!("there is no complete VDIF frame in {}", self.path)));
        }
        if self.dtype == Number::I8 && header.bits > 8 {
            let message = format!("`i8` cannot hold samples of {} bits", header.bits);
            return Err(Box::new(Refusal::parameter("dtype", message).help("set `dtype: i16`")));
        }
        let samples = header.samples();
        let vdif_frames =
            self.vdif_frames.unwrap_or((FRAME_SAMPLES / samples).clamp(1, MAX_VDIF_FRAMES));
        let frames_per_second = rate_hz / samples as u64;
        Ok(Format { header, threads, frames_per_second, vdif_frames })
    }

    fn port(&self, format: &Format) -> Result<PortType, Box<Refusal>> {
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
            let refusal = Refusal::parameter("vdif_frames", message);
            return Err(Box::new(refusal.help("lower `vdif_frames`, or select `threads`")));
        }
        let sample = Axis::new("sample", samples).from_parameter("vdif_frames");
        let units = |name| Axis::new(name, format.vdif_frames).from_parameter("vdif_frames");
        let (axes, validity) = if rows == 1 {
            (vec![sample], vec![units("heap")])
        } else {
            let pol = Axis::new("pol", rows).from_parameter("threads");
            (vec![pol.clone(), sample], vec![pol, units("sample")])
        };
        let band = self.band.map(|band| {
            Band::signed(band.channels, band.first_channel, band.centre_hz, band.bandwidth_hz)
        });
        if let Some(why) = band.and_then(|band| band.impossible(1)) {
            return Err(Box::new(
                Refusal::parameter("band", why).help("set `channels: 1` in `band`"),
            ));
        }
        let per_second = format.frames_per_second * format.adc_samples();
        Ok(PortType {
            dtype,
            axes,
            clock: Clock {
                sync_time: epoch_time(format.header.epoch),
                ..Clock::new(per_second as f64, format.adc_samples() * format.vdif_frames as u64)
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
        if let Some(refusal) = refuse_catch_up(self.catch_up) {
            return Err(vec![refusal]);
        }
        let format = self.format().map_err(|refusal| vec![*refusal])?;
        let port = self.port(&format).map_err(|refusal| vec![*refusal])?;
        Ok((format, vec![port]))
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
