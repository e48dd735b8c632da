//! Time of the window: its time base, which sources in step share, and its difference to the clock of the host.

use super::{Frames, Window};
use crate::io::spead_source::candidates::Candidate;
use crate::io::spead_source::timeline::WIRE_BITS;
use fxgraph::host_clock;
use fxgraph::runtime::EventKind;
use fxgraph::timelines::Place;
use fxgraph::{Clock, Time, TimeBase};
use std::time::{Duration, Instant};

/// Time between two comparisons with other sources and with the clock of the host.
const CHECKED: Duration = Duration::from_millis(100);
/// Age of data up to which they show the present place of the stream.
const FRESH: Duration = Duration::from_secs(1);
/// Differences between the stream and the clock of the host, in seconds: the larger one is reported, and again after
/// the difference was below the smaller one. Packets wait in buffers for less.
const WRONG_SECONDS: f64 = 2.0;
const RIGHT_SECONDS: f64 = 1.0;
/// Largest difference, in seconds, of a measured sync time and the configured one, if both are the same.
const SAME_SYNC_SECONDS: f64 = 1.0;
/// Largest delay, in seconds, of a sender, the network and the buffers that a measured sync time is taken to have. Arrival
/// times alone do not show a delay that all packets have.
const DELAY_SECONDS: f64 = 0.25;

/// Comparison of the stream with the clock of the host.
#[derive(Default)]
pub(super) struct Comparison {
    checked: Option<Instant>,
    is_wrong: bool,
    /// Whether the stream is ahead of the clock by more than a measured sync time allows.
    is_too_late: bool,
    /// Time, in seconds, by which the stream was ahead of the clock of the host at last, with a sync time that was given.
    ahead_seconds: Option<f64>,
}

impl Comparison {
    /// Largest error of the clock of the host, in seconds: as the kernel knows it or, if less, as the stream showed with a
    /// sync time that was given. Infinite if neither is known.
    fn clock_error_seconds(&self) -> f64 {
        let of_kernel = host_clock::error_seconds();
        let of_stream = self.ahead_seconds.map(f64::abs);
        of_kernel.into_iter().chain(of_stream).fold(f64::INFINITY, f64::min)
    }
}

/// Arrivals of packets of a sender against their timestamps.
#[derive(Debug, PartialEq)]
struct Arrivals {
    /// Timestamp of the packet with the least delay, and its arrival time. It goes on beyond 2^48 where the packets do.
    earliest: (u64, Instant),
    /// Difference of the least delays of the first and the second half of the packets, in seconds: the least delay may be
    /// larger than that of the network by as much.
    scatter_seconds: f64,
}

impl Arrivals {
    /// Compares packets, as timestamp on the wire and arrival time in the order of arrival; `None` without any.
    fn new(packets: &[(u64, Instant)], adc_sample_rate_hz: f64) -> Option<Self> {
        let (from, began) = *packets.first()?;
        let delay = |&(timestamp, at): &(u64, Instant)| {
            let unused = u64::BITS - WIRE_BITS;
            let samples = (timestamp.wrapping_sub(from) << unused).cast_signed() >> unused;
            let passed = at.saturating_duration_since(began).as_secs_f64();
            let packet = (from.saturating_add_signed(samples), at);
            (passed - samples as f64 / adc_sample_rate_hz, packet)
        };
        let least = |packets: &[(u64, Instant)]| {
            packets.iter().map(delay).min_by(|(a, _), (b, _)| a.total_cmp(b))
        };
        let (first, second) = packets.split_at(packets.len() / 2);
        let (_, earliest) = least(packets)?;
        let both = least(first).zip(least(second));
        let scatter_seconds = both.map_or(0.0, |((a, _), (b, _))| (a - b).abs());
        Some(Self { earliest, scatter_seconds })
    }
}

