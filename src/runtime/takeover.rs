//! The running block's side of a swap: the candidate catches up on the same frames, takes the slot
//! at a frame boundary and is checked for some frames; the old block stays ready for a roll-back.
//!
//! Frames of the two blocks are matched by timestamp. The candidate has caught up when one of its
//! frames has the same validity as the old block's frame: filters then have their history and
//! integrations all their input. So block code needs no support for swaps.

use super::cell::Cell;
use super::companion::{Companion, GivenUp, Link, Order, Verdict};
use super::hosted::Hosted;
use super::run::{Fault, Run, lock};
use fxgraph_core::edge::FrameWriter;
use fxgraph_core::edge::Tee;
use fxgraph_core::edge::{Edge, FrameReader};
use fxgraph_core::event::EventKind;
use fxgraph_core::retune::{Known, When};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Frames of each output that the new block pushes while the old one is ready for a roll-back.
const WATCHED: u64 = 3;

/// State of a swap in the running block: the candidate, later the old block as a fallback.
pub(super) struct Beside {
    link: Arc<Link>,
    /// Frames of each output of the candidate.
    kept: Vec<FrameReader>,
    /// For each output: the candidate's last frame had the validity of the running block's.
    caught_up: Vec<bool>,
    phase: Phase,
    /// Timestamp from which the candidate's frames are used.
    when: When,
    /// The caller of the swap was notified that the candidate has caught up.
    is_told: bool,
    /// Longest delay of a frame of the new block after the old block's.
    late: Duration,
}

enum Phase {
    CatchingUp,
    /// The running block has reached the swap's timestamp; the candidate is being handed over.
    Fetching,
    /// The candidate is in the slot; the old block runs on the candidate's thread.
    Watching {
        /// Number of frames of each output after which the swap is final.
        until: Vec<u64>,
        /// Time since which the old block has had a frame that the new one has not.
        behind: Option<Instant>,
    },
    /// The new block failed; the old one is being handed back.
    RollingBack(String),
}

/// Next action of the running block.
pub(super) enum Turn {
    Work,
    /// Wait: for the old block to come back, or for readers to take frames of the new one.
    Hold,
    /// Both blocks have failed.
    Lost(Fault),
}

/// A candidate with its edges and the terms of its swap.
pub(super) struct Newcomer {
    pub link: Arc<Link>,
    pub tees: Vec<Arc<Edge>>,
    pub kept: Vec<Arc<Edge>>,
    /// Timestamp from which the candidate's frames are used.
    pub when: When,
    /// Samples of a frame of each output.
    pub samples: Vec<u64>,
    pub late: Duration,
    pub may_hold_up: bool,
}

impl Hosted {
    /// Attaches a candidate to the block; `false` if the block has a candidate or shadow already.
    pub(super) fn put_beside(&mut self, new: Newcomer) -> bool {
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
        self.beside = Some(Beside {
            link: new.link,
            caught_up: vec![false; new.kept.len()],
            kept: new.kept.into_iter().map(FrameReader::new).collect(),
            phase: Phase::CatchingUp,
            when: new.when,
            is_told: false,
            late: new.late,
        });
        true
    }

    /// Timestamp after all frames that any input has handed out.
    pub(super) fn next_time(&self) -> u64 {
        let newest = self.inputs.iter().filter_map(|input| input.reader.newest()).max();
        newest.map_or(0, |newest| newest + 1)
    }

    /// Advances a swap before a call of `work`, and returns the block's next action.
    pub(super) fn settle(&mut self, run: &Run, cell: &Cell) -> Turn {
        let mut turn = Turn::Work;
        if let Some(mut beside) = self.beside.take() {
            let is_over;
            (turn, is_over) = beside.step(self, run, cell);
            if is_over {
                self.inputs.iter_mut().for_each(|input| input.reader.set_tee(None));
                for output in &mut self.outputs {
                    output.writer.set_log(false);
                    output.writer.end_switch();
                }
            } else {
                self.beside = Some(beside);
            }
        }
        let is_flushed = self.outputs.iter_mut().all(|output| output.writer.push_made_before());
        if matches!(turn, Turn::Work) && !is_flushed { Turn::Hold } else { turn }
    }

    /// Starts a roll-back to the old block after `fault`; `false` if that is not possible any more.
    pub(super) fn roll_back(&mut self, fault: &Fault) -> bool {
        let has_lost_sight = self.tee_dropped();
        let Some(beside) = &mut self.beside else { return false };
        beside.roll_back(&fault.cause, has_lost_sight)
    }

    fn tee_dropped(&self) -> bool {
        self.inputs.iter().any(|input| input.reader.tee_dropped() > 0)
    }
}

