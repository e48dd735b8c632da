//! Packets that do not belong to the stream, or not to its present time.

use super::*;

#[test]
fn foreign_packets_do_not_move_the_window_while_the_stream_continues() {
    let mut live = Live::new(4);
    for h in 400..800 {
        live.stream(h..h + 1);
        // Ever longer runs, far ahead and far behind.
        for unexpected in 0..(h - 400) {
            live.heap((1 << 35) + h * 500 + unexpected);
            live.heap(unexpected);
        }
    }
    assert_eq!(live.handed_on(), (400..800).collect::<Vec<_>>());
    assert_eq!(live.count("window_jumps"), 0);
    let counted = ["packets_too_far_ahead", "packets_too_late", "heaps_unexpected"];
    let foreign: u64 = counted.iter().map(|name| live.count(name)).sum();
    // At the start the counter counts heaps, of which some came twice.
    assert!((158_000..=400 * 399).contains(&foreign), "{foreign} foreign");
    assert_eq!(live.count("heaps_missing"), 0);
}

#[test]
fn foreign_packets_in_a_pause_need_many_packets_of_several_heaps() {
    let mut live = Live::new(4);
    live.stream(0..100);
    live.millis += 10_000;
    for unexpected in 0..63 {
        live.heap((1 << 35) + unexpected);
    }
    live.stream(10_100..10_200);
    assert_eq!(live.handed_on(), (0..100).chain(10_100..10_200).collect::<Vec<_>>());
    assert_eq!(live.count("packets_too_far_ahead"), 63);
}

#[test]
fn foreign_first_heap_is_dropped() {
    for foreign in [1, 3] {
        let mut live = Live::new(4);
        for unexpected in 0..foreign {
            live.heap((1 << 40) + unexpected);
        }
        live.stream(400..480);
        assert_eq!(live.handed_on(), (400..480).collect::<Vec<_>>());
        assert_eq!(live.count("heaps_unexpected"), foreign);
        assert_eq!(live.count("window_jumps"), 0);
    }
}

#[test]
fn foreign_first_heap_from_the_future_does_not_admit_others() {
    let ahead = 4_000_000;
    let mut live = Live::new(4);
    live.heap(ahead);
    live.stream(0..500);
    for unexpected in 500..506 {
        live.heap(ahead + unexpected);
    }
    let outcomes = live.stream(500..3500);
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Accepted));
    assert_eq!(live.handed_on(), (0..3500).collect::<Vec<_>>());
    assert_eq!(live.count("window_jumps"), 0);
    assert_eq!(live.count("packets_too_late"), 0);
    assert_eq!(live.count("packets_too_far_ahead"), 6);
    assert_eq!(live.count("heaps_unexpected"), 1);
}

#[test]
fn packets_without_payload_are_no_evidence_of_the_stream() {
    let mut live = Live::new(4);
    for number in 4_000_000..4_000_100 {
        let empty = packet(number, 0, &[], &sample_items(number));
        assert_eq!(live.window.datagram(&empty, FROM, &mut live.desk), Outcome::Rejected);
    }
    live.stream(0..100);
    assert_eq!(live.handed_on(), (0..100).collect::<Vec<_>>());
    assert_eq!(live.count("packets_wrong_length"), 100);
}

#[test]
fn foreign_packets_in_a_pause_do_not_delay_the_stream() {
    let mut live = Live::new(4);
    live.stream(0..500);
    live.millis += 300_000;
    // Of a time in the past, so that the window moves there.
    for unexpected in 100_000..100_004 {
        live.heap(unexpected);
    }
    live.stream(300_500..301_000);
    let expected = (0..500).chain(100_000..100_004).chain(300_500..301_000);
    assert_eq!(live.handed_on(), expected.collect::<Vec<_>>());
}

