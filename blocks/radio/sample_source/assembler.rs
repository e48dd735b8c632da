//! Frames of samples that arrive in pieces: in a row, or at their places.

use super::causes::Causes;
use crate::types::SampleType;
use fxgraph::{FrameMut, TimeBase, changes::MAX_TIMESTAMP};
use fxgraph_common::link::Frames;
use std::collections::VecDeque;
use std::ops::Range;

/// Largest number of separate pieces of a frame.
const MAX_PIECES: usize = 1024;
/// Samples from one time base to the next: bits of their number.
const BASE_BITS: u32 = 48;

/// Layout of the frames.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Type of the raw samples.
    pub of: SampleType,
    /// Whether the frames have floats with the full scale 1.
    pub normalise: bool,
    /// Samples of a frame.
    pub samples: usize,
    /// Samples in a heap.
    pub heap: usize,
}

impl Layout {
    /// Bytes of a sample in a frame.
    fn sample_bytes(&self) -> usize {
        let dtype = if self.normalise { self.of.float_dtype() } else { self.of.dtype() };
        dtype.bits() / 8
    }

    /// Writes whole raw samples from sample `at` of the frame on.
    fn write(&self, frame: &mut FrameMut, at: usize, raw: &[u8]) {
        let count = raw.len() / self.of.bytes();
        if self.normalise {
            let numbers = self.of.numbers();
            let floats = frame.as_mut_slice::<f32>().expect(fxgraph::ON_HOST);
            self.of.normalise(raw, &mut floats[at * numbers..(at + count) * numbers]);
        } else {
            let bytes = self.sample_bytes();
            let payload = frame.as_mut_slice::<u8>().expect(fxgraph::ON_HOST);
            self.of.decode(raw, &mut payload[at * bytes..(at + count) * bytes]);
        }
    }
}

/// A frame that is being filled.
struct Open {
    /// `None`: the flowgraph did not keep up, and the frame is dropped.
    frame: Option<FrameMut>,
    /// Samples that have arrived: ascending, separate ranges.
    pieces: Vec<Range<usize>>,
}

impl Open {
    /// Adds `new` to the pieces. Writes the parts of it that had not arrived to `fresh`. Returns `false` if there are too
    /// many pieces.
    fn add(&mut self, new: &Range<usize>, fresh: &mut Vec<Range<usize>>) -> bool {
        fresh.clear();
        let from = self.pieces.partition_point(|piece| piece.end < new.start);
        let to = self.pieces.partition_point(|piece| piece.start <= new.end);
        if from == to && self.pieces.len() >= MAX_PIECES {
            return false;
        }
        let touched = &self.pieces[from..to];
        let mut at = new.start;
        for piece in touched {
            if at < piece.start.min(new.end) {
                fresh.push(at..piece.start.min(new.end));
            }
            at = at.max(piece.end);
        }
        if at < new.end {
            fresh.push(at..new.end);
        }
        let start = touched.first().map_or(new.start, |piece| piece.start.min(new.start));
        let end = touched.last().map_or(new.end, |piece| piece.end.max(new.end));
        self.pieces.splice(from..to, std::iter::once(start..end));
        true
    }

    fn arrived(&self) -> usize {
        self.pieces.iter().map(Range::len).sum()
    }
}

/// Fills frames.
pub struct Assembler {
    layout: Layout,
    /// Frames that are open at the same time, at most.
    window: usize,
    drops: bool,
    causes: Causes,
    /// The open frames, without a gap.
    open: VecDeque<Open>,
    /// Number, in the time base, of the first open frame.
    first: u64,
    /// Number, in the time base, of the sample after the last one that has arrived.
    newest: u64,
    /// Frames that may still be sent.
    left: u64,
    /// Time base of the stream.
    pub base: TimeBase,
    /// Memory of the pieces of frames that were sent, and of parts of samples that arrive.
    spare: Vec<Vec<Range<usize>>>,
    fresh: Vec<Range<usize>>,
    /// Frames that were opened and got no samples.
    unused: Vec<FrameMut>,
}

impl Assembler {
    /// Assembles frames of `layout`, of which up to `window` are open at the same time, and sends at most `most`. `drops`:
    /// whether frames that the flowgraph does not have are dropped; otherwise the flowgraph is stopping.
    pub fn new(
        layout: Layout,
        (window, drops): (usize, bool),
        most: Option<u64>,
        causes: Causes,
    ) -> Self {
        Self {
            layout,
            window,
            drops,
            causes,
            open: VecDeque::with_capacity(window + 1),
            first: 0,
            newest: 0,
            left: most.unwrap_or(u64::MAX),
            base: TimeBase::default(),
            spare: Vec::new(),
            fresh: Vec::new(),
            unused: Vec::new(),
        }
    }

    /// Whether the last frame has been sent, or timestamps have no room for more.
    pub fn is_full(&self) -> bool {
        self.left == 0 || self.base.from + self.first * self.layout.samples as u64 >= MAX_TIMESTAMP
    }

    /// Whether the last frame has been sent.
    pub fn has_sent_all(&self) -> bool {
        self.left == 0
    }

    /// Number, in the time base, of the sample after the last one that has arrived.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Timestamp of the sample after the last one that has arrived.
    pub fn timestamp(&self) -> u64 {
        self.base.from + self.newest
    }

