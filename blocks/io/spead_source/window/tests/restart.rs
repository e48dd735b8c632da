//! Gaps, wraps and restarts of the stream.

use super::*;
use fxgraph::Env;
use fxgraph::Time;
use std::time::{SystemTime, UNIX_EPOCH};

#[test]
fn outage_counts_every_heap_as_missing() {
    // Longer than the window, and up to its length.
    for (from, to) in [(500, 1000), (501, 1002), (503, 1001), (500, 520), (499, 506)] {
        let mut live = Live::new(4);
        live.stream(0..from);
        live.millis += to - from;
        live.stream(to..1500);
        let handed_on = live.handed_on().len() as u64;
        assert_eq!(live.count("window_jumps"), u64::from(to > 600), "{from}..{to}");
        assert_eq!(live.count("heaps_missing"), 1500 - handed_on, "{from}..{to}");
        assert_eq!(live.count("heaps_received"), handed_on, "{from}..{to}");
    }
}

#[test]
fn timestamp_wrap_keeps_frame_timestamps_growing() {
    let wrap = (1 << 48) / STEP;
    for start in [wrap - 4, wrap - 8, wrap - 200] {
        let mut live = Live::new(4);
        live.stream(start..wrap + 200);
        assert_eq!(live.handed_on(), (start..wrap + 200).collect::<Vec<_>>());
        let losses = live.counters.list();
        assert!(losses.iter().filter(|c| c.is_loss).all(|c| c.counter.get() == 0));
    }
}

#[test]
fn gap_of_minutes_over_the_wrap_drops_no_heap() {
    let wrap = (1 << 48) / STEP;
    for start in [1000, wrap - 1000] {
        let mut live = Live::new(4);
        live.stream(start..start + 100);
        live.millis += 300_000;
        let after = start + 300_100;
        live.stream(after..after + 100);
        let expected = (start..start + 100).chain(after..after + 100);
        assert_eq!(live.handed_on(), expected.collect::<Vec<_>>());
        assert_eq!(live.count("window_jumps"), 1);
        // Longer than the longest gap whose heaps count as missing.
        assert_eq!((live.count("time_jumps"), live.count("heaps_missing")), (1, 0));
    }
}

#[test]
fn gap_in_a_file_is_crossed_on_more_evidence() {
    let env = Env::detached("in");
    let counters = env.counters.clone();
    let mut window = Window::new(digitiser(), Options::new(4, RATE), &env);
    let mut desk = Desk::new(&digitiser(), 64);
    for h in (0..40).chain(4000..4100) {
        window.datagram(&heap(h), FROM, &mut desk);
    }
    assert_eq!(count(&counters, "window_jumps"), 1);
    window.flush(&mut desk);
    assert_eq!(count(&counters, "packets_too_far_ahead"), 0);
    assert_eq!(count(&counters, "heaps_missing"), 4000 - 40);
}

#[test]
fn stream_that_leaps_ahead_is_followed_once_its_old_time_is_silent() {
    let mut live = Live::new(4);
    live.stream(0..100);
    live.stream(1_000_000..1_001_000);
    // With another time base.
    let after = TURN + 1_000_000..TURN + 1_001_000;
    assert_eq!(live.handed_on(), (0..100).chain(after).collect::<Vec<_>>());
    assert_eq!(live.count("packets_too_far_ahead"), 0);
    assert_eq!((live.count("resyncs"), live.count("heaps_missing")), (1, 0));
}

#[test]
fn restart_continues_in_the_next_turn_and_drops_no_heap() {
    // Back in time, within the first second, with a pause, and twice.
    for (before, pause) in [(5000..10_000, 0), (5000..5400, 0), (5000..5400, 3000)] {
        let mut live = Live::new(4);
        live.stream(before.clone());
        live.millis += pause;
        live.stream(0..3000);
        live.millis += pause;
        live.stream(8..2000);
        let expected = before.chain(TURN..TURN + 3000).chain(2 * TURN + 8..2 * TURN + 2000);
        assert_eq!(live.handed_on(), expected.collect::<Vec<_>>());
        assert_eq!((live.count("resyncs"), live.count("heaps_missing")), (2, 0));
        assert_eq!(live.count("packets_too_late"), 0);
    }
}

#[test]
fn sync_time_after_the_restart_of_an_old_stream_is_that_of_its_timestamp_on_the_wire() {
    // So old that a timestamp of 0 is nearer ahead than behind.
    let old = TURN / 4 * 3;
    let mut live = Live::new(4);
    live.stream(old..old + 500);
    live.stream(0..3000);
    assert_eq!(live.count("resyncs"), 1);
    let gauges = live.counters.gauges();
    let sync_time = gauges.iter().find(|gauge| gauge.name.contains("sync_time")).unwrap();
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((sync_time.gauge.get().unwrap() - unix).abs() < 60.0, "{sync_time:?}");
}