#[test]
fn foreign_packet_half_a_window_ahead_drops_no_heap() {
    for ahead in 1..12 {
        let mut live = Live::new(16);
        live.stream(0..60);
        // One heap is late: the window waits for it.
        live.stream(61..64);
        for number in 64..100 {
            live.stream(number..number + 1);
            if number == 70 {
                live.heap_from(FOREIGN, number + ahead * HEAPS as u64);
            }
        }
        live.heap(60);
        live.stream(100..400);
        let foreign = 70 + ahead * HEAPS as u64;
        let mut handed_on = live.handed_on();
        handed_on.retain(|number| *number != foreign);
        let expected = (0..400).filter(|number| *number != foreign);
        assert_eq!(handed_on, expected.collect::<Vec<_>>(), "{ahead} frames ahead");
    }
}

#[test]
fn foreign_packet_beyond_a_full_window_does_not_move_it() {
    let mut live = Live::new(16);
    // Heap 41 is late, and the window is full behind it.
    live.stream(0..41);
    live.stream(42..104);
    for ahead in [3, 5, 9] {
        live.heap_from(FOREIGN, 104 + ahead * HEAPS as u64);
    }
    live.heap(41);
    live.stream(104..400);
    assert_eq!(live.handed_on(), (0..400).collect::<Vec<_>>());
    // The foreign packets, whose heaps the stream has sent by then.
    assert_eq!(live.count("packets_duplicate"), 3);
}

#[test]
fn foreign_packets_that_outnumber_the_stream_at_the_start_do_not_win() {
    // At random times, and always at the same time.
    let mut seed = 1_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 24 & ((1 << 43) - 1)
    };
    let foreign: [&mut dyn FnMut() -> u64; 2] = [&mut random, &mut || 1 << 40];
    for (case, unexpected) in foreign.into_iter().enumerate() {
        let mut live = Live::new(4);
        for number in 0..2000 {
            for _ in 0..5 {
                live.window.tick(live.start + Duration::from_millis(live.millis));
                let heap = heap(unexpected());
                live.window.datagram(&heap, FOREIGN, &mut live.desk);
            }
            live.stream(400 + number..401 + number);
        }
        assert!(live.handed_on().into_iter().eq(400..2400), "case {case}");
    }
}

#[test]
fn stream_is_followed_once_stale_heaps_that_came_first_end() {
    for stale in [4, 100, 1000] {
        let mut live = Live::new(4);
        live.stream(1_000_000..1_000_000 + stale);
        live.stream(400..2400);
        let handed_on = live.handed_on();
        let expected = (1_000_000..1_000_000 + stale).chain(TURN + 400..TURN + 2400);
        assert_eq!(handed_on, expected.collect::<Vec<_>>());
    }
}

#[test]
fn stream_at_the_rate_of_real_time_replaces_another() {
    let mut live = Live::new(4);
    // Faster than real time, from long before the stream begins until its end.
    let mut unexpected = 1 << 40;
    for number in 0..6000 {
        for _ in 0..5 {
            unexpected += 1;
            live.window.tick(live.start + Duration::from_millis(live.millis));
            live.window.datagram(&heap(unexpected), FOREIGN, &mut live.desk);
        }
        if number >= 1000 {
            live.stream(number..number + 1);
        } else {
            live.millis += 1;
        }
    }
    let handed_on = live.handed_on();
    let taken = handed_on.iter().filter(|heap| (TURN..TURN + 6000).contains(heap)).count();
    assert!(taken >= 3500, "{taken} of 5000 heaps");
}

#[test]
fn lagging_second_stream_is_counted_and_dropped() {
    let mut live = Live::new(4);
    for h in 5000..9000 {
        live.stream(h..h + 1);
        assert_ne!(live.heap(h - 4000), Outcome::Accepted);
    }
    assert_eq!(live.handed_on(), (5000..9000).collect::<Vec<_>>());
    assert_eq!(live.count("packets_too_late") + live.count("heaps_unexpected"), 4000);
    assert_eq!(live.count("resyncs"), 0);
}

