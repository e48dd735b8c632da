//! A second sender of a stream: two programs that send the same data at the same time, such as two copies of an engine
//! after a handover that was not finished.

use super::endpoint::Endpoint;
use fxgraph::event::BlockEvents;
use fxgraph::runtime::EventKind;
use fxgraph::{Counter, Counters};
use std::time::{Duration, Instant};

/// Shortest time in which both send, and the same time as a multiple of the length of a heap. In a handover the last data
/// of one sender arrive with the first ones of the other.
const OVERLAP: Duration = Duration::from_millis(250);
const OVERLAP_HEAPS: u32 = 3;
/// Time without packets of a second sender after which it is a new one.
const GONE: Duration = Duration::from_secs(10);

/// Detector of second senders.
pub struct SecondSender {
    /// The second sender, if there is one.
    seen: Option<Seen>,
    overlap: Duration,
    packets: Counter,
}

struct Seen {
    sender: Endpoint,
    since: Instant,
    last: Instant,
    is_told: bool,
}

impl SecondSender {
    /// Returns a detector for heaps of `heap_seconds`.
    #[must_use]
    pub fn new(counters: &Counters, heap_seconds: f64) -> Self {
        let heap = Duration::try_from_secs_f64(heap_seconds).unwrap_or(GONE).min(GONE);
        Self {
            seen: None,
            overlap: OVERLAP.max(heap * OVERLAP_HEAPS),
            packets: counters.count(
                "packets_second_sender",
                "packets of a sender whose data come from another sender, too; stop one of the two",
            ),
        }
    }

    /// Notes a packet of `sender` with data that `first`, which still sends, has sent or sends, too. When both have sent for
    /// some time, that is an event.
    pub fn note(&mut self, first: Endpoint, sender: Endpoint, now: Instant, events: &BlockEvents) {
        self.packets.add(1);
        let patience = |seen: &Seen| if seen.is_told { GONE } else { 2 * self.overlap };
        let is_gone = |seen: &Seen| now.saturating_duration_since(seen.last) > patience(seen);
        if self.seen.as_ref().is_none_or(is_gone) {
            self.seen = Some(Seen { sender, since: now, last: now, is_told: false });
        }
        let Some(seen) = self.seen.as_mut().filter(|seen| seen.sender == sender) else { return };
        seen.last = now;
        if !seen.is_told && now.saturating_duration_since(seen.since) >= self.overlap {
            seen.is_told = true;
            let text = format!(
                "two senders send this stream at the same time, {first} and {sender}: stop one of them"
            );
            events.add(EventKind::Warning, text);
        }
    }
}
