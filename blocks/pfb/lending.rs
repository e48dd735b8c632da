//! Packed samples of one polarisation that stay in the input frames as long as they can.
//!
//! A window that lies wholly within one frame is read from there. Only what windows across frames
//! need is copied to the memory of the history, and the samples of frames that there are too many of
//! to hold: copying all of them would cost as much again as reading them.

use super::history::Move;
use super::pol::Store;
use super::schedule::{Fate, Run, Schedule, Sizes};
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

/// Where the samples of adjacent spectra are.
pub struct Located {
    /// In this frame, or in the memory of the history.
    pub frame: Option<Arc<Frame>>,
    /// First bit of the first spectrum's samples.
    pub first_bit: u64,
    /// How many spectra.
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

    /// Where the first of `count` spectra are, of which each has `window` samples, `step` after those
    /// of the one before it; the first one's begin at place `at`.
    fn locate(&mut self, at: usize, count: usize, step: usize, window: usize) -> Located {
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

impl Schedule<Lending> {
    /// Where the samples are that spectra of a run of polarisation `p` need, from number `done` of
    /// the run on and at most `most` of them: their windows, or of those only the last step, if that
    /// is all there is. Spectra of which nothing is there need none.
    pub fn locate(&mut self, p: usize, run: &Run, done: usize, most: usize) -> Located {
        let Sizes { step, window, .. } = self.sizes;
        let most = most.min(run.count - done);
        let start = run.from + (done * step) as i64;
        let pol = &mut self.pols[p];
        match run.fate {
            Fate::Whole => pol.store.locate(pol.history.place(start), most, step, window),
            Fate::Ending => {
                let last_step = pol.history.place(start + (window - step) as i64);
                pol.store.locate(last_step, most, step, step)
            }
            Fate::Lost => Located { frame: None, first_bit: 0, count: most },
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