    /// Adds whole samples, the first of which has the number `at` in the time base.
    pub fn place(&mut self, mut at: u64, mut raw: &[u8], frames: &mut dyn Frames) {
        let (samples, bytes) = (self.layout.samples as u64, self.layout.of.bytes());
        while raw.len() >= bytes && !self.is_full() {
            let (number, within) = (at / samples, (at % samples) as usize);
            let count = (raw.len() / bytes).min(self.layout.samples - within);
            let (part, rest) = raw.split_at(count * bytes);
            (raw, at) = (rest, at + count as u64);
            if number < self.first {
                self.causes.late.add(count as u64);
                continue;
            }
            self.open_to(number, frames);
            if self.is_full() {
                return;
            }
            self.fill((number - self.first) as usize, within, part);
            self.note(at);
            while self.open.front().is_some_and(|open| open.arrived() == self.layout.samples) {
                self.close(frames);
            }
        }
    }

    /// Notes that samples up to number `end` have arrived, or are known to be missing.
    fn note(&mut self, end: u64) {
        self.newest = self.newest.max(end);
    }

    /// Opens frames up to `number`, and closes the first ones beyond the window.
    fn open_to(&mut self, number: u64, frames: &mut dyn Frames) {
        while self.first + self.window as u64 <= number && !self.is_full() {
            if self.open.is_empty() {
                self.open_next(frames);
            }
            self.close(frames);
        }
        while self.first + self.open.len() as u64 <= number && !self.is_full() {
            self.open_next(frames);
        }
    }

    fn open_next(&mut self, frames: &mut dyn Frames) {
        let frame = self.unused.pop().or_else(|| frames.take());
        if frame.is_none() && !self.drops {
            self.left = 0;
            return;
        }
        self.open.push_back(Open { frame, pieces: self.spare.pop().unwrap_or_default() });
    }

    /// Writes samples to open frame `index`.
    fn fill(&mut self, index: usize, within: usize, raw: &[u8]) {
        let (open, bytes) = (&mut self.open[index], self.layout.of.bytes());
        let count = raw.len() / bytes;
        if !open.add(&(within..within + count), &mut self.fresh) {
            self.causes.fragmented.add(count as u64);
            return;
        }
        let is_new: usize = self.fresh.iter().map(Range::len).sum();
        for part in &self.fresh {
            let raw = &raw[(part.start - within) * bytes..(part.end - within) * bytes];
            if let Some(frame) = &mut open.frame {
                self.layout.write(frame, part.start, raw);
            }
        }
        self.causes.duplicate.add((count - is_new) as u64);
    }

    /// Sends the first open frame, with zeros for what has not arrived.
    fn close(&mut self, frames: &mut dyn Frames) {
        let Some(Open { frame, mut pieces }) = self.open.pop_front() else { return };
        let start = self.first * self.layout.samples as u64;
        self.first += 1;
        // Samples after the newest one are not missing: the stream has ended.
        let expected = self.newest.saturating_sub(start).min(self.layout.samples as u64);
        let arrived: usize = pieces.iter().map(Range::len).sum();
        self.causes.missing.add(expected.saturating_sub(arrived as u64));
        if let Some(mut frame) = frame {
            self.finish(&mut frame, start, &pieces);
            self.causes.samples.add(arrived as u64);
            self.left -= 1;
            frames.push(frame);
        } else {
            self.causes.frames_dropped.add(1);
        }
        pieces.clear();
        self.spare.push(pieces);
    }

    fn finish(&self, frame: &mut FrameMut, start: u64, pieces: &[Range<usize>]) {
        let Self { layout, base, .. } = self;
        let bytes = layout.sample_bytes();
        let (header, payload) = frame.parts_mut::<u8>().expect(fxgraph::ON_HOST);
        (header.timestamp, header.base) = (base.from + start, *base);
        header.validity.fill(1);
        let ends = pieces.iter().map(|piece| piece.start).chain([layout.samples]);
        let starts = [0].into_iter().chain(pieces.iter().map(|piece| piece.end));
        for gap in starts.zip(ends).map(|(start, end)| start..end).filter(|gap| !gap.is_empty()) {
            payload[gap.start * bytes..gap.end * bytes].fill(0);
            header.validity[gap.start / layout.heap..gap.end.div_ceil(layout.heap)].fill(0);
        }
    }

    /// Sends all open frames that have samples.
    pub fn flush(&mut self, frames: &mut dyn Frames) {
        while self.open.iter().any(|open| !open.pieces.is_empty()) && !self.is_full() {
            self.close(frames);
        }
        self.unused.extend(self.open.drain(..).filter_map(|open| open.frame));
        self.newest = self.newest.max(self.first * self.layout.samples as u64);
    }

    /// Sends all open frames and begins a later time base, at least number `least`, whose samples are counted from 0. The
    /// assembler [is full](Self::is_full) if timestamps have no room for it.
    pub fn begin_base(&mut self, least: u64, frames: &mut dyn Frames) {
        self.flush(frames);
        let number = ((self.timestamp() >> BASE_BITS) + 1).max(least);
        let from = number.min(MAX_TIMESTAMP >> BASE_BITS) << BASE_BITS;
        self.base = TimeBase { from, ..TimeBase::default() };
        (self.first, self.newest) = (0, 0);
    }

    /// Whether samples before number `at` are of frames that were sent.
    pub fn is_late(&self, at: u64) -> bool {
        at <= self.first * self.layout.samples as u64
    }
}
