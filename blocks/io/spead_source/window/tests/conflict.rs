//! Packets of two heaps with one position.

use super::*;
use fxgraph::event::Events;

/// Heap counter of foreign heaps.
const OTHER: u64 = 1 << 40;
/// Bytes of a packet.
const PART: usize = HEAP / 4;

/// Packet number `index` of heap `number`, with `value` in every byte.
fn part(counter: u64, number: u64, index: usize, value: u8) -> Vec<u8> {
    packet(counter, index * PART, &[value; PART], &sample_items(number))
}

impl Live {
    fn datagram_from(&mut self, sender: Endpoint, datagram: &[u8]) -> Outcome {
        self.window.tick(self.start + Duration::from_millis(self.millis));
        self.window.datagram(datagram, sender, &mut self.desk)
    }

    /// Sends packets of heap `number` of the stream now.
    fn parts(&mut self, number: u64, indices: std::ops::Range<usize>) {
        for index in indices {
            self.datagram_from(FROM, &part(number, number, index, number as u8));
        }
    }

    /// Ends the stream, whose frames 0 to 24 have the bytes of their own heaps only. Returns the numbers of valid heaps.
    fn end(mut self) -> Vec<u64> {
        let valid = self.handed_on();
        for frame in &self.desk.out {
            let first = frame.header().timestamp / STEP;
            for slot in 0..HEAPS {
                let number = first + slot as u64;
                let value = if valid.contains(&number) { number as u8 } else { 0 };
                assert_eq!(heap_bytes(frame, slot), [value; HEAP], "heap {number}");
            }
        }
        valid
    }
}

#[test]
fn foreign_packet_before_those_of_the_stream_removes_no_heap() {
    for index in 0..4 {
        let mut live = Live::new(4);
        live.stream(0..60);
        for number in 60..100 {
            live.millis += 1;
            // Several heap counters, of which the first one takes the position.
            for other in 0..3 {
                live.datagram_from(FOREIGN, &part(OTHER + other, number, index, 0xaa));
            }
            live.parts(number, 0..4);
        }
        assert_eq!(live.count("heaps_replaced"), 40);
        assert_eq!(live.count("packets_conflicting"), 2 * 40);
        assert_eq!(live.count("packets_duplicate"), 0);
        assert_eq!(live.count("heaps_incomplete"), 0);
        assert_eq!(live.end(), (0..100).collect::<Vec<_>>(), "packet {index}");
    }
}

#[test]
fn foreign_packet_among_those_of_the_stream_is_rejected() {
    for before in 1..=4 {
        let mut live = Live::new(4);
        live.stream(0..60);
        for number in 60..100 {
            live.millis += 1;
            live.parts(number, 0..before);
            // Once with all packets: not in the last heap of a frame, which is sent then.
            if number % HEAPS as u64 != 3 {
                let foreign = part(OTHER, number, number as usize % 4, 0xaa);
                assert_eq!(live.datagram_from(FOREIGN, &foreign), Outcome::Rejected);
            }
            live.parts(number, before..4);
        }
        assert_eq!(live.count("packets_conflicting"), 30);
        assert_eq!(live.count("heaps_replaced") + live.count("packets_duplicate"), 0);
        assert_eq!(live.end(), (0..100).collect::<Vec<_>>(), "after {before} packets");
    }
}

#[test]
fn foreign_whole_heap_is_replaced_by_that_of_the_stream() {
    let mut live = Live::new(4);
    live.stream(0..60);
    let foreign = packet(OTHER, 0, &[0xaa; HEAP], &sample_items(61));
    live.millis += 1;
    assert_eq!(live.datagram_from(FOREIGN, &foreign), Outcome::Accepted);
    live.stream(60..100);
    assert_eq!(live.count("heaps_replaced"), 1);
    assert_eq!(live.count("heaps_received"), 100);
    assert_eq!(live.end(), (0..100).collect::<Vec<_>>());
}

