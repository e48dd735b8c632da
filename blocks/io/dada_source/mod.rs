#![doc = include_str!("README.md")]

mod cpu;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests;

use crate::common::axes::MAX_FRAME_BYTES;
use crate::io::playback::{FileSource, Playback, PlaybackParameters};
use crate::io::played_file::{PlayedFile, band, cannot_read, contradictions};
use fxgraph::access::ReadPath;
use fxgraph::{
    Axis, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    PortType, Rejection, Sideband, ValidityType,
};
use fxgraph_formats::dada::{Header, MAX_HEADER_BYTES};
use std::io::Read;

/// Bytes of an output frame of the default size.
const FRAME_BYTES: u64 = 1 << 20;

/// Parameters of `dada_source`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "dada_source", page = "README.md", examples("example.yaml"), outputs("output"))]
pub struct DadaSource {
    /// File to play.
    pub path: ReadPath,
    /// Samples of each channel in a frame. By default as many as take up to 1 MiB, but not more than the file has.
    #[param(range = 1..)]
    pub samples_per_frame: Option<u64>,
    /// Sideband of the samples, if the sign of `BW` is wrong. `lower`: frequencies fall from channel to channel, and values
    /// are the complex conjugates of those of the sky.
    pub sideband: Option<Sideband>,
    #[param(flatten)]
    playback: PlaybackParameters,
}

/// Shape of the file and of the output.
#[derive(Clone, Debug)]
pub struct Shape {
    header: Header,
    /// Samples of each channel in a frame.
    samples: u64,
    /// ADC samples of a sample.
    step: u64,
}

impl DadaSource {
    /// Opens the file and reads its header.
    fn open(&self) -> Result<(PlayedFile, Header), String> {
        let path = &self.path;
        let file = PlayedFile::open(path)?;
        let mut bytes = Vec::new();
        let mut header = (&file.file).take(MAX_HEADER_BYTES as u64);
        header.read_to_end(&mut bytes).map_err(cannot_read(path))?;
        let header =
            Header::parse(&bytes).map_err(|error| format!("cannot use {path}: {error}"))?;
        Ok((file, header))
    }

    fn shape(&self) -> Result<Shape, Box<Rejection>> {
        let (file, header) =
            self.open().map_err(|why| Box::new(Rejection::parameter("path", why)))?;
        // A pipe has no length.
        let there = file.file.metadata().ok().filter(std::fs::Metadata::is_file);
        let there = there.map(|there| there.len().saturating_sub(header.header_bytes as u64));
        let usual = there.unwrap_or(FRAME_BYTES).min(FRAME_BYTES);
        let usual = (usual / header.sample_bytes()).max(1);
        // A sample of one channel, real or complex, is one tick. A spectrum takes as many as the real samples that a
        // filter bank makes its channels of.
        let step = match header.channels as u64 {
            channels if channels > 1 && header.is_complex => 2 * channels,
            channels => channels,
        };
        let samples = self.samples_per_frame.unwrap_or(usual);
        Ok(Shape { header, samples, step })
    }

    fn port(&self, shape: &Shape) -> Result<PortType, Box<Rejection>> {
        let header = &shape.header;
        let bytes = header.sample_bytes().checked_mul(shape.samples);
        let Some(samples_per_frame) = bytes
            .filter(|bytes| *bytes <= MAX_FRAME_BYTES as u64)
            .and_then(|_| shape.samples.checked_mul(shape.step))
        else {
            let message = "a frame of the output must have at most 4 GiB";
            let rejection = Rejection::parameter("samples_per_frame", message);
            return Err(Box::new(rejection.help("lower `samples_per_frame`")));
        };
        let dtype = match (header.bits, header.is_complex) {
            (8, false) => Dtype::I8,
            (8, true) => Dtype::Ci8,
            (16, false) => Dtype::I16,
            (16, true) => Dtype::Ci16,
            (_, false) => Dtype::F32,
            (_, true) => Dtype::Cf32,
        };
        let (channels, pols, samples) = (header.channels, header.pols, shape.samples as usize);
        let time = if channels > 1 { "spectrum" } else { "sample" };
        let mut axes = vec![Axis::new(time, samples).from_parameter("samples_per_frame")];
        if channels > 1 {
            axes.push(Axis::new("channel", channels));
        }
        if pols > 1 || channels > 1 {
            axes.push(Axis::new("pol", pols));
        }
        let band = band(
            "BW",
            channels,
            header.centre_mhz * 1e6,
            header.bandwidth_mhz * 1e6,
            self.sideband,
        )?;
        Ok(PortType {
            dtype,
            axes,
            clock: Clock {
                sync_time: header.start,
                ..Clock::new(shape.step as f64 * 1e6 / header.sample_us, samples_per_frame)
            },
            band,
            validity: ValidityType::flags(vec![]),
        })
    }
}

impl KindSpec for DadaSource {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let Configured { parameters, shape, .. } = block;
        let playback = Playback::new(&parameters.playback, block.ports.outputs[0].clock, env);
        Ok(Box::new(FileSource::new(playback, cpu::Samples::new(parameters, shape, env), env)))
    })];

    /// Reads the shape from the header of the file.
    fn ports(&self, _inputs: &[PortType]) -> Checked<Shape> {
        self.playback.check()?;
        let shape = self.shape().map_err(|rejection| vec![*rejection])?;
        let port = self.port(&shape).map_err(|rejection| vec![*rejection])?;
        Ok((shape, vec![port]))
    }

    fn warnings(block: &Configured<Self>) -> Vec<Rejection> {
        let path = &block.parameters.path;
        contradictions(path, &block.shape.header.contradictions)
    }
}
