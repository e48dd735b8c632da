//! The running block's side of a swap: the candidate catches up on the same frames, takes the slot
//! at a frame boundary and is checked for some frames; the old block stays ready for a roll-back.
//!
//! Frames of the two blocks are matched by timestamp. The candidate has caught up when one of its
//! frames has the same validity as the old block's frame: filters then have their history and
//! integrations all their input. So block code needs no support for swaps.

use super::candidate::{Candidate, GivenUp, Link, Order, Verdict};
use crate::cell::Cell;
use crate::fault::Fault;
use crate::hosted::{Hosted, Swapping, Turn};
use crate::run::Run;
use crate::timing::For;
use fxgraph_core::changes::{Known, When};
use fxgraph_core::edge::FrameWriter;
use fxgraph_core::edge::Tee;
use fxgraph_core::edge::{Edge, FrameReader};
use fxgraph_core::event::EventKind;
use fxgraph_core::lock::lock;
use fxgraph_core::patience::Patience;
use fxgraph_core::sync::now;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// Frames of each output that the new block pushes while the old one is ready for a roll-back.
const WATCHED: u64 = 3;
/// Frames that the old block may make from frames that the new one has taken, too, and made nothing of. Blocks for a GPU
/// make a frame some frames after they have taken it.
const AHEAD: usize = 4;
/// Shortest time limit for the old block to end its call and come back.
const COMING_HOME: Duration = Duration::from_secs(30);

/// State of a swap in the running block: the candidate, later the old block as a fallback.
struct Beside {
    link: Tie,
    /// Frames of each output of the candidate.
    kept: Vec<FrameReader>,
    /// For each output: the candidate's last frame had the validity of the running block's.
    caught_up: Vec<bool>,
    phase: Phase,
    /// Timestamp from which the candidate's frames are used.
    when: When,
    /// The caller of the swap was notified that the candidate has caught up.
    is_told: bool,
    /// Time limit for a call of one of the blocks: none is waited for longer.
    call: Duration,
}

/// State of a swap. Only the running block ends a state. The clock of all states is that of frames: a candidate has
/// caught up, and a new block is checked, by frames of the old one. Time counts only where no frame can come: a block that
/// makes nothing of frames that wait, one that does not come home, and a caller that waits no longer.
enum Phase {
    /// The candidate works on the same frames; the running block pushes its own.
    /// Ends with the timestamp of the swap, or in a candidate given up.
    CatchingUp,
    /// The running block has reached the swap's timestamp; the candidate is being handed over.
    /// Ends with the candidate, or in a candidate given up.
    Fetching,
    /// The candidate is in the slot; the old block runs on the candidate's thread.
    /// Ends after [`WATCHED`] frames, or in a roll-back.
    Watching(Check),
    /// The new block failed; the old one is being handed back.
    /// Ends with the old block, or, if that does not come, in the failure of both.
    RollingBack { cause: String, patience: Patience },
}

/// Check of the new block in the slot against the old one.
struct Check {
    /// For each output: number of frames after which the swap is final, and number of frames that the old block held back
    /// at the swap's timestamp and that the new one has not made yet.
    outputs: Vec<(u64, usize)>,
    /// Frames that the new block has taken and made, and the wait for the next one.
    seen: u64,
    /// The new block has made frames of each output.
    makes: bool,
    patience: Patience,
}

/// The running block's end of the link to a candidate. The candidate's thread ends with it, however the swap, the block
/// or a command to it ends. Nobody else may end the thread, because after a swap it has the old block.
pub(crate) struct Tie(pub Arc<Link>);

impl Deref for Tie {
    type Target = Link;
    fn deref(&self) -> &Link {
        &self.0
    }
}

impl Drop for Tie {
    fn drop(&mut self) {
        self.0.decide(Verdict::Ended);
        self.0.order(Order::End);
    }
}

