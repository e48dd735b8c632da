//! The block: reads spectra from a file.

use super::{Content, FilterbankSource, open};
use crate::io::playback::Playback;
use fxgraph::files::reason;
use fxgraph::runtime::{BlockEvents, EventKind};
use fxgraph::{Block, BlockError, Clock, Counter, Env, FrameMut, Io, Next, Summary};
use fxgraph_formats::filterbank::unpack;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The running block.
pub struct Source {
    parameters: FilterbankSource,
    content: Content,
    file: Option<File>,
    /// Number of spectra in the file.
    spectra: u64,
    /// Number of the next frame, and number of all frames.
    frame: u64,
    frames: u64,
    bytes: Vec<u8>,
    playback: Playback,
    read: Counter,
    missing: Counter,
    events: BlockEvents,
    summary: Summary,
}

impl Source {
    /// Creates the source.
    pub fn new(parameters: FilterbankSource, content: Content, clock: Clock, env: &Env) -> Self {
        let bytes = content.header.spectrum_bytes() as usize * parameters.spectra_per_frame;
        Self {
            file: None,
            spectra: 0,
            frame: 0,
            frames: 0,
            bytes: vec![0; bytes],
            playback: Playback::new(parameters.pace, parameters.catch_up, clock, env),
            read: env.counters.count("frames_read", "frames played"),
            missing: env.counters.loss(
                "spectra_missing",
                "spectra that the header announces and the file lacks; copy the file again",
            ),
            events: env.events.clone(),
            summary: env.summary.clone(),
            parameters,
            content,
        }
    }

    /// Reports a file of `bytes` bytes of spectra that lacks some.
    fn warn(&self, bytes: u64) {
        let path = &self.parameters.path;
        let announced = self.content.header.nsamples.unwrap_or(0);
        let missing = announced.saturating_sub(self.spectra);
        let excess = bytes % self.content.header.spectrum_bytes();
        let text = if missing > 0 {
            format!("{path} is truncated: the last {missing} of {announced} spectra are missing")
        } else if excess > 0 {
            format!(
                "{path} ends within a spectrum: {excess} bytes after the {} complete spectra are ignored",
                self.spectra
            )
        } else {
            return;
        };
        self.missing.add(missing);
        self.events.add(EventKind::Warning, &text);
        self.summary.set(text + "\n");
    }

    fn fill(&mut self, frame: &mut FrameMut) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        let header = &self.content.header;
        let of_frame = self.parameters.spectra_per_frame as u64;
        let first = self.frame * of_frame;
        let there = (self.spectra - first).min(of_frame) as usize;
        let bytes = &mut self.bytes[..there * header.spectrum_bytes() as usize];
        let offset = self.content.start + first * header.spectrum_bytes();
        file.read_exact_at(bytes, offset)
            .map_err(|error| format!("cannot read {}: {}", self.parameters.path, reason(&error)))?;
        let (of_header, payload) = frame.parts_mut::<f32>().map_err(|error| error.to_string())?;
        of_header.timestamp = first;
        let values = (header.nchans * header.nifs) as usize;
        let (valid, rest) = payload.split_at_mut(there * values);
        unpack(header.nbits, header.is_signed, bytes, valid);
        // The last frame may be longer than the rest of the file.
        rest.fill(0.0);
        of_header.validity[..there].fill(1);
        of_header.validity[there..].fill(0);
        Ok(())
    }
}

impl Block for Source {
    fn start(&mut self) -> Result<(), BlockError> {
        let path = &self.parameters.path;
        let (file, content) = open(path).map_err(BlockError::new)?;
        if content != self.content {
            return Err(BlockError::new(format!("{path} has changed since it was checked")));
        }
        let metadata = file.metadata();
        let len = metadata
            .map_err(|error| BlockError::new(format!("cannot read {path}: {}", reason(&error))))?;
        let bytes = len.len().saturating_sub(content.start);
        self.spectra = bytes / content.header.spectrum_bytes();
        self.warn(bytes);
        let frames = self.spectra.div_ceil(self.parameters.spectra_per_frame as u64);
        self.frames = self.parameters.frames.map_or(frames, |most| most.min(frames));
        self.file = Some(file);
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping || self.frame == self.frames {
            return Ok(Next::Finished);
        }
        let timestamp = self.frame * self.parameters.spectra_per_frame as u64;
        let early = self.playback.early(timestamp);
        if !early.is_zero() {
            return Ok(Next::After(early));
        }
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        self.fill(&mut frame).map_err(BlockError::new)?;
        io.outputs[0].push(frame);
        self.playback.sent();
        self.frame += 1;
        self.read.add(1);
        Ok(Next::Again)
    }
}