#[test]
fn foreign_sender_ahead_frame_by_frame_does_not_move_the_window() {
    for steps in [1, 3, 70] {
        let mut live = Live::new(4);
        live.stream(0..100);
        let mut foreign = 100;
        for number in 100..400 {
            live.stream(number..number + 1);
            for _ in 0..steps {
                foreign = foreign.max(number) + HEAPS as u64;
                live.heap_from(FOREIGN, foreign);
            }
        }
        assert_eq!(live.handed_on(), (0..400).collect::<Vec<_>>(), "{steps} steps");
        assert_eq!(live.count("packets_too_late") + live.count("window_jumps"), 0);
    }
}

#[test]
fn foreign_burst_for_the_next_frames_does_not_move_the_window() {
    // One heap of each frame, or all heaps; foreign packets are accepted only for frames that have begun.
    for (step, end) in [(64, 1000), (1, 1024)] {
        let layout = Layout { heaps_per_frame: 64, ..digitiser() };
        let mut live = Live::of(layout, Options::new(4, RATE));
        live.stream(0..200);
        // Frame 3 ends with heap 255.
        let foreign = (200..256).chain((256..256 + 20 * 64).step_by(step));
        foreign.for_each(|number| _ = live.heap_from(FOREIGN, number));
        live.stream(200..1000);
        assert!(!live.window.senders().is_current(FOREIGN));
        assert_eq!(live.handed_on(), (0..end).collect::<Vec<_>>());
        assert_eq!(live.count("window_jumps"), 0);
    }
}

#[test]
fn second_sender_does_not_replace_the_stream_in_an_outage() {
    for resyncs in [true, false] {
        // At another time, before and after, with the pace of real time.
        for far in [0, 1_000_000_000] {
            let mut live = Live::of(digitiser(), Options { resyncs, ..Options::new(4, RATE) });
            for number in 0..3500 {
                live.millis += 1;
                if !(2000..2700).contains(&number) {
                    live.heap(1_000_000 + number);
                }
                let outcome = live.heap_from(FOREIGN, far + number);
                assert!(!matches!(outcome, Outcome::Restarted { .. }), "heap {number}");
            }
            let expected = (0..2000).chain(2700..3500).map(|number| 1_000_000 + number);
            assert_eq!(live.handed_on(), expected.collect::<Vec<_>>());
            assert_eq!(live.count("resyncs"), 0);
        }
    }
}

#[test]
fn foreign_packets_in_an_outage_do_not_end_the_stream() {
    let mut live = Live::of(digitiser(), Options { resyncs: false, ..Options::new(4, RATE) });
    live.stream(5000..7000);
    for number in 0..500 {
        live.millis += 1;
        let outcome = live.heap_from(FOREIGN, number);
        assert!(!matches!(outcome, Outcome::Restarted { .. }), "heap {number}");
    }
    live.stream(7500..8000);
    assert_eq!(live.handed_on(), (5000..7000).chain(7500..8000).collect::<Vec<_>>());
}

#[test]
fn second_sender_is_followed_after_a_long_silence_of_the_stream() {
    let mut live = Live::new(4);
    for number in 0..5000 {
        live.millis += 1;
        if number < 2000 {
            live.heap(1_000_000 + number);
        }
        live.heap_from(FOREIGN, number);
    }
    let handed_on = live.handed_on();
    let expected: Vec<u64> = (1_000_000..1_002_000).collect();
    assert_eq!(handed_on[..2000], expected);
    // Held from the last packet of the first stream on.
    assert_eq!(handed_on[2000..], (TURN + 1999..TURN + 5000).collect::<Vec<_>>());
}

#[test]
fn foreign_sender_of_another_rate_does_not_win_at_the_start() {
    // Number of foreign heaps for each number of heaps of the stream.
    for (foreign, heaps) in [(5, 1), (40, 1), (7, 5)] {
        let mut live = Live::new(4);
        let mut unexpected = 1 << 40;
        for number in 0..2000 {
            live.millis += 1;
            for _ in 0..foreign * (number + 1) / heaps - foreign * number / heaps {
                unexpected += 1;
                live.heap_from(FOREIGN, unexpected);
            }
            live.heap(400 + number);
        }
        assert_eq!(live.handed_on(), (400..2400).collect::<Vec<_>>(), "{foreign} for {heaps}");
    }
}
