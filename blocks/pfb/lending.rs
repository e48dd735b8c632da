//! Packed samples of one polarisation that stay in the input frames as long as they can.
//!
//! A window that lies wholly within one frame is read from there. Only what windows across frames
//! need is copied to the memory of the history, and the samples of frames that there are too many of
//! to hold: copying all of them would cost as much again as reading them.

use super::history::Move;
use super::pol::Store;
use fxgraph::Frame;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Frames of which samples are kept. The plan has as many for each block on a GPU, for jobs in
/// flight: none is in flight when the block waits for more samples.
const MAX_FRAMES: usize = 3;

/// Samples that are still in their frame.
struct Lent {
    frame: Arc<Frame>,
    /// Number of the first one within the frame.
    first: usize,
    /// Where they belong in the history.
    places: Range<usize>,
}

/// Bytes to copy to the memory of the history.
pub struct Copy {
    /// From this frame, or from the memory of the history itself.
    pub frame: Option<Arc<Frame>>,
    pub from: usize,
    pub to: usize,
    pub bytes: usize,
}

/// Where adjacent windows are.
pub struct Located {
    /// In this frame, or in the memory of the history.
    pub frame: Option<Arc<Frame>>,
    /// First bit of the first one.
    pub first_bit: u64,
    /// How many of them.
    pub count: usize,
}

/// The samples of one polarisation.
pub struct Lending {
    bits: usize,
    lent: VecDeque<Lent>,
    /// What is to be copied before windows are read, in order.
    pub copies: Vec<Copy>,
}

impl Lending {
    /// Of samples of `bits` bits.
    pub fn new(bits: usize) -> Self {
        Self { bits, lent: VecDeque::new(), copies: Vec::new() }
    }

    /// Where the first of `count` windows are, which are `step` samples apart and `window` samples
    /// long; the first one begins at place `at`.
    pub fn locate(&mut self, at: usize, count: usize, step: usize, window: usize) -> Located {
        let lender = |n: usize| {
            let start = at + n * step;
            let is_inside =
                |lent: &&Lent| lent.places.start <= start && start + window <= lent.places.end;
            self.lent.iter().find(is_inside)
        };
        if let Some(lent) = lender(0) {
            let first = lent.first + at - lent.places.start;
            return Located {
                frame: Some(Arc::clone(&lent.frame)),
                first_bit: (first * self.bits) as u64,
                count: count.min((lent.places.end - at - window) / step + 1),
            };
        }
        let across = 1 + (1..count).take_while(|n| lender(*n).is_none()).count();
        self.copy(at..at + (across - 1) * step + window);
        Located { frame: None, first_bit: (at * self.bits) as u64, count: across }
    }

    /// Has what is lent of these places copied.
    fn copy(&mut self, places: Range<usize>) {
        // Packed samples begin with whole bytes at multiples of 8.
        let places = places.start / 8 * 8..places.end.next_multiple_of(8);
        for lent in &self.lent {
            let start = places.start.max(lent.places.start);
            let end = places.end.min(lent.places.end);
            if start < end {
                let first = lent.first + start - lent.places.start;
                self.copies.push(Copy {
                    frame: Some(Arc::clone(&lent.frame)),
                    from: first / 8 * self.bits,
                    to: start / 8 * self.bits,
                    bytes: (end - start) / 8 * self.bits,
                });
            }
        }
    }
}

impl Store for Lending {
    fn move_to_front(&mut self, Move { from, samples }: Move) {
        self.copies.push(Copy {
            frame: None,
            from: from / 8 * self.bits,
            to: 0,
            bytes: samples / 8 * self.bits,
        });
        for Lent { places, .. } in &mut self.lent {
            *places = places.start.saturating_sub(from)..places.end - from;
        }
    }

    fn write(&mut self, frame: &Arc<Frame>, first: usize, count: usize, at: usize) {
        if let Some(last) = self.lent.back_mut()
            && Arc::ptr_eq(&last.frame, frame)
            && last.places.end == at
            && last.first + last.places.len() == first
        {
            last.places.end += count;
            return;
        }
        if self.lent.len() == MAX_FRAMES
            && let Some(places) = self.lent.front().map(|lent| lent.places.clone())
        {
            self.copy(places);
            self.lent.pop_front();
        }
        self.lent.push_back(Lent { frame: Arc::clone(frame), first, places: at..at + count });
    }

