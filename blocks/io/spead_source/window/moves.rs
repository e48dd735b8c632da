//! Moves of the window: packets outside the window are held as candidates, until a candidate is
//! accepted as the stream or dropped.

use super::filling::Copying;
use super::{Frames, Outcome, Window};
use crate::io::spead::packet::Packet;
use crate::io::spead_source::candidates::{Candidate, Spot};
use crate::io::spead_source::layout::Place;
use crate::io::spead_source::timeline::{Move, Standing, Verdict, WIRE_BITS};
use fxgraph::runtime::EventKind;
use std::net::SocketAddrV4;
use std::time::{SystemTime, UNIX_EPOCH};

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
            None => Outcome::Refused,
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
    pub(super) fn begin_before_stop(&mut self, sender: SocketAddrV4, frames: &mut dyn Frames) {
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
            None => self.causes.stray.add(u64::from(candidate.heaps)),
            Some(base) if candidate.lowest < base => self.causes.late.add(candidate.len() as u64),
            Some(_) => self.causes.future.add(candidate.len() as u64),
        }
    }

    /// Holds a packet outside the window, until other packets show whether it belongs to the stream.
    pub(super) fn hold(
        &mut self,
        packet: &Packet<'_>,
        place: Place,
        (datagram, sender): (&[u8], SocketAddrV4),
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
            Move::Leap => {
                // The last frames of the old time are sent first.
                let sync_time = self.report_resync(&candidate, how, frames);
                self.timeline.forget_pace();
                self.set_real_time(sync_time);
                self.go_to(candidate.lowest, frames);
            }
            Move::Back => {
                let before = self.timeline.base.unwrap_or(0);
                let back = (before.saturating_sub(candidate.lowest))
                    .saturating_mul(self.layout.samples_per_frame());
                if !(self.options.resyncs && self.timeline.can_start_again()) {
                    return Outcome::WentBack { samples: back };
                }
                let sync_time = self.report_resync(&candidate, how, frames);
                self.timeline.start_again();
                self.set_real_time(sync_time);
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
                    self.causes.stray.add(u64::from(other.heaps));
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
    fn lowest_of(&self, candidate: &Candidate) -> u64 {
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
    fn place<'a>(&self, datagram: &'a [u8]) -> Option<(Packet<'a>, Place)> {
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

    /// Sets the Unix time of the frames' timestamp 0, if that of the stream's timestamp 0 is known.
    fn set_real_time(&self, sync_time: Option<f64>) {
        let real_time = self.env.counters.real_time();
        if let Some(sync_time) = sync_time.filter(|_| real_time.zero().is_some()) {
            let origin_seconds = self.timeline.origin as f64 / self.options.adc_sample_rate_hz;
            real_time.set_zero(sync_time - origin_seconds);
        }
    }

    /// Reports that the sender of `candidate` was restarted, after sending the open frames. Returns the
    /// stream's new sync time, as measured.
    fn report_resync(
        &mut self,
        candidate: &Candidate,
        how: Move,
        frames: &mut dyn Frames,
    ) -> Option<f64> {
        let from = self.timeline.newest;
        self.pass_on_all(frames);
        self.gap = 0;
        self.senders.forget();
        self.causes.resyncs.add(1);
        // Timestamp and arrival time of the same packet; the packets still held may be later.
        let (timestamp, began) = candidate.first;
        // A timestamp of a later turn than before is that of a restart: it began at 0 again.
        let is_restart = how == Move::Back || timestamp >> WIRE_BITS > from >> WIRE_BITS;
        let timestamp = if is_restart { timestamp & ((1 << WIRE_BITS) - 1) } else { timestamp };
        // A file is read at any rate, so its packets have no arrival time.
        let sync_time = began.map(|began| {
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let began = unix.saturating_sub(began.elapsed()).as_secs_f64();
            began - timestamp as f64 / self.options.adc_sample_rate_hz
        });
        let about = sync_time.map_or_else(String::new, |sync_time| {
            self.causes.sync_time.set(sync_time);
            format!("; its sync time is now about {sync_time:.3} (Unix time)")
        });
        let text = format!(
            "{} restarted with another sync time: its timestamps jumped from {from} to {timestamp}{about}",
            candidate.sender
        );
        self.env.events.add(EventKind::Resynchronised, text);
        sync_time
    }
}