#[test]
fn heaps_of_a_sender_that_was_restarted_are_not_mixed() {
    let restarted = Endpoint::v4(Ipv4Addr::LOCALHOST, 50_000);
    // From the same port, and from another one.
    for sender in [FROM, restarted] {
        let mut live = Live::new(4);
        live.stream(0..60);
        live.parts(60, 0..2);
        for index in 0..4 {
            live.datagram_from(sender, &part(7, 60, index, 0xaa));
        }
        for number in 61..100 {
            live.millis += 1;
            let heap = packet(7 + number, 0, &[number as u8; HEAP], &sample_items(number));
            live.datagram_from(sender, &heap);
        }
        assert_eq!(live.count("packets_conflicting"), 4);
        assert_eq!(live.end(), (0..60).chain(61..100).collect::<Vec<_>>(), "from {sender}");
    }
}

#[test]
fn stream_of_another_sender_is_followed_once_the_first_one_ends() {
    let mut live = Live::new(4);
    for number in 0..200 {
        live.millis += 1;
        // Both send: a hand-over from the first sender to the second one.
        if number < 100 {
            live.parts(number, 0..4);
        }
        if number >= 50 {
            (0..4).for_each(|index| {
                live.datagram_from(FOREIGN, &part(OTHER + number, number, index, number as u8));
            });
        }
    }
    assert!(live.window.senders().is_current(FOREIGN) && !live.window.senders().is_current(FROM));
    assert_eq!(live.end(), (0..200).collect::<Vec<_>>());
}

#[test]
fn copies_of_a_replaced_heap_are_made_before_those_of_its_replacement() {
    let env = Env::detached("in");
    let options = Options { threads: 2, ..Options::new(4, RATE) };
    let (mut window, mut desk) =
        (Window::new(digitiser(), options, &env), Desk::new(&digitiser(), 64));
    for number in 0..60 {
        window.datagram(&heap(number), FROM, &mut desk);
    }
    let foreign = part(OTHER, 60, 3, 0xaa);
    let batch = [(foreign.as_slice(), FOREIGN)].into_iter();
    let pending = window.batch((1, Copies::new()), batch, &mut desk, |_| ());
    std::thread::scope(|scope| {
        let stream = scope.spawn(move || {
            for index in 0..4 {
                window.datagram(&part(60, 60, index, 60), FROM, &mut desk);
            }
            (61..64).for_each(|number| _ = window.datagram(&heap(number), FROM, &mut desk));
            desk
        });
        std::thread::sleep(Duration::from_millis(50));
        drop(pending);
        let desk = stream.join().unwrap();
        let last = desk.out.last().unwrap();
        assert_eq!(last.header().validity, [1; HEAPS]);
        assert_eq!(heap_bytes(last, 0), [60; HEAP]);
    });
}

/// Warnings of a window whose heaps come from a second sender, too, from heap `begin` to `end` of 1000.
fn warnings(second: std::ops::Range<u64>, ends_first: bool) -> (Vec<String>, u64) {
    let mut live = Live::new(4);
    let events = Arc::new(Events::default());
    live.window.env.events.redirect(Some((Arc::clone(&events), "in".to_owned())));
    live.stream(0..60);
    for number in 60..1000 {
        live.millis += 1;
        if number < second.start || !ends_first {
            live.parts(number, 0..4);
        }
        if second.contains(&number) {
            for index in 0..4 {
                live.datagram_from(FOREIGN, &part(OTHER + number, number, index, number as u8));
            }
        }
    }
    let text = events.since(0).into_iter().filter(|event| event.kind == EventKind::Warning);
    (text.map(|event| event.text).collect(), live.count("packets_second_sender"))
}

#[test]
fn second_sender_that_overlaps_in_time_is_one_event_with_both_addresses() {
    let (told, packets) = warnings(200..1000, false);
    let text = "two senders send this stream at the same time, 127.0.0.1:7148 and 127.0.0.1:9999: stop one of them";
    assert_eq!(told, [text]);
    assert!(packets >= 3000, "{packets}");
}

#[test]
fn handover_and_short_overlap_are_no_second_sender() {
    assert_eq!(warnings(200..1000, true).0, [""; 0], "the first sender ends");
    assert_eq!(warnings(200..300, false).0, [""; 0], "both send for 100 ms");
}
