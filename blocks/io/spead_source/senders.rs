//! Senders of the stream, and the senders among them that have sent a stop heap.

use crate::io::spead::endpoint::Endpoint;
use fxgraph::{Counter, Counters};
use std::time::{Duration, Instant};

/// Time after a stop heap in which data that the stop heap overtook may still arrive.
pub const AFTER_STOP: Duration = Duration::from_millis(100);
/// Largest number of packets of other senders that a seat survives.
const MOST_VOTES: u8 = 16;
/// Silence of a sender after which another sender ahead of the stream may take its seat.
const QUIET: Duration = Duration::from_millis(250);

/// Sender of one part of the data: the address that sent most of the recent packets.
#[derive(Clone, Copy, Debug)]
struct Seat {
    holder: Endpoint,
    /// Packets of the holder minus packets of other senders, at most [`MOST_VOTES`]; 0 is a free seat.
    votes: u8,
    /// Time of the holder's last packet.
    heard: Option<Instant>,
    stopped: Option<Instant>,
}

impl Seat {
    fn confirm(&mut self, now: Instant) {
        self.votes = (self.votes + 1).min(MOST_VOTES);
        self.heard = Some(now);
    }
}

/// The senders of a stream.
///
/// Each part of the stream (an antenna, or the whole stream of a digitiser) has as many seats as it
/// has senders. A single foreign packet takes no seat, and memory is fixed for any number of addresses.
pub struct Senders {
    seats: Vec<Seat>,
    seats_per_part: usize,
    stops: Counter,
    rejected_stops: Counter,
}

impl Senders {
    /// Creates the empty seats of a stream of `parts`, each sent by up to `seats_per_part` senders.
    pub fn new(parts: usize, seats_per_part: usize, counters: &Counters) -> Self {
        let holder = Endpoint::v4(std::net::Ipv4Addr::UNSPECIFIED, 0);
        let free = Seat { holder, votes: 0, heard: None, stopped: None };
        Self {
            seats: vec![free; parts.max(1) * seats_per_part.max(1)],
            seats_per_part: seats_per_part.max(1),
            stops: counters.count("heaps_stop", "stop heaps from senders of the stream"),
            rejected_stops: counters.count(
                "heaps_stop_refused",
                "stop heaps ignored because their address sends no accepted data; find their sender",
            ),
        }
    }

    /// Notes that `sender` sent data of `part`, ahead of the stream's clock if `is_early`. Returns whether
    /// `sender` has a seat now.
    ///
    /// A sender of data ahead of the clock gets no seat while the holder continues: otherwise a burst of
    /// packets for the rest of a frame would make any address a sender of the stream.
    pub fn data(&mut self, part: usize, sender: Endpoint, now: Instant, is_early: bool) -> bool {
        let first = part * self.seats_per_part;
        let Some(seats) = self.seats.get_mut(first..first + self.seats_per_part) else {
            return false;
        };
        let is_quiet = |seat: &Seat| {
            seat.heard.is_none_or(|heard| now.saturating_duration_since(heard) >= QUIET)
        };
        if let Some(seat) = seats.iter_mut().find(|seat| seat.votes > 0 && seat.holder == sender) {
            seat.confirm(now);
            let is_overtaken = |at| now.saturating_duration_since(at) < AFTER_STOP;
            seat.stopped = seat.stopped.filter(|at| is_overtaken(*at));
        } else if let Some(seat) = seats.iter_mut().find(|seat| seat.votes == 0) {
            *seat = Seat { holder: sender, votes: 1, heard: Some(now), stopped: None };
        } else {
            if !is_early || seats.iter().all(is_quiet) {
                seats.iter_mut().for_each(|seat| seat.votes -= 1);
            }
            return false;
        }
        true
    }