impl Beside {
    /// Advances the swap: the block's next action, and whether the swap is over.
    fn step(&mut self, hosted: &mut Hosted, run: &Run, cell: &Cell) -> (Turn, bool) {
        self.link.wake_companion();
        match &mut self.phase {
            Phase::CatchingUp | Phase::Fetching => {
                let is_over = self.catch_up(hosted, cell);
                let is_due = !is_over && matches!(self.phase, Phase::Fetching);
                (if is_due { Turn::Hold } else { Turn::Work }, is_over)
            }
            Phase::Watching { .. } => match self.watch(hosted) {
                // The failed block must not work while the old one is handed back.
                None if matches!(self.phase, Phase::RollingBack(_)) => (Turn::Hold, false),
                None => (Turn::Work, false),
                Some(text) => {
                    run.events.add(EventKind::Swapped, Some(&cell.name), text);
                    self.link.decide(Verdict::Swapped);
                    (Turn::Work, true)
                }
            },
            Phase::RollingBack(cause) => {
                let cause = cause.clone();
                let Some(mut old) = self.link.take_home() else { return (Turn::Hold, false) };
                if let Some(other) = self.link.fault() {
                    self.link.send_back(old, Order::End);
                    let cause = format!("{cause}; the old block failed too: {other}");
                    return (Turn::Lost(Fault { cause, panic: false }), true);
                }
                self.exchange(hosted, &mut old, cell);
                self.link.send_back(old, Order::End);
                run.events.add(EventKind::RolledBack, Some(&cell.name), cause.clone());
                self.link.decide(Verdict::RolledBack(cause));
                (Turn::Work, true)
            }
        }
    }

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
        let Some(mut companion) = self.link.take_home() else { return false };
        if has_caught_up {
            self.exchange(hosted, &mut companion, cell);
            let until = |output: &fxgraph_core::Output| output.writer.to_be_pushed() + WATCHED;
            let until = hosted.outputs.iter().map(until).collect();
            self.phase = Phase::Watching { until, behind: None };
        } else {
            self.phase = Phase::CatchingUp;
        }
        self.link.send_back(companion, Order::Work);
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
        let Phase::Watching { until, behind } = &mut self.phase else { return None };
        if hosted.tee_dropped() || self.link.fault().is_some() {
            return Some("in place; the old block could not be kept as a fallback".to_owned());
        }
        let mut outputs = hosted.outputs.iter().zip(&*until);
        if outputs.all(|(output, until)| output.writer.pushed() >= *until) {
            return Some(format!("in place, {WATCHED} frames checked"));
        }
        let mut is_ahead = false;
        for (kept, output) in self.kept.iter_mut().zip(&hosted.outputs) {
            let last = output.writer.last();
            while kept.peek().is_some_and(|old| Some(old.header().timestamp) <= last) {
                kept.pop();
            }
            is_ahead |= kept.waits() && output.writer.readers_have_room();
        }
        if !is_ahead {
            *behind = None;
            let text = "in place; no frame arrived to check it";
            return self.link.is_overdue().then(|| text.to_owned());
        }
        if behind.get_or_insert_with(Instant::now).elapsed() > self.late {
            let late = self.late.as_secs_f64();
            let cause = format!("a frame came more than {late} s later than from the old block");
            self.roll_back(&cause, false);
        }
        None
    }

    fn roll_back(&mut self, cause: &str, has_lost_sight: bool) -> bool {
        let is_possible = matches!(self.phase, Phase::Watching { .. })
            && !has_lost_sight
            && self.link.fault().is_none();
        if is_possible {
            self.phase = Phase::RollingBack(cause.to_owned());
            self.link.order(Order::ComeHome);
            self.link.wake_companion();
        }
        is_possible
    }

    fn exchange(&mut self, hosted: &mut Hosted, companion: &mut Companion, cell: &Cell) {
        let Companion { hosted: other, occupant } = companion;
        std::mem::swap(&mut hosted.block, &mut other.block);
        for (input, other) in hosted.inputs.iter_mut().zip(&mut other.inputs) {
            input.reader.exchange(&mut other.reader);
        }
        let outputs = hosted.outputs.iter_mut().zip(&mut other.outputs);
        for ((output, other), kept) in outputs.zip(&mut self.kept) {
            let held = output.writer.exchange(&mut other.writer, kept.drain());
            kept.put_back(held);
        }
        hosted.begun = cell.begun(hosted);
        lock(&cell.tally).exchange(occupant);
    }
}

impl Drop for Beside {
    /// Ends the candidate's thread, however the block ends.
    fn drop(&mut self) {
        self.link.decide(Verdict::Ended);
        self.link.order(Order::End);
        self.link.wake_companion();
    }
}