/// A candidate with its edges and the terms of its swap.
pub(crate) struct NewCandidate {
    pub link: Tie,
    pub tees: Vec<Arc<Edge>>,
    pub kept: Vec<Arc<Edge>>,
    /// Timestamp from which the candidate's frames are used.
    pub when: When,
    /// Samples of a frame of each output.
    pub samples: Vec<u64>,
    pub call: Duration,
    pub may_hold_up: bool,
}

impl Hosted {
    /// Attaches a candidate to the block; `false` if the block has a candidate or shadow already.
    pub(crate) fn put_beside(&mut self, new: NewCandidate) -> bool {
        if self.inputs.iter().any(|input| input.reader.has_tee()) {
            return false;
        }
        let from = self.next_time();
        for (input, tee) in self.inputs.iter_mut().zip(new.tees) {
            input.reader.set_tee(Some(Tee::new(tee, from, new.may_hold_up)));
        }
        for (output, samples) in self.outputs.iter_mut().zip(new.samples) {
            output.writer.set_log(true);
            output.writer.set_switch(new.when.clone(), samples);
        }
        self.swap = Some(Box::new(Beside {
            link: new.link,
            caught_up: vec![false; new.kept.len()],
            kept: new.kept.into_iter().map(FrameReader::new).collect(),
            phase: Phase::CatchingUp,
            when: new.when,
            is_told: false,
            call: new.call,
        }));
        true
    }

    /// Timestamp after all frames that any input has handed out.
    pub(crate) fn next_time(&self) -> u64 {
        let newest = self.inputs.iter().filter_map(|input| input.reader.newest()).max();
        newest.map_or(0, |newest| newest + 1)
    }

    /// Advances a swap before a call of `work`, and returns the block's next action.
    pub(crate) fn settle(&mut self, run: &Run, cell: &Cell) -> Turn {
        let mut turn = Turn::Work;
        if let Some(mut swap) = self.swap.take() {
            let is_over;
            (turn, is_over) = swap.step(self, run, cell);
            if is_over {
                self.inputs.iter_mut().for_each(|input| input.reader.set_tee(None));
                for output in &mut self.outputs {
                    output.writer.set_log(false);
                    output.writer.end_switch();
                }
            } else {
                self.swap = Some(swap);
            }
        }
        let is_flushed = self.outputs.iter_mut().all(|output| output.writer.push_made_before());
        if matches!(turn, Turn::Work) && !is_flushed { Turn::Hold } else { turn }
    }

    /// Starts a roll-back to the old block after `fault`; `false` if that is not possible any more.
    pub(crate) fn roll_back(&mut self, fault: &Fault) -> bool {
        let has_lost_sight = self.tee_dropped();
        let Some(swap) = &mut self.swap else { return false };
        swap.roll_back(&fault.cause, has_lost_sight)
    }

    fn tee_dropped(&self) -> bool {
        self.inputs.iter().any(|input| input.reader.tee_dropped() > 0)
    }
}

impl Swapping for Beside {
    fn step(&mut self, hosted: &mut Hosted, run: &Run, cell: &Cell) -> (Turn, bool) {
        self.link.wake_candidate();
        match &mut self.phase {
            Phase::CatchingUp | Phase::Fetching => {
                let is_over = self.catch_up(hosted, cell);
                let is_due = !is_over && matches!(self.phase, Phase::Fetching);
                (if is_due { Turn::Hold } else { Turn::Work }, is_over)
            }
            Phase::Watching(_) => match self.watch(hosted) {
                // The failed block must not work while the old one is handed back.
                None if matches!(self.phase, Phase::RollingBack { .. }) => (Turn::Hold, false),
                None => (Turn::Work, false),
                Some(text) => {
                    run.events.add(EventKind::Swapped, Some(&cell.name), text);
                    (Turn::Work, true)
                }
            },
            Phase::RollingBack { cause, patience } => {
                let lost = |cause: &str, other: &str| {
                    let cause = format!("{cause}; the old block failed too: {other}");
                    (Turn::Lost(Fault::of(cause)), true)
                };
                let Some(mut old) = self.link.take_home() else {
                    let is_over = patience.left(now()).is_none();
                    let other = "its last call did not return";
                    return if is_over { lost(cause, other) } else { (Turn::Hold, false) };
                };
                if let Some(other) = self.link.fault() {
                    self.link.send_back(old, Order::End);
                    return lost(cause, &other);
                }
                let missed = hosted.inputs.iter().map(|input| input.reader.count_tee_dropped());
                let missed = missed.max();
                let cause = match missed {
                    None | Some(0) => cause.clone(),
                    Some(missed) => format!("{cause}; {missed} input frames are missing"),
                };
                self.swap(hosted, &mut old, cell);
                self.link.send_back(old, Order::End);
                run.events.add(EventKind::RolledBack, Some(&cell.name), cause.clone());
                self.link.decide(Verdict::RolledBack(cause));
                (Turn::Work, true)
            }
        }
    }

