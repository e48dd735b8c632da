//! The format: spectra after one header.

use super::{Content, FilterbankSource, open};
use crate::io::files::output_file::Report;
use crate::io::playback::{Format, Step};
use crate::io::played_file::PlayedFile;
use fxgraph::{Counter, Env, FrameMut};
use fxgraph_formats::filterbank::unpack;

/// Spectra of a file.
pub struct Filterbank {
    parameters: FilterbankSource,
    content: Content,
    file: Option<PlayedFile>,
    /// Number of spectra in the file, and number of the first one of the next frame.
    spectra: u64,
    next: u64,
    bytes: Vec<u8>,
    missing: Counter,
}

impl Filterbank {
    /// Creates the format for the block of `env`.
    pub fn new(parameters: &FilterbankSource, content: &Content, env: &Env) -> Self {
        let bytes = content.header.spectrum_bytes() as usize * parameters.spectra_per_frame;
        Self {
            file: None,
            spectra: 0,
            next: 0,
            bytes: vec![0; bytes],
            missing: env.counters.loss(
                "spectra_missing",
                "spectra that the header announces and the file lacks; copy the file again",
            ),
            parameters: parameters.clone(),
            content: content.clone(),
        }
    }

    /// Reports a file of `bytes` bytes of spectra that lacks some.
    fn warn(&self, bytes: u64, report: &mut Report) {
        let path = &self.parameters.path;
        let announced = self.content.header.nsamples.unwrap_or(0);
        let missing = announced.saturating_sub(self.spectra);
        let excess = bytes % self.content.header.spectrum_bytes();
        self.missing.add(missing);
        if missing > 0 {
            report.warn(format!(
                "{path} is truncated: the last {missing} of {announced} spectra are missing"
            ));
        } else if excess > 0 {
            report.warn(format!(
                "{path} ends within a spectrum: {excess} bytes after the {} complete spectra are ignored",
                self.spectra
            ));
        }
    }
}

impl Format for Filterbank {
    fn open(&mut self, report: &mut Report) -> Result<(), String> {
        let path = &self.parameters.path;
        let (file, content) = open(path)?;
        if content != self.content {
            return Err(format!("{path} has changed since it was checked"));
        }
        let bytes = file.length()?.saturating_sub(content.start);
        self.spectra = bytes / content.header.spectrum_bytes();
        self.warn(bytes, report);
        self.file = Some(file);
        Ok(())
    }

    fn find(&mut self, _: &mut Report) -> Result<Step, String> {
        Ok(if self.next < self.spectra { Step::Frame(self.next) } else { Step::End })
    }

    fn fill(&mut self, frame: &mut FrameMut) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        let header = &self.content.header;
        let of_frame = self.parameters.spectra_per_frame as u64;
        let there = (self.spectra - self.next).min(of_frame) as usize;
        let bytes = &mut self.bytes[..there * header.spectrum_bytes() as usize];
        file.read(self.content.start + self.next * header.spectrum_bytes(), bytes)?;
        let (of_header, payload) = frame.parts_mut::<f32>().map_err(|error| error.to_string())?;
        let values = (header.nchans * header.nifs) as usize;
        let (valid, rest) = payload.split_at_mut(there * values);
        unpack(header.nbits, header.is_signed, bytes, valid);
        // The last frame may be longer than the rest of the file.
        rest.fill(0.0);
        of_header.validity[..there].fill(1);
        of_header.validity[there..].fill(0);
        self.next += of_frame;
        Ok(())
    }
}
