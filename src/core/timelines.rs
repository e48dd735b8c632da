//! Timelines of live sources: sources whose senders count alike have the same timestamps and time bases.
//!
//! The wire carries 48 bits of a timestamp, and each source extends them. Without agreement two sources of one array
//! could decide for different turns (periods of 2^48 samples), and blocks that pair their frames would find no pair. So
//! sources publish where their streams are. A source that begins, or whose sender was restarted, continues on a
//! timeline that is known already if its own stream is in step with it; and a source changes over to a newer time base
//! of another source that is in step.

use crate::Time;
use crate::changes::MAX_TIMESTAMP;
use crate::lock::lock;
use crate::time_base::TimeBase;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

/// Largest difference of two streams of one timeline, in seconds: the packets wait in buffers for less, and sync times
/// differ by more.
const IN_STEP_SECONDS: f64 = 1.0;
/// Limit of the timelines that are kept.
const KEPT: usize = 64;
/// Bits of a timestamp on the wire.
const WIRE_BITS: u32 = 48;

/// Present place of a sender.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Samples per second of the ADC.
    pub adc_sample_rate_hz: f64,
    /// Sync time with which the source was configured, if known.
    pub sync_time: Option<Time>,
    /// A timestamp, of which the lowest 48 bits count.
    pub timestamp: u64,
    /// Host time at which it arrived.
    pub at: Instant,
}

/// Timeline of one or more sources.
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    /// Time base of the frames.
    pub base: TimeBase,
    /// Newest place, with the timestamp in the flowgraph.
    pub place: Place,
}

impl Timeline {
    /// Timestamp in the flowgraph of `place` on this timeline; `None` if `place` is not in step with it.
    #[must_use]
    pub fn locate(&self, place: &Place) -> Option<u64> {
        let own = &self.place;
        let key = |place: &Place| (place.adc_sample_rate_hz, place.sync_time);
        if key(own) != key(place) {
            return None;
        }
        let rate = own.adc_sample_rate_hz;
        let ahead = place.at.saturating_duration_since(own.at).as_secs_f64()
            - own.at.saturating_duration_since(place.at).as_secs_f64();
        let expected = i128::from(own.timestamp) + (ahead * rate) as i128;
        let turn = 1_i128 << WIRE_BITS;
        let apart = (i128::from(place.timestamp) - expected + turn / 2).rem_euclid(turn) - turn / 2;
        let is_in_step = (apart as f64).abs() <= IN_STEP_SECONDS * rate;
        let timestamp = u64::try_from(expected + apart).ok().filter(|_| is_in_step)?;
        (timestamp >= self.base.from).then_some(timestamp)
    }
}

/// Timelines of the live sources of a flowgraph. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Timelines(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// First timestamp of the newest base.
    newest: AtomicU64,
    /// Timelines, the one with the newest base last.
    known: Mutex<VecDeque<Timeline>>,
    /// Streams that other flowgraphs send.
    received: Mutex<Vec<Weak<Mutex<Option<Place>>>>>,
}

/// Place of a stream that another flowgraph sends, whose timestamps are whole, until this is dropped.
#[derive(Debug, Default)]
pub struct Received(Arc<Mutex<Option<Place>>>);

impl Received {
    /// Publishes the present place; `None` of a stream that does not run in real time.
    pub fn set(&self, place: Option<Place>) {
        *lock(&self.0) = place;
    }
}