    fn roll_back(&mut self, cause: &str, has_lost_sight: bool) -> bool {
        let Phase::Watching(check) = &self.phase else { return false };
        let is_possible = !(has_lost_sight && check.makes) && self.link.fault().is_none();
        if is_possible {
            let patience = Patience::new(self.call.max(COMING_HOME));
            self.phase = Phase::RollingBack { cause: cause.to_owned(), patience };
            self.link.order(Order::ComeHome);
        }
        is_possible
    }
}

impl Beside {
    /// Advances the swap until the candidate is in the slot; `true` if the swap was given up.
    fn catch_up(&mut self, hosted: &mut Hosted, cell: &Cell) -> bool {
        let given_up = if let Some(cause) = self.link.fault() {
            Some(GivenUp::Failed(cause))
        } else if hosted.tee_dropped() {
            Some(GivenUp::TooSlow)
        } else {
            let is_void = self.when.known() == Known::Never;
            (is_void || self.link.is_overdue()).then_some(GivenUp::NeverCaughtUp)
        };
        if let Some(given_up) = given_up {
            self.link.decide(Verdict::GivenUp(given_up));
            return true;
        }
        self.compare(hosted);
        let has_caught_up = self.caught_up.iter().all(|caught_up| *caught_up);
        if matches!(self.phase, Phase::CatchingUp) {
            if self.is_told != has_caught_up {
                self.is_told = has_caught_up;
                self.link.set_ready(has_caught_up);
            }
            let mut writers = hosted.outputs.iter().map(|output| &output.writer);
            let is_there = writers.clone().all(FrameWriter::has_reached_switch)
                || writers.any(|writer| writer.holds_back() && writer.is_held_up());
            if is_there && !has_caught_up {
                // Frames are held back, but the candidate has none that could follow them.
                self.link.decide(Verdict::GivenUp(GivenUp::NeverCaughtUp));
                return true;
            }
            if is_there {
                self.link.order(Order::ComeHome);
                self.phase = Phase::Fetching;
            }
            return false;
        }
        let Some(mut candidate) = self.link.take_home() else { return false };
        if has_caught_up {
            self.swap(hosted, &mut candidate, cell);
            let outputs = hosted.outputs.iter().zip(&self.kept).map(|(output, kept)| {
                let until = output.writer.to_be_pushed() + WATCHED;
                (until, kept.queued())
            });
            let outputs = outputs.collect();
            self.phase = Phase::Watching(Check {
                outputs,
                seen: 0,
                makes: false,
                patience: Patience::new(self.call),
            });
        } else {
            self.phase = Phase::CatchingUp;
        }
        self.link.send_back(candidate, Order::Work);
        false
    }

