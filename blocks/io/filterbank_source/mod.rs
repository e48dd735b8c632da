#![doc = include_str!("README.md")]

mod cpu;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)] // values are exact
mod tests;

use crate::common::axes::MAX_FRAME_BYTES;
use crate::io::playback::{FileSource, Playback, PlaybackParameters};
use crate::io::played_file::PlayedFile;
use fxgraph::access::ReadPath;
use fxgraph::{
    Axis, Band, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    PortType, Rejection, Resources, Time, ValidityType,
};
use fxgraph_formats::filterbank::Header;
use std::io::BufReader;

/// Parameters of `filterbank_source`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "filterbank_source", page = "README.md", examples("example.yaml"), outputs("output"))]
pub struct FilterbankSource {
    /// Filterbank file to play, usually `.fil`.
    pub path: ReadPath,
    /// Spectra of a frame.
    #[param(default = 1024, range = 1..=1_048_576)]
    pub spectra_per_frame: usize,
    #[param(flatten)]
    playback: PlaybackParameters,
}

/// Content of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    header: Header,
    /// Offset of the first spectrum in bytes.
    start: u64,
}

/// Opens the file and reads its header.
fn open(path: &ReadPath) -> Result<(PlayedFile, Content), String> {
    let file = PlayedFile::open(path)?;
    let (header, start) = Header::read(BufReader::new(&file.file))
        .map_err(|why| format!("cannot use {path}: {why}"))?;
    Ok((file, Content { header, start }))
}

impl FilterbankSource {
    /// Returns the type of the stream of a file.
    fn port(&self, header: &Header) -> Result<PortType, String> {
        let (channels, products) = (header.nchans as usize, header.nifs as usize);
        let spectra = self.spectra_per_frame;
        let elements = channels.checked_mul(products).and_then(|one| one.checked_mul(spectra));
        if elements.is_none_or(|elements| elements > MAX_FRAME_BYTES / size_of::<f32>()) {
            return Err(format!(
                "a frame of {spectra} spectra with {products} IFs and {channels} channels has more than 4 GiB; \
                 lower `spectra_per_frame`"
            ));
        }
        let start = Time::from_mjd_f64(header.tstart_mjd).ok_or_else(|| {
            format!("`tstart` must be a modified Julian date, found {}", header.tstart_mjd)
        })?;
        let step_hz = header.foff_mhz * 1e6;
        let centre_hz = header.fch1_mhz * 1e6 + (channels / 2) as f64 * step_hz;
        Ok(PortType {
            dtype: Dtype::F32,
            axes: vec![
                Axis::new("spectrum", spectra).from_parameter("spectra_per_frame"),
                Axis::new("product", products),
                Axis::new("channel", channels),
            ],
            clock: Clock {
                sync_time: start,
                ..Clock::new(header.tsamp_seconds.recip(), spectra as u64)
            },
            band: Some(Band::signed(channels, 0, centre_hz, step_hz * channels as f64)),
            validity: ValidityType::flags(vec![Axis::new("spectrum", spectra)]),
        })
    }
}

impl KindSpec for FilterbankSource {
    type Shape = Content;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let Configured { parameters, shape, .. } = block;
        let playback = Playback::new(&parameters.playback, block.ports.outputs[0].clock, env);
        Ok(Box::new(FileSource::new(playback, cpu::Filterbank::new(parameters, shape, env), env)))
    })];

    /// Reads the header of the file, the only source of the stream's type.
    fn ports(&self, _inputs: &[PortType]) -> Checked<Content> {
        self.playback.check()?;
        let reject = |message: String| vec![Rejection::parameter("path", message)];
        let (_, content) = open(&self.path).map_err(reject)?;
        let port = self
            .port(&content.header)
            .and_then(|port| port.impossible().map_or(Ok(port), Err))
            .map_err(|why| reject(format!("cannot use {}: {why}", self.path)))?;
        Ok((content, vec![port]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let spectra = block.parameters.spectra_per_frame;
        let host_bytes = spectra.saturating_mul(block.shape.header.spectrum_bytes() as usize);
        Resources { host_bytes, ..Resources::default() }
    }
}
