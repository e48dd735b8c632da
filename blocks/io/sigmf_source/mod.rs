#![doc = include_str!("README.md")]

mod cpu;
mod grid;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)] // values are exact
mod tests;

use crate::common::axes::MAX_FRAME_BYTES;
use crate::common::samples::ChannelAxis;
use crate::io::playback::{FileSource, Playback, PlaybackParameters};
use crate::io::played_file::{PlayedFile, cannot_read, contradictions};
use fxgraph::access::ReadPath;
use fxgraph::changes::MAX_TIMESTAMP;
use fxgraph::{
    Axis, Band, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    PortType, Rejection, Resources, Sideband, Time, ValidityType,
};
use fxgraph_formats::sigmf::{Archive, Datatype, Layout, MAX_BYTES, Meta, Number};
use grid::Grid;
use std::io::Read;

/// Parameters of `sigmf_source`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "sigmf_source", page = "README.md", examples("example.yaml"), outputs("output"))]
pub struct SigmfSource {
    /// Description of the recording, ending in `.sigmf-meta`, with the samples beside it in `.sigmf-data`; or an archive
    /// of both, ending in `.sigmf`.
    pub path: ReadPath,
    /// Samples of a frame in each channel.
    #[param(default = 16384, range = 1..=1_073_741_824)]
    pub samples_per_frame: usize,
    /// Validity flags of a frame, each for an equal part of its samples.
    #[param(default = 1, range = 1..=1_048_576)]
    pub heaps_per_frame: usize,
    /// Number of the capture to play, from 0; by default all captures.
    pub capture: Option<usize>,
    /// Axis of several channels: `pol` or `antenna`.
    #[param(default)]
    pub channel_axis: ChannelAxis,
    /// Ticks of the clock for each sample; by default the number in a recording of `sigmf_sink`, and otherwise 1.
    #[param(range = 1..=1_048_576)]
    pub adc_samples_per_sample: Option<u64>,
    /// Whether the samples are compared with `core:sha512` of the description before the first frame. This reads the
    /// whole file once.
    #[param(default = true)]
    pub check_sha512: bool,
    /// Sideband of the samples, if the description does not have it. `lower`: the spectrum is inverted, as by a mixer whose
    /// oscillator is above the band, or by swapped I and Q.
    pub sideband: Option<Sideband>,
    #[param(flatten)]
    playback: PlaybackParameters,
}

/// Content of the recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    layout: Layout,
    /// Ticks of the clock for each sample.
    step: u64,
    clock: Clock,
    bandwidth_hz: Option<f64>,
    /// Offset and length in bytes of the samples, with their headers, in the file.
    data: (u64, u64),
    /// SHA-512 of these bytes in hexadecimal.
    sha512: Option<String>,
}

impl Content {
    /// Properties that determine the type of the stream.
    fn stream(&self) -> impl PartialEq {
        let layout = &self.layout;
        (
            layout.datatype,
            layout.channels,
            layout.frequency_hz,
            self.step,
            self.clock,
            self.bandwidth_hz,
        )
    }

    /// Frames of `len` samples.
    fn grid(&self, len: usize) -> Grid {
        let layout = &self.layout;
        Grid::new(&layout.segments, &layout.missing, layout.datatype.bytes() * layout.channels, len)
    }
}

/// Element type of a stream of these samples.
fn dtype(datatype: Datatype) -> Option<Dtype> {
    Some(match (datatype.is_complex, datatype.number) {
        (true, Number::I8 | Number::U8) => Dtype::Ci8,
        (true, Number::I16) => Dtype::Ci16,
        (true, Number::I32) => Dtype::Ci32,
        (true, Number::F32) => Dtype::Cf32,
        (true, Number::F64) => Dtype::Cf64,
        (false, Number::I8) => Dtype::I8,
        (false, Number::U8) => Dtype::U8,
        (false, Number::I16) => Dtype::I16,
        (false, Number::I32) => Dtype::I32,
        (false, Number::F32) => Dtype::F32,
        (false, Number::F64) => Dtype::F64,
        (_, Number::U16 | Number::U32) => return None,
    })
}

impl SigmfSource {
    fn is_archive(&self) -> bool {
        self.path.path().extension().is_some_and(|extension| extension == "sigmf")
    }

    /// The file with the samples.
    fn data(&self) -> ReadPath {
        if self.is_archive() {
            return self.path.clone();
        }
        self.path.with(self.path.path().with_extension("sigmf-data").display().to_string())
    }

    /// Opens the files and reads the description.
    fn open(&self) -> Result<(PlayedFile, Content), String> {
        let path = &self.path;
        if !self.is_archive() && !path.ends_with(".sigmf-meta") {
            return Err(format!("`path` must end in .sigmf-meta or .sigmf, got `{path}`"));
        }
        let says = |why: String| format!("cannot use {path}: {why}");
        let read = |text: &[u8]| Meta::read(text).map_err(|error| says(error.to_string()));
        let (meta, file, first, bytes) = if self.is_archive() {
            let file = PlayedFile::open(path)?;
            let archive = Archive::find(&file.file).map_err(|error| says(error.to_string()))?;
            let there = file.length()?.saturating_sub(archive.offset);
            (read(&archive.meta)?, file, archive.offset, archive.bytes.min(there))
        } else {
            let mut text = Vec::new();
            let all = PlayedFile::open(path)?.file.take(MAX_BYTES + 1).read_to_end(&mut text);
            if all.map_err(cannot_read(path))? as u64 > MAX_BYTES {
                return Err(says(format!("it is longer than {MAX_BYTES} bytes")));
            }
            let meta = read(&text)?;
            let file = PlayedFile::open(&self.data())?;
            let bytes = file.length()?;
            (meta, file, 0, bytes)
        };
        let layout = meta.layout(bytes, self.capture).map_err(|error| says(error.to_string()))?;
        let mut content = self.content(&meta, layout).map_err(says)?;
        content.layout.segments.iter_mut().for_each(|segment| segment.offset += first);
        content.data = (first, bytes);
        Ok((file, content))
    }