    /// Notes that `sender` sent data of `part` that had already arrived from another sender: such data
    /// keep a seat, but do not gain one.
    pub fn confirm(&mut self, part: usize, sender: Endpoint, now: Instant) {
        let first = part * self.seats_per_part;
        let seats = self.seats.get_mut(first..first + self.seats_per_part).unwrap_or_default();
        let held = seats.iter_mut().filter(|seat| seat.votes > 0 && seat.holder == sender);
        held.for_each(|seat| seat.confirm(now));
    }

    /// Whether data of `part` from `sender` may move the window: `sender` has a seat of this part, or all
    /// seats are free.
    pub fn may_lead(&self, part: usize, sender: Endpoint) -> bool {
        self.of_part(part).all(|seat| seat.votes == 0) || self.has_seat(part, sender)
    }

    /// Whether `sender` has a seat of `part`.
    pub fn has_seat(&self, part: usize, sender: Endpoint) -> bool {
        self.of_part(part).any(|seat| seat.votes > 0 && seat.holder == sender)
    }

    /// A sender with a seat of `part`, if `sender` has none.
    pub fn other_holder(&self, part: usize, sender: Endpoint) -> Option<Endpoint> {
        let held = self.of_part(part).find(|seat| seat.votes > 0).map(|seat| seat.holder);
        held.filter(|_| !self.has_seat(part, sender))
    }

    fn of_part(&self, part: usize) -> impl Iterator<Item = &Seat> {
        let first = part * self.seats_per_part;
        self.seats.iter().skip(first).take(self.seats_per_part)
    }

    /// Whether `sender` has a seat.
    pub fn is_current(&self, sender: Endpoint) -> bool {
        self.seats.iter().any(|seat| seat.votes > 0 && seat.holder == sender)
    }

    /// Notes a stop heap of `sender`, which counts only if `sender` has a seat. Returns whether it is the
    /// first one.
    pub fn stop(&mut self, sender: Endpoint, now: Instant) -> bool {
        let (mut known, mut is_new) = (false, false);
        for seat in self.seats.iter_mut().filter(|s| s.votes > 0 && s.holder == sender) {
            is_new |= seat.stopped.is_none();
            known = true;
            seat.stopped.get_or_insert(now);
        }
        (if known { &self.stops } else { &self.rejected_stops }).add(1);
        is_new
    }

    /// Returns the senders that stopped all of their parts at least [`AFTER_STOP`] ago, so that overtaken
    /// data have arrived.
    pub fn stopped(&self, now: Instant) -> Vec<Endpoint> {
        let is_over = |seat: &Seat| {
            seat.stopped.is_some_and(|at| now.saturating_duration_since(at) >= AFTER_STOP)
        };
        let taken = || self.seats.iter().filter(|seat| seat.votes > 0);
        let mut senders: Vec<Endpoint> = taken().map(|seat| seat.holder).collect();
        senders.sort_unstable();
        senders.dedup();
        senders.retain(|sender| taken().filter(|s| s.holder == *sender).all(is_over));
        senders
    }

    /// Whether any sender has sent a stop heap.
    pub fn any_stopped(&self) -> bool {
        self.seats.iter().any(|seat| seat.votes > 0 && seat.stopped.is_some())
    }

    /// Returns the senders of the stream for messages: the first few and the number of others.
    pub fn names(&self) -> String {
        let mut senders: Vec<Endpoint> =
            self.seats.iter().filter(|seat| seat.votes > 0).map(|seat| seat.holder).collect();
        senders.sort_unstable();
        senders.dedup();
        list(&senders)
    }

    /// Frees all seats, because another stream follows.
    pub fn forget(&mut self) {
        self.seats.iter_mut().for_each(|seat| seat.votes = 0);
    }
}

