//! Time bases: after restarts, of sources in step, and against the clock of the host.

use super::*;
use fxgraph::event::{BlockEvents, EventKind, Events};
use fxgraph::{Time, TimeBase};

/// Seconds of a turn of timestamps on the wire.
const TURN_SECONDS: f64 = (1_u64 << 48) as f64 / RATE;

fn unix() -> f64 {
    Time::now().to_unix_f64()
}

/// A source of the flowgraph of `env`, whose window has 4 frames.
fn source(env: &Env, sync_time_seconds: Option<f64>) -> Live {
    let own = Env { counters: Counters::default(), ..env.clone() };
    let sync_time = sync_time_seconds.and_then(Time::from_unix_f64);
    let options = Options { sync_time, ..Options::new(4, RATE) };
    Live {
        window: Window::new(digitiser(), options, &own),
        desk: Desk::new(&digitiser(), 10_000),
        counters: own.counters,
        start: Instant::now(),
        millis: 0,
    }
}

impl Live {
    /// Sends a heap each millisecond, and keeps the time as the receiving thread does.
    fn timed_stream(&mut self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.stream(number..number + 1);
            self.window.keep_time(&mut self.desk);
        }
    }

    /// Timestamps of the frames, in heaps, with their bases.
    fn bases(&mut self) -> Vec<(u64, TimeBase)> {
        self.window.flush(&mut self.desk);
        let place = |frame: &FrameMut| (frame.header().timestamp / STEP, frame.header().base);
        self.desk.out.iter().map(place).collect()
    }

    fn gauge(&self, name: &str) -> f64 {
        let gauges = self.counters.gauges();
        gauges.iter().find(|gauge| gauge.name == name).unwrap().gauge.get().unwrap()
    }
}

#[test]
fn frames_after_a_restart_have_a_base_whose_sync_time_gives_their_time() {
    let began = unix();
    // A sender that was synchronised at a whole second, 20 s before the restart is seen.
    let sync_time = (began - 1000.0).floor();
    let mut live = source(&Env::detached("in"), Some(sync_time));
    let first = ((began - sync_time) * 1000.0) as u64;
    live.timed_stream(first..first + 1000);
    live.millis += 2000;
    // It then counts from a whole second, too: heap 20000 is sent 20 s after that.
    let new_sync = (began - 17.0).floor();
    let second = ((began + 3.0 - new_sync) * 1000.0) as u64;
    live.timed_stream(second..second + 1000);
    let bases = live.bases();
    let (before, after): (Vec<_>, Vec<_>) = bases.iter().partition(|(heap, _)| *heap < TURN);
    assert!(before.iter().all(|(_, base)| *base == TimeBase::default()) && before.len() > 200);
    assert!(after.len() > 200);
    for (heap, base) in after {
        assert_eq!(base.from, TURN * STEP);
        let time = base.sync_time.unwrap().to_unix_f64() + (heap * STEP - base.from) as f64 / RATE;
        let expected = new_sync + (heap - TURN) as f64 * STEP as f64 / RATE;
        assert!((time - expected).abs() < 1e-4, "{time} {expected}");
    }
}

#[test]
fn sync_time_of_a_sender_off_the_second_is_measured_with_its_uncertainty() {
    let began = unix();
    let sync_time = began - 1000.0 + 0.123;
    let mut live = source(&Env::detached("in"), Some(sync_time));
    let first = ((began - sync_time) * 1000.0) as u64;
    live.timed_stream(first..first + 1000);
    // The first 40 heaps after the restart wait in a buffer, for up to 40 ms; the others arrive in time.
    live.millis += 2039;
    for heap in 0..40 {
        live.heap(heap);
    }
    live.timed_stream(40..2000);
    let (_, base) = live.bases().pop().unwrap();
    // Heap 0 began 3 s after the start of the source.
    let expected = unix() - live.start.elapsed().as_secs_f64() + 3.0;
    let late = base.sync_time.unwrap().to_unix_f64() - expected;
    assert!((-0.002..0.2).contains(&late), "{late}");
    let uncertainty = base.uncertainty_seconds;
    assert!((0.25..1.5).contains(&uncertainty) && late.abs() < uncertainty, "{uncertainty}");
    assert!((live.gauge("sync_time_uncertainty_seconds") - uncertainty).abs() < 1e-12);
}