    fn keep(&mut self, kept: Range<usize>) {
        self.lent.retain_mut(|Lent { first, places, .. }| {
            let gone = kept.start.max(places.start) - places.start;
            *first += gone.min(places.len());
            places.start = kept.start.max(places.start);
            places.start < places.end && places.end <= kept.end
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::pfb::history::History;
    use crate::random::Random;
    use fxgraph::frame::{HostAllocator, Pool};

    const BITS: usize = 10;
    const FRAME_SAMPLES: usize = 320;

    /// A frame of which every byte says where it is.
    fn frame(pool: &Arc<Pool>, number: usize) -> Arc<Frame> {
        let mut frame = pool.take().unwrap();
        let bytes = FRAME_SAMPLES / 8 * BITS;
        for (i, byte) in frame.as_mut_slice::<u8>().iter_mut().enumerate() {
            *byte = byte_at(number * bytes + i);
        }
        frame.freeze()
    }

    fn byte_at(i: usize) -> u8 {
        (i * 31 % 251) as u8
    }

    #[test]
    fn windows_are_where_they_are_said_to_be_whatever_the_frames() {
        let mut random = Random::new(1);
        let pool = Pool::new(&HostAllocator, 400, FRAME_SAMPLES / 8 * BITS, 1).unwrap();
        for (step, window, spectra) in
            [(16, 64, 8), (8, 8, 40), (64, 512, 16), (32, 320, 3), (16, 48, 100)]
        {
            let span = spectra * step - step + window + 8;
            let mut history = History::new(2 * span, 0);
            let mut memory = vec![0_u8; 2 * span / 8 * BITS];
            let mut lending = Lending::new(BITS);
            let (mut direct, mut number, mut consumed) = (0, 0, FRAME_SAMPLES);
            let mut current = frame(&pool, 0);
            for output in 0..30 {
                let start = (output * spectra * step) as i64;
                history.forget_before(start);
                lending.keep(history.places());
                if let Some(samples) = history.reserve(span - history.places().len()) {
                    lending.move_to_front(samples);
                }
                while history.end() < start + span as i64 {
                    if consumed == FRAME_SAMPLES {
                        current = frame(&pool, number);
                        (number, consumed) = (number + 1, 0);
                    }
                    let wanted = 8 * (1 + random.bits() as usize % 60);
                    let count = wanted
                        .min(FRAME_SAMPLES - consumed)
                        .min((start + span as i64 - history.end()) as usize);
                    let at = history.push(count);
                    lending.write(&current, consumed, count, at);
                    consumed += count;
                }
                let mut n = 0;
                while n < spectra {
                    let from = start + (n * step) as i64 + 3;
                    let count = spectra - n;
                    let located = lending.locate(history.place(from), count, step, window);
                    for copy in lending.copies.drain(..) {
                        let Copy { frame, from, to, bytes } = copy;
                        if let Some(frame) = frame {
                            let frame: &[u8] = frame.as_slice();
                            memory[to..to + bytes].copy_from_slice(&frame[from..from + bytes]);
                        } else {
                            assert!(from >= bytes, "no overlap");
                            memory.copy_within(from..from + bytes, to);
                        }
                    }
                    direct += if located.frame.is_some() { located.count } else { 0 };
                    let place = located.frame.as_ref().map_or(&memory[..], |f| f.as_slice());
                    for window_number in 0..located.count {
                        // Whole bytes of the window, from its first sample at a multiple of 4 on.
                        let bit = located.first_bit as usize + window_number * step * BITS;
                        let skip = (8 - bit % 8) % 8;
                        let time = (from as usize + window_number * step) * BITS;
                        for i in 0..(window * BITS - skip) / 8 {
                            let expected = byte_at((time + skip) / 8 + i);
                            assert_eq!(place[(bit + skip) / 8 + i], expected);
                        }
                    }
                    n += located.count;
                }
            }
            assert!(direct > 0 || window >= FRAME_SAMPLES, "{step} {window}");
        }
    }
}