    fn content(&self, meta: &Meta, layout: Layout) -> Result<Content, String> {
        let global = &meta.global;
        let own = global.adc_samples_per_sample.filter(|step| (1..=1 << 20).contains(step));
        let step = self.adc_samples_per_sample.or(own).unwrap_or(1);
        // The exact rate, if it is the one of the recording.
        let of_rate = layout.sample_rate_hz * step as f64;
        let is_same = |rate: &f64| (rate / of_rate - 1.0).abs() < 1e-9;
        let adc_sample_rate_hz = global.adc_sample_rate_hz.filter(is_same).unwrap_or(of_rate);
        let exact = global.sync_time.as_deref().and_then(Time::from_iso);
        let own = exact.or_else(|| global.sync_time_seconds.and_then(Time::from_unix_f64));
        let sync_time = own.or(layout.sync_time).unwrap_or_default();
        let samples_per_frame = (self.samples_per_frame as u64).saturating_mul(step);
        let clock = Clock { sync_time, ..Clock::new(adc_sample_rate_hz, samples_per_frame) };
        let last = layout.segments.last().map_or(0, |last| last.index.saturating_add(last.count));
        let end = last.checked_mul(step).and_then(|end| end.checked_add(samples_per_frame));
        if end.is_none_or(|end| end > MAX_TIMESTAMP) {
            return Err(format!("its last sample has the index {last}, which no timestamp has"));
        }
        let bandwidth_hz = global.bandwidth_hz.filter(|width| width.is_finite() && *width != 0.0);
        let sha512 = global.sha512.clone();
        Ok(Content { layout, step, clock, bandwidth_hz, data: (0, 0), sha512 })
    }

    /// Returns the type of the stream.
    fn port(&self, content: &Content) -> Result<PortType, String> {
        let layout = &content.layout;
        let dtype = dtype(layout.datatype)
            .ok_or_else(|| format!("samples of type {} are not supported", layout.datatype))?;
        let samples =
            Axis::new("sample", self.samples_per_frame).from_parameter("samples_per_frame");
        let bits =
            samples.len.checked_mul(layout.channels).and_then(|all| all.checked_mul(dtype.bits()));
        if bits.is_none_or(|bits| bits / 8 > MAX_FRAME_BYTES) {
            let channels = layout.channels;
            return Err(format!(
                "a frame of {} samples in {channels} channels has more than 4 GiB; lower `samples_per_frame`",
                samples.len
            ));
        }
        let several =
            (layout.channels > 1).then(|| Axis::new(self.channel_axis.name(), layout.channels));
        let half = if layout.datatype.is_complex { 1.0 } else { 0.5 };
        let bandwidth_hz = content.bandwidth_hz.unwrap_or(layout.sample_rate_hz * half);
        if self.sideband.is_some() && layout.frequency_hz.is_none() {
            return Err("`sideband` needs `core:frequency` in the description".to_owned());
        }
        let band = |centre_hz| {
            let band = Band::signed(1, 0, centre_hz, bandwidth_hz);
            Band { sideband: self.sideband.unwrap_or(band.sideband), ..band }
        };
        let port = PortType {
            dtype,
            axes: several.into_iter().chain([samples]).collect(),
            clock: content.clock,
            band: layout.frequency_hz.map(band),
            validity: ValidityType::flags(vec![Axis::new("heap", self.heaps_per_frame)]),
        };
        port.impossible().map_or(Ok(port), Err)
    }
}

impl KindSpec for SigmfSource {
    type Shape = Content;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let Configured { parameters, shape, .. } = block;
        let playback = Playback::new(&parameters.playback, shape.clock, env);
        Ok(Box::new(FileSource::new(playback, cpu::Samples::new(parameters, shape, env), env)))
    })];

    /// Reads the description, the only source of the stream's type.
    fn ports(&self, _inputs: &[PortType]) -> Checked<Content> {
        let mut rejections = self.playback.check().err().unwrap_or_default();
        if !self.samples_per_frame.is_multiple_of(self.heaps_per_frame) {
            let message = format!(
                "`heaps_per_frame` must divide the {} samples of a frame, got {}",
                self.samples_per_frame, self.heaps_per_frame
            );
            rejections.push(Rejection::parameter("heaps_per_frame", message));
        }
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let reject = |message: String| vec![Rejection::parameter("path", message)];
        let (_, content) = self.open().map_err(reject)?;
        let port = self.port(&content);
        let port = port.map_err(|why| reject(format!("cannot use {}: {why}", self.path)))?;
        Ok((content, vec![port]))
    }

    fn warnings(block: &Configured<Self>) -> Vec<Rejection> {
        let path = &block.parameters.path;
        contradictions(path, &block.shape.layout.contradictions)
    }

    fn resources(block: &Configured<Self>) -> Resources {
        Resources { host_bytes: block.ports.outputs[0].frame_bytes(), ..Resources::default() }
    }
}
