//! The block: reads heaps from a file.

use super::blocks::{Block as FileBlock, Blocks, Found};
use super::{GuppiSource, Shape};
use crate::io::output_file::Report;
use crate::io::playback::Playback;
use fxgraph::retune::MAX_TIMESTAMP;
use fxgraph::{Block, BlockError, Clock, Counter, Env, FrameMut, Io, Next};

/// Blocks that are passed over in one call of `work`.
const MAX_PASSED: usize = 64;

/// The running block.
pub struct Source {
    parameters: GuppiSource,
    shape: Shape,
    blocks: Option<Blocks>,
    /// The block at work, the number of its first spectrum, and the number of its next heap.
    current: Option<(Box<FileBlock>, u64, u64)>,
    /// Number of the first spectrum after the blocks so far.
    next_spectrum: Option<u64>,
    played: u64,
    playback: Playback,
    report: Report,
    frames: Counter,
    missing: Counter,
    dropped: Counter,
    late: Counter,
    foreign: Counter,
    truncated: Counter,
}

impl Source {
    /// Creates the block.
    pub fn new(parameters: GuppiSource, shape: &Shape, clock: Clock, env: &Env) -> Self {
        let counters = &env.counters;
        Self {
            playback: Playback::new(parameters.pace, parameters.catch_up, clock, env),
            parameters,
            shape: shape.clone(),
            blocks: None,
            current: None,
            next_spectrum: None,
            played: 0,
            report: Report::new(env),
            frames: counters.count("frames_read", "frames played"),
            missing: counters.loss(
                "spectra_missing",
                "spectra between blocks that are not in the file, by their packet index",
            ),
            dropped: counters.loss(
                "blocks_incomplete",
                "blocks whose DROPBLK is above 0; those with 1 are flagged, the others have zeros at unknown places",
            ),
            late: counters
                .loss("blocks_late", "blocks dropped because they repeat spectra of earlier ones"),
            foreign: counters.loss(
                "blocks_foreign",
                "blocks dropped because their shape, band or start differs from that of the first one",
            ),
            truncated: counters
                .loss("bytes_truncated", "bytes of an incomplete last block, which is not played"),
        }
    }

    /// Finds the next block to play; `false` at the end of the file.
    fn find(&mut self) -> Result<bool, BlockError> {
        let Some(blocks) = &mut self.blocks else { return Ok(false) };
        let block = match blocks.next().map_err(BlockError::new)? {
            Found::Block(block) => block,
            Found::Incomplete(bytes) => {
                self.truncated.add(bytes);
                let path = &self.parameters.path;
                self.report.warn(format!("{path} is truncated: its last block is incomplete"));
                return Ok(false);
            }
            Found::End => return Ok(false),
        };
        if !block.header.has_format(&self.shape.header) {
            self.foreign.add(1);
            return Ok(true);
        }
        let of_block = self.shape.header.spectra() - self.shape.header.overlap as u64;
        let expected = self.next_spectrum;
        let first = block.header.first_spectrum().or(expected).unwrap_or(0);
        let end = first.saturating_add(of_block).saturating_mul(self.shape.step);
        if end >= MAX_TIMESTAMP {
            let (path, index) = (&self.parameters.path, block.header.packet_index);
            let message = format!(
                "cannot use a block of {path}: PKTIDX {index} is beyond the range of timestamps, up to 2^62"
            );
            return Err(BlockError::new(message));
        }
        if expected.is_some_and(|expected| first < expected) {
            self.late.add(1);
            return Ok(true);
        }
        self.missing.add(expected.map_or(0, |expected| first - expected));
        self.dropped.add(u64::from(block.header.dropped > 0.0));
        self.next_spectrum = Some(first + of_block);
        self.current = Some((block, first, 0));
        Ok(true)
    }

    /// Reads a heap of a block.
    fn fill(&self, frame: &mut FrameMut, block: &FileBlock, heap: u64) -> Result<(), BlockError> {
        let Some(blocks) = &self.blocks else { return Ok(()) };
        let header = &self.shape.header;
        let unit = 2 * header.pols as u64;
        let row_bytes = self.shape.spectra * unit;
        let payload = frame.as_mut_slice::<u8>()?;
        for (row, out) in payload.chunks_exact_mut(row_bytes as usize).enumerate() {
            let first = row as u64 * header.spectra() * unit + heap * row_bytes;
            blocks.read(block.offset + first, out).map_err(BlockError::new)?;
        }
        Ok(())
    }
}

impl Block for Source {
    fn start(&mut self) -> Result<(), BlockError> {
        self.blocks = Some(Blocks::open(&self.parameters.path).map_err(BlockError::new)?);
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let is_over = self.parameters.frames.is_some_and(|most| self.played >= most);
        if io.stopping || is_over {
            return Ok(Next::Finished);
        }
        for _ in 0..MAX_PASSED {
            if self.current.is_some() {
                break;
            }
            if !self.find()? {
                return Ok(Next::Finished);
            }
        }
        let Some((block, first, heap)) = &self.current else { return Ok(Next::Again) };
        let timestamp = (first + heap * self.shape.spectra) * self.shape.step;
        let wait = self.playback.early(timestamp);
        if !wait.is_zero() {
            return Ok(Next::After(wait));
        }
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        self.fill(&mut frame, block, *heap)?;
        frame.header_mut().timestamp = timestamp;
        frame.fill_validity(u32::from(block.header.dropped < 1.0));
        io.outputs[0].push(frame);
        self.playback.sent();
        self.frames.add(1);
        self.played += 1;
        let of_block = self.shape.header.spectra() - self.shape.header.overlap as u64;
        if let Some((_, _, heap)) = &mut self.current {
            *heap += 1;
            if *heap * self.shape.spectra >= of_block {
                self.current = None;
            }
        }
        Ok(Next::Again)
    }
}
