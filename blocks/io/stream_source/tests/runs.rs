//! Which run of which sender is the stream, and when it ends.

use super::*;

/// Packets of `packets` of the frame with number `number`.
fn of(packets: &[Vec<u8>], number: u64) -> Vec<Vec<u8>> {
    let timestamp = Some(7 + number * SAMPLES);
    let is_of = |packet: &&Vec<u8>| value(packet, item::TIMESTAMP) == timestamp;
    packets.iter().filter(is_of).cloned().collect()
}

fn events(bench: &Bench) -> Arc<Events> {
    let events = Arc::new(Events::default());
    bench.env.events.redirect(Some((Arc::clone(&events), "source".to_owned())));
    events
}

/// The source waits for frames for longer than `finish_after_seconds`, and than a heap waits for its packets.
#[test]
fn flowgraph_that_stands_still_is_no_silence_of_the_sender() {
    let port = voltages();
    let frames = in_a_row(0..10);
    let all = packets(&port, &frames, json!({"packet_payload_bytes": 64}));
    let address = {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().to_string()
    };
    let kind = serde_json::to_value(StreamType::of(&port)).unwrap();
    let source = json!({
        "source": address, "type": kind, "live": false, "finish_after_seconds": 1.0,
    });
    let source: StreamSource = fxgraph::kind::read(&source).unwrap();
    let ports = Ports { inputs: vec![], outputs: vec![port] };
    let env = Env::detached("source");
    let mut receiver = Harness::new(source.build(&[], &env).unwrap(), &ports, 20).unwrap();
    Harness::block_on(receiver.start()).unwrap();
    // The block lends 4 frames.
    Harness::block_on(receiver.run()).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |packets: &[Vec<u8>]| {
        for packet in packets {
            socket.send_to(packet, &address).unwrap();
        }
    };
    // The seventh heap has begun when the thread waits for the fifth frame.
    let is_seventh = |packet: &Vec<u8>| value(packet, item::SEQUENCE) == Some(6);
    let (early, late) = all.split_at(all.iter().position(is_seventh).unwrap() + 2);
    send(early);
    std::thread::sleep(Duration::from_millis(1600));
    send(late);
    let mut got = Vec::new();
    let deadline = Instant::now() + Duration::from_mins(1);
    while Harness::block_on(receiver.run()).unwrap() != Next::Finished {
        got.extend(std::iter::from_fn(|| receiver.receive(0)));
        assert!(Instant::now() < deadline, "the stop heap ends the stream");
        std::thread::sleep(Duration::from_millis(2));
    }
    got.extend(std::iter::from_fn(|| receiver.receive(0)));
    let times: Vec<u64> = got.iter().map(|frame| frame.header().timestamp).collect();
    assert_eq!(times, frames.iter().map(|sent| sent.timestamp).collect::<Vec<_>>());
    let count = |name: &str| {
        env.counters.list().iter().find(|named| named.name == name).unwrap().counter.get()
    };
    let names = ["heaps_received", "heaps_incomplete", "packets_too_late"];
    assert_eq!(names.map(count), [10, 0, 0]);
}

/// As when a sink is swapped: the old one stops, and the new one goes on as another run.
#[test]
fn stop_heap_of_a_run_does_not_end_the_next_one() {
    let port = voltages();
    let before = packets(&port, &in_a_row(0..3), json!({}));
    let after = packets(&port, &in_a_row(3..6), json!({"packet_payload_bytes": 64}));
    let (data, stops): (Vec<_>, Vec<_>) =
        after.into_iter().filter(|p| value(p, item::TYPE).is_none()).partition(|p| is_data(p));
    let mut bench = Bench::new(&port);
    bench.receive(&before, SENDER);
    bench.now += Duration::from_millis(80);
    assert_eq!(bench.window.stopped(bench.now), Some(Duration::from_millis(80)));
    // A quarter of a heap is not enough for another run, but the stream may go on.
    bench.receive(&data[..1], OTHER);
    assert_eq!(bench.window.stopped(bench.now), Some(Duration::ZERO));
    bench.receive(&data[1..], OTHER);
    assert_eq!(bench.window.stopped(bench.now), None);
    let count = bench.out.frames.len();
    assert_eq!(count, 6);
    bench.receive(&stops, OTHER);
    bench.now += Duration::from_millis(80);
    assert_eq!(bench.window.stopped(bench.now), Some(Duration::from_millis(80)));
    bench.end();
    assert_eq!(bench.window.stopped(bench.now), None);
}

#[test]
fn stop_heap_that_overtakes_all_data_of_its_run_ends_the_stream() {
    let port = voltages();
    let all = packets(&port, &in_a_row(0..3), json!({}));
    let (data, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|packet| is_data(packet));
    let mut bench = Bench::new(&port);
    bench.receive(&rest, SENDER);
    bench.receive(&data, SENDER);
    bench.now += Duration::from_millis(80);
    assert_eq!(bench.window.stopped(bench.now), Some(Duration::from_millis(80)));
    assert_eq!(bench.out.frames.len(), 3);
}