/// Returns the only whole second from `early` to `late` seconds around `measured`; `None` if there is none, or several.
fn only_second(measured: Time, early: f64, late: f64) -> Option<Time> {
    let first = measured.plus_seconds(-early)?;
    let (seconds, picoseconds) = first.to_unix();
    let second = |n| Time::from_unix(seconds + i64::from(picoseconds > 0) + n, 0);
    let is_inside = |time: &Time| time.seconds_since(measured) <= late;
    second(0).filter(is_inside).filter(|_| !second(1).is_some_and(|next| is_inside(&next)))
}

/// Time of the clock of the host at `at`.
fn host_time(at: Instant) -> Time {
    let now = Instant::now();
    let ago = now.saturating_duration_since(at).as_secs_f64();
    let ahead = at.saturating_duration_since(now).as_secs_f64();
    Time::now().plus_seconds(ahead - ago).unwrap_or_default()
}

impl Window {
    fn place_at(&self, timestamp: u64, at: Instant) -> Place {
        let Self { options, .. } = self;
        Place {
            adc_sample_rate_hz: options.adc_sample_rate_hz,
            sync_time: options.sync_time,
            timestamp,
            at,
        }
    }

    /// Begins the stream of `candidate` on the timeline of another source that is in step, if there is one.
    pub(super) fn join(&mut self, candidate: &mut Candidate) {
        let (timestamp, Some(at)) = candidate.first else { return };
        let found = self.env.timelines.find(&self.place_at(timestamp, at), 0);
        let Some((base, full)) =
            found.filter(|(base, full)| full - base.from != timestamp || base.from > 0)
        else {
            return;
        };
        self.timeline.start_again(base, Some((at, full - base.from)));
        self.show_sync_time();
        candidate.lowest = self.lowest_of(candidate);
        let mut others = std::mem::take(&mut self.candidates.list);
        others.iter_mut().for_each(|other| other.lowest = self.lowest_of(other));
        self.candidates.list = others;
    }

    /// Time base of the stream after a restart of its sender, which `candidate` shows; `None` if timestamps have no
    /// room for it.
    pub(super) fn base_after_restart(&self, candidate: &Candidate) -> Option<TimeBase> {
        let least = self.timeline.next_origin()?;
        let packets = candidate.arrivals().filter_map(|(datagram, _, at)| {
            let timestamp = self.place(datagram)?.1.timestamp & ((1 << WIRE_BITS) - 1);
            Some((timestamp, at?))
        });
        let packets: Vec<_> = packets.collect();
        let Some(arrivals) = Arrivals::new(&packets, self.options.adc_sample_rate_hz) else {
            // A file is read at any rate, so its packets have no arrival time: the new sync time is unknown, and times
            // count from 1970.
            let (sync_time, uncertainty_seconds) = (Some(Time::default()), f64::INFINITY);
            return Some(TimeBase { from: least, sync_time, uncertainty_seconds });
        };
        let (timestamp, at) = arrivals.earliest;
        let sync_time = self.measured_sync_time(&arrivals);
        Some(self.env.timelines.restart(self.place_at(timestamp, at), least, sync_time))
    }

    /// Sync time of a sender whose packets arrived so, and its largest error in seconds. It is early by at most the error
    /// of the clock of the host, and late by that and the delay of the packets: the configured sync time is kept if both
    /// agree and, if the configured one is a whole second, the only whole second within the uncertainty is taken.
    fn measured_sync_time(&self, arrivals: &Arrivals) -> (Time, f64) {
        let (timestamp, at) = arrivals.earliest;
        let rate = self.options.adc_sample_rate_hz;
        // A heap is sent after its last sample.
        let sent = Time::picoseconds_of(timestamp + self.layout.samples_per_heap, rate);
        let measured = sent.and_then(|sent| host_time(at).plus_picoseconds(-sent));
        let measured = measured.unwrap_or_default();
        let early = self.comparison.clock_error_seconds();
        let late = early + DELAY_SECONDS.max(2.0 * arrivals.scatter_seconds);
        let Some(configured) = self.options.sync_time else { return (measured, late) };
        let same = Time::picoseconds_of(1 << WIRE_BITS, rate).and_then(|turn| {
            let turns = measured.picoseconds_since(configured) + turn / 2;
            configured.plus_picoseconds(turns.div_euclid(turn) * turn)
        });
        let is_near = |time: &Time| measured.seconds_since(*time).abs() <= SAME_SYNC_SECONDS;
        let is_whole = configured.to_unix().1 == 0;
        let whole = || only_second(measured, late, early).filter(|_| is_whole);
        let exact = same.filter(is_near).or_else(whole);
        exact.map_or((measured, late), |time| (time, 0.0))
    }

