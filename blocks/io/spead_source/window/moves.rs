//! Moves of the window: packets outside the window are held as candidates, until a candidate is
//! accepted as the stream or dropped.

use super::filling::Copying;
use super::{Frames, Outcome, Window};
use crate::io::spead::endpoint::Endpoint;
use crate::io::spead::packet::Packet;
use crate::io::spead_source::candidates::{Candidate, Spot};
use crate::io::spead_source::layout::Place;
use crate::io::spead_source::timeline::{Move, Standing, Verdict, WIRE_BITS};
use fxgraph::runtime::EventKind;

impl Window {
    /// Checks whether a candidate can be accepted by now, although no more of its packets come.
    pub fn look(&mut self, frames: &mut dyn Frames) -> Outcome {
        let held = self.candidates.list.iter().enumerate().filter(|(_, c)| c.is_likely());
        let (mut held, is_full) = (held.map(|(index, _)| index), self.candidates.is_full());
        let decided = if self.timeline.base.is_none() {
            let chosen = self.timeline.choose(&self.candidates.list, is_full);
            chosen.map(|chosen| (chosen, Move::Begin))
        } else {
            held.find_map(|index| self.decide(index, is_full).map(|how| (index, how)))
        };
        match decided {
            Some((index, how)) => self.adopt(index, how, frames),
            None => Outcome::Rejected,
        }
    }

    /// Updates the candidates after a packet of the stream: drops the packets of candidates that are far
    /// from the stream, and accepts heaps of candidates that the stream has reached.
    pub(super) fn look_at_candidates(&mut self, frames: &mut dyn Frames) {
        let now = self.timeline.now();
        let mut list = std::mem::take(&mut self.candidates.list);
        let is_reached = |candidate: &mut Candidate| {
            let lowest = candidate.lowest;
            self.timeline.judge(lowest, false) != Verdict::Elsewhere
                && (lowest <= self.timeline.front
                    || self.timeline.is_due(lowest)
                    || candidate.is_current)
        };
        let mut reached: Vec<Candidate> = list.extract_if(.., is_reached).collect();
        list.retain_mut(|candidate| {
            if self.timeline.is_near(candidate.lowest) {
                return true;
            }
            self.give_up(candidate);
            candidate.interrupt();
            !candidate.is_stale(now)
        });
        if reached.is_empty() {
            // The list keeps its memory: this is called for each packet of the stream.
            self.candidates.list = list;
            return;
        }
        for candidate in &mut reached {
            self.take_up(candidate, frames);
        }
        list.extend(reached.into_iter().filter(|candidate| candidate.len() > 0));
        self.candidates.list = list;
    }

    /// Accepts the packets of `candidate` up to the first one ahead of the stream's clock.
    fn take_up(&mut self, candidate: &mut Candidate, frames: &mut dyn Frames) {
        loop {
            let Some((datagram, sender)) = candidate.packets().next() else { return };
            if let Some((packet, place)) = self.place(datagram) {
                let verdict = if candidate.is_current {
                    Some(self.timeline.judge(place.frame, true))
                } else {
                    self.admit(place, sender)
                };
                let Some(verdict) = verdict else {
                    candidate.lowest = place.frame;
                    return;
                };
                self.take(&packet, place, verdict, (sender, Copying::Now), frames);
            }
            candidate.drop_first();
        }
    }

    /// Returns the relation of the sender of `candidate` to the stream. If a restart ends the flowgraph
    /// (`on_restart: stop`), a new sender counts as one that was heard while the stream continued.
    pub(super) fn standing(&self, candidate: &Candidate) -> Standing {
        if candidate.is_current {
            Standing::Current
        } else if self.timeline.is_beside(candidate) || !self.options.resyncs {
            Standing::Beside
        } else {
            Standing::New
        }
    }

    /// Begins the stream with the packets of `sender`, which sent a stop heap, if it has not begun yet.
    pub(super) fn begin_before_stop(&mut self, sender: Endpoint, frames: &mut dyn Frames) {
        if self.timeline.base.is_none()
            && let Some(best) = self.timeline.best(&self.candidates.list)
            && let candidate = &self.candidates.list[best]
            && candidate.is_likely()
            && candidate.sender == sender
        {
            self.adopt(best, Move::Begin, frames);
        }
    }

