//! Packed samples of one polarisation that stay in the input frames as long as possible.
//!
//! A window within one frame is read directly from the frame, because copying all samples would cost as much as
//! reading them. The samples of windows across frames are joined in a seam, in memory that belongs to the output
//! frame; they are copied while the GPU still computes earlier frames. Only if too many frames would be held are
//! samples copied to the memory of the history, in sequence with the kernels that read it.

use super::history::Move;
use super::input::Sizes;
use super::pol::Store;
use super::schedule::{Fate, Run, Schedule};
use fxgraph::Frame;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Largest number of held frames. The plan provides this number of frames to each block on a GPU for its jobs in
/// flight, and no job is in flight while the block waits for more samples.
const MAX_FRAMES: usize = 3;

/// Capacity of the seams of an output frame in samples: less than a window on either side of each boundary between
/// held frames.
pub fn seam_samples(sizes: &Sizes) -> usize {
    (MAX_FRAMES - 1) * (2 * sizes.window + 16).next_multiple_of(8)
}

/// Samples in a held frame.
struct Lent {
    frame: Arc<Frame>,
    /// Index of the first sample within the frame.
    first: usize,
    /// Places of the samples in the history.
    places: Range<usize>,
}

/// A copy of bytes to the memory of the history or of the seams.
pub struct Copy {
    /// Source frame; `None` for the memory of the history itself.
    pub frame: Option<Arc<Frame>>,
    pub from: usize,
    pub to: usize,
    pub bytes: usize,
}

/// Memory that contains the samples.
pub enum Memory {
    Frame(Arc<Frame>),
    History,
    Seams,
}

/// Location of the samples of adjacent spectra.
pub struct Located {
    pub memory: Memory,
    /// Offset of the first spectrum's samples in bits.
    pub first_bit: u64,
    /// Distance from one spectrum's samples to the next in bits.
    pub step_bits: u64,
    /// Number of spectra.
    pub count: usize,
}

/// The samples of one polarisation.
pub struct Lending {
    bits: usize,
    lent: VecDeque<Lent>,
    /// Pending copies to the history, in order, which must precede the reading of windows.
    pub copies: Vec<Copy>,
    /// Pending copies to the seams of the output frame.
    pub seams: Vec<Copy>,
    /// Capacity of the seams in samples.
    seam_room: usize,
    /// Number of samples in the seams.
    at_seams: usize,
}

impl Lending {
    /// Creates the storage for samples of `bits` bits.
    pub fn new(bits: usize, sizes: &Sizes) -> Self {
        Self {
            bits,
            lent: VecDeque::new(),
            copies: Vec::new(),
            seams: Vec::new(),
            seam_room: seam_samples(sizes),
            at_seams: 0,
        }
    }

    /// Begins an output frame with empty seams.
    pub fn begin_frame(&mut self) {
        self.seams.clear();
        self.at_seams = 0;
    }

    /// Locates the samples of the first of `count` spectra with contiguous memory. Each spectrum has `window`
    /// samples, `step` after those of the previous one; the first window starts at place `at`.
    fn locate(&mut self, at: usize, count: usize, step: usize, window: usize) -> Located {
        let step_bits = (step * self.bits) as u64;
        let lender = |n: usize| {
            let start = at + n * step;
            let is_inside =
                |lent: &&Lent| lent.places.start <= start && start + window <= lent.places.end;
            self.lent.iter().find(is_inside)
        };
        if let Some(lent) = lender(0) {
            let first = lent.first + at - lent.places.start;
            return Located {
                memory: Memory::Frame(Arc::clone(&lent.frame)),
                first_bit: (first * self.bits) as u64,
                step_bits,
                count: count.min((lent.places.end - at - window) / step + 1),
            };
        }
        let across = 1 + (1..count).take_while(|n| lender(*n).is_none()).count();
        let places = at..at + (across - 1) * step + window;
        let (memory, first) = if let Some(place) = self.join(&places) {
            (Memory::Seams, place)
        } else {
            self.copy(&places);
            (Memory::History, at)
        };
        Located { memory, first_bit: (first * self.bits) as u64, step_bits, count: across }
    }

    /// Adds copies that join these places in a seam, and returns their first place there. Returns `None` if some of
    /// the samples are in the history only, or if the seams are full.
    fn join(&mut self, places: &Range<usize>) -> Option<usize> {
        let Range { start, end } = whole_bytes(places);
        let at = self.at_seams;
        let lent = self.lent.iter().map(|lent| &lent.places);
        let reached =
            lent.fold(
                start,
                |reached, lent| {
                    if lent.start <= reached { reached.max(lent.end) } else { reached }
                },
            );
        if reached < end || at + (end - start) > self.seam_room {
            return None;
        }
        self.at_seams += end - start;
        let copies = Self::copies(&self.lent, self.bits, start..end, at);
        self.seams.extend(copies);
        Some(at + places.start - start)
    }

    /// Adds copies of these places from held frames to the history.
    fn copy(&mut self, places: &Range<usize>) {
        let places = whole_bytes(places);
        let to = places.start;
        self.copies.extend(Self::copies(&self.lent, self.bits, places, to));
    }

    /// Copies of these places from held frames; the first place goes to place `to`.
    fn copies(
        lent: &VecDeque<Lent>,
        bits: usize,
        places: Range<usize>,
        to: usize,
    ) -> impl Iterator<Item = Copy> {
        lent.iter().filter_map(move |lent| {
            let start = places.start.max(lent.places.start);
            let end = places.end.min(lent.places.end);
            let first = lent.first + start.saturating_sub(lent.places.start);
            (start < end).then(|| Copy {
                frame: Some(Arc::clone(&lent.frame)),
                from: first * bits / 8,
                to: (to + start - places.start) * bits / 8,
                bytes: (end - start) * bits / 8,
            })
        })
    }
}

/// Extends places to multiples of 8, where packed samples start at whole bytes.
fn whole_bytes(places: &Range<usize>) -> Range<usize> {
    places.start / 8 * 8..places.end.next_multiple_of(8)
}

impl Schedule<Lending> {
    /// Locates the samples of a run of polarisation `p`, from spectrum `done` of the run on: whole windows, or only
    /// their last steps if the rest is missing. Missing spectra have no samples.
    pub fn locate(&mut self, p: usize, run: &Run, done: usize) -> Located {
        let Sizes { step, window, .. } = self.sizes;
        let most = run.count - done;
        let start = run.from + (done * step) as i64;
        let pol = &mut self.pols[p];
        match run.fate {
            Fate::Whole => pol.store.locate(pol.history.place(start), most, step, window),
            Fate::Ending => {
                let last_step = pol.history.place(start + (window - step) as i64);
                pol.store.locate(last_step, most, step, step)
            }
            Fate::Lost => {
                Located { memory: Memory::History, first_bit: 0, step_bits: 0, count: most }
            }
        }
    }
}

impl Store for Lending {
    fn move_to_front(&mut self, Move { from, samples }: Move) {
        // Samples from the first held frame on are not in the memory of the history.
        let lent = self.lent.front().map_or(from + samples, |lent| lent.places.start);
        if lent > from {
            self.copies.push(Copy {
                frame: None,
                from: from * self.bits / 8,
                to: 0,
                bytes: (lent - from) * self.bits / 8,
            });
        }
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
            self.copy(&places);
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