    /// Sync time of the sender in the present time base, if known.
    pub(super) fn sync_time(&self) -> Option<Time> {
        let of_base = self.timeline.time_base.sync_time.or(self.options.sync_time);
        of_base.filter(|time| *time != Time::default())
    }

    /// Shows the sync time after a change of the time base, and uses it for the lag of the frames.
    pub(super) fn show_sync_time(&self) {
        let Some(sync_time) = self.timeline.time_base.sync_time else { return };
        self.causes.sync_time.set(sync_time.to_unix_f64());
        self.causes.sync_time_uncertainty.set(self.timeline.time_base.uncertainty_seconds);
        let real_time = self.env.counters.real_time();
        if self.timeline.now().is_some() && real_time.zero().is_some() {
            let clock = Clock::new(self.options.adc_sample_rate_hz, 1);
            let clock = clock.in_base(&self.timeline.time_base);
            real_time.set_zero(clock.sync_time.to_unix_f64());
        }
    }

    /// Compares the stream with those of other sources, whose time base it takes over if it is in step, and with the
    /// clock of the host.
    pub fn keep_time(&mut self, frames: &mut dyn Frames) {
        let (Some(now), Some(_)) = (self.timeline.now(), self.timeline.base) else { return };
        let is_due =
            self.comparison.checked.is_none_or(|at| now.saturating_duration_since(at) >= CHECKED);
        let Some(silence) = self.timeline.silence().filter(|silence| is_due && *silence <= FRESH)
        else {
            return;
        };
        self.comparison.checked = Some(now);
        // A stream that was begun, but has sent nothing yet, is no evidence.
        let Some(at) = now.checked_sub(silence).filter(|_| self.timeline.started) else { return };
        let timelines = self.env.timelines.clone();
        let least = self.timeline.next_origin().filter(|least| *least <= timelines.newest());
        if let Some(least) = least
            && let Some((base, full)) =
                timelines.find(&self.place_at(self.timeline.newest, at), least)
        {
            self.follow(base, full, frames);
        }
        let newest = self.timeline.origin() + self.timeline.newest;
        timelines.note(self.timeline.time_base, self.place_at(newest, at));
        self.compare_clocks(newest, at);
    }

    /// Takes over time base `base` of a source that is in step; `full` is the newest timestamp in it.
    fn follow(&mut self, base: TimeBase, full: u64, frames: &mut dyn Frames) {
        let ahead = i128::from(full - base.from) - i128::from(self.timeline.newest);
        if ahead != 0 {
            // Frames of the new base may begin at other samples.
            self.pass_on_all(frames);
            self.gap = 0;
        }
        let before = self.timeline.origin() + self.timeline.newest;
        self.timeline.change_base(base, ahead);
        self.show_sync_time();
        let text = format!(
            "the timestamps continue at {full} after {before}, as those of another source of the same stream, which \
             began another time base"
        );
        self.env.events.add(EventKind::Resynchronised, text);
    }