    /// Counts the packets held by `candidate` as dropped.
    pub(super) fn give_up(&self, candidate: &Candidate) {
        match self.timeline.base {
            None => self.causes.unexpected.add(u64::from(candidate.heaps)),
            Some(base) if candidate.lowest < base => self.causes.late.add(candidate.len() as u64),
            Some(_) => self.causes.future.add(candidate.len() as u64),
        }
    }

    /// Holds a packet outside the window, until other packets show whether it belongs to the stream.
    pub(super) fn hold(
        &mut self,
        packet: &Packet<'_>,
        place: Place,
        (datagram, sender): (&[u8], Endpoint),
        frames: &mut dyn Frames,
    ) -> Outcome {
        let Place { frame, slot, timestamp, .. } = place;
        let spot = Spot { frame, slot, offset: packet.offset, timestamp };
        let (now, near) = (self.timeline.now(), self.entries.len() as u64);
        let stream = self.timeline.newest;
        // All senders in a file count as senders of the stream.
        let is_current = now.is_none() || self.senders.is_current(sender);
        let datagram = (datagram, sender, is_current);
        let (index, forgotten) = self.candidates.add(spot, near, stream, now, datagram);
        if let Some(forgotten) = forgotten {
            self.give_up(&forgotten);
        }
        let is_full = self.candidates.is_full();
        let decided = if self.timeline.base.is_none() {
            let chosen = self.timeline.choose(&self.candidates.list, is_full);
            chosen.map(|chosen| (chosen, Move::Begin))
        } else {
            self.decide(index, is_full).map(|how| (index, how))
        };
        if let Some((index, how)) = decided {
            return self.adopt(index, how, frames);
        }
        let is_likely = self.candidates.list[index].is_likely();
        if is_full {
            for mut candidate in std::mem::take(&mut self.candidates.list) {
                self.give_up(&candidate);
                candidate.interrupt();
                self.candidates.list.push(candidate);
            }
        }
        Outcome::Held { is_likely }
    }

    fn decide(&self, index: usize, is_full: bool) -> Option<Move> {
        let candidate = &self.candidates.list[index];
        self.timeline.decide(candidate, self.standing(candidate), is_full)
    }

    /// Continues the stream at the time of candidate number `index`.
    pub(super) fn adopt(&mut self, index: usize, how: Move, frames: &mut dyn Frames) -> Outcome {
        let mut candidate = self.candidates.list.remove(index);
        let is_in_window = self.timeline.is_in_window(candidate.lowest);
        match how {
            Move::Begin => {
                self.join(&mut candidate);
                // Earlier parts of the stream, before a pause, which were too short by themselves.
                for earlier in self.timeline.parts_before(&candidate, &mut self.candidates.list) {
                    self.go_to(earlier.lowest, frames);
                    self.lead(&earlier);
                    self.replay(&earlier, frames);
                }
                self.go_to(candidate.lowest, frames);
            }
            Move::Along => self.go_to(candidate.lowest, frames),
            Move::Ahead => {
                self.senders.forget();
                self.go_to(candidate.lowest, frames);
            }
            Move::Leap | Move::Back => {
                let base = self.base_after_restart(&candidate).filter(|_| self.options.resyncs);
                let Some(base) = base else {
                    let from = self.timeline.newest.cast_signed();
                    return Outcome::Restarted { samples: candidate.first.0.cast_signed() - from };
                };
                let from = self.timeline.newest;
                // The last frames of the old time are sent first.
                self.pass_on_all(frames);
                self.gap = 0;
                self.senders.forget();
                self.timeline.start_again(base, None);
                self.report_resync(&candidate, from);
                self.go_to(self.lowest_of(&candidate), frames);
            }
        }
        if how == Move::Begin {
            // The other candidates at the start are of another time.
            let others = std::mem::take(&mut self.candidates.list);
            for other in others {
                if self.timeline.is_near(other.lowest) {
                    self.candidates.list.push(other);
                } else {
                    self.causes.unexpected.add(u64::from(other.heaps));
                }
            }
        }
        if !is_in_window {
            self.lead(&candidate);
        }
        if how == Move::Along {
            self.take_up(&mut candidate, frames);
            if candidate.len() > 0 {
                self.candidates.list.push(candidate);
            }
        } else {
            self.replay(&candidate, frames);
        }
        if how != Move::Begin {
            let (stream, now) = (self.timeline.newest, self.timeline.now());
            self.candidates
                .list
                .iter_mut()
                .for_each(|other| other.restart_measurement(stream, now));
        }
        Outcome::Accepted
    }

