//! The format: samples of a recording.

use super::grid::Grid;
use super::{Content, SigmfSource};
use crate::io::files::output_file::Report;
use crate::io::playback::{Format, Step};
use crate::io::played_file::PlayedFile;
use fxgraph::{Counter, Env, FrameMut};
use sha2::{Digest, Sha512};

/// Bytes that are read at a time for a checksum.
const HASHED_BYTES: usize = 1 << 20;

/// Samples of a recording.
pub struct Samples {
    parameters: SigmfSource,
    content: Content,
    file: Option<PlayedFile>,
    grid: Grid,
    bytes: Vec<u8>,
    /// Number of samples in each part of a frame that has a validity flag.
    present: Vec<usize>,
    missing: Counter,
}

impl Samples {
    /// Creates the format for the block of `env`.
    pub fn new(parameters: &SigmfSource, content: &Content, env: &Env) -> Self {
        let layout = &content.layout;
        let sample_bytes = layout.datatype.bytes() * layout.channels;
        let len = parameters.samples_per_frame;
        Self {
            file: None,
            grid: content.grid(len),
            bytes: vec![0; sample_bytes * len],
            present: vec![0; parameters.heaps_per_frame],
            missing: env.counters.loss(
                "samples_missing",
                "samples that the description announces and the file lacks; copy the file again",
            ),
            parameters: parameters.clone(),
            content: content.clone(),
        }
    }

    /// Reports a file that was truncated.
    fn warn(&self, report: &mut Report) {
        let (path, layout) = (self.parameters.data(), &self.content.layout);
        let (missing, excess) = (layout.samples_missing, layout.excess_bytes);
        self.missing.add(missing);
        if missing > 0 {
            report.warn(format!("{path} is truncated: the last {missing} samples are missing"));
        } else if excess > 0 {
            report
                .warn(format!("{path} ends within a sample: the last {excess} bytes are ignored"));
        }
    }

    /// Compares the samples with the checksum of the description, if it has one.
    fn check_sha512(&self, file: &PlayedFile, content: &Content) -> Result<(), String> {
        let Some(expected) = &content.sha512 else { return Ok(()) };
        let path = self.parameters.data();
        let (first, bytes) = content.data;
        let (mut sum, mut at) = (Sha512::new(), 0);
        let mut buffer = vec![0; HASHED_BYTES.min(bytes as usize)];
        while at < bytes {
            let part = &mut buffer[..HASHED_BYTES.min((bytes - at) as usize)];
            file.read(first + at, part)?;
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

    fn read(&mut self, frame: &mut FrameMut) -> Result<(), String> {
        let Some(file) = &self.file else { return Ok(()) };
        let Self { parameters, content, grid, bytes, present, .. } = self;
        let (datatype, channels) = (content.layout.datatype, content.layout.channels);
        let (size, len) = (datatype.bytes(), parameters.samples_per_frame);
        let of_heap = len / present.len();
        let (header, payload) = frame.parts_mut::<u8>().map_err(|error| error.to_string())?;
        payload.fill(0);
        present.fill(0);
        for part in grid.parts() {
            let bytes = &mut bytes[..part.count * size * channels];
            file.read(part.offset, bytes)?;
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

impl Format for Samples {
    fn open(&mut self, report: &mut Report) -> Result<(), String> {
        let (file, content) = self.parameters.open()?;
        if content.stream() != self.content.stream() {
            let path = &self.parameters.path;
            return Err(format!("{path} has changed since it was checked"));
        }
        if self.parameters.check_sha512 {
            self.check_sha512(&file, &content)?;
        }
        // A recording may have grown since then.
        self.grid = content.grid(self.parameters.samples_per_frame);
        self.content = content;
        self.warn(report);
        self.file = Some(file);
        Ok(())
    }

    fn find(&mut self, _: &mut Report) -> Result<Step, String> {
        let next = self.grid.next();
        Ok(next.map_or(Step::End, |index| Step::Frame(index * self.content.step)))
    }

    fn fill(&mut self, frame: &mut FrameMut) -> Result<(), String> {
        self.read(frame)?;
        self.grid.advance();
        Ok(())
    }
}
