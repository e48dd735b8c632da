//! The format: blocks with a header each, which are cut into heaps.

use super::blocks::{Block, Blocks, Found};
use super::{GuppiSource, Shape};
use crate::io::files::output_file::Report;
use crate::io::playback::{Format, Step};
use fxgraph::changes::MAX_TIMESTAMP;
use fxgraph::{Counter, Env, FrameMut};
use fxgraph_formats::codes::Codes;
use fxgraph_formats::guppi::TwoBit;

/// The block at work.
struct Current {
    block: Box<Block>,
    /// Number of its first spectrum.
    first: u64,
    /// Number of its next heap.
    heap: u64,
}

/// Result of the search for the block after the one at work.
enum Following {
    /// A block to play, and the number of its first spectrum.
    Block(Box<Block>, u64),
    /// The file has ended.
    End,
}

/// Heaps of a file.
pub struct Heaps {
    parameters: GuppiSource,
    shape: Shape,
    blocks: Option<Blocks>,
    current: Option<Current>,
    /// The block after `current`, once its heaps without the overlap are played.
    following: Option<Following>,
    /// Number of the first spectrum after the blocks so far, without their overlap.
    next_spectrum: Option<u64>,
    /// Levels of numbers of 2 bits, and these numbers as they are in the file.
    codes: Option<Codes>,
    packed: Vec<u8>,
    missing: Counter,
    dropped: Counter,
    late: Counter,
    foreign: Counter,
    truncated: Counter,
    after_end: Counter,
    overlap: Counter,
}

impl Heaps {
    /// Creates the format for the block of `env`.
    pub fn new(parameters: &GuppiSource, shape: &Shape, env: &Env) -> Self {
        let counters = &env.counters;
        let two_bit = parameters.two_bit.map(TwoBit::from);
        Self {
            parameters: parameters.clone(),
            shape: shape.clone(),
            blocks: None,
            current: None,
            following: None,
            next_spectrum: None,
            codes: two_bit.and_then(TwoBit::codes),
            packed: Vec::new(),
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
            after_end: counters.count("bytes_after_end", "zeros after the last block"),
            overlap: counters.loss(
                "spectra_of_overlap",
                "spectra of an overlap without a block that repeats it, less than a heap",
            ),
        }
    }

    /// Spectra of a block without its overlap.
    fn of_block(&self) -> u64 {
        self.shape.header.spectra() - self.shape.header.overlap as u64
    }

    /// Looks at the next block of the file. `None` if it is dropped.
    fn follow(&mut self, report: &mut Report) -> Result<Option<Following>, String> {
        let Some(blocks) = &mut self.blocks else { return Ok(Some(Following::End)) };
        let block = match blocks.next()? {
            Found::Block(block) => block,
            Found::Incomplete(bytes) => {
                self.truncated.add(bytes);
                let path = &self.parameters.path;
                report.warn(format!("{path} is truncated: its last block is incomplete"));
                return Ok(Some(Following::End));
            }
            Found::Zeros(bytes) => {
                self.after_end.add(bytes);
                return Ok(Some(Following::End));
            }
            Found::End => return Ok(Some(Following::End)),
        };
        if !block.header.has_format(&self.shape.header) {
            self.foreign.add(1);
            return Ok(None);
        }
        let expected = self.next_spectrum;
        let first = block.header.first_spectrum().or(expected).unwrap_or(0);
        let end = first.saturating_add(block.header.spectra()).saturating_mul(self.shape.step);
        if end >= MAX_TIMESTAMP {
            let (path, index) = (&self.parameters.path, block.header.packet_index);
            return Err(format!(
                "cannot use a block of {path}: PKTIDX {index} is beyond the range of timestamps, up to 2^62"
            ));
        }
        if expected.is_some_and(|expected| first < expected) {
            self.late.add(1);
            return Ok(None);
        }
        Ok(Some(Following::Block(block, first)))
    }

    /// Whether the block at work has a further heap to play. An overlap is played if no block repeats it: before a
    /// gap, and at the end of the file.
    fn has_heap(&self, current: &Current) -> bool {
        let end = (current.heap + 1) * self.shape.spectra;
        let limit = match &self.following {
            None => self.of_block(),
            Some(Following::End) => self.shape.header.spectra(),
            Some(Following::Block(_, next)) => {
                self.shape.header.spectra().min(next - current.first)
            }
        };
        end <= limit
    }

    /// Goes on to the block that was found; `false` at the end of the file.
    fn advance(&mut self, following: Following) -> bool {
        if let Some(Current { first, heap, .. }) = self.current.take() {
            let end = first + heap * self.shape.spectra;
            let all = first + self.shape.header.spectra();
            let next = match &following {
                Following::Block(_, next) => *next,
                Following::End => all,
            };
            self.overlap.add(next.min(all).saturating_sub(end));
            self.missing.add(next.saturating_sub(all.min(next).max(end)));
        }
        let Following::Block(block, first) = following else { return false };
        self.dropped.add(u64::from(block.header.dropped > 0.0));
        self.next_spectrum = Some(first + self.of_block());
        self.current = Some(Current { block, first, heap: 0 });
        true
    }
}

impl Format for Heaps {
    fn open(&mut self, _: &mut Report) -> Result<(), String> {
        self.blocks = Some(Blocks::open(&self.parameters.path)?);
        Ok(())
    }

    fn find(&mut self, report: &mut Report) -> Result<Step, String> {
        if let Some(current) = self.current.as_ref().filter(|current| self.has_heap(current)) {
            let spectrum = current.first + current.heap * self.shape.spectra;
            return Ok(Step::Frame(spectrum * self.shape.step));
        }
        match self.following.take() {
            None => self.following = self.follow(report)?,
            Some(following) => {
                if !self.advance(following) {
                    return Ok(Step::End);
                }
            }
        }
        Ok(Step::Further)
    }

    fn fill(&mut self, frame: &mut FrameMut) -> Result<(), String> {
        let (Some(blocks), Some(current)) = (&self.blocks, &mut self.current) else {
            return Ok(());
        };
        let (header, heap) = (&self.shape.header, current.heap);
        let unit = header.unit_bits();
        let row_bytes = self.shape.spectra * unit / 8;
        let offset = |row: usize| {
            current.block.offset + row as u64 * (header.spectra() * unit / 8) + heap * row_bytes
        };
        frame.fill_validity(u32::from(current.block.header.dropped < 1.0));
        let payload = frame.as_mut_slice::<u8>().map_err(|error| error.to_string())?;
        if let Some(codes) = &self.codes {
            self.packed.resize(row_bytes as usize, 0);
            let payload: &mut [i8] = bytemuck::cast_slice_mut(payload);
            for (row, out) in payload.chunks_exact_mut(4 * row_bytes as usize).enumerate() {
                blocks.read(offset(row), &mut self.packed)?;
                codes.unpack(&self.packed, out);
            }
        } else {
            for (row, out) in payload.chunks_exact_mut(row_bytes as usize).enumerate() {
                blocks.read(offset(row), out)?;
            }
        }
        current.heap += 1;
        Ok(())
    }
}