    /// Notes the first slot of `candidate` in the frame in which the stream continues.
    fn lead(&mut self, candidate: &Candidate) {
        let places = candidate.packets().filter_map(|(datagram, _)| Some(self.place(datagram)?.1));
        let first = places.map(|place| (place.frame, place.slot)).min();
        let parts = self.layout.slots() / self.layout.heaps_per_frame;
        self.leading = first.map_or((0, 0), |(frame, slot)| (frame, slot / parts * parts));
    }

    /// Returns the earliest frame of the packets of `candidate`, before the stream has a time.
    pub(super) fn lowest_of(&self, candidate: &Candidate) -> u64 {
        let frame = |(datagram, _): (&[u8], _)| Some(self.place(datagram)?.1.frame);
        let first = candidate.packets().find_map(frame).unwrap_or(0);
        let near = self.entries.len() as u64;
        candidate
            .packets()
            .filter_map(frame)
            .filter(|f| f.abs_diff(first) <= near)
            .min()
            .unwrap_or(first)
    }

    /// Parses a held packet and returns its place.
    pub(super) fn place<'a>(&self, datagram: &'a [u8]) -> Option<(Packet<'a>, Place)> {
        let packet = Packet::parse(datagram).ok()?;
        let place = self.layout.place(&packet, |wire| self.timeline.unwrap(wire)).ok()?;
        Some((packet, place))
    }

    /// Accepts the packets held by `candidate`, which is the stream.
    fn replay(&mut self, candidate: &Candidate, frames: &mut dyn Frames) {
        for (datagram, sender) in candidate.packets() {
            let Some((packet, place)) = self.place(datagram) else { continue };
            let verdict = self.timeline.judge(place.frame, true);
            let outcome = self.take(&packet, place, verdict, (sender, Copying::Now), frames);
            if outcome == Outcome::Accepted && !self.candidates.list.is_empty() {
                self.look_at_candidates(frames);
            }
        }
    }

    /// Moves the window to frame number `frame`.
    fn go_to(&mut self, frame: u64, frames: &mut dyn Frames) {
        let len = self.entries.len() as u64;
        let Some(base) = self.timeline.base else {
            // Room for heaps that overtook the very first one.
            self.timeline.begin(frame - frame.min(len / 2), frame);
            return;
        };
        let end = base + len;
        if frame < end + len {
            (end..=frame).for_each(|_| self.pass_on_first(frames));
            self.timeline.reach(frame);
            return;
        }
        self.pass_on_all(frames);
        let slots = self.layout.slots() as u64;
        let between =
            std::mem::take(&mut self.gap).saturating_add((frame - end).saturating_mul(slots));
        let seconds = (between / slots) as f64 * self.timeline.frame_seconds();
        self.causes.jumps.add(1);
        if !self.timeline.started {
            // Nothing came before the gap, or the gap was reported as a restart.
        } else if seconds <= self.options.max_gap_seconds {
            self.causes.missing.add(between);
        } else {
            self.causes.time_jumps.add(1);
            self.causes.last_jump.set(seconds);
            let text = format!("the timestamps of the stream jumped ahead by {seconds:.3} s");
            self.env.events.add(EventKind::TimeJumped, text);
        }
        self.timeline.begin(frame, frame);
    }

    /// Reports that the sender of `candidate` was restarted; the stream's newest timestamp before was `from`.
    fn report_resync(&self, candidate: &Candidate, from: u64) {
        self.causes.resyncs.add(1);
        self.show_sync_time();
        let (timestamp, began) = candidate.first;
        let timestamp = timestamp & ((1 << WIRE_BITS) - 1);
        let sync_time = self.sync_time().filter(|_| began.is_some());
        let measured = self.timeline.time_base.uncertainty();
        let about = match (sync_time, measured) {
            (None, _) => "; its sync time is unknown, and times count from 1970".to_owned(),
            (Some(sync_time), None) => format!("; its sync time is now {sync_time}"),
            (Some(sync_time), Some(uncertainty)) => format!(
                "; its sync time is now {sync_time} as measured, {uncertainty}: files, delay models and phase centres that \
                 need a better one need another start with `sync_time_seconds`"
            ),
        };
        let text = format!(
            "{} restarted with another sync time: its timestamps jumped from {from} to {timestamp}{about}; \
             the frames continue at {}",
            candidate.sender,
            self.timeline.origin() + timestamp
        );
        self.env.events.add(EventKind::Resynchronised, text);
    }
}