    fn compare_clocks(&mut self, newest: u64, at: Instant) {
        let since = newest - self.timeline.origin();
        let Some(sync) = self.sync_time() else { return };
        let Some(time) = sync.plus_samples(since, self.options.adc_sample_rate_hz) else { return };
        let ahead = time.seconds_since(host_time(at));
        self.causes.clock_difference.set(ahead);
        let uncertainty = self.timeline.time_base.uncertainty_seconds;
        let comparison = &mut self.comparison;
        if uncertainty == 0.0 {
            comparison.ahead_seconds = Some(ahead);
        }
        // Packets that are ahead of the clock were sent before the measured sync time allows it.
        let is_limited = uncertainty > 0.0 && uncertainty < WRONG_SECONDS;
        let before = (comparison.is_wrong, comparison.is_too_late);
        let (wrong, too_late) = (
            if before.0 { RIGHT_SECONDS } else { WRONG_SECONDS },
            if before.1 { uncertainty / 2.0 } else { uncertainty },
        );
        comparison.is_wrong = ahead.abs() > wrong;
        comparison.is_too_late = is_limited && ahead > too_late;
        if comparison.is_wrong && !before.0 || comparison.is_too_late && !before.1 {
            let side = if ahead > 0.0 { "ahead of" } else { "behind" };
            let measured = self.timeline.time_base.uncertainty().map_or_else(String::new, |text| {
                format!(", measured after the restart of the sender and {text},")
            });
            let text = format!(
                "the stream, with the sync time {sync}{measured} is {:.1} s {side} the clock of this host: check \
                 `sync_time_seconds`, the clock of the host, and the sender",
                ahead.abs()
            );
            self.env.events.add(EventKind::Warning, text);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Samples per second.
    const RATE: f64 = 1e6;

    /// Packets of 1000 samples from the timestamp `first` on that arrive after these delays, in milliseconds.
    fn packets(first: u64, delays: &[u64]) -> Vec<(u64, Instant)> {
        let start = Instant::now();
        let packet = |(number, delay): (usize, &u64)| {
            let number = number as u64;
            let timestamp = (first + 1000 * number) & ((1 << WIRE_BITS) - 1);
            (timestamp, start + Duration::from_millis(number + delay))
        };
        delays.iter().enumerate().map(packet).collect()
    }

    #[test]
    fn packets_that_waited_do_not_count_for_the_sync_time() {
        // The first packets come together after 80 ms in a buffer, the others after 2 to 5 ms; over a wrap.
        let delays: Vec<u64> = (0..90).map(|n| if n < 79 { 81 - n } else { 2 + n % 4 }).collect();
        for first in [0, (1 << WIRE_BITS) - 50_000] {
            let packets = packets(first, &delays);
            let found = Arrivals::new(&packets, RATE).unwrap();
            let (timestamp, at) = packets[80];
            // The timeline goes on over the wrap, too.
            let turn = if timestamp < first { 1 << WIRE_BITS } else { 0 };
            assert_eq!(found.earliest, (timestamp + turn, at));
            assert!((found.scatter_seconds - 0.035).abs() < 1e-3, "{found:?}");
        }
        assert_eq!(Arrivals::new(&[], RATE), None);
        assert!(Arrivals::new(&packets(7, &[3]), RATE).unwrap().scatter_seconds.abs() < 1e-12);
    }

    #[test]
    fn whole_second_is_taken_only_if_it_is_the_only_one_within_the_uncertainty() {
        let measured =
            |milliseconds: u64| Time::from_unix(1_700_000_000, milliseconds * 1_000_000_000);
        let second = |milliseconds, early, late| {
            let found = only_second(measured(milliseconds).unwrap(), early, late);
            found.map(|time| time.to_unix().0 - 1_700_000_000)
        };
        // A delay of 0.1 s, with the clock of the host right to 10 ms.
        assert_eq!(second(100, 0.26, 0.01), Some(0));
        // No packet arrives before it was sent: 0.2 s before a second is not that second.
        assert_eq!(second(800, 0.26, 0.01), None);
        assert_eq!((second(995, 0.26, 0.01), second(0, 0.26, 0.01)), (Some(1), Some(0)));
        // A clock that may be wrong by a second shows none; one of unknown error neither.
        assert_eq!(second(100, 1.25, 1.0), None);
        assert_eq!(second(100, f64::INFINITY, f64::INFINITY), None);
    }
}