#[test]
fn run_of_another_type_does_not_take_the_stream_over() {
    let ours = voltages();
    let axes = [("heap", 2), ("channel", 8), ("spectrum", 4)];
    let theirs = port(Dtype::Ci8, &axes, &[("heap", 2), ("channel", 4)]);
    let enabled = [(7 + 4 * SAMPLES, true)];
    let foreign = packets_while(&theirs, &in_a_row(2..6), json!({"enabled": false}), &enabled);
    let foreign: Vec<Vec<u8>> = foreign.into_iter().filter(|packet| is_data(packet)).collect();
    let mut bench = Bench::new(&ours);
    let events = events(&bench);
    bench.receive(&packets(&ours, &in_a_row(0..4), json!({"stop_heaps": false})), SENDER);
    bench.receive(&foreign, OTHER);
    bench.end();
    assert_eq!((bench.out.frames.len(), bench.counter("packets_of_other_type")), (4, 2));
    let texts: Vec<String> = events.since(0).iter().map(|event| event.text.clone()).collect();
    assert!(texts.iter().all(|text| !text.contains("takes the stream over")), "{texts:?}");
}

#[test]
fn second_copies_of_a_takeover_are_duplicates_and_no_losses() {
    let port = voltages();
    let small = json!({"packet_payload_bytes": 64, "stop_heaps": false});
    let before = packets(&port, &in_a_row(0..8), small.clone());
    let mut after = small;
    after["enabled"] = json!(false);
    let after = packets_while(&port, &in_a_row(4..12), after, &[(7 + 6 * SAMPLES, true)]);
    let mut bench = Bench::new(&port);
    (0..6).for_each(|number| drop(bench.receive(&of(&before, number), SENDER)));
    // The heap is sent when the copy has begun, and its last packets come later.
    let copy = of(&before, 6);
    bench.receive(&copy[..2], SENDER);
    bench.receive(&of(&after, 6), OTHER);
    bench.receive(&copy[2..], SENDER);
    bench.receive(&of(&after, 7), OTHER);
    bench.receive(&of(&before, 7), SENDER);
    (8..12).for_each(|number| drop(bench.receive(&of(&after, number), OTHER)));
    bench.wait(2);
    bench.end();
    assert_eq!(bench.timestamps(), (0..12).map(|n| 7 + n * SAMPLES).collect::<Vec<_>>());
    in_a_row(0..12).iter().for_each(|sent| bench.assert_whole(sent.number as usize, *sent));
    for lost in ["packets_too_late", "heaps_unexpected", "heaps_missing", "heaps_incomplete"] {
        assert_eq!(bench.counter(lost), 0, "{lost}");
    }
    let copies = copy.len() + of(&before, 7).len();
    assert_eq!(bench.counter("packets_duplicate"), copies as u64);
}

#[test]
fn frames_have_the_time_base_of_the_sender() {
    let port = voltages();
    let second = (3..7).map(|number| Sent { number, timestamp: (1 << 48) + 7 + number * SAMPLES });
    let frames: Vec<Sent> = in_a_row(0..3).into_iter().chain(second).collect();
    let mut all = packets(&port, &frames, json!({}));
    // A missing frame has the base of the one before it.
    all.retain(|packet| !is_data(packet) || value(packet, item::SEQUENCE) != Some(5));
    let mut bench = Bench::new(&port);
    bench.receive(&all, SENDER);
    bench.end();
    let base_in = |timestamp: u64| match timestamp >> 48 {
        0 => TimeBase::default(),
        // Unix time 1800000000.25 and a picosecond.
        _ => TimeBase {
            from: 1 << 48,
            sync_time: fxgraph::Time::from_iso("2027-01-15T08:00:00.250000000001Z"),
            uncertainty_seconds: 0.25,
        },
    };
    let expected = frames.iter().map(|sent| (sent.timestamp, base_in(sent.timestamp)));
    assert_eq!(bench.bases(), expected.collect::<Vec<_>>());
}

/// A restarted sender has timestamps near 0 again and, until its own sources restart, the sync time of the type.
#[test]
fn time_bases_of_a_restarted_sender_are_as_much_later_as_its_timestamps() {
    let port = voltages();
    let turn: u64 = 1 << 48;
    let last = Sent { number: 0, timestamp: turn + 1_000_000 };
    let mut restarted = in_a_row(0..2);
    restarted.push(Sent { number: 2, timestamp: turn + 7 });
    let mut bench = Bench::new(&port);
    bench.receive(&packets(&port, &[last], json!({})), SENDER);
    bench.receive(&packets(&port, &restarted, json!({})), OTHER);
    bench.end();
    let of_sender = fxgraph::Time::from_iso("2027-01-15T08:00:00.250000000001Z");
    // Unix time 1750000000.1.
    let of_type = fxgraph::Time::from_iso("2025-06-15T15:06:40.1Z");
    let base = |turns: u64, sync_time, uncertainty_seconds| TimeBase {
        from: turns * turn,
        sync_time,
        uncertainty_seconds,
    };
    let expected = [
        (turn + 1_000_000, base(1, of_sender, 0.25)),
        (2 * turn + 7, base(2, of_type, 0.0)),
        (2 * turn + 7 + SAMPLES, base(2, of_type, 0.0)),
        // Timestamp 2^48 + 7 of the sender.
        (3 * turn + 7, base(3, of_sender, 0.25)),
    ];
    assert_eq!(bench.bases(), expected);
}
