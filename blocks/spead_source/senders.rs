//! Who sends the stream, and who has said that they stopped.

use fxgraph::{Counter, Counters};
use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

/// Senders that are told apart; beyond that those longest silent are forgotten.
const MAX_SENDERS: usize = 4096;
/// How long after a stop heap data that it overtook may still come.
pub const AFTER_STOP: Duration = Duration::from_millis(100);

struct Sender {
    /// Its place in the order in which senders were last seen.
    seen: u64,
    stopped: Option<Instant>,
}

/// The senders of a stream.
pub struct Senders {
    known: HashMap<SocketAddrV4, Sender>,
    /// The last one, if nothing more is to be noted of it: data mostly come in runs.
    last: Option<SocketAddrV4>,
    seen: u64,
    stops: Counter,
    strange_stops: Counter,
}

impl Senders {
    /// Nobody yet.
    pub fn new(counters: &Counters) -> Self {
        Self {
            known: HashMap::new(),
            last: None,
            seen: 0,
            stops: counters.count("heaps_stop", "stop heaps of the stream's senders"),
            strange_stops: counters.count(
                "heaps_stop_refused",
                "stop heaps of others, who sent no data of this stream; find who sends them",
            ),
        }
    }

    /// `sender` sent data of the stream.
    pub fn data(&mut self, sender: SocketAddrV4, now: Instant) {
        if self.last == Some(sender) {
            return;
        }
        self.seen += 1;
        if self.known.len() == MAX_SENDERS && !self.known.contains_key(&sender) {
            self.forget_the_silent();
        }
        let known = self.known.entry(sender).or_insert(Sender { seen: 0, stopped: None });
        known.seen = self.seen;
        let is_overtaken =
            known.stopped.is_some_and(|at| now.saturating_duration_since(at) < AFTER_STOP);
        if is_overtaken {
            self.last = None;
        } else {
            known.stopped = None;
            self.last = Some(sender);
        }
    }

    /// `sender` says that it stopped; that counts only if it has sent data.
    pub fn stop(&mut self, sender: SocketAddrV4, now: Instant) {
        let Some(known) = self.known.get_mut(&sender) else {
            self.strange_stops.add(1);
            return;
        };
        self.stops.add(1);
        known.stopped = Some(now);
        self.last = None;
    }

    /// How many have stopped, long enough ago that nothing that was overtaken is still to come.
    pub fn stopped(&self, now: Instant) -> usize {
        let is_over = |at| now.saturating_duration_since(at) >= AFTER_STOP;
        self.known.values().filter(|sender| sender.stopped.is_some_and(is_over)).count()
    }

    /// Forgets half of them, so that a flood of new ones costs little for each.
    fn forget_the_silent(&mut self) {
        let mut seen: Vec<u64> = self.known.values().map(|sender| sender.seen).collect();
        let (_, middle, _) = seen.select_nth_unstable(MAX_SENDERS / 2);
        self.known.retain(|_, sender| sender.seen > *middle);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(n: u32) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::from(n), 7148)
    }

    fn count(counters: &Counters, name: &str) -> u64 {
        counters.list().iter().find(|c| c.name == name).unwrap().counter.get()
    }

    #[test]
    fn only_those_who_sent_data_can_stop_and_data_after_a_stop_take_it_back() {
        let counters = Counters::default();
        let mut senders = Senders::new(&counters);
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        senders.data(address(1), at(0));
        senders.data(address(2), at(0));
        senders.stop(address(3), at(1));
        assert_eq!(senders.stopped(at(500)), 0);
        senders.stop(address(1), at(2));
        senders.stop(address(1), at(3));
        assert_eq!(senders.stopped(at(102)), 0);
        assert_eq!(senders.stopped(at(103)), 1);
        // Data that the stop overtook change nothing, those of a sender that goes on do.
        senders.data(address(1), at(4));
        assert_eq!(senders.stopped(at(103)), 1);
        senders.data(address(1), at(200));
        assert_eq!(senders.stopped(at(500)), 0);
        assert_eq!(count(&counters, "heaps_stop"), 2);
        assert_eq!(count(&counters, "heaps_stop_refused"), 1);
    }

    #[test]
    fn a_hundred_thousand_senders_take_no_memory_and_displace_nobody_who_sends() {
        let mut senders = Senders::new(&Counters::default());
        let now = Instant::now();
        for n in 0..100_000 {
            senders.data(address(n + 10), now);
            senders.data(address(1), now);
        }
        assert!(senders.known.len() <= MAX_SENDERS);
        senders.stop(address(1), now);
        assert_eq!(senders.stopped(now + AFTER_STOP), 1);
    }
}