/// Returns `senders` as text: the first few and the number of others.
pub fn list(senders: &[Endpoint]) -> String {
    const SHOWN: usize = 4;
    let mut names: Vec<String> = senders.iter().take(SHOWN).map(ToString::to_string).collect();
    if senders.len() > SHOWN {
        names.push(format!("{} more", senders.len() - SHOWN));
    }
    if names.is_empty() { "no sender".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(n: u32) -> Endpoint {
        Endpoint::v4(Ipv4Addr::from(n), 7148)
    }

    fn count(counters: &Counters, name: &str) -> u64 {
        counters.list().iter().find(|c| c.name == name).unwrap().counter.get()
    }

    #[test]
    fn stop_of_a_sender_of_data_counts_until_it_sends_again() {
        let counters = Counters::default();
        let mut senders = Senders::new(2, 1, &counters);
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        senders.data(0, address(1), at(0), false);
        senders.data(1, address(2), at(0), false);
        assert!(!senders.stop(address(3), at(1)));
        assert_eq!(senders.stopped(at(500)), []);
        assert!(senders.stop(address(1), at(2)));
        assert!(!senders.stop(address(1), at(3)));
        assert_eq!(senders.stopped(at(101)), []);
        assert_eq!(senders.stopped(at(102)), [address(1)]);
        // Data that the stop heap overtook have no effect, later data of the sender cancel the stop.
        senders.data(0, address(1), at(4), false);
        assert_eq!(senders.stopped(at(102)), [address(1)]);
        senders.data(0, address(1), at(200), false);
        assert_eq!(senders.stopped(at(500)), []);
        assert_eq!(count(&counters, "heaps_stop"), 2);
        assert_eq!(count(&counters, "heaps_stop_refused"), 1);
    }

    #[test]
    fn stop_after_a_few_foreign_packets_is_rejected() {
        let mut senders = Senders::new(1, 1, &Counters::default());
        let now = Instant::now();
        (0..1000).for_each(|_| _ = senders.data(0, address(1), now, false));
        for foreign in 0..10 {
            senders.data(0, address(100 + foreign % 2), now, false);
        }
        assert!(!senders.stop(address(100), now));
        assert!(senders.stop(address(1), now));
    }

    #[test]
    fn sender_that_took_over_is_the_only_one_that_can_stop() {
        let mut senders = Senders::new(1, 1, &Counters::default());
        let now = Instant::now();
        (0..1000).for_each(|_| _ = senders.data(0, address(1), now, false));
        (0..20).for_each(|_| _ = senders.data(0, address(2), now, false));
        assert!(!senders.stop(address(1), now));
        assert!(senders.stop(address(2), now));
        assert_eq!(senders.stopped(now + AFTER_STOP), [address(2)]);
    }

    #[test]
    fn sender_of_several_antennas_is_one_sender() {
        let mut senders = Senders::new(4, 1, &Counters::default());
        let now = Instant::now();
        for antenna in 0..4 {
            senders.data(antenna, address(antenna as u32 / 2), now, false);
        }
        senders.stop(address(0), now);
        assert_eq!(senders.stopped(now + AFTER_STOP), [address(0)]);
        assert_eq!(senders.names(), "0.0.0.0:7148, 0.0.0.1:7148");
    }

    #[test]
    fn flood_of_senders_takes_no_memory() {
        let mut senders = Senders::new(1, 2, &Counters::default());
        let now = Instant::now();
        for n in 0..100_000 {
            senders.data(0, address(n + 10), now, false);
            senders.data(0, address(1), now, false);
        }
        assert_eq!(senders.seats.len(), 2);
        assert!(senders.stop(address(1), now));
    }

    #[test]
    fn sender_ahead_of_the_clock_gets_the_seat_once_the_holder_is_quiet() {
        let mut senders = Senders::new(1, 1, &Counters::default());
        let start = Instant::now();
        (0..20).for_each(|_| _ = senders.data(0, address(1), start, true));
        (0..1000).for_each(|_| _ = senders.data(0, address(2), start, true));
        assert!(senders.may_lead(0, address(1)) && !senders.may_lead(0, address(2)));
        (0..20).for_each(|_| _ = senders.data(0, address(2), start + QUIET, true));
        assert!(senders.may_lead(0, address(2)) && !senders.may_lead(0, address(1)));
    }
}