#[test]
fn restart_within_the_window_counts_as_a_restart() {
    // A slow stream has a window of many seconds.
    let mut live = Live::new(2048);
    live.stream(5000..5400);
    live.millis += 1200;
    live.stream(0..3000);
    assert_eq!(live.handed_on(), (5000..5400).chain(TURN..TURN + 3000).collect::<Vec<_>>());
    assert_eq!((live.count("resyncs"), live.count("packets_too_late")), (1, 0));
}

#[test]
fn restart_just_before_the_end_of_the_stream_is_sent() {
    let mut live = Live::new(4);
    live.stream(5000..10_000);
    live.millis += 300;
    live.stream(0..10);
    assert_eq!(live.handed_on(), (5000..10_000).chain(TURN..TURN + 10).collect::<Vec<_>>());
}

#[test]
fn restart_ends_the_stream_with_stop() {
    let mut live = Live::new(4);
    live.window.options.resyncs = false;
    live.stream(5000..10_000);
    let outcomes = live.stream(0..2000);
    let held = outcomes.iter().take_while(|o| matches!(o, Outcome::Held { .. })).count();
    // The stream must be silent for a quarter of a second.
    assert_eq!(held, 249);
    assert!(matches!(outcomes[held], Outcome::Restarted { .. }), "{:?}", outcomes[held]);
    assert_eq!(live.handed_on(), (5000..10_000).collect::<Vec<_>>());
}

#[test]
fn restart_of_all_f_engines_drops_no_heap() {
    let env = Env::detached("in");
    let mut window = Window::new(f_engine(), Options::new(4, RATE), &env);
    let mut desk = Desk::new(&f_engine(), 2000);
    let start = Instant::now();
    let mut millis = 0;
    for first in [700, 20, 100] {
        millis += 2000;
        for number in first..first + 100 {
            millis += 1;
            window.tick(start + Duration::from_millis(millis));
            for antenna in 0..3 {
                // F-engines that start again send from other ports.
                let port = (1000 + first + antenna) as u16;
                let sender = Endpoint::v4(Ipv4Addr::LOCALHOST, port);
                for channel in [8, 12] {
                    let heap = voltages(number, antenna, channel, 0, &[1; HEAP]);
                    window.datagram(&heap, sender, &mut desk);
                }
            }
        }
    }
    window.flush(&mut desk);
    let heaps: Vec<u64> = desk.out.iter().map(|frame| frame.header().timestamp / STEP).collect();
    let expected = (700..800).chain(TURN + 20..TURN + 120).chain(2 * TURN + 100..2 * TURN + 200);
    assert_eq!(heaps, expected.collect::<Vec<_>>());
    assert!(desk.out.iter().all(|frame| frame.header().validity == [1; 3]));
    assert_eq!(count(&env.counters, "resyncs"), 2);
}

#[test]
fn restart_of_one_f_engine_does_not_affect_the_others() {
    let env = Env::detached("in");
    let mut window = Window::new(f_engine(), Options::new(4, RATE), &env);
    let mut desk = Desk::new(&f_engine(), 2000);
    let start = Instant::now();
    for number in 0..1000 {
        window.tick(start + Duration::from_millis(number));
        for antenna in 0..3 {
            let number = if antenna == 2 { number % 500 } else { number } + 3000;
            for channel in [8, 12] {
                let heap = voltages(number, antenna, channel, 0, &[1; HEAP]);
                window.datagram(&heap, FROM, &mut desk);
            }
        }
    }
    window.flush(&mut desk);
    assert_eq!(desk.out.len(), 1000);
    assert!(desk.out.iter().all(|frame| frame.header().validity[..2] == [1; 2]));
    assert_eq!(count(&env.counters, "resyncs"), 0);
    assert_eq!(count(&env.counters, "packets_too_late"), 2 * 500);
}

#[test]
fn short_part_of_a_stream_before_a_pause_is_kept() {
    for part in [1, 3, 4, 100] {
        let env = Env::detached("in");
        let layout = Layout { heaps_per_frame: 256, ..digitiser() };
        let mut live = Live::new(4);
        live.window = Window::new(layout, Options::new(4, RATE), &env);
        live.desk = Desk::new(&layout, 100);
        live.stream(1000..1000 + part);
        live.millis += 20_000;
        live.stream(21_000 + part..22_000);
        let expected = (1000..1000 + part).chain(21_000 + part..22_000);
        assert_eq!(live.handed_on(), expected.collect::<Vec<_>>());
        assert_eq!(count(&env.counters, "heaps_unexpected"), 0);
    }
}