    /// Compares the candidate's frames with those of the block, and drops both.
    fn compare(&mut self, hosted: &mut Hosted) {
        let outputs = hosted.outputs.iter_mut().map(|output| &mut output.writer);
        for ((kept, writer), caught_up) in
            self.kept.iter_mut().zip(outputs).zip(&mut self.caught_up)
        {
            let last = writer.last();
            let log = writer.log();
            while let Some(frame) = kept.peek() {
                let header = frame.header();
                while log.front().is_some_and(|(time, _)| *time < header.timestamp) {
                    log.pop_front();
                }
                match log.front() {
                    None if last.is_none_or(|last| header.timestamp > last) => break,
                    // A frame without any valid data proves nothing.
                    Some((time, validity))
                        if *time == header.timestamp && validity.iter().any(|count| *count > 0) =>
                    {
                        *caught_up = *validity == header.validity;
                    }
                    _ => {}
                }
                kept.pop();
            }
        }
    }

    /// Checks the new block; the text of the event once the swap is final.
    fn watch(&mut self, hosted: &mut Hosted) -> Option<String> {
        let Phase::Watching(check) = &mut self.phase else { return None };
        let mut outputs = hosted.outputs.iter().zip(&check.outputs);
        let is_checked = outputs.all(|(output, (until, _))| output.writer.pushed() >= *until);
        if is_checked && self.link.accept() {
            return Some(format!("in place, {WATCHED} frames checked"));
        }
        let (mut is_behind, mut is_ahead) = (false, true);
        let outputs = hosted.outputs.iter().zip(&mut check.outputs);
        for (kept, (output, (_, held))) in self.kept.iter_mut().zip(outputs) {
            let last = output.writer.last();
            while kept.peek().is_some_and(|old| Some(old.header().timestamp) <= last) {
                kept.pop();
                *held = held.saturating_sub(1);
            }
            let ahead = kept.queued().saturating_sub(*held);
            is_behind |= ahead >= AHEAD.min(kept.depth()) && output.writer.readers_have_room();
            is_ahead &= ahead == 0;
        }
        // An old block that lags by itself is no fallback for a new one that makes frames. It is one for a new block that
        // has made none.
        let mut outputs = hosted.outputs.iter().zip(&check.outputs);
        check.makes =
            outputs.all(|(output, (until, _))| output.writer.to_be_pushed() + WATCHED > *until);
        if self.link.fault().is_some() || (hosted.tee_dropped() && is_ahead && check.makes) {
            self.link.decide(Verdict::Swapped);
            return Some("in place; the old block could not be kept as a fallback".to_owned());
        }
        // A new block that makes nothing holds the old one up, which does not lag by itself then.
        is_behind |= hosted.tee_dropped() && !is_ahead;
        let taken: u64 = hosted.inputs.iter().map(|input| input.reader.taken()).sum();
        let made: u64 = hosted.outputs.iter().map(|output| output.writer.to_be_pushed()).sum();
        // A block that waits for data or for room is not silent.
        if check.seen != taken + made || !matches!(hosted.waits_for(), For::Itself) {
            check.seen = taken + made;
            check.patience.renew();
        }
        let cause = if is_behind {
            "the old block is ahead of it on the same data".to_owned()
        } else if check.patience.left(now()).is_none() {
            format!("it makes nothing of frames that wait, for {} s", self.call.as_secs_f64())
        } else if self.link.is_overdue() {
            "it was not checked within the time limit".to_owned()
        } else {
            return None;
        };
        self.roll_back(&cause, false);
        None
    }

    fn swap(&mut self, hosted: &mut Hosted, candidate: &mut Candidate, cell: &Cell) {
        let Candidate { hosted: other, slot_block } = candidate;
        std::mem::swap(&mut hosted.block, &mut other.block);
        for (input, other) in hosted.inputs.iter_mut().zip(&mut other.inputs) {
            input.reader.swap(&mut other.reader);
        }
        let outputs = hosted.outputs.iter_mut().zip(&mut other.outputs);
        for ((output, other), kept) in outputs.zip(&mut self.kept) {
            let held = output.writer.swap(&mut other.writer, kept.drain());
            kept.put_back(held);
        }
        hosted.begun = cell.begun(&hosted.inputs, &hosted.outputs);
        lock(&cell.counts).swap(slot_block);
    }
}
