//! Frames that are dropped because the flowgraph does not keep up: of their packets only the first bytes are read.

use super::filling::Copying;
use super::{Entry, Frames, Outcome, Window};
use crate::io::spead::endpoint::Endpoint;
use crate::io::spead::packet::Packet;
use crate::io::spead::receive::HEAD_BYTES;
use crate::io::spead_source::timeline::Verdict;
use fxgraph::overload::Interval;

impl Window {
    /// Processes datagrams of which those longer than [`HEAD_BYTES`] may be cut off there, because their frames are
    /// dropped. Returns whether the next frames are dropped, too.
    pub fn skim<'a>(
        &mut self,
        heads: impl Iterator<Item = (&'a [u8], Endpoint)>,
        frames: &mut dyn Frames,
        mut note: impl FnMut(Outcome),
    ) -> bool {
        self.newest_of_batch = None;
        for (head, sender) in heads {
            let is_cut = head.len() == HEAD_BYTES && Packet::parse(head).is_err();
            note(if is_cut {
                self.drop_cut(head, sender, frames)
            } else {
                self.process(head, sender, Copying::Now, frames)
            });
        }
        self.drops_next()
    }

    /// Processes the first bytes of a datagram that was cut off. Packets of other streams do not end the skimming.
    fn drop_cut(&mut self, head: &[u8], sender: Endpoint, frames: &mut dyn Frames) -> Outcome {
        let packet = match Packet::head(head) {
            Ok((packet, _)) => packet,
            Err(why) => {
                self.causes.malformed(why).add(1);
                return Outcome::Rejected;
            }
        };
        let place = match self.layout.place(&packet, |wire| self.timeline.unwrap(wire)) {
            Ok(place) => place,
            Err(why) => return self.not_data(&packet, sender, why, frames),
        };
        let verdict = self.admit(place, sender).unwrap_or(Verdict::Elsewhere);
        let Some(index) = self.enter(verdict, frames) else {
            let is_late = verdict == Verdict::Late;
            (if is_late { &self.causes.late } else { &self.causes.future }).add(1);
            return Outcome::Rejected;
        };
        if matches!(self.entries[index], Entry::Dropped) {
            self.accepted(place, sender);
            return Outcome::Accepted;
        }
        // The frame lacks this packet, and shows that the dropped frames are over.
        self.newest_of_batch = self.newest_of_batch.max(Some(place.timestamp));
        Outcome::Rejected
    }

    /// Whether the newest heap of the last batch was dropped, and the next frames are, too, and no earlier frame is open:
    /// the next datagrams of the socket are not needed.
    #[must_use]
    pub fn drops_next(&self) -> bool {
        let (Some(newest), Some(base)) = (self.newest_of_batch, self.timeline.base) else {
            return false;
        };
        let frame = newest / self.layout.samples_per_frame();
        let Some(index) = frame.checked_sub(base).map(|index| index as usize) else { return false };
        let is_open = |entry: &Entry| matches!(entry, Entry::Open(_));
        if !matches!(self.entries.get(index), Some(Entry::Dropped))
            || self.entries.iter().take(index).any(is_open)
        {
            return false;
        }
        let next = self.interval(frame + self.options.frames_ahead);
        let next = next.filter(|next| Some(*next) == self.interval(frame));
        next.is_some_and(|next| self.env.overload.drops(next))
    }

    /// Returns the interval of frame number `frame`; `None` if the source drops no intervals.
    pub(super) fn interval(&self, frame: u64) -> Option<Interval> {
        let samples = self.layout.samples_per_frame() * self.options.interval_frames?;
        // The timestamp in the flowgraph: that of the stream may begin again.
        let timestamp = self.timeline.origin() + frame * self.layout.samples_per_frame();
        let adc_sample_rate_hz = self.options.adc_sample_rate_hz;
        Some(Interval { adc_sample_rate_hz, samples, number: timestamp / samples })
    }
}