#[test]
fn first_frame_after_a_gap_does_not_wait_for_heaps_of_the_gap() {
    let mut live = Live::new(16);
    live.stream(1002..1100);
    live.millis += 20_000;
    // From the middle of a frame to the middle of another.
    live.stream(21_102..21_110);
    let last = live.desk.out.last().unwrap();
    assert_eq!(last.header().timestamp / STEP, 21_104);
    assert_eq!(live.desk.out[0].header().validity, [0, 0, 1, 1]);
    assert_eq!(live.handed_on(), (1002..1100).chain(21_102..21_110).collect::<Vec<_>>());
}

#[test]
fn time_jump_is_counted_once_without_missing_heaps() {
    let mut live = Live::new(4);
    live.stream(0..1000);
    live.stream(1 << 41..(1 << 41) + 1000);
    let after = TURN + (1 << 41)..TURN + (1 << 41) + 1000;
    assert_eq!(live.handed_on(), (0..1000).chain(after).collect::<Vec<_>>());
    assert_eq!((live.count("heaps_missing"), live.count("resyncs")), (0, 1));
}

#[test]
fn takeover_by_another_host_drops_no_heap() {
    // After a pause, with packets later or earlier than those of the previous host.
    for (pause, lead) in [(0, 0), (0, 1), (0, 6), (20, 0), (100, 0), (100, 3), (3000, 0), (20, -10)]
    {
        for heaps in [1, HEAPS, 64] {
            let layout = Layout { heaps_per_frame: heaps, ..digitiser() };
            let mut live = Live::of(layout, Options::new(16, RATE));
            live.stream(1000..2000);
            live.millis += pause;
            let first = (2000 + pause).saturating_add_signed(lead).max(2000);
            let end = first + 3000;
            for number in first..end {
                live.millis += 1;
                live.heap_from(FOREIGN, number);
            }
            assert!(live.window.senders().is_current(FOREIGN));
            let expected = (1000..2000).chain(first..end);
            assert_eq!(live.handed_on(), expected.collect::<Vec<_>>(), "{pause} {lead} {heaps}");
            assert_eq!(live.count("resyncs"), 0);
        }
    }
}

#[test]
fn replacement_of_an_f_engine_drops_no_heap() {
    // The new F-engine is ahead of the others, and behind them.
    for lead in [0, 5, -3] {
        let env = Env::detached("in");
        let mut window = Window::new(f_engine(), Options::new(16, RATE), &env);
        let mut desk = Desk::new(&f_engine(), 3000);
        let start = Instant::now();
        for number in 0..2000_u64 {
            window.tick(start + Duration::from_millis(number));
            for antenna in (0..3).filter(|antenna| *antenna != 2 || number >= 3) {
                let is_new = antenna == 2 && number >= 500;
                let port = if is_new { 99 } else { antenna as u16 };
                let sender = Endpoint::v4(Ipv4Addr::LOCALHOST, port);
                let lead = if antenna == 2 { lead } else { 0 };
                let number = 3000 + number.saturating_add_signed(lead);
                for channel in [8, 12] {
                    let heap = voltages(number, antenna, channel, 0, &[1; HEAP]);
                    window.datagram(&heap, sender, &mut desk);
                }
            }
        }
        window.flush(&mut desk);
        let whole = desk.out.iter().filter(|frame| frame.header().validity == [1; 3]).count();
        let late = count(&env.counters, "packets_too_late");
        let complete = if lead < 0 { 2000 + lead } else { 1997 - lead };
        assert_eq!((whole as i64, late), (complete, 0), "lead {lead}");
    }
}

#[test]
fn stream_older_than_a_turn_begins_at_real_time() {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let turn_seconds = (1_u64 << 48) as f64 / RATE;
    for turns in [0.25, 3.25, 2.999_999_999_9, 3.0] {
        let sync_time = Time::from_unix_f64(unix - turns * turn_seconds);
        let options = Options { sync_time, ..Options::new(4, RATE) };
        let mut live = Live::of(digitiser(), options);
        let first = (turns * TURN as f64) as u64 / 64 * 64 + 7;
        live.stream(first..first + 300);
        assert_eq!(live.handed_on(), (first..first + 300).collect::<Vec<_>>(), "{turns}");
        // A stream with another sync time, and one that was restarted.
        let mut live = Live::of(digitiser(), options);
        live.stream(1 << 30..(1 << 30) + 300);
        live.millis += 2000;
        live.stream(16..300);
        // The turn nearest to the present one, and the next one after the restart.
        let turn = (turns - (1_u64 << 30) as f64 / TURN as f64).round() as u64;
        let (before, after) = (turn * TURN + (1 << 30), (turn + 1) * TURN);
        let expected = (before..before + 300).chain(after + 16..after + 300);
        assert_eq!(live.handed_on(), expected.collect::<Vec<_>>(), "{turns}");
    }
}
