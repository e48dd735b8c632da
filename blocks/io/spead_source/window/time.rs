//! Time of the window: its time base, which sources in step share, and its difference to the clock of the host.

use super::{Frames, Window};
use crate::io::spead_source::candidates::Candidate;
use crate::io::spead_source::timeline::WIRE_BITS;
use fxgraph::runtime::EventKind;
use fxgraph::time::SECOND_PICOSECONDS;
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
/// Largest difference, in seconds, of a measured sync time to a whole second that is taken for it.
const WHOLE_SECOND: f64 = 0.25;

/// Comparison of the stream with the clock of the host.
#[derive(Default)]
pub(super) struct Comparison {
    checked: Option<Instant>,
    is_wrong: bool,
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
        let (timestamp, at) = candidate.first;
        let timestamp = timestamp & ((1 << WIRE_BITS) - 1);
        Some(match at {
            Some(at) => {
                let sync_time = self.measured_sync_time(timestamp, at);
                self.env.timelines.restart(self.place_at(timestamp, at), least, sync_time)
            }
            // A file is read at any rate, so its packets have no arrival time: the new sync time is unknown, and times
            // count from 1970.
            None => TimeBase { from: least, sync_time: Some(Time::default()) },
        })
    }

    /// Sync time of a sender whose heap of this timestamp arrived at `at`. A measurement has the delay of the network, so
    /// the configured sync time is kept if both agree, and a whole second is taken if the configured one is whole.
    fn measured_sync_time(&self, timestamp: u64, at: Instant) -> Time {
        let rate = self.options.adc_sample_rate_hz;
        // A heap is sent after its last sample.
        let sent = Time::picoseconds_of(timestamp + self.layout.samples_per_heap, rate);
        let measured = sent.and_then(|sent| host_time(at).plus_picoseconds(-sent));
        let measured = measured.unwrap_or_default();
        let Some(configured) = self.options.sync_time else { return measured };
        let is_near = |time: &Time, seconds| measured.seconds_since(*time).abs() <= seconds;
        let same = Time::picoseconds_of(1 << WIRE_BITS, rate).and_then(|turn| {
            let turns = measured.picoseconds_since(configured) + turn / 2;
            configured.plus_picoseconds(turns.div_euclid(turn) * turn)
        });
        let (seconds, picoseconds) = measured.to_unix();
        let rounded = seconds + i64::from(picoseconds >= SECOND_PICOSECONDS / 2);
        let whole = Time::from_unix(rounded, 0).filter(|_| configured.to_unix().1 == 0);
        let same = same.filter(|time| is_near(time, SAME_SYNC_SECONDS));
        same.or(whole.filter(|time| is_near(time, WHOLE_SECOND))).unwrap_or(measured)
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
        let comparison = &mut self.comparison;
        if ahead.abs() <= RIGHT_SECONDS {
            comparison.is_wrong = false;
        } else if ahead.abs() > WRONG_SECONDS && !comparison.is_wrong {
            comparison.is_wrong = true;
            let side = if ahead > 0.0 { "ahead of" } else { "behind" };
            let text = format!(
                "the stream, with the sync time {sync}, is {:.1} s {side} the clock of this host: check \
                 `sync_time_seconds`, the clock of the host, and the sender",
                ahead.abs()
            );
            self.env.events.add(EventKind::Warning, text);
        }
    }
}