impl Timelines {
    fn known(&self) -> std::sync::MutexGuard<'_, VecDeque<Timeline>> {
        lock(&self.0.known)
    }

    /// First timestamp of the newest time base of all sources.
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.0.newest.load(Ordering::Acquire)
    }

    /// Publishes the place of a source on its timeline.
    pub fn note(&self, base: TimeBase, place: Place) {
        let mut known = self.known();
        let same = |known: &&mut Timeline| known.base.is(&base) && known.locate(&place).is_some();
        match known.iter_mut().find(same) {
            Some(known) if known.place.at < place.at => known.place = place,
            Some(_) => {}
            None => self.add(&mut known, Timeline { base, place }),
        }
    }

    /// The timeline with the newest base, from timestamp `least` on, with which `place` is in step, and the timestamp of
    /// `place` on it.
    #[must_use]
    pub fn find(&self, place: &Place, least: u64) -> Option<(TimeBase, u64)> {
        Self::find_in(&self.known(), place, least)
    }

    /// Adds a stream that another flowgraph sends. No source follows its time base: its frames have theirs.
    #[must_use]
    pub fn receive(&self) -> Received {
        let received = Received::default();
        let mut all = lock(&self.0.received);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&received.0));
        received
    }

    /// Newest places of all timelines, and of the streams that other flowgraphs send.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        let received = lock(&self.0.received);
        let place = |received: &Weak<Mutex<Option<Place>>>| {
            *received.upgrade()?.lock().unwrap_or_else(PoisonError::into_inner)
        };
        let of_timelines = self.known().iter().map(|timeline| timeline.place).collect::<Vec<_>>();
        of_timelines.into_iter().chain(received.iter().filter_map(place)).collect()
    }

    fn find_in(known: &VecDeque<Timeline>, place: &Place, least: u64) -> Option<(TimeBase, u64)> {
        let newest = known.iter().rev().take_while(|known| known.base.from >= least);
        newest.into_iter().find_map(|known| Some((known.base, known.locate(place)?)))
    }

    /// Time base of a sender that was restarted and is at `place`: that of a source that is in step, or a new one.
    /// `least` is the first timestamp at which the source can continue, a multiple of 2^48; `sync_time` is that of
    /// the sender and its uncertainty in seconds, for a new base.
    #[allow(clippy::must_use_candidate, reason = "it adds the base")]
    pub fn restart(&self, place: Place, least: u64, sync_time: (Time, f64)) -> TimeBase {
        let mut known = self.known();
        if let Some((base, _)) = Self::find_in(&known, &place, least) {
            return base;
        }
        // After all timestamps of sources in step, so that these can change over to the base; and not a base of senders
        // that count otherwise.
        let reached = known.iter().filter_map(|known| known.locate(&place)).max();
        let after = reached.map_or(0, |reached| ((reached >> WIRE_BITS) + 2) << WIRE_BITS);
        let next = known.back().map_or(0, |newest| newest.base.from + (1 << WIRE_BITS));
        let from = least.max(next).max(after.min(MAX_TIMESTAMP));
        let (sync_time, uncertainty_seconds) = sync_time;
        let base = TimeBase { from, sync_time: Some(sync_time), uncertainty_seconds };
        let timestamp = from + (place.timestamp & ((1 << WIRE_BITS) - 1));
        self.add(&mut known, Timeline { base, place: Place { timestamp, ..place } });
        base
    }

    fn add(&self, known: &mut VecDeque<Timeline>, timeline: Timeline) {
        if known.len() == KEPT {
            known.pop_front();
        }
        let at = known.partition_point(|known| known.base.from <= timeline.base.from);
        known.insert(at, timeline);
        self.0.newest.fetch_max(timeline.base.from, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::time::Duration;

    const TURN: u64 = 1 << WIRE_BITS;

    fn place(timestamp: u64, at: Instant) -> Place {
        Place { adc_sample_rate_hz: 1e6, sync_time: None, timestamp, at }
    }

    #[test]
    fn senders_in_step_get_one_base_and_others_another_one() {
        let (timelines, start) = (Timelines::default(), Instant::now());
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        timelines.note(TimeBase::default(), place(5_000_000, start));
        // In step with the first one, 10 s later and within a second.
        let found = timelines.find(&place(15_400_000, after(10)), 0).unwrap();
        assert_eq!((found.0.from, found.1), (0, 15_400_000));
        assert!(timelines.find(&place(17_000_000, after(10)), 0).is_none());
        // Two senders are restarted together, a third one 100 s later with another sync time.
        let first = timelines.restart(place(200, after(20)), TURN, (Time::unix(1), 0.2));
        let second = timelines.restart(place(400_000, after(20)), TURN, (Time::unix(2), 0.2));
        assert_eq!((first, second.from), (second, TURN));
        assert_eq!(first.sync_time, Some(Time::unix(1)));
        let third = timelines.restart(place(0, after(120)), TURN, (Time::unix(3), 0.2));
        assert_eq!((third.from, timelines.newest()), (2 * TURN, 2 * TURN));
        // It then gets the sync time of the others, but cannot go back.
        let again =
            timelines.restart(place(130_000_000, after(150)), 3 * TURN, (Time::unix(4), 0.2));
        assert_eq!(again.from, 3 * TURN);
        // The first one finds it there.
        let found = timelines.find(&place(135_000_000, after(155)), TURN + 1).unwrap();
        assert_eq!((found.0.from, found.1), (3 * TURN, 3 * TURN + 135_000_000));
    }

    #[test]
    fn streams_in_step_stay_so_over_a_wrap_and_with_other_rates_they_are_not() {
        let (timelines, start) = (Timelines::default(), Instant::now());
        timelines.note(TimeBase::default(), place(3 * TURN - 1_000_000, start));
        let later = start + Duration::from_secs(3);
        let found = timelines.find(&place(2_000_000, later), 0).unwrap();
        assert_eq!(found.1, 3 * TURN + 2_000_000);
        let other = Place { adc_sample_rate_hz: 2e6, ..place(2_000_000, later) };
        assert!(timelines.find(&other, 0).is_none());
        let other = Place { sync_time: Some(Time::unix(1)), ..place(2_000_000, later) };
        assert!(timelines.find(&other, 0).is_none());
    }

    #[test]
    fn received_stream_has_a_place_until_it_ends_and_is_no_timeline() {
        let (timelines, start) = (Timelines::default(), Instant::now());
        let received = timelines.receive();
        assert!(timelines.places().is_empty());
        received.set(Some(place(5_000_000, start)));
        assert_eq!(timelines.places()[0].timestamp, 5_000_000);
        assert!(timelines.find(&place(5_000_000, start), 0).is_none());
        received.set(None);
        assert!(timelines.places().is_empty());
        received.set(Some(place(6_000_000, start)));
        drop(received);
        assert!(timelines.places().is_empty());
    }

    #[test]
    fn number_of_timelines_is_bounded() {
        let (timelines, start) = (Timelines::default(), Instant::now());
        (0..200).for_each(|n| timelines.note(TimeBase::default(), place(n * 10_000_000, start)));
        assert_eq!(timelines.known().len(), KEPT);
    }
}
