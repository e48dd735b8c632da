//! The block: reads samples from a recording.

use super::grid::Grid;
use super::{Content, SigmfSource};
use crate::io::playback::Playback;
use fxgraph::files::reason;
use fxgraph::runtime::{BlockEvents, EventKind};
use fxgraph::{Block, BlockError, Counter, Env, FrameMut, Io, Next, Summary};
use sha2::{Digest, Sha512};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes that are read at a time for a checksum.
const HASHED_BYTES: usize = 1 << 20;

/// The running block.
pub struct Source {
    parameters: SigmfSource,
    content: Content,
    file: Option<File>,
    grid: Grid,
    frames: u64,
    bytes: Vec<u8>,
    /// Number of samples in each part of a frame that has a validity flag.
    present: Vec<usize>,
    playback: Playback,
    read: Counter,
    missing: Counter,
    events: BlockEvents,
    summary: Summary,
}

impl Source {
    /// Creates the source.
    pub fn new(parameters: SigmfSource, content: Content, env: &Env) -> Self {
        let layout = &content.layout;
        let sample_bytes = layout.datatype.bytes() * layout.channels;
        let len = parameters.samples_per_frame;
        Self {
            file: None,
            grid: content.grid(len),
            frames: 0,
            bytes: vec![0; sample_bytes * len],
            present: vec![0; parameters.heaps_per_frame],
            playback: Playback::new(parameters.pace, parameters.catch_up, content.clock, env),
            read: env.counters.count("frames_read", "frames played"),
            missing: env.counters.loss(
                "samples_missing",
                "samples that the description announces and the file lacks; copy the file again",
            ),
            events: env.events.clone(),
            summary: env.summary.clone(),
            parameters,
            content,
        }
    }

    /// Reports a file that was truncated.
    fn warn(&self) {
        let (path, layout) = (self.parameters.data(), &self.content.layout);
        let text = if layout.samples_missing > 0 {
            format!("{path} is truncated: the last {} samples are missing", layout.samples_missing)
        } else if layout.excess_bytes > 0 {
            format!(
                "{path} ends within a sample: the last {} bytes are ignored",
                layout.excess_bytes
            )
        } else {
            return;
        };
        self.missing.add(layout.samples_missing);
        self.events.add(EventKind::Warning, &text);
        self.summary.set(text + "\n");
    }

    /// Compares the samples with the checksum of the description, if it has one.
    fn check_sha512(&self, file: &File, content: &Content) -> Result<(), String> {
        let Some(expected) = &content.sha512 else { return Ok(()) };
        let path = self.parameters.data();
        let (first, bytes) = content.data;
        let (mut sum, mut at) = (Sha512::new(), 0);
        let mut buffer = vec![0; HASHED_BYTES.min(bytes as usize)];
        while at < bytes {
            let part = &mut buffer[..HASHED_BYTES.min((bytes - at) as usize)];
            file.read_exact_at(part, first + at)
                .map_err(|error| format!("cannot read {path}: {}", reason(&error)))?;
            sum.update(&*part);
            at += part.len() as u64;
        }
        let found = sum.finalize();
        let is_same = expected.len() == 2 * found.len()
            && expected.as_bytes().chunks(2).zip(&found).all(|(digits, byte)| {
                let digits = std::str::from_utf8(digits).ok();
                digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) == Some(*byte)
            });
        is_same.then_some(()).ok_or_else(|| {
            format!(
                "{path} is damaged: its samples do not have the `core:sha512` of the description; copy the recording \
                 again, or set `check_sha512: false`"
            )
        })
    }

    fn fill(&mut self, frame: &mut FrameMut, index: u64) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        let Self { parameters, content, grid, bytes, present, .. } = self;
        let (datatype, channels) = (content.layout.datatype, content.layout.channels);
        let (size, len) = (datatype.bytes(), parameters.samples_per_frame);
        let of_heap = len / present.len();
        let (header, payload) = frame.parts_mut::<u8>().map_err(|error| error.to_string())?;
        header.timestamp = index * content.step;
        payload.fill(0);
        present.fill(0);
        for part in grid.parts() {
            let bytes = &mut bytes[..part.count * size * channels];
            file.read_exact_at(bytes, part.offset).map_err(|error| {
                format!("cannot read {}: {}", parameters.data(), reason(&error))
            })?;
            datatype.to_native(bytes);
            for channel in 0..channels {
                let to = (channel * len + part.first) * size;
                let to = &mut payload[to..to + part.count * size];
                if channels == 1 {
                    to.copy_from_slice(bytes);
                    continue;
                }
                let from = bytes.chunks_exact(size).skip(channel).step_by(channels);
                to.chunks_exact_mut(size).zip(from).for_each(|(to, from)| to.copy_from_slice(from));
            }
            count(present, of_heap, part.first, part.count, |heap, samples| *heap += samples);
        }
        for (first, samples) in grid.missing() {
            count(present, of_heap, first, samples, |heap, samples| {
                *heap = heap.saturating_sub(samples);
            });
        }
        let flags = header.validity.iter_mut().zip(present.iter());
        flags.for_each(|(flag, samples)| *flag = u32::from(*samples == of_heap));
        Ok(())
    }
}

/// Calls `change` for each heap with the number of its samples among `samples` from `first` on.
fn count(
    heaps: &mut [usize],
    of_heap: usize,
    mut first: usize,
    mut samples: usize,
    change: impl Fn(&mut usize, usize),
) {
    while samples > 0 {
        let rest = (of_heap - first % of_heap).min(samples);
        if let Some(heap) = heaps.get_mut(first / of_heap) {
            change(heap, rest);
        }
        (first, samples) = (first + rest, samples - rest);
    }
}

impl Block for Source {
    fn start(&mut self) -> Result<(), BlockError> {
        let (file, content) = self.parameters.open().map_err(BlockError::new)?;
        if content.stream() != self.content.stream() {
            let path = &self.parameters.path;
            return Err(BlockError::new(format!("{path} has changed since it was checked")));
        }
        if self.parameters.check_sha512 {
            self.check_sha512(&file, &content).map_err(BlockError::new)?;
        }
        // A recording may have grown since then.
        self.grid = content.grid(self.parameters.samples_per_frame);
        self.content = content;
        self.warn();
        self.file = Some(file);
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping || self.parameters.frames.is_some_and(|most| self.frames >= most) {
            return Ok(Next::Finished);
        }
        let Some(index) = self.grid.next() else { return Ok(Next::Finished) };
        let early = self.playback.early(index * self.content.step);
        if !early.is_zero() {
            return Ok(Next::After(early));
        }
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        self.fill(&mut frame, index).map_err(BlockError::new)?;
        io.outputs[0].push(frame);
        self.playback.sent();
        self.grid.advance();
        self.frames += 1;
        self.read.add(1);
        Ok(Next::Again)
    }
}