#[test]
fn sources_in_step_agree_although_one_saw_foreign_heaps_first() {
    for sync_time in [None, Some(unix() - 3.3 * TURN_SECONDS)] {
        let env = Env::detached("in");
        let (mut clean, mut fooled) = (source(&env, sync_time), source(&env, sync_time));
        let first = (0.3 * TURN as f64) as u64 / 64 * 64 + 7;
        // A foreign sender is alone at first, with timestamps of another time.
        fooled.timed_stream(first + 1_000_000..first + 1_000_020);
        clean.millis = fooled.millis;
        let (mut at, end) = (first, first + 6000);
        while at < end {
            clean.timed_stream(at..at + 50);
            fooled.timed_stream(at..at + 50);
            at += 50;
        }
        let (clean, fooled) = (clean.bases(), fooled.bases());
        let places = |list: &[(u64, TimeBase)]| -> Vec<(u64, u64)> {
            list.iter().map(|(heap, base)| (*heap, base.from)).collect()
        };
        let (clean, fooled) = (places(&clean), places(&fooled));
        // From the change of the second source on, which is seen within some 0.1 s, all frames pair.
        let changed = fooled.iter().position(|(_, from)| *from > 0).unwrap();
        let late = &fooled[changed + 200..];
        assert!(late.len() > 500, "{}", late.len());
        assert!(late.iter().all(|place| clean.contains(place)), "{sync_time:?} {late:?}");
        // No frame of the first source was dropped.
        assert_eq!(clean.len() as u64, 6000 / HEAPS as u64 + 1);
    }
}

#[test]
fn source_that_starts_later_joins_the_time_of_the_others() {
    let env = Env::detached("in");
    let mut first = source(&env, None);
    // Over a wrap, then a restart.
    first.timed_stream(TURN - 3000..TURN + 2000);
    first.timed_stream(0..3000);
    let mut late = source(&env, None);
    (late.start, late.millis) = (first.start, first.millis);
    first.timed_stream(3000..4000);
    late.timed_stream(3000..4000);
    let (first, late) = (first.bases(), late.bases());
    assert_eq!(late.first().unwrap().0, 2 * TURN + 3000);
    assert!(late.iter().all(|place| first.contains(place)), "{:?}", &late[..3]);
}

#[test]
fn sender_with_another_sync_time_keeps_its_own_base() {
    let env = Env::detached("in");
    let (mut one, mut other) = (source(&env, None), source(&env, None));
    for start in [0, 2000] {
        one.timed_stream(start..start + 2000);
        other.timed_stream(start..start + 2000);
    }
    // Only one of the senders is restarted; the other one goes on.
    one.timed_stream(0..3000);
    other.timed_stream(4000..7000);
    let (one, other) = (one.bases(), other.bases());
    assert!(other.iter().all(|(_, base)| *base == TimeBase::default()));
    assert_eq!(one.last().unwrap().1.from, TURN * STEP);
}

#[test]
fn disagreement_with_the_clock_of_the_host_is_reported_once() {
    for (wrong_seconds, reports) in [(0.0, 0), (120.0, 1), (-5.0, 1)] {
        let events = Arc::new(Events::default());
        let env = Env { events: BlockEvents::default(), ..Env::detached("in") };
        env.events.redirect(Some((Arc::clone(&events), "in".to_owned())));
        // Older than a turn: the turn is found although the clock is minutes off. SI seconds: leap seconds count.
        let sync_time = Time::now().plus_seconds(-1.25 * TURN_SECONDS - wrong_seconds).unwrap();
        let mut live = source(&env, None);
        live.window = {
            let options = Options { sync_time: Some(sync_time), ..Options::new(4, RATE) };
            let own = Env { counters: live.counters.clone(), ..env.clone() };
            Window::new(digitiser(), options, &own)
        };
        let first = (1.25 * TURN as f64) as u64;
        live.timed_stream(first..first + 1000);
        assert_eq!(live.bases()[0].0 / HEAPS as u64, first / HEAPS as u64);
        assert!((live.gauge("clock_difference_seconds") + wrong_seconds).abs() < 1.5);
        let is_warning = |event: &&fxgraph::event::Event| event.kind == EventKind::Warning;
        assert_eq!(events.since(0).iter().filter(is_warning).count(), reports, "{wrong_seconds}");
    }
}
